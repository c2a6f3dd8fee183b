//! Output of an upstream for an attempt, observed or assumed.

use tollgate_protocol::{Method, Usage};

use super::{
    AttemptFacts, DeliveredContent, InputCount, UsageBounds, UsageExcess,
    bounds::{plausible, reports_as_it_goes, thinks},
};
use crate::{AttemptResult, Provider, TokenSource};

/// Assumed upper bound of the thinking speed of a model, in tokens per second.
const THINKING_PER_SECOND: u64 = 1_000;
/// Assumed output speed of an abandoned answer that is not streamed, in tokens per second.
const OUTPUT_PER_SECOND: u64 = 100;

/// Size and kind of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestSize {
    pub method: Method,
    /// Whether the answer streams.
    pub stream: bool,
    pub input: InputCount,
    pub bounds: UsageBounds,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Production {
    /// The reported usage, cut to its bounds.
    pub(super) usage: Option<(Usage, TokenSource)>,
    pub(super) content: DeliveredContent,
    /// Web searches by the provider.
    pub(super) searches: u64,
    /// True if the end of the answer arrived.
    pub(super) finished: bool,
    /// Unreported output of an abandoned answer, if the model thinks.
    pub(super) hidden_thinking: u64,
    /// Unreported output of an abandoned answer that is not streamed, if the model does not think.
    pub(super) hidden_output: u64,
}

impl Production {
    pub(super) fn of(attempt: &AttemptFacts, size: &RequestSize) -> Self {
        let reply = attempt.reply_summary.unwrap_or_default();
        let content = DeliveredContent::from(reply);
        let usage = plausible(reply.usage).map(|usage| match size.bounds.cut(usage, content, || thinks(&attempt.planned)) {
            (cut, Some(_)) => (cut, TokenSource::Estimated),
            (usage, None) => (usage, usage_source(attempt)),
        });
        let searches = size.bounds.searches(reply.searches, attempt.planned.protocol);
        let production = Self { usage, content, searches, finished: reply.finish.is_some(), ..Self::default() };
        let abandoned = attempt.result == AttemptResult::Cancelled && !attempt.hedged && size.method.generates();
        if !abandoned || (production.finished && usage.is_some()) {
            return production;
        }
        let reserved = size.bounds.reserved_output;
        let within = |per_second: u64| attempt.duration_us.div_ceil(1_000_000).saturating_mul(per_second).min(reserved);
        // Providers rarely notice that a non-streamed answer was abandoned, and complete it.
        let hidden = if size.stream { within(THINKING_PER_SECOND) } else { reserved };
        match usage {
            Some((usage, _)) if usage.reasoning > 0 || reports_as_it_goes(attempt.planned.protocol) => production,
            Some(_) | None if thinks(&attempt.planned) => Self { hidden_thinking: hidden, ..production },
            None if !size.stream => Self { hidden_output: within(OUTPUT_PER_SECOND), ..production },
            Some(_) | None => production,
        }
    }
}

/// Usage that the upstream of an attempt reported beyond what the request can account for.
pub fn usage_excess(attempt: &AttemptFacts, bounds: &UsageBounds) -> Option<UsageExcess> {
    let reply = attempt.reply_summary?;
    let of_tokens = reply.usage.and_then(|usage| bounds.cut(usage, reply.into(), || thinks(&attempt.planned)).1);
    match bounds.excess_searches(reply.searches) {
        Some((reported_searches, search_bound)) => {
            Some(UsageExcess { reported_searches, search_bound, ..of_tokens.unwrap_or_default() })
        }
        None => of_tokens,
    }
}

/// Echo reports a word count, not a provider's usage.
fn usage_source(attempt: &AttemptFacts) -> TokenSource {
    if attempt.planned.channel.spec.provider == Provider::Echo { TokenSource::Counted } else { TokenSource::Provider }
}
