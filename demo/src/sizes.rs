//! Sizes of requests and answers, and durations of answers.

use tollgate_protocol::{FinishReason, Method, Protocol, ReplySummary, Usage};

use crate::{
    random::Random,
    workload::{Workload, speed},
};

const BYTES_PER_TOKEN: u64 = 4;

/// The figures of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFigures {
    pub(crate) stream: bool,
    pub(crate) usage: Usage,
    /// Microseconds until the first byte of the upstream, and until the end of its answer.
    pub(crate) first_us: u64,
    pub(crate) last_us: u64,
    /// Whether the answer ends with calls of tools.
    pub(crate) calls_tools: bool,
}

impl RequestFigures {
    pub(crate) fn draw(workload: &Workload, model: &str, random: &mut Random) -> Self {
        let embeds = workload.method == Method::Embeddings;
        let prompt_total = random.mostly_low(workload.prompt);
        let (completion_total, reasoning) = if embeds {
            (0, 0)
        } else {
            let answer = random.mostly_low(workload.output).max(1);
            let thinking = if thinks(model) { random.below(workload.thinking + 1) } else { 0 };
            (answer, answer * thinking / 1_000)
        };
        // The first turn of a conversation finds nothing in the cache.
        let from_cache =
            if workload.cached == 0 || random.happens(60) { 0 } else { random.between((workload.cached / 2, workload.cached)) };
        let cached = prompt_total * from_cache / 1_000;
        let cache_write = if workload.protocol == Protocol::Anthropic { (prompt_total - cached) * 4 / 5 } else { 0 };
        let usage = Usage { prompt_total, cached, cache_write, completion_total, reasoning, ..Usage::default() };
        let (first_ms, per_second) = speed(model);
        // Half to three times the median; long uncached prompts take longer.
        let first_us = first_ms * random.mostly_low((520, 3_000)) * 1_650 / 1_000 + (prompt_total - cached) * 9;
        let per_second = per_second * random.between((700, 1_250)) / 1_000;
        let last_us = first_us + completion_total * 1_000_000 / per_second.max(1);
        let stream = random.happens(workload.streamed);
        let calls_tools = workload.prompt.0 > 10_000 && random.happens(620);
        Self { stream, usage, first_us, last_us, calls_tools }
    }

    /// Bytes of the answer's text.
    pub(crate) const fn text_bytes(&self) -> u64 {
        (self.usage.completion_total - self.usage.reasoning) * BYTES_PER_TOKEN
    }

    /// The upstream's answer.
    pub(crate) fn reply(&self) -> ReplySummary {
        ReplySummary {
            usage: Some(self.usage),
            finish: Some(if self.calls_tools { FinishReason::Tool } else { FinishReason::Stop }),
            content: true,
            text_bytes: self.text_bytes(),
            ..ReplySummary::default()
        }
    }
}

fn thinks(model: &str) -> bool {
    !matches!(model, "gpt-6-luna" | "codestral-2508" | "text-embedding-3-small" | "mistral-large-4")
}
