//! The permit that an attempt holds while it uses an account.

use std::sync::Arc;

use tollgate_core::AccountId;

use super::{AccountLimiter, AccountLimiters};

/// Reserved capacity on one account, released when dropped. Empty for an account without a limit.
#[derive(Debug)]
pub struct Permit(pub(super) Option<HeldPermit>);

/// What a permit releases.
#[derive(Debug)]
pub(super) struct HeldPermit {
    pub(super) limiters: Arc<AccountLimiters>,
    pub(super) entry: Arc<AccountLimiter>,
    pub(super) account: AccountId,
    pub(super) tokens: u64,
    pub(super) requests_at: u64,
    pub(super) tokens_at: u64,
    pub(super) used: PermitUse,
}

/// What the attempt used.
#[derive(Clone, Copy, Debug)]
pub(super) enum PermitUse {
    /// No request was sent: nothing counts.
    Nothing,
    /// A request was sent and its tokens are unknown: the estimate counts.
    Request,
    /// A request was sent and used this many tokens.
    Tokens(u64),
}

impl Permit {
    /// Whether the permit is for this account.
    pub(crate) fn is_on(&self, account: AccountId) -> bool {
        self.0.as_ref().is_some_and(|held| held.account == account)
    }

    /// Whether usage of the account is counted.
    pub(crate) const fn counts(&self) -> bool {
        self.0.is_some()
    }

    /// Marks the attempt as sent.
    pub(crate) fn begin(&mut self) {
        self.set_use(PermitUse::Request);
    }

    /// Reverts [`Self::begin`]: no byte of the request was sent.
    pub(crate) fn mark_unsent(&mut self) {
        self.set_use(PermitUse::Nothing);
    }

    /// Sets the tokens that the attempt used.
    pub(crate) fn used_tokens(&mut self, tokens: u64) {
        self.set_use(PermitUse::Tokens(tokens));
    }

    fn set_use(&mut self, used: PermitUse) {
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
