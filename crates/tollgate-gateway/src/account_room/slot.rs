//! Room that was set aside, as the attempt carries it.

use std::sync::Arc;

use tollgate_core::AccountId;

use super::{AccountRooms, Place};

/// Room on one account, given back when dropped. Empty for an account without a bound.
#[derive(Debug)]
pub struct Slot(pub(super) Option<Held>);

/// What a slot gives back.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) rooms: Arc<AccountRooms>,
    pub(super) place: Arc<Place>,
    pub(super) account: AccountId,
    pub(super) tokens: u64,
    pub(super) requests_at: u64,
    pub(super) tokens_at: u64,
    pub(super) used: Used,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Used {
    /// Nothing was sent: nothing counts.
    Nothing,
    /// A request was sent; what it used is not known, so the estimate counts.
    Request,
    /// A request was sent and used so many tokens.
    Tokens(u64),
}

impl Slot {
    /// Whether it is room on this account.
    pub(crate) fn is_on(&self, account: AccountId) -> bool {
        self.0.as_ref().is_some_and(|held| held.account == account)
    }

    /// Whether anybody wants to know what it was used for.
    pub(crate) const fn counts(&self) -> bool {
        self.0.is_some()
    }

    /// The attempt begins.
    pub(crate) fn begin(&mut self) {
        self.used(Used::Request);
    }

    /// Nothing was sent after all.
    pub(crate) fn not_sent(&mut self) {
        self.used(Used::Nothing);
    }

    /// The attempt used so many tokens.
    pub(crate) fn used_tokens(&mut self, tokens: u64) {
        self.used(Used::Tokens(tokens));
    }

    fn used(&mut self, used: Used) {
        if let Some(held) = &mut self.0 {
            held.used = used;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            let rooms = Arc::clone(&held.rooms);
            rooms.release(&held);
        }
    }
}
