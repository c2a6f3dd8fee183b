//! What a running gateway knows beyond catalog and saved health, as somebody beside it may see it: refused fields, and
//! accounts without room. A picture of one moment; [`explain`](crate::explain) looks at it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::{Account, AccountId, AccountLoad, ChannelId, Learned, Timestamp};

/// Most accounts without room that are told of.
pub(crate) const MOST_BUSY: usize = 10_000;

/// What is known at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The moment.
    pub at: Timestamp,
    /// Fields that upstreams refused.
    pub learned: Vec<LearnedHere>,
    /// Accounts that had no room.
    pub busy: Vec<Busy>,
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

impl Known {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.learned.is_empty() && self.busy.is_empty()
    }

    /// What a channel's model refused.
    pub(crate) fn learned(&self, channel: ChannelId, upstream_model: &str) -> Option<&Learned> {
        let found = self.learned.iter().find(|it| it.channel == channel && it.upstream_model == upstream_model);
        found.map(|it| &it.fields)
    }

    /// Room on an account.
    pub(crate) fn load(&self, account: &Account, now: Timestamp) -> AccountLoad {
        match self.busy.iter().find(|it| it.account == account.id) {
            Some(Busy { until: None, .. }) => AccountLoad::AtConcurrency,
            Some(Busy { until: Some(until), .. }) if *until > now => AccountLoad::AtRate { until: *until },
            Some(_) | None => AccountLoad::Free,
        }
    }

    /// The refused fields in the order of channels and models.
    pub(crate) fn of_lessons(lessons: BTreeMap<(ChannelId, String), Learned>) -> Vec<LearnedHere> {
        let rows = lessons.into_iter();
        rows.map(|((channel, upstream_model), fields)| LearnedHere { channel, upstream_model, fields }).collect()
    }
}
