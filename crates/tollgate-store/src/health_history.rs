//! Health over time: the stored transitions of accounts and channels, the nodes that saw them, and the last tests of
//! accounts.

use std::{fmt, ops::RangeInclusive};

use async_trait::async_trait;
use tollgate_core::{AccountId, ChannelId, HealthTransition, Timestamp};

use crate::StoreError;

/// Stores transitions of accounts and channels into states in which they get no requests, as each node saw them.
#[async_trait]
pub trait HealthHistoryStore: Send + Sync + fmt::Debug {
    /// Stores transitions that a node saw. A transition of the same account or channel with the same beginning is
    /// replaced.
    async fn record_transitions(&self, node: &str, transitions: &[HealthTransition]) -> Result<(), StoreError>;

    /// Transitions that the node has recorded: those that have not ended, and the latest ended one of each account.
    async fn last_transitions(&self, node: &str) -> Result<Vec<HealthTransition>, StoreError>;

    /// The transitions that overlap with a range of time, the newest first.
    async fn transitions(&self, filter: &TransitionFilter) -> Result<Vec<RecordedTransition>, StoreError>;

    /// Records that a node runs. Continues the node's run if it was seen within the last [`NODE_GONE_MS`], else begins a new one.
    async fn note_node(&self, node: &str, now: Timestamp) -> Result<(), StoreError>;

    /// The runs of every node, in order of node and time.
    async fn node_runs(&self) -> Result<Vec<NodeRun>, StoreError>;

    /// Removes transitions that ended before a time, runs of nodes that were over then, and the oldest ended transitions in
    /// excess of `max`; at most 10,000 in one call. Returns the number of removed transitions. Repeat until it is 0.
    async fn prune_transitions(&self, before: Timestamp, max: u64) -> Result<u64, StoreError>;

    /// Stores the results of the last tests of these accounts. Each replaces the earlier one of its account.
    async fn save_last_tests(&self, tests: &[(AccountId, LastTest)]) -> Result<(), StoreError>;

    /// The last tests of the accounts whose ids are within this range, ordered by id.
    async fn last_tests(&self, accounts: RangeInclusive<AccountId>) -> Result<Vec<(AccountId, LastTest)>, StoreError>;
}

/// Longest stored error of a test, in characters.
const MAX_TEST_ERROR: usize = 1_000;

/// The result of the last test of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastTest {
    pub at: Timestamp,
    /// Model used for the test.
    pub model: String,
    pub took_ms: u64,
    /// Why it failed; `None`: it passed.
    pub error: Option<String>,
}

impl LastTest {
    /// The error as it is stored.
    pub(crate) fn stored_error(&self) -> Option<String> {
        self.error.as_ref().map(|error| error.chars().take(MAX_TEST_ERROR).collect())
    }
}

/// Transitions removed in one transaction.
pub(crate) const PRUNED_AT_ONCE: u64 = 10_000;

/// The transitions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransitionFilter {
    pub channel: Option<ChannelId>,
    pub subject: TransitionSubject,
    pub node: Option<String>,
    /// Only transitions that had not ended at this time.
    pub since: Option<Timestamp>,
    /// Only transitions that began before this time.
    pub until: Option<Timestamp>,
    pub before: Option<TransitionPosition>,
    /// Maximum number of transitions; capped at 100,000.
    pub limit: u32,
}

/// Channels or accounts whose transitions are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransitionSubject {
    /// Channels and accounts.
    #[default]
    All,
    Channels,
    Account(AccountId),
}

impl TransitionFilter {
    pub(crate) const fn size(&self) -> usize {
        if self.limit > 100_000 { 100_000 } else { self.limit as usize }
    }

    pub(crate) fn selects(&self, node: &str, transition: &HealthTransition) -> bool {
        let HealthTransition { channel, account, impairment, ended_at, .. } = transition;
        self.channel.is_none_or(|wanted| wanted == *channel)
            && match self.subject {
                TransitionSubject::All => true,
                TransitionSubject::Channels => account.is_none(),
                TransitionSubject::Account(wanted) => *account == Some(wanted),
            }
            && self.node.as_ref().is_none_or(|wanted| wanted == node)
            && self.since.is_none_or(|since| ended_at.is_none_or(|ended| ended > since))
            && self.until.is_none_or(|until| impairment.since < until)
    }
}

/// A stored transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedTransition {
    pub node: String,
    /// Name of the channel; also of one that was removed.
    pub channel_name: String,
    /// Name of the account; `None`: the transition is the channel's own.
    pub account_name: Option<String>,
    pub transition: HealthTransition,
}

impl RecordedTransition {
    pub fn position(&self) -> TransitionPosition {
        let HealthTransition { channel, account, impairment, .. } = self.transition;
        TransitionPosition { since: impairment.since, channel, account, node: self.node.clone() }
    }
}

/// A position between transitions, for paging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionPosition {
    pub since: Timestamp,
    pub channel: ChannelId,
    pub account: Option<AccountId>,
    pub node: String,
}

impl TransitionPosition {
    /// The order of transitions: by time, then by id as text.
    pub(crate) fn key(&self) -> (i64, String, String, &str) {
        (self.since.0, self.channel.to_string(), account_text(self.account), &self.node)
    }
}

/// The column `account`: empty for a channel.
pub(crate) fn account_text(account: Option<AccountId>) -> String {
    account.map_or_else(String::new, |account| account.to_string())
}

/// A node that was not seen for this time, in milliseconds, counts as stopped.
pub const NODE_GONE_MS: i64 = 180_000;

/// A time in which a node ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRun {
    pub node: String,
    pub since: Timestamp,
    /// When it was seen last.
    pub seen_at: Timestamp,
}
