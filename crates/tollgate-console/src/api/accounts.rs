//! Accounts under a channel. Responses never contain the credential.

use std::collections::HashSet;

use serde_json::{Value, json};
use tollgate_core::{AccountId, AccountSpec, Catalog};
use tollgate_store::{
    AdminScope, Change, RowKind, StoredRow,
    fields::{AccountInput, FieldShape, Kind, Object, Row as _, WriteMode, whole},
};

use super::{
    check,
    request_context::{ApplyOutcome, InputFields, RequestContext},
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{CREATED_AT, NAME, OWNER, REVISION, needed, read, row_object},
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

/// Maximum number of accounts that one request makes.
const MAX_AT_ONCE: usize = 100;
static SEVERAL: Object = Object::of(
    "NewAccounts",
    &[needed("accounts", Kind::List { of: &Kind::Object(&ACCOUNT), max: MAX_AT_ONCE }, "The accounts: 1 to 100.")],
);

const RESOURCE: Resource = Resource { tag: "accounts", needs: Needs::Scope(AdminScope::Operator) };
const ALL: &str = "/admin/v1/channels/{name}/accounts";
const NEW: &str = "/admin/v1/channels/{name}/new-accounts";
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
        .route(Method::Post, NEW, "make_accounts", "Makes several accounts: all of them or none.", handler!(make_several))
        .takes(&SEVERAL, WriteMode::Create)
        .returns(ResponseSchema::Page(&ACCOUNT)),
    RESOURCE
        .route(Method::Get, ONE, "get_account", "One account, by name or id.", handler!(one))
        .returns(ResponseSchema::Object(&ACCOUNT)),
    RESOURCE
        .route(
            Method::Patch,
            ONE,
            "change_account",
            "Changes the fields that are sent; the others, such as the credential, are unchanged.",
            handler!(change),
        )
        .takes(&ACCOUNT, WriteMode::Update)
        .at_revision()
        .returns(ResponseSchema::Object(&ACCOUNT)),
    RESOURCE
        .route(Method::Delete, ONE, "remove_account", "Removes an account. Usage keeps its name.", handler!(remove))
        .at_revision(),
];

/// The last characters of an account's credential in the catalog in force.
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

/// The accounts of a body, whose names must differ.
fn several(body: &InputFields) -> Result<Vec<AccountInput>, ApiError> {
    let mut names = HashSet::new();
    let items = body.list("accounts").into_iter().flatten().enumerate();
    let accounts = items.map(|(i, item)| {
        let (at, mut account) = (format!("accounts[{i}]"), AccountInput::blank());
        check::write(&InputFields::of(item).0, &mut account).map_err(|error| error.below(&at))?;
        if !names.insert(account.spec.name.clone()) {
            return Err(ApiError::value(&format!("{at}.name"), "another account of the request has this name"));
        }
        Ok(account)
    });
    let accounts: Vec<AccountInput> = accounts.collect::<Result<_, ApiError>>()?;
    if accounts.is_empty() { Err(ApiError::value("accounts", "expected 1 to 100 accounts")) } else { Ok(accounts) }
}

async fn make_several(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = channel(&context).await?;
    let (mut names, mut changes) = (Vec::new(), Vec::new());
    for AccountInput { spec: account, credential } in several(&context.body)? {
        let (parent, name) = (channel.name.clone(), account.name.clone());
        names.push(name.clone());
        changes.push(Change::ExpectNew { kind: RowKind::Account, parent, name });
        changes.push(Change::PutAccount { channel: channel.name.clone(), account, credential });
    }
    context.apply(&changes).await?;
    let catalog = context.state.gateway.catalog().await?;
    let mut items = Vec::new();
    for name in &names {
        let row = rows::written(&context, RowKind::Account, Some(&channel.id), name).await?;
        items.push(show(&channel.name, &row, row.read()?, &catalog));
    }
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
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
