//! Settings of the running process, read-only: they are set by flags, environment and settings file.

use serde_json::{Value, json};
use tollgate_store::{
    AdminScope,
    fields::{Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{NAME, TEXT, both, read},
};
use crate::{api_error::ApiError, gateway_handle::EffectiveSetting, response::ApiResponse};

const SOURCES: Kind = Kind::Word(&["default", "file", "environment", "flag"]);

static SETTING: Object = Object::of(
    "Setting",
    &[
        read("name", NAME, "Section and name, such as `server.listen`."),
        read("value", TEXT, "Value as text, `***` for a secret; null: not set.").or_null(),
        read("source", SOURCES, "Source of the value. A flag overrides the environment, which overrides the file."),
        read("default", TEXT, "Default; null: none.").or_null(),
        read("variable", TEXT, "Environment variable for this setting."),
        read("secret", Kind::Flag, "Whether the value is masked."),
        read("doc", TEXT, "Description."),
    ],
);

const RESOURCE: Resource = Resource { tag: "settings", needs: Needs::Scope(AdminScope::Admin) };

pub(super) static ROUTES: &[Route] = &[RESOURCE
    .route(
        Method::Get,
        "/admin/v1/settings",
        "list_settings",
        "Every setting with its value and source, on one page.",
        handler!(list),
    )
    .query(&[both("source", SOURCES, "Only settings with this source.")])
    .returns(ResponseSchema::Page(&SETTING))];

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let source = context.query.text("source");
    let show = |EffectiveSetting { name, value, default, source, variable, secret, doc }: &EffectiveSetting| {
        json!({
            "name": name, "value": value, "source": source, "default": default, "variable": variable, "secret": secret, "doc": doc,
        })
    };
    let settings = context.state.gateway.settings();
    let items: Vec<Value> =
        settings.iter().filter(|setting| source.is_none_or(|source| setting.source == source)).map(show).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}
