//! Accounts under a channel. A credential goes in and never comes out.

use serde_json::{Value, json};
use tollgate_core::{Limits, Secret};
use tollgate_store::{AccountSpec, AdminScope, Change, RowKind, StoredRow};

use super::{
    paging,
    request_context::{ApplyOutcome, InputFields, RequestContext},
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route, handler},
    rows,
    schema::{
        CREATED_AT, FACTOR, FieldAccess, NAME, OWNER, ObjectSchema, REVISION, ValueSchema, WriteMode, both, fixed, read as answered,
    },
    shared_fields::{self, CONCURRENCY, RPM, TPM},
};
use crate::{api_error::ApiError, response::ApiResponse};

static ACCOUNT: ObjectSchema = ObjectSchema {
    name: "Account",
    fields: &[
        answered("id", ValueSchema::Id("acc_"), "Id."),
        answered("channel", NAME, "Its channel."),
        fixed("name", NAME, "Unique in its channel."),
        both("credential", ValueSchema::String { least: 1, most: 10_000 }, "The provider's key; a new account needs one.")
            .with(FieldAccess::Write),
        both("status", ValueSchema::Enum(&["on", "off"]), "off: by hand."),
        RPM,
        TPM,
        CONCURRENCY,
        both("cost_multiplier", FACTOR, "Factor on the channel's cost prices."),
        OWNER,
        CREATED_AT,
        REVISION,
    ],
};
static ITEM: ValueSchema = ValueSchema::Object(&ACCOUNT);
/// Accounts of a new channel.
pub(super) const LIST: ValueSchema = ValueSchema::List { of: &ITEM, most: 1_000 };

const fn route(method: Method, path: &'static str, id: &'static str, doc: &'static str) -> Route {
    Route {
        method,
        path,
        resource: "accounts",
        needs: AdminScope::Operator,
        id,
        doc,
        query: &[],
        request: RequestSchema::Empty,
        response: ResponseSchema::Object(&ACCOUNT),
        handler: handler!(one),
    }
}

const ALL: &str = "/admin/v1/channels/{name}/accounts";
const ONE: &str = "/admin/v1/channels/{name}/accounts/{account}";

pub(super) static ROUTES: &[Route] = &[
    Route {
        query: &[LIMIT, AFTER],
        response: ResponseSchema::Page(&ACCOUNT),
        handler: handler!(list),
        ..route(Method::Get, ALL, "list_accounts", "The accounts of a channel.")
    },
    Route {
        request: RequestSchema::Body(&ACCOUNT, WriteMode::Create),
        response: ResponseSchema::Created(&ACCOUNT),
        handler: handler!(make),
        ..route(Method::Post, ALL, "make_account", "Makes an account.")
    },
    route(Method::Get, ONE, "get_account", "One account, by name or id."),
    Route {
        request: RequestSchema::Body(&ACCOUNT, WriteMode::Update),
        handler: handler!(change),
        ..route(Method::Patch, ONE, "change_account", "Changes what is sent; the rest stays, the credential too.")
    },
    Route {
        response: ResponseSchema::Empty,
        handler: handler!(remove),
        ..route(Method::Delete, ONE, "remove_account", "Removes an account. Usage keeps its name.")
    },
];

fn show(channel: &str, row: &StoredRow, spec: &AccountSpec) -> Value {
    let AccountSpec { name, on, concurrency, rpm, tpm, cost_multiplier } = spec;
    let mut members = shared_fields::row_of(row);
    shared_fields::show_limits(&Limits { rpm: *rpm, tpm: *tpm, concurrency: *concurrency }, &mut members);
    members.extend(shared_fields::members(json!({
        "channel": channel,
        "name": name,
        "status": if *on { "on" } else { "off" },
        "cost_multiplier": cost_multiplier.to_decimal(),
    })));
    Value::Object(members)
}

/// An account out of what was sent.
pub(super) fn read(sent: &InputFields) -> Result<AccountSpec, ApiError> {
    let mut spec = AccountSpec::default();
    take(sent, &mut spec)?;
    Ok(spec)
}

fn take(sent: &InputFields, spec: &mut AccountSpec) -> Result<(), ApiError> {
    sent.set_text("name", &mut spec.name);
    if let Some(status) = sent.text("status") {
        spec.on = status == "on";
    }
    sent.set_number("rpm", &mut spec.rpm);
    sent.set_number("tpm", &mut spec.tpm);
    sent.set_number("concurrency", &mut spec.concurrency);
    sent.set_factor("cost_multiplier", &mut spec.cost_multiplier)
}

fn credential(sent: &InputFields) -> Option<Secret> {
    sent.text("credential").map(|text| Secret::new(text.to_owned()))
}

async fn channel(context: &RequestContext) -> Result<StoredRow, ApiError> {
    rows::find(context, RowKind::Channel, None, context.path_param("name")).await
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let mut filter = rows::filter(&context, RowKind::Account)?;
    filter.parent = Some(channel.id);
    let rows = context.with_query_timeout(context.state.store.listing.page(&filter)).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(AccountSpec, StoredRow)>, ApiError>>()?;
    Ok(paging::page(rows, context.limit(), |(_, row)| row.id.clone(), |(spec, row)| show(&channel.name, row, spec)))
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let row = rows::find(&context, RowKind::Account, Some(&channel.id), context.path_param("account")).await?;
    Ok(ApiResponse::ok(show(&channel.name, &row, &row.read()?)).revision(row.revision))
}

async fn make(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let account = read(&context.body)?;
    let name = account.name.clone();
    let mut changes = Vec::from_iter(context.idempotency_change()?);
    changes.push(Change::ExpectNew { kind: RowKind::Account, parent: channel.name.clone(), name: name.clone() });
    changes.push(Change::PutAccount { channel: channel.name.clone(), account, credential: credential(&context.body) });
    if let ApplyOutcome::Replayed(id) = context.apply(&changes).await? {
        let row = rows::find(&context, RowKind::Account, Some(&channel.id), &id).await?;
        let answer = ApiResponse::ok(show(&channel.name, &row, &row.read()?)).revision(row.revision);
        return Ok(answer.header("idempotent-replayed", "true"));
    }
    let row = rows::written(&context, RowKind::Account, Some(&channel.id), &name).await?;
    Ok(ApiResponse::created(show(&channel.name, &row, &row.read()?)).revision(row.revision))
}

async fn change(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let row = rows::edit(&context, RowKind::Account, Some(&channel.id), context.path_param("account"), |row| {
        let mut account: AccountSpec = row.read()?;
        take(&context.body, &mut account)?;
        Ok(vec![Change::PutAccount { channel: channel.name.clone(), account, credential: credential(&context.body) }])
    })
    .await?;
    Ok(ApiResponse::ok(show(&channel.name, &row, &row.read()?)).revision(row.revision))
}

async fn remove(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    rows::edit(&context, RowKind::Account, Some(&channel.id), context.path_param("account"), |row| {
        Ok(vec![Change::RemoveAccount { channel: channel.name.clone(), account: row.name.clone() }])
    })
    .await?;
    Ok(ApiResponse::no_content())
}
