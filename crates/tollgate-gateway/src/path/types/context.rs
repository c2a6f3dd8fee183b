//! Input of the stages in the attempt loop, and the state kept between attempts.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_core::{AttemptHistory, Caller, Catalog, Offer, PlannedAttempt, estimate_input, estimate_output, money_is_bounded};
use tollgate_protocol::{Method, RequestSummary, Target};

use super::{
    failure::Verdict,
    offered::{Admission, OfferedRequest},
    request_bodies::RequestBodies,
    usage_guard::JournalFailurePolicy,
    worker::Worker,
};
use crate::{
    refusal::Refusal,
    request::Head,
    state::{
        capacity_limiter::Permit,
        shares::{InFlightRequest, KeyShare},
    },
};

/// Longest wait for a busy account.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// How often a request may move to a newer catalog snapshot.
const MAX_RENEWALS: u8 = 8;

/// A request on its way to an account, as one catalog snapshot offers it.
pub(crate) struct RouteContext<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) head: &'a Head,
    pub(crate) catalog: &'a Catalog,
    pub(crate) caller: &'a Caller,
    pub(crate) offer: &'a Offer,
    pub(crate) summary: &'a RequestSummary,
    /// The body in the form each upstream needs.
    pub(crate) bodies: RequestBodies<'a>,
    /// Charges the memory of answers to the request.
    pub(crate) memory: Option<Arc<InFlightRequest>>,
}

impl<'a> RouteContext<'a> {
    pub(crate) fn new(
        worker: &'a Worker,
        head: &'a Head,
        target: &'a Target,
        offered: &'a OfferedRequest,
        admission: &Admission,
        memory: Option<Arc<InFlightRequest>>,
    ) -> Self {
        let OfferedRequest { catalog, caller, offer, summary, .. } = offered;
        let bodies = RequestBodies::new(head, target, offered, admission.output_limit.as_ref(), memory.clone());
        Self { worker, head, catalog, caller, offer, summary, bodies, memory }
    }

    /// The share of the request's key.
    pub(crate) fn share(&self) -> Option<&KeyShare> {
        self.memory.as_ref()?.share().map(|share| &**share)
    }

    /// When the request must have an answer.
    pub(crate) fn deadline(&self) -> Instant {
        self.head.started + self.head.settings.upstream.total
    }

    /// Behaviour when the journal cannot be written: a budget cannot be kept for a request that is not recorded.
    pub(crate) fn journal_failure_policy(&self) -> JournalFailurePolicy {
        if money_is_bounded(self.caller, self.offer) { JournalFailurePolicy::Refuse } else { JournalFailurePolicy::Continue }
    }

    /// Estimated tokens of the request, for accounts with a limit on tokens per minute.
    pub(crate) fn estimated_tokens(&self) -> u64 {
        if self.summary.method == Method::CountTokens {
            return 0;
        }
        estimate_input(self.summary).saturating_add(estimate_output(self.summary, &self.offer.model))
    }

    /// Whether another catalog snapshot is in force now.
    pub(crate) fn is_stale(&self) -> bool {
        !std::ptr::eq(&raw const **self.worker.shared.catalog.load(), self.catalog)
    }

    /// Fetches the remote media that an attempt needs. `false` when the attempt's channel cannot take the request.
    pub(crate) async fn fetch_media(&self, planned: &PlannedAttempt) -> bool {
        planned.protocol == self.head.from || self.bodies.fetch_media(&self.worker.shared.traffic.media, planned).await
    }
}

/// The account to try, with a permit for it.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) planned: Arc<PlannedAttempt>,
    pub(crate) permit: Permit,
}

/// Why no account was selected.
#[derive(Debug)]
pub(crate) enum SelectionError {
    Refused(Refusal),
    /// No account of the request's snapshot can serve it, and a newer snapshot is in force.
    StaleCatalog,
}

impl From<Refusal> for SelectionError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// How long a request may still wait for a busy account, and how often it may move to a newer catalog snapshot.
#[derive(Debug, Default)]
pub(crate) struct WaitBudget {
    /// End of the current wait; `None` when the request does not wait.
    until: Option<Instant>,
    renewals: u8,
}

impl WaitBudget {
    /// When the current wait ends. A wait that has not begun begins now.
    pub(crate) fn until(&mut self, now: Instant, deadline: Instant) -> Instant {
        *self.until.get_or_insert_with(|| (now + MAX_WAIT).min(deadline))
    }

    /// Ends the wait after an account was selected. The next wait has its own time limit.
    pub(crate) const fn end_wait(&mut self) {
        self.until = None;
    }

    pub(crate) const fn may_renew(&self) -> bool {
        self.renewals < MAX_RENEWALS
    }

    pub(crate) const fn count_renewal(&mut self) {
        self.renewals += 1;
    }

    /// Stops renewals: a newer snapshot does not serve the request, so it stays with its own.
    pub(crate) const fn stop_renewing(&mut self) {
        self.renewals = MAX_RENEWALS;
    }
}

/// State kept between attempts, also across catalog snapshots.
#[derive(Default)]
pub(crate) struct RetryState {
    /// Accounts and addresses that are not tried again.
    pub(crate) history: AttemptHistory,
    pub(crate) wait_budget: WaitBudget,
    pub(crate) last: Option<LastAttempt>,
    /// Shortest wait requested by an upstream, in seconds.
    pub(crate) shortest_wait: Option<u32>,
    /// True if the sealed thoughts of the history are left out, because an account refused them.
    pub(crate) without_seals: bool,
    /// True once the request was counted in the retry budget.
    pub(crate) counted: bool,
}

pub(crate) struct LastAttempt {
    pub(crate) verdict: Verdict,
    pub(crate) planned: Arc<PlannedAttempt>,
}
