//! Several channels in one request: changed or removed together, all of them or none.

use std::collections::HashSet;

use http::StatusCode;
use serde_json::{Map, Value, json};
use tollgate_core::{AccountSpec, ChannelSpec, Multiplier, Owner};
use tollgate_store::{
    AdminScope, Change, ChangeRefusal, ChangeRefused, RowFilter, RowKind, StoredRow,
    fields::{AccountInput, FieldShape, FieldValue as _, Kind, Object, Row, WriteMode, check_row},
};

use super::{CHANNEL, ChannelResource};
use crate::{
    api::{
        check,
        named_resource::{CurrentRow, NamedResource as _, object, require_admin},
        request_context::{InputFields, RequestContext},
        route::{Method, Needs, Resource, ResponseSchema, Route, handler},
        rows,
        schema::{NAME, both, count, join, needed},
    },
    api_error::ApiError,
    response::ApiResponse,
};

/// Maximum number of channels in one request.
pub(crate) const MAX_CHANNELS: usize = 100;
/// Maximum number of accounts that one request writes.
const MAX_ACCOUNTS: u32 = 1_000;
/// Attempts to change channels that are changed concurrently.
const MAX_ATTEMPTS: u32 = 5;

const CHANNELS: FieldShape =
    needed("channels", Kind::List { of: &NAME, max: MAX_CHANNELS }, "The channels, by name or id: 1 to 100.");
/// The fields of a channel except its name, which comes first in the table.
const CHANNEL_FIELDS: &[FieldShape] = ChannelSpec::OBJECT.fields.split_at(1).1;
const CHANGE_LISTS: &[&[FieldShape]] = &[
    &[CHANNELS],
    CHANNEL_FIELDS,
    &[both("account", Kind::Object(&ACCOUNT_LIMITS), "Written to every account of these channels, at most 1,000.")],
];
static CHANGE_FIELDS: [FieldShape; count(CHANGE_LISTS)] = join(CHANGE_LISTS);

static ACCOUNT_LIMITS: Object = Object::of(
    "AccountLimits",
    &[
        both("rpm", u32::KIND, "Requests per minute; 0: unlimited."),
        both("tpm", u64::KIND, "Tokens per minute; 0: unlimited."),
        both("concurrency", u32::KIND, "Concurrent requests; 0: unlimited."),
        both("cost_multiplier", Multiplier::KIND, "Factor on the channel's cost prices."),
    ],
);
static CHANGE: Object = Object::of("ChannelsChange", &CHANGE_FIELDS);
static REMOVAL: Object = Object::of("ChannelRemoval", &[CHANNELS]);

const RESOURCE: Resource = Resource { tag: "channels", needs: Needs::Scope(AdminScope::Operator) };

pub(in crate::api) static ROUTES: &[Route] = &[
    RESOURCE
        .route(
            Method::Patch,
            "/admin/v1/channels",
            "change_channels",
            "Changes the fields that are sent in several channels: in all of them or in none.",
            handler!(change),
        )
        .takes(&CHANGE, WriteMode::Create)
        .returns(ResponseSchema::Page(&CHANNEL)),
    RESOURCE
        .route(
            Method::Post,
            "/admin/v1/channel-removals",
            "remove_channels",
            "Removes several channels with their accounts: all of them or none. Usage keeps their names.",
            handler!(remove),
        )
        .takes(&REMOVAL, WriteMode::Create),
];

/// The operation on each channel of a request.
pub(in crate::api) enum Action {
    /// Writes fields to the channel and to every account of it.
    Write {
        channel: Map<String, Value>,
        account: Map<String, Value>,
    },
    Remove,
    /// Sets the proxy of each channel, in the order of the request.
    Proxies(Vec<Value>),
}

impl Action {
    fn write(body: &InputFields) -> Result<Self, ApiError> {
        let other = |name: &str| name != "channels" && name != "account";
        let channel: Map<_, _> = body.0.clone().into_iter().filter(|(name, _)| other(name)).collect();
        let account = body.0.get("account").map(InputFields::of).unwrap_or_default().0;
        if channel.is_empty() && account.is_empty() {
            let error = ApiError::invalid("missing_required_parameter", "channels", "No field to change was sent.");
            return Err(error.because("nothing_filled"));
        }
        Ok(Self::Write { channel, account })
    }
}

async fn change(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let names = names(&context.body);
    apply(&context, &names, &Action::write(&context.body)?).await?;
    let found = Found::of(&context, &names).await?;
    let show = |(_, row): &(usize, StoredRow)| -> Result<Value, ApiError> {
        Ok(Value::Object(object::<ChannelResource>(row, &row.read()?)))
    };
    let items = found.rows.iter().map(show).collect::<Result<Vec<Value>, ApiError>>()?;
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}

async fn remove(context: RequestContext) -> Result<ApiResponse, ApiError> {
    apply(&context, &names(&context.body), &Action::Remove).await?;
    Ok(ApiResponse::no_content())
}

/// The names or ids of a request.
fn names(body: &InputFields) -> Vec<&str> {
    body.list("channels").into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Applies the changes of every channel as one batch. A channel that was changed concurrently is read again.
pub(in crate::api) async fn apply(context: &RequestContext, names: &[&str], action: &Action) -> Result<(), ApiError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let Found { rows, mut faults } = Found::of(context, names).await?;
        if matches!(action, Action::Proxies(_)) && rows.len() + faults.len() < names.len() {
            return Err(ApiError::value("channels", "a channel occurs twice"));
        }
        // If every channel has the same fault, the fault is in the request.
        let all = if faults.is_empty() { rows.len() } else { usize::MAX };
        let mut changes = Vec::new();
        for (place, row) in &rows {
            changes.push(Change::ExpectRow { kind: RowKind::Channel, id: row.id.clone(), revision: row.revision });
            match changes_of(context, action, *place, row).await {
                Ok(more) => changes.extend(more),
                Err(error) if error.status.is_client_error() => faults.push((row.name.clone(), error)),
                Err(error) => return Err(error),
            }
        }
        ApiError::check_rows(faults, all)?;
        let accounts = changes.iter().filter(|change| matches!(change, Change::PutAccount { .. })).count();
        if accounts > MAX_ACCOUNTS as usize {
            return Err(ApiError::value("account", "the channels have more than 1,000 accounts; choose fewer channels"));
        }
        match context.apply(&changes).await {
            Err(error) if error.is_stale() && tries < MAX_ATTEMPTS => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
}

/// The channels that names or ids refer to.
struct Found {
    /// Each channel once, with its index among the names.
    rows: Vec<(usize, StoredRow)>,
    /// Channels that cannot be changed, with the reason.
    faults: Vec<(String, ApiError)>,
}

impl Found {
    /// A missing channel is reported by its index, because the sent name may be a secret.
    async fn of(context: &RequestContext, names: &[&str]) -> Result<Self, ApiError> {
        let (mut found, mut seen) = (Self { rows: Vec::new(), faults: Vec::new() }, HashSet::new());
        for (place, name) in names.iter().enumerate() {
            match rows::find(context, RowKind::Channel, None, name).await {
                Ok(row) if !seen.insert(row.id.clone()) => {}
                Ok(row) if row.owner == Owner::File => found.faults.push((row.name.clone(), of_file(context, row.name))),
                Ok(row) => found.rows.push((place, row)),
                Err(error) if error.status == StatusCode::NOT_FOUND => {
                    found.faults.push((format!("channels[{place}]"), error.because("unknown_channel")));
                }
                Err(error) => return Err(error),
            }
        }
        if names.is_empty() {
            return Err(ApiError::value("channels", "expected at least one channel"));
        }
        Ok(found)
    }
}

fn of_file(context: &RequestContext, name: String) -> ApiError {
    let refused = ChangeRefused { kind: RowKind::Channel, name, reason: ChangeRefusal::OwnedByFile };
    ApiError::refused(&refused, context.state.catalog_file.as_deref())
}

/// The changes of one channel, checked as those of a request about it alone.
async fn changes_of(context: &RequestContext, action: &Action, place: usize, row: &StoredRow) -> Result<Vec<Change>, ApiError> {
    match action {
        Action::Write { channel, account } => {
            let mut changes = Vec::new();
            if !channel.is_empty() {
                changes.push(channel_change(context, channel, row).await?);
            }
            if !account.is_empty() {
                changes.extend(account_changes(context, account, row).await?);
            }
            Ok(changes)
        }
        Action::Proxies(proxies) => {
            let proxy = proxies.get(place).cloned().unwrap_or_default();
            Ok(vec![channel_change(context, &Map::from_iter([("proxy".to_owned(), proxy)]), row).await?])
        }
        Action::Remove => Ok(vec![ChannelResource::remove(row.name.clone())]),
    }
}

async fn channel_change(context: &RequestContext, fields: &Map<String, Value>, row: &StoredRow) -> Result<Change, ApiError> {
    let keeps_secrets = ChannelResource::keeps_secrets(context, row).await?;
    let before = CurrentRow { spec: row.read::<ChannelSpec>()?, keeps_secrets };
    let mut spec = before.spec.clone();
    check::write(fields, &mut spec)?;
    check_alone(&spec)?;
    require_admin(context, &before.spec, &spec)?;
    ChannelResource::allowed(context, Some(&before), &spec)?;
    Ok(ChannelResource::put(spec))
}

/// Runs the store's checks on one row. For a batch, the store would not report which of its rows has a fault.
fn check_alone<R: Row>(row: &R) -> Result<(), ApiError> {
    match check_row(row).first() {
        Some(problem) => Err(ApiError::value(problem.field, &problem.message)),
        None => Ok(()),
    }
}

/// Writes fields to every account of a channel.
async fn account_changes(context: &RequestContext, fields: &Map<String, Value>, row: &StoredRow) -> Result<Vec<Change>, ApiError> {
    let mut changes = Vec::new();
    let accounts = RowFilter { parent: Some(row.id.clone()), ..RowFilter::of(RowKind::Account, MAX_ACCOUNTS + 1) };
    for account in context.with_query_timeout(context.state.store.listing.page(&accounts)).await? {
        let mut input = AccountInput { spec: account.read::<AccountSpec>()?, credential: None };
        check::write(fields, &mut input).map_err(|error| error.below("account"))?;
        check_alone(&input).map_err(|error| error.below("account"))?;
        changes.push(Change::ExpectRow { kind: RowKind::Account, id: account.id.clone(), revision: account.revision });
        changes.push(Change::PutAccount { channel: row.name.clone(), account: input.spec, credential: None });
    }
    Ok(changes)
}
