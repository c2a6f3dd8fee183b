//! An account's entry in the registry.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use sha2::{Digest as _, Sha256};
use tollgate_core::{Account, AccountHealth, CredentialFingerprint, HealthSnapshot, HealthState, Secret};

use super::{evidence::Evidence, suspicion::Suspicion};

/// Health of an account, and the observations behind it.
#[derive(Debug, Default)]
pub(super) struct HealthEntry {
    pub(super) health: Mutex<AccountHealth>,
    /// The parts routing reads ([`HealthSnapshot`]), updated with every change of `health`.
    pub(super) state: AtomicU64,
    pub(super) latency: AtomicU64,
    /// Fingerprint of the current credential. Read and written under the lock of `health`.
    pub(super) credential: CurrentCredential,
    /// The callers whose failures caused the state. Written under the lock of `health`.
    pub(super) evidence: Evidence,
    /// Suspicions against the account, raised by answers to some callers' requests. Written under the lock of `health`.
    pub(super) suspicion: Suspicion,
    /// Whether it changed since it was last saved.
    pub(super) unsaved: AtomicBool,
    /// True if a test ended the state and this was not yet sent to the other nodes.
    pub(super) ended: AtomicBool,
}

impl HealthEntry {
    pub(super) fn new(health: AccountHealth) -> Self {
        let entry = Self::default();
        entry.put(&mut entry.health(), health);
        entry
    }

    pub(super) fn health(&self) -> MutexGuard<'_, AccountHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, current: &mut AccountHealth, health: AccountHealth) {
        let HealthSnapshot { state, latency } = HealthSnapshot::of(&health);
        *current = health;
        self.state.store(state, Ordering::Relaxed);
        self.latency.store(latency, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> HealthSnapshot {
        HealthSnapshot { state: self.state.load(Ordering::Relaxed), latency: self.latency.load(Ordering::Relaxed) }
    }

    /// The health that applies to everyone.
    pub(super) fn health_of_all(&self) -> AccountHealth {
        let health = self.health();
        AccountHealth { state: self.state_of_all(&health), ..*health }
    }

    /// The state that applies to everyone, of health that is locked.
    pub(super) fn state_of_all(&self, health: &AccountHealth) -> HealthState {
        if self.evidence.is_of_some() { HealthState::Usable } else { health.state }
    }

    /// The health to show: that of all callers, or of the affected ones if only some are.
    pub(super) fn shown_health(&self) -> AccountHealth {
        let health = self.health();
        match self.suspicion.state() {
            Some(state) if health.state == HealthState::Usable => AccountHealth { state, concerns_some: true, ..*health },
            _ => AccountHealth { concerns_some: self.evidence.is_of_some(), ..*health },
        }
    }

    pub(super) fn mark_unsaved(&self) {
        self.unsaved.store(true, Ordering::Release);
    }
}

/// The fingerprint of an account's credential: 32 bits of a hash, enough to detect a replaced credential and too few to reveal
/// anything about it where health is saved and shared. Equal credentials of two accounts have different fingerprints.
pub(super) fn fingerprint(account: &Account) -> CredentialFingerprint {
    let credential = account.credential.as_ref().map_or("", Secret::expose);
    let hash = Sha256::new().chain_update(account.id.to_string()).chain_update([0]).chain_update(credential).finalize();
    let first = hash.iter().take(4).fold(0, |bits, byte| (bits << 8) | u32::from(*byte));
    CredentialFingerprint(first)
}

/// The fingerprint of an account's current credential, if known.
#[derive(Debug, Default)]
pub(super) struct CurrentCredential(AtomicU64);

impl CurrentCredential {
    const KNOWN: u64 = 1 << 32;

    pub(super) fn get(&self) -> Option<CredentialFingerprint> {
        let bits = self.0.load(Ordering::Relaxed);
        u32::try_from(bits.checked_sub(Self::KNOWN)?).ok().map(CredentialFingerprint)
    }

    pub(super) fn set(&self, fingerprint: CredentialFingerprint) {
        self.0.store(Self::KNOWN | u64::from(fingerprint.0), Ordering::Relaxed);
    }

    /// Whether the current credential differs from `fingerprint`. False when either is unknown.
    pub(super) fn replaced(&self, fingerprint: Option<CredentialFingerprint>) -> bool {
        fingerprint.zip(self.get()).is_some_and(|(given, current)| given != current)
    }
}
