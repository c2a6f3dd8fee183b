//! What a running gateway knows beyond catalog and saved health, as somebody beside it may see it: refused fields,
//! accounts without room, spent budgets of channels. A picture of one moment; [`explain`](crate::explain) looks at it.

use serde::{Deserialize, Serialize};
use tollgate_core::{AccountId, AccountLoad, ChannelBudget, ChannelId, Learned, Timestamp};

use crate::{Shared, route::channel_budget};

/// Most accounts without room that are told of.
const MOST_BUSY: usize = 10_000;
/// Most models with refused fields that are told of.
const MOST_TOLD: usize = 1_000;

/// What is known at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The moment.
    pub at: Timestamp,
    /// Fields that upstreams refused.
    pub learned: Vec<LearnedHere>,
    /// Accounts that had no room.
    pub busy: Vec<Busy>,
    /// Channels whose budget was spent.
    #[serde(default)]
    pub spent: Vec<SpentBudget>,
    /// Requests that are recorded in memory only, because the journal has no room.
    #[serde(default)]
    pub in_memory_only: usize,
}

/// Fields that one channel's model refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedHere {
    /// The channel.
    pub channel: ChannelId,
    /// The model's name upstream.
    pub upstream_model: String,
    /// What it refused, rows that are not finished included.
    pub fields: Learned,
}

/// An account without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// The account.
    pub account: AccountId,
    /// When its minute has room again; absent: it is at its concurrency.
    pub until: Option<Timestamp>,
}

/// A channel whose budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentBudget {
    /// The channel.
    pub channel: ChannelId,
    /// When it renews; absent: it does not.
    pub until: Option<Timestamp>,
}

impl Known {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.learned.is_empty() && self.busy.is_empty() && self.spent.is_empty() && self.in_memory_only == 0
    }

    /// Whether the same is told, whenever it was.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        (&self.learned, &self.busy, &self.spent, self.in_memory_only)
            == (&other.learned, &other.busy, &other.spent, other.in_memory_only)
    }

    /// What is left of a channel's budgets.
    pub(crate) fn budget(&self, channel: ChannelId, now: Timestamp) -> ChannelBudget {
        match self.spent.iter().find(|it| it.channel == channel) {
            Some(SpentBudget { until, .. }) if until.is_none_or(|until| until > now) => ChannelBudget::Spent { until: *until },
            Some(_) | None => ChannelBudget::Left,
        }
    }

    /// What a channel's model refused.
    pub(crate) fn learned(&self, channel: ChannelId, upstream_model: &str) -> Option<&Learned> {
        let found = self.learned.iter().find(|it| it.channel == channel && it.upstream_model == upstream_model);
        found.map(|it| &it.fields)
    }

    /// Room on an account.
    pub(crate) fn load(&self, account: AccountId, now: Timestamp) -> AccountLoad {
        match self.busy.iter().find(|it| it.account == account) {
            Some(Busy { until: None, .. }) => AccountLoad::AtConcurrency,
            Some(Busy { until: Some(until), .. }) if *until > now => AccountLoad::AtRate { until: *until },
            Some(_) | None => AccountLoad::Free,
        }
    }

    /// What the process of these shared parts knows at this moment.
    #[must_use]
    pub fn of(shared: &Shared) -> Self {
        let (catalog, now) = (shared.catalog.load(), shared.clock.now());
        let channels = || catalog.channels.values();
        let busy = channels().flat_map(|channel| &channel.accounts).filter_map(|account| {
            let until = match shared.traffic.rooms.load(account, 1) {
                AccountLoad::Free => return None,
                AccountLoad::AtConcurrency => None,
                AccountLoad::AtRate { until } => Some(until),
            };
            Some(Busy { account: account.id, until })
        });
        let spent = channels().filter(|channel| !channel.budgets.is_empty()).filter_map(|channel| {
            match channel_budget(&*shared.counters, channel, now) {
                ChannelBudget::Left => None,
                ChannelBudget::Spent { until } => Some(SpentBudget { channel: channel.id, until }),
            }
        });
        let learned = shared.traffic.lessons.all(MOST_TOLD, now).into_iter();
        let learned = learned.map(|((channel, upstream_model), fields)| LearnedHere { channel, upstream_model, fields });
        Self {
            at: now,
            learned: learned.collect(),
            busy: busy.take(MOST_BUSY).collect(),
            spent: spent.collect(),
            in_memory_only: shared.condition.in_memory_only(),
        }
    }
}
