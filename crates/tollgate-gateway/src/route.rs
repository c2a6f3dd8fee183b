//! Stage 5 of 9. In: an offer and what the request asks; out: the accounts to try, in order, with room set aside on the
//! first of them, or why there is none.
//!
//! Where accounts are merely busy the request waits for one of them, for two seconds at most. A request whose attempt
//! failed chooses again, the same way: what was tried is out, and everything else is as it is by then.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use tollgate_core::{
    Account, AccountBounds, AccountId, AccountLoad, Budget, BudgetAction, Caller, CandidateView, Catalog, Cause, Channel,
    ChannelBudget, NoRoute, NotOffered, Offer, Past, Plan, PlannedAttempt, PriceLimit, RouteInput, Serves, Subject, Timestamp,
    estimate_input, estimate_output, parse_max_prices,
};
use tollgate_protocol::{FieldPath, Method, Outline};

use crate::{
    Core, Head, Refusal,
    account_room::{Slot, Waited},
    forward::seconds_until,
    ticket::Ticket,
    traffic::TrafficView,
    translate::Bodies,
};

/// Header with which a caller bounds the price of one request.
const MAX_PRICE: &str = "x-tollgate-max-price";
/// Longest wait for a busy account.
const WAIT: Duration = Duration::from_secs(2);
/// How often a request chooses again because others were faster.
const ROUNDS: usize = 8;

/// Everything choosing looks at.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub core: &'a Core,
    pub head: &'a Head,
    pub catalog: &'a Catalog,
    pub caller: &'a Caller,
    pub offer: &'a Offer,
    pub outline: &'a Outline,
    pub bodies: &'a Bodies<'a>,
}

/// The account to try.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub planned: Arc<PlannedAttempt>,
    /// Room on it.
    pub slot: Slot,
}

impl<'a> Asked<'a> {
    /// Chooses an account, waiting for a busy one where all are.
    ///
    /// # Errors
    /// The refusal; the record has the candidates' exclusions.
    pub(crate) async fn choose(&self, past: &Past, ticket: &mut Ticket) -> Result<Chosen, Refusal> {
        let limit = max_price(self.head)?;
        let rooms = &self.core.shared.traffic.rooms;
        let tokens = self.tokens();
        let until = (self.core.shared.clock.instant() + WAIT).min(self.deadline());
        let mut granted = None;
        let mut full = None;
        let mut rounds = 0..ROUNDS;
        loop {
            let again = rounds.next().is_some();
            let no = match self.route(past, limit, granted.as_ref()) {
                Ok(plan) => {
                    if !self.bring(&plan.first).await {
                        // Its media cannot be had; from now on routing knows.
                        continue;
                    }
                    let first = &plan.first.account;
                    let slot = granted.take_if(|slot: &mut Slot| slot.is_on(first.id)).or_else(|| rooms.take(first, tokens));
                    if let Some(slot) = slot {
                        ticket.considered(plan.trace());
                        return Ok(Chosen { planned: Arc::new(plan.first), slot });
                    }
                    // Somebody else took the room between the look and the taking. Chosen again all the same, it is the
                    // model's last account, which is tried though it cools: then its room is waited for.
                    let waited = if full.replace(first.id) == Some(first.id) {
                        rooms.wait(std::slice::from_ref(first), self.caller.key.id, tokens, until).await
                    } else {
                        Waited::LookAgain
                    };
                    match waited {
                        Waited::Slot(slot) => granted = Some(slot),
                        Waited::LookAgain if again => {}
                        Waited::LookAgain | Waited::InVain => {
                            ticket.considered(plan.trace());
                            return Err(self.overtaken(first));
                        }
                    }
                    continue;
                }
                Err(no) => no,
            };
            let busy = if again { no.busy() } else { Vec::new() };
            match rooms.wait(&busy, self.caller.key.id, tokens, until).await {
                Waited::Slot(slot) => granted = Some(slot),
                Waited::LookAgain => {}
                Waited::InVain => {
                    ticket.considered(no.trace());
                    return Err(no_route(self.core, &no, self.bodies));
                }
            }
        }
    }

    /// Chooses an account that is free now, for an attempt beside another one; `None`: there is none.
    pub(crate) fn choose_beside(&self, past: &Past) -> Option<Chosen> {
        let planned = self.route(past, max_price(self.head).ok()?, None).ok()?.first;
        // An account that cools is no help beside one that is at work.
        let slot = (!planned.last_resort).then(|| self.core.shared.traffic.rooms.take(&planned.account, self.tokens()))??;
        Some(Chosen { planned: Arc::new(planned), slot })
    }

    /// When the request must have an answer.
    pub(crate) fn deadline(&self) -> Instant {
        self.head.started + self.core.shared.settings.upstream.total
    }

    /// Fetches the remote media an attempt needs. `false`: the request cannot go there.
    pub(crate) async fn bring(&self, planned: &PlannedAttempt) -> bool {
        planned.protocol == self.head.from || self.bodies.bring(&self.core.shared.traffic.media, planned).await
    }

    fn route(&self, past: &Past, request_limit: Option<PriceLimit>, granted: Option<&Slot>) -> Result<Plan<'a>, NoRoute<'a>> {
        let now = self.core.shared.clock.now();
        let current = self.core.shared.catalog.load();
        let health = self.core.desk.health.look();
        let traffic = self.core.shared.traffic.view(self.outline, self.head.from, self.tokens(), now);
        let view = View { asked: self, traffic, granted };
        let input = RouteInput {
            catalog: self.catalog,
            newer: (!std::ptr::eq(&raw const **current, self.catalog)).then_some(&**current),
            caller: self.caller,
            offer: self.offer,
            outline: self.outline,
            from: self.head.from,
            health: &health,
            view: &view,
            now,
            request_limit,
            translates: true,
            past,
        };
        tollgate_core::route(&input, &mut || self.core.dice.throw_u32())
    }

    /// What the caller is told when others were faster, time and again.
    fn overtaken(&self, account: &Account) -> Refusal {
        let shared = &self.core.shared;
        let wait = match shared.traffic.rooms.load(account, self.tokens()) {
            AccountLoad::AtRate { until } => seconds_until(until, shared.clock.now()).clamp(1, 60),
            AccountLoad::Free | AccountLoad::AtConcurrency => 1,
        };
        let model = self.outline.model.clone();
        Refusal::NoRoute { model, cause: Cause::Concurrency, too_dear: false, retry_after: Some(wait), price: None }
    }

    /// What the request is estimated at, for accounts with a bound on tokens a minute.
    pub(crate) fn tokens(&self) -> u64 {
        if self.outline.method == Method::CountTokens {
            return 0;
        }
        estimate_input(self.outline).saturating_add(estimate_output(self.outline, &self.offer.model))
    }
}

/// Candidates as this request meets them.
struct View<'r, 'a> {
    asked: &'r Asked<'a>,
    traffic: TrafficView<'r>,
    /// Room that it has already.
    granted: Option<&'r Slot>,
}

impl CandidateView for View<'_, '_> {
    fn account_load(&self, account: AccountId, bounds: AccountBounds) -> AccountLoad {
        if self.granted.is_some_and(|slot| slot.is_on(account)) {
            return AccountLoad::Free;
        }
        self.traffic.account_load(account, bounds)
    }

    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        channel_budget(&*self.asked.core.shared.counters, channel, self.asked.head.arrived)
    }

    fn has_learned(&self) -> bool {
        self.traffic.has_learned()
    }

    fn learned(&self, channel: &Channel, serves: &Serves) -> Vec<FieldPath> {
        self.traffic.learned(channel, serves)
    }

    fn untranslatable(&self, channel: &Channel, serves: &Serves) -> Vec<FieldPath> {
        self.asked.bodies.untranslatable(channel, serves)
    }
}

/// Whether one of a channel's budgets is spent at a time.
pub(crate) fn channel_budget(counters: &dyn tollgate_store::Counters, channel: &Channel, at: Timestamp) -> ChannelBudget {
    let spent = |budget: &&Budget| {
        let spent = counters.spent(Subject::Channel(channel.id), budget.window, at);
        budget.action == BudgetAction::Block && spent >= budget.amount
    };
    match channel.budgets.iter().find(spent) {
        Some(budget) => ChannelBudget::Spent { until: budget.window.ends(at) },
        None => ChannelBudget::Left,
    }
}

/// What the caller is told when no account can be tried.
fn no_route(core: &Core, no: &NoRoute<'_>, bodies: &Bodies<'_>) -> Refusal {
    let model = bodies.model().to_owned();
    if let Some(supports) = no.only_other_protocol() {
        return Refusal::MethodUnsupported { model, supports };
    }
    if let Some(fields) = no.all_translate() {
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
pub(crate) fn not_offered(no: NotOffered, outline: &Outline) -> Refusal {
    let model = outline.model.clone();
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
