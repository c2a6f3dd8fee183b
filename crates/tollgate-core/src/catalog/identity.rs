//! Keys, the members they belong to, and what both may do.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Budget, Glob, Limits, Owner, PriceLimit};
use crate::{GroupId, KeyId, MemberId, Timestamp};

/// A service key with all that deciding needs, its member included. Shared from the cache.
#[derive(Clone, Debug)]
pub struct Key {
    /// Id.
    pub id: KeyId,
    /// Name.
    pub name: String,
    /// Who owns the row.
    pub owner: Owner,
    /// First 10 characters of the secret, for display.
    pub prefix: String,
    /// Last 4 characters.
    pub suffix: String,
    /// Status.
    pub status: KeyStatus,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Groups in order; empty: the member's default group.
    pub groups: Vec<GroupId>,
    /// Which models it may use; empty: all its groups offer.
    pub models: Vec<Glob>,
    /// Addresses it may be used from; empty: any.
    pub ip_allow: Vec<IpNet>,
    /// Requests, tokens, concurrency.
    pub limits: Limits,
    /// Money over time.
    pub budgets: Vec<Budget>,
    /// Its own price limit.
    pub price_limit: Option<PriceLimit>,
    /// Whether thought signatures travel behind the ids of tool calls; `None`: as its group says.
    pub signatures_in_ids: Option<bool>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whose it is.
    pub member: Member,
}

impl Key {
    /// Whether an address may use it.
    #[must_use]
    pub fn allows_address(&self, address: IpAddr) -> bool {
        let address = match address {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        self.ip_allow.is_empty() || self.ip_allow.iter().any(|net| net.contains(&address))
    }
}

/// Whether a key works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyStatus {
    /// It works.
    Active,
    /// Switched off for now.
    Disabled,
    /// Ended for good.
    Revoked,
}

/// A person.
#[derive(Clone, Debug)]
pub struct Member {
    /// Id.
    pub id: MemberId,
    /// Name.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Whether they may use the gateway.
    pub status: MemberStatus,
    /// Private groups granted.
    pub granted: Vec<GroupId>,
    /// Used by keys that name no group.
    pub default_group: Option<GroupId>,
    /// How they pay.
    pub billing: Billing,
    /// Requests, tokens, concurrency.
    pub limits: Limits,
    /// Money over time.
    pub budgets: Vec<Budget>,
}

/// What a member may do in the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything.
    Admin,
    /// Channels, groups, models, prices, all keys, all usage.
    Operator,
    /// Own keys, own usage.
    #[default]
    Member,
}

/// Whether a member may use the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberStatus {
    /// Yes.
    #[default]
    Active,
    /// No.
    Suspended,
}

/// How a member pays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Billing {
    /// The balance may go below zero.
    #[default]
    Postpaid,
    /// The balance bounds.
    Prepaid,
}
