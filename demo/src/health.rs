//! The health of accounts during the history: the state machine of the gateway, fed with the results of the requests.

use std::collections::HashMap;

use tollgate_core::{
    Account, AccountHealth, AccountId, Availability, Catalog, Channel, ChannelBudget, HealthHistory, HealthState, HealthStatus,
    HealthTransition, HealthView, Observation, RestingReason, Timestamp, TransitionCause, Window, account_condition, observe,
    start_probe,
};

use crate::faults::FaultKind;

#[derive(Debug)]
pub(crate) struct AccountBook {
    health: HashMap<AccountId, AccountHealth>,
    history: HealthHistory,
    /// Rows that are not stored yet.
    transitions: Vec<HealthTransition>,
    /// Observations are made in order, although requests overlap.
    now: Timestamp,
}

impl HealthView for AccountBook {
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus {
        self.health.get(&account).map_or(HealthStatus::HEALTHY, |health| health.status(now))
    }
}

impl AccountBook {
    pub(crate) fn new() -> Self {
        Self { health: HashMap::new(), history: HealthHistory::restore([]), transitions: Vec::new(), now: Timestamp(i64::MIN) }
    }

    /// Records that a request is sent to an account; it may be the account's probe.
    pub(crate) fn begin_attempt(&mut self, account: AccountId, now: Timestamp) {
        let health = self.health.entry(account).or_default();
        if let Some(probing) = start_probe(health, now) {
            *health = probing;
        }
    }

    pub(crate) fn observe(&mut self, channel: &Channel, account: &Account, what: &Observation, at: Timestamp) {
        self.note(channel, account, what, TransitionCause::Request, at);
    }

    fn note(&mut self, channel: &Channel, account: &Account, what: &Observation, cause: TransitionCause, at: Timestamp) {
        self.now = self.now.max(at);
        let health = self.health.entry(account.id).or_default();
        *health = observe(health, what, channel.spec.cooling_rules(), self.now);
        self.record(channel, account, cause);
    }

    fn record(&mut self, channel: &Channel, account: &Account, cause: TransitionCause) {
        let state = self.health.get(&account.id).map_or(HealthState::Usable, |health| health.state);
        let condition = account_condition(channel, account, &state, self.now);
        self.transitions.extend(self.history.record(channel, account, condition, cause, self.now));
        self.transitions.extend(self.history.record_channel(channel, ChannelBudget::Left, cause, self.now));
    }

    /// Records the accounts and channels that a new catalog switches on and off.
    pub(crate) fn follow(&mut self, catalog: &Catalog, now: Timestamp) {
        self.now = self.now.max(now);
        for channel in catalog.channels.values() {
            for account in &channel.accounts {
                self.record(channel, account, TransitionCause::Operator);
            }
        }
    }

    /// Tests the accounts that rest for a refused credential and probes those whose credit may be spent; `has` returns whether an
    /// account has a fault.
    pub(crate) fn probe(&mut self, catalog: &Catalog, has: impl Fn(&str, &str, FaultKind) -> bool, now: Timestamp) {
        for channel in catalog.channels.values() {
            for account in &channel.accounts {
                let has = |kind| has(&channel.spec.name, &account.spec.name, kind);
                let state = self.health.get(&account.id).map_or(HealthState::Usable, |health| health.state);
                match state {
                    HealthState::Resting { why: RestingReason::Refused, .. } if !has(FaultKind::CredentialRefused) => {
                        self.note(channel, account, &Observation::TestPassed, TransitionCause::Test, now);
                    }
                    HealthState::Usable if has(FaultKind::CreditSpent) => {
                        let until = Window::Month.ends(now);
                        self.note(channel, account, &Observation::QuotaSpent { until }, TransitionCause::Probe, now);
                    }
                    HealthState::Usable
                    | HealthState::Cooling { .. }
                    | HealthState::Resting { .. }
                    | HealthState::Probing { .. } => {}
                }
            }
        }
    }

    /// As the rules of alerts see it: an account whose cooling is over counts as usable, because a request would be sent to it.
    pub(crate) fn health(&self, account: AccountId, now: Timestamp) -> AccountHealth {
        let health = self.health.get(&account).copied().unwrap_or_default();
        let is_due = health.availability(now) == Availability::ProbeDue;
        if is_due { AccountHealth { state: HealthState::Usable, ..health } } else { health }
    }

    pub(crate) fn take_transitions(&mut self) -> Vec<HealthTransition> {
        std::mem::take(&mut self.transitions)
    }

    pub(crate) fn into_health(self) -> Vec<(AccountId, AccountHealth)> {
        self.health.into_iter().collect()
    }
}
