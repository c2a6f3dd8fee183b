//! What is known of accounts' health, shared by all cores. Changing one account locks that account; choosing reads all of
//! them without a lock.

mod mark;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tollgate_core::{
    Account, AccountHealth, AccountId, CredentialFingerprint, HealthSnapshot, HealthState, HealthStatus, HealthView, Observation,
    Timestamp, observe, start_probe,
};

use self::mark::{InForce, mark};

use crate::state::{
    account_map::{AccountMap, AccountSnapshot},
    change_signal::ChangeSignal,
};

/// Health of accounts. An account nothing is known of is healthy.
#[derive(Debug, Default)]
pub struct HealthRegistry {
    places: AccountMap<HealthEntry>,
    /// That an account may be used again, or probed, sooner than was known.
    pub(crate) recoveries: ChangeSignal,
}

/// What is known of one account.
#[derive(Debug, Default)]
struct HealthEntry {
    health: Mutex<AccountHealth>,
    /// What choosing looks at of it ([`HealthSnapshot`]), written whenever it changes.
    state: AtomicU64,
    latency: AtomicU64,
    /// The credential in force. Read and written under the lock of `health`.
    in_force: InForce,
    /// Changed since it was last taken for saving.
    unsaved: AtomicBool,
}

impl HealthEntry {
    fn new(health: AccountHealth) -> Self {
        let place = Self::default();
        place.put(&mut place.health(), health);
        place
    }

    fn health(&self) -> MutexGuard<'_, AccountHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, held: &mut AccountHealth, health: AccountHealth) {
        let HealthSnapshot { state, latency } = HealthSnapshot::of(&health);
        *held = health;
        self.state.store(state, Ordering::Relaxed);
        self.latency.store(latency, Ordering::Relaxed);
    }

    fn snapshot(&self) -> HealthSnapshot {
        HealthSnapshot { state: self.state.load(Ordering::Relaxed), latency: self.latency.load(Ordering::Relaxed) }
    }

    fn to_save(&self) {
        self.unsaved.store(true, Ordering::Release);
    }
}

impl HealthRegistry {
    /// A registry that begins with what was saved. A probe under way when it was saved has no owner now: the account's
    /// next request is one again.
    #[must_use]
    pub fn from_saved(saved: impl IntoIterator<Item = (AccountId, AccountHealth)>) -> Self {
        let places = saved.into_iter().map(|(account, mut health)| {
            if let HealthState::Probing { why, .. } = health.state {
                health.state = HealthState::Probing { since: Timestamp(0), why };
            }
            (account, Arc::new(HealthEntry::new(health)))
        });
        Self { places: places.collect(), ..Self::default() }
    }

    /// What is known of an account.
    #[must_use]
    pub fn of(&self, account: AccountId) -> AccountHealth {
        self.places.get(account).map_or_else(AccountHealth::default, |place| *place.health())
    }

    /// All accounts as they are, for one choice.
    #[must_use]
    pub fn snapshot(&self) -> RegistrySnapshot {
        RegistrySnapshot(self.places.snapshot())
    }

    /// Something showed of an account, whatever credential it was got with. `cooling_on` is the channel's switch.
    pub fn observe(&self, account: AccountId, what: &Observation, cooling_on: bool, now: Timestamp) {
        self.change(account, what, cooling_on, now, None);
    }

    /// An attempt that was sent at `sent` showed something of the account it was sent with. What is said of a credential
    /// counts against that one alone: once it is replaced, its refusal says nothing. A refusal counts from the time it was
    /// asked for, so that a test that passed since then is the newer word.
    pub fn observe_sent(&self, account: &Account, what: &Observation, cooling_on: bool, sent: Timestamp, now: Timestamp) {
        let refused = *what == Observation::Refused;
        let of_credential = refused || *what == Observation::TestPassed;
        self.change(account.id, what, cooling_on, if refused { sent } else { now }, of_credential.then(|| mark(account)));
    }

    /// `got_with`: the credential, where the observation is about one.
    fn change(
        &self,
        account: AccountId,
        what: &Observation,
        cooling_on: bool,
        now: Timestamp,
        got_with: Option<CredentialFingerprint>,
    ) {
        let place = self.places.get_or_insert(account);
        let mut health = place.health();
        let before = *health;
        let in_force = place.in_force.get();
        let is_old = got_with.is_some() && in_force.is_some() && got_with != in_force;
        // A probe that went out with the old credential is to be repeated.
        let mut after = observe(&before, if is_old { &Observation::Abandoned } else { what }, cooling_on, now);
        if after.is_refused() && !before.is_refused() {
            after.refused_credential = got_with.or(in_force);
        }
        if before == after {
            return;
        }
        place.put(&mut health, after);
        drop(health);
        place.to_save();
        if before.state != after.state && usable(&after) {
            self.recoveries.notify();
        }
        if usable(&before) != usable(&after) {
            tracing::warn!(account.id = %account, state = state_word(&after.state), "account health changed");
        }
    }

    /// An attempt on an account begins: when a probe is due it is the probe, and others keep away.
    pub fn begin(&self, account: AccountId, now: Timestamp) {
        let Some(place) = self.places.get(account) else { return };
        let mut health = place.health();
        if let Some(after) = start_probe(&health, now) {
            place.put(&mut health, after);
            place.to_save();
        }
    }

    /// What another node knows of accounts: the later end of a rest or a cooling wins. That a credential was refused which is
    /// replaced here is no news.
    pub fn merge(&self, known: impl IntoIterator<Item = (AccountId, AccountHealth)>) {
        for (account, theirs) in known {
            let ours = self.of(account);
            if ends(&theirs.state) <= ends(&ours.state) {
                continue;
            }
            let place = self.places.get_or_insert(account);
            let mut health = place.health();
            let ours = *health;
            if ends(&theirs.state) > ends(&ours.state) && !place.in_force.replaced(theirs.refused_credential) {
                let AccountHealth { state, coolings, refused_credential: refused, .. } = theirs;
                place.put(&mut health, AccountHealth { state, coolings, refused_credential: refused, ..ours });
                drop(health);
                tracing::warn!(account.id = %account, state = state_word(&theirs.state), "account health changed on another node");
            }
        }
    }

    /// Accounts that cool or rest.
    pub fn resting(&self, now: Timestamp) -> Vec<(AccountId, AccountHealth)> {
        let places = self.places.snapshot();
        let all = places.iter().map(|(account, place)| (account, *place.health()));
        all.filter(|(_, health)| ends(&health.state) > now.0).collect()
    }

    /// Takes what has changed since the last call, for saving.
    pub fn take_unsaved(&self) -> Vec<(AccountId, AccountHealth)> {
        let places = self.places.snapshot();
        let changed = places.iter().filter(|(_, place)| place.unsaved.swap(false, Ordering::AcqRel));
        changed.map(|(account, place)| (account, *place.health())).collect()
    }

    /// Saving failed: they are to be taken again.
    pub fn put_back(&self, accounts: impl IntoIterator<Item = AccountId>) {
        accounts.into_iter().filter_map(|account| self.places.get(account)).for_each(|place| place.to_save());
    }

    /// These accounts are in force now: makes room for them, so that no request has to, and forgets all others. A rest ends
    /// whose credential was replaced.
    pub fn configure<'a>(&self, accounts: impl IntoIterator<Item = &'a Account>) {
        let marks: Vec<_> = accounts.into_iter().map(|account| (account.id, mark(account))).collect();
        self.places.configure(marks.iter().map(|(account, _)| *account), |_| false);
        let places = self.places.snapshot();
        let mut ended = false;
        for (account, now_in_force) in marks {
            let Some(place) = places.get(account) else { continue };
            let mut health = place.health();
            place.in_force.set(now_in_force);
            if !health.is_refused() {
                continue;
            }
            if place.in_force.replaced(health.refused_credential) {
                // As good as new, and a test that passed makes it so at any time.
                let after = observe(&health, &Observation::TestPassed, true, Timestamp(0));
                place.put(&mut health, after);
                place.to_save();
                ended = true;
                tracing::warn!(account.id = %account, state = state_word(&after.state), "account has another credential");
            } else {
                // Of a rest from before credentials were told apart it is the one that is there.
                health.refused_credential = Some(now_in_force);
            }
        }
        if ended {
            self.recoveries.notify();
        }
    }
}

/// All accounts' health as choosing reads it: for one choice, not to be kept.
pub struct RegistrySnapshot(AccountSnapshot<HealthEntry>);

impl HealthView for RegistrySnapshot {
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus {
        self.0.get(account).map_or(HealthStatus::HEALTHY, |place| place.snapshot().status(now))
    }
}

impl std::fmt::Debug for RegistrySnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistrySnapshot").finish_non_exhaustive()
    }
}

/// When a state ends by itself; one that only a test ends is the latest, one without effect the earliest.
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
