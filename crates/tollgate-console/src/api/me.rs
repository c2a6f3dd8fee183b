//! Who asks: for a client to see whether its key works and what it may do.

use serde_json::json;
use tollgate_store::AdminScope;

use super::{
    ask::Ask,
    handler,
    route::{Gives, Method, Route, Takes},
    serve::shown_time,
    shape::{NAME, Object, Shape, TEXT, read},
};
use crate::{answer::Answer, problem::Problem};

static ME: Object = Object {
    name: "Me",
    fields: &[
        read("id", Shape::Id("adm_"), "The admin key's id."),
        read("name", NAME, "Its name."),
        read("scope", Shape::Word(&["operator", "admin"]), "What it may do."),
        read("expires_at", Shape::Time, "When it ends.").or_null(),
        read("version", TEXT, "The program's version."),
    ],
};

pub(super) static ROUTES: &[Route] = &[Route {
    method: Method::Get,
    path: "/admin/v1/me",
    resource: "admin keys",
    needs: AdminScope::Operator,
    id: "who_am_i",
    doc: "The admin key that asks.",
    query: &[],
    takes: Takes::Nothing,
    gives: Gives::One(&ME),
    handler: handler!(show),
}];

async fn show(ask: Ask) -> Result<Answer, Problem> {
    let Some(key) = ask.who.key() else { return Err(Problem::no_path()) };
    Ok(Answer::ok(json!({
        "id": key.id, "name": key.name, "scope": key.scope, "expires_at": key.expires_at.map(shown_time), "version": ask.site.version,
    })))
}
