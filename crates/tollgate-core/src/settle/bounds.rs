//! Upper bounds of plausible usage, from the sent, requested and delivered content, with an allowance for content that the
//! gateway cannot see. Reports above them are cut, so that a faulty upstream cannot spend a caller's budget.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use tollgate_protocol::{Protocol, RequestSummary, Thinking, Usage, effective_profile};

use super::{
    DeliveredContent,
    count::{MAX_PLAUSIBLE_TOKENS, unseen_tokens},
};
use crate::{Model, PlannedAttempt};

/// Instructions that a provider adds itself (tool use, safety, chat templates).
const PROVIDER_INPUT: u64 = 4_096;
const MAX_TOKENS_PER_TURN: u64 = 64;
const MAX_TOKENS_PER_IMAGE: u64 = 50_000;
/// Bytes of audio per token, at the lowest bit rates in use.
const MIN_AUDIO_BYTES_PER_TOKEN: u64 = 16;
const MAX_TOKENS_PER_DOCUMENT_BYTE: u64 = 8;
/// Bound of an input whose size the body does not show: twice the longest context windows.
const UNSIZED_INPUT: u64 = 4_194_304;
/// Bound of an unlimited output.
const UNLIMITED_OUTPUT: u64 = 262_144;
/// Tokens of an answer besides its text: ends of turns, framing of calls.
const OUTPUT_FRAME: u64 = 64;
const MAX_TOKENS_PER_OUTPUT_MEDIUM: u64 = 16_384;
/// Hidden thinking beyond the output limit, for models that think.
const THINKING_ALLOWANCE: u64 = 32_768;
/// Bound of an unlimited number of web searches.
const UNLIMITED_SEARCHES: u64 = 100;
/// Maximum number of searches that are billed and reserved for one request, even if it allows more. It bounds a false report
/// of an upstream.
pub(super) const MAX_SEARCHES: u64 = 10_000;

/// The largest plausible charge for a request, besides the visible answer. Zero means unknown: nothing is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct UsageBounds {
    #[n(0)]
    pub input: u64,
    /// Output tokens the request permits, over all candidate answers.
    #[n(1)]
    pub output: u64,
    /// Output tokens reserved for the request. A thinking model is assumed to have produced them if its answer is abandoned.
    #[n(2)]
    pub reserved_output: u64,
    #[n(3)]
    pub candidates: u32,
    /// Output tokens beyond the limit: the provider summarises the conversation first.
    #[n(4)]
    #[cbor(default)]
    pub summary_output: u64,
    /// Web searches by the provider. Zero: the request asks for none.
    #[n(5)]
    #[cbor(default)]
    pub searches: u64,
    /// Searches that are billed if the upstream's protocol does not report searches.
    #[n(6)]
    #[cbor(default)]
    pub assumed_searches: u64,
}

/// Usage that an attempt's upstream reported beyond its bound, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageExcess {
    pub reported_input: u64,
    pub input_bound: u64,
    pub reported_output: u64,
    pub output_bound: u64,
    pub reported_searches: u64,
    pub search_bound: u64,
}

impl UsageExcess {
    /// Tokens that are not billed.
    pub const fn tokens(&self) -> u64 {
        self.reported_input.saturating_sub(self.input_bound).saturating_add(self.reported_output.saturating_sub(self.output_bound))
    }

    /// The sentence for the usage record.
    pub fn detail(&self) -> String {
        let part = |kind: &str, reported: u64, bound: u64| {
            (reported > bound).then(|| format!("{reported} {kind} where at most {bound} are possible"))
        };
        let parts = [
            part("input tokens", self.reported_input, self.input_bound),
            part("output tokens", self.reported_output, self.output_bound),
            part("web searches", self.reported_searches, self.search_bound),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("the upstream reported {}; the excess is not billed", parts.join(" and "))
    }
}

impl UsageBounds {
    /// Bounds of the input alone, before the model is known.
    pub fn of_input(summary: &RequestSummary) -> Self {
        let sized = Self::sized_input(summary);
        let input = if summary.extras.at_upstreams(true).unseen.any() { sized.max(UNSIZED_INPUT) } else { sized };
        Self { input, ..Self::default() }
    }

    /// The input that the body shows.
    fn sized_input(summary: &RequestSummary) -> u64 {
        let per = |count: u64, tokens: u64| count.saturating_mul(tokens);
        summary
            .text_bytes
            .saturating_add(per(summary.turns.into(), MAX_TOKENS_PER_TURN))
            .saturating_add(per(summary.tools.into(), MAX_TOKENS_PER_TURN))
            .saturating_add(per(summary.images.into(), MAX_TOKENS_PER_IMAGE))
            .saturating_add(summary.audio_bytes.div_ceil(MIN_AUDIO_BYTES_PER_TOKEN))
            .saturating_add(per(summary.document_bytes, MAX_TOKENS_PER_DOCUMENT_BYTE))
            .saturating_add(PROVIDER_INPUT)
    }

    /// Adds the output that the caller requested, and bounds unseen input by the model's context. An output limit of 0 is ignored,
    /// because some upstreams treat it as unlimited.
    #[must_use]
    pub fn with_output(self, summary: &RequestSummary, model: &Model, reserved_output: u64) -> Self {
        let candidates = summary.candidates.max(1);
        let each = summary.max_output.filter(|requested| *requested > 0).or(model.spec.max_output).unwrap_or(UNLIMITED_OUTPUT);
        let output = if summary.method.generates() { each.saturating_mul(candidates.into()) } else { 0 };
        let input = match model.spec.context {
            Some(_) if summary.extras.unseen.any() => {
                Self::sized_input(summary).saturating_add(unseen_tokens(summary, model).input)
            }
            Some(_) | None => self.input,
        };
        let summary_output = unseen_tokens(summary, model).output;
        let extras = summary.extras;
        let searches = if extras.web_search { summary.max_searches.unwrap_or(UNLIMITED_SEARCHES).min(MAX_SEARCHES) } else { 0 };
        // Upstreams of other protocols serve the request without the caller's own search.
        let assumed_searches = if extras.own_search { 0 } else { searches.min(1) };
        Self { input, output, reserved_output, candidates, summary_output, searches, assumed_searches }
    }

    /// These bounds with an output limit that the gateway sets for each candidate answer.
    #[must_use]
    pub fn limited_to(self, tokens: u64) -> Self {
        let output = tokens.saturating_mul(self.candidates.into());
        Self { output: self.output.min(output), reserved_output: self.reserved_output.min(output), ..self }
    }

    /// The web searches that are billed when an upstream of this protocol reported `reported`.
    pub(super) fn searches(&self, reported: Option<u32>, protocol: Protocol) -> u64 {
        let unreported = if reports_searches(protocol) { 0 } else { self.assumed_searches };
        reported.map_or(unreported, u64::from).min(self.searches)
    }

    /// The reported searches and their bound, if more were reported than are billed.
    pub(super) fn excess_searches(&self, reported: Option<u32>) -> Option<(u64, u64)> {
        let reported = u64::from(reported?);
        (self.searches > 0 && reported > self.searches).then_some((reported, self.searches))
    }

    /// The report cut to the bounds, and the excess. `thinks` is called only if it matters.
    pub(super) fn cut(
        &self,
        usage: Usage,
        produced: DeliveredContent,
        thinks: impl FnOnce() -> bool,
    ) -> (Usage, Option<UsageExcess>) {
        if self.candidates == 0 {
            return (usage, None);
        }
        let media = u64::from(produced.media).saturating_mul(MAX_TOKENS_PER_OUTPUT_MEDIUM);
        let shown = produced.text_bytes.saturating_add(media);
        let each = |tokens: u64| tokens.saturating_mul(self.candidates.into());
        let visible = self.output.max(shown).saturating_add(each(OUTPUT_FRAME)).saturating_add(self.summary_output);
        if usage.prompt_total <= self.input && usage.completion_total <= visible {
            return (usage, None);
        }
        let output_bound = visible.saturating_add(if thinks() { each(THINKING_ALLOWANCE) } else { 0 });
        let excess = UsageExcess {
            reported_input: usage.prompt_total,
            input_bound: self.input,
            reported_output: usage.completion_total,
            output_bound,
            ..UsageExcess::default()
        };
        if excess.tokens() == 0 {
            return (usage, None);
        }
        let prompt_total = usage.prompt_total.min(self.input);
        let completion_total = usage.completion_total.min(output_bound);
        (Usage { prompt_total, completion_total, ..usage }, Some(excess))
    }
}

/// Discards a usage report with implausible totals; the tokens are then counted locally.
pub(super) fn plausible(usage: Option<Usage>) -> Option<Usage> {
    // Some servers report zeros where they have not counted.
    let counted = usage.filter(|usage| usage.prompt_total > 0 || usage.completion_total > 0);
    counted.filter(|usage| usage.prompt_total <= MAX_PLAUSIBLE_TOKENS && usage.completion_total <= MAX_PLAUSIBLE_TOKENS)
}

/// Whether the attempt's model may think without showing it.
pub(super) fn thinks(planned: &PlannedAttempt) -> bool {
    let mapping = planned.mapping();
    let provider = planned.channel.spec.provider.as_str();
    let thinking = effective_profile(provider, planned.protocol, &mapping.upstream, &mapping.profile).thinking;
    !matches!(thinking, None | Some(Thinking::None))
}

/// Whether answers of a protocol show every web search.
fn reports_searches(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Anthropic | Protocol::Responses)
}

/// True if a protocol reports usage with every event of a stream, so that the latest report includes all thinking so far.
pub(super) fn reports_as_it_goes(protocol: Protocol) -> bool {
    protocol == Protocol::Gemini
}
