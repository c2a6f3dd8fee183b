//! Records of the usage log as the admin API answers them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::attempts::AttemptObject;

/// A record of the admin API. `pricing` is present if a single record was requested.
#[derive(Debug, Deserialize)]
pub(super) struct RecordObject {
    pub(super) id: String,
    pub(super) at: String,
    pub(super) outcome: String,
    pub(super) reason: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) status: u16,
    pub(super) key: String,
    pub(super) key_name: String,
    pub(super) member: String,
    pub(super) member_name: Option<String>,
    pub(super) group: Option<String>,
    pub(super) protocol_in: String,
    pub(super) protocol_out: Option<String>,
    pub(super) method: String,
    pub(super) model: Option<String>,
    pub(super) stream: bool,
    pub(super) finish: Option<String>,
    pub(super) tokens: TokenCounts,
    pub(super) sale: Option<String>,
    pub(super) cost: Option<String>,
    pub(super) price_version: u64,
    pub(super) ttft_us: Option<u64>,
    pub(super) duration_us: u64,
    pub(super) overhead_us: Option<u64>,
    pub(super) address: Option<String>,
    pub(super) client_request_id: Option<String>,
    pub(super) client: Option<String>,
    pub(super) request_bytes: u64,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) dropped: Vec<String>,
    pub(super) trace: Vec<TraceObject>,
    pub(super) attempts: Vec<AttemptObject>,
    pub(super) pricing: Option<PricingObject>,
    /// Whether body and answer can be read, if a single record was requested.
    #[serde(default)]
    pub(super) contents: bool,
}

impl RecordObject {
    /// Whether a model generates the answer, unlike those of counting and embedding.
    pub(super) fn generates(&self) -> bool {
        ["chat", "generate", "stream"].contains(&self.method.as_str())
    }

    /// Whether the caller got a complete answer without any content; the same as the filter of that name selects.
    pub(super) fn is_empty_answer(&self) -> bool {
        let tokens = &self.tokens;
        self.outcome == "completed" && self.generates() && tokens.output == 0 && tokens.image == 0 && tokens.audio == 0
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenCounts {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) thinking: u64,
    pub(super) image: u64,
    pub(super) audio: u64,
    pub(super) source: String,
    #[serde(default)]
    pub(super) web_searches: u64,
}

impl TokenCounts {
    pub(super) const fn prompt(&self) -> u64 {
        let of_text = self.input.saturating_add(self.cache_read).saturating_add(self.cache_write);
        of_text.saturating_add(self.image).saturating_add(self.audio)
    }

    pub(super) const fn answer(&self) -> u64 {
        self.output.saturating_add(self.thinking)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct TraceObject {
    pub(super) channel: String,
    pub(super) account: Option<String>,
    pub(super) code: String,
    pub(super) detail: Option<String>,
}

impl TraceObject {
    pub(super) fn is_planned(&self) -> bool {
        matches!(self.code.as_str(), "planned" | "spare")
    }

    pub(super) fn is_of(&self, attempt: &AttemptObject) -> bool {
        self.channel == attempt.channel && self.account.as_deref() == Some(attempt.account.as_str())
    }

    /// Why and until when the account of an attempt cooled down when the next account was chosen.
    pub(super) fn cooling(&self, attempt: &AttemptObject) -> Option<&str> {
        self.detail.as_deref().filter(|_| self.code == "cooling" && self.is_of(attempt))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct PricingObject {
    pub(super) sale: Option<LinesObject>,
    /// The cost of each attempt, in order.
    #[serde(default)]
    pub(super) cost: Vec<AttemptCostObject>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AttemptCostObject {
    pub(super) lines: Option<LinesObject>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LinesObject {
    pub(super) amount: Option<String>,
    pub(super) exact: Option<String>,
    pub(super) multiplier: String,
    pub(super) options: Vec<String>,
    pub(super) service_tier_factor: Option<String>,
    pub(super) lines: Vec<LineObject>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LineObject {
    pub(super) kind: String,
    pub(super) count: u64,
    pub(super) unit_price: String,
    pub(super) amount: Option<String>,
}
