//! Counting tokens and money.
//!
//! Two kinds of figures: *estimates* bound what a request can come to (holds, tiers of price limits), *counts* stand in
//! bills where the provider gave no figures. An estimate takes 2 bytes of text for a token, which hardly any text
//! exceeds; a count takes 4, which is what English comes to, so that a missing figure is not to the caller's harm.

use serde::{Deserialize, Serialize};
use tollgate_protocol::{RequestSummary, Usage};

use super::DeliveredContent;
use crate::{Model, Multiplier, NanoUsd, Price, TokenSource, Tokens};

/// Bytes of text a token has at least; for estimates.
const LEAST_TEXT_BYTES: u64 = 2;
/// Tokens around the text of a turn (role, delimiters); for estimates.
const TURN_TOKENS: u64 = 8;
/// Bytes of text a token has; for counts.
const TEXT_BYTES: u64 = 4;
/// Tokens of one image, in or out.
const IMAGE_TOKENS: u64 = 1_600;
/// Bytes of one second of audio.
const AUDIO_BYTES: u64 = 8_000;
/// Tokens of one second of audio.
const AUDIO_TOKENS: u64 = 32;
/// Bytes of a document for one token; its pages are not looked at.
const DOCUMENT_BYTES: u64 = 2_000;
/// Output that is reckoned with when neither request nor model bounds it.
const OPEN_OUTPUT: u64 = 16_384;

/// A local count of a request's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputCount {
    /// Tokens.
    pub tokens: u64,
    /// [`TokenSource::Counted`] for text alone, [`TokenSource::Estimated`] where media had to be guessed.
    pub source: TokenSource,
}

/// Most tokens a provider can be believed to have used for one request. Sums over billions of such reports fit into 64 bits.
const MOST_TOKENS: u64 = 1_000_000_000;

/// A provider's report, if its totals can be true. What is beyond belief counts as no report: the tokens are counted here.
#[must_use]
pub(super) fn believed(usage: Option<Usage>) -> Option<Usage> {
    usage.filter(|usage| usage.prompt_total <= MOST_TOKENS && usage.completion_total <= MOST_TOKENS)
}

/// The provider's totals as kinds that do not overlap. A part that is larger than what is left of its total is cut to
/// it, so that the kinds always sum up to the totals.
#[must_use]
pub fn tokens_of(usage: &Usage, source: TokenSource) -> Tokens {
    let mut input = usage.prompt_total;
    let mut take = |part: u64| {
        let taken = part.min(input);
        input -= taken;
        taken
    };
    let cache_read = take(usage.cached);
    let cache_write = take(usage.cache_write);
    let image = take(usage.image);
    let audio = take(usage.audio);
    let thinking = usage.reasoning.min(usage.completion_total);
    Tokens { input, output: usage.completion_total - thinking, cache_read, cache_write, thinking, image, audio, source }
}

/// Most input tokens a request can be expected to have; for holds and for the tier a price limit looks at.
#[must_use]
pub fn estimate_input(summary: &RequestSummary) -> u64 {
    let turns = u64::from(summary.turns).saturating_mul(TURN_TOKENS);
    summary.text_bytes.div_ceil(LEAST_TEXT_BYTES).saturating_add(turns).saturating_add(media_input(summary))
}

/// Most output tokens a request can have; for holds. The asked limit within the model's own, else the model's (so for a limit
/// of 0), for each candidate; 0 where nothing is generated.
#[must_use]
pub fn estimate_output(summary: &RequestSummary, model: &Model) -> u64 {
    if !summary.method.generates() {
        return 0;
    }
    let most = model.max_output.unwrap_or(u64::MAX);
    // Anthropic writes nothing for a limit of 0, some other upstreams take it for none: the worst of both is meant.
    let asked = summary.max_output.filter(|asked| *asked > 0);
    let each = asked.map_or_else(|| model.max_output.unwrap_or(OPEN_OUTPUT), |asked| asked.min(most));
    each.saturating_mul(u64::from(summary.candidates.max(1)))
}

/// Input tokens where the provider gives no figures; for bills.
#[must_use]
pub fn count_input(summary: &RequestSummary) -> InputCount {
    let media = media_input(summary);
    InputCount {
        tokens: summary.text_bytes.div_ceil(TEXT_BYTES).saturating_add(media),
        source: if media == 0 { TokenSource::Counted } else { TokenSource::Estimated },
    }
}

/// Output tokens where the provider gives no figures; for bills. Takes a `ReplySummary` or what reached the caller.
#[must_use]
pub fn count_output(output: impl Into<DeliveredContent>) -> u64 {
    let output = output.into();
    output.text_bytes.div_ceil(TEXT_BYTES).saturating_add(u64::from(output.media) * IMAGE_TOKENS)
}

/// What tokens come to at a price list (its tier is chosen here), once rounded half-up to nano-USD. `None`: it is more than
/// [`NanoUsd::MOST_OF_A_REQUEST`], which is an error of the record.
#[must_use]
pub fn amount(tokens: &Tokens, price: &Price, multiplier: Multiplier) -> Option<NanoUsd> {
    const PER_MILLION: i128 = 1_000_000;
    const SCALE: i128 = 1_000_000_000_000;
    let rates = price.rates(tokens.prompt());
    let kinds = [
        (tokens.input, rates.input),
        (tokens.output, rates.output),
        (tokens.cache_read, rates.cache_read),
        (tokens.cache_write, rates.cache_write),
        (tokens.thinking, rates.thinking),
        (tokens.image, rates.image),
        (tokens.audio, rates.audio),
    ];
    let mut sum = i128::from(rates.per_request).checked_mul(PER_MILLION)?;
    for (count, rate) in kinds {
        sum = sum.checked_add(i128::from(count).checked_mul(i128::from(rate))?)?;
    }
    let exact = sum.checked_mul(i128::from(multiplier.0))?;
    let rounded = exact.checked_add(SCALE / 2)?.div_euclid(SCALE);
    i64::try_from(rounded).ok().map(NanoUsd).filter(|amount| *amount <= NanoUsd::MAX_PER_REQUEST)
}

fn media_input(summary: &RequestSummary) -> u64 {
    let images = u64::from(summary.images).saturating_mul(IMAGE_TOKENS);
    let audio = summary.audio_bytes.div_ceil(AUDIO_BYTES).saturating_mul(AUDIO_TOKENS);
    let documents = summary.document_bytes.div_ceil(DOCUMENT_BYTES);
    images.saturating_add(audio).saturating_add(documents)
}

impl Tokens {
    /// All input tokens.
    #[must_use]
    pub const fn prompt(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
            .saturating_add(self.image)
            .saturating_add(self.audio)
    }

    /// All output tokens.
    #[must_use]
    pub const fn completion(&self) -> u64 {
        self.output.saturating_add(self.thinking)
    }
}

impl TokenSource {
    /// The word in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Provider => "provider",
            Self::Counted => "counted",
            Self::Estimated => "estimated",
        }
    }

    /// What a figure is that rests on both: the less certain one.
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
