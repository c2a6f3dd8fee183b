//! The API reference: an OpenAPI document that the gateway serves, as a page. Operations are grouped by their tags, and every schema is
//! described once, below them.

use std::{collections::BTreeMap, sync::Arc};

use askama::Template;
use serde::Deserialize;
use serde_json::Value;

use super::schema_text::{SchemaField, SchemaType, fields, type_of};
use crate::{
    api_error::ApiError,
    caller::openapi_document,
    dispatch::ApiCall,
    pages::{
        inline,
        layout::Layout,
        locale::Locale,
        models::document_for,
        operations, protocols,
        reply::{PageFailure, PageReply},
        request::PageRequest,
    },
};

/// Types of contents that are not named beside an answer.
const JSON: &str = "application/json";

#[derive(Debug, Template)]
#[template(path = "docs_reference.html")]
struct ReferencePage {
    layout: Layout,
    t: Locale,
    about: &'static str,
    /// Path of the document.
    document: &'static str,
    /// The other reference: path and name.
    other: Option<(&'static str, &'static str)>,
    groups: Vec<OperationGroup>,
    schemas: Vec<SchemaPart>,
}

#[derive(Debug, PartialEq, Eq)]
struct OperationGroup {
    tag: String,
    title: &'static str,
    operations: Vec<OperationPart>,
}

#[derive(Debug, PartialEq, Eq)]
struct OperationPart {
    id: String,
    method: String,
    /// Class of the colour of the method.
    tone: &'static str,
    path: String,
    summary: String,
    /// Who may call it.
    needs: Option<String>,
    parameters: Vec<ParameterPart>,
    body: Option<BodyPart>,
    answers: Vec<AnswerPart>,
}

#[derive(Debug, PartialEq, Eq)]
struct ParameterPart {
    name: String,
    place: &'static str,
    is_required: bool,
    about: String,
    kind: SchemaType,
}

#[derive(Debug, PartialEq, Eq)]
struct BodyPart {
    is_required: bool,
    kind: SchemaType,
    about: String,
}

#[derive(Debug, PartialEq, Eq)]
struct AnswerPart {
    status: String,
    about: String,
    /// Type of the content, unless it is JSON alone.
    media: String,
    kind: Option<SchemaType>,
}

#[derive(Debug)]
struct SchemaPart {
    name: String,
    fields: Vec<SchemaField>,
}

#[derive(Debug, Deserialize)]
struct Document {
    paths: BTreeMap<String, BTreeMap<String, OperationObject>>,
    components: Components,
}

#[derive(Debug, Deserialize)]
struct Components {
    schemas: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OperationObject {
    operation_id: String,
    summary: String,
    #[serde(default)]
    description: Option<String>,
    tags: Vec<String>,
    #[serde(default)]
    parameters: Vec<ParameterObject>,
    #[serde(default)]
    request_body: Option<BodyObject>,
    responses: BTreeMap<String, AnswerObject>,
}

#[derive(Debug, Deserialize)]
struct ParameterObject {
    name: String,
    #[serde(rename = "in")]
    place: String,
    required: bool,
    #[serde(default)]
    description: String,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct BodyObject {
    required: bool,
    content: BTreeMap<String, Content>,
}

#[derive(Debug, Deserialize)]
struct AnswerObject {
    description: String,
    #[serde(default)]
    content: BTreeMap<String, Content>,
}

#[derive(Debug, Deserialize)]
struct Content {
    #[serde(default)]
    schema: Value,
}

/// The reference of the model API.
pub(super) async fn of_callers(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    // Visitors see the page only if they see the square.
    document_for(&request, None, None).await?;
    let t = request.t();
    let found = openapi_document(env!("CARGO_PKG_VERSION"));
    let other = request.signed_in.is_some().then(|| ("/docs/admin-api", t.say("reference.admin")));
    page(&request, t.say("reference.callers"), t.say("reference.callers_about"), ("/v1/openapi.json", found), other)
}

/// The reference of the admin API, for readers who may read its document.
pub(super) async fn of_admins(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let found: Value = request.read(operations::GET_OPENAPI, ApiCall::default()).await?;
    let other = Some(("/docs/api", t.say("reference.callers")));
    page(&request, t.say("reference.admin"), t.say("reference.admin_about"), ("/admin/openapi.json", found), other)
}

fn page(
    request: &PageRequest,
    title: &'static str,
    about: &'static str,
    (document, found): (&'static str, Value),
    other: Option<(&'static str, &'static str)>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let read: Document = serde_json::from_value(found).map_err(|fault| {
        tracing::error!(%fault, document, "the OpenAPI document cannot be read");
        ApiError::internal()
    })?;
    let template = ReferencePage {
        layout: request.layout(title).below("/docs", t.say("nav.docs")),
        t,
        about,
        document,
        other,
        schemas: read
            .components
            .schemas
            .iter()
            .map(|(name, schema)| SchemaPart { name: name.clone(), fields: fields(t, schema) })
            .collect(),
        groups: groups(t, read.paths),
    };
    PageReply::ok(&template)
}

/// The operations by their first tag, in the order in which the tags first occur.
fn groups(t: Locale, paths: BTreeMap<String, BTreeMap<String, OperationObject>>) -> Vec<OperationGroup> {
    let mut groups: Vec<OperationGroup> = Vec::new();
    for (path, operations) in paths {
        for (method, operation) in operations {
            // The tag is a part of an id in the page, where spaces are not allowed.
            let tag = operation.tags.first().map(|tag| tag.replace(' ', "-")).unwrap_or_default();
            let part = part(t, &method, &path, operation);
            match groups.iter_mut().find(|group| group.tag == tag) {
                Some(group) => group.operations.push(part),
                None => groups.push(OperationGroup { title: title(t, &tag), tag, operations: vec![part] }),
            }
        }
    }
    groups
}

/// The name of a group of operations: that of a protocol, or of a resource. A test looks for tags without one.
fn title(t: Locale, tag: &str) -> &'static str {
    match tag {
        "key" => t.say("reference.own_key"),
        "square" => t.say("nav.models"),
        "accounts" => t.say("reference.tag_accounts"),
        "admin-keys" => t.say("reference.tag_admin_keys"),
        "alerts" => t.say("reference.tag_alerts"),
        "audit" => t.say("reference.tag_audit"),
        "backups" => t.say("reference.tag_backups"),
        "budgets" => t.say("reference.tag_budgets"),
        "catalog" => t.say("reference.tag_catalog"),
        "channels" => t.say("reference.tag_channels"),
        "document" => t.say("reference.tag_document"),
        "explain" => t.say("reference.tag_explain"),
        "groups" => t.say("reference.tag_groups"),
        "health" => t.say("reference.tag_health"),
        "invites" => t.say("reference.tag_invites"),
        "jobs" => t.say("reference.tag_jobs"),
        "keys" => t.say("reference.tag_keys"),
        "ledger" => t.say("reference.tag_ledger"),
        "members" => t.say("reference.tag_members"),
        "models" => t.say("reference.tag_models"),
        "one-time-codes" => t.say("reference.tag_one_time_codes"),
        "passkeys" => t.say("reference.tag_passkeys"),
        "password" => t.say("reference.tag_password"),
        "prices" => t.say("reference.tag_prices"),
        "session" => t.say("reference.tag_session"),
        "sessions" => t.say("reference.tag_sessions"),
        "settings" => t.say("reference.tag_settings"),
        "usage" => t.say("reference.tag_usage"),
        _ => protocols::label(t, tag),
    }
}

fn part(t: Locale, method: &str, path: &str, operation: OperationObject) -> OperationPart {
    let parameter = |it: ParameterObject| ParameterPart {
        place: match it.place.as_str() {
            "path" => t.say("reference.in_path"),
            "header" => t.say("reference.in_header"),
            _ => t.say("reference.in_query"),
        },
        is_required: it.required,
        kind: type_of(t, &it.schema),
        about: it.description,
        name: it.name,
    };
    let body = operation.request_body.and_then(|body| {
        let content = body.content.into_values().next()?;
        let about = content.schema["description"].as_str().unwrap_or_default().to_owned();
        Some(BodyPart { is_required: body.required, kind: type_of(t, &content.schema), about })
    });
    OperationPart {
        id: operation.operation_id,
        method: method.to_uppercase(),
        tone: match method {
            "get" => "info",
            "delete" => "bad",
            _ => "ok",
        },
        path: path.to_owned(),
        summary: operation.summary,
        needs: operation.description,
        parameters: operation.parameters.into_iter().map(parameter).collect(),
        body,
        answers: operation.responses.iter().map(|(status, answer)| answer_part(t, status, answer)).collect(),
    }
}

fn answer_part(t: Locale, status: &str, answer: &AnswerObject) -> AnswerPart {
    let media: Vec<&str> = answer.content.keys().map(String::as_str).collect();
    let schema = answer.content.get(JSON).or_else(|| answer.content.values().next()).map(|content| &content.schema);
    AnswerPart {
        status: if status == "default" { t.say("reference.any_error").to_owned() } else { status.to_owned() },
        about: answer.description.clone(),
        media: if media == [JSON] { String::new() } else { media.join(", ") },
        kind: schema.filter(|schema| schema.is_object()).map(|schema| type_of(t, schema)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    fn read(document: Value) -> Document {
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn every_operation_of_the_admin_api_is_shown_once_with_its_schemas() {
        let document = read(api::openapi::document(api::routes(), "0"));
        let schemas: Vec<String> = document.components.schemas.keys().cloned().collect();
        let groups = groups(Locale::EN, document.paths);
        let mut ids: Vec<&str> = groups.iter().flat_map(|group| &group.operations).map(|it| it.id.as_str()).collect();
        ids.sort_unstable();
        let mut known: Vec<&str> = api::routes().map(|route| route.id).collect();
        known.sort_unstable();
        assert_eq!(ids, known);
        for operation in groups.iter().flat_map(|group| &group.operations) {
            assert!(operation.answers.len() >= 2 && !operation.summary.is_empty(), "{}", operation.id);
            let kinds = operation.answers.iter().filter_map(|answer| answer.kind.as_ref());
            for kind in kinds.chain(operation.body.iter().map(|body| &body.kind)) {
                assert!(kind.schema.as_ref().is_none_or(|name| schemas.contains(name)), "{}: {kind:?}", operation.id);
            }
        }
    }

    #[test]
    fn every_group_has_a_name_in_the_language_of_the_reader() {
        let names = |t: Locale| {
            let documents = [api::openapi::document(api::routes(), "0"), openapi_document("0")];
            let groups = documents.into_iter().flat_map(|document| groups(t, read(document).paths));
            groups.map(|group| (group.tag, group.title)).collect::<Vec<_>>()
        };
        let (english, chinese) = (names(Locale::EN), names(Locale::ZH_CN));
        for ((tag, in_english), (_, in_chinese)) in english.iter().zip(&chinese) {
            let is_protocol = tollgate_protocol::Protocol::parse(tag).is_some();
            assert!(is_protocol || *in_english != protocols::label(Locale::EN, tag), "{tag} has no name");
            assert!(is_protocol || in_chinese != in_english, "{tag} is not translated: {in_english}");
            assert!(!tag.contains(' '), "{tag}");
        }
        assert!(chinese.contains(&("admin-keys".to_owned(), "管理密钥")));
    }

    #[test]
    fn operation_shows_parameters_body_and_answers() {
        let document = read(api::openapi::document(api::routes(), "0"));
        let groups = groups(Locale::EN, document.paths);
        let keys = groups.iter().find(|group| group.tag == "keys").unwrap();
        assert_eq!(keys.title, "Keys");
        let list = keys.operations.iter().find(|it| it.id == "list_keys").unwrap();
        assert_eq!((list.method.as_str(), list.path.as_str(), list.body.as_ref()), ("GET", "/admin/v1/keys", None));
        assert!(list.parameters.iter().any(|it| it.name == "limit" && it.place == "query" && !it.is_required));
        assert_eq!(list.answers[0].kind.as_ref().unwrap().schema.as_deref(), Some("Key"));
        let create = keys.operations.iter().find(|it| it.id == "make_key").unwrap();
        assert!(create.body.as_ref().unwrap().is_required && create.tone == "ok");
        assert_eq!(create.body.as_ref().unwrap().kind.schema.as_deref(), Some("NewKey"));
        assert_eq!(create.answers.last().unwrap().status, "Any error");
    }

    #[test]
    fn callers_find_every_protocol() {
        let document = read(openapi_document("0"));
        let groups = groups(Locale::EN, document.paths);
        for (protocol, _) in protocols::of_callers() {
            assert!(groups.iter().any(|group| group.tag == protocol.as_str()), "{protocol:?}");
        }
        assert!(groups.iter().any(|group| group.title == "Your key"));
    }
}
