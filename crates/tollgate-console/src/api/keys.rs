//! Service keys: create, list, change, revoke. The key itself appears only in the response that creates it.

pub(super) mod key_use;
pub(super) mod own;
mod search;
pub(crate) mod self_service;

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use tollgate_core::{Budget, BudgetAction, KeyId, KeyStatus, MemberId, MemberStatus, PriceEffects, Subject, Timestamp};
use tollgate_store::{
    AdminScope, Change, KeySpec, MemberSpec, NewKey, RandomSource, RowFilter, RowKind, StoredRow,
    fields::{Access, FieldShape, KeyInput, Kind, Object, Row as _, WriteMode, whole},
};

use self::key_use::ShownUse;
use super::{
    check, previews,
    request_context::{ApplyOutcome, RequestContext},
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    row_names::rows_by_id,
    rows,
    schema::{CREATED_AT, NAME, OWNER, REVISION, TEXT, both, read, row_object},
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

/// State of a key, the most permanent first.
const STATES: [&str; 6] = ["revoked", "disabled", "expired", "member_suspended", "exhausted", "active"];

static KEY: Object = row_object!(
    KeyInput,
    [read("id", Kind::Id("key_"), "Id.")],
    [
        read(
            "state",
            Kind::Word(&STATES),
            "The present state, from `status`, `expires_at`, the member's status and the budgets. `exhausted`: a budget of the key or of its member that blocks is spent."
        ),
        read("prefix", TEXT, "The first characters of the key."),
        read("suffix", TEXT, "Its last characters."),
        read("previous_until", Kind::Time, "Until when the secret before the last rotation is also valid; null: there is none.")
            .or_null(),
        OWNER,
        CREATED_AT,
        read("revoked_at", Kind::Time, "When it was revoked.").or_null(),
        REVISION,
        read("key", TEXT, "The key itself, shown only once.").with(Access::ShownOnce),
        previews::WITH_ROW,
        previews::CUT_WITH_ROW,
        key_use::MONTH,
        key_use::TODAY,
        key_use::LAST_USED_AT,
        key_use::LAST_ADDRESS,
        self_service::LOCKED_BY,
    ]
);

static PRESENTED: Object = Object::of(
    "PresentedKey",
    &[read("key", Kind::Text { min: 16, max: 200 }, "The secret, as callers present it.").with(Access::Required)],
);

const RESOURCE: Resource = Resource { tag: "keys", needs: Needs::Scope(AdminScope::Operator) };
/// Access to read: members see their own keys, operators all keys.
const READ: Resource = Resource { needs: Needs::Own { all: AdminScope::Operator }, ..RESOURCE };

const MEMBER: FieldShape = both("member", NAME, "Of this member, by name or id.");
const NAMED: FieldShape = both("name", NAME, "Of this name.");
const REVOKED: FieldShape = both("revoked", Kind::Flag, "Revoked ones too.");

/// The parameters of the list.
const LIST: &[FieldShape] = &super::schema::join::<{ search::PARAMETERS.len() + 6 }>(&[
    &[
        LIMIT,
        AFTER,
        MEMBER,
        NAMED,
        REVOKED,
        both(
            "use",
            Kind::Flag,
            "With the use of each key in this UTC month and today, and its last request: `month`, `today`, `last_used_at`, `last_address`.",
        ),
    ],
    &search::PARAMETERS,
]);

/// The parameters of a sum: those of the list that select keys.
const SUMMARY: &[FieldShape] =
    &super::schema::join::<{ search::SELECTION.len() + 3 }>(&[&[MEMBER, NAMED, REVOKED], &search::SELECTION]);

pub(super) static ROUTES: &[Route] = &[
    READ.route(Method::Get, "/admin/v1/keys", "list_keys", "Service keys, oldest first.", handler!(list))
        .query(LIST)
        .returns(ResponseSchema::Page(&KEY)),
    READ.route(
        Method::Get,
        "/admin/v1/keys/summary",
        "sum_keys",
        "The total usage of all keys that a filter selects.",
        handler!(search::summary),
    )
    .query(SUMMARY)
    .returns(ResponseSchema::Object(&key_use::SUMMARY)),
    READ.route(Method::Post, "/admin/v1/keys", "make_key", "Makes a service key and shows it, only once.", handler!(make))
        .query(previews::QUERY)
        .takes(&KEY, WriteMode::Create)
        .once()
        .returns(ResponseSchema::Created(&KEY)),
    READ.route(
        Method::Post,
        "/admin/v1/find-key",
        "find_key",
        "The service key that a secret belongs to, also one that no longer works; the secret is not kept.",
        handler!(find),
    )
    .takes(&PRESENTED, WriteMode::Create)
    .returns(ResponseSchema::Object(&KEY)),
    READ.route(Method::Get, "/admin/v1/keys/{key}", "get_key", "One service key.", handler!(one))
        .returns(ResponseSchema::Object(&KEY)),
    RESOURCE
        .route(
            Method::Patch,
            "/admin/v1/keys/{key}",
            "change_key",
            "Changes the fields that are sent; the others are unchanged.",
            handler!(change),
        )
        .query(previews::QUERY)
        .takes(&KEY, WriteMode::Update)
        .at_revision()
        .returns(ResponseSchema::Object(&KEY)),
    READ.route(Method::Delete, "/admin/v1/keys/{key}", "revoke_key", "Ends a service key for good.", handler!(revoke))
        .at_revision()
        .returns(ResponseSchema::Object(&KEY)),
];

/// Inputs of a key's state besides its row.
struct Standing {
    now: Timestamp,
    /// Ids of suspended members.
    suspended: HashSet<String>,
    /// Ids of keys that have used up a budget of their own or of their member.
    exhausted: HashSet<String>,
}

impl Standing {
    /// For these rows.
    async fn of(context: &RequestContext, rows: &[&StoredRow]) -> Result<Self, ApiError> {
        let members = rows.iter().map(|row| row.parent.clone()).filter(|id| !id.is_empty()).collect();
        let (mut suspended, mut spent_members) = (HashSet::new(), HashSet::new());
        for (id, row) in rows_by_id(context, RowKind::Member, members).await? {
            let member = row.read::<MemberSpec>()?;
            if member.status == MemberStatus::Suspended {
                suspended.insert(id.clone());
            }
            if is_spent(context, MemberId::parse(&id).map(Subject::Member), &member.budgets).await? {
                spent_members.insert(id);
            }
        }
        let mut exhausted = HashSet::new();
        for row in rows {
            let of_member = spent_members.contains(&row.parent);
            let subject = KeyId::parse(&row.id).map(Subject::Key);
            if of_member || is_spent(context, subject, &row.read::<KeySpec>()?.budgets).await? {
                exhausted.insert(row.id.clone());
            }
        }
        Ok(Self { now: context.now(), suspended, exhausted })
    }

    fn state(&self, row: &StoredRow, spec: &KeySpec) -> &'static str {
        match spec.status {
            KeyStatus::Revoked => "revoked",
            KeyStatus::Disabled => "disabled",
            KeyStatus::Active if spec.expires_at.is_some_and(|end| end <= self.now) => "expired",
            KeyStatus::Active if self.suspended.contains(&row.parent) => "member_suspended",
            KeyStatus::Active if self.exhausted.contains(&row.id) => "exhausted",
            KeyStatus::Active => "active",
        }
    }
}

/// Whether a blocking budget is spent, including the reservations of running requests.
async fn is_spent(context: &RequestContext, subject: Option<Subject>, budgets: &[Budget]) -> Result<bool, ApiError> {
    let Some(subject) = subject else { return Ok(false) };
    for budget in budgets.iter().filter(|budget| budget.action == BudgetAction::Block) {
        if context.state.gateway.spent(subject, budget.window).await? >= budget.amount {
            return Ok(true);
        }
    }
    Ok(false)
}

fn show(row: &StoredRow, spec: &KeySpec, standing: &Standing) -> Map<String, Value> {
    let mut spec = spec.clone();
    if row.removed_at.is_some() {
        spec.status = KeyStatus::Revoked;
    }
    let (prefix, suffix) = row.shown.clone().unwrap_or_default();
    let mut members = rows::object(row);
    members.insert("state".to_owned(), standing.state(row, &spec).into());
    members.extend(whole(&KeyInput { spec, secret: None }));
    members.insert("prefix".to_owned(), prefix.into());
    members.insert("suffix".to_owned(), suffix.into());
    let previous_until = row.previous_until.filter(|until| *until > standing.now);
    members.insert("previous_until".to_owned(), json!(previous_until.map(time_value)));
    members.insert("revoked_at".to_owned(), json!(row.removed_at.map(time_value)));
    members
}

async fn shown(context: &RequestContext, row: &StoredRow) -> Result<ApiResponse, ApiError> {
    let standing = Standing::of(context, &[row]).await?;
    Ok(ApiResponse::ok(show(row, &row.read()?, &standing)).revision(row.revision))
}

/// The spec with the fields of the body.
fn changed(context: &RequestContext, spec: KeySpec) -> Result<KeySpec, ApiError> {
    let mut key = KeyInput { spec, secret: None };
    check::write(&context.body.0, &mut key)?;
    Ok(key.spec)
}

/// The rows that a request selects, without the conditions of a search.
async fn row_filter(context: &RequestContext) -> Result<RowFilter, ApiError> {
    let mut filter = rows::filter(context, RowKind::Key)?;
    filter.removed = context.query.flag("revoked");
    if let Some(member) = context.query.text("member") {
        filter.parent = Some(rows::find(context, RowKind::Member, None, member).await?.id);
    }
    Ok(filter)
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let filter = row_filter(&context).await?;
    if search::is_asked(&context.query) {
        return search::search(&context, filter).await;
    }
    let rows = context.with_query_timeout(context.state.store.listing.page(&filter)).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(KeySpec, StoredRow)>, ApiError>>()?;
    let standing = Standing::of(&context, &rows.iter().map(|(_, row)| row).collect::<Vec<_>>()).await?;
    let used = if wants_use(&context) {
        let keys = key_use::ids(rows.iter().map(|(_, row)| row.id.as_str()));
        Some(ShownUse::of(&context, member_of(&filter), keys, None).await?)
    } else {
        None
    };
    let show = |(spec, row): &(KeySpec, StoredRow)| with_use(show(row, spec, &standing), row, used.as_ref());
    Ok(rows::page(rows, context.limit(), |(_, row)| row.id.clone(), show))
}

fn wants_use(context: &RequestContext) -> bool {
    context.query.0.get("use").is_some_and(|wanted| wanted == true)
}

/// The member whose keys are listed.
fn member_of(filter: &RowFilter) -> Option<MemberId> {
    filter.parent.as_deref().and_then(MemberId::parse)
}

/// A key, with its usage if requested.
fn with_use(mut shown: Map<String, Value>, row: &StoredRow, used: Option<&ShownUse>) -> Value {
    if let Some(used) = used {
        used.add_to(&mut shown, &row.id);
    }
    shown.into()
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    show_one(&context, context.path_param("key")).await
}

/// A key, with the reasons why its member may not change it.
async fn show_one(context: &RequestContext, id: &str) -> Result<ApiResponse, ApiError> {
    let row = rows::find(context, RowKind::Key, None, id).await?;
    let spec = row.read()?;
    let mut shown = show(&row, &spec, &Standing::of(context, &[&row]).await?);
    let locked_by = self_service::locked_by(context, &row, &spec).await?;
    shown.insert(self_service::LOCKED_BY.name.to_owned(), json!(locked_by));
    Ok(ApiResponse::ok(shown).revision(row.revision))
}

/// The key that a secret belongs to, for a person who found the secret. Members find only their own keys.
async fn find(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let presented = context.body.text("key").unwrap_or_default();
    let hash = context.state.store.hasher.hash(presented);
    let found = context.with_query_timeout(context.state.store.keys.find(&hash)).await?;
    let key = found.ok_or_else(|| ApiError::not_found(RowKind::Key))?;
    show_one(&context, &key.id.to_string()).await
}

async fn make(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let mut spec = changed(&context, KeyInput::blank().spec)?;
    rows::require_future(&context, "expires_at")?;
    let own = self_service::may_make(&context, &spec).await?;
    if spec.member.is_empty() {
        spec.member = own.clone().unwrap_or_else(|| "owner".to_owned());
    }
    let new = NewKey::generate(&RandomSource::system());
    let secret = Some(new.secret(&context.state.store.hasher));
    let (member, name) = (spec.member.clone(), spec.name.clone());
    let mut changes = Vec::from_iter(context.idempotency_change()?);
    changes.push(Change::ExpectNew { kind: RowKind::Key, parent: member.clone(), name: name.clone() });
    if own.is_some() {
        // Checked again in the transaction: the member may be making other keys at this moment.
        changes.push(Change::ExpectFewerKeys { member: member.clone(), than: self_service::MAX_OWN_KEYS });
    }
    changes.push(Change::PutKey { key: Box::new(spec.clone()), secret });
    // Effects name accounts, which members do not see.
    let effects = if own.is_some() { PriceEffects::default() } else { previews::preview_effects(&context, &changes).await? };
    if previews::is_dry_run(&context) {
        let row = StoredRow::draft(RowKind::Key, rows::prefix(RowKind::Key), &name, context.now());
        // A draft has no member or budgets to look up.
        let standing = Standing::of(&context, &[]).await?;
        return Ok(ApiResponse::ok(previews::beside(show(&row, &spec, &standing), &effects)));
    }
    let applied = if own.is_some() { context.apply_as(&context.actor(), &changes).await? } else { context.apply(&changes).await? };
    if let ApplyOutcome::Replayed(id) = applied {
        let row = rows::find(&context, RowKind::Key, None, &id).await?;
        return Ok(shown(&context, &row).await?.header("idempotent-replayed", "true"));
    }
    let member = rows::written(&context, RowKind::Member, None, &member).await?;
    let row = rows::written(&context, RowKind::Key, Some(&member.id), &name).await?;
    let mut shown = show(&row, &row.read()?, &Standing::of(&context, &[&row]).await?);
    shown.insert("key".to_owned(), new.expose_once().into());
    Ok(ApiResponse::created(previews::beside(shown, &effects)).revision(row.revision))
}

async fn change(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let written = |row: &StoredRow| {
        if row.removed_at.is_some() {
            return Err(ApiError::conflict("key_revoked", "The key is revoked permanently; create a new key."));
        }
        changed(&context, row.read()?)
    };
    let put = |spec: KeySpec| vec![Change::PutKey { key: Box::new(spec), secret: None }];
    let row = rows::find(&context, RowKind::Key, None, context.path_param("key")).await?;
    let spec = written(&row)?;
    let effects = previews::preview_effects(&context, &put(spec.clone())).await?;
    if previews::is_dry_run(&context) {
        let standing = Standing::of(&context, &[&row]).await?;
        return Ok(ApiResponse::ok(previews::beside(show(&row, &spec, &standing), &effects)).revision(row.revision));
    }
    let row = rows::edit(&context, RowKind::Key, None, context.path_param("key"), |row| Ok(put(written(row)?))).await?;
    let standing = Standing::of(&context, &[&row]).await?;
    Ok(ApiResponse::ok(previews::beside(show(&row, &row.read()?, &standing), &effects)).revision(row.revision))
}

async fn revoke(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (row, key) = self_service::changeable(&context).await?;
    let expected = context.if_match()?.map(|revision| Change::ExpectRow { kind: RowKind::Key, id: row.id.clone(), revision });
    let changes: Vec<Change> = expected.into_iter().chain([Change::RevokeKey { key }]).collect();
    context.apply_as(&context.actor(), &changes).await?;
    shown(&context, &rows::find(&context, RowKind::Key, None, &row.id).await?).await
}
