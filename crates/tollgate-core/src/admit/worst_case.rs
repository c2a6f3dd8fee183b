//! The worst a request can come to, as a line in its output: so much whatever happens, and so much for each token.

use tollgate_protocol::RequestSummary;

use super::MIN_OUTPUT_TOKENS;
use crate::{Multiplier, NanoUsd, Price};

/// Amounts here are nano-USD times this.
const SCALE: i128 = 1_000_000_000_000;
/// From nano-USD and millionths to [`SCALE`].
const PER_MILLION: i128 = 1_000_000;

/// The line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorstCaseCost {
    input: u64,
    /// Output tokens of each candidate answer.
    output: u64,
    candidates: u64,
    /// Whatever the output, in [`SCALE`]ths.
    fixed: i128,
    /// For a token of output, in [`SCALE`]ths.
    each: i128,
    /// Whether `output` may be lowered: the caller did not ask for it.
    lowers: bool,
}

impl WorstCaseCost {
    /// No tokens, no money.
    pub(super) const fn nothing() -> Self {
        Self { input: 0, output: 0, candidates: 1, fixed: 0, each: 0, lowers: false }
    }

    /// Tokens without money.
    pub(super) fn unpriced(input: u64, summary: &RequestSummary, output: u64) -> Self {
        Self { input, output, candidates: u64::from(summary.candidates.max(1)), ..Self::nothing() }
    }

    /// At a price list: the dearest kind the input may turn out to be, in the dearest tier it may fall in.
    pub(super) fn of(price: &Price, multiplier: Multiplier, input: u64, summary: &RequestSummary, output: u64) -> Self {
        let tiers = price.tiers.iter().map(|tier| tier.above).filter(|above| input > *above).map(|above| above + 1);
        let (mut fixed, mut each) = (0, 0);
        for prompt in std::iter::once(0).chain(tiers) {
            let rates = price.rates(prompt);
            let mut dearest = rates.input.max(rates.cache_read).max(rates.cache_write);
            if summary.images > 0 || summary.document_bytes > 0 {
                dearest = dearest.max(rates.image);
            }
            if summary.audio_bytes > 0 || summary.document_bytes > 0 {
                dearest = dearest.max(rates.audio);
            }
            let at_least = |rate: i64| i128::from(rate.max(0)) * i128::from(multiplier.0.max(0));
            let request = at_least(rates.per_request).saturating_mul(PER_MILLION);
            fixed = fixed.max(at_least(dearest).saturating_mul(i128::from(input)).saturating_add(request));
            each = each.max(at_least(rates.output.max(rates.thinking)));
        }
        Self { fixed, each, ..Self::unpriced(input, summary, output) }
    }

    /// Lets [`WorstCaseCost::lowered_to`] lower the output.
    pub(super) const fn may_be_lowered(self) -> Self {
        Self { lowers: true, ..self }
    }

    /// Whether more output costs more.
    pub(super) const fn output_costs(&self) -> bool {
        self.each > 0
    }

    /// Output tokens of each candidate answer.
    pub(super) const fn output(&self) -> u64 {
        self.output
    }

    /// Input and output together.
    pub(super) const fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output.saturating_mul(self.candidates))
    }

    /// Input and output together, in money, rounded up.
    pub(super) fn amount(&self) -> NanoUsd {
        let tokens = i128::from(self.output) * i128::from(self.candidates);
        let exact = self.each.saturating_mul(tokens).saturating_add(self.fixed);
        let nanos = exact.div_euclid(SCALE) + i128::from(exact.rem_euclid(SCALE) > 0);
        NanoUsd(i64::try_from(nanos).unwrap_or(i64::MAX))
    }

    /// What it comes to with [`MIN_OUTPUT_TOKENS`], if it may be lowered to that.
    pub(super) fn with_least_output(&self) -> Option<NanoUsd> {
        let lowers = self.lowers && self.each > 0 && self.output > MIN_OUTPUT_TOKENS;
        lowers.then(|| Self { output: MIN_OUTPUT_TOKENS, ..*self }.amount())
    }

    /// As much output as this money affords, if that is less than now and still worth it.
    pub(super) fn lowered_to(&self, left: NanoUsd) -> Option<Self> {
        if !self.lowers || self.each <= 0 {
            return None;
        }
        let spare = i128::from(left.0).checked_mul(SCALE)?.checked_sub(self.fixed)?;
        let affords = spare.div_euclid(self.each.checked_mul(i128::from(self.candidates))?);
        let output = u64::try_from(affords).ok()?.min(self.output);
        (output >= MIN_OUTPUT_TOKENS && output < self.output).then_some(Self { output, ..*self })
    }
}
