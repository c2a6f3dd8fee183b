//! What channels, models, groups and members have in common: a name that is unique, one spec, and the same five routes.

use std::{future::Future, pin::Pin};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tollgate_core::PriceEffects;
use tollgate_store::{
    Change, RowKind, StoredRow,
    fields::{FieldShape, Row, admin_changes, whole},
};

use super::{
    check, paging, previews,
    request_context::{ApplyOutcome, InputFields, RequestContext},
    rows, shared_fields,
};
use crate::{api_error::ApiError, response::ApiResponse};

/// A resource of named rows.
pub(super) trait NamedResource: Sized + Send + Sync {
    /// The row as the store keeps it.
    type Spec: Row + Clone + DeserializeOwned + Send + Sync;
    /// What kind of row.
    const KIND: RowKind;

    /// What a request that makes or changes one may ask for: where it is a preview, price limits are evaluated first.
    const CHANGE_QUERY: &'static [FieldShape] = &[];

    /// Writes it.
    fn put(spec: Self::Spec) -> Change;

    /// Removes it.
    fn remove(name: String) -> Change;

    /// A new row before what was sent is written to it; its provider decides what a channel speaks.
    fn blank(_sent: &InputFields) -> Self::Spec {
        Self::Spec::blank()
    }

    /// Further changes that make a new row, such as a channel's accounts.
    fn related_changes(_ask: &RequestContext, _spec: &Self::Spec) -> Result<Vec<Change>, ApiError> {
        Ok(Vec::new())
    }

    /// Whether who asks may make this of that; `None`: of nothing.
    fn allowed(_ask: &RequestContext, _before: Option<&CurrentRow<Self::Spec>>, _after: &Self::Spec) -> Result<(), ApiError> {
        Ok(())
    }

    /// Whether secrets are kept with a row that a change of it could send elsewhere.
    fn keeps_secrets(_ask: &RequestContext, _row: &StoredRow) -> impl Future<Output = Result<bool, ApiError>> + Send {
        async { Ok(false) }
    }
}

/// What is there before a change.
pub(super) struct CurrentRow<T> {
    /// The row.
    pub(super) spec: T,
    /// What [`NamedResource::keeps_secrets`] says of it.
    pub(super) keeps_secrets: bool,
}

fn object<R: NamedResource>(row: &StoredRow, spec: &R::Spec) -> Map<String, Value> {
    let mut members = shared_fields::row_of(row);
    members.extend(whole(spec));
    members
}

fn shown<R: NamedResource>(row: &StoredRow) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(Value::Object(object::<R>(row, &row.read()?))).revision(row.revision))
}

/// Fields that the table reserves for admins stay as they are when an operator writes the row.
fn require_admin<T: Row>(context: &RequestContext, before: &T, after: &T) -> Result<(), ApiError> {
    admin_changes(before, after).first().map_or(Ok(()), |field| context.require_admin(&format!("Setting {field}")))
}

/// The part of the path that names the row.
fn named(context: &RequestContext) -> &str {
    context.path_param("name")
}

pub(super) async fn list<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let rows = context.with_query_timeout(context.state.store.listing.page(&rows::filter(&context, R::KIND)?)).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(R::Spec, StoredRow)>, ApiError>>()?;
    Ok(paging::page(rows, context.limit(), |(_, row)| row.id.clone(), |(spec, row)| object::<R>(row, spec).into()))
}

pub(super) async fn one<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    shown::<R>(&rows::find(&context, R::KIND, None, named(&context)).await?)
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

/// What price limits would do, where that is asked of this resource.
async fn effects_of<R: NamedResource>(context: &RequestContext, changes: &[Change]) -> Result<PriceEffects, ApiError> {
    if R::CHANGE_QUERY.is_empty() { Ok(PriceEffects::default()) } else { previews::preview_effects(context, changes).await }
}

fn with_effects<R: NamedResource>(
    shown: Map<String, Value>,
    effects: &PriceEffects,
    answer: fn(Value) -> ApiResponse,
) -> ApiResponse {
    answer(Value::Object(if R::CHANGE_QUERY.is_empty() { shown } else { previews::beside(shown, effects) }))
}

pub(super) async fn change<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let keeps_secrets = R::keeps_secrets(&context, &rows::find(&context, R::KIND, None, named(&context)).await?).await?;
    let changed = |row: &StoredRow| {
        let before = CurrentRow { spec: row.read::<R::Spec>()?, keeps_secrets };
        let mut spec = before.spec.clone();
        check::write(&context.body.0, &mut spec)?;
        require_admin(&context, &before.spec, &spec)?;
        R::allowed(&context, Some(&before), &spec)?;
        Ok::<_, ApiError>(spec)
    };
    let mut effects = PriceEffects::default();
    if !R::CHANGE_QUERY.is_empty() {
        let row = rows::find(&context, R::KIND, None, named(&context)).await?;
        let spec = changed(&row)?;
        effects = effects_of::<R>(&context, &[R::put(spec.clone())]).await?;
        if previews::is_dry_run(&context) {
            return Ok(with_effects::<R>(object::<R>(&row, &spec), &effects, ApiResponse::ok).revision(row.revision));
        }
    }
    let row = rows::edit(&context, R::KIND, None, named(&context), |row| Ok(vec![R::put(changed(row)?)])).await?;
    Ok(with_effects::<R>(object::<R>(&row, &row.read()?), &effects, ApiResponse::ok).revision(row.revision))
}

pub(super) async fn remove<R: NamedResource>(context: RequestContext) -> Result<ApiResponse, ApiError> {
    rows::edit(&context, R::KIND, None, named(&context), |row| Ok(vec![R::remove(row.name.clone())])).await?;
    Ok(ApiResponse::no_content())
}

/// A handler's future, for the table.
pub(super) type ResourceFuture = Pin<Box<dyn Future<Output = Result<ApiResponse, ApiError>> + Send>>;

/// The five routes of a resource of named rows.
macro_rules! named_routes {
    ($resource:ty, $object:expr, $tag:literal, $path:literal, $ids:tt, $change_needs:expr, $name:literal) => {
        [
            Route {
                method: Method::Get,
                path: concat!("/admin/v1/", $path),
                resource: $tag,
                needs: AdminScope::Operator,
                id: named_routes!(@id $ids, 0),
                doc: concat!("All ", $tag, ", in the order in which they were made."),
                query: &[LIMIT, AFTER, both("name", $crate::api::schema::MODEL_NAME, "Of this name.")],
                request: RequestSchema::Empty,
                response: ResponseSchema::Page($object),
                handler: |context| Box::pin(named_resource::list::<$resource>(context)) as named_resource::ResourceFuture,
            },
            Route {
                method: Method::Post,
                path: concat!("/admin/v1/", $path),
                resource: $tag,
                needs: $change_needs,
                id: named_routes!(@id $ids, 1),
                doc: concat!("Makes a ", $name, "."),
                query: <$resource as named_resource::NamedResource>::CHANGE_QUERY,
                request: RequestSchema::Body($object, WriteMode::Create),
                response: ResponseSchema::Created($object),
                handler: |context| Box::pin(named_resource::make::<$resource>(context)) as named_resource::ResourceFuture,
            },
            Route {
                method: Method::Get,
                path: concat!("/admin/v1/", $path, "/{name}"),
                resource: $tag,
                needs: AdminScope::Operator,
                id: named_routes!(@id $ids, 2),
                doc: concat!("One ", $name, ", by name or id."),
                query: &[],
                request: RequestSchema::Empty,
                response: ResponseSchema::Object($object),
                handler: |context| Box::pin(named_resource::one::<$resource>(context)) as named_resource::ResourceFuture,
            },
            Route {
                method: Method::Patch,
                path: concat!("/admin/v1/", $path, "/{name}"),
                resource: $tag,
                needs: $change_needs,
                id: named_routes!(@id $ids, 3),
                doc: "Changes what is sent; the rest stays.",
                query: <$resource as named_resource::NamedResource>::CHANGE_QUERY,
                request: RequestSchema::Body($object, WriteMode::Update),
                response: ResponseSchema::Object($object),
                handler: |context| Box::pin(named_resource::change::<$resource>(context)) as named_resource::ResourceFuture,
            },
            Route {
                method: Method::Delete,
                path: concat!("/admin/v1/", $path, "/{name}"),
                resource: $tag,
                needs: $change_needs,
                id: named_routes!(@id $ids, 4),
                doc: concat!("Removes a ", $name, ". Usage keeps its name."),
                query: &[],
                request: RequestSchema::Empty,
                response: ResponseSchema::Empty,
                handler: |context| Box::pin(named_resource::remove::<$resource>(context)) as named_resource::ResourceFuture,
            },
        ]
    };
    (@id [$a:literal, $b:literal, $c:literal, $d:literal, $e:literal], 0) => { $a };
    (@id [$a:literal, $b:literal, $c:literal, $d:literal, $e:literal], 1) => { $b };
    (@id [$a:literal, $b:literal, $c:literal, $d:literal, $e:literal], 2) => { $c };
    (@id [$a:literal, $b:literal, $c:literal, $d:literal, $e:literal], 3) => { $d };
    (@id [$a:literal, $b:literal, $c:literal, $d:literal, $e:literal], 4) => { $e };
}
pub(super) use named_routes;
