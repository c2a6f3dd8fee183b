//! Accounts under a channel. A credential goes in and never comes out.

use serde_json::Value;
use tollgate_store::{
    AccountSpec, AdminScope, Change, RowKind, StoredRow,
    fields::{AccountInput, Kind, Object, Row as _, WriteMode, whole},
};

use super::{
    check, paging,
    request_context::{ApplyOutcome, RequestContext},
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route, handler},
    rows,
    schema::{CREATED_AT, NAME, OWNER, REVISION, read, row_object},
    shared_fields,
};
use crate::{api_error::ApiError, response::ApiResponse};

static ACCOUNT: Object = row_object!(
    AccountInput,
    [read("id", Kind::Id("acc_"), "Id."), read("channel", NAME, "Its channel.")],
    [OWNER, CREATED_AT, REVISION]
);
/// Accounts of a new channel.
pub(super) const LIST: Kind = Kind::List { of: &Kind::Object(&ACCOUNT), most: 1_000 };

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

fn show(channel: &str, row: &StoredRow, spec: AccountSpec) -> Value {
    let mut members = shared_fields::row_of(row);
    members.insert("channel".to_owned(), channel.into());
    members.extend(whole(&AccountInput { spec, credential: None }));
    Value::Object(members)
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
    Ok(paging::page(rows, context.limit(), |(_, row)| row.id.clone(), |(spec, row)| show(&channel.name, row, spec.clone())))
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let row = rows::find(&context, RowKind::Account, Some(&channel.id), context.path_param("account")).await?;
    Ok(ApiResponse::ok(show(&channel.name, &row, row.read()?)).revision(row.revision))
}

async fn make(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let mut account = AccountInput::blank();
    check::write(&context.body.0, &mut account)?;
    let AccountInput { spec: account, credential } = account;
    let name = account.name.clone();
    let mut changes = Vec::from_iter(context.idempotency_change()?);
    changes.push(Change::ExpectNew { kind: RowKind::Account, parent: channel.name.clone(), name: name.clone() });
    changes.push(Change::PutAccount { channel: channel.name.clone(), account, credential });
    if let ApplyOutcome::Replayed(id) = context.apply(&changes).await? {
        let row = rows::find(&context, RowKind::Account, Some(&channel.id), &id).await?;
        let answer = ApiResponse::ok(show(&channel.name, &row, row.read()?)).revision(row.revision);
        return Ok(answer.header("idempotent-replayed", "true"));
    }
    let row = rows::written(&context, RowKind::Account, Some(&channel.id), &name).await?;
    Ok(ApiResponse::created(show(&channel.name, &row, row.read()?)).revision(row.revision))
}

async fn change(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let row = rows::edit(&context, RowKind::Account, Some(&channel.id), context.path_param("account"), |row| {
        let mut account = AccountInput { spec: row.read()?, credential: None };
        check::write(&context.body.0, &mut account)?;
        let AccountInput { spec: account, credential } = account;
        Ok(vec![Change::PutAccount { channel: channel.name.clone(), account, credential }])
    })
    .await?;
    Ok(ApiResponse::ok(show(&channel.name, &row, row.read()?)).revision(row.revision))
}

async fn remove(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    rows::edit(&context, RowKind::Account, Some(&channel.id), context.path_param("account"), |row| {
        Ok(vec![Change::RemoveAccount { channel: channel.name.clone(), account: row.name.clone() }])
    })
    .await?;
    Ok(ApiResponse::no_content())
}
