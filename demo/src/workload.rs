//! The workloads of the history: for each key the kinds of requests, their number and their times.

use tollgate_protocol::{Method, Protocol};

/// Similar requests of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) member: &'static str,
    pub(crate) key: &'static str,
    /// Days before the end of the history on which it begins.
    pub(crate) since_days: i64,
    pub(crate) protocol: Protocol,
    pub(crate) method: Method,
    /// Models with their weights.
    pub(crate) models: &'static [(&'static str, u64)],
    /// Requests on a working day at the end of the history.
    pub(crate) a_day: u64,
    pub(crate) rhythm: Rhythm,
    /// Thousandths of its requests that stream.
    pub(crate) streamed: u64,
    /// Tokens of the prompt.
    pub(crate) prompt: (u64, u64),
    /// Thousandths of the prompt that come from a cache, at most.
    pub(crate) cached: u64,
    /// Tokens of the answer, thinking included.
    pub(crate) output: (u64, u64),
    /// Thousandths of the answer that are thinking, at most.
    pub(crate) thinking: u64,
    /// First three parts of the address.
    pub(crate) network: &'static str,
    /// The tag `project`; empty: none.
    pub(crate) project: &'static str,
    /// Thousandths of its requests that are refused for faults of the caller.
    pub(crate) faulty: u64,
}

/// When a workload is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rhythm {
    /// Office hours, little on weekends.
    Office,
    /// People at all hours, mostly in the evening.
    Public,
    /// Between two and four at night.
    Night,
    /// Always the same.
    Steady,
}

/// Parts that the weights of a day add up to.
pub(crate) const DAY: u64 = 1_000;

impl Rhythm {
    /// The share of a working day's requests in this hour (UTC), in parts of [`DAY`].
    pub(crate) const fn share(self, hour: usize, is_weekend: bool) -> u64 {
        const OFFICE: [u64; 24] = [4, 3, 2, 2, 3, 8, 22, 55, 88, 98, 95, 82, 62, 80, 96, 92, 78, 52, 30, 18, 12, 9, 5, 4];
        const PUBLIC: [u64; 24] = [20, 13, 9, 8, 9, 14, 26, 40, 47, 50, 51, 52, 54, 52, 50, 50, 54, 62, 72, 78, 74, 58, 36, 21];
        const NIGHT: [u64; 24] = [0, 0, 420, 430, 150, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (share, weekend) = match self {
            Self::Office => (OFFICE[hour], 14),
            Self::Public => (PUBLIC[hour], 118),
            Self::Night => (NIGHT[hour], 100),
            Self::Steady => (DAY / 24, 90),
        };
        if is_weekend { share * weekend / 100 } else { share }
    }
}

/// Default values of a workload.
const USUAL: Workload = Workload {
    member: "",
    key: "",
    since_days: 30,
    protocol: Protocol::OpenAi,
    method: Method::Chat,
    models: &[],
    a_day: 0,
    rhythm: Rhythm::Office,
    streamed: 1_000,
    prompt: (300, 4_000),
    cached: 0,
    output: (60, 900),
    thinking: 0,
    network: "10.20.4",
    project: "",
    faulty: 6,
};

/// A coding agent: long prompts, almost all of which come from the cache.
const AGENT: Workload = Workload {
    protocol: Protocol::Anthropic,
    prompt: (18_000, 150_000),
    cached: 970,
    output: (120, 2_600),
    thinking: 300,
    network: "10.20.31",
    faulty: 4,
    ..USUAL
};

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        member: "jonas",
        key: "claude-code",
        models: &[("claude-sonnet-5-5", 7), ("claude-opus-5-5", 2), ("claude-haiku-5-5", 3)],
        a_day: 260,
        ..AGENT
    },
    Workload {
        member: "jonas",
        key: "code-review",
        models: &[("gpt-6.1-sol", 2), ("gemini-3.8-flash", 4), ("gpt-6-luna", 3), ("gpt-5-mini", 2), ("mistral-large-4", 2)],
        a_day: 300,
        prompt: (1_500, 18_000),
        cached: 600,
        output: (90, 900),
        thinking: 300,
        project: "ci",
        network: "10.20.31",
        ..USUAL
    },
    Workload {
        member: "lin",
        key: "claude-code",
        models: &[("claude-sonnet-5-5", 8), ("claude-haiku-5-5", 2)],
        a_day: 190,
        ..AGENT
    },
    Workload {
        member: "lin",
        key: "codex",
        since_days: 16,
        protocol: Protocol::Responses,
        models: &[("gpt-5.3-codex", 6), ("gpt-6.1-sol", 2)],
        a_day: 160,
        cached: 930,
        ..AGENT
    },
    Workload {
        member: "support",
        key: "assistant",
        models: &[("claude-haiku-5-5", 5), ("gemini-3.8-flash", 3), ("gpt-6.1-terra", 2)],
        a_day: 455,
        rhythm: Rhythm::Public,
        prompt: (1_400, 9_000),
        cached: 720,
        output: (70, 620),
        network: "10.20.7",
        project: "helpdesk",
        ..USUAL
    },
    Workload {
        member: "support",
        key: "mail-triage",
        models: &[("gpt-6-luna", 1)],
        a_day: 230,
        streamed: 0,
        prompt: (500, 3_000),
        cached: 500,
        output: (20, 90),
        network: "10.20.7",
        project: "helpdesk",
        ..USUAL
    },
    Workload {
        member: "search",
        key: "indexer",
        method: Method::Embeddings,
        models: &[("text-embedding-3-small", 1)],
        a_day: 245,
        rhythm: Rhythm::Steady,
        streamed: 0,
        prompt: (2_000, 8_000),
        output: (0, 0),
        network: "10.20.9",
        project: "search",
        ..USUAL
    },
    Workload {
        member: "search",
        key: "query-rewrite",
        models: &[("gpt-6-luna", 4), ("gpt-5-mini", 3)],
        a_day: 260,
        rhythm: Rhythm::Public,
        streamed: 0,
        prompt: (250, 900),
        output: (15, 60),
        network: "10.20.9",
        project: "search",
        ..USUAL
    },
    Workload {
        member: "mobile",
        key: "app-android",
        protocol: Protocol::Gemini,
        method: Method::StreamGenerate,
        models: &[("gemini-3.8-flash", 9), ("gemini-3.1-pro-preview", 1)],
        a_day: 260,
        rhythm: Rhythm::Public,
        prompt: (400, 6_000),
        cached: 300,
        output: (90, 1_100),
        thinking: 250,
        network: "10.20.12",
        project: "app",
        ..USUAL
    },
    Workload {
        member: "mobile",
        key: "app-ios",
        protocol: Protocol::Gemini,
        method: Method::StreamGenerate,
        models: &[("gemini-3.8-flash", 1)],
        a_day: 210,
        rhythm: Rhythm::Public,
        prompt: (400, 6_000),
        cached: 300,
        output: (90, 1_100),
        thinking: 250,
        network: "10.20.12",
        project: "app",
        ..USUAL
    },
    Workload {
        member: "research",
        key: "nightly-eval",
        models: &[("gpt-oss-120b", 5), ("mistral-large-4", 3), ("gemini-3.8-flash", 3), ("gpt-6.1-sol", 1)],
        a_day: 260,
        rhythm: Rhythm::Night,
        streamed: 0,
        prompt: (800, 12_000),
        output: (200, 2_000),
        network: "10.20.40",
        project: "eval",
        faulty: 30,
        ..USUAL
    },
    Workload {
        member: "research",
        key: "notebooks",
        models: &[("claude-opus-5-5", 3), ("gpt-6.1-sol", 3), ("mistral-large-4", 2), ("codestral-2508", 2)],
        a_day: 70,
        prompt: (900, 24_000),
        cached: 400,
        output: (300, 3_600),
        thinking: 500,
        network: "10.20.40",
        faulty: 40,
        ..USUAL
    },
    Workload {
        member: "northwind",
        key: "portal",
        models: &[("gpt-5-mini", 5), ("gpt-6.1-terra", 3), ("gpt-6-luna", 3)],
        a_day: 230,
        rhythm: Rhythm::Public,
        prompt: (600, 5_000),
        cached: 400,
        output: (80, 700),
        network: "198.51.100",
        ..USUAL
    },
    Workload {
        member: "fabrikam",
        key: "contracts",
        protocol: Protocol::Gemini,
        method: Method::Generate,
        models: &[("gemini-3.1-pro-preview", 3), ("gemini-3.8-flash", 1)],
        a_day: 30,
        streamed: 0,
        prompt: (30_000, 320_000),
        output: (400, 1_400),
        thinking: 400,
        network: "203.0.113",
        ..USUAL
    },
    Workload {
        member: "mira",
        key: "sandbox",
        models: &[("mistral-large-4", 2), ("gpt-oss-120b", 2), ("claude-haiku-5-5", 2), ("gpt-6.1-sol", 1)],
        a_day: 30,
        prompt: (200, 3_000),
        output: (80, 900),
        network: "10.20.31",
        faulty: 60,
        ..USUAL
    },
];

/// Speed of a model: median of the time to its first token in milliseconds, and tokens a second.
pub(crate) fn speed(model: &str) -> (u64, u64) {
    match model {
        "text-embedding-3-small" => (95, 1_000),
        "gpt-6-luna" => (260, 190),
        "claude-haiku-5-5" => (390, 170),
        "gemini-3.8-flash" => (340, 210),
        "codestral-2508" => (280, 160),
        "gpt-5-mini" => (520, 120),
        "gpt-6.1-terra" => (560, 110),
        "gpt-oss-120b" => (310, 140),
        "mistral-large-4" => (610, 75),
        "claude-sonnet-5-5" => (820, 85),
        "gpt-5.3-codex" => (940, 80),
        "gpt-6.1-sol" => (1_050, 78),
        "gemini-3.1-pro-preview" => (1_600, 95),
        _ => (1_250, 62),
    }
}
