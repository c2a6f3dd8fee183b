//! The fields of a member, a service key and an admin key.

use ipnet::IpNet;
use serde_json::Value;
use tollgate_core::{
    Billing, Budget, Glob, KeyStatus, MAX_TAG_NAME, MAX_TAG_VALUE, MAX_TAGS, MemberStatus, PriceLimit, Role, Secret, TagName, Tags,
    Timestamp, is_tag_value,
};
use tollgate_protocol::Protocol;

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
        field!("role", role: Role, "`admin`: gets keys that name no member if there is no member `owner`. The last admin cannot be removed."),
        field!("status", status: MemberStatus, "`suspended`: the member's keys are refused."),
        field!("groups", groups: Vec<String>, "Private groups the member may use.").kind(Kind::List { of: &NAME, max: 1_000 }),
        field!("default_group", default_group: Option<String>, "Group of keys that list no groups.")
            .kind(NAME)
            .default_text("the group `default`"),
        field!("billing", billing: Billing, "`prepaid`: requests are refused once the balance is spent."),
        field!("rpm", limits.rpm: u32, "Requests per minute; 0: unlimited."),
        field!("tpm", limits.tpm: u64, "Tokens per minute; 0: unlimited."),
        field!("concurrency", limits.concurrency: u32, "Concurrent requests; 0: unlimited."),
        field!("budget", budgets: Vec<Budget>, "One budget or a list, counted by sales.").rule(budgets_differ),
    ]
);

/// A key in a request or file: the row and a secret to import.
#[derive(Clone, Debug, Default)]
pub struct KeyInput {
    pub spec: KeySpec,
    /// A known secret. `None` keeps the stored one.
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
        field!("status", spec.status: KeyStatus, "`disabled`: refused until set to active. `revoked`: permanent; set with DELETE.")
            .rule(not_revoked),
        Field {
            shape: FieldShape::new(
                "secret",
                Kind::Text { min: 1, max: 10_000 },
                "Imports a known secret: 16 to 200 visible characters. An existing key keeps its secret.",
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
        field!(
            "groups",
            spec.groups: Vec<String>,
            "Groups in order; the first one that offers the model serves the request. Empty: the member's default group."
        )
        .kind(Kind::List { of: &NAME, max: 100 }),
        field!("models", spec.models: Vec<Glob>, "Names or globs of the models the key may use."),
        field!(
            "models_deny",
            spec.models_deny: Vec<Glob>,
            "Names or globs of models that the key may not use, although `models` allows them."
        ),
        field!(
            "protocols",
            spec.protocols: Vec<Protocol>,
            "Protocols that requests of the key may use; empty: any. `openai` is chat completions and embeddings."
        )
        .rule(protocols_differ),
        field!("ip_allow", spec.ip_allow: Vec<IpNet>, "Addresses and networks it may be used from; empty: any."),
        field!("expires_at", spec.expires_at: Option<Timestamp>, "Expiry time.").default_text("never"),
        field!("rpm", spec.limits.rpm: u32, "Requests per minute; 0: unlimited."),
        field!("tpm", spec.limits.tpm: u64, "Tokens per minute; 0: unlimited."),
        field!("concurrency", spec.limits.concurrency: u32, "Concurrent requests; 0: unlimited."),
        field!("budget", spec.budgets: Vec<Budget>, "One budget or a list, counted by sales.").rule(budgets_differ),
        field!("price_limit", spec.price_limit: Option<PriceLimit>, "Excludes channels by price."),
        field!(
            "signatures_in_ids",
            spec.signatures_in_ids: Option<bool>,
            "Whether tool call ids carry thought signatures."
        )
        .default_text("as its group"),
        field!(
            "tags",
            spec.tags: Tags,
            "Tags of every request of the key in the usage log, such as `{ team = \"search\" }`. They come before those that a request \
             brings: these are left out where the name is the same, and beyond 16 in all."
        )
        .kind(Kind::TextMap { max: MAX_TAGS })
        .rule(check_tags),
        field!(
            "log_contents",
            spec.log_contents: bool,
            "`true`: bodies and answers of its requests are stored, where `contents.store` is on (docs/contents.md), regardless of its groups."
        ),
    ]
);

fn protocols_differ(value: &Value) -> Result<(), String> {
    let mut seen = std::collections::HashSet::new();
    let mut words = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    words.find(|word| !seen.insert(*word)).map_or(Ok(()), |word| Err(format!("'{word}' occurs twice")))
}

fn check_tags(value: &Value) -> Result<(), String> {
    for (name, value) in value.as_object().into_iter().flatten() {
        if TagName::parse(name).is_none() {
            return Err(format!("'{name}' is not a tag name: 1 to {MAX_TAG_NAME} letters, digits, '_', '-' or '.'"));
        }
        if !value.as_str().is_some_and(is_tag_value) {
            let rule = format!("1 to {MAX_TAG_VALUE} characters without commas and control characters");
            return Err(format!("the value of the tag '{name}' must have {rule}"));
        }
    }
    Ok(())
}

fn not_revoked(value: &Value) -> Result<(), String> {
    if value == "revoked" { Err("revoke a key with DELETE; it is permanent".to_owned()) } else { Ok(()) }
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
        field!(
            "scope",
            scope: AdminScope,
            "`member`: what belongs to its member; `operator`: everything except members, admin keys, ledger and settings; `admin`: \
             everything."
        )
        .access(Access::Fixed),
        field!("member", member: Option<String>, "Member the key belongs to: it has at most the member's permissions, and ends with the member.")
            .kind(NAME)
            .access(Access::CreateOnly)
            .default_text("none"),
        field!("expires_at", expires_at: Option<Timestamp>, "Expiry time.").access(Access::CreateOnly).default_text("never"),
    ]
);
