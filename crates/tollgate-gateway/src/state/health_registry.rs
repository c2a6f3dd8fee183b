//! Health of accounts, shared by all cores. A change locks one account; routing reads all of them without a lock.

mod entry;
mod evidence;
mod suspicion;

use std::sync::{Arc, atomic::Ordering};

use tollgate_core::{
    Account, AccountHealth, AccountId, Availability, CoolingRules, CredentialFingerprint, HealthState, HealthStatus, HealthView,
    Observation, Requester, Timestamp, TransitionCause, observe, start_probe,
};

use self::{
    entry::{HealthEntry, fingerprint},
    suspicion::{Reach, may_be_provoked},
};
use crate::state::{
    change_signal::ChangeSignal,
    health_records::{HealthChange, HealthChanges},
    id_map::{IdMap, IdMapSnapshot},
};

/// Health of accounts. An account without an entry is healthy.
#[derive(Debug, Default)]
pub struct HealthRegistry {
    entries: IdMap<AccountId, HealthEntry>,
    /// Notified when an account becomes usable, or due for a probe, earlier than scheduled.
    pub(crate) recoveries: ChangeSignal,
    /// Notified when an account is suspected to refuse its credential.
    pub(crate) suspicions: ChangeSignal,
    /// Changes of health for the recorder.
    pub(crate) changes: HealthChanges,
}

impl HealthRegistry {
    /// A registry with saved health, as of `now`. A probe that was running when the state was saved is dropped, and the
    /// account's next request becomes the probe. A state that applied only to some callers is dropped as well.
    #[must_use]
    pub fn from_saved(saved: impl IntoIterator<Item = (AccountId, AccountHealth)>, now: Timestamp) -> Self {
        let entries = saved.into_iter().map(|(account, saved)| {
            let mut health = saved.as_of(now);
            if std::mem::take(&mut health.concerns_some) {
                health.state = HealthState::Usable;
            }
            if let HealthState::Probing { why, .. } = health.state {
                health.state = HealthState::Probing { since: Timestamp(0), why };
            }
            (account, Arc::new(HealthEntry::new(health)))
        });
        Self { entries: entries.collect(), ..Self::default() }
    }

    /// Health of an account, of all callers or of some; the default when there is no entry.
    #[must_use]
    pub fn of(&self, account: AccountId) -> AccountHealth {
        self.entries.get(account).map_or_else(AccountHealth::default, |entry| entry.shown_health())
    }

    /// Health of an account that concerns everyone.
    #[must_use]
    pub(crate) fn of_all(&self, account: AccountId) -> AccountHealth {
        self.entries.get(account).map_or_else(AccountHealth::default, |entry| entry.health_of_all())
    }

    /// The state of an account that applies to everyone.
    #[must_use]
    pub fn state_of_all(&self, account: AccountId) -> HealthState {
        self.entries.get(account).map_or(HealthState::Usable, |entry| entry.health_of_all().state)
    }

    /// Reports a change of the state that applies to everyone to the recorder. A state that only lasts longer is left to the
    /// recorder's next comparison: under load many requests are refused in the same second.
    fn report(&self, account: AccountId, (before, state): (HealthState, HealthState), cause: TransitionCause, at: Timestamp) {
        let lasts_longer = matches!(
            (before, state),
            (HealthState::Cooling { until, why, .. }, HealthState::Cooling { why: next, .. }) if why == next && until > at
        );
        if before != state && !lasts_longer {
            self.changes.send(HealthChange { account, state, cause, at });
        }
    }

    /// Health of all accounts at this moment, of all callers or of some.
    #[must_use]
    pub fn snapshot(&self) -> RegistrySnapshot {
        RegistrySnapshot { entries: self.entries.snapshot(), by: None }
    }

    /// Health of all accounts as it concerns requests of `by`, for one routing decision.
    #[must_use]
    pub fn snapshot_for(&self, by: Requester) -> RegistrySnapshot {
        RegistrySnapshot { entries: self.entries.snapshot(), by: Some(by) }
    }

    /// Records an observation that does not depend on the credential. `rules` are the rules of the channel.
    pub fn observe(&self, account: AccountId, what: &Observation, rules: CoolingRules, now: Timestamp) {
        let cause = if *what == Observation::TestPassed { TransitionCause::Test } else { TransitionCause::Request };
        self.change(account, what, rules, now, Evidenced { credential: None, sent: now, by: None, cause });
    }

    /// Records an observation made by a probe sent at `sent` with `account`'s credential. A refusal or passed test is
    /// ignored when that credential has been replaced since. A refusal counts from `sent`, so a test that passed after
    /// that takes precedence.
    pub fn observe_probe(&self, account: &Account, what: &Observation, rules: CoolingRules, sent: Timestamp, now: Timestamp) {
        self.observe_sent(account, what, rules, (sent, now), None, TransitionCause::Probe);
    }

    /// Like [`Self::observe_probe`], for an attempt of a request of `by`. While all failures and refusals that a request can
    /// provoke come from one key, or from one member's keys, an account cools or rests for these only.
    pub fn observe_request(
        &self,
        account: &Account,
        what: &Observation,
        rules: CoolingRules,
        sent: Timestamp,
        now: Timestamp,
        by: Option<Requester>,
    ) {
        self.observe_sent(account, what, rules, (sent, now), by, TransitionCause::Request);
    }

    fn observe_sent(
        &self,
        account: &Account,
        what: &Observation,
        rules: CoolingRules,
        (sent, now): (Timestamp, Timestamp),
        by: Option<Requester>,
        cause: TransitionCause,
    ) {
        let refused = *what == Observation::Refused;
        let credential = (refused || *what == Observation::TestPassed).then(|| fingerprint(account));
        self.change(account.id, what, rules, if refused { sent } else { now }, Evidenced { credential, sent, by, cause });
    }

    fn change(&self, account: AccountId, what: &Observation, rules: CoolingRules, now: Timestamp, evidenced: Evidenced) {
        let Evidenced { credential: observed_with, sent, by, cause } = evidenced;
        let entry = self.entries.get_or_insert(account);
        let mut health = entry.health();
        let before = *health;
        let before_of_all = entry.state_of_all(&before);
        let current_credential = entry.credential.get();
        let is_old = observed_with.is_some() && current_credential.is_some() && observed_with != current_credential;
        let reach = match by {
            Some(by) if rules.on && !is_old && may_be_provoked(what) && !before.is_refused() => {
                entry.suspicion.judge(what, by, now)
            }
            _ => Reach::Everyone,
        };
        let concerns_all = reach == Reach::Everyone;
        // A probe sent with the old credential is repeated, and so is one whose answer may be about its request.
        let mut after = observe(&before, if is_old || !concerns_all { &Observation::Abandoned } else { what }, rules, now);
        let is_of_probe = matches!(what, Observation::TestPassed | Observation::Refused) && !is_old && by.is_none();
        let is_answer = matches!(what, Observation::Success { .. });
        if is_answer && entry.suspicion.answered(sent) || is_of_probe && entry.suspicion.settle() {
            self.end_suspicion(&entry);
        }
        if !is_old && *what == Observation::TestPassed {
            entry.ended.store(true, Ordering::Release);
        }
        if after.is_refused() && !before.is_refused() {
            after.refused_credential = observed_with.or(current_credential);
        }
        let concerns_more = concerns_all && entry.evidence.record(what, by, &after.state);
        let is_suspected = reach == Reach::Some;
        if is_suspected {
            entry.mark_unsaved();
            self.suspicions.notify();
            tracing::debug!(account.id = %account, "an answer against an account may be about its request");
        }
        if before == after && !concerns_more {
            return;
        }
        entry.put(&mut health, after);
        // Under the lock, so that changes are reported in order.
        self.report(account, (before_of_all, entry.state_of_all(&after)), cause, now);
        drop(health);
        entry.mark_unsaved();
        if before.state != after.state && usable(&after) {
            self.recoveries.notify();
        }
        if usable(&before) != usable(&after) {
            tracing::warn!(account.id = %account, state = state_word(&after.state), "account health changed");
        }
    }

    /// If the account's credential was refused and no probe has confirmed it: the number of probes since a request was last
    /// answered.
    pub(crate) fn unproven_refusal(&self, account: AccountId) -> Option<u32> {
        self.entries.get(account)?.suspicion.probes()
    }

    /// Records a passed probe of `account`, sent at `sent` because of an unproven refusal.
    pub(crate) fn probe_passed(&self, account: &Account, rules: CoolingRules, sent: Timestamp, now: Timestamp) {
        let Some(entry) = self.entries.get(account.id) else { return };
        if entry.credential.replaced(Some(fingerprint(account))) {
            return;
        }
        let is_refused = entry.health().is_refused();
        if entry.suspicion.probe_passed(sent, now) {
            self.end_suspicion(&entry);
        }
        if is_refused {
            self.observe_probe(account, &Observation::TestPassed, rules, sent, now);
        }
    }

    /// Callers that were barred from the account may use it again.
    fn end_suspicion(&self, entry: &HealthEntry) {
        entry.mark_unsaved();
        self.recoveries.notify();
    }

    /// Records an inconclusive probe that was sent because of an unproven refusal.
    pub(crate) fn probe_was_unclear(&self, account: AccountId) {
        if let Some(entry) = self.entries.get(account) {
            entry.suspicion.probe_was_unclear();
        }
    }

    /// Called when an attempt on an account begins. When a probe is due, the attempt becomes the probe and the account is not
    /// usable for others until it ends.
    pub fn begin(&self, account: AccountId, now: Timestamp) {
        self.begin_request(account, None, now);
    }

    /// Like [`Self::begin`], for an attempt of a request of `by`. An account that cools for others only has no probe
    /// due.
    pub fn begin_request(&self, account: AccountId, by: Option<Requester>, now: Timestamp) {
        let Some(entry) = self.entries.get(account).filter(|entry| entry.evidence.concerns(by)) else { return };
        let mut health = entry.health();
        if let Some(after) = start_probe(&health, now) {
            entry.put(&mut health, after);
            entry.mark_unsaved();
        }
    }

    /// Merges health reported by another node, as of `now`: the later end of a rest or cooling wins. A refusal of a credential
    /// that is already replaced here is ignored.
    pub fn merge(&self, reported: impl IntoIterator<Item = (AccountId, AccountHealth)>, now: Timestamp) {
        for (account, theirs) in reported {
            let theirs = theirs.as_of(now);
            let ours = self.entries.get(account).map_or_else(AccountHealth::default, |entry| *entry.health());
            if ends(&theirs.state) <= ends(&ours.state) {
                continue;
            }
            let entry = self.entries.get_or_insert(account);
            let mut health = entry.health();
            let ours = *health;
            if ends(&theirs.state) > ends(&ours.state) && !entry.credential.replaced(theirs.refused_credential) {
                let AccountHealth { state, coolings, refused_credential: refused, .. } = theirs;
                let before = entry.state_of_all(&ours);
                entry.put(&mut health, AccountHealth { state, coolings, refused_credential: refused, ..ours });
                entry.evidence.concern_all();
                entry.suspicion.settle();
                self.report(account, (before, state), TransitionCause::Node, now);
                drop(health);
                tracing::warn!(account.id = %account, state = state_word(&theirs.state), "account health changed on another node");
            }
        }
    }

    /// Ends the rests and coolings that began before a test of another node passed.
    pub fn end(&self, passed: impl IntoIterator<Item = (AccountId, Timestamp)>) {
        let mut has_ended = false;
        for (account, passed) in passed {
            let Some(entry) = self.entries.get(account) else { continue };
            let mut health = entry.health();
            let ends = |state: HealthState| state.unavailable_since().is_some_and(|since| since <= passed);
            if entry.suspicion.state().is_some_and(ends) {
                entry.suspicion.settle();
                entry.mark_unsaved();
                has_ended = true;
            }
            if ends(health.state) {
                entry.suspicion.settle();
                let after = observe(&health, &Observation::TestPassed, CoolingRules::default(), passed);
                let before = entry.state_of_all(&health);
                entry.put(&mut health, after);
                self.report(account, (before, after.state), TransitionCause::Test, passed);
                drop(health);
                entry.mark_unsaved();
                has_ended = true;
                tracing::warn!(account.id = %account, "a test on another node ended the account's rest");
            }
        }
        if has_ended {
            self.recoveries.notify();
        }
    }

    /// Takes the accounts whose state a test ended on this node since the last call.
    pub fn take_ended(&self) -> Vec<AccountId> {
        let entries = self.entries.snapshot();
        let ended = entries.iter().filter(|(_, entry)| entry.ended.swap(false, Ordering::AcqRel));
        ended.map(|(account, _)| account).collect()
    }

    /// Marks tests that the other nodes have not received.
    pub fn put_back_ended(&self, accounts: impl IntoIterator<Item = AccountId>) {
        let entries = accounts.into_iter().filter_map(|account| self.entries.get(account));
        entries.for_each(|entry| entry.ended.store(true, Ordering::Release));
    }

    /// Limits all states to what is possible at the clock's present time. A state that begins in the future shows that the clock
    /// was set back.
    pub fn follow_clock(&self, now: Timestamp) {
        let entries = self.entries.snapshot();
        for (account, entry) in entries.iter() {
            let mut health = entry.health();
            let after = health.as_of(now);
            if entry.suspicion.follow_clock(now) {
                self.end_suspicion(entry);
            }
            if *health != after {
                let before = entry.state_of_all(&health);
                entry.put(&mut health, after);
                self.report(account, (before, entry.state_of_all(&after)), TransitionCause::Node, now);
                drop(health);
                entry.mark_unsaved();
                self.recoveries.notify();
                tracing::warn!(account.id = %account, "the clock was put back; the account's rest ends by the new time");
            }
        }
    }

    /// Accounts that are cooling or resting at `now`.
    pub fn resting(&self, now: Timestamp) -> Vec<(AccountId, AccountHealth)> {
        let entries = self.entries.snapshot();
        let all = entries.iter().map(|(account, entry)| (account, entry.health_of_all()));
        all.filter(|(_, health)| ends(&health.state) > now.0).collect()
    }

    /// Takes the accounts that changed since the last call, for saving.
    pub fn take_unsaved(&self) -> Vec<(AccountId, AccountHealth)> {
        let entries = self.entries.snapshot();
        let changed = entries.iter().filter(|(_, entry)| entry.unsaved.swap(false, Ordering::AcqRel));
        changed.map(|(account, entry)| (account, entry.shown_health())).collect()
    }

    /// Marks accounts as unsaved again after a failed save.
    pub fn put_back(&self, accounts: impl IntoIterator<Item = AccountId>) {
        accounts.into_iter().filter_map(|account| self.entries.get(account)).for_each(|entry| entry.mark_unsaved());
    }

    /// Creates entries for the configured accounts, so that requests need not, and drops all others. A rest caused by a
    /// refused credential ends when that credential was replaced.
    pub fn configure<'a>(&self, accounts: impl IntoIterator<Item = &'a Account>) {
        let fingerprints: Vec<_> = accounts.into_iter().map(|account| (account.id, fingerprint(account))).collect();
        self.entries.configure(fingerprints.iter().map(|(account, _)| *account), |_| false);
        let entries = self.entries.snapshot();
        let mut ended = false;
        for (account, current_credential) in fingerprints {
            let Some(entry) = entries.get(account) else { continue };
            let mut health = entry.health();
            if entry.credential.replaced(Some(current_credential)) && entry.suspicion.forget() {
                self.end_suspicion(entry);
            }
            entry.credential.set(current_credential);
            if !health.is_refused() {
                continue;
            }
            if entry.credential.replaced(health.refused_credential) {
                // A passed test resets the health regardless of the time.
                let after = observe(&health, &Observation::TestPassed, CoolingRules::default(), Timestamp(0));
                entry.put(&mut health, after);
                entry.mark_unsaved();
                ended = true;
                tracing::warn!(account.id = %account, state = state_word(&after.state), "account credential replaced");
            } else {
                // A rest saved without a fingerprint is attributed to the current credential.
                health.refused_credential = Some(current_credential);
            }
        }
        if ended {
            self.recoveries.notify();
        }
    }
}

/// The origin of an observation.
#[derive(Clone, Copy)]
struct Evidenced {
    /// The credential, if the observation concerns one.
    credential: Option<CredentialFingerprint>,
    /// When the request or probe was sent.
    sent: Timestamp,
    /// The caller of the observed request.
    by: Option<Requester>,
    cause: TransitionCause,
}

/// Health at one moment, for one routing decision. Not to be stored.
#[derive(Debug)]
pub struct RegistrySnapshot {
    entries: IdMapSnapshot<AccountId, HealthEntry>,
    /// The key whose requests are routed; `None`: any.
    by: Option<Requester>,
}

impl HealthView for RegistrySnapshot {
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus {
        let Some(entry) = self.entries.get(account) else { return HealthStatus::HEALTHY };
        let status = entry.snapshot().status(now);
        let concerns = entry.evidence.concerns(self.by);
        let status = if concerns { status } else { HealthStatus { availability: Availability::Usable, ..status } };
        entry.suspicion.status(self.by, status, now)
    }
}

/// When a state ends by itself, in microseconds: 0 for states that allow requests, `i64::MAX` for a rest that only a
/// passed test ends.
fn ends(state: &HealthState) -> i64 {
    match state {
        HealthState::Usable | HealthState::Probing { .. } => 0,
        HealthState::Cooling { until, .. } | HealthState::Resting { until: Some(until), .. } => until.0,
        HealthState::Resting { until: None, .. } => i64::MAX,
    }
}

fn usable(health: &AccountHealth) -> bool {
    matches!(health.state, HealthState::Usable | HealthState::Probing { .. })
}

const fn state_word(state: &HealthState) -> &'static str {
    match state {
        HealthState::Usable => "usable",
        HealthState::Cooling { .. } => "cooling",
        HealthState::Resting { .. } => "resting",
        HealthState::Probing { .. } => "probing",
    }
}

#[cfg(test)]
mod tests;
