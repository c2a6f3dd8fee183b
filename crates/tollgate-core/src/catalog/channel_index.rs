//! What choosing reads of every candidate, side by side in memory. The rows themselves lie scattered over the heap:
//! choosing among a thousand accounts would wait for three thousand of them.

use std::sync::Arc;

use indexmap::IndexMap;
use tollgate_protocol::Protocol;

use super::{Channel, Provider};
use crate::{Account, AccountId, ChannelId};

/// Most that a channel's weight counts, so that sums cannot overflow.
pub(crate) const MAX_WEIGHT: u32 = 1_000_000;

/// A channel, as choosing sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelEntry {
    /// An account's part of the channel's weight, so that a channel's share does not depend on how many accounts it has.
    pub(crate) weight: u64,
    /// Lower first.
    pub(crate) priority: i32,
    /// Its accounts' places in [`ChannelIndex::accounts`].
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
pub(crate) struct AccountEntry {
    /// Whose.
    pub(crate) id: AccountId,
    /// `false`: off by hand.
    pub(crate) on: bool,
    /// What it takes at most.
    pub(crate) bounds: AccountLimits,
}

/// What an account takes at most; 0 is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// Requests at once.
    pub concurrency: u32,
    /// Requests a minute.
    pub rpm: u32,
    /// Tokens a minute.
    pub tpm: u64,
}

impl AccountLimits {
    /// Whether there is any.
    #[must_use]
    pub const fn any(self) -> bool {
        self.concurrency != 0 || self.rpm != 0 || self.tpm != 0
    }
}

impl Account {
    /// What it takes at most.
    #[must_use]
    pub const fn limits(&self) -> AccountLimits {
        AccountLimits { concurrency: self.concurrency, rpm: self.rpm, tpm: self.tpm }
    }
}

/// All channels of a snapshot, in its order, and their accounts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChannelIndex {
    channels: Vec<ChannelEntry>,
    accounts: Vec<AccountEntry>,
}

impl ChannelEntry {
    /// Whether it takes requests of this protocol as they are.
    pub(crate) fn speaks(&self, protocol: Protocol) -> bool {
        self.protocol.is_none_or(|spoken| spoken == protocol)
    }
}

impl ChannelIndex {
    pub(super) fn of(channels: &IndexMap<ChannelId, Arc<Channel>>) -> Self {
        let mut all = Self::default();
        for channel in channels.values() {
            // A catalog with 2^32 accounts cannot be held in memory.
            let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let on = channel.accounts.iter().filter(|account| account.on).count();
            all.channels.push(ChannelEntry {
                weight: (u64::from(channel.weight.min(MAX_WEIGHT)) << 20) / (on.max(1) as u64),
                priority: channel.priority,
                first: narrow(all.accounts.len()),
                count: narrow(channel.accounts.len()),
                protocol: (channel.provider != Provider::Echo).then_some(channel.protocol),
                cooling: channel.cooling,
                plain: channel.on && !channel.accounts.is_empty() && channel.budgets.is_empty(),
                embeds: channel.serves_purpose(crate::offer::ModelPurpose::Embedding),
            });
            all.accounts.extend(channel.accounts.iter().map(|account| AccountEntry {
                id: account.id,
                on: account.on,
                bounds: account.limits(),
            }));
        }
        all
    }

    /// The channel at a position of [`super::MappingRef::channel`], and its accounts in order.
    pub(crate) fn at(&self, channel: u32) -> Option<(&ChannelEntry, &[AccountEntry])> {
        let entry = self.channels.get(channel as usize)?;
        let first = entry.first as usize;
        Some((entry, self.accounts.get(first..first + entry.count as usize)?))
    }
}
