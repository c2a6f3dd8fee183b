//! Highest cost of a request as a linear function of its output tokens: a fixed part plus a part per token.

use tollgate_protocol::RequestSummary;

use super::MIN_OUTPUT_TOKENS;
use crate::{Multiplier, NanoUsd, Price, settle::UnseenTokens};

/// Amounts are in nano-USD times this factor.
const SCALE: i128 = 1_000_000_000_000;
/// Converts nano-USD times millionths to [`SCALE`].
const PER_MILLION: i128 = 1_000_000;

/// A fixed cost and a cost per output token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorstCaseCost {
    input: u64,
    /// Output tokens of each candidate answer.
    output: u64,
    candidates: u64,
    /// Cost independent of the output, in units of 1/[`SCALE`].
    fixed: i128,
    /// Cost per output token, in units of 1/[`SCALE`].
    each: i128,
    /// True when `output` may be lowered because the caller set no limit.
    lowerable: bool,
}

impl WorstCaseCost {
    /// The cost of a request that uses no tokens and no money.
    pub(super) const fn nothing() -> Self {
        Self { input: 0, output: 0, candidates: 1, fixed: 0, each: 0, lowerable: false }
    }

    /// Tokens without a price.
    pub(super) fn unpriced(input: u64, summary: &RequestSummary, output: u64) -> Self {
        Self { input, output, candidates: u64::from(summary.candidates.max(1)), ..Self::nothing() }
    }

    /// Priced at the most expensive kind the input may be, in the most expensive tier it may reach. Unseen input counts towards the cost
    /// but not towards the tokens, because it would exceed most limits on tokens per minute.
    pub(super) fn of(
        price: &Price,
        multiplier: Multiplier,
        seen: u64,
        unseen: UnseenTokens,
        searches: u64,
        summary: &RequestSummary,
        output: u64,
    ) -> Self {
        let input = seen.saturating_add(unseen.input);
        let tiers = price.tiers.iter().map(|tier| tier.above).filter(|above| input > *above).map(|above| above + 1);
        let (mut fixed, mut each) = (0, 0);
        for prompt in std::iter::once(0).chain(tiers) {
            let rates = price.rates(prompt);
            let mut highest = rates.input.max(rates.cache_read).max(rates.cache_write).max(rates.cache_write_1h);
            if summary.images > 0 || summary.document_bytes > 0 || unseen.input > 0 {
                highest = highest.max(rates.image);
            }
            if summary.audio_bytes > 0 || summary.document_bytes > 0 || unseen.input > 0 {
                highest = highest.max(rates.audio);
            }
            let at_least = |rate: i64| i128::from(rate.max(0)) * i128::from(multiplier.0.max(0));
            let of_searches = at_least(rates.web_search).saturating_mul(i128::from(searches));
            let request = at_least(rates.per_request).saturating_add(of_searches).saturating_mul(PER_MILLION);
            let per_token = at_least(rates.output.max(rates.thinking));
            let unlimited = per_token.saturating_mul(i128::from(unseen.output));
            fixed =
                fixed.max(at_least(highest).saturating_mul(i128::from(input)).saturating_add(request).saturating_add(unlimited));
            each = each.max(per_token);
        }
        Self { fixed, each, ..Self::unpriced(seen, summary, output) }
    }

    /// Allows [`WorstCaseCost::lowered_to`] to lower the output.
    pub(super) const fn lowerable(self) -> Self {
        Self { lowerable: true, ..self }
    }

    /// True when more output costs more.
    pub(super) const fn output_costs(&self) -> bool {
        self.each > 0
    }

    /// Output tokens of each candidate answer.
    pub(super) const fn output(&self) -> u64 {
        self.output
    }

    /// Input and output tokens together.
    pub(super) const fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output.saturating_mul(self.candidates))
    }

    /// Cost of input and output, rounded up to whole nano-USD.
    pub(super) fn amount(&self) -> NanoUsd {
        let tokens = i128::from(self.output) * i128::from(self.candidates);
        let exact = self.each.saturating_mul(tokens).saturating_add(self.fixed);
        let nanos = exact.div_euclid(SCALE) + i128::from(exact.rem_euclid(SCALE) > 0);
        NanoUsd(i64::try_from(nanos).unwrap_or(i64::MAX))
    }

    /// Cost with [`MIN_OUTPUT_TOKENS`]; `None` when the output may not be lowered to that.
    pub(super) fn amount_at_min_output(&self) -> Option<NanoUsd> {
        let lowerable = self.lowerable && self.each > 0 && self.output > MIN_OUTPUT_TOKENS;
        lowerable.then(|| Self { output: MIN_OUTPUT_TOKENS, ..*self }.amount())
    }

    /// As much output as `left` affords; `None` when that is not lower or below [`MIN_OUTPUT_TOKENS`].
    pub(super) fn lowered_to(&self, left: NanoUsd) -> Option<Self> {
        if !self.lowerable || self.each <= 0 {
            return None;
        }
        let spare = i128::from(left.0).checked_mul(SCALE)?.checked_sub(self.fixed)?;
        let affords = spare.div_euclid(self.each.checked_mul(i128::from(self.candidates))?);
        let output = u64::try_from(affords).ok()?.min(self.output);
        (output >= MIN_OUTPUT_TOKENS && output < self.output).then_some(Self { output, ..*self })
    }
}
