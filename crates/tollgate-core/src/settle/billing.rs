//! What is charged for a request and what an attempt costs, by how they ended: the stream-break policy.

use tollgate_protocol::{Method, Usage};

use super::{DeliveredContent, InputCount, amount, count_output, tokens_of};
use crate::{AttemptResult, Multiplier, NanoUsd, Outcome, Price, StreamBreak, TokenSource, Tokens};

/// All that the sale of a request rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct BillingInput {
    pub(super) method: Method,
    pub(super) outcome: Outcome,
    pub(super) policy: StreamBreak,
    pub(super) input: InputCount,
    /// What the upstream reported, and as what it counts.
    pub(super) usage: Option<Usage>,
    pub(super) usage_source: TokenSource,
    /// Whether an upstream was at work on the request when it ended.
    pub(super) in_flight: bool,
    /// What the upstream gave.
    pub(super) produced: DeliveredContent,
    /// What reached the caller.
    pub(super) delivered: DeliveredContent,
}

impl BillingInput {
    /// The tokens that are charged; `None`: nothing is, whatever the price.
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
            // He gave it up himself: the policy applies to the input.
            Outcome::CallerLeft if self.in_flight && self.policy != StreamBreak::NoneIfEmpty => Some(self.input_alone()),
            Outcome::Refused | Outcome::CallerLeft | Outcome::UpstreamBroke | Outcome::GatewayStopped => None,
        }
    }

    /// The input, as reported where it was, and this much output, counted.
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

/// The tokens a provider will charge for an attempt, as far as is known.
pub(super) fn attempt_tokens(
    method: Method,
    result: AttemptResult,
    input: InputCount,
    given: DeliveredContent,
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
    let counted = count_output(given);
    match usage {
        Some((usage, source)) if complete || usage.completion_total >= counted => tokens_of(&usage, source),
        // The report is older than the text: what came since is charged too.
        Some((usage, _)) => tokens_of(&Usage { completion_total: counted, ..usage }, TokenSource::Estimated),
        None => {
            let source = if complete { input.source.with(TokenSource::Counted) } else { TokenSource::Estimated };
            Tokens { input: input.tokens, output: counted, source, ..Tokens::default() }
        }
    }
}

/// An amount that may be unknown, or too large to be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PricedAmount {
    Known(NanoUsd),
    Unpriced,
    Overflow,
}

impl PricedAmount {
    /// Prices an attempt's tokens. What used nothing costs nothing.
    pub(super) fn cost(result: AttemptResult, method: Method, tokens: &Tokens, price: Option<&Price>, factor: Multiplier) -> Self {
        match result {
            AttemptResult::NotSent | AttemptResult::Refused => Self::Known(NanoUsd::ZERO),
            _ if method == Method::CountTokens => Self::Known(NanoUsd::ZERO),
            AttemptResult::Answered | AttemptResult::Failed | AttemptResult::Broke | AttemptResult::Cancelled => {
                Self::of(tokens, price, factor)
            }
        }
    }

    /// Prices what is sold; `None`: nothing is charged.
    pub(super) fn sale(tokens: Option<&Tokens>, price: Option<&Price>, factor: Multiplier) -> Self {
        tokens.map_or(Self::Known(NanoUsd::ZERO), |tokens| Self::of(tokens, price, factor))
    }

    fn of(tokens: &Tokens, price: Option<&Price>, factor: Multiplier) -> Self {
        let Some(price) = price else { return Self::Unpriced };
        amount(tokens, price, factor).map_or(Self::Overflow, Self::Known)
    }

    /// The figure for the record.
    pub(super) const fn known(self) -> Option<NanoUsd> {
        match self {
            Self::Known(amount) => Some(amount),
            Self::Unpriced | Self::Overflow => None,
        }
    }

    /// Both together: an overflow shows, else what is not known stays so.
    pub(super) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => a.checked_add(b).map_or(Self::Overflow, Self::Known),
            (Self::Overflow, _) | (_, Self::Overflow) => Self::Overflow,
            (Self::Unpriced, _) | (_, Self::Unpriced) => Self::Unpriced,
        }
    }
}
