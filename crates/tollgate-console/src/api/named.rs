//! What channels, models, groups and members have in common: a name that is unique, one spec, and the same five routes.

use std::{future::Future, pin::Pin};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tollgate_core::PriceEffects;
use tollgate_store::{Change, Kind, StoredRow};

use super::{
    ask::{Applied, Ask, Members},
    form, paging, previews, rows,
    shape::Field,
};
use crate::{answer::Answer, problem::Problem};

/// A resource of named rows.
pub(super) trait Named: Sized + Send + Sync {
    /// The row as the store keeps it.
    type Spec: Default + Clone + Serialize + DeserializeOwned + Send + Sync;
    /// What kind of row.
    const KIND: Kind;

    /// What a request that makes or changes one may ask for: where it is a preview, price limits are weighed first.
    const CHANGE_QUERY: &'static [Field] = &[];

    /// Its name.
    fn name(spec: &Self::Spec) -> &str;

    /// The members of an answer, but those that every row has.
    fn show(spec: &Self::Spec) -> Map<String, Value>;

    /// What was sent into a spec.
    fn take(sent: &Members, spec: &mut Self::Spec) -> Result<(), Problem>;

    /// Writes it.
    fn put(spec: Self::Spec) -> Change;

    /// Removes it.
    fn remove(name: String) -> Change;

    /// What a new row begins with; the name of its provider decides what a channel speaks, for one.
    fn begin(_sent: &Members) -> Self::Spec {
        Self::Spec::default()
    }

    /// Further changes that make a new row, such as a channel's accounts.
    fn along(_ask: &Ask, _spec: &Self::Spec) -> Result<Vec<Change>, Problem> {
        Ok(Vec::new())
    }

    /// Whether who asks may make this of that; `None`: of nothing.
    fn allowed(_ask: &Ask, _before: Option<&Before<Self::Spec>>, _after: &Self::Spec) -> Result<(), Problem> {
        Ok(())
    }

    /// Whether secrets are kept with a row that a change of it could send elsewhere.
    fn keeps_secrets(_ask: &Ask, _row: &StoredRow) -> impl Future<Output = Result<bool, Problem>> + Send {
        async { Ok(false) }
    }
}

/// What is there before a change.
pub(super) struct Before<T> {
    /// The row.
    pub(super) spec: T,
    /// What [`Named::keeps_secrets`] says of it.
    pub(super) keeps_secrets: bool,
}

fn object<R: Named>(row: &StoredRow, spec: &R::Spec) -> Map<String, Value> {
    let mut members = form::row_of(row);
    members.extend(R::show(spec));
    members
}

fn shown<R: Named>(row: &StoredRow) -> Result<Answer, Problem> {
    Ok(Answer::ok(Value::Object(object::<R>(row, &row.read()?))).revision(row.revision))
}

/// The part of the path that names the row.
fn named(ask: &Ask) -> &str {
    ask.at("name")
}

pub(super) async fn list<R: Named>(ask: Ask) -> Result<Answer, Problem> {
    let rows = ask.within(ask.site.store.listing.page(&rows::filter(&ask, R::KIND)?)).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(R::Spec, StoredRow)>, Problem>>()?;
    Ok(paging::page(rows, ask.limit(), |(_, row)| row.id.clone(), |(spec, row)| object::<R>(row, spec).into()))
}

pub(super) async fn one<R: Named>(ask: Ask) -> Result<Answer, Problem> {
    shown::<R>(&rows::find(&ask, R::KIND, None, named(&ask)).await?)
}

pub(super) async fn make<R: Named>(ask: Ask) -> Result<Answer, Problem> {
    let mut spec = R::begin(&ask.body);
    R::take(&ask.body, &mut spec)?;
    R::allowed(&ask, None, &spec)?;
    let name = R::name(&spec).to_owned();
    let mut changes = Vec::from_iter(ask.once()?);
    changes.push(Change::ExpectNew { kind: R::KIND, parent: String::new(), name: name.clone() });
    let along = R::along(&ask, &spec)?;
    changes.push(R::put(spec.clone()));
    changes.extend(along);
    let effects = weighed::<R>(&ask, &changes).await?;
    if previews::is_dry(&ask) {
        let row = StoredRow::draft(R::KIND, rows::prefix(R::KIND), &name, ask.now());
        return Ok(with_effects::<R>(object::<R>(&row, &spec), &effects, Answer::ok));
    }
    if let Applied::Before(id) = ask.apply(&changes).await? {
        return Ok(shown::<R>(&rows::find(&ask, R::KIND, None, &id).await?)?.header("idempotent-replayed", "true"));
    }
    let row = rows::written(&ask, R::KIND, None, &name).await?;
    Ok(with_effects::<R>(object::<R>(&row, &row.read()?), &effects, Answer::made).revision(row.revision))
}

/// What price limits would do, where that is asked of this resource.
async fn weighed<R: Named>(ask: &Ask, changes: &[Change]) -> Result<PriceEffects, Problem> {
    if R::CHANGE_QUERY.is_empty() { Ok(PriceEffects::default()) } else { previews::weigh(ask, changes).await }
}

fn with_effects<R: Named>(shown: Map<String, Value>, effects: &PriceEffects, answer: fn(Value) -> Answer) -> Answer {
    answer(Value::Object(if R::CHANGE_QUERY.is_empty() { shown } else { previews::beside(shown, effects) }))
}

pub(super) async fn change<R: Named>(ask: Ask) -> Result<Answer, Problem> {
    let keeps_secrets = R::keeps_secrets(&ask, &rows::find(&ask, R::KIND, None, named(&ask)).await?).await?;
    let changed = |row: &StoredRow| {
        let before = Before { spec: row.read::<R::Spec>()?, keeps_secrets };
        let mut spec = before.spec.clone();
        R::take(&ask.body, &mut spec)?;
        R::allowed(&ask, Some(&before), &spec)?;
        Ok::<_, Problem>(spec)
    };
    let mut effects = PriceEffects::default();
    if !R::CHANGE_QUERY.is_empty() {
        let row = rows::find(&ask, R::KIND, None, named(&ask)).await?;
        let spec = changed(&row)?;
        effects = weighed::<R>(&ask, &[R::put(spec.clone())]).await?;
        if previews::is_dry(&ask) {
            return Ok(with_effects::<R>(object::<R>(&row, &spec), &effects, Answer::ok).revision(row.revision));
        }
    }
    let row = rows::edit(&ask, R::KIND, None, named(&ask), |row| Ok(vec![R::put(changed(row)?)])).await?;
    Ok(with_effects::<R>(object::<R>(&row, &row.read()?), &effects, Answer::ok).revision(row.revision))
}

pub(super) async fn remove<R: Named>(ask: Ask) -> Result<Answer, Problem> {
    rows::edit(&ask, R::KIND, None, named(&ask), |row| Ok(vec![R::remove(row.name.clone())])).await?;
    Ok(Answer::nothing())
}

/// A handler's future, for the table.
pub(super) type Later = Pin<Box<dyn Future<Output = Result<Answer, Problem>> + Send>>;

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
                query: &[LIMIT, AFTER, both("name", $crate::api::shape::MODEL_NAME, "Of this name.")],
                takes: Takes::Nothing,
                gives: Gives::Page($object),
                handler: |ask| Box::pin(named::list::<$resource>(ask)) as named::Later,
            },
            Route {
                method: Method::Post,
                path: concat!("/admin/v1/", $path),
                resource: $tag,
                needs: $change_needs,
                id: named_routes!(@id $ids, 1),
                doc: concat!("Makes a ", $name, "."),
                query: <$resource as named::Named>::CHANGE_QUERY,
                takes: Takes::Body($object, How::New),
                gives: Gives::Made($object),
                handler: |ask| Box::pin(named::make::<$resource>(ask)) as named::Later,
            },
            Route {
                method: Method::Get,
                path: concat!("/admin/v1/", $path, "/{name}"),
                resource: $tag,
                needs: AdminScope::Operator,
                id: named_routes!(@id $ids, 2),
                doc: concat!("One ", $name, ", by name or id."),
                query: &[],
                takes: Takes::Nothing,
                gives: Gives::One($object),
                handler: |ask| Box::pin(named::one::<$resource>(ask)) as named::Later,
            },
            Route {
                method: Method::Patch,
                path: concat!("/admin/v1/", $path, "/{name}"),
                resource: $tag,
                needs: $change_needs,
                id: named_routes!(@id $ids, 3),
                doc: "Changes what is sent; the rest stays.",
                query: <$resource as named::Named>::CHANGE_QUERY,
                takes: Takes::Body($object, How::Part),
                gives: Gives::One($object),
                handler: |ask| Box::pin(named::change::<$resource>(ask)) as named::Later,
            },
            Route {
                method: Method::Delete,
                path: concat!("/admin/v1/", $path, "/{name}"),
                resource: $tag,
                needs: $change_needs,
                id: named_routes!(@id $ids, 4),
                doc: concat!("Removes a ", $name, ". Usage keeps its name."),
                query: &[],
                takes: Takes::Nothing,
                gives: Gives::Nothing,
                handler: |ask| Box::pin(named::remove::<$resource>(ask)) as named::Later,
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
