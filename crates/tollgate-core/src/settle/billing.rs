//! What a request is charged and what an attempt costs, depending on how they ended (stream-break policy).

use tollgate_protocol::{Method, Usage};

use super::{
    DeliveredContent, InputCount, amount,
    count::{count_output, tokens_of},
};
use crate::{AttemptResult, Multiplier, NanoUsd, Outcome, Price, StreamBreak, TokenSource, Tokens};

/// Input of the sale calculation.
#[derive(Clone, Copy, Debug)]
pub(super) struct BillingInput {
    pub(super) method: Method,
    pub(super) outcome: Outcome,
    pub(super) policy: StreamBreak,
    pub(super) input: InputCount,
    /// Usage the upstream reported.
    pub(super) usage: Option<Usage>,
    pub(super) usage_source: TokenSource,
    /// True when an upstream was processing the request when it ended.
    pub(super) in_flight: bool,
    /// Content the upstream produced.
    pub(super) produced: DeliveredContent,
    /// Content that reached the caller.
    pub(super) delivered: DeliveredContent,
}

impl BillingInput {
    /// The charged tokens; `None`: nothing is charged, whatever the price.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        if self.method == Method::CountTokens {
            return None;
        }
        match self.outcome {
            Outcome::Completed => Some(match self.usage {
                Some(usage) => tokens_of(&usage, self.usage_source),
                None => self.counted(self.produced),
            }),
            Outcome::CallerLeft | Outcome::UpstreamBroke | Outcome::GatewayStopped if self.delivered.content => {
                Some(match (self.policy, self.usage) {
                    (StreamBreak::ProviderUsage, Some(usage)) => tokens_of(&usage, self.usage_source),
                    _ => self.counted(self.delivered),
                })
            }
            // The caller cancelled the request itself; the policy decides about the input.
            Outcome::CallerLeft if self.in_flight && self.policy != StreamBreak::NoneIfEmpty => Some(self.input_alone()),
            Outcome::Refused | Outcome::CallerLeft | Outcome::UpstreamBroke | Outcome::GatewayStopped => None,
        }
    }

    /// Tokens with the input as reported, if it was, and the counted output.
    fn counted(&self, output: DeliveredContent) -> Tokens {
        let input = self.input_alone();
        let output = count_output(output);
        let counted = if output == 0 { TokenSource::None } else { TokenSource::Counted };
        Tokens { output, source: input.source.with(counted), ..input }
    }

    fn input_alone(&self) -> Tokens {
        match self.usage {
            Some(usage) if usage.prompt_total > 0 => {
                tokens_of(&Usage { completion_total: 0, reasoning: 0, ..usage }, self.usage_source)
            }
            _ => Tokens { input: self.input.tokens, source: self.input.source, ..Tokens::default() },
        }
    }
}

/// The tokens a provider will charge for an attempt, as far as known.
pub(super) fn attempt_tokens(
    method: Method,
    result: AttemptResult,
    input: InputCount,
    produced: DeliveredContent,
    usage: Option<(Usage, TokenSource)>,
) -> Tokens {
    let complete = match result {
        AttemptResult::NotSent | AttemptResult::Refused => return Tokens::default(),
        AttemptResult::Answered => true,
        AttemptResult::Failed | AttemptResult::Broke | AttemptResult::Cancelled => false,
    };
    if method == Method::CountTokens {
        return Tokens::default();
    }
    let counted = count_output(produced);
    match usage {
        Some((usage, source)) if complete || usage.completion_total >= counted => tokens_of(&usage, source),
        // The report is older than the content; the output produced since is charged too.
        Some((usage, _)) => tokens_of(&Usage { completion_total: counted, ..usage }, TokenSource::Estimated),
        None => {
            let source = if complete { input.source.with(TokenSource::Counted) } else { TokenSource::Estimated };
            Tokens { input: input.tokens, output: counted, source, ..Tokens::default() }
        }
    }
}

/// An amount that may be unknown or too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PricedAmount {
    Known(NanoUsd),
    Unpriced,
    Overflow,
}

impl PricedAmount {
    /// Cost of an attempt's tokens. Unused attempts are free.
    pub(super) fn cost(
        result: AttemptResult,
        method: Method,
        tokens: &Tokens,
        price: Option<&Price>,
        multiplier: Multiplier,
    ) -> Self {
        match result {
            AttemptResult::NotSent | AttemptResult::Refused => Self::Known(NanoUsd::ZERO),
            _ if method == Method::CountTokens => Self::Known(NanoUsd::ZERO),
            AttemptResult::Answered | AttemptResult::Failed | AttemptResult::Broke | AttemptResult::Cancelled => {
                Self::of(tokens, price, multiplier)
            }
        }
    }

    /// Sale amount; `None` tokens are free.
    pub(super) fn sale(tokens: Option<&Tokens>, price: Option<&Price>, multiplier: Multiplier) -> Self {
        tokens.map_or(Self::Known(NanoUsd::ZERO), |tokens| Self::of(tokens, price, multiplier))
    }

    fn of(tokens: &Tokens, price: Option<&Price>, multiplier: Multiplier) -> Self {
        let Some(price) = price else { return Self::Unpriced };
        amount(tokens, price, multiplier).map_or(Self::Overflow, Self::Known)
    }

    /// The amount, for the record.
    pub(super) const fn known(self) -> Option<NanoUsd> {
        match self {
            Self::Known(amount) => Some(amount),
            Self::Unpriced | Self::Overflow => None,
        }
    }

    /// Sum of both: overflow takes precedence over unknown.
    pub(super) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => a.checked_add(b).map_or(Self::Overflow, Self::Known),
            (Self::Overflow, _) | (_, Self::Overflow) => Self::Overflow,
            (Self::Unpriced, _) | (_, Self::Unpriced) => Self::Unpriced,
        }
    }
}
