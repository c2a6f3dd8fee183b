//! What a running gateway knows beyond catalog and saved health, as another process may see it: refused fields, what is in
//! use of accounts, what is spent of channels' budgets. A picture of one moment; [`explain`](crate::explain::explain) looks at it.

use serde::{Deserialize, Serialize};
use tollgate_core::{
    AccountId, AccountLimits, AccountLoad, Budget, BudgetAction, Catalog, Channel, ChannelBudget, ChannelId, Meter, NanoUsd,
    Subject, Timestamp, UnsupportedFields, Window,
};
use tollgate_store::CounterSnapshot;

use crate::state::{account_limiter::AccountUsage, shared::Shared};

/// Most accounts that are told of.
const MOST_ACCOUNTS: usize = 10_000;
/// Most subjects of limits that are told of.
const MOST_COUNTED: usize = 2_000;
/// Most models with refused fields that are told of.
const MOST_TOLD: usize = 1_000;

/// What is known at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeState {
    /// Time of the state; zero when nothing was reported.
    pub at: Timestamp,
    /// The same in the microseconds that accounts' minutes are counted in.
    pub micros: u64,
    /// Fields that upstreams refused.
    pub learned: Vec<LearnedFields>,
    /// Accounts with bounds that are in use.
    pub accounts: Vec<AccountUsageEntry>,
    /// What was spent of channels' budgets, open holds included; a window that is not named has everything left.
    pub spent: Vec<ChannelSpending>,
    /// Requests that are recorded in memory only, because the journal has no room.
    #[serde(default)]
    pub in_memory_only: usize,
    /// Callers and other owners of limits with reservations, running requests or recent counts.
    #[serde(default)]
    pub counted: Vec<SubjectUsage>,
    /// `at` in the microseconds that their minutes are counted in.
    #[serde(default)]
    pub counted_micros: u64,
    /// Whether there are more of them.
    #[serde(default)]
    pub counts_more: bool,
}

/// How one subject of limits stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectUsage {
    /// Whose.
    pub subject: Subject,
    /// As it is counted.
    pub meter: Meter,
}

/// Fields that one channel's model refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedFields {
    /// The channel.
    pub channel: ChannelId,
    /// The model's name upstream.
    pub upstream_model: String,
    /// What it refused, rows that are not finished included.
    pub fields: UnsupportedFields,
}

/// An account that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountUsageEntry {
    /// The account.
    pub account: AccountId,
    /// What of it.
    pub in_use: AccountUsage,
}

/// Money spent on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSpending {
    /// The channel.
    pub channel: ChannelId,
    /// In this window's current period.
    pub window: Window,
    /// By cost.
    pub spent: NanoUsd,
}

impl RuntimeState {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.learned.is_empty()
            && self.accounts.is_empty()
            && self.spent.is_empty()
            && self.in_memory_only == 0
            && self.counted.is_empty()
    }

    /// Whether the same is told, whenever it was.
    #[must_use]
    pub fn same_content(&self, other: &Self) -> bool {
        (&self.learned, &self.accounts, &self.spent, self.in_memory_only, &self.counted, self.counts_more)
            == (&other.learned, &other.accounts, &other.spent, other.in_memory_only, &other.counted, other.counts_more)
    }

    /// Whether a gateway told it.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        self.at.0 != 0
    }

    /// Takes what was spent of budgets from elsewhere: where no gateway runs, or none had anything to tell, the database
    /// knows.
    pub fn spent_by(&mut self, spent: impl IntoIterator<Item = ChannelSpending>) {
        self.spent = spent.into_iter().filter(|it| it.spent != NanoUsd::ZERO).collect();
    }

    /// Money spent on a channel, open holds included.
    pub(crate) fn spent(&self, channel: ChannelId, window: Window) -> NanoUsd {
        let found = self.spent.iter().find(|it| it.channel == channel && it.window == window);
        found.map_or(NanoUsd::ZERO, |it| it.spent)
    }

    /// Whether one of a channel's budgets is spent.
    pub(crate) fn budget(&self, channel: &Channel, now: Timestamp) -> ChannelBudget {
        budget_of(channel, now, |budget| self.spent(channel.id, budget.window))
    }

    /// What a channel's model refused.
    pub(crate) fn learned(&self, channel: ChannelId, upstream_model: &str) -> Option<&UnsupportedFields> {
        let found = self.learned.iter().find(|it| it.channel == channel && it.upstream_model == upstream_model);
        found.map(|it| &it.fields)
    }

    /// What is in use of an account.
    pub(crate) fn in_use(&self, account: AccountId) -> AccountUsage {
        self.accounts.iter().find(|it| it.account == account).map(|it| it.in_use).unwrap_or_default()
    }

    /// Room on an account, for a request that is estimated at `tokens`.
    pub(crate) fn load(&self, account: AccountId, bounds: AccountLimits, tokens: u64, now: Timestamp) -> AccountLoad {
        self.in_use(account).load(bounds, tokens, self.micros_at(now), now)
    }

    /// A time in the microseconds that callers' minutes are counted in.
    pub(crate) fn counted_micros_at(&self, now: Timestamp) -> u64 {
        self.counted_micros.saturating_add(u64::try_from(now.0.saturating_sub(self.at.0)).unwrap_or(0))
    }

    /// A time in the microseconds that accounts' minutes are counted in.
    pub(crate) fn micros_at(&self, now: Timestamp) -> u64 {
        self.micros.saturating_add(u64::try_from(now.0.saturating_sub(self.at.0)).unwrap_or(0))
    }

    /// What the process of these shared parts knows at this moment.
    #[must_use]
    pub fn of(shared: &Shared) -> Self {
        let (catalog, now) = (shared.catalog.load(), shared.clock.now());
        let (limiters, micros) = (&shared.traffic.limiters, shared.traffic.limiters.micros());
        let bounded = catalog.channels.values().flat_map(|channel| &channel.accounts).filter(|account| account.limits().any());
        let accounts = bounded.map(|account| AccountUsageEntry { account: account.id, in_use: limiters.in_use(account.id) });
        let spent = budgets(&catalog).map(|(channel, window)| ChannelSpending {
            channel,
            window,
            spent: shared.counters.spent(Subject::Channel(channel), window, now),
        });
        let learned = shared.traffic.learned_parameters.all(MOST_TOLD, now).into_iter();
        let learned = learned.map(|((channel, upstream_model), fields)| LearnedFields { channel, upstream_model, fields });
        let CounterSnapshot { micros: counted_micros, meters, is_complete } =
            shared.counters.active_subjects(MOST_COUNTED, shared.clock.instant());
        // What was spent on channels is told above.
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
            accounts: accounts.filter(|it| it.in_use.any(micros)).take(MOST_ACCOUNTS).collect(),
            spent: spent.filter(|it| it.spent != NanoUsd::ZERO).collect(),
            in_memory_only: shared.condition.in_memory_only(),
        }
    }
}

/// The windows in which channels have budgets, each once.
pub fn budgets(catalog: &Catalog) -> impl Iterator<Item = (ChannelId, Window)> {
    catalog.channels.values().flat_map(|channel| {
        let mut windows: Vec<Window> = Vec::new();
        for budget in &channel.budgets {
            if !windows.contains(&budget.window) {
                windows.push(budget.window);
            }
        }
        windows.into_iter().map(|window| (channel.id, window))
    })
}

/// Whether one of a channel's budgets is spent at a time.
pub(crate) fn budget_of(channel: &Channel, at: Timestamp, spent: impl Fn(&Budget) -> NanoUsd) -> ChannelBudget {
    let is_spent = |budget: &&Budget| budget.action == BudgetAction::Block && spent(budget) >= budget.amount;
    match channel.budgets.iter().find(is_spent) {
        Some(budget) => ChannelBudget::Spent { until: budget.window.ends(at) },
        None => ChannelBudget::Left,
    }
}
