//! Keys and the members they belong to.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tollgate_protocol::Protocol;

use super::{Budget, Glob, Limits, Owner, PriceLimit};
use crate::{GroupId, KeyId, MemberId, Requester, Tags, Timestamp};

/// A service key with everything admission and routing need, its member included. Shared from the key cache.
#[derive(Clone, Debug)]
pub struct Key {
    pub id: KeyId,
    pub name: String,
    /// Where the row is managed.
    pub owner: Owner,
    /// First 10 characters of the secret, for display.
    pub prefix: String,
    /// Last 4 characters.
    pub suffix: String,
    pub status: KeyStatus,
    /// Expiry; `None`: never.
    pub expires_at: Option<Timestamp>,
    /// Groups in order of preference; empty: the member's default group.
    pub groups: Vec<GroupId>,
    /// Models it may use; empty: everything its groups offer.
    pub models: Vec<Glob>,
    /// Models it may not use, although `models` allows them.
    pub models_deny: Vec<Glob>,
    /// Protocols that its requests may use; empty: any.
    pub protocols: Vec<Protocol>,
    /// Networks it may be used from; empty: any.
    pub ip_allow: Vec<IpNet>,
    pub limits: Limits,
    /// Budgets on the sale price.
    pub budgets: Vec<Budget>,
    pub price_limit: Option<PriceLimit>,
    /// Overrides the group's setting for thought signatures in tool call ids; `None`: the group's setting.
    pub signatures_in_ids: Option<bool>,
    /// Tags of each of its requests, before the request's own tags.
    pub tags: Tags,
    /// True to store the bodies and answers of its requests regardless of its groups, if contents are stored at all.
    pub log_contents: bool,
    pub created_at: Timestamp,
    pub member: Member,
}

impl Key {
    /// The key and its member. Failures that a request provokes are attributed to them.
    pub const fn requester(&self) -> Requester {
        Requester { key: self.id, member: self.member.id }
    }

    /// An active key without restrictions. It has the groups granted to its member.
    #[must_use]
    pub fn new(id: KeyId, name: &str, member: Member, created_at: Timestamp) -> Self {
        Self {
            id,
            name: name.to_owned(),
            owner: Owner::Database,
            prefix: String::new(),
            suffix: String::new(),
            status: KeyStatus::Active,
            expires_at: None,
            groups: member.granted.clone(),
            models: Vec::new(),
            models_deny: Vec::new(),
            protocols: Vec::new(),
            ip_allow: Vec::new(),
            limits: Limits::default(),
            budgets: Vec::new(),
            price_limit: None,
            signatures_in_ids: None,
            tags: Tags::default(),
            log_contents: false,
            created_at,
            member,
        }
    }

    /// True when requests of the key may use this protocol.
    pub fn allows_protocol(&self, protocol: Protocol) -> bool {
        self.protocols.is_empty() || self.protocols.contains(&protocol)
    }

    /// True when the key may get the model list of this protocol. Chat completions and Responses share a list.
    pub fn allows_model_list(&self, protocol: Protocol) -> bool {
        self.protocols.is_empty() || self.protocols.iter().any(|allowed| allowed.shares_model_list(protocol))
    }

    /// True when the key may be used from this address.
    pub fn allows_address(&self, address: IpAddr) -> bool {
        let address = match address {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        self.ip_allow.is_empty() || self.ip_allow.iter().any(|net| net.contains(&address))
    }
}

/// Whether a service key may be used. Expiry is separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyStatus {
    Active,
    /// Disabled, can be enabled again.
    Disabled,
    /// Revoked permanently.
    Revoked,
}

/// A person with access to the gateway.
#[derive(Clone, Debug)]
pub struct Member {
    pub id: MemberId,
    pub name: String,
    pub role: Role,
    pub status: MemberStatus,
    /// Private groups granted to the member.
    pub granted: Vec<GroupId>,
    /// Group of keys that name none.
    pub default_group: Option<GroupId>,
    pub billing: Billing,
    pub limits: Limits,
    /// Budgets on the sale price.
    pub budgets: Vec<Budget>,
}

impl Member {
    /// An active postpaid member without limits.
    #[must_use]
    pub fn new(id: MemberId, name: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            role: Role::Member,
            status: MemberStatus::Active,
            granted: Vec::new(),
            default_group: None,
            billing: Billing::Postpaid,
            limits: Limits::default(),
            budgets: Vec::new(),
        }
    }
}

/// The permissions of a member, the widest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Admin,
    /// Channels, groups, models, prices, all keys, all usage.
    Operator,
    /// Own keys, own usage.
    #[default]
    Member,
}

/// Whether the keys and the login of a member may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberStatus {
    #[default]
    Active,
    Suspended,
}

/// Whether a member's requests are limited by the balance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Billing {
    /// The balance may go below zero.
    #[default]
    Postpaid,
    /// The balance must cover each request.
    Prepaid,
}
