//! A compact copy of the channel and account fields that routing reads for every candidate. The rows themselves are scattered
//! over the heap: reading a thousand accounts there costs about three thousand cache misses.

use std::sync::Arc;

use indexmap::IndexMap;
use tollgate_protocol::Protocol;

use super::{Channel, Provider};
use crate::{Account, AccountId, ChannelId, IdHash, offer::ModelPurpose};

/// Upper bound of a channel's weight, so that sums cannot overflow.
pub(crate) const MAX_WEIGHT: u32 = 1_000_000;

/// The channel fields that routing reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelEntry {
    /// Weight of each account: the channel's weight divided by its enabled accounts, so that its share is independent of their
    /// number.
    pub(crate) weight: u64,
    /// Lower values are tried first.
    pub(crate) priority: i32,
    /// Index of its first account in [`ChannelIndex::accounts`].
    first: u32,
    count: u32,
    protocol: Protocol,
    /// True for the built-in echo, which speaks several protocols.
    echoes: bool,
    /// True when account health applies.
    pub(crate) cooling: bool,
    pub(crate) limits: CapacityLimits,
    /// True when the channel is enabled and reachable, has accounts and no budgets: only properties of the request can exclude it.
    pub(crate) unconditional: bool,
    /// The protocol in which it serves embeddings, if it can.
    embeddings: Option<Protocol>,
}

/// The account fields that routing reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccountEntry {
    pub(crate) id: AccountId,
    /// `false`: disabled by an operator.
    pub(crate) on: bool,
    pub(crate) limits: CapacityLimits,
}

/// Limits of an account, or of all accounts of a channel together; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityLimits {
    pub concurrency: u32,
    pub rpm: u32,
    pub tpm: u64,
}

impl CapacityLimits {
    /// True when any limit is set.
    pub const fn any(self) -> bool {
        self.concurrency != 0 || self.rpm != 0 || self.tpm != 0
    }
}

impl Channel {
    /// Limits of all its accounts together.
    pub const fn limits(&self) -> CapacityLimits {
        CapacityLimits { concurrency: self.spec.concurrency, rpm: self.spec.rpm, tpm: self.spec.tpm }
    }
}

impl Account {
    pub const fn limits(&self) -> CapacityLimits {
        CapacityLimits { concurrency: self.spec.concurrency, rpm: self.spec.rpm, tpm: self.spec.tpm }
    }
}

/// The channels of a snapshot, in its order, and their accounts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChannelIndex {
    channels: Vec<ChannelEntry>,
    accounts: Vec<AccountEntry>,
}

impl ChannelEntry {
    /// True when it accepts requests of this protocol untranslated.
    pub(crate) fn speaks(&self, protocol: Protocol, embeds: bool) -> bool {
        let spoken = if embeds { self.embeddings } else { Some(self.protocol) };
        spoken == Some(protocol) || self.echoes && protocol.spec().echoes
    }

    /// True when it can serve embeddings.
    pub(crate) const fn embeds(&self) -> bool {
        self.embeddings.is_some()
    }
}

impl ChannelIndex {
    pub(super) fn of(channels: &IndexMap<ChannelId, Arc<Channel>, IdHash>) -> Self {
        let mut all = Self::default();
        for channel in channels.values() {
            // A catalog with 2^32 accounts cannot be held in memory.
            let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let on = channel.accounts.iter().filter(|account| account.spec.on).count();
            all.channels.push(ChannelEntry {
                weight: (u64::from(channel.spec.weight.min(MAX_WEIGHT)) << 20) / (on.max(1) as u64),
                priority: channel.spec.priority,
                first: narrow(all.accounts.len()),
                count: narrow(channel.accounts.len()),
                protocol: channel.spec.protocol,
                echoes: channel.spec.provider == Provider::Echo,
                cooling: channel.spec.cooling,
                limits: channel.limits(),
                unconditional: channel.spec.on
                    && !channel.accounts.is_empty()
                    && channel.spec.budgets.is_empty()
                    && !channel.needs_private_network,
                embeddings: channel.serves_purpose(ModelPurpose::Embedding).then(|| channel.protocol_of(ModelPurpose::Embedding)),
            });
            all.accounts.extend(channel.accounts.iter().map(|account| AccountEntry {
                id: account.id,
                on: account.spec.on,
                limits: account.limits(),
            }));
        }
        all
    }

    /// The channel at a [`super::MappingRef::channel`] position, and its accounts in order.
    pub(crate) fn at(&self, channel: u32) -> Option<(&ChannelEntry, &[AccountEntry])> {
        let entry = self.channels.get(channel as usize)?;
        let first = entry.first as usize;
        Some((entry, self.accounts.get(first..first + entry.count as usize)?))
    }
}
