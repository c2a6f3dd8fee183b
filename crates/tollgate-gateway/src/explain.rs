//! Whether a request would be let in, which accounts it would use, in order, and why not the others: the same functions as
//! on the path, for a hypothetical request.

mod context;
mod counted;
mod limits;
mod refused;
mod room;

use std::{fmt, sync::Arc};

use serde::{Serialize, Serializer};
use tollgate_core::{
    AttemptHistory, Caller, Catalog, ExcludedCandidate, HealthView, Key, NoRoute, Offer, Plan, PlannedAttempt, PriceLimit,
    Revision, RouteInput, Timestamp, estimate_input, estimate_output, rank_all, resolve,
};
use tollgate_protocol::{FieldPath, Protocol, RequestSummary};

pub use counted::{CallerCounters, CounterSource, SubjectCounters, subjects_of};
pub use limits::CallerLimit;
pub use refused::Refused;
pub use room::CapacityBound;

use crate::{path::authenticate::check, state::runtime_state::RuntimeState};

/// Input tokens of a request of which nothing is said.
pub const USUAL_INPUT: u64 = 1_000;

/// A request that is not made.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// Model as a caller names it.
    pub model: String,
    /// The caller's protocol.
    pub from: Protocol,
    /// Fields it would carry beside the least, each with a value that asks for something.
    pub fields: Vec<FieldPath>,
    /// Its `x-tollgate-max-price`.
    pub max_price: Option<PriceLimit>,
    /// What its input would be estimated at, in tokens.
    pub input_tokens: u64,
    /// The output limit it would ask for, in tokens; `None`: it asks for none, so the model's own limit counts.
    pub output_tokens: Option<u64>,
}

/// What explaining looks at.
#[derive(Clone, Copy)]
pub struct ExplainInput<'a> {
    /// The catalog.
    pub catalog: &'a Catalog,
    /// Health of accounts.
    pub health: &'a dyn HealthView,
    /// What the running gateway knows besides.
    pub known: &'a RuntimeState,
    /// How those stand that the key's requests are measured by.
    pub counted: &'a CallerCounters,
    /// Now.
    pub now: Timestamp,
}

impl fmt::Debug for ExplainInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExplainInput").field("revision", &self.catalog.revision).field("now", &self.now).finish_non_exhaustive()
    }
}

/// What the request would meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Model as asked for.
    pub model: String,
    /// The caller's protocol.
    pub protocol: &'static str,
    /// The group that serves it.
    pub group: Option<String>,
    /// Catalog revision.
    pub revision: Revision,
    /// What the request is estimated at; absent where it does not come to a choice of accounts.
    pub estimate: Option<Estimate>,
    /// How it would be refused.
    pub refusal: Option<Refused>,
    /// What bounds the caller.
    pub limits: Vec<CallerLimit>,
    /// The output limit, in tokens, that the gateway writes into the request, so that it costs no more than is
    /// reserved for it; lower than estimated where less money is left. Absent: it writes none.
    pub output_limit: Option<u64>,
    /// Accounts in the order in which they would be tried, also where limits of the caller refuse the request for now. Among
    /// equals the order is drawn for each conversation.
    pub planned: Vec<Candidate>,
    /// Accounts that would not be tried.
    pub excluded: Vec<ExcludedAccount>,
    /// Fields that channels of this model lately refused.
    pub learned: Vec<RefusedField>,
}

/// What a request is estimated at, for budgets and for accounts' tokens a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// Tokens in.
    pub input_tokens: u64,
    /// Most tokens out.
    pub output_tokens: u64,
}

/// An account that may be tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Channel.
    pub channel: String,
    /// Account.
    pub account: String,
    /// Its tier; lower first.
    pub priority: i32,
    /// The channel's weight within the tier.
    pub weight: u32,
    /// `planned`: one of the attempts of a request; `spare`: after those.
    pub code: &'static str,
    /// Anything about its health, and what is left of what bounds it.
    pub detail: Option<String>,
    /// What bounds it.
    pub bounds: Vec<CapacityBound>,
}

/// An account, or a whole channel, that is not tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExcludedAccount {
    /// Channel.
    pub channel: String,
    /// Account; absent: every one of the channel.
    pub account: Option<String>,
    /// The exclusion.
    pub code: &'static str,
    /// Its figures.
    pub detail: Option<String>,
    /// What would change it.
    pub remedy: &'static str,
    /// What bounds it, where a bound is the reason.
    pub bounds: Vec<CapacityBound>,
}

/// A field that a channel's model lately refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedField {
    /// Channel.
    pub channel: String,
    /// The model's name upstream.
    pub upstream_model: String,
    /// The field, in the upstream's spelling.
    pub field: String,
    /// When it is tried again; RFC 3339 as text.
    #[serde(serialize_with = "as_shown")]
    pub until: Timestamp,
}

/// A point in time as people and the admin API have it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn as_shown<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(at)
}

/// Explains.
///
/// # Errors
/// When the question is none, with the reason: no model can have such a name.
pub fn explain(question: &ExplainRequest, key: Arc<Key>, sight: &ExplainInput<'_>) -> Result<Explanation, String> {
    let summary = context::summary_of(question)?;
    let mut explanation = Explanation {
        model: question.model.clone(),
        protocol: question.from.as_str(),
        group: None,
        revision: sight.catalog.revision,
        estimate: None,
        refusal: None,
        limits: Vec::new(),
        output_limit: None,
        planned: Vec::new(),
        excluded: Vec::new(),
        learned: Vec::new(),
    };
    if let Err(refusal) = check(&key, None, sight.now) {
        explanation.refusal = Some(refused::not_let_in(&refusal, question.from));
        return Ok(explanation);
    }
    let caller = Caller::of(sight.catalog, key);
    let offer = match resolve(sight.catalog, &caller, &summary, question.from, sight.now) {
        Ok(offer) => offer,
        Err(reason) => {
            explanation.refusal = Some(refused::not_offered(&reason));
            return Ok(explanation);
        }
    };
    explanation.group = Some(offer.group.name.clone());
    let estimate = Estimate { input_tokens: estimate_input(&summary), output_tokens: estimate_output(&summary, &offer.model) };
    explanation.estimate = Some(estimate);
    explanation.learned = learned(&offer, sight);
    let asked = ExplainContext { question, summary: &summary, offer: &offer, caller: &caller, sight, estimate };
    let limits::LimitVerdict { limits, refusal, output_limit } = asked.limits();
    (explanation.limits, explanation.refusal, explanation.output_limit) = (limits, refusal, output_limit);
    let mut past = AttemptHistory::default();
    match asked.rank(&mut past) {
        Ok(plan) => {
            explanation.planned = plan.attempts().enumerate().map(|(at, it)| asked.candidate(at, it)).collect();
            explanation.excluded = plan.excluded.iter().map(|it| asked.not_tried(it)).collect();
        }
        Err(none) => {
            // Who is not let in does not come so far.
            explanation.refusal.get_or_insert_with(|| refused::none_usable(&none));
            explanation.excluded = none.excluded.iter().map(|it| asked.not_tried(it)).collect();
        }
    }
    Ok(explanation)
}

/// A question with what it is measured by.
struct ExplainContext<'a> {
    question: &'a ExplainRequest,
    summary: &'a RequestSummary,
    offer: &'a Offer,
    caller: &'a Caller,
    sight: &'a ExplainInput<'a>,
    estimate: Estimate,
}

impl<'a> ExplainContext<'a> {
    /// Everybody in order. As on the path, a channel whose budget does not suffice for the request is passed over when its
    /// turn comes.
    fn rank(&self, past: &mut AttemptHistory) -> Result<Plan<'a>, NoRoute<'a>> {
        let view = context::ExplainView::of(self);
        loop {
            let input = RouteInput {
                catalog: self.sight.catalog,
                latest_catalog: None,
                caller: self.caller,
                offer: self.offer,
                summary: self.summary,
                from: self.question.from,
                health: self.sight.health,
                candidate_view: &view,
                now: self.sight.now,
                request_limit: self.question.max_price,
                translates: true,
                history: past,
            };
            // The order among equals is by dice on the path; here the middle of the range stands for it.
            let plan = rank_all(&input, &mut || u32::MAX / 2)?;
            let short: Vec<_> = plan.attempts().filter_map(|it| Some((it, self.too_dear(it)?))).collect();
            if short.is_empty() {
                return Ok(plan);
            }
            for (planned, why) in short {
                // No attempt limit here: all candidates are listed.
                let _ = past.skip_channel(planned, why);
            }
        }
    }

    fn candidate(&self, at: usize, planned: &PlannedAttempt) -> Candidate {
        let share = self.sight.health.status(planned.account.id, self.sight.now).share;
        let failing = (planned.channel.cooling && share < 1_000)
            .then(|| format!("fails lately: {}.{} % of its weight", share / 10, share % 10));
        let bounds = self.bounds_of(&planned.channel, Some(&planned.account));
        let told = bounds.iter().filter(|bound| bound.is_about_size()).map(CapacityBound::to_string);
        let details: Vec<String> = failing.into_iter().chain(told).collect();
        Candidate {
            channel: planned.channel.name.clone(),
            account: planned.account.name.clone(),
            priority: planned.channel.priority,
            weight: planned.channel.weight,
            code: if at < tollgate_core::MAX_ATTEMPTS { "planned" } else { "spare" },
            detail: (!details.is_empty()).then(|| details.join("; ")),
            bounds,
        }
    }

    fn not_tried(&self, it: &ExcludedCandidate<'_>) -> ExcludedAccount {
        let bounds = self.bounds_against(it);
        let details: Vec<String> = bounds.iter().map(CapacityBound::to_string).chain(it.why.detail()).collect();
        ExcludedAccount {
            channel: it.channel.name.clone(),
            account: it.account().map(|account| account.name.clone()),
            code: it.why.code(),
            detail: (!details.is_empty()).then(|| details.join("; ")),
            remedy: room::remedy(&bounds).unwrap_or_else(|| it.why.remedy()),
            bounds,
        }
    }
}

/// Fields that candidates refused lately.
fn learned(offer: &Offer, sight: &ExplainInput<'_>) -> Vec<RefusedField> {
    let mut fields = Vec::new();
    for served in &offer.candidates {
        let Some(channel) = sight.catalog.channel_at(served.channel) else { continue };
        let Some(serves) = channel.mappings.get(served.mapping as usize) else { continue };
        let learned = sight.known.learned(channel.id, &serves.upstream).into_iter().flat_map(|learned| learned.learned(sight.now));
        fields.extend(learned.map(|(field, until)| RefusedField {
            channel: channel.name.clone(),
            upstream_model: serves.upstream.clone(),
            field: field.to_owned(),
            until,
        }));
    }
    fields
}

#[cfg(test)]
mod tests;
