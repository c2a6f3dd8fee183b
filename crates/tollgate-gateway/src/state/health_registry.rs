//! Health of accounts, shared by all cores. A change locks one account; routing reads all of them without a lock.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use sha2::{Digest as _, Sha256};
use tollgate_core::{
    Account, AccountHealth, AccountId, CredentialFingerprint, HealthSnapshot, HealthState, HealthStatus, HealthView, Observation,
    Secret, Timestamp, observe, start_probe,
};

use crate::state::{
    account_map::{AccountMap, AccountSnapshot},
    change_signal::ChangeSignal,
};

/// Health of accounts. An account without an entry is healthy.
#[derive(Debug, Default)]
pub struct HealthRegistry {
    entries: AccountMap<HealthEntry>,
    /// Notified when an account becomes usable, or due for a probe, earlier than scheduled.
    pub(crate) recoveries: ChangeSignal,
}

#[derive(Debug, Default)]
struct HealthEntry {
    health: Mutex<AccountHealth>,
    /// The parts routing reads ([`HealthSnapshot`]), updated with every change of `health`.
    state: AtomicU64,
    latency: AtomicU64,
    /// Fingerprint of the current credential. Read and written under the lock of `health`.
    credential: CurrentCredential,
    /// Whether it changed since it was last taken for saving.
    unsaved: AtomicBool,
}

impl HealthEntry {
    fn new(health: AccountHealth) -> Self {
        let entry = Self::default();
        entry.put(&mut entry.health(), health);
        entry
    }

    fn health(&self) -> MutexGuard<'_, AccountHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, current: &mut AccountHealth, health: AccountHealth) {
        let HealthSnapshot { state, latency } = HealthSnapshot::of(&health);
        *current = health;
        self.state.store(state, Ordering::Relaxed);
        self.latency.store(latency, Ordering::Relaxed);
    }

    fn snapshot(&self) -> HealthSnapshot {
        HealthSnapshot { state: self.state.load(Ordering::Relaxed), latency: self.latency.load(Ordering::Relaxed) }
    }

    fn mark_unsaved(&self) {
        self.unsaved.store(true, Ordering::Release);
    }
}

impl HealthRegistry {
    /// A registry with saved health. A probe that was running when the state was saved is void: the account's next request
    /// becomes the probe.
    #[must_use]
    pub fn from_saved(saved: impl IntoIterator<Item = (AccountId, AccountHealth)>) -> Self {
        let entries = saved.into_iter().map(|(account, mut health)| {
            if let HealthState::Probing { why, .. } = health.state {
                health.state = HealthState::Probing { since: Timestamp(0), why };
            }
            (account, Arc::new(HealthEntry::new(health)))
        });
        Self { entries: entries.collect(), ..Self::default() }
    }

    /// Health of an account; the default when there is no entry.
    #[must_use]
    pub fn of(&self, account: AccountId) -> AccountHealth {
        self.entries.get(account).map_or_else(AccountHealth::default, |entry| *entry.health())
    }

    /// Health of all accounts at this moment, for one routing decision.
    #[must_use]
    pub fn snapshot(&self) -> RegistrySnapshot {
        RegistrySnapshot(self.entries.snapshot())
    }

    /// Records an observation that does not depend on the credential. `cooling_on` is the channel's switch.
    pub fn observe(&self, account: AccountId, what: &Observation, cooling_on: bool, now: Timestamp) {
        self.change(account, what, cooling_on, now, None);
    }

    /// Records an observation made by an attempt sent at `sent` with `account`'s credential. A refusal or passed test is
    /// ignored when that credential has been replaced meanwhile. A refusal counts from `sent`, so a test that passed after
    /// that takes precedence.
    pub fn observe_sent(&self, account: &Account, what: &Observation, cooling_on: bool, sent: Timestamp, now: Timestamp) {
        let refused = *what == Observation::Refused;
        let of_credential = refused || *what == Observation::TestPassed;
        self.change(account.id, what, cooling_on, if refused { sent } else { now }, of_credential.then(|| fingerprint(account)));
    }

    /// `observed_with`: the credential, where the observation is about one.
    fn change(
        &self,
        account: AccountId,
        what: &Observation,
        cooling_on: bool,
        now: Timestamp,
        observed_with: Option<CredentialFingerprint>,
    ) {
        let entry = self.entries.get_or_insert(account);
        let mut health = entry.health();
        let before = *health;
        let current_credential = entry.credential.get();
        let is_old = observed_with.is_some() && current_credential.is_some() && observed_with != current_credential;
        // A probe sent with the old credential is repeated.
        let mut after = observe(&before, if is_old { &Observation::Abandoned } else { what }, cooling_on, now);
        if after.is_refused() && !before.is_refused() {
            after.refused_credential = observed_with.or(current_credential);
        }
        if before == after {
            return;
        }
        entry.put(&mut health, after);
        drop(health);
        entry.mark_unsaved();
        if before.state != after.state && usable(&after) {
            self.recoveries.notify();
        }
        if usable(&before) != usable(&after) {
            tracing::warn!(account.id = %account, state = state_word(&after.state), "account health changed");
        }
    }

    /// Called when an attempt on an account begins. When a probe is due, the attempt becomes the probe and the account is not
    /// usable for others until it ends.
    pub fn begin(&self, account: AccountId, now: Timestamp) {
        let Some(entry) = self.entries.get(account) else { return };
        let mut health = entry.health();
        if let Some(after) = start_probe(&health, now) {
            entry.put(&mut health, after);
            entry.mark_unsaved();
        }
    }

    /// Merges health reported by another node: the later end of a rest or cooling wins. A refusal of a credential that is
    /// already replaced here is ignored.
    pub fn merge(&self, reported: impl IntoIterator<Item = (AccountId, AccountHealth)>) {
        for (account, theirs) in reported {
            let ours = self.of(account);
            if ends(&theirs.state) <= ends(&ours.state) {
                continue;
            }
            let entry = self.entries.get_or_insert(account);
            let mut health = entry.health();
            let ours = *health;
            if ends(&theirs.state) > ends(&ours.state) && !entry.credential.replaced(theirs.refused_credential) {
                let AccountHealth { state, coolings, refused_credential: refused, .. } = theirs;
                entry.put(&mut health, AccountHealth { state, coolings, refused_credential: refused, ..ours });
                drop(health);
                tracing::warn!(account.id = %account, state = state_word(&theirs.state), "account health changed on another node");
            }
        }
    }

    /// Accounts that are cooling or resting at `now`.
    pub fn resting(&self, now: Timestamp) -> Vec<(AccountId, AccountHealth)> {
        let entries = self.entries.snapshot();
        let all = entries.iter().map(|(account, entry)| (account, *entry.health()));
        all.filter(|(_, health)| ends(&health.state) > now.0).collect()
    }

    /// Takes the accounts that changed since the last call, for saving.
    pub fn take_unsaved(&self) -> Vec<(AccountId, AccountHealth)> {
        let entries = self.entries.snapshot();
        let changed = entries.iter().filter(|(_, entry)| entry.unsaved.swap(false, Ordering::AcqRel));
        changed.map(|(account, entry)| (account, *entry.health())).collect()
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
            entry.credential.set(current_credential);
            if !health.is_refused() {
                continue;
            }
            if entry.credential.replaced(health.refused_credential) {
                // A passed test resets the health regardless of the time.
                let after = observe(&health, &Observation::TestPassed, true, Timestamp(0));
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

/// Health at one moment, for one routing decision. Not to be stored.
#[derive(Debug)]
pub struct RegistrySnapshot(AccountSnapshot<HealthEntry>);

impl HealthView for RegistrySnapshot {
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus {
        self.0.get(account).map_or(HealthStatus::HEALTHY, |entry| entry.snapshot().status(now))
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

/// The fingerprint of an account's credential: 32 bits of a hash, enough to detect a replaced credential and too few to reveal
/// anything about it where health is saved and shared. Equal credentials of two accounts have different fingerprints.
fn fingerprint(account: &Account) -> CredentialFingerprint {
    let credential = account.credential.as_ref().map_or("", Secret::expose);
    let hash = Sha256::new().chain_update(account.id.to_string()).chain_update([0]).chain_update(credential).finalize();
    let first = hash.iter().take(4).fold(0, |bits, byte| (bits << 8) | u32::from(*byte));
    CredentialFingerprint(first)
}

/// The fingerprint of an account's current credential, if known.
#[derive(Debug, Default)]
struct CurrentCredential(AtomicU64);

impl CurrentCredential {
    const KNOWN: u64 = 1 << 32;

    fn get(&self) -> Option<CredentialFingerprint> {
        let bits = self.0.load(Ordering::Relaxed);
        u32::try_from(bits.checked_sub(Self::KNOWN)?).ok().map(CredentialFingerprint)
    }

    fn set(&self, fingerprint: CredentialFingerprint) {
        self.0.store(Self::KNOWN | u64::from(fingerprint.0), Ordering::Relaxed);
    }

    /// Whether the current credential differs from `fingerprint`. False when either is unknown.
    fn replaced(&self, fingerprint: Option<CredentialFingerprint>) -> bool {
        fingerprint.zip(self.get()).is_some_and(|(given, current)| given != current)
    }
}

#[cfg(test)]
mod tests;
