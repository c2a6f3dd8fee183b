//! What a request has behind it when it chooses again: accounts it tried, channels that turned out not to serve it.

use std::sync::Arc;

use super::{Exclusion, PlannedAttempt};
use crate::{Account, AccountId, Channel, ChannelId, Multiplier};

/// Most channels that are passed over before a request gives up: each costs a choice.
const MAX_SKIPPED_CHANNELS: usize = 32;

/// What has become of earlier choices of one request. Nothing, for its first one.
#[derive(Clone, Debug, Default)]
pub struct AttemptHistory {
    tried: Vec<AccountId>,
    skipped: Vec<SkippedChannel>,
    /// Channels where nobody took a connection.
    unreachable: Vec<Arc<Channel>>,
    last_resort: bool,
    /// How many of the tried were sent nothing.
    unsent: usize,
}

/// A channel that turned out not to serve the request.
#[derive(Clone, Debug)]
struct SkippedChannel {
    channel: ChannelId,
    /// Only its accounts that charge so much, and more. What is left of a budget may suffice for a cheaper one.
    from: Option<Multiplier>,
    why: Exclusion,
}

impl SkippedChannel {
    fn is_about(&self, account: &Account) -> bool {
        self.from.is_none_or(|from| account.cost_multiplier >= from)
    }
}

impl AttemptHistory {
    /// An attempt was made: its account is no candidate any more. A last resort is taken once.
    pub fn record_attempt(&mut self, attempt: &PlannedAttempt) {
        self.tried.push(attempt.account.id);
        self.last_resort |= attempt.last_resort;
    }

    /// Nobody took the connection of an attempt: other accounts behind the same address come after all others.
    pub fn record_unreachable(&mut self, attempt: &PlannedAttempt) {
        self.unreachable.push(Arc::clone(&attempt.channel));
    }

    /// The channel of a planned attempt turned out not to serve the request; where its budget does not suffice, those of its
    /// accounts that charge no less. `false`: that was so often enough.
    #[must_use]
    pub fn skip_channel(&mut self, attempt: &PlannedAttempt, why: Exclusion) -> bool {
        let from = matches!(why, Exclusion::Budget { .. }).then_some(attempt.account.cost_multiplier);
        self.skipped.push(SkippedChannel { channel: attempt.channel.id, from, why });
        self.skipped.len() < MAX_SKIPPED_CHANNELS
    }

    /// Nothing was sent of an attempt: its account is no candidate any more all the same, but it is none of the three.
    pub fn record_unsent(&mut self) {
        self.unsent += 1;
    }

    /// How many accounts were sent something.
    #[must_use]
    pub fn sent_count(&self) -> usize {
        self.tried.len().saturating_sub(self.unsent)
    }

    /// Whether it is the request's first choice.
    pub(super) const fn is_empty(&self) -> bool {
        self.tried.is_empty() && self.skipped.is_empty()
    }

    pub(super) fn is_tried(&self, account: AccountId) -> bool {
        self.tried.contains(&account)
    }

    /// What excludes a channel with all its accounts that are on.
    pub(super) fn exclusion(&self, channel: &Channel) -> Option<Exclusion> {
        let mut passed = self.skipped.iter().filter(|it| it.channel == channel.id);
        let whole = passed.find(|it| channel.accounts.iter().filter(|account| account.on).all(|account| it.is_about(account)))?;
        Some(whole.why.clone())
    }

    /// What excludes one account of a channel that has others.
    pub(super) fn account_exclusion(&self, channel: ChannelId, account: &Account) -> Option<Exclusion> {
        let passed = self.skipped.iter().find(|it| it.channel == channel && it.is_about(account))?;
        Some(passed.why.clone())
    }

    pub(super) fn is_unreachable(&self, channel: &Channel) -> bool {
        self.unreachable.iter().any(|dead| dead.base_url == channel.base_url && dead.proxy == channel.proxy)
    }

    /// Whether an account that cools was tried already because nothing else was left.
    pub(super) const fn took_last_resort(&self) -> bool {
        self.last_resort
    }
}
