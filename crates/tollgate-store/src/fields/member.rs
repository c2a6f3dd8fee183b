//! The fields of a member, a service key and an admin key.

use ipnet::IpNet;
use serde_json::Value;
use tollgate_core::{Billing, Budget, Glob, KeyStatus, MemberStatus, PriceLimit, Role, Secret, Timestamp};

use super::{
    Access, Field, FieldShape, Kind, field,
    price::budgets_differ,
    table,
    value::{NAME, not_an_id},
};
use crate::{AdminKeySpec, AdminScope, KeySpec, MemberSpec, keys::check_import};

table!(
    MemberSpec,
    "Member",
    MemberSpec::default(),
    &[
        field!("name", name: String, "Unique.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        field!("role", role: Role, "What the member may do in the console."),
        field!("status", status: MemberStatus, "Whether the member's keys work."),
        field!("groups", groups: Vec<String>, "Private groups granted.").kind(Kind::List { of: &NAME, most: 1_000 }),
        field!("default_group", default_group: Option<String>, "Used by keys that name no group.")
            .kind(NAME)
            .default_text("the group `default`"),
        field!("billing", billing: Billing, "`prepaid`: the balance bounds what is spent."),
        field!("rpm", limits.rpm: u32, "Requests a minute; 0: no bound."),
        field!("tpm", limits.tpm: u64, "Tokens a minute; 0: no bound."),
        field!("concurrency", limits.concurrency: u32, "Requests at once; 0: no bound."),
        field!("budget", budgets: Vec<Budget>, "Budget on sales, or a list of them.").rule(budgets_differ),
    ]
);

/// A key as it is written: its row, and a secret to import.
#[derive(Clone, Debug, Default)]
pub struct KeyInput {
    pub spec: KeySpec,
    /// A known secret; `None` keeps the one that is there.
    pub secret: Option<Secret>,
}

table!(
    KeyInput,
    "Key",
    KeyInput::default(),
    &[
        field!("name", spec.name: String, "Unique among the member's keys.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        field!("member", spec.member: String, "Member the key belongs to.")
            .kind(NAME)
            .access(Access::CreateOnly)
            .default_text("`owner`, else the first admin"),
        field!("status", spec.status: KeyStatus, "`disabled`: refused until it is active again. `revoked`, by DELETE, is for good.")
            .rule(not_revoked),
        Field {
            shape: FieldShape::new(
                "secret",
                Kind::Text { least: 1, most: 10_000 },
                "Imports a known secret: 16 to 200 visible characters. A key that is there keeps its own.",
            )
            .with(Access::FileOnly),
            get: |_: &Self| Value::Null,
            set: |key: &mut Self, value| {
                let secret = value.as_str().unwrap_or_default();
                check_import(secret).map_err(|error| error.to_string())?;
                key.secret = Some(Secret::new(secret.to_owned()));
                Ok(())
            },
        }
        .secret(),
        field!("groups", spec.groups: Vec<String>, "Groups in order: the first that offers the model serves it; empty: the member's default group.")
            .kind(Kind::List { of: &NAME, most: 100 }),
        field!("models", spec.models: Vec<Glob>, "Names or globs of models it may use."),
        field!("ip_allow", spec.ip_allow: Vec<IpNet>, "Addresses and networks it may be used from; empty: any."),
        field!("expires_at", spec.expires_at: Option<Timestamp>, "When it ends.").default_text("never"),
        field!("rpm", spec.limits.rpm: u32, "Requests a minute; 0: no bound."),
        field!("tpm", spec.limits.tpm: u64, "Tokens a minute; 0: no bound."),
        field!("concurrency", spec.limits.concurrency: u32, "Requests at once; 0: no bound."),
        field!("budget", spec.budgets: Vec<Budget>, "Budget on sales, or a list of them.").rule(budgets_differ),
        field!("price_limit", spec.price_limit: Option<PriceLimit>, "Which channels are accepted by price."),
        field!(
            "signatures_in_ids",
            spec.signatures_in_ids: Option<bool>,
            "Whether thought signatures travel behind the ids of tool calls."
        )
        .default_text("as its group"),
    ]
);

fn not_revoked(value: &Value) -> Result<(), String> {
    if value == "revoked" { Err("a key is revoked by a change of its own, for good".to_owned()) } else { Ok(()) }
}

table!(
    AdminKeySpec,
    "AdminKey",
    AdminKeySpec::default(),
    &[
        field!("name", name: String, "Unique among the admin keys that are not revoked.")
            .kind(NAME)
            .access(Access::Fixed)
            .rule(not_an_id),
        field!("scope", scope: AdminScope, "What it may do: all but members, admin keys, ledger and settings, or everything.")
            .access(Access::Fixed),
        field!("expires_at", expires_at: Option<Timestamp>, "When it ends.").access(Access::CreateOnly).default_text("never"),
    ]
);
