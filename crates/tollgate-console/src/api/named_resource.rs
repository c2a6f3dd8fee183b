//! Resources of named rows (channels, models, groups and members): a unique name, one spec, and the same five routes.

use std::future::Future;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tollgate_core::PriceEffects;
use tollgate_store::{
    AdminScope, Change, RowFilter, RowKind, RowSearch, StoredRow,
    fields::{FieldShape, Row, admin_changes, whole},
};

use super::{
    check, previews,
    request_context::{ApplyOutcome, InputFields, RequestContext},
    route::{AFTER, LIMIT},
    rows,
    schema::{MODEL_NAME, both},
};
use crate::{api_error::ApiError, response::ApiResponse};

/// Query parameter that selects by name.
pub(super) const NAMED: FieldShape = both("name", MODEL_NAME, "Of this name.");

/// A resource of named rows.
pub(super) trait NamedResource: Sized + Send + Sync {
    type Spec: Row + Clone + DeserializeOwned + Send + Sync;
    const KIND: RowKind;

    /// Query parameters of the list.
    const LIST_QUERY: &'static [FieldShape] = &[LIMIT, AFTER, NAMED];

    /// Query parameters of a change.
    const CHANGE_QUERY: &'static [FieldShape] = &[];

    /// Whether price limits are evaluated before a change, and answers have the effects.
    const HAS_EFFECTS: bool = false;

    /// Answers the list.
    fn list(context: RequestContext) -> impl Future<Output = Result<ApiResponse, ApiError>> + Send {
        list_rows::<Self>(context)
    }

    fn put(spec: Self::Spec) -> Change;

    fn remove(name: String) -> Change;

    /// The row that the fields of a creating request are written to.
    fn blank(_sent: &InputFields) -> Self::Spec {
        Self::Spec::blank()
    }

    /// Further changes in the batch that creates a row, such as adding a channel's accounts.
    fn related_changes(_context: &RequestContext, _spec: &Self::Spec) -> Result<Vec<Change>, ApiError> {
        Ok(Vec::new())
    }

    /// Changes of other rows in the batch that creates or edits the row `name`, such as adding a channel to groups.
    fn changes_of_other_rows(_context: &RequestContext, _name: &str) -> impl Future<Output = Result<Vec<Change>, ApiError>> + Send {
        async { Ok(Vec::new()) }
    }

    /// Further changes in the batch that edits a row, such as recording that a price was set by hand.
    fn changes_beside(_sent: &InputFields, _before: &Self::Spec, _after: &Self::Spec) -> Vec<Change> {
        Vec::new()
    }

    /// Checks whether the principal may make this change; `before` is `None` for a new row.
    fn allowed(_context: &RequestContext, _before: Option<&CurrentRow<Self::Spec>>, _after: &Self::Spec) -> Result<(), ApiError> {
        Ok(())
    }

    /// Whether secrets are stored with the row. A change of its URL would send them to another server.
    fn keeps_secrets(_context: &RequestContext, _row: &StoredRow) -> impl Future<Output = Result<bool, ApiError>> + Send {
        async { Ok(false) }
    }
}

/// A row before a change.
pub(super) struct CurrentRow<T> {
    pub(super) spec: T,
    /// As [`NamedResource::keeps_secrets`] returned.
    pub(super) keeps_secrets: bool,
}

/// A row as answers have it.
pub(super) fn object<R: NamedResource>(row: &StoredRow, spec: &R::Spec) -> Map<String, Value> {
    let mut members = rows::object(row);
    members.extend(whole(spec));
    members
}

fn shown<R: NamedResource>(row: &StoredRow) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(Value::Object(object::<R>(row, &row.read()?))).revision(row.revision))
}

/// Rejects changes by operators to fields that the table reserves for admins.
pub(super) fn require_admin<T: Row>(context: &RequestContext, before: &T, after: &T) -> Result<(), ApiError> {
    admin_changes(before, after).first().map_or(Ok(()), |field| context.require_admin(&format!("Setting {field}")))
}

pub(super) async fn list<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    R::list(context).await
}

/// The rows of a resource, in the order in which they were made.
pub(super) async fn list_rows<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    rows::list(&context, &row_filter::<R>(&context)?, |row, spec| object::<R>(row, spec).into()).await
}

/// The rows that the query selects.
pub(super) fn row_filter<R: NamedResource>(context: &RequestContext) -> Result<RowFilter, ApiError> {
    let mut filter = rows::filter(context, R::KIND)?;
    filter.search = context.query.text("search").map(|part| RowSearch {
        part: part.to_owned(),
        // Only admins may search the addresses of others.
        in_emails: R::KIND == RowKind::Member && context.principal.scope() == AdminScope::Admin,
    });
    Ok(filter)
}

pub(super) async fn one<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    shown::<R>(&rows::find(&context, R::KIND, None, context.path_param("name")).await?)
}

pub(super) async fn make<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let blank = R::blank(&context.body);
    let mut spec = blank.clone();
    check::write(&context.body.0, &mut spec)?;
    require_admin(&context, &blank, &spec)?;
    R::allowed(&context, None, &spec)?;
    let name = context.body.text("name").unwrap_or_default().to_owned();
    let mut changes = Vec::from_iter(context.idempotency_change()?);
    changes.push(Change::ExpectNew { kind: R::KIND, parent: String::new(), name: name.clone() });
    let along = R::related_changes(&context, &spec)?;
    changes.push(R::put(spec.clone()));
    changes.extend(along);
    changes.extend(R::changes_of_other_rows(&context, &name).await?);
    let effects = effects_of::<R>(&context, &changes).await?;
    if previews::is_dry_run(&context) {
        let row = StoredRow::draft(R::KIND, rows::prefix(R::KIND), &name, context.now());
        return Ok(with_effects::<R>(object::<R>(&row, &spec), &effects, ApiResponse::ok));
    }
    if let ApplyOutcome::Replayed(id) = context.apply(&changes).await? {
        return Ok(shown::<R>(&rows::find(&context, R::KIND, None, &id).await?)?.header("idempotent-replayed", "true"));
    }
    let row = rows::written(&context, R::KIND, None, &name).await?;
    Ok(with_effects::<R>(object::<R>(&row, &row.read()?), &effects, ApiResponse::created).revision(row.revision))
}

/// Effects through price limits, for changes that have any. A dry run checks the changes against the other rows in any case.
async fn effects_of<R: NamedResource>(context: &RequestContext, changes: &[Change]) -> Result<PriceEffects, ApiError> {
    if R::HAS_EFFECTS || changes.iter().any(is_of_group) || previews::is_dry_run(context) {
        previews::preview_effects(context, changes).await
    } else {
        Ok(PriceEffects::default())
    }
}

/// Whether it changes what a group offers.
const fn is_of_group(change: &Change) -> bool {
    matches!(change, Change::SetGroupChannel { .. })
}

fn with_effects<R: NamedResource>(
    shown: Map<String, Value>,
    effects: &PriceEffects,
    answer: fn(Value) -> ApiResponse,
) -> ApiResponse {
    answer(Value::Object(if R::HAS_EFFECTS { previews::beside(shown, effects) } else { shown }))
}

pub(super) async fn change<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let row = rows::find(&context, R::KIND, None, context.path_param("name")).await?;
    let keeps_secrets = R::keeps_secrets(&context, &row).await?;
    let of_others = R::changes_of_other_rows(&context, &row.name).await?;
    let changed = |row: &StoredRow| {
        let before = CurrentRow { spec: row.read::<R::Spec>()?, keeps_secrets };
        let mut spec = before.spec.clone();
        check::write(&context.body.0, &mut spec)?;
        require_admin(&context, &before.spec, &spec)?;
        R::allowed(&context, Some(&before), &spec)?;
        Ok::<_, ApiError>(spec)
    };
    let mut effects = PriceEffects::default();
    if R::HAS_EFFECTS || !of_others.is_empty() || previews::is_dry_run(&context) {
        let spec = changed(&row)?;
        let changes: Vec<Change> = std::iter::once(R::put(spec.clone())).chain(of_others.iter().cloned()).collect();
        effects = effects_of::<R>(&context, &changes).await?;
        if previews::is_dry_run(&context) {
            return Ok(with_effects::<R>(object::<R>(&row, &spec), &effects, ApiResponse::ok).revision(row.revision));
        }
    }
    let row = rows::edit(&context, R::KIND, None, context.path_param("name"), |row| {
        let spec = changed(row)?;
        let beside = R::changes_beside(&context.body, &row.read()?, &spec);
        Ok(std::iter::once(R::put(spec)).chain(beside).chain(of_others.iter().cloned()).collect())
    })
    .await?;
    Ok(with_effects::<R>(object::<R>(&row, &row.read()?), &effects, ApiResponse::ok).revision(row.revision))
}

pub(super) async fn remove<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    rows::edit(&context, R::KIND, None, context.path_param("name"), |row| Ok(vec![R::remove(row.name.clone())])).await?;
    Ok(ApiResponse::no_content())
}

/// The five routes of a resource of named rows: `named_routes!(Resource, &OBJECT, "plural", "singular", scope to read, scope to
/// change)`.
macro_rules! named_routes {
    ($resource:ty, $object:expr, $tag:literal, $name:literal, $read:expr, $change_needs:expr) => {{
        use tollgate_store::{AdminScope, fields::WriteMode};
        use $crate::api::{
            named_resource::{NamedResource, change, list, make, one, remove},
            route::{Method, Needs, Resource, ResponseSchema, handler},
        };
        const ALL: &str = concat!("/admin/v1/", $tag);
        const ONE: &str = concat!("/admin/v1/", $tag, "/{name}");
        const LIST_DOC: &str = concat!("All ", $tag, ", in the order in which they were made.");
        const READ: Resource = Resource { tag: $tag, needs: $read };
        const WRITE: Resource = Resource { tag: $tag, needs: Needs::Scope($change_needs) };
        &[
            READ.route(Method::Get, ALL, concat!("list_", $tag), LIST_DOC, handler!(list::<$resource>))
                .query(<$resource>::LIST_QUERY)
                .returns(ResponseSchema::Page($object)),
            WRITE
                .route(Method::Post, ALL, concat!("make_", $name), concat!("Makes a ", $name, "."), handler!(make::<$resource>))
                .query(<$resource>::CHANGE_QUERY)
                .takes($object, WriteMode::Create)
                .once()
                .returns(ResponseSchema::Created($object)),
            READ.route(
                Method::Get,
                ONE,
                concat!("get_", $name),
                concat!("One ", $name, ", by name or id."),
                handler!(one::<$resource>),
            )
            .returns(ResponseSchema::Object($object)),
            WRITE
                .route(
                    Method::Patch,
                    ONE,
                    concat!("change_", $name),
                    "Changes the fields that are sent; the others are unchanged.",
                    handler!(change::<$resource>),
                )
                .query(<$resource>::CHANGE_QUERY)
                .takes($object, WriteMode::Update)
                .at_revision()
                .returns(ResponseSchema::Object($object)),
            WRITE
                .route(
                    Method::Delete,
                    ONE,
                    concat!("remove_", $name),
                    concat!("Removes a ", $name, ". Usage keeps its name."),
                    handler!(remove::<$resource>),
                )
                .at_revision(),
        ]
    }};
}
pub(super) use named_routes;
