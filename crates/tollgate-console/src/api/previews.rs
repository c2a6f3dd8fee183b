//! Effects of a change to a group or key through price limits: the accounts it would newly exclude. They are computed before
//! the change is saved, because the numbers of a limit alone do not show them.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Map, Value, json};
use tollgate_core::{Key, PriceEffect, PriceEffects, PriceSubject, Timestamp, price_effects};
use tollgate_store::{
    CatalogRows, Change, KeyScope, Preview, RandomSource, StoreError,
    fields::{Access, FieldShape, Kind, Object},
    preview_changes,
};

use super::{
    request_context::RequestContext,
    schema::{NAME, TEXT, both, read},
};
use crate::api_error::ApiError;

static EXCLUDED: Object = Object::of(
    "PricedOutAccount",
    &[
        read("channel", NAME, "Channel."),
        read("account", NAME, "Account; null: all accounts of the channel.").or_null(),
        read("code", TEXT, "Exclusion code."),
        read("detail", TEXT, "Details.").or_null(),
    ],
);
static EFFECT: Object = Object::of(
    "PriceEffect",
    &[
        read("subject", Kind::Word(&["group", "key"]), "Kind of the row with the price limit."),
        read("name", TEXT, "Name of the group or key."),
        read("member", TEXT, "Member of the key.").or_null(),
        read("model", TEXT, "Model."),
        read("nothing_left", Kind::Flag, "No account is left: callers would get 503 (E41, or E42 where a price is missing)."),
        read(
            "served_before",
            Kind::Flag,
            "The model was served before, or would be to a new row without its limit. Other exclusions need no confirmation.",
        ),
        read("excluded", Kind::List { of: &Kind::Object(&EXCLUDED), max: 100_000 }, "Newly excluded accounts."),
    ],
);

/// List of price effects.
pub(super) const EFFECTS: Kind = Kind::List { of: &Kind::Object(&EFFECT), max: 1_000_000 };

/// Field `effects` in the response to a change or dry run.
pub(super) const WITH_ROW: FieldShape =
    read("effects", EFFECTS, "Accounts that price limits exclude by this change; only in the response to it.")
        .with(Access::ShownOnce);

/// Field `effects_cut`: there may be more effects.
pub(super) const CUT: FieldShape =
    read("effects_cut", Kind::Flag, "Effects may be incomplete: too many keys have price limits of their own.");
/// The same in the response to a change of a row.
pub(super) const CUT_WITH_ROW: FieldShape = CUT.with(Access::ShownOnce);

/// Largest number of unchanged keys with price limits of their own that are evaluated.
pub(super) const MAX_LIMITED_KEYS: u32 = 1_000;

/// Query parameters of a change.
pub(super) const QUERY: &[FieldShape] =
    &[both("dry_run", Kind::Flag, "Return the changed row and the effects without saving."), CONFIRM];

/// Query parameters of a change of a channel, which has effects through price limits only if it changes groups.
pub(super) const OF_CHANNELS: &[FieldShape] = &[both("dry_run", Kind::Flag, "Return the changed row without saving."), CONFIRM];

/// Query parameter that saves a change although price limits leave a model without any account.
pub(super) const CONFIRM: FieldShape = both("confirm", Kind::Flag, "Save even if price limits leave a model without any account.");

pub(super) fn is_dry_run(context: &RequestContext) -> bool {
    is_set(context, "dry_run")
}

fn is_set(context: &RequestContext, name: &str) -> bool {
    context.query.flag(name)
}

/// Computes the effects of changes.
/// Fails when the changes are invalid, or when they leave a model without any account and are not confirmed.
pub(super) async fn preview_effects(context: &RequestContext, changes: &[Change]) -> Result<PriceEffects, ApiError> {
    preview_effects_of(context, changes, is_dry_run(context)).await
}

/// Like [`preview_effects`], but a dry run needs no confirmation and is not refused.
pub(super) async fn preview_effects_of(
    context: &RequestContext,
    changes: &[Change],
    dry_run: bool,
) -> Result<PriceEffects, ApiError> {
    let current = context.with_query_timeout(context.state.store.catalog.live_rows(&rows_of(changes))).await?;
    let effects = effects_of(&current, changes, dry_run, context.now()).await;
    let effects = effects.map_err(|error| ApiError::store(&error, context.state.catalog_file.as_deref()))?;
    match nothing_left(&effects) {
        Some(emptied) if !dry_run && !is_set(context, "confirm") => {
            let remedy = "Nothing was saved: check the effects with 'dry_run=true', and send 'confirm=true' to save anyway.";
            Err(ApiError::conflict("nothing_left", format!("{emptied} {remedy}")))
        }
        _ => Ok(effects),
    }
}

/// Whether changes also affect other keys with price limits. A group's limit and a price do; the change of a key affects only that
/// key.
fn affect_many(changes: &[Change]) -> bool {
    let affects_many = |change: &Change| {
        matches!(change, Change::PutGroup(_) | Change::SetGroupChannel { .. } | Change::SetPrice { .. } | Change::SetCosts { .. })
    };
    changes.iter().any(affects_many)
}

/// The rows that the effects of changes are computed from.
pub(crate) fn rows_of(changes: &[Change]) -> KeyScope {
    KeyScope::Limited { names: key_names(changes), max: if affect_many(changes) { MAX_LIMITED_KEYS } else { 0 } }
}

/// Computes the effects of changes on these rows. `always`: also if there are no price limits.
pub(crate) async fn effects_of(
    current: &CatalogRows,
    changes: &[Change],
    always: bool,
    now: Timestamp,
) -> Result<PriceEffects, StoreError> {
    if !always && !has_limits(current, changes) {
        return Ok(PriceEffects::default());
    }
    let cut = affect_many(changes) && current.keys_cut;
    // In a retry with the same idempotency key the row may exist already.
    let is_idempotent = changes.iter().any(|change| matches!(change, Change::Idempotent { .. }));
    let relevant = |change: &&Change| !is_idempotent || !matches!(change, Change::ExpectNew { .. });
    let changes: Vec<Change> = changes.iter().filter(relevant).cloned().collect();
    let mut effects = compute(preview_changes(current, &changes, RandomSource::system(), now).await?, now);
    effects.truncated |= cut;
    Ok(effects)
}

/// The group or key that price limits would leave without any account, as a sentence.
pub(crate) fn nothing_left(effects: &PriceEffects) -> Option<String> {
    let empty = effects.effects.iter().find(|effect| effect.nothing_left && effect.served_before)?;
    let subject = match &empty.subject {
        PriceSubject::Group(name) => format!("group '{name}'"),
        PriceSubject::Key { key, .. } => format!("key '{key}'"),
    };
    Some(format!("Price limits would leave {subject} without any account for the model '{}'.", empty.model))
}

/// Computes the effects. A new key is compared with itself without a limit: exclusions by its group are not its effect.
fn compute(preview: Preview, now: Timestamp) -> PriceEffects {
    let without_limit = |key: &Key| Key { price_limit: None, ..key.clone() };
    let keys: Vec<_> = preview
        .changed
        .into_iter()
        .map(|(before, key)| (Some(Arc::new(before.unwrap_or_else(|| without_limit(&key)))), Arc::new(key)))
        .collect();
    price_effects(&preview.before, &preview.after, &keys, now)
}

fn key_names(changes: &[Change]) -> HashSet<String> {
    let named =
        changes.iter().filter_map(|change| if let Change::PutKey { key, .. } = change { Some(key.name.clone()) } else { None });
    named.collect()
}

/// Whether any price limit exists before or after the changes.
fn has_limits(current: &CatalogRows, changes: &[Change]) -> bool {
    let by_change = |change: &Change| {
        let limit = if let Change::PutGroup(group) = change {
            group.price_limit
        } else if let Change::PutKey { key, .. } = change {
            key.price_limit
        } else {
            None
        };
        limit.is_some()
    };
    changes.iter().any(by_change)
        || current.groups.iter().any(|group| group.spec.price_limit.is_some())
        || current.keys.iter().any(|key| key.spec.price_limit.is_some())
}

pub(super) fn show(effects: &[PriceEffect]) -> Value {
    effects.iter().map(show_effect).collect()
}

/// Adds the effects to the fields of a row.
pub(super) fn beside(mut members: Map<String, Value>, found: &PriceEffects) -> Map<String, Value> {
    members.insert("effects".to_owned(), show(&found.effects));
    members.insert("effects_cut".to_owned(), found.truncated.into());
    members
}

pub(crate) fn show_effect(effect: &PriceEffect) -> Value {
    let (subject, name, member) = match &effect.subject {
        PriceSubject::Group(name) => ("group", name, None),
        PriceSubject::Key { member, key } => ("key", key, Some(member)),
    };
    let excluded: Vec<Value> = effect
        .accounts
        .iter()
        .map(|it| json!({"channel": it.channel, "account": it.account, "code": it.code, "detail": it.detail}))
        .collect();
    json!({
        "subject": subject, "name": name, "member": member, "model": effect.model, "nothing_left": effect.nothing_left, "served_before": effect.served_before,
        "excluded": excluded,
    })
}
