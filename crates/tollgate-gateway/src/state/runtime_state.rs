//! A serialisable snapshot of a running gateway's in-memory state: learned unsupported fields, account usage, and spending
//! against budgets. [`explain`](crate::explain::explain) reads it, also from another process.

use serde::{Deserialize, Serialize};
use tollgate_core::{
    AccountId, Budget, BudgetAction, CapacityLimits, CapacityLoad, Catalog, Channel, ChannelBudget, ChannelId, Meter, NanoUsd,
    Subject, Timestamp, UnsupportedFields, Window,
};
use tollgate_store::CounterSnapshot;

use crate::state::{
    capacity_limiter::{CapacityUsage, LimitedId},
    shared::Shared,
};

const MAX_ACCOUNTS: usize = 10_000;
const MAX_SUBJECTS: usize = 2_000;
/// Maximum models with learned unsupported fields in a snapshot.
const MAX_LEARNED_MODELS: usize = 1_000;

/// The state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeState {
    /// When the snapshot was taken; zero when no gateway reported one.
    pub at: Timestamp,
    /// `at` in the monotonic microseconds of account rate windows.
    pub micros: u64,
    pub learned: Vec<LearnedFields>,
    /// Usage of accounts that have limits and are in use.
    pub accounts: Vec<AccountUsageEntry>,
    /// Usage of channels that have limits and are in use.
    #[serde(default)]
    pub channels: Vec<ChannelUsageEntry>,
    /// Spending against channel budgets, open reservations included. A window that is not listed has no spending.
    pub spent: Vec<ChannelSpending>,
    /// Requests recorded only in memory because the journal is full.
    #[serde(default)]
    pub in_memory_only: usize,
    /// Limit subjects with open reservations, running requests or recent usage.
    #[serde(default)]
    pub counted: Vec<SubjectUsage>,
    /// `at` in the monotonic microseconds of the subjects' rate windows.
    #[serde(default)]
    pub counted_micros: u64,
    #[serde(default)]
    pub counts_more: bool,
}

/// The usage of a subject, as another process reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectUsage {
    pub subject: Subject,
    pub meter: Meter,
}

/// Fields that one model of a channel does not support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedFields {
    pub channel: ChannelId,
    pub upstream_model: String,
    /// Unsupported fields, including those not yet confirmed by enough refusals.
    pub fields: UnsupportedFields,
}

/// The usage of an account's limits, as another process reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountUsageEntry {
    pub account: AccountId,
    pub in_use: CapacityUsage,
}

/// Usage of all accounts of a channel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelUsageEntry {
    pub channel: ChannelId,
    pub in_use: CapacityUsage,
}

/// Cost spent on a channel in one budget window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSpending {
    pub channel: ChannelId,
    /// The window; the amount is of its current period.
    pub window: Window,
    pub spent: NanoUsd,
}

impl RuntimeState {
    /// True when the snapshot carries no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.same_content(&Self::default())
    }

    /// Whether two snapshots are equal except for their times.
    #[must_use]
    pub fn same_content(&self, other: &Self) -> bool {
        (&self.learned, (&self.accounts, &self.channels), &self.spent, self.in_memory_only, &self.counted, self.counts_more)
            == (
                &other.learned,
                (&other.accounts, &other.channels),
                &other.spent,
                other.in_memory_only,
                &other.counted,
                other.counts_more,
            )
    }

    /// Whether a running gateway reported this snapshot.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        self.at.0 != 0
    }

    /// Replaces channel spending, for use with amounts read from the database when no running gateway reported any.
    pub fn set_spending(&mut self, spent: impl IntoIterator<Item = ChannelSpending>) {
        self.spent = spent.into_iter().filter(|it| it.spent != NanoUsd::ZERO).collect();
    }

    /// Cost spent on a channel, open reservations included.
    pub(crate) fn spent(&self, channel: ChannelId, window: Window) -> NanoUsd {
        let found = self.spent.iter().find(|it| it.channel == channel && it.window == window);
        found.map_or(NanoUsd::ZERO, |it| it.spent)
    }

    pub(crate) fn learned(&self, channel: ChannelId, upstream_model: &str) -> Option<&UnsupportedFields> {
        let found = self.learned.iter().find(|it| it.channel == channel && it.upstream_model == upstream_model);
        found.map(|it| &it.fields)
    }

    pub(crate) fn in_use(&self, account: AccountId) -> CapacityUsage {
        self.accounts.iter().find(|it| it.account == account).map(|it| it.in_use).unwrap_or_default()
    }

    pub(crate) fn channel_in_use(&self, channel: ChannelId) -> CapacityUsage {
        self.channels.iter().find(|it| it.channel == channel).map(|it| it.in_use).unwrap_or_default()
    }

    /// Whether `in_use` leaves capacity for a request estimated at `tokens`.
    pub(crate) fn load(&self, in_use: CapacityUsage, limits: CapacityLimits, tokens: u64, now: Timestamp) -> CapacityLoad {
        in_use.load(limits, tokens, self.micros_at(now), now)
    }

    /// Converts a time to the monotonic microseconds of the subjects' rate windows.
    pub(crate) fn counted_micros_at(&self, now: Timestamp) -> u64 {
        self.counted_micros.saturating_add(u64::try_from(now.0.saturating_sub(self.at.0)).unwrap_or(0))
    }

    /// Converts a time to the monotonic microseconds of account rate windows.
    pub(crate) fn micros_at(&self, now: Timestamp) -> u64 {
        self.micros.saturating_add(u64::try_from(now.0.saturating_sub(self.at.0)).unwrap_or(0))
    }

    /// Takes a snapshot of this process.
    #[must_use]
    pub fn of(shared: &Shared) -> Self {
        let (catalog, now) = (shared.catalog.load(), shared.clock.now());
        let (limiters, micros) = (&shared.traffic.limiters, shared.traffic.limiters.micros());
        let bounded = catalog.channels.values().flat_map(|channel| &channel.accounts).filter(|account| account.limits().any());
        let accounts = bounded
            .map(|account| AccountUsageEntry { account: account.id, in_use: limiters.in_use(LimitedId::Account(account.id)) });
        let limited = catalog.channels.values().filter(|channel| channel.limits().any());
        let channels = limited
            .map(|channel| ChannelUsageEntry { channel: channel.id, in_use: limiters.in_use(LimitedId::Channel(channel.id)) });
        let spent = budgets(&catalog).map(|(channel, window)| ChannelSpending {
            channel,
            window,
            spent: shared.counters.spent(Subject::Channel(channel), window, now),
        });
        let learned = shared.traffic.learned_parameters.all(MAX_LEARNED_MODELS, now).into_iter();
        let learned = learned.map(|((channel, upstream_model), fields)| LearnedFields { channel, upstream_model, fields });
        let CounterSnapshot { micros: counted_micros, meters, is_complete } =
            shared.counters.active_subjects(MAX_SUBJECTS, shared.clock.instant());
        // Channel spending is already in `spent`.
        let counted = meters.into_iter().filter(|(subject, _)| !matches!(subject, Subject::Channel(_)));
        let mut counted: Vec<_> = counted.map(|(subject, meter)| SubjectUsage { subject, meter }).collect();
        counted.sort_unstable_by_key(|it| it.subject);
        Self {
            at: now,
            micros,
            counted,
            counted_micros,
            counts_more: !is_complete,
            learned: learned.collect(),
            accounts: accounts.filter(|it| it.in_use.any(micros)).take(MAX_ACCOUNTS).collect(),
            channels: channels.filter(|it| it.in_use.any(micros)).take(MAX_ACCOUNTS).collect(),
            spent: spent.filter(|it| it.spent != NanoUsd::ZERO).collect(),
            in_memory_only: shared.serving.in_memory_only(),
        }
    }
}

/// The budget windows of each channel, without duplicates.
pub fn budgets(catalog: &Catalog) -> impl Iterator<Item = (ChannelId, Window)> {
    catalog.channels.values().flat_map(|channel| {
        let mut windows: Vec<Window> = Vec::new();
        for budget in &channel.spec.budgets {
            if !windows.contains(&budget.window) {
                windows.push(budget.window);
            }
        }
        windows.into_iter().map(|window| (channel.id, window))
    })
}

/// Whether a blocking budget of the channel is exhausted at `at`.
pub(crate) fn budget_of(channel: &Channel, at: Timestamp, spent: impl Fn(&Budget) -> NanoUsd) -> ChannelBudget {
    let is_spent = |budget: &&Budget| budget.action == BudgetAction::Block && spent(budget) >= budget.amount;
    match channel.spec.budgets.iter().find(is_spent) {
        Some(budget) => ChannelBudget::Spent { until: budget.window.ends(at) },
        None => ChannelBudget::Left,
    }
}
