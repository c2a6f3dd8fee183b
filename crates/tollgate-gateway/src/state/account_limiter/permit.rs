//! Reserved capacity, held by the attempt.

use std::sync::Arc;

use tollgate_core::AccountId;

use super::{AccountLimiter, AccountLimiters};

/// Capacity of one account, released on drop. Empty for an account without a bound.
#[derive(Debug)]
pub struct Permit(pub(super) Option<HeldPermit>);

/// What a permit releases.
#[derive(Debug)]
pub(super) struct HeldPermit {
    pub(super) limiters: Arc<AccountLimiters>,
    pub(super) place: Arc<AccountLimiter>,
    pub(super) account: AccountId,
    pub(super) tokens: u64,
    pub(super) requests_at: u64,
    pub(super) tokens_at: u64,
    pub(super) used: PermitUse,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum PermitUse {
    /// Nothing was sent: nothing counts.
    Nothing,
    /// A request was sent; what it used is not known, so the estimate counts.
    Request,
    /// A request was sent and used so many tokens.
    Tokens(u64),
}

impl Permit {
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
        self.used(PermitUse::Request);
    }

    /// Nothing was sent after all.
    pub(crate) fn not_sent(&mut self) {
        self.used(PermitUse::Nothing);
    }

    /// The attempt used so many tokens.
    pub(crate) fn used_tokens(&mut self, tokens: u64) {
        self.used(PermitUse::Tokens(tokens));
    }

    fn used(&mut self, used: PermitUse) {
        if let Some(held) = &mut self.0 {
            held.used = used;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            let limiters = Arc::clone(&held.limiters);
            limiters.release(&held);
        }
    }
}
