//! Fingerprints of credentials: 32 bits of a hash, enough to detect a replaced credential and too few to reveal anything
//! about it where health is saved and shared.

use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use tollgate_core::{Account, CredentialFingerprint, Secret};

/// The fingerprint of an account's credential. Equal credentials of two accounts have different fingerprints.
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
