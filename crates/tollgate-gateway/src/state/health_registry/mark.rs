//! Which credential of an account is meant, told by a few bits of a hash: enough to see that it was replaced, too little to
//! learn anything of it where health is saved and shared.

use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use tollgate_core::{Account, CredentialFingerprint, Secret};

/// An account's credential. Equal credentials of two accounts have different marks.
pub(super) fn mark(account: &Account) -> CredentialFingerprint {
    let credential = account.credential.as_ref().map_or("", Secret::expose);
    let hash = Sha256::new().chain_update(account.id.to_string()).chain_update([0]).chain_update(credential).finalize();
    let first = hash.iter().take(4).fold(0, |bits, byte| (bits << 8) | u32::from(*byte));
    CredentialFingerprint(first)
}

/// The credential that is in force for an account, if that is known.
#[derive(Debug, Default)]
pub(super) struct InForce(AtomicU64);

impl InForce {
    const KNOWN: u64 = 1 << 32;

    pub(super) fn get(&self) -> Option<CredentialFingerprint> {
        let held = self.0.load(Ordering::Relaxed);
        u32::try_from(held.checked_sub(Self::KNOWN)?).ok().map(CredentialFingerprint)
    }

    pub(super) fn set(&self, mark: CredentialFingerprint) {
        self.0.store(Self::KNOWN | u64::from(mark.0), Ordering::Relaxed);
    }

    /// Whether another one than this is.
    pub(super) fn replaced(&self, mark: Option<CredentialFingerprint>) -> bool {
        mark.zip(self.get()).is_some_and(|(refused, in_force)| refused != in_force)
    }
}
