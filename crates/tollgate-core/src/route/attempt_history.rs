//! Results of a request's earlier attempts: accounts tried, channels that could not serve it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Exclusion, MAX_ATTEMPTS, PlannedAttempt};
use crate::{Account, AccountId, Channel, ChannelId, Multiplier};

/// Channels a request may skip before it gives up, since each one costs a routing pass.
const MAX_SKIPPED_CHANNELS: usize = 32;

/// Earlier attempts of one request; empty for its first one.
#[derive(Clone, Debug, Default)]
pub struct AttemptHistory {
    tried: SmallVec<[AccountId; MAX_ATTEMPTS]>,
    skipped: Vec<SkippedChannel>,
    /// Channels whose address refused connections.
    unreachable: Vec<Arc<Channel>>,
    last_resort: bool,
    unsent_count: usize,
}

/// A channel that turned out not to serve the request.
#[derive(Clone, Debug)]
struct SkippedChannel {
    channel: ChannelId,
    /// Only accounts with at least this cost multiplier, because the rest of a budget may suffice for cheaper ones. `None`:
    /// all.
    min_cost_multiplier: Option<Multiplier>,
    why: Exclusion,
}

impl SkippedChannel {
    fn applies_to(&self, account: &Account) -> bool {
        self.min_cost_multiplier.is_none_or(|min| account.spec.cost_multiplier >= min)
    }
}

impl AttemptHistory {
    /// Records an attempt. Its account is no longer a candidate; a last-resort attempt is made only once.
    pub fn record_attempt(&mut self, attempt: &PlannedAttempt) {
        self.tried.push(attempt.account.id);
        self.last_resort |= attempt.last_resort;
    }

    /// Records that an attempt's connection failed. Other accounts at the same address are tried after all others.
    pub fn record_unreachable(&mut self, attempt: &PlannedAttempt) {
        self.unreachable.push(Arc::clone(&attempt.channel));
    }

    /// Skips the channel of a planned attempt that turned out not to serve the request. If its budget is insufficient, only
    /// accounts with the same or a higher cost multiplier are skipped. Returns `false` when too many were skipped.
    #[must_use]
    pub fn skip_channel(&mut self, attempt: &PlannedAttempt, why: Exclusion) -> bool {
        let min_cost_multiplier = matches!(why, Exclusion::Budget { .. }).then_some(attempt.account.spec.cost_multiplier);
        self.skipped.push(SkippedChannel { channel: attempt.channel.id, min_cost_multiplier, why });
        self.skipped.len() < MAX_SKIPPED_CHANNELS
    }

    /// Records that an attempt sent nothing. Its account stays excluded, but the attempt does not count towards
    /// [`super::MAX_ATTEMPTS`].
    pub fn record_unsent(&mut self) {
        self.unsent_count += 1;
    }

    /// Number of attempts that sent something.
    pub(super) fn sent_count(&self) -> usize {
        self.tried.len().saturating_sub(self.unsent_count)
    }

    /// True before the first attempt.
    pub(super) fn is_empty(&self) -> bool {
        self.tried.is_empty() && self.skipped.is_empty()
    }

    pub(super) fn is_tried(&self, account: AccountId) -> bool {
        self.tried.contains(&account)
    }

    /// The exclusion of a channel with all its enabled accounts.
    pub(super) fn exclusion(&self, channel: &Channel) -> Option<Exclusion> {
        let mut skipped = self.skipped.iter().filter(|it| it.channel == channel.id);
        let whole =
            skipped.find(|it| channel.accounts.iter().filter(|account| account.spec.on).all(|account| it.applies_to(account)))?;
        Some(whole.why.clone())
    }

    /// The exclusion of a single account of a channel.
    pub(super) fn account_exclusion(&self, channel: ChannelId, account: &Account) -> Option<Exclusion> {
        let skipped = self.skipped.iter().find(|it| it.channel == channel && it.applies_to(account))?;
        Some(skipped.why.clone())
    }

    pub(super) fn is_unreachable(&self, channel: &Channel) -> bool {
        self.unreachable.iter().any(|it| it.spec.base_url == channel.spec.base_url && it.proxy == channel.proxy)
    }

    /// True when a cooling account was already tried as a last resort.
    pub(super) const fn took_last_resort(&self) -> bool {
        self.last_resort
    }
}
