//! The settings of the running program: read here, written where the process is started.

use serde_json::{Value, json};
use tollgate_store::AdminScope;

use super::{
    request_context::RequestContext,
    route::{Method, RequestSchema, ResponseSchema, Route, handler},
    schema::{NAME, ObjectSchema, TEXT, ValueSchema, both, read},
};
use crate::{api_error::ApiError, gateway_handle::EffectiveSetting, response::ApiResponse};

const SOURCES: ValueSchema = ValueSchema::Enum(&["default", "file", "environment", "flag"]);

static SETTING: ObjectSchema = ObjectSchema {
    name: "Setting",
    fields: &[
        read("name", NAME, "Section and name."),
        read("value", TEXT, "Its value as text, `***` for a secret; null: not set.").or_null(),
        read("source", SOURCES, "What set it; a flag beats the environment, which beats the file."),
        read("default", TEXT, "Its value where nothing sets it; null: not set.").or_null(),
        read("variable", TEXT, "The environment variable that sets it."),
        read("secret", ValueSchema::Boolean, "Whether its value is masked."),
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
    request: RequestSchema::Empty,
    response: ResponseSchema::Page(&SETTING),
    handler: handler!(list),
}];

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let source = context.query.text("source");
    let shown = |it: &EffectiveSetting| {
        let EffectiveSetting { name, value, default, source, variable, secret, doc } = it;
        json!({
            "name": name, "value": value, "source": source, "default": default, "variable": variable, "secret": secret, "doc": doc,
        })
    };
    let settings = context.state.gateway.settings();
    let items: Vec<Value> = settings.iter().filter(|it| source.is_none_or(|source| it.source == source)).map(shown).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}
