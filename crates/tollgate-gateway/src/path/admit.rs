//! Stage 4 of 9. In: a caller, an offer and what is asked; out: room set aside for the request, which its guard gives
//! back however the request ends, and the output limit that the request must be given for it.
//!
//! Money first, then requests, tokens, concurrency; everything is taken in one step, or nothing. What nobody bounds is not
//! counted.

use crate::{
    path::{
        Core,
        resolve::Admission,
        select::RouteContext,
        types::{request_bodies::OutputLimit, usage_guard::UsageGuard},
    },
    refusal::{BudgetSubject, LimitKind, LimitSubject, RateFigures, RateLimit, Refusal, SpentBudget},
    request::Head,
};
use tollgate_core::{
    AdmitInput, Exclusion, FundsStatus, LimitExceeded, PlannedAttempt, RateExceeded, RateKind, RateStatus, RateStatuses,
    Reservation, ReservationReceipt, Subject, Timestamp, Window, attempt_reservations, output_limit_field, reservation_for,
    reservation_for_attempt,
};

/// What was set aside for a request.
pub(crate) struct Admitted {
    /// As it was asked for; `None`: nothing bounds the request.
    pub hold: Option<Reservation>,
    /// The output limit that it rests on.
    pub limit: Option<OutputLimit>,
}

/// Sets room aside for a request, and with it what its attempts may need on their channels, so that whoever counts is asked
/// once.
///
/// # Errors
/// E31, E32 or E33; nothing is set aside then.
pub(crate) async fn admit(core: &Core, head: &Head, terms: &Admission, guard: &mut UsageGuard) -> Result<Admitted, Refusal> {
    let input = input_of(core, head, terms);
    let Some(hold) = reservation_for(&input) else { return Ok(Admitted { hold: None, limit: None }) };
    let ahead = attempt_reservations(&input, &terms.catalog);
    match take(core, &hold, &ahead, guard).await? {
        Ok(taken) => {
            guard.admitted(figures_of(&taken.rate_statuses));
            Ok(Admitted { hold: Some(hold), limit: output_limit(taken.output, head, terms) })
        }
        Err(exhausted) => Err(refusal_of(&exhausted, head.arrived)),
    }
}

/// Sets aside what other terms ask for beyond what the request holds already. `None`: that is not to be had.
pub(crate) async fn admit_more(
    core: &Core,
    head: &Head,
    terms: &Admission,
    held: Option<&Reservation>,
    guard: &mut UsageGuard,
) -> Option<Admitted> {
    let input = input_of(core, head, terms);
    let Some(hold) = reservation_for(&input) else { return Some(Admitted { hold: None, limit: None }) };
    let more = match held {
        Some(held) => hold.exceeding(held),
        None => Some(hold.clone()),
    };
    let output = match more {
        Some(more) => take(core, &more, &[], guard).await.ok()?.ok()?.output,
        None => hold.output,
    };
    Some(Admitted { limit: output_limit(output, head, terms), hold: Some(hold) })
}

fn input_of<'a>(core: &'a Core, head: &Head, terms: &'a Admission) -> AdmitInput<'a> {
    AdmitInput {
        id: head.request_id,
        at: head.arrived,
        caller: &terms.caller,
        offer: &terms.offer,
        summary: &terms.summary,
        from: head.from,
        gateway: &core.shared.settings.budgets,
    }
}

fn output_limit(tokens: Option<u64>, head: &Head, terms: &Admission) -> Option<OutputLimit> {
    tokens.map(|tokens| OutputLimit { tokens, field: output_limit_field(&terms.summary, head.from) })
}

/// Sets the cost of an attempt aside on the budgets of its channel; what excludes the channel where they do not suffice.
///
/// # Errors
/// When nobody can tell.
pub(crate) async fn admit_attempt(
    asked: &RouteContext<'_>,
    planned: &PlannedAttempt,
    guard: &mut UsageGuard,
) -> Result<Option<Exclusion>, Refusal> {
    let RouteContext { core, head, catalog, caller, summary, offer, .. } = *asked;
    let Some(hold) = reservation_for_attempt(head.request_id, head.arrived, planned, summary, offer) else { return Ok(None) };
    // Should somebody have to be asked now, then about the channels of further attempts too.
    let input = AdmitInput { id: head.request_id, at: head.arrived, caller, offer, summary, from: head.from, gateway: &[] };
    let mut ahead = attempt_reservations(&input, catalog);
    if let Some(this) = ahead.iter().position(|other| other.limits == hold.limits) {
        ahead.remove(this);
    }
    Ok(match take(core, &hold, &ahead, guard).await? {
        Ok(_) => None,
        Err(LimitExceeded::Money(short)) => {
            Some(Exclusion::Budget { until: short.budget.and_then(|budget| budget.window.ends(head.arrived)) })
        }
        // Channels have no rates.
        Err(LimitExceeded::Rate(_)) => Some(Exclusion::Concurrency),
    })
}

async fn take(
    core: &Core,
    hold: &Reservation,
    ahead: &[Reservation],
    guard: &mut UsageGuard,
) -> Result<Result<ReservationReceipt, LimitExceeded>, Refusal> {
    // Before the first await: whatever becomes of this request, its guard gives back what was taken.
    guard.mark_reserved();
    core.shared.counters.reserve(hold, ahead, core.shared.clock.instant()).await.map_err(|fault| {
        core.shared.metrics.store_error("take_hold");
        tracing::error!(%fault, "nobody can tell what a caller has left");
        Refusal::Overloaded
    })
}

/// How a request is refused that arrived at `at`.
pub(crate) fn refusal_of(exhausted: &LimitExceeded, at: Timestamp) -> Refusal {
    match exhausted {
        LimitExceeded::Rate(busy) => rate_limited(busy),
        LimitExceeded::Money(short) => too_little(short, at),
    }
}

fn rate_limited(busy: &RateExceeded) -> Refusal {
    let subject = match busy.subject {
        Subject::Key(_) => LimitSubject::Key,
        Subject::Member(_) => LimitSubject::Member,
        // Channels and the gateway as a whole have no rates.
        Subject::Group(_) | Subject::Channel(_) | Subject::Gateway => LimitSubject::Group,
    };
    let limited = match busy.kind {
        RateKind::Requests => LimitKind::Requests,
        RateKind::Tokens => LimitKind::Tokens,
        RateKind::Concurrency => LimitKind::Concurrency,
    };
    let retry_after = u32::try_from(busy.wait_ms.div_ceil(1_000)).unwrap_or(u32::MAX).clamp(1, 60);
    let figures = figures_of(&busy.rate_statuses);
    Refusal::RateLimited(Box::new(RateLimit { limited, subject, limit: busy.limit, used: busy.used, retry_after, figures }))
}

/// Nothing is left (E32), or not enough for this request (E33).
fn too_little(short: &FundsStatus, at: Timestamp) -> Refusal {
    let subject = match short.subject {
        Subject::Member(_) if short.budget.is_none() => BudgetSubject::Balance,
        Subject::Key(_) => BudgetSubject::Key,
        Subject::Member(_) => BudgetSubject::Member,
        Subject::Group(_) => BudgetSubject::Group,
        // A channel's budget excludes the channel; it never refuses a caller.
        Subject::Gateway | Subject::Channel(_) => BudgetSubject::Gateway,
    };
    if short.left.0 > 0 {
        return Refusal::TooDear(subject);
    }
    let spent = match short.budget {
        Some(budget) => SpentBudget {
            subject,
            window: budget.window,
            spent: short.spent,
            amount: budget.amount,
            renews_at: budget.window.ends(at),
        },
        None => SpentBudget { subject, window: Window::Total, spent: short.spent, amount: short.left, renews_at: None },
    };
    Refusal::Spent(Box::new(spent))
}

fn figures_of(rate_statuses: &RateStatuses) -> RateFigures {
    let left = |rate_status: RateStatus| rate_status.limit.saturating_sub(rate_status.used);
    RateFigures {
        limit_requests: rate_statuses.requests.map(|rate_status| rate_status.limit),
        limit_tokens: rate_statuses.tokens.map(|rate_status| rate_status.limit),
        remaining_requests: rate_statuses.requests.map(left),
        remaining_tokens: rate_statuses.tokens.map(left),
        reset_requests_ms: rate_statuses.requests.map(|rate_status| rate_status.reset_ms),
        reset_tokens_ms: rate_statuses.tokens.map(|rate_status| rate_status.reset_ms),
    }
}
