//! Accounts under a channel. Responses never contain the credential.

use serde_json::Value;
use tollgate_core::{AccountId, AccountSpec, Catalog};
use tollgate_store::{
    AdminScope, Change, RowKind, StoredRow,
    fields::{AccountInput, FieldShape, Kind, Object, Row as _, WriteMode, whole},
};

use super::{
    check,
    request_context::{ApplyOutcome, RequestContext},
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{CREATED_AT, NAME, OWNER, REVISION, read, row_object},
};
use crate::{api_error::ApiError, response::ApiResponse};

static ACCOUNT: Object = row_object!(
    AccountInput,
    [read("id", Kind::Id("acc_"), "Id."), read("channel", NAME, "Its channel.")],
    [CREDENTIAL_END, OWNER, CREATED_AT, REVISION]
);
/// The last characters of a credential, to distinguish credentials.
pub(super) const CREDENTIAL_END: FieldShape = read(
    "credential_end",
    Kind::Text { min: 1, max: 4 },
    "Last four characters of the credential, a moment after it was stored; null: it has none, or one shorter than 16 characters.",
)
.or_null();
/// Accounts of a new channel.
pub(super) const LIST: Kind = Kind::List { of: &Kind::Object(&ACCOUNT), max: 1_000 };

const RESOURCE: Resource = Resource { tag: "accounts", needs: Needs::Scope(AdminScope::Operator) };
const ALL: &str = "/admin/v1/channels/{name}/accounts";
const ONE: &str = "/admin/v1/channels/{name}/accounts/{account}";

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(Method::Get, ALL, "list_accounts", "The accounts of a channel.", handler!(list))
        .query(&[LIMIT, AFTER])
        .returns(ResponseSchema::Page(&ACCOUNT)),
    RESOURCE
        .route(Method::Post, ALL, "make_account", "Makes an account.", handler!(make))
        .takes(&ACCOUNT, WriteMode::Create)
        .once()
        .returns(ResponseSchema::Created(&ACCOUNT)),
    RESOURCE
        .route(Method::Get, ONE, "get_account", "One account, by name or id.", handler!(one))
        .returns(ResponseSchema::Object(&ACCOUNT)),
    RESOURCE
        .route(Method::Patch, ONE, "change_account", "Changes what is sent; the rest stays, the credential too.", handler!(change))
        .takes(&ACCOUNT, WriteMode::Update)
        .at_revision()
        .returns(ResponseSchema::Object(&ACCOUNT)),
    RESOURCE
        .route(Method::Delete, ONE, "remove_account", "Removes an account. Usage keeps its name.", handler!(remove))
        .at_revision(),
];

/// The end of an account's credential in the catalog in force.
pub(super) fn credential_end<'a>(catalog: &'a Catalog, row: &StoredRow) -> Option<&'a str> {
    let (_, account) = catalog.account(AccountId::parse(&row.id)?)?;
    account.credential.as_ref()?.end()
}

fn show(channel: &str, row: &StoredRow, spec: AccountSpec, catalog: &Catalog) -> Value {
    let mut members = rows::object(row);
    members.insert("channel".to_owned(), channel.into());
    members.insert("credential_end".to_owned(), credential_end(catalog, row).into());
    members.extend(whole(&AccountInput { spec, credential: None }));
    Value::Object(members)
}

async fn shown(context: &RequestContext, channel: &StoredRow, row: &StoredRow) -> Result<ApiResponse, ApiError> {
    let catalog = context.state.gateway.catalog().await?;
    Ok(ApiResponse::ok(show(&channel.name, row, row.read()?, &catalog)).revision(row.revision))
}

async fn channel(context: &RequestContext) -> Result<StoredRow, ApiError> {
    rows::find(context, RowKind::Channel, None, context.path_param("name")).await
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let mut filter = rows::filter(&context, RowKind::Account)?;
    filter.parent = Some(channel.id);
    let catalog = context.state.gateway.catalog().await?;
    rows::list(&context, &filter, |row, spec: &AccountSpec| show(&channel.name, row, spec.clone(), &catalog)).await
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let row = rows::find(&context, RowKind::Account, Some(&channel.id), context.path_param("account")).await?;
    shown(&context, &channel, &row).await
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
        return Ok(shown(&context, &channel, &row).await?.header("idempotent-replayed", "true"));
    }
    let row = rows::written(&context, RowKind::Account, Some(&channel.id), &name).await?;
    let catalog = context.state.gateway.catalog().await?;
    Ok(ApiResponse::created(show(&channel.name, &row, row.read()?, &catalog)).revision(row.revision))
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
    shown(&context, &channel, &row).await
}

async fn remove(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    rows::edit(&context, RowKind::Account, Some(&channel.id), context.path_param("account"), |row| {
        Ok(vec![Change::RemoveAccount { channel: channel.name.clone(), account: row.name.clone() }])
    })
    .await?;
    Ok(ApiResponse::no_content())
}
