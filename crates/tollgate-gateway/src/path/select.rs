//! Stage 6 of 11: select. In: the routing context and the attempts so far; out: the account to try, with a permit, or a refusal.
//!
//! When accounts are only busy, the request waits for one of them, at most two seconds, and selects again whenever a catalog
//! change or a recovery may have made another account usable. A request whose attempt failed selects again in the same way.
//! When no account of its catalog snapshot is usable and a newer snapshot is in force, it moves to that one.

use std::{sync::Arc, time::Duration};

use http::HeaderName;
use tokio::{
    select,
    time::{Instant, sleep_until},
};
use tollgate_core::{
    AccountId, AttemptHistory, BusyAccount, CandidateView, CapacityLimits, CapacityLoad, Channel, ChannelBudget, ChannelId,
    ModelMapping, NoRoute, NoRouteCause, Plan, PlannedAttempt, PriceLimit, RouteInput, Subject, parse_max_prices,
};
use tollgate_protocol::FieldPath;

use super::types::{
    context::{RouteContext, Selection, SelectionError, WaitBudget},
    usage_guard::UsageGuard,
};
use crate::{
    refusal::{Refusal, seconds_until},
    request::Head,
    state::{
        capacity_limiter::{AcquireOutcome, LimitedId, LimitedRow, Permit, QueuedAcquire},
        change_signal::Version,
        runtime_state::budget_of,
        traffic::TrafficView,
    },
};

/// Header with which a caller limits the price of one request.
const MAX_PRICE: &str = "x-tollgate-max-price";
const MAX_PRICE_FIELD: HeaderName = HeaderName::from_static(MAX_PRICE);
/// How often a request selects again because other requests took the permit first.
const MAX_ROUNDS: usize = 8;
/// How often a waiting request selects again because something changed.
const MAX_WAKE_UPS: usize = 64;
/// Shortest wait for a recovery.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// Selects an account, waiting for a busy one when all are busy.
///
/// # Errors
/// The refusal when no account can serve the request (the usage guard then holds why each candidate was excluded), or that the
/// catalog snapshot is stale.
pub(super) async fn select(
    context: &RouteContext<'_>,
    history: &AttemptHistory,
    wait_budget: &mut WaitBudget,
    guard: &mut UsageGuard,
) -> Result<Selection, SelectionError> {
    let price_limit = max_price(context.head)?;
    let mut search = Search::new(context);
    loop {
        let versions = search.versions();
        let blocked = match route(context, history, price_limit, search.permit.as_ref()) {
            Ok(plan) => {
                if !context.fetch_media(&plan.first).await {
                    // Its media cannot be fetched. The failure is recorded, so the next round excludes the channel.
                    continue;
                }
                if let Some(permit) = search.acquire(&plan) {
                    wait_budget.end_wait();
                    guard.set_trace(plan.trace());
                    return Ok(Selection { planned: Arc::new(plan.first), permit });
                }
                Blocked::Contended(Box::new(plan))
            }
            Err(_) if wait_budget.may_renew() && context.is_stale() => return Err(SelectionError::StaleCatalog),
            Err(no_route) => Blocked::NoCandidate(no_route),
        };
        let until = wait_budget.until(context.worker.shared.clock.instant(), context.deadline());
        if !search.wait_for_change(&blocked, until, versions).await {
            return Err(SelectionError::Refused(refusal_of(context, &blocked, guard)));
        }
    }
}

/// Selects an account that is free now, for a hedged attempt. `None` when there is none.
pub(super) fn select_hedge(context: &RouteContext<'_>, history: &AttemptHistory) -> Option<Selection> {
    let planned = route(context, history, max_price(context.head).ok()?, None).ok()?.first;
    // A hedge on a cooling account would gain nothing.
    if planned.last_resort {
        return None;
    }
    let permit = try_acquire(context, &planned)?;
    Some(Selection { planned: Arc::new(planned), permit })
}

/// Acquires a permit for an attempt, if its account and channel have capacity.
pub(super) fn try_acquire(context: &RouteContext<'_>, planned: &PlannedAttempt) -> Option<Permit> {
    let rows = LimitedRow::of_attempt(&planned.channel, &planned.account);
    context.worker.shared.traffic.limiters.try_acquire(rows, context.estimated_tokens())
}

/// Why no permit can be acquired now.
enum Blocked<'a> {
    /// Other requests took the capacity between planning and acquiring, or the model's last account, which is tried although it
    /// cools down, is busy.
    Contended(Box<Plan<'a>>),
    NoCandidate(NoRoute<'a>),
}

/// One request's search for an account, with its entry in the wait queue.
struct Search<'c, 'a> {
    context: &'c RouteContext<'a>,
    /// A permit that the wait queue handed over.
    permit: Option<Permit>,
    queued: Option<QueuedAcquire>,
    /// The account that other requests took last.
    contended: Option<AccountId>,
    rounds: usize,
    wake_ups: usize,
}

impl<'c, 'a> Search<'c, 'a> {
    fn new(context: &'c RouteContext<'a>) -> Self {
        Self { context, permit: None, queued: None, contended: None, rounds: 0, wake_ups: 0 }
    }

    /// A permit for the account the plan puts first, with what the wait queue handed over of it.
    fn acquire(&mut self, plan: &Plan<'_>) -> Option<Permit> {
        let rows = LimitedRow::of_attempt(&plan.first.channel, &plan.first.account);
        let mut permit = self.permit.take().unwrap_or_default().only(rows);
        let limiters = &self.context.worker.shared.traffic.limiters;
        if limiters.extend(&mut permit, rows, self.context.estimated_tokens()) {
            return Some(permit);
        }
        // The channel's part is kept for another of its accounts.
        self.permit = Some(permit).filter(Permit::counts);
        None
    }

    /// Waits until capacity is free or something changed. `false` when waiting cannot help or the time is over.
    async fn wait_for_change(&mut self, blocked: &Blocked<'_>, until: Instant, versions: [Version; 2]) -> bool {
        let busy = match blocked {
            Blocked::NoCandidate(no_route) => no_route.busy_accounts(),
            Blocked::Contended(plan) if self.contended.replace(plan.first.account.id) == Some(plan.first.account.id) => {
                vec![BusyAccount { channel: &plan.first.channel, account: &plan.first.account, is_channel_full: false }]
            }
            Blocked::Contended(_) => {
                self.rounds += 1;
                return self.rounds < MAX_ROUNDS;
            }
        };
        // The permit is unused: another waiting request may take it.
        self.permit = None;
        let shared = &self.context.worker.shared;
        if self.rounds >= MAX_ROUNDS || busy.is_empty() || shared.clock.instant() >= until {
            return false;
        }
        if !self.queued.as_ref().is_some_and(|queued| queued.is_for(&busy)) {
            // Leave the old queues before joining others, so that a request is never queued twice.
            self.queued = None;
            match shared.traffic.limiters.enqueue(&busy, self.context.caller.key.requester(), self.context.estimated_tokens()) {
                AcquireOutcome::QueueFull => return false,
                AcquireOutcome::Queued(queued) => self.queued = Some(queued),
                AcquireOutcome::Permit(permit) => self.wake(Some(permit)),
            }
        }
        let watches_changes = self.wake_ups < MAX_WAKE_UPS;
        let next = if watches_changes { self.recovery(blocked).map_or(until, |at| at.min(until)) } else { until };
        let context = self.context;
        let Some(queued) = &mut self.queued else { return true };
        select! {
            biased;
            permit = queued.acquired() => self.wake(permit),
            () = changed_since(context, versions), if watches_changes => self.wake_ups += 1,
            () = sleep_until(next) => self.wake_ups += 1,
        }
        true
    }

    /// The wait queue handed over a permit, or asks to look again. The request leaves the queue.
    fn wake(&mut self, permit: Option<Permit>) {
        self.queued = None;
        self.permit = permit;
        self.rounds += 1;
    }

    /// Versions of catalog and health as of now.
    fn versions(&self) -> [Version; 2] {
        let worker = self.context.worker;
        [worker.shared.traffic.catalogs.version(), worker.recorder.health.recoveries.version()]
    }

    /// When the first excluded account is usable again.
    fn recovery(&self, blocked: &Blocked<'_>) -> Option<Instant> {
        let Blocked::NoCandidate(no_route) = blocked else { return None };
        let clock = &self.context.worker.shared.clock;
        let at = no_route.recovery_after(clock.now())?;
        let wait = Duration::from_micros(u64::try_from(at.0.saturating_sub(clock.now().0)).unwrap_or(0));
        clock.instant().checked_add(wait.max(MIN_PAUSE))
    }
}

/// Waits for another catalog, or for an account that recovers sooner than was known.
async fn changed_since(context: &RouteContext<'_>, [catalog, health]: [Version; 2]) {
    select! {
        () = context.worker.shared.traffic.catalogs.changed_since(catalog) => {}
        () = context.worker.recorder.health.recoveries.changed_since(health) => {}
    }
}

/// Asks core for a plan. `permit` is one the request already holds; its account or channel counts as free.
fn route<'a>(
    context: &RouteContext<'a>,
    history: &AttemptHistory,
    request_limit: Option<PriceLimit>,
    permit: Option<&Permit>,
) -> Result<Plan<'a>, NoRoute<'a>> {
    let RouteContext { worker, head, catalog, caller, offer, summary, .. } = *context;
    let now = worker.shared.clock.now();
    let latest = worker.shared.catalog.load();
    let health = worker.recorder.health.snapshot_for(caller.key.requester());
    let traffic = worker.shared.traffic.view(summary, head.from, caller.key.requester(), context.estimated_tokens(), now);
    let candidate_view = Candidates { context, traffic, permit };
    let input = RouteInput {
        catalog,
        latest_catalog: (!std::ptr::eq(&raw const **latest, catalog)).then_some(&**latest),
        caller,
        offer,
        summary,
        from: head.from,
        health: &health,
        candidate_view: &candidate_view,
        now,
        request_limit,
        translates: summary.method.has_counterpart(),
        history,
    };
    tollgate_core::route(&input, &mut || worker.rng.next_u32())
}

/// Candidates as this request sees them.
struct Candidates<'r, 'a> {
    context: &'r RouteContext<'a>,
    traffic: TrafficView<'r>,
    /// A permit that the request already holds.
    permit: Option<&'r Permit>,
}

impl CandidateView for Candidates<'_, '_> {
    fn account_load(&self, account: AccountId, limits: CapacityLimits) -> CapacityLoad {
        if self.permit.is_some_and(|permit| permit.is_on(LimitedId::Account(account))) {
            return CapacityLoad::Free;
        }
        self.traffic.account_load(account, limits)
    }

    fn channel_load(&self, channel: ChannelId, limits: CapacityLimits) -> CapacityLoad {
        if self.permit.is_some_and(|permit| permit.is_on(LimitedId::Channel(channel))) {
            return CapacityLoad::Free;
        }
        self.traffic.channel_load(channel, limits)
    }

    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        let RouteContext { worker, head, .. } = *self.context;
        let subject = Subject::Channel(channel.id);
        budget_of(channel, head.arrived, |budget| worker.shared.counters.spent(subject, budget.window, head.arrived))
    }

    fn has_unsupported_fields(&self) -> bool {
        self.traffic.has_unsupported_fields()
    }

    fn unsupported_fields(&self, channel: &Channel, mapping: &ModelMapping) -> Vec<FieldPath> {
        self.traffic.unsupported_fields(channel, mapping)
    }

    fn untranslatable_fields(&self, channel: &Channel, mapping: &ModelMapping) -> Vec<FieldPath> {
        self.context.bodies.untranslatable(channel, mapping)
    }
}

/// The refusal for a request that was not routed. The reasons go into the usage record.
fn refusal_of(context: &RouteContext<'_>, blocked: &Blocked<'_>, guard: &mut UsageGuard) -> Refusal {
    match blocked {
        Blocked::Contended(plan) => {
            guard.set_trace(plan.trace());
            contended(context, &plan.first)
        }
        Blocked::NoCandidate(no_route) => {
            guard.set_trace(no_route.trace());
            no_candidate(context, no_route)
        }
    }
}

/// The refusal when other requests repeatedly took the account's capacity.
fn contended(context: &RouteContext<'_>, planned: &PlannedAttempt) -> Refusal {
    let shared = &context.worker.shared;
    let rows = LimitedRow::of_attempt(&planned.channel, &planned.account);
    let wait = match shared.traffic.limiters.load(rows, context.estimated_tokens()) {
        CapacityLoad::AtRate { until } => seconds_until(until, shared.clock.now()).clamp(1, 60),
        CapacityLoad::Free | CapacityLoad::AtConcurrency => 1,
    };
    let model = context.summary.model.clone();
    Refusal::NoRoute { model, cause: NoRouteCause::Concurrency, retry_after: Some(wait), price: None, missing_price: None }
}

/// The refusal when no account is usable.
fn no_candidate(context: &RouteContext<'_>, no_route: &NoRoute<'_>) -> Refusal {
    let bodies = &context.bodies;
    let model = bodies.model().to_owned();
    if let Some(supports) = no_route.other_protocol_methods() {
        return Refusal::MethodUnsupported { model, supports };
    }
    if bodies.is_without_media() {
        return Refusal::Overloaded;
    }
    if let Some(fields) = no_route.fewest_unsupported_fields() {
        if let Some(fault) = bodies.malformed() {
            return Refusal::Malformed(fault);
        }
        return Refusal::Unsupported { fields, model, reason: bodies.reason() };
    }
    let now = context.worker.shared.clock.now();
    let retry_after = no_route.earliest_recovery().map(|at| seconds_until(at, now).clamp(1, 60));
    let (price, missing_price) = (no_route.price_figures(), no_route.missing_price());
    Refusal::NoRoute { model, cause: no_route.cause(), retry_after, price, missing_price }
}

/// The request's own price limit, from all lines of its header.
fn max_price(head: &Head) -> Result<Option<PriceLimit>, Refusal> {
    // A line that is not text is not a valid limit either.
    let lines = head.headers.get_all(MAX_PRICE_FIELD).map(|line| line.to_str().unwrap_or_default());
    parse_max_prices(lines).map_err(|_| Refusal::InvalidValue {
        name: MAX_PRICE,
        message: format!(
            "Invalid value for the header '{MAX_PRICE}': expected 'input=<USD>,output=<USD>' per million tokens; either may be \
             missing."
        ),
    })
}
