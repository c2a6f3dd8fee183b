//! Explains routing without sending a request: whether a request would be admitted, which accounts it would use in which
//! order, and why the others are excluded. Uses the same functions as the request path.

mod capacity;
mod context;
mod counters;
mod limits;
mod refusal;

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Serialize, Serializer};
use tollgate_core::{
    AddressLists, AttemptHistory, BelowCost, Caller, Catalog, ExcludedCandidate, HealthView, Key, NoRoute, NoRouteCause, Offer,
    Plan, PlannedAttempt, PriceLimit, Revision, RouteInput, Timestamp, below_cost, estimate_input, estimate_output, extras_at,
    rank_all, resolve,
};
use tollgate_protocol::{FieldPath, Protocol, RequestSummary};

pub use capacity::CapacityBound;
pub use counters::{CallerCounters, CounterSource, SubjectCounters, subjects_of};
pub use limits::CallerLimit;
pub use refusal::ExplainedRefusal;

use crate::{
    state::{authenticator::check, runtime_state::RuntimeState},
    upstream::client::unlisted,
};

/// Default input tokens of an explained request.
pub const DEFAULT_INPUT_TOKENS: u64 = 1_000;

/// A hypothetical request.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// Model name as a caller sends it.
    pub model: String,
    /// The caller's protocol.
    pub from: Protocol,
    /// Fields of the request besides the required ones, each with a value that is not its default.
    pub fields: Vec<FieldPath>,
    pub max_price: Option<PriceLimit>,
    pub input_tokens: u64,
    /// The request's output limit in tokens; `None` uses the model's own limit.
    pub output_tokens: Option<u64>,
}

/// The state an explanation is based on.
#[derive(Clone, Copy)]
pub struct ExplainInput<'a> {
    pub catalog: &'a Catalog,
    pub health: &'a dyn HealthView,
    /// In-memory state of the running gateway.
    pub state: &'a RuntimeState,
    /// Counters of the limits that apply to the key.
    pub counters: &'a CallerCounters,
    /// Addresses that outgoing connections may have.
    pub addresses: &'a AddressLists,
    pub now: Timestamp,
}

impl fmt::Debug for ExplainInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExplainInput").field("revision", &self.catalog.revision).field("now", &self.now).finish_non_exhaustive()
    }
}

/// Result of [`explain`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub model: String,
    /// The caller's protocol.
    pub protocol: &'static str,
    pub group: Option<String>,
    pub revision: Revision,
    /// Token estimate; absent when the request is refused before routing.
    pub estimate: Option<Estimate>,
    pub refusal: Option<ExplainedRefusal>,
    pub limits: Vec<CallerLimit>,
    /// The output limit in tokens that the gateway sets in the request, so that its cost stays within its reservation; lower
    /// than the estimate when less money is left. Absent when the gateway sets none.
    pub output_limit: Option<u64>,
    /// Accounts in the order they would be tried, also when the caller's limits refuse the request now. The order among equal
    /// accounts is random for each conversation.
    pub planned: Vec<Candidate>,
    pub excluded: Vec<ExcludedAccount>,
    /// Why accounts are excluded, as callers may know it: counts and times without names, the reported cause first.
    pub causes: Vec<ExcludedCause>,
    /// Fields that channels of this model recently refused.
    pub learned: Vec<RefusedField>,
}

/// Estimated tokens of a request, used for budgets and for accounts' token limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Estimate {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// An account that may be tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    pub channel: String,
    pub account: String,
    /// The channel's tier; lower first.
    pub priority: i32,
    pub weight: u32,
    /// `planned`: among the first attempts of a request; `spare`: after those.
    pub code: &'static str,
    /// A note if its address must not be connected to, its recent failures, and the rest of its limits.
    pub detail: Option<String>,
    pub bounds: Vec<CapacityBound>,
}

/// An account or a whole channel that is not tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExcludedAccount {
    pub channel: String,
    /// Account; absent for every account of the channel.
    pub account: Option<String>,
    pub code: &'static str,
    /// Figures of the exclusion.
    pub detail: Option<String>,
    /// How to remove the cause.
    pub remedy: &'static str,
    /// The limits that exclude it, when a limit is the cause.
    pub bounds: Vec<CapacityBound>,
}

/// Accounts that are excluded for one cause of E40 to E42.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExcludedCause {
    /// As in `x-tollgate-cause`.
    pub cause: &'static str,
    /// How many accounts; a channel without any counts as one.
    pub accounts: usize,
    /// When the first of them is available again, if that is known; RFC 3339.
    pub until: Option<String>,
}

/// A field that a channel's model recently refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedField {
    pub channel: String,
    /// The model's name upstream.
    pub upstream_model: String,
    /// The field, in the upstream's spelling.
    pub field: String,
    /// When the field is sent again; RFC 3339.
    #[serde(serialize_with = "as_shown")]
    pub until: Timestamp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde requires")]
fn as_shown<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(at)
}

/// Counts excluded accounts by cause. Those that the request itself excludes have none.
fn causes(excluded: &[ExcludedCandidate<'_>]) -> Vec<ExcludedCause> {
    let mut found: BTreeMap<NoRouteCause, (usize, Option<Timestamp>)> = BTreeMap::new();
    for it in excluded {
        let Some(cause) = it.why.cause() else { continue };
        let (accounts, until) = found.entry(cause).or_default();
        *accounts += if it.account.is_some() { 1 } else { it.channel.accounts.len().max(1) };
        *until = [*until, it.why.until()].into_iter().flatten().min();
    }
    let cause = |(cause, (accounts, until)): (NoRouteCause, (usize, Option<Timestamp>))| ExcludedCause {
        cause: cause.as_str(),
        accounts,
        until: until.map(|at| at.to_string()),
    };
    found.into_iter().map(cause).collect()
}

/// Explains how a request with `key` would be handled.
pub fn explain(question: &ExplainRequest, key: Arc<Key>, input: &ExplainInput<'_>) -> Result<Explanation, String> {
    let summary = context::summary_of(question)?;
    let mut explanation = Explanation {
        model: question.model.clone(),
        protocol: question.from.as_str(),
        group: None,
        revision: input.catalog.revision,
        estimate: None,
        refusal: None,
        limits: Vec::new(),
        output_limit: None,
        planned: Vec::new(),
        excluded: Vec::new(),
        causes: Vec::new(),
        learned: Vec::new(),
    };
    if let Err(error) = check(&key, true, input.now) {
        explanation.refusal = Some(refusal::unauthenticated(&error, question.from));
        return Ok(explanation);
    }
    if !key.allows_protocol(question.from) {
        explanation.refusal = Some(refusal::protocol_blocked(&key, question.from));
        return Ok(explanation);
    }
    let caller = Caller::of(input.catalog, key);
    let offer = match resolve(input.catalog, &caller, &summary, question.from, input.now) {
        Ok(offer) => offer,
        Err(reason) => {
            explanation.refusal = Some(refusal::not_offered(&reason));
            return Ok(explanation);
        }
    };
    explanation.group = Some(offer.group.name.clone());
    let estimate = Estimate { input_tokens: estimate_input(&summary), output_tokens: estimate_output(&summary, &offer.model) };
    explanation.estimate = Some(estimate);
    explanation.learned = learned(&offer, input);
    let context = ExplainContext { question, summary: &summary, offer: &offer, caller: &caller, input, estimate };
    let limits::LimitVerdict { limits, refusal, output_limit } = context.limits();
    (explanation.limits, explanation.refusal, explanation.output_limit) = (limits, refusal, output_limit);
    let mut history = AttemptHistory::default();
    match context.rank(&mut history) {
        Ok(plan) => {
            explanation.planned = plan.attempts().enumerate().map(|(at, it)| context.candidate(at, it)).collect();
            explanation.excluded = plan.excluded.iter().map(|it| context.excluded(it)).collect();
            explanation.causes = causes(&plan.excluded);
        }
        Err(none) => {
            // A limit that refuses the request comes before routing on the path.
            explanation.refusal.get_or_insert_with(|| refusal::no_route(&none));
            explanation.excluded = none.excluded.iter().map(|it| context.excluded(it)).collect();
            explanation.causes = causes(&none.excluded);
        }
    }
    Ok(explanation)
}

/// An explained request with everything the checks need.
struct ExplainContext<'a> {
    question: &'a ExplainRequest,
    summary: &'a RequestSummary,
    offer: &'a Offer,
    caller: &'a Caller,
    input: &'a ExplainInput<'a>,
    estimate: Estimate,
}

impl<'a> ExplainContext<'a> {
    /// Ranks all accounts. As on the path, a channel is skipped when its remaining budget does not cover the request.
    fn rank(&self, history: &mut AttemptHistory) -> Result<Plan<'a>, NoRoute<'a>> {
        let view = context::ExplainView::of(self);
        loop {
            let input = RouteInput {
                catalog: self.input.catalog,
                latest_catalog: None,
                caller: self.caller,
                offer: self.offer,
                summary: self.summary,
                from: self.question.from,
                health: self.input.health,
                candidate_view: &view,
                now: self.input.now,
                request_limit: self.question.max_price,
                translates: self.summary.method.has_counterpart(),
                history,
            };
            // The path orders equal accounts at random; the explanation uses the middle of the range.
            let plan = rank_all(&input, &mut || u32::MAX / 2)?;
            let insufficient: Vec<_> = plan.attempts().filter_map(|it| Some((it, self.budget_exclusion(it)?))).collect();
            if insufficient.is_empty() {
                return Ok(plan);
            }
            for (planned, why) in insufficient {
                // The path's limit on skipped channels does not apply: all accounts are listed.
                let _ = history.skip_channel(planned, why);
            }
        }
    }

    fn candidate(&self, at: usize, planned: &PlannedAttempt) -> Candidate {
        let share = self.input.health.status(planned.account.id, self.input.now).share;
        let failing = (planned.channel.spec.cooling && share < 1_000)
            .then(|| format!("recent failures: {}.{} % of its weight", share / 10, share % 10));
        let bounds = self.bounds_of(&planned.channel, Some(&planned.account));
        let sizes = bounds.iter().filter(|bound| bound.is_about_size()).map(CapacityBound::to_string);
        let below = self.below_cost(planned).map(|below| format!("below cost: {below}"));
        let unlisted = unlisted(&planned.channel, self.input.addresses).map(|why| why.to_string());
        let details: Vec<String> = unlisted.into_iter().chain(failing).chain(sizes).chain(below).collect();
        Candidate {
            channel: planned.channel.spec.name.clone(),
            account: planned.account.spec.name.clone(),
            priority: planned.channel.spec.priority,
            weight: planned.channel.spec.weight,
            code: if at < tollgate_core::MAX_ATTEMPTS { "planned" } else { "spare" },
            detail: (!details.is_empty()).then(|| details.join("; ")),
            bounds,
        }
    }

    /// The first kind of token that this account would sell below its cost.
    fn below_cost(&self, planned: &PlannedAttempt) -> Option<BelowCost> {
        let sale = (self.offer.sale.as_deref()?, self.offer.sale_multiplier);
        let cost = (planned.cost.as_deref()?, planned.account.spec.cost_multiplier);
        let extras = extras_at(&planned.channel, self.question.from, self.summary.extras);
        below_cost(sale, cost, self.estimate.input_tokens, extras.web_search)
    }

    fn excluded(&self, it: &ExcludedCandidate<'_>) -> ExcludedAccount {
        let bounds = self.bounds_against(it);
        let details: Vec<String> = bounds.iter().map(CapacityBound::to_string).chain(it.why.detail()).collect();
        ExcludedAccount {
            channel: it.channel.spec.name.clone(),
            account: it.account().map(|account| account.spec.name.clone()),
            code: it.why.code(),
            detail: (!details.is_empty()).then(|| details.join("; ")),
            remedy: capacity::remedy(&bounds).unwrap_or_else(|| it.why.remedy()),
            bounds,
        }
    }
}

/// Fields that the candidates recently refused.
fn learned(offer: &Offer, input: &ExplainInput<'_>) -> Vec<RefusedField> {
    let mut fields = Vec::new();
    for served in &offer.candidates {
        let Some(channel) = input.catalog.channel_at(served.channel) else { continue };
        let Some(serves) = channel.spec.serves.get(served.mapping as usize) else { continue };
        let learned = input.state.learned(channel.id, &serves.upstream).into_iter().flat_map(|learned| learned.learned(input.now));
        fields.extend(learned.map(|(field, until)| RefusedField {
            channel: channel.spec.name.clone(),
            upstream_model: serves.upstream.clone(),
            field: field.to_owned(),
            until,
        }));
    }
    fields
}

#[cfg(test)]
mod tests;
