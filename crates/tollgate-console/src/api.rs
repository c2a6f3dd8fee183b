//! The admin API: its resources, each with description, routes and handlers, and the route table. The dispatcher and the
//! OpenAPI document get the table as an argument.

pub(crate) mod check;
pub(crate) mod conditions;
mod member_ids;
pub(crate) mod openapi;
mod recorded_rows;
pub(crate) mod request_context;
pub(crate) mod route;
mod row_names;
mod rows;
pub(crate) mod schema;

mod accounts;
mod admin_keys;
mod alerts;
pub(crate) mod audit;
mod backups;
mod budgets;
mod catalog;
pub(crate) mod channels;
mod explain;
mod exports;
mod group_offers;
mod group_use;
mod health;
mod health_history;
mod invites;
mod jobs;
pub(crate) mod keys;
mod ledger;
mod logins;
mod me;
mod member_search;
mod named_resource;
mod named_rows;
mod oidc;
mod passkeys;
mod password;
pub(crate) mod preferences;
pub(crate) mod previews;
mod prices;
mod proxies;
mod registration;
mod session;
mod settings;
mod sign_in;
mod square;
mod storage;
mod text_export;
mod totp;
pub(crate) mod usage;
mod views;

use serde_json::{Map, Value};
use tollgate_store::{
    AdminScope,
    fields::{Object, WriteMode, parse_text, unknown_member},
};

use crate::{api_error::ApiError, response::ApiResponse};
use request_context::RequestContext;
use route::{Method, Needs, RequestSchema, Resource, ResponseSchema, Route, handler};
pub use usage::{parse_outcomes, parse_status, parse_tags};

const DOCUMENT: Resource = Resource { tag: "document", needs: Needs::Scope(AdminScope::Member) };

static ROUTES: &[Route] = &[DOCUMENT
    .route(Method::Get, "/admin/openapi.json", "get_openapi", "This document.", handler!(show_openapi))
    .returns(ResponseSchema::Document)];

/// All routes of the admin API.
pub(crate) fn routes() -> impl Iterator<Item = &'static Route> {
    [
        session::ROUTES,
        oidc::ROUTES,
        password::ROUTES,
        totp::ROUTES,
        passkeys::ROUTES,
        me::ROUTES,
        preferences::ROUTES,
        views::ROUTES,
        admin_keys::ROUTES,
        keys::ROUTES,
        keys::self_service::ROUTES,
        keys::own::ROUTES,
        named_rows::MEMBER_ROUTES,
        logins::ROUTES,
        invites::ROUTES,
        registration::ROUTES,
        named_rows::GROUP_ROUTES,
        group_offers::ROUTES,
        channels::ROUTES,
        channels::several::ROUTES,
        channels::file::ROUTES,
        channels::history::ROUTES,
        proxies::ROUTES,
        accounts::ROUTES,
        named_rows::MODEL_ROUTES,
        prices::ROUTES,
        prices::BY_GROUP_ROUTES,
        prices::HISTORY_ROUTES,
        prices::IMPORT_ROUTES,
        prices::SIMULATION_ROUTES,
        prices::UNPRICED_ROUTES,
        budgets::ROUTES,
        ledger::ROUTES,
        usage::ROUTES,
        audit::ROUTES,
        explain::ROUTES,
        health::ROUTES,
        storage::ROUTES,
        health_history::ROUTES,
        square::ROUTES,
        catalog::ROUTES,
        jobs::ROUTES,
        backups::ROUTES,
        exports::ROUTES,
        settings::ROUTES,
        alerts::ROUTES,
        ROUTES,
    ]
    .into_iter()
    .flatten()
}

/// The route with this id.
pub(crate) fn route_of(id: &str) -> Option<&'static Route> {
    routes().find(|route| route.id == id)
}

async fn show_openapi(_: RequestContext) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(openapi::document(routes(), env!("CARGO_PKG_VERSION"))))
}

/// Name and description of each field that a request to the route with this id may have; empty for an unknown route.
pub fn route_fields(id: &str) -> Vec<(&'static str, &'static str)> {
    let Some((object, mode)) = request_object(id) else { return Vec::new() };
    object.fields.iter().filter(|field| field.access.is_written(mode)).map(|field| (field.name, field.doc)).collect()
}

/// The request body for the route with this id, out of `NAME=VALUE` words. The items of a list of plain values are separated
/// by commas; nested values take a short form (`budget=5/month`), inline TOML or JSON. The error is a sentence that names the
/// invalid argument.
pub fn parse_field_args(id: &str, args: &[String]) -> Result<Map<String, Value>, String> {
    let (object, mode) = request_object(id).ok_or_else(|| format!("{id} takes no fields."))?;
    let mut body = Map::new();
    for arg in args {
        let Some((name, text)) = arg.split_once('=') else {
            let example = object.fields.first().map_or("name", |field| field.name);
            return Err(format!("'{arg}' is not FIELD=VALUE, such as {example}=…."));
        };
        let field = object.field(name).filter(|field| field.access.is_written(WriteMode::Create));
        let field = field.ok_or_else(|| check::refusal(&unknown_member(object, name, mode)).message().to_owned())?;
        if body.insert(name.to_owned(), parse_text(field, text)?).is_some() {
            return Err(format!("'{name}' occurs twice."));
        }
    }
    Ok(body)
}

/// The object that the route with this id takes as its body, and the kind of write.
fn request_object(id: &str) -> Option<(&'static Object, WriteMode)> {
    match route_of(id)?.request {
        RequestSchema::Body(object, mode) => Some((object, mode)),
        RequestSchema::Optional(object) => Some((object, WriteMode::Create)),
        RequestSchema::Empty => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;

    fn parse(route: &str, args: &[&str]) -> Result<Value, String> {
        parse_field_args(route, &args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()).map(Value::Object)
    }

    #[test]
    fn field_args_are_parsed_by_the_request_schema() {
        let args =
            ["sale_multiplier=1.5", "rpm=60", "channels=a, b", "models=", "trace=true", "price_limit=null", "visibility=private"];
        let expected = json!({
            "sale_multiplier": "1.5", "rpm": 60, "channels": ["a", "b"], "models": [], "trace": true, "price_limit": null,
            "visibility": "private",
        });
        assert_eq!(parse("change_group", &args), Ok(expected));
        let nested = r#"price=[{"input":"1"}]"#;
        assert_eq!(parse("change_model", &[nested]), Ok(json!({"price": [{"input": "1"}]})));
        assert_eq!(parse("change_model", &["price=input:1"]), Ok(json!({"price": {"input": "1"}})));
        assert_eq!(parse("change_key", &["budget=5/month"]), Ok(json!({"budget": {"amount": "5", "window": "month"}})));
        assert_eq!(parse("change_channel", &[r#"headers={"x-a":"1"}"#]), Ok(json!({"headers": {"x-a": "1"}})));
    }

    #[test]
    fn invalid_field_args_are_named() {
        assert!(parse("change_group", &["rpms=1"]).unwrap_err().contains("Did you mean 'rpm'"));
        assert!(parse("change_group", &["rpm"]).unwrap_err().contains("FIELD=VALUE"));
        assert!(parse("change_group", &["rpm=1", "rpm=2"]).unwrap_err().contains("twice"));
        assert!(parse("change_model", &["price=cheap"]).unwrap_err().contains("such as input:0.30"));
        assert!(parse("change_key", &["budgets=5/month"]).unwrap_err().contains("`budgets` is now `budget`"));
        assert_eq!(
            parse("change_group", &["rpm=many"]),
            Ok(json!({"rpm": "many"})),
            "the check of the request reports the valid fields"
        );
        assert!(route_fields("change_group").iter().any(|(name, _)| *name == "rpm"));
        assert!(!route_fields("change_group").iter().any(|(name, _)| *name == "id" || *name == "name"));
    }

    #[test]
    fn openapi_contains_every_route_once() {
        let document = openapi::document(routes(), "0");
        let mut ids = HashSet::new();
        for route in routes() {
            let method = format!("{:?}", route.method).to_lowercase();
            assert_eq!(document["paths"][route.path][&method]["operationId"], route.id, "{route:?}");
            assert!(ids.insert(route.id), "{} names two routes", route.id);
            assert!(!route.doc.is_empty() && route.path.starts_with("/admin/"), "{route:?}");
        }
        let operations: usize = document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, routes().count());
    }

    /// Paths of values without an upper bound in a schema. `at` is the path of the schema itself.
    fn unbounded(document: &Value, schema: &Value, at: &str, seen: &mut HashSet<String>) -> Vec<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            let is_new = seen.insert(name.to_owned());
            return if is_new { unbounded(document, &document["components"]["schemas"][name], name, seen) } else { Vec::new() };
        }
        if schema.get("enum").is_some() || schema.get("const").is_some() || schema["type"] == "null" {
            return Vec::new();
        }
        let has = |members: &[&str]| members.iter().all(|member| schema[*member].is_number());
        let mut found = Vec::new();
        let mut below = |schema: &Value, name: &str| found.extend(unbounded(document, schema, &format!("{at}.{name}"), seen));
        for one in schema["anyOf"].as_array().into_iter().flatten() {
            below(one, "anyOf");
        }
        let is_bounded = match schema["type"].as_str() {
            Some("string") => {
                let pattern = schema["pattern"].as_str().unwrap_or("*");
                has(&["maxLength"]) || !(pattern.contains('*') && !pattern.contains("\\*") || pattern.contains('+'))
            }
            Some("integer" | "number") => has(&["minimum", "maximum"]) || schema["anyOf"].is_array(),
            Some("array") => {
                below(&schema["items"], "items");
                has(&["maxItems"])
            }
            Some("object") => {
                for (name, member) in schema["properties"].as_object().into_iter().flatten() {
                    below(member, name);
                }
                if schema["additionalProperties"].is_object() {
                    below(&schema["additionalProperties"], "*");
                    has(&["maxProperties"]) && schema["propertyNames"]["maxLength"].is_number()
                } else {
                    schema["additionalProperties"] == false
                }
            }
            Some("boolean") => true,
            // JSON of any kind: JSON Schema cannot bound its length.
            None if schema["x-max-bytes"].is_number() => true,
            Some(_) | None => schema["anyOf"].is_array() || schema["minimum"].is_number() && schema["maximum"].is_number(),
        };
        if !is_bounded {
            found.push(at.to_owned());
        }
        found
    }

    #[test]
    fn every_parameter_and_field_of_a_request_has_bounds() {
        let document = openapi::document(routes(), "0");
        let (mut found, mut parameters) = (Vec::new(), 0);
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                for parameter in operation["parameters"].as_array().unwrap() {
                    let at = format!("{method} {path} {}", parameter["name"]);
                    found.extend(unbounded(&document, &parameter["schema"], &at, &mut HashSet::new()));
                    assert!(!parameter["description"].as_str().unwrap_or_default().is_empty(), "{at}");
                    parameters += 1;
                }
                if let Some(body) = operation.get("requestBody") {
                    let schema = &body["content"]["application/json"]["schema"];
                    found.extend(unbounded(&document, schema, &format!("{method} {path}"), &mut HashSet::new()));
                }
            }
        }
        assert!(found.is_empty(), "without bounds: {found:#?}");
        assert!(parameters > 100, "{parameters}");
    }

    #[test]
    fn path_parameters_above_their_maximum_length_are_rejected() {
        for route in routes() {
            for name in route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
                let parameter = route::path_parameter(name);
                if let tollgate_store::fields::Kind::Text { max, .. } = parameter.kind {
                    assert!(route::may_exist(name, &"é".repeat(max)) && !route::may_exist(name, &"é".repeat(max + 1)), "{name}");
                    assert!(!route::may_exist(name, "a\u{7}"), "{name}");
                }
            }
        }
    }

    #[test]
    fn openapi_references_resolve() {
        let document = openapi::document(routes(), "0");
        let text = document.to_string();
        for (at, _) in text.match_indices("#/components/schemas/") {
            let name = text[at + 21..].split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }

    #[test]
    fn money_and_member_routes_require_admin() {
        for route in routes() {
            let admins = [
                "/admin/v1/admin-keys",
                "/admin/v1/alert-destinations",
                "/admin/v1/audit",
                "/admin/v1/backups",
                "/admin/v1/ledger",
                "/admin/v1/settings",
            ]
            .iter()
            .any(|path| route.path.starts_with(path));
            if admins || (route.path.starts_with("/admin/v1/members") && route.method != Method::Get) {
                assert_eq!(route.needs.for_all(), Some(AdminScope::Admin), "{route:?}");
            }
        }
    }
}
