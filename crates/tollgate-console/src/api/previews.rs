//! What a change of a group or a key does beyond its own row, found out before it is saved: whom price limits would
//! exclude that they do not exclude now. Nobody sees that in the numbers of a limit.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Map, Value, json};
use tollgate_core::{Key, PriceEffect, PriceEffects, PriceSubject, price_effects};
use tollgate_store::{CatalogRows, Change, KeyScope, Preview, RandomSource, preview_changes};

use super::{
    request_context::RequestContext,
    schema::{FieldAccess, FieldSchema, NAME, ObjectSchema, TEXT, ValueSchema, both, read},
};
use crate::api_error::ApiError;

static EXCLUDED: ObjectSchema = ObjectSchema {
    name: "PricedOutAccount",
    fields: &[
        read("channel", NAME, "Channel."),
        read("account", NAME, "Account; null: all of them.").or_null(),
        read("code", TEXT, "Why."),
        read("detail", TEXT, "More about it.").or_null(),
    ],
};
static EFFECT: ObjectSchema = ObjectSchema {
    name: "PriceEffect",
    fields: &[
        read("subject", ValueSchema::Enum(&["group", "key"]), "Whose requests."),
        read("name", TEXT, "Its name."),
        read("member", TEXT, "Of a key: its member.").or_null(),
        read("model", TEXT, "For this model."),
        read("nothing_left", ValueSchema::Boolean, "Callers would get 503 (E41)."),
        read(
            "excluded",
            ValueSchema::List { of: &ValueSchema::Object(&EXCLUDED), most: 100_000 },
            "What they could no longer use.",
        ),
    ],
};

/// A list of effects.
pub(super) const EFFECTS: ValueSchema = ValueSchema::List { of: &ValueSchema::Object(&EFFECT), most: 1_000_000 };

/// The effects beside a row that was changed, or would be.
pub(super) const WITH_ROW: FieldSchema =
    read("effects", EFFECTS, "What price limits exclude by this change, in the answer to it.").with(FieldAccess::Once);

/// Beside them, whether there may be more.
pub(super) const CUT: FieldSchema =
    read("effects_cut", ValueSchema::Boolean, "Too many keys have price limits of their own to look at all of them.");
/// The same beside a row.
pub(super) const CUT_WITH_ROW: FieldSchema = CUT.with(FieldAccess::Once);

/// How many keys are evaluated, beside those that are written, because they have price limits of their own.
pub(super) const MAX_LIMITED_KEYS: u32 = 1_000;

/// What a change of a row may ask for.
pub(super) const QUERY: &[FieldSchema] = &[
    both("dry_run", ValueSchema::Boolean, "Writes nothing: the row as it would be, and whom price limits would exclude."),
    both("confirm", ValueSchema::Boolean, "Writes it though price limits leave a model without any account."),
];

/// Whether nothing is to be written.
pub(super) fn is_dry_run(context: &RequestContext) -> bool {
    is_set(context, "dry_run")
}

fn is_set(context: &RequestContext, name: &str) -> bool {
    context.query.0.get(name).is_some_and(|flag| flag == true)
}

/// What changes would do. Those that leave a model without any account must be confirmed.
///
/// # Errors
/// Where they would be refused, or are not confirmed.
pub(super) async fn preview_effects(context: &RequestContext, changes: &[Change]) -> Result<PriceEffects, ApiError> {
    // What a key's limit leaves, a group's may exclude. No other key is touched by the change of one.
    let of_groups = changes.iter().any(|change| matches!(change, Change::PutGroup(_)));
    let most = if of_groups { MAX_LIMITED_KEYS } else { 0 };
    let scope = KeyScope::Limited { names: names(changes), most };
    let current = context.with_query_timeout(context.state.store.catalog.current(&scope)).await?;
    if !is_dry_run(context) && !has_limits(&current, changes) {
        return Ok(PriceEffects::default());
    }
    let cut = of_groups && current.keys_cut;
    // What may have been made before, under the same idempotency key, is not new.
    let repeats = changes.iter().any(|change| matches!(change, Change::Once { .. }));
    let tried = |change: &&Change| !repeats || !matches!(change, Change::ExpectNew { .. });
    let changes: Vec<Change> = changes.iter().filter(tried).cloned().collect();
    let preview = preview_changes(&current, &changes, RandomSource::system(), context.now()).await;
    let preview = preview.map_err(|error| ApiError::store(&error, context.state.catalog_file.as_deref()))?;
    let mut effects = of_changes(preview, context);
    effects.truncated |= cut;
    let Some(left) = effects.effects.iter().find(|effect| effect.nothing_left) else { return Ok(effects) };
    if is_dry_run(context) || is_set(context, "confirm") {
        return Ok(effects);
    }
    let whose = match &left.subject {
        PriceSubject::Group(name) => format!("group '{name}'"),
        PriceSubject::Key { key, .. } => format!("key '{key}'"),
    };
    let message = format!(
        "Price limits would leave {whose} without any account for the model '{}'. Nothing was saved: look with 'dry_run=true', \
         and send it with 'confirm=true' if that is meant.",
        left.model
    );
    Err(ApiError::conflict("nothing_left", message))
}

/// A new key is held against the same one without a limit: what its group excludes is no doing of the key.
fn of_changes(preview: Preview, context: &RequestContext) -> PriceEffects {
    let without = |key: &Key| Key { price_limit: None, ..key.clone() };
    let keys: Vec<_> = preview
        .changed
        .into_iter()
        .map(|(was, key)| (Some(Arc::new(was.unwrap_or_else(|| without(&key)))), Arc::new(key)))
        .collect();
    price_effects(&preview.before, &preview.after, &keys, context.now())
}

/// Names of keys that are written.
fn names(changes: &[Change]) -> HashSet<String> {
    let named =
        changes.iter().filter_map(|change| if let Change::PutKey { key, .. } = change { Some(key.name.clone()) } else { None });
    named.collect()
}

/// Whether any price limit is there that could exclude somebody.
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

/// The effects as an answer has them.
pub(super) fn show(effects: &[PriceEffect]) -> Value {
    effects.iter().map(show_effect).collect()
}

/// A row's members with the effects beside.
pub(super) fn beside(mut members: Map<String, Value>, found: &PriceEffects) -> Map<String, Value> {
    members.insert("effects".to_owned(), show(&found.effects));
    members.insert("effects_cut".to_owned(), found.truncated.into());
    members
}

fn show_effect(effect: &PriceEffect) -> Value {
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
        "subject": subject, "name": name, "member": member, "model": effect.model, "nothing_left": effect.nothing_left,
        "excluded": excluded,
    })
}
