//! Passkeys: the public keys with which members sign in, as WebAuthn has them.

use serde::{Deserialize, Serialize};
use tollgate_core::{MemberId, PasskeyId, Timestamp};

use crate::KeyHash;

/// Passkeys of one member.
pub const MAX_PASSKEYS: usize = 10;

/// A passkey of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passkey {
    pub id: PasskeyId,
    pub member: MemberId,
    /// The id that the authenticator gave it, at most 1,023 bytes.
    pub credential: Vec<u8>,
    /// `COSE_Key` (RFC 9052, section 7).
    pub public_key: Vec<u8>,
    pub spec: PasskeySpec,
}

impl Passkey {
    /// The time it was added.
    pub fn created_at(&self) -> Timestamp {
        self.id.time()
    }
}

/// The stored facts about a passkey besides its ids and its member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasskeySpec {
    /// The member's name for it.
    pub name: String,
    /// The last signature counter; 0 of authenticators without one.
    pub sign_count: u32,
    /// Whether the authenticator may copy it to other devices.
    pub is_backup_eligible: bool,
    /// Whether it was copied when it was last used.
    pub is_backed_up: bool,
    /// Last sign-in; `None`: never.
    pub used_at: Option<Timestamp>,
}

/// A challenge that a change answers. It can be answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedChallenge {
    pub hash: KeyHash,
    /// Expiry of the challenge. Until then it is stored as used.
    pub ends_at: Timestamp,
}
