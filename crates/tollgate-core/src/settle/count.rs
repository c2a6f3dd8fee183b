//! Token counts and amounts of money.
//!
//! There are two kinds of figures. *Estimates* bound the size of a request (reservations, tiers of price limits); they assume 2
//! bytes of text per token, which hardly any text exceeds. *Counts* replace missing provider usage in bills; they assume 4 bytes
//! per token, the average of English, so that missing usage does not overcharge.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use tollgate_protocol::{RequestExtras, RequestSummary, Usage};

use super::{
    DeliveredContent,
    bounds::{MAX_SEARCHES, plausible},
    price_lines,
};
use crate::{Model, Multiplier, NanoUsd, Price, TokenSource, Tokens};

/// Lowest number of bytes of text per token; for estimates.
const ESTIMATE_BYTES_PER_TOKEN: u64 = 2;
/// Tokens around a turn's text (role, delimiters); for estimates.
const TOKENS_PER_TURN: u64 = 8;
/// Average number of bytes of text per token; for counts.
const COUNT_BYTES_PER_TOKEN: u64 = 4;
/// Tokens per image, input or output.
const TOKENS_PER_IMAGE: u64 = 1_600;
/// Bytes per second of audio.
const AUDIO_BYTES_PER_SECOND: u64 = 8_000;
/// Tokens per second of audio.
const AUDIO_TOKENS_PER_SECOND: u64 = 32;
/// Bytes of a document per token; its pages are not inspected.
const DOCUMENT_BYTES_PER_TOKEN: u64 = 2_000;
/// Estimated output when neither request nor model limits it.
const DEFAULT_OUTPUT: u64 = 16_384;

/// A local count of a request's input tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct InputCount {
    #[n(0)]
    pub tokens: u64,
    /// [`TokenSource::Counted`] for text alone, [`TokenSource::Estimated`] with media.
    #[n(1)]
    pub source: TokenSource,
}

/// Highest plausible token count of one request. Sums over billions of such reports fit into 64 bits.
pub(super) const MAX_PLAUSIBLE_TOKENS: u64 = 1_000_000_000;

/// Splits the provider's totals into kinds that do not overlap. A part larger than the rest of its total is cut, so the kinds
/// always add up to the totals.
pub(super) fn tokens_of(usage: &Usage, source: TokenSource) -> Tokens {
    let mut input = usage.prompt_total;
    let mut take = |part: u64| {
        let part = part.min(input);
        input -= part;
        part
    };
    let cache_read = take(usage.cached);
    let cache_write = take(usage.cache_write);
    let cache_write_1h = usage.cache_write_1h.min(cache_write);
    let image = take(usage.image);
    let audio = take(usage.audio);
    let thinking = usage.reasoning.min(usage.completion_total);
    Tokens {
        input,
        output: usage.completion_total - thinking,
        cache_read,
        cache_write,
        cache_write_1h,
        thinking,
        image,
        audio,
        source,
        web_searches: 0,
    }
}

/// The tokens that a provider reported for a request without a usage record, such as a channel test. `None` where a record has a count
/// of the gateway instead: the report is zero or implausible.
pub fn reported_tokens(usage: Usage) -> Option<Tokens> {
    plausible(Some(usage)).map(|usage| tokens_of(&usage, TokenSource::Provider))
}

/// Upper estimate of a request's input tokens, for reservations and price limit tiers.
pub fn estimate_input(summary: &RequestSummary) -> u64 {
    let turns = u64::from(summary.turns).saturating_mul(TOKENS_PER_TURN);
    summary.text_bytes.div_ceil(ESTIMATE_BYTES_PER_TOKEN).saturating_add(turns).saturating_add(media_input(summary))
}

/// Upper estimate of the tokens of a request that neither its body nor its limits show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnseenTokens {
    /// The model's context, if that is known.
    pub(crate) input: u64,
    pub(crate) output: u64,
}

pub(crate) fn unseen_tokens(summary: &RequestSummary, model: &Model) -> UnseenTokens {
    let unseen = summary.extras.unseen;
    UnseenTokens {
        input: if unseen.any() { model.spec.context.unwrap_or(0) } else { 0 },
        output: if unseen.compaction { model.spec.max_output.unwrap_or(DEFAULT_OUTPUT) } else { 0 },
    }
}

/// Web searches reserved for a request that may search and states no maximum.
const DEFAULT_SEARCHES: u64 = 10;

/// Upper estimate of a request's web searches where it has these extras, for reservations.
pub(crate) fn estimate_searches(summary: &RequestSummary, extras: RequestExtras) -> u64 {
    if extras.web_search { summary.max_searches.unwrap_or(DEFAULT_SEARCHES).min(MAX_SEARCHES) } else { 0 }
}

/// Upper estimate of a request's output tokens, for reservations: the requested limit capped by the model's, or the model's (also
/// for a limit of 0), times the number of candidate answers. 0 for methods that generate nothing.
pub fn estimate_output(summary: &RequestSummary, model: &Model) -> u64 {
    if !summary.method.generates() {
        return 0;
    }
    let model_limit = model.spec.max_output.unwrap_or(u64::MAX);
    // Anthropic generates nothing for a limit of 0, other upstreams treat it as unlimited; assume the worse.
    let requested = summary.max_output.filter(|requested| *requested > 0);
    let each = requested.map_or_else(|| model.spec.max_output.unwrap_or(DEFAULT_OUTPUT), |requested| requested.min(model_limit));
    each.saturating_mul(u64::from(summary.candidates.max(1)))
}

/// Input tokens when the provider reports none, for bills.
pub fn count_input(summary: &RequestSummary) -> InputCount {
    let media = media_input(summary);
    InputCount {
        tokens: summary.text_bytes.div_ceil(COUNT_BYTES_PER_TOKEN).saturating_add(media),
        source: if media == 0 { TokenSource::Counted } else { TokenSource::Estimated },
    }
}

/// Output tokens when the provider reports none, for bills. Takes a `ReplySummary` or the delivered content.
pub(super) fn count_output(output: impl Into<DeliveredContent>) -> u64 {
    let output = output.into();
    output.text_bytes.div_ceil(COUNT_BYTES_PER_TOKEN).saturating_add(u64::from(output.media) * TOKENS_PER_IMAGE)
}

/// Amount of these tokens at a price list (with the tier of their prompt size), rounded once, half up, to nano-USD. `None` when
/// it exceeds [`NanoUsd::MAX_PER_REQUEST`], which the record reports as an error.
pub fn amount(tokens: &Tokens, price: &Price, multiplier: Multiplier) -> Option<NanoUsd> {
    price_lines(tokens, price, multiplier).total()
}

fn media_input(summary: &RequestSummary) -> u64 {
    let images = u64::from(summary.images).saturating_mul(TOKENS_PER_IMAGE);
    let audio = summary.audio_bytes.div_ceil(AUDIO_BYTES_PER_SECOND).saturating_mul(AUDIO_TOKENS_PER_SECOND);
    let documents = summary.document_bytes.div_ceil(DOCUMENT_BYTES_PER_TOKEN);
    images.saturating_add(audio).saturating_add(documents)
}

impl Tokens {
    /// All input tokens.
    pub const fn prompt(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
            .saturating_add(self.image)
            .saturating_add(self.audio)
    }

    /// All output tokens.
    pub const fn completion(&self) -> u64 {
        self.output.saturating_add(self.thinking)
    }
}

impl TokenSource {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Provider => "provider",
            Self::Counted => "counted",
            Self::Estimated => "estimated",
        }
    }

    /// Source of a figure derived from both: the less certain one.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Estimated, _) | (_, Self::Estimated) => Self::Estimated,
            (Self::Counted, _) | (_, Self::Counted) => Self::Counted,
            (Self::Provider, _) | (_, Self::Provider) => Self::Provider,
            (Self::None, Self::None) => Self::None,
        }
    }
}

#[cfg(test)]
mod tests;
