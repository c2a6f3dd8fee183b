//! The settings of the running program: read here, written where the process is started.

use serde_json::{Value, json};
use tollgate_store::AdminScope;

use super::{
    ask::Ask,
    handler,
    route::{Gives, Method, Route, Takes},
    shape::{NAME, Object, Shape, TEXT, both, read},
};
use crate::{Setting, answer::Answer, problem::Problem};

const SOURCES: Shape = Shape::Word(&["default", "file", "environment", "flag"]);

static SETTING: Object = Object {
    name: "Setting",
    fields: &[
        read("name", NAME, "Section and name."),
        read("value", TEXT, "Its value as text, `***` for a secret; null: not set.").or_null(),
        read("source", SOURCES, "What set it; a flag beats the environment, which beats the file."),
        read("default", TEXT, "Its value where nothing sets it; null: not set.").or_null(),
        read("variable", TEXT, "The environment variable that sets it."),
        read("secret", Shape::Flag, "Whether its value is masked."),
        read("doc", TEXT, "What it does."),
    ],
};

pub(super) static ROUTES: &[Route] = &[Route {
    method: Method::Get,
    path: "/admin/v1/settings",
    resource: "settings",
    needs: AdminScope::Admin,
    id: "list_settings",
    doc: "Every setting in force and where its value comes from, on one page.",
    query: &[both("source", SOURCES, "Only those that this sets.")],
    takes: Takes::Nothing,
    gives: Gives::Page(&SETTING),
    handler: handler!(list),
}];

async fn list(ask: Ask) -> Result<Answer, Problem> {
    let source = ask.query.text("source");
    let shown = |it: &Setting| {
        let Setting { name, value, default, source, variable, secret, doc } = it;
        json!({
            "name": name, "value": value, "source": source, "default": default, "variable": variable, "secret": secret, "doc": doc,
        })
    };
    let settings = ask.site.running.settings();
    let items: Vec<Value> = settings.iter().filter(|it| source.is_none_or(|source| it.source == source)).map(shown).collect();
    Ok(Answer::ok(json!({"items": items, "next": null})))
}
