//! What choosing reads of every candidate, side by side in memory. The rows themselves lie scattered over the heap:
//! choosing among a thousand accounts would wait for three thousand of them.

use std::sync::Arc;

use indexmap::IndexMap;
use tollgate_protocol::Protocol;

use super::{Channel, Provider};
use crate::{Account, AccountId, ChannelId};

/// Most that a channel's weight counts, so that sums cannot overflow.
pub(crate) const MOST_WEIGHT: u32 = 1_000_000;

/// A channel, as choosing sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// An account's part of the channel's weight, so that a channel's share does not depend on how many accounts it has.
    pub(crate) weight: u64,
    /// Lower first.
    pub(crate) priority: i32,
    /// Its accounts' places in [`Lanes::seats`].
    first: u32,
    count: u32,
    /// The protocol it speaks; `None`: whatever it is spoken to in.
    protocol: Option<Protocol>,
    /// Whether health counts.
    pub(crate) cooling: bool,
    /// On, with accounts and without budgets of its own: nothing stands against it as a whole but what the request asks.
    pub(crate) plain: bool,
    /// Whether it can embed.
    pub(crate) embeds: bool,
}

/// An account, as choosing sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    /// Whose.
    pub(crate) id: AccountId,
    /// `false`: off by hand.
    pub(crate) on: bool,
    /// What it takes at most.
    pub(crate) bounds: AccountBounds,
}

/// What an account takes at most; 0 is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountBounds {
    /// Requests at once.
    pub concurrency: u32,
    /// Requests a minute.
    pub rpm: u32,
    /// Tokens a minute.
    pub tpm: u64,
}

impl AccountBounds {
    /// Whether there is any.
    #[must_use]
    pub const fn any(self) -> bool {
        self.concurrency != 0 || self.rpm != 0 || self.tpm != 0
    }
}

impl Account {
    /// What it takes at most.
    #[must_use]
    pub const fn bounds(&self) -> AccountBounds {
        AccountBounds { concurrency: self.concurrency, rpm: self.rpm, tpm: self.tpm }
    }
}

/// All channels of a snapshot, in its order, and their accounts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    seats: Vec<Seat>,
}

impl Lane {
    /// Whether it takes requests of this protocol as they are.
    pub(crate) fn speaks(&self, protocol: Protocol) -> bool {
        self.protocol.is_none_or(|spoken| spoken == protocol)
    }
}

impl Lanes {
    pub(super) fn of(channels: &IndexMap<ChannelId, Arc<Channel>>) -> Self {
        let mut all = Self::default();
        for channel in channels.values() {
            // A catalog with 2^32 accounts cannot be held in memory.
            let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let on = channel.accounts.iter().filter(|account| account.on).count();
            all.lanes.push(Lane {
                weight: (u64::from(channel.weight.min(MOST_WEIGHT)) << 20) / (on.max(1) as u64),
                priority: channel.priority,
                first: narrow(all.seats.len()),
                count: narrow(channel.accounts.len()),
                protocol: (channel.provider != Provider::Echo).then_some(channel.protocol),
                cooling: channel.cooling,
                plain: channel.on && !channel.accounts.is_empty() && channel.budgets.is_empty(),
                embeds: channel.serves_use(crate::offer::Use::Embedding),
            });
            all.seats.extend(channel.accounts.iter().map(|account| Seat {
                id: account.id,
                on: account.on,
                bounds: account.bounds(),
            }));
        }
        all
    }

    /// The channel at a position of [`super::ServedBy::channel`], and its accounts in order.
    pub(crate) fn at(&self, channel: u32) -> Option<(&Lane, &[Seat])> {
        let lane = self.lanes.get(channel as usize)?;
        let first = lane.first as usize;
        Some((lane, self.seats.get(first..first + lane.count as usize)?))
    }
}
