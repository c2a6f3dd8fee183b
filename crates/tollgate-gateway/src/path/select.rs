//! Stage 5 of 9. In: an offer and what the request asks; out: the accounts to try, in order, with room set aside on the
//! first of them, or why there is none.
//!
//! Where accounts are merely busy the request waits for one of them, for two seconds at most, and looks again whenever
//! something else may have become usable meanwhile. A request whose attempt failed chooses again, the same way: what was
//! tried is out, and everything else is as it is by then. Where nothing is usable by the catalog it began with, a newer
//! one is asked.

use std::{sync::Arc, time::Duration};

use tokio::{
    select,
    time::{Instant, sleep_until},
};

use tollgate_core::{
    Account, AccountId, AccountLimits, AccountLoad, AttemptHistory, Caller, CandidateView, Catalog, Channel, ChannelBudget,
    ModelMapping, NoRoute, NoRouteCause, NotOffered, Offer, Plan, PlannedAttempt, PriceLimit, RouteInput, Subject, estimate_input,
    estimate_output, parse_max_prices,
};
use tollgate_protocol::{FieldPath, Method, RequestSummary};

use crate::{
    path::{
        Core,
        types::{request_bodies::Bodies, usage_guard::UsageGuard},
    },
    refusal::Refusal,
    request::Head,
    state::{
        account_limiter::{AcquireOutcome, Permit, WaitQueue},
        change_signal::Version,
        runtime_state::budget_of,
        traffic::TrafficView,
    },
    upstream::retry_after::seconds_until,
};

/// Header with which a caller bounds the price of one request.
const MAX_PRICE: &str = "x-tollgate-max-price";
/// Longest wait for a busy account.
const WAIT: Duration = Duration::from_secs(2);
/// How often a request chooses again because others were faster.
const ROUNDS: usize = 8;
/// How often it looks again while it waits, because something changed.
const LOOKS: usize = 64;
/// Least time between a look and the next one that is due to a recovery.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// How often a request is served anew by a newer catalog.
const RENEWALS: u8 = 8;

/// Everything choosing looks at.
#[derive(Clone, Copy)]
pub(crate) struct RouteContext<'a> {
    pub core: &'a Core,
    pub head: &'a Head,
    pub catalog: &'a Catalog,
    pub caller: &'a Caller,
    pub offer: &'a Offer,
    pub summary: &'a RequestSummary,
    pub bodies: &'a Bodies<'a>,
}

/// The account to try.
#[derive(Debug)]
pub(crate) struct Selection {
    pub planned: Arc<PlannedAttempt>,
    /// Room on it.
    pub permit: Permit,
}

/// Why no account was chosen.
#[derive(Debug)]
pub(crate) enum SelectionError {
    /// There is none.
    Refused(Refusal),
    /// There is none by the catalog that was asked, which is not the newest any more.
    Outdated,
}

impl From<Refusal> for SelectionError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What is left of a request's wait budget, whatever catalogs it is served by.
#[derive(Debug, Default)]
pub(crate) struct WaitBudget {
    /// When it gives up waiting; `None`: it does not wait.
    until: Option<Instant>,
    renewals: u8,
}

impl WaitBudget {
    /// It is served by a newer catalog from now on.
    pub(crate) const fn count_renewal(&mut self) {
        self.renewals += 1;
    }

    /// A newer catalog does not serve it: it stays with the one it has.
    pub(crate) const fn stop_renewing(&mut self) {
        self.renewals = RENEWALS;
    }
}

/// Why nothing can be taken now.
enum SelectionBlocked<'a> {
    /// Others took the room between the look and the taking, or it is the model's last account, which is tried though it
    /// cools, and busy.
    Overtaken(Plan<'a>),
    /// No candidate is usable.
    Nothing(NoRoute<'a>),
}

/// One request's search for an account, with its place in line.
#[derive(Default)]
struct SelectionState {
    granted: Option<Permit>,
    line: Option<WaitQueue>,
    /// The account that others were faster at.
    full: Option<AccountId>,
    rounds: usize,
    looks: usize,
}

impl<'a> RouteContext<'a> {
    /// Chooses an account, waiting for a busy one where all are.
    ///
    /// # Errors
    /// The refusal, and the record has the candidates' exclusions; or that a newer catalog is to be asked.
    pub(crate) async fn select_account(
        &self,
        past: &AttemptHistory,
        wait_budget: &mut WaitBudget,
        guard: &mut UsageGuard,
    ) -> Result<Selection, SelectionError> {
        let limit = max_price(self.head)?;
        let clock = &self.core.shared.clock;
        let until = *wait_budget.until.get_or_insert_with(|| (clock.instant() + WAIT).min(self.deadline()));
        let mut search = SelectionState::default();
        loop {
            let versions = self.versions();
            let stuck = match self.route(past, limit, search.granted.as_ref()) {
                Ok(plan) => {
                    if !self.fetch_media(&plan.first).await {
                        // Its media cannot be had; from now on routing knows.
                        continue;
                    }
                    if let Some(permit) = self.take(&plan, &mut search) {
                        wait_budget.until = None;
                        guard.set_trace(plan.trace());
                        return Ok(Selection { planned: Arc::new(plan.first), permit });
                    }
                    SelectionBlocked::Overtaken(plan)
                }
                Err(_) if wait_budget.renewals < RENEWALS && self.is_outdated() => return Err(SelectionError::Outdated),
                Err(no) => SelectionBlocked::Nothing(no),
            };
            if !self.wait_for_change(&stuck, &mut search, until, versions).await {
                return Err(SelectionError::Refused(self.refuse(&stuck, guard)));
            }
        }
    }

    /// Room on the account that was chosen.
    fn take(&self, plan: &Plan<'_>, search: &mut SelectionState) -> Option<Permit> {
        let first = &plan.first.account;
        let granted = search.granted.take_if(|permit: &mut Permit| permit.is_on(first.id));
        granted.or_else(|| self.core.shared.traffic.limiters.try_acquire(first, self.tokens()))
    }

    /// Waits until there is room, or something changed. `false`: it is no use, or has lasted long enough; what was found
    /// last is how things are then.
    async fn wait_for_change(
        &self,
        stuck: &SelectionBlocked<'_>,
        search: &mut SelectionState,
        until: Instant,
        versions: [Version; 2],
    ) -> bool {
        // Room that helped nothing is somebody else's.
        search.granted = None;
        let busy = match stuck {
            SelectionBlocked::Nothing(no) => no.busy_accounts(),
            SelectionBlocked::Overtaken(plan) if search.full.replace(plan.first.account.id) == Some(plan.first.account.id) => {
                vec![Arc::clone(&plan.first.account)]
            }
            SelectionBlocked::Overtaken(_) => {
                search.rounds += 1;
                return search.rounds < ROUNDS;
            }
        };
        if search.rounds >= ROUNDS || busy.is_empty() || self.core.shared.clock.instant() >= until {
            return false;
        }
        if !search.line.as_ref().is_some_and(|line| line.is_for(&busy)) {
            // Left before another one is joined, so that nobody stands twice.
            search.line = None;
            match self.core.shared.traffic.limiters.enqueue(&busy, self.caller.key.id, self.tokens()) {
                AcquireOutcome::QueueFull => return false,
                AcquireOutcome::WaitQueue(line) => search.line = Some(line),
                AcquireOutcome::Permit(permit) => search.got(Some(permit)),
            }
        }
        let Some(line) = &mut search.line else { return true };
        let changes = search.looks < LOOKS;
        let next = if changes { self.recovery(stuck).map_or(until, |at| at.min(until)) } else { until };
        select! {
            biased;
            permit = line.acquired() => search.got(permit),
            () = self.changed_since(versions), if changes => search.looks += 1,
            () = sleep_until(next) => search.looks += 1,
        }
        true
    }

    /// What is known now of catalog and health.
    fn versions(&self) -> [Version; 2] {
        [self.core.shared.traffic.catalogs.version(), self.core.recorder.health.recoveries.version()]
    }

    /// Waits for another catalog, or for an account that is back sooner than was known.
    async fn changed_since(&self, [catalog, health]: [Version; 2]) {
        select! {
            () = self.core.shared.traffic.catalogs.changed_since(catalog) => {}
            () = self.core.recorder.health.recoveries.changed_since(health) => {}
        }
    }

    /// When the first excluded account is back.
    fn recovery(&self, stuck: &SelectionBlocked<'_>) -> Option<Instant> {
        let SelectionBlocked::Nothing(no) = stuck else { return None };
        let clock = &self.core.shared.clock;
        let at = no.recovery_after(clock.now())?;
        let wait = Duration::from_micros(u64::try_from(at.0.saturating_sub(clock.now().0)).unwrap_or(0));
        clock.instant().checked_add(wait.max(LEAST_PAUSE))
    }

    /// Whether another catalog is in force by now.
    fn is_outdated(&self) -> bool {
        !std::ptr::eq(&raw const **self.core.shared.catalog.load(), self.catalog)
    }

    fn refuse(&self, stuck: &SelectionBlocked<'_>, guard: &mut UsageGuard) -> Refusal {
        match stuck {
            SelectionBlocked::Overtaken(plan) => {
                guard.set_trace(plan.trace());
                self.overtaken(&plan.first.account)
            }
            SelectionBlocked::Nothing(no) => {
                guard.set_trace(no.trace());
                no_route(self.core, no, self.bodies)
            }
        }
    }

    /// Chooses an account that is free now, for an attempt beside another one; `None`: there is none.
    pub(crate) fn select_hedge(&self, past: &AttemptHistory) -> Option<Selection> {
        let planned = self.route(past, max_price(self.head).ok()?, None).ok()?.first;
        // An account that cools is no help beside one that is at work.
        let permit =
            (!planned.last_resort).then(|| self.core.shared.traffic.limiters.try_acquire(&planned.account, self.tokens()))??;
        Some(Selection { planned: Arc::new(planned), permit })
    }

    /// When the request must have an answer.
    pub(crate) fn deadline(&self) -> Instant {
        self.head.started + self.core.shared.settings.upstream.total
    }

    /// Fetches the remote media an attempt needs. `false`: the request cannot go there.
    pub(crate) async fn fetch_media(&self, planned: &PlannedAttempt) -> bool {
        planned.protocol == self.head.from || self.bodies.fetch_media(&self.core.shared.traffic.media, planned).await
    }

    fn route(
        &self,
        past: &AttemptHistory,
        request_limit: Option<PriceLimit>,
        granted: Option<&Permit>,
    ) -> Result<Plan<'a>, NoRoute<'a>> {
        let now = self.core.shared.clock.now();
        let current = self.core.shared.catalog.load();
        let health = self.core.recorder.health.snapshot();
        let traffic = self.core.shared.traffic.view(self.summary, self.head.from, self.tokens(), now);
        let view = RouteView { asked: self, traffic, granted };
        let input = RouteInput {
            catalog: self.catalog,
            latest_catalog: (!std::ptr::eq(&raw const **current, self.catalog)).then_some(&**current),
            caller: self.caller,
            offer: self.offer,
            summary: self.summary,
            from: self.head.from,
            health: &health,
            candidate_view: &view,
            now,
            request_limit,
            translates: true,
            history: past,
        };
        tollgate_core::route(&input, &mut || self.core.dice.next_u32())
    }

    /// What the caller is told when others were faster, time and again.
    fn overtaken(&self, account: &Account) -> Refusal {
        let shared = &self.core.shared;
        let wait = match shared.traffic.limiters.load(account, self.tokens()) {
            AccountLoad::AtRate { until } => seconds_until(until, shared.clock.now()).clamp(1, 60),
            AccountLoad::Free | AccountLoad::AtConcurrency => 1,
        };
        let model = self.summary.model.clone();
        Refusal::NoRoute { model, cause: NoRouteCause::Concurrency, too_dear: false, retry_after: Some(wait), price: None }
    }

    /// What the request is estimated at, for accounts with a bound on tokens a minute.
    pub(crate) fn tokens(&self) -> u64 {
        if self.summary.method == Method::CountTokens {
            return 0;
        }
        estimate_input(self.summary).saturating_add(estimate_output(self.summary, &self.offer.model))
    }
}

impl SelectionState {
    /// Room came, or something that is to be looked at again. Whoever stood in line does no more.
    fn got(&mut self, permit: Option<Permit>) {
        self.line = None;
        self.granted = permit;
        self.rounds += 1;
    }
}

/// Candidates as this request meets them.
struct RouteView<'r, 'a> {
    asked: &'r RouteContext<'a>,
    traffic: TrafficView<'r>,
    /// Room that it has already.
    granted: Option<&'r Permit>,
}

impl CandidateView for RouteView<'_, '_> {
    fn account_load(&self, account: AccountId, bounds: AccountLimits) -> AccountLoad {
        if self.granted.is_some_and(|permit| permit.is_on(account)) {
            return AccountLoad::Free;
        }
        self.traffic.account_load(account, bounds)
    }

    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        let RouteContext { core, head, .. } = *self.asked;
        let subject = Subject::Channel(channel.id);
        budget_of(channel, head.arrived, |budget| core.shared.counters.spent(subject, budget.window, head.arrived))
    }

    fn has_unsupported_fields(&self) -> bool {
        self.traffic.has_unsupported_fields()
    }

    fn unsupported_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        self.traffic.unsupported_fields(channel, serves)
    }

    fn untranslatable_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        self.asked.bodies.untranslatable(channel, serves)
    }
}

/// What the caller is told when no account can be tried.
fn no_route(core: &Core, no: &NoRoute<'_>, bodies: &Bodies<'_>) -> Refusal {
    let model = bodies.model().to_owned();
    if let Some(supports) = no.other_protocol_methods() {
        return Refusal::MethodUnsupported { model, supports };
    }
    if let Some(fields) = no.fewest_unsupported_fields() {
        if let Some(fault) = bodies.malformed() {
            return Refusal::Malformed(fault.clone());
        }
        return Refusal::Unsupported { fields, model, reason: bodies.reason() };
    }
    let now = core.shared.clock.now();
    let retry_after = no.earliest_recovery().map(|at| seconds_until(at, now).clamp(1, 60));
    Refusal::NoRoute { model, cause: no.cause(), too_dear: no.price_limit_alone(), retry_after, price: no.price_figures() }
}

/// What the caller is told when the model is not offered to him like this.
pub(crate) fn not_offered(no: NotOffered, summary: &RequestSummary) -> Refusal {
    let model = summary.model.clone();
    match no {
        NotOffered::Unknown => Refusal::ModelNotFound { model, hidden: false },
        NotOffered::OutsideGroup => Refusal::ModelNotFound { model, hidden: true },
        NotOffered::Method { supports } => Refusal::MethodUnsupported { model, supports },
        NotOffered::Unsupported { fields } => Refusal::Unsupported { fields, model, reason: None },
    }
}

/// The price limit of the request itself, of all lines of its header.
fn max_price(head: &Head) -> Result<Option<PriceLimit>, Refusal> {
    // A line that is no text is not a limit either.
    let lines = head.headers.get_all(MAX_PRICE).iter().map(|line| line.to_str().unwrap_or_default());
    parse_max_prices(lines).map_err(|_| Refusal::InvalidValue {
        name: MAX_PRICE,
        message: format!(
            "Invalid value for the header '{MAX_PRICE}': expected 'input=<USD>,output=<USD>' per million tokens; either may be \
             missing."
        ),
    })
}
