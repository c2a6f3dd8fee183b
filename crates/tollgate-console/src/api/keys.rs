//! Service keys: made, listed, changed, revoked. A key itself is shown in the answer that made it.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use tollgate_core::{KeyId, KeyStatus};
use tollgate_store::{AdminScope, Change, KeySpec, NewKey, RandomSource, RowKind, StoredRow};

use super::{
    paging, previews,
    request_context::{ApplyOutcome, InputFields, RequestContext},
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route, handler},
    rows,
    schema::{CREATED_AT, FieldAccess, NAME, OWNER, ObjectSchema, REVISION, TEXT, ValueSchema, WriteMode, both, fixed, read},
    shared_fields::{self, BUDGETS, CONCURRENCY, PRICE_LIMIT, RPM, TPM},
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

static KEY: ObjectSchema = ObjectSchema {
    name: "Key",
    fields: &[
        read("id", ValueSchema::Id("key_"), "Id."),
        fixed("name", NAME, "Unique among the member's keys."),
        both("member", NAME, "Whose it is; `owner` where it is left out.").with(FieldAccess::AtFirst),
        both("status", ValueSchema::Enum(&["active", "disabled", "revoked"]), "`revoked` is for good: by DELETE."),
        both("groups", ValueSchema::List { of: &NAME, most: 100 }, "Groups in order; empty: the member's default group."),
        both(
            "models",
            ValueSchema::List { of: &ValueSchema::String { least: 1, most: 256 }, most: 1_000 },
            "Names and globs it may use.",
        ),
        both(
            "ip_allow",
            ValueSchema::List { of: &ValueSchema::String { least: 1, most: 50 }, most: 1_000 },
            "Addresses and networks; empty: any.",
        ),
        RPM,
        TPM,
        CONCURRENCY,
        BUDGETS,
        PRICE_LIMIT,
        both(
            "signatures_in_ids",
            ValueSchema::Boolean,
            "Whether thought signatures travel behind the ids of tool calls; null: as its group says.",
        )
        .or_null(),
        both("expires_at", ValueSchema::Time, "When it ends.").or_null(),
        read("prefix", TEXT, "The first characters of the key."),
        read("suffix", TEXT, "Its last characters."),
        OWNER,
        CREATED_AT,
        read("revoked_at", ValueSchema::Time, "When it was revoked.").or_null(),
        REVISION,
        read("key", TEXT, "The key itself, this once.").with(FieldAccess::Once),
        previews::WITH_ROW,
        previews::CUT_WITH_ROW,
    ],
};

const fn route(method: Method, path: &'static str, id: &'static str, doc: &'static str) -> Route {
    Route {
        method,
        path,
        resource: "keys",
        needs: AdminScope::Operator,
        id,
        doc,
        query: &[],
        request: RequestSchema::Empty,
        response: ResponseSchema::Object(&KEY),
        handler: handler!(one),
    }
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        query: &[
            LIMIT,
            AFTER,
            both("member", NAME, "Of this member, by name or id."),
            both("name", NAME, "Of this name."),
            both("revoked", ValueSchema::Boolean, "Revoked ones too."),
        ],
        response: ResponseSchema::Page(&KEY),
        handler: handler!(list),
        ..route(Method::Get, "/admin/v1/keys", "list_keys", "Service keys, oldest first.")
    },
    Route {
        query: previews::QUERY,
        request: RequestSchema::Body(&KEY, WriteMode::Create),
        response: ResponseSchema::Created(&KEY),
        handler: handler!(make),
        ..route(Method::Post, "/admin/v1/keys", "make_key", "Makes a service key and shows it, this once.")
    },
    route(Method::Get, "/admin/v1/keys/{key}", "get_key", "One service key."),
    Route {
        query: previews::QUERY,
        request: RequestSchema::Body(&KEY, WriteMode::Update),
        handler: handler!(change),
        ..route(Method::Patch, "/admin/v1/keys/{key}", "change_key", "Changes what is sent; the rest stays.")
    },
    Route {
        handler: handler!(revoke),
        ..route(Method::Delete, "/admin/v1/keys/{key}", "revoke_key", "Ends a service key for good.")
    },
];

fn show(row: &StoredRow, spec: &KeySpec) -> Map<String, Value> {
    let KeySpec { name, member, status, expires_at, groups, models, ip_allow, limits, budgets, price_limit, signatures_in_ids } =
        spec;
    let (prefix, suffix) = row.shown.clone().unwrap_or_default();
    let mut members = shared_fields::row_of(row);
    shared_fields::show_limits(limits, &mut members);
    members.extend(
        [
            ("name", json!(name)),
            ("member", json!(member)),
            ("status", json!(if row.removed_at.is_some() { &KeyStatus::Revoked } else { status })),
            ("groups", json!(groups)),
            ("models", json!(models)),
            ("ip_allow", json!(ip_allow)),
            ("budgets", shared_fields::show_budgets(budgets)),
            ("price_limit", shared_fields::show_price_limit(price_limit.as_ref())),
            ("signatures_in_ids", json!(signatures_in_ids)),
            ("expires_at", json!(expires_at.map(time_value))),
            ("prefix", json!(prefix)),
            ("suffix", json!(suffix)),
            ("revoked_at", json!(row.removed_at.map(time_value))),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    members
}

fn shown(row: &StoredRow) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(show(row, &row.read()?)).revision(row.revision))
}

/// What was sent into a spec.
fn take(sent: &InputFields, spec: &mut KeySpec) -> Result<(), ApiError> {
    if sent.text("status") == Some("revoked") {
        return Err(ApiError::value("status", "a key is revoked by DELETE, for good"));
    }
    sent.set_text("name", &mut spec.name);
    sent.set_text("member", &mut spec.member);
    sent.set_word("status", &mut spec.status);
    sent.set_texts("groups", &mut spec.groups);
    shared_fields::set_globs(sent, &mut spec.models);
    if let Some(nets) = sent.list("ip_allow") {
        spec.ip_allow =
            nets.iter().filter_map(Value::as_str).enumerate().map(|(i, text)| network(i, text)).collect::<Result<_, _>>()?;
    }
    shared_fields::read_limits(sent, &mut spec.limits);
    shared_fields::set_budgets(sent, &mut spec.budgets)?;
    shared_fields::set_price_limit(sent, &mut spec.price_limit)?;
    if sent.has("signatures_in_ids") {
        spec.signatures_in_ids = sent.0.get("signatures_in_ids").and_then(Value::as_bool);
    }
    if sent.has("expires_at") {
        spec.expires_at = sent.time("expires_at");
    }
    Ok(())
}

/// A network, or a single address.
fn network(i: usize, text: &str) -> Result<IpNet, ApiError> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| net.trunc())
        .map_err(|_| ApiError::value(&format!("ip_allow[{i}]"), "expected an address or a network such as \"10.0.0.0/8\""))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let mut filter = rows::filter(&context, RowKind::Key)?;
    filter.removed = context.query.0.get("revoked").is_some_and(|revoked| revoked == true);
    if let Some(member) = context.query.text("member") {
        filter.parent = Some(rows::find(&context, RowKind::Member, None, member).await?.id);
    }
    let rows = context.with_query_timeout(context.state.store.listing.page(&filter)).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(KeySpec, StoredRow)>, ApiError>>()?;
    Ok(paging::page(rows, context.limit(), |(_, row)| row.id.clone(), |(spec, row)| show(row, spec).into()))
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    shown(&rows::find(&context, RowKind::Key, None, context.path_param("key")).await?)
}

async fn make(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let mut spec = KeySpec::default();
    take(&context.body, &mut spec)?;
    shared_fields::require_future(&context, "expires_at")?;
    if spec.member.is_empty() {
        "owner".clone_into(&mut spec.member);
    }
    let new = NewKey::draw(&RandomSource::system());
    let secret = Some(new.secret(&context.state.store.hasher));
    let (member, name) = (spec.member.clone(), spec.name.clone());
    let mut changes = Vec::from_iter(context.idempotency_change()?);
    changes.push(Change::ExpectNew { kind: RowKind::Key, parent: member.clone(), name: name.clone() });
    changes.push(Change::PutKey { key: Box::new(spec.clone()), secret });
    let effects = previews::preview_effects(&context, &changes).await?;
    if previews::is_dry_run(&context) {
        let row = StoredRow::draft(RowKind::Key, rows::prefix(RowKind::Key), &name, context.now());
        return Ok(ApiResponse::ok(previews::beside(show(&row, &spec), &effects)));
    }
    if let ApplyOutcome::Replayed(id) = context.apply(&changes).await? {
        let row = rows::find(&context, RowKind::Key, None, &id).await?;
        return Ok(shown(&row)?.header("idempotent-replayed", "true"));
    }
    let member = rows::written(&context, RowKind::Member, None, &member).await?;
    let row = rows::written(&context, RowKind::Key, Some(&member.id), &name).await?;
    let mut shown = show(&row, &row.read()?);
    shown.insert("key".to_owned(), new.expose_once().into());
    Ok(ApiResponse::created(previews::beside(shown, &effects)).revision(row.revision))
}

async fn change(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let changed = |row: &StoredRow| {
        if row.removed_at.is_some() {
            return Err(ApiError::conflict("key_revoked", "The key is revoked, which is for good; make a new one."));
        }
        let mut spec: KeySpec = row.read()?;
        take(&context.body, &mut spec)?;
        Ok(spec)
    };
    let put = |spec: KeySpec| vec![Change::PutKey { key: Box::new(spec), secret: None }];
    let row = rows::find(&context, RowKind::Key, None, context.path_param("key")).await?;
    let spec = changed(&row)?;
    let effects = previews::preview_effects(&context, &put(spec.clone())).await?;
    if previews::is_dry_run(&context) {
        return Ok(ApiResponse::ok(previews::beside(show(&row, &spec), &effects)).revision(row.revision));
    }
    let row = rows::edit(&context, RowKind::Key, None, context.path_param("key"), |row| Ok(put(changed(row)?))).await?;
    Ok(ApiResponse::ok(previews::beside(show(&row, &row.read()?), &effects)).revision(row.revision))
}

async fn revoke(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let row = rows::edit(&context, RowKind::Key, None, context.path_param("key"), |row| {
        let key = KeyId::parse(&row.id).ok_or_else(ApiError::internal)?;
        Ok(vec![Change::RevokeKey { key }])
    })
    .await?;
    shown(&row)
}
