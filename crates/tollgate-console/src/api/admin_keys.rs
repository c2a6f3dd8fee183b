//! Admin keys: made, listed, revoked. The key itself is shown in the answer that made it.

use serde_json::{Map, Value, json};
use tollgate_core::AdminKeyId;
use tollgate_store::{AdminKeySpec, AdminScope, Change, Kind, NewKey, Random, RowFilter, StoredRow};

use super::{
    ask::{Applied, Ask},
    form, handler, paging,
    route::{AFTER, Gives, LIMIT, Method, Route, Takes},
    rows,
    serve::shown_time,
    shape::{CREATED_AT, How, NAME, Object, REVISION, Shape, TEXT, Usage, both, fixed, read},
};
use crate::{answer::Answer, problem::Problem};

static ADMIN_KEY: Object = Object {
    name: "AdminKey",
    fields: &[
        read("id", Shape::Id("adm_"), "Id."),
        fixed("name", NAME, "Unique among those that work."),
        fixed("scope", Shape::Word(&["operator", "admin"]), "operator: channels, groups, models, keys, usage; admin: everything."),
        both("expires_at", Shape::Time, "When it ends.").or_null().with(Usage::AtFirst),
        read("prefix", TEXT, "The first characters of the key."),
        read("suffix", TEXT, "Its last characters."),
        CREATED_AT,
        read("revoked_at", Shape::Time, "When it was revoked.").or_null(),
        REVISION,
        read("key", TEXT, "The key itself, this once.").with(Usage::Once),
    ],
};

const fn route(method: Method, path: &'static str, id: &'static str, doc: &'static str) -> Route {
    Route {
        method,
        path,
        resource: "admin keys",
        needs: AdminScope::Admin,
        id,
        doc,
        query: &[],
        takes: Takes::Nothing,
        gives: Gives::Nothing,
        handler: handler!(list),
    }
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        query: &[LIMIT, AFTER, both("revoked", Shape::Flag, "Revoked ones too.")],
        gives: Gives::Page(&ADMIN_KEY),
        ..route(Method::Get, "/admin/v1/admin-keys", "list_admin_keys", "Admin keys, oldest first.")
    },
    Route {
        takes: Takes::Body(&ADMIN_KEY, How::New),
        gives: Gives::Made(&ADMIN_KEY),
        handler: handler!(make),
        ..route(Method::Post, "/admin/v1/admin-keys", "make_admin_key", "Makes an admin key and shows it, this once.")
    },
    Route {
        gives: Gives::One(&ADMIN_KEY),
        handler: handler!(one),
        ..route(Method::Get, "/admin/v1/admin-keys/{admin_key}", "get_admin_key", "One admin key.")
    },
    Route {
        gives: Gives::One(&ADMIN_KEY),
        handler: handler!(revoke),
        ..route(Method::Delete, "/admin/v1/admin-keys/{admin_key}", "revoke_admin_key", "Ends an admin key for good.")
    },
];

fn show(row: &StoredRow, spec: &AdminKeySpec) -> Map<String, Value> {
    let AdminKeySpec { name, scope, expires_at } = spec;
    let (prefix, suffix) = row.shown.clone().unwrap_or_default();
    let shown = json!({
        "id": row.id, "name": name, "scope": scope, "expires_at": expires_at.map(shown_time), "prefix": prefix, "suffix": suffix,
        "created_at": shown_time(row.created_at), "revoked_at": row.removed_at.map(shown_time), "revision": row.revision.0,
    });
    if let Value::Object(members) = shown { members } else { Map::new() }
}

async fn list(ask: Ask) -> Result<Answer, Problem> {
    let filter = RowFilter {
        removed: ask.query.0.get("revoked").is_some_and(|revoked| revoked == true),
        ..rows::filter(&ask, Kind::AdminKey)?
    };
    let rows = ask.site.store.listing.page(&filter).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(AdminKeySpec, StoredRow)>, Problem>>()?;
    Ok(paging::page(rows, ask.limit(), |(_, row)| row.id.clone(), |(spec, row)| show(row, spec).into()))
}

async fn find(ask: &Ask, id: &str) -> Result<StoredRow, Problem> {
    let found = ask.site.store.listing.row(Kind::AdminKey, id).await?;
    found.ok_or_else(|| Problem::missing(Kind::AdminKey, id))
}

async fn one(ask: Ask) -> Result<Answer, Problem> {
    let row = find(&ask, ask.at("admin_key")).await?;
    Ok(Answer::ok(show(&row, &row.read()?)).revision(row.revision))
}

async fn make(ask: Ask) -> Result<Answer, Problem> {
    form::not_past(&ask, "expires_at")?;
    let mut spec = AdminKeySpec { expires_at: ask.body.time("expires_at"), ..AdminKeySpec::default() };
    ask.body.set_text("name", &mut spec.name);
    ask.body.set_word("scope", &mut spec.scope);
    let new = NewKey::draw_admin(&Random::system());
    let secret = new.secret(&ask.site.store.hasher);
    let name = spec.name.clone();
    let mut changes = Vec::from_iter(ask.once()?);
    changes.push(Change::MakeAdminKey { key: Box::new(spec), secret });
    let applied = ask.apply(&changes).await?;
    if let Applied::Before(id) = applied {
        let row = find(&ask, &id).await?;
        return Ok(Answer::ok(show(&row, &row.read()?)).header("idempotent-replayed", "true"));
    }
    let filter = RowFilter { name: Some(name.clone()), ..RowFilter::of(Kind::AdminKey, 1) };
    let row = ask.site.store.listing.page(&filter).await?.pop().ok_or_else(|| Problem::missing(Kind::AdminKey, &name))?;
    let mut shown = show(&row, &row.read()?);
    shown.insert("key".to_owned(), new.expose_once().into());
    Ok(Answer::made(shown).revision(row.revision))
}

async fn revoke(ask: Ask) -> Result<Answer, Problem> {
    let id = ask.at("admin_key");
    let Some(key) = AdminKeyId::parse(id) else { return Err(Problem::missing(Kind::AdminKey, id)) };
    ask.apply(&[Change::RevokeAdminKey { key }]).await?;
    let row = find(&ask, id).await?;
    Ok(Answer::ok(show(&row, &row.read()?)).revision(row.revision))
}
