//! Budgets with current spending. They are fields of rows; these routes list them together, and replace them without the rest
//! of the row.

use serde_json::{Value, json};
use tollgate_core::{Budget, ChannelId, ChannelSpec, GroupId, KeyId, MemberId, Subject};
use tollgate_store::{
    AdminScope, Change, GroupSpec, KeySpec, MemberSpec, RowKind, StoredRow,
    fields::{Access, BUDGET, FieldValue as _, Kind, Object, WriteMode, whole},
};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{TEXT, USD, needed, read, row_object},
};
use crate::{api_error::ApiError, response::ApiResponse};

const SUBJECTS: Kind = Kind::Word(&["key", "member", "group", "channel", "gateway"]);

static BUDGET_STATE: Object = Object {
    name: "BudgetState",
    ..row_object!(
        Budget,
        [
            read("subject", SUBJECTS, "Kind of the row."),
            read("id", TEXT, "Id of the row; empty for the gateway."),
            read("name", TEXT, "Name of the row.")
        ],
        [read("spent", USD, "Amount spent in USD, running requests included; of a channel: cost.")]
    )
};
static BUDGETS: Object = Object::of("Budgets", &[BUDGET.with(Access::Required)]);

const RESOURCE: Resource = Resource { tag: "budgets", needs: Needs::Scope(AdminScope::Operator) };
const READ: Resource = Resource { needs: Needs::Own { all: AdminScope::Operator }, ..RESOURCE };

pub(super) static ROUTES: &[Route] = &[
    READ.route(
        Method::Get,
        "/admin/v1/budgets",
        "list_budgets",
        "Budgets of one kind of subject. A page reads `limit` rows; rows without a budget give no items.",
        handler!(list),
    )
    .query(&[LIMIT, AFTER, needed("subject", SUBJECTS, "Kind of subject.")])
    .returns(ResponseSchema::Page(&BUDGET_STATE)),
    RESOURCE
        .route(
            Method::Put,
            "/admin/v1/budgets/{subject}/{name}",
            "set_budgets",
            "Replaces the budgets of a key (by id), group, channel or member (admins). The gateway's own are settings.",
            handler!(set),
        )
        .takes(&BUDGETS, WriteMode::Create)
        .at_revision()
        .returns(ResponseSchema::Page(&BUDGET_STATE)),
];

fn kind_of(subject: &str) -> Option<RowKind> {
    RowKind::parse(subject).filter(|kind| matches!(kind, RowKind::Key | RowKind::Member | RowKind::Group | RowKind::Channel))
}

/// A row's budgets, and the subject that they are counted for.
fn budgets_of(kind: RowKind, row: &StoredRow) -> Result<(Option<Subject>, Vec<Budget>), ApiError> {
    Ok(match kind {
        RowKind::Key => (KeyId::parse(&row.id).map(Subject::Key), row.read::<KeySpec>()?.budgets),
        RowKind::Member => (MemberId::parse(&row.id).map(Subject::Member), row.read::<MemberSpec>()?.budgets),
        RowKind::Group => (GroupId::parse(&row.id).map(Subject::Group), row.read::<GroupSpec>()?.budgets),
        RowKind::Channel => (ChannelId::parse(&row.id).map(Subject::Channel), row.read::<ChannelSpec>()?.budgets),
        RowKind::Account | RowKind::Model | RowKind::AdminKey | RowKind::Setting | RowKind::AlertDestination => (None, Vec::new()),
    })
}

async fn show(
    context: &RequestContext,
    subject: Subject,
    (word, id, name): (&str, &str, &str),
    budget: &Budget,
) -> Result<Value, ApiError> {
    let spent = context.with_query_timeout(context.state.gateway.spent(subject, budget.window)).await?;
    let mut members = whole(budget);
    members.insert("subject".to_owned(), word.into());
    members.insert("id".to_owned(), id.into());
    members.insert("name".to_owned(), name.into());
    members.insert("spent".to_owned(), spent.to_usd_string().into());
    Ok(Value::Object(members))
}

async fn show_row(context: &RequestContext, kind: RowKind, row: &StoredRow) -> Result<Vec<Value>, ApiError> {
    let (subject, budgets) = budgets_of(kind, row)?;
    let Some(subject) = subject else { return Ok(Vec::new()) };
    let mut shown = Vec::with_capacity(budgets.len());
    for budget in &budgets {
        shown.push(show(context, subject, (kind.as_str(), &row.id, &row.name), budget).await?);
    }
    Ok(shown)
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let Some(kind) = kind_of(context.query.text("subject").unwrap_or_default()) else {
        let mut items = Vec::new();
        // The gateway's budgets belong to no member.
        let budgets = if context.is_caller_view() { Vec::new() } else { context.state.gateway.budgets() };
        for budget in budgets {
            items.push(show(&context, Subject::Gateway, ("gateway", "", "gateway"), &budget).await?);
        }
        return Ok(ApiResponse::ok(json!({"items": items, "next": null})));
    };
    let mut rows = context.with_query_timeout(context.state.store.listing.page(&rows::filter(&context, kind)?)).await?;
    let limit = context.limit() as usize;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(|row| row.id.clone()) } else { None };
    let mut items = Vec::new();
    for row in &rows {
        items.extend(show_row(&context, kind, row).await?);
    }
    Ok(ApiResponse::ok(json!({"items": items, "next": next})))
}

async fn set(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let subject = context.path_param("subject");
    let Some(kind) = kind_of(subject) else {
        if subject == "gateway" {
            let message = "the gateway's own budgets are the settings budget.day, budget.month and budget.total";
            return Err(ApiError::value("subject", message));
        }
        return Err(ApiError::not_found("budget subject"));
    };
    let sent = context.body.0.get(BUDGET.name).unwrap_or(&Value::Null);
    let budgets = Vec::<Budget>::read(sent).map_err(|error| ApiError::value(BUDGET.name, error))?;
    let row = rows::edit(&context, kind, None, context.path_param("name"), |row| {
        let budgets = budgets.clone();
        let change = match kind {
            RowKind::Key => Change::SetKeyBudgets { key: KeyId::parse(&row.id).ok_or_else(ApiError::internal)?, budgets },
            RowKind::Member => Change::PutMember(Box::new(MemberSpec { budgets, ..row.read()? })),
            RowKind::Group => Change::PutGroup(Box::new(GroupSpec { budgets, ..row.read()? })),
            RowKind::Channel => Change::PutChannel(Box::new(ChannelSpec { budgets, ..row.read()? })),
            RowKind::Account | RowKind::Model | RowKind::AdminKey | RowKind::Setting | RowKind::AlertDestination => {
                return Err(ApiError::internal());
            }
        };
        Ok(vec![change])
    })
    .await?;
    Ok(ApiResponse::ok(json!({"items": show_row(&context, kind, &row).await?, "next": null})).revision(row.revision))
}
