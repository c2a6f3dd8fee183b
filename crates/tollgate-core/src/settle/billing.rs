//! Sale amount of a request and cost of an attempt, depending on how they ended (stream-break policy).

use tollgate_protocol::{Method, Usage};

use super::{
    DeliveredContent, InputCount, amount,
    count::{count_output, tokens_of},
    production::Production,
};
use crate::{AttemptResult, Multiplier, NanoUsd, Outcome, Price, StreamBreak, TokenSource, Tokens};

/// Input of the sale calculation.
#[derive(Clone, Copy, Debug)]
pub(super) struct BillingInput {
    pub(super) method: Method,
    pub(super) outcome: Outcome,
    pub(super) policy: StreamBreak,
    pub(super) input: InputCount,
    /// Output of the upstream.
    pub(super) production: Production,
    /// True when an upstream was processing the request when it ended.
    pub(super) in_flight: bool,
    /// Content that reached the caller.
    pub(super) delivered: DeliveredContent,
}

impl BillingInput {
    /// The charged tokens and searches; `None`: free at any price.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        self.tokens_alone().map(|tokens| Tokens { web_searches: self.production.searches, ..tokens })
    }

    fn tokens_alone(&self) -> Option<Tokens> {
        if self.method == Method::CountTokens {
            return None;
        }
        match self.outcome {
            Outcome::Completed => Some(match self.production.usage {
                Some((usage, source)) => tokens_of(&usage, source),
                None => self.counted(self.production.content),
            }),
            Outcome::CallerLeft if self.delivered.content => Some(self.left()),
            Outcome::UpstreamBroke | Outcome::GatewayStopped if self.delivered.content => Some(self.by_policy()),
            // The caller cancelled before any content; the policy decides about the input.
            Outcome::CallerLeft if self.in_flight && self.policy != StreamBreak::NoneIfEmpty => {
                Some(self.with_hidden_output(self.input_alone()))
            }
            Outcome::Refused | Outcome::CallerLeft | Outcome::UpstreamBroke | Outcome::GatewayStopped => None,
        }
    }

    fn by_policy(&self) -> Tokens {
        match (self.policy, self.production.usage) {
            (StreamBreak::ProviderUsage, Some((usage, source))) => tokens_of(&usage, source),
            _ => self.counted(self.delivered),
        }
    }

    /// The caller left after content. The provider charges for all that the model had produced by then: the whole answer if it
    /// was finished, else what was delivered and what a thinking model may have thought.
    fn left(&self) -> Tokens {
        match self.production.usage {
            Some((usage, source)) if self.production.finished => tokens_of(&usage, source),
            // The report includes all thinking so far.
            Some((usage, source)) if usage.reasoning > 0 => {
                let completion_total = usage.completion_total.max(count_output(self.delivered));
                let source = if completion_total > usage.completion_total { TokenSource::Estimated } else { source };
                tokens_of(&Usage { completion_total, ..usage }, source)
            }
            Some((usage, _)) if usage.completion_total < count_output(self.delivered) => {
                self.with_hidden_output(self.counted(self.delivered))
            }
            Some(_) | None => self.with_hidden_output(self.by_policy()),
        }
    }

    /// Adds output that the model may have produced unseen. The cost of the attempt is estimated from the same figures.
    fn with_hidden_output(&self, tokens: Tokens) -> Tokens {
        let thinking = self.production.hidden_thinking.saturating_sub(tokens.completion());
        let output = self.production.hidden_output.saturating_sub(tokens.completion());
        if thinking == 0 && output == 0 {
            return tokens;
        }
        Tokens {
            output: tokens.output.saturating_add(output),
            thinking: tokens.thinking.saturating_add(thinking),
            source: TokenSource::Estimated,
            ..tokens
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
        match self.production.usage {
            Some((usage, source)) if usage.prompt_total > 0 => {
                tokens_of(&Usage { completion_total: 0, reasoning: 0, ..usage }, source)
            }
            _ => Tokens { input: self.input.tokens, source: self.input.source, ..Tokens::default() },
        }
    }
}

/// The tokens and searches that a provider will charge for an attempt, reported or estimated.
pub(super) fn attempt_tokens(method: Method, result: AttemptResult, input: InputCount, production: &Production) -> Tokens {
    let tokens = tokens_alone(method, result, input, production);
    let is_charged = method != Method::CountTokens && !matches!(result, AttemptResult::NotSent | AttemptResult::Refused);
    Tokens { web_searches: if is_charged { production.searches } else { 0 }, ..tokens }
}

fn tokens_alone(method: Method, result: AttemptResult, input: InputCount, production: &Production) -> Tokens {
    let complete = match result {
        AttemptResult::NotSent | AttemptResult::Refused => return Tokens::default(),
        AttemptResult::Answered => true,
        AttemptResult::Failed | AttemptResult::Broke | AttemptResult::Cancelled => false,
    };
    if method == Method::CountTokens {
        return Tokens::default();
    }
    let counted = count_output(production.content);
    let settled = complete || production.finished;
    let unseen = production.hidden_thinking.max(production.hidden_output);
    match production.usage {
        Some((usage, source)) if settled => tokens_of(&usage, source),
        Some((usage, source)) => {
            // The report may be older than the content; output produced since then is charged too.
            let min_total = counted.saturating_add(usage.reasoning).max(unseen);
            if usage.completion_total >= min_total {
                return tokens_of(&usage, source);
            }
            let reasoning = usage.reasoning.max(production.hidden_thinking.saturating_sub(counted));
            tokens_of(&Usage { completion_total: min_total, reasoning, ..usage }, TokenSource::Estimated)
        }
        None => {
            let source = if complete { input.source.with(TokenSource::Counted) } else { TokenSource::Estimated };
            let thinking = production.hidden_thinking.saturating_sub(counted);
            let output = counted.max(production.hidden_output);
            Tokens { input: input.tokens, output, thinking, source, ..Tokens::default() }
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
