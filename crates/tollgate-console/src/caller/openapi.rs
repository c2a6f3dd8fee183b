//! The OpenAPI document of what callers use, made from the table of protocols and from that of the paths about a key. The bodies of
//! models are those of each provider's own protocol, so they are named and not described.

use serde_json::{Map, Value, json};
use tollgate_protocol::{CallerSurface, Protocol};

use super::{CallerAnswer, KEY_ID, ROUTES};
use crate::{
    api::openapi::{Schemas, reference},
    square::{self, Feed},
};

/// Where the document is served, to everyone.
pub(super) const PATH: &str = "/v1/openapi.json";

/// The headers that requests for an answer of a model may have.
const HEADERS: [(&str, &str); 4] = [
    (
        "x-tollgate-max-price",
        "Highest price for this request in USD per million tokens, such as `input:1.5,output:6`. More expensive channels are not used.",
    ),
    ("x-tollgate-tags", "Up to 16 tags by which usage is summed up, such as `project=web,user=ada`."),
    ("x-tollgate-trace", "`1` requests the routing trace, if the group allows it."),
    ("x-request-id", "The caller's own id of the request."),
];

const JSON: &str = "application/json";

/// The document, with the name of the API in each protocol as its tags.
pub(crate) fn document(version: &str) -> Value {
    let (mut schemas, mut paths) = (Schemas::default(), Map::new());
    let mut add = |method: &str, path: &str, operation: Value| {
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        // Two protocols list models at one path.
        if entry.get(method).is_none() {
            entry[method] = operation;
        }
    };
    for (protocol, surface) in Protocol::ALL.into_iter().filter_map(|protocol| Some((protocol, protocol.spec().caller?))) {
        for (path, about, operation) in of_models(surface) {
            add("post", &path, model_operation(protocol, &path, about, operation));
        }
        let list = surface.model_list_path;
        add("get", list, listing(protocol, "The models that the key may use.", list));
        let one = format!("{list}/{{model}}");
        add("get", &one, listing(protocol, "One model that the key may use.", &one));
    }
    for route in ROUTES.iter().filter(|route| is_described(route.path)) {
        let parameters: Vec<Value> = [route.query, &[KEY_ID]].concat().iter().map(|field| schemas.query(field)).collect();
        add("get", route.path, operation("key", route.path, about(route.answers), &parameters, (JSON, &json!({"type": "object"}))));
    }
    for (path, about, feed, query) in square::feeds() {
        let parameters: Vec<Value> = query.iter().map(|field| schemas.query(field)).collect();
        let (media, answer) = match feed {
            Feed::Json => (JSON, schemas.answer(&square::SQUARE)),
            Feed::Atom => ("application/atom+xml", json!({"type": "string"})),
        };
        let mut operation = operation("square", path, about, &parameters, (media, &answer));
        operation["security"] = json!([{}, {"key": []}]);
        add("get", path, operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tollgate model API",
            "version": version,
            "description": "One address and one key for several protocols. Bodies, answers and errors have the form of the protocol of \
                their path.",
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A service key, here or in the key header of the protocol."},
            },
            "schemas": schemas.with_error(),
        },
    })
}

/// Whether a path is described. A path that differs from another only by a trailing slash is not.
fn is_described(path: &str) -> bool {
    !path.ends_with('/')
}

/// Path, summary and kind of answer of each method for a model.
fn of_models(surface: CallerSurface) -> Vec<(String, &'static str, Streams)> {
    let path = |target: &str| {
        if target.starts_with('/') { target.to_owned() } else { format!("{}/{{model}}:{target}", surface.model_list_path) }
    };
    let generation = surface.generation.iter().map(|target| {
        let (about, streams) = summary(target);
        (path(target), about, streams)
    });
    let embedding = surface.embedding.iter().map(|target| (path(target), "Embeds texts.", Streams::Never));
    generation.chain(embedding).collect()
}

/// Whether an answer can be a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streams {
    Never,
    IfAsked,
    Always,
}

/// What a method does.
fn summary(target: &str) -> (&'static str, Streams) {
    match target.rsplit('/').next().unwrap_or(target) {
        "completions" | "messages" => ("Answers a conversation; with `\"stream\": true` as a stream.", Streams::IfAsked),
        "responses" => {
            ("Answers a conversation, with tools of the provider; with `\"stream\": true` as a stream.", Streams::IfAsked)
        }
        "generateContent" => ("Answers a conversation.", Streams::Never),
        "streamGenerateContent" => {
            ("Answers a conversation as a stream: events with `?alt=sse`, else one JSON array.", Streams::Always)
        }
        "compact" => ("Makes a sealed summary of a conversation; only for upstreams of the same protocol.", Streams::Never),
        _ => ("Counts the tokens of a request; costs nothing.", Streams::Never),
    }
}

fn about(answers: CallerAnswer) -> &'static str {
    match answers {
        CallerAnswer::Key => "Groups, models, limits and budgets of the key, with the remaining amounts and when they renew.",
        CallerAnswer::Usage => "Sums of the key: requests, tokens and amount.",
        CallerAnswer::Records => "Records of the key, newest first.",
        CallerAnswer::Subscription => "The limit of the key, as clients of OpenAI's old dashboard API read it.",
        CallerAnswer::TotalUsage => "What the key has spent in cents, as clients of OpenAI's old dashboard API read it.",
        CallerAnswer::Balance => "The remaining amount, as clients of DeepSeek's API read it.",
        CallerAnswer::Account => "The remaining and the spent amount in new-api's unit, of the account.",
        CallerAnswer::TokenUsage => "The remaining and the spent amount in new-api's unit, of the key.",
    }
}

/// The id of an operation: method and path in words.
fn id(method: &str, path: &str) -> String {
    let words: Vec<&str> = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    format!("{method}_{}", words.join("_"))
}

fn answers(content: &Value) -> Value {
    json!({
        "200": {"description": "Done.", "content": content},
        "default": {
            "description": "Refused; the error has the form of the protocol.",
            "content": {"application/json": {"schema": reference("Error")}},
        },
    })
}

/// A GET request whose answer has this media type and schema.
fn operation(tag: &str, path: &str, about: &str, parameters: &[Value], (media, answer): (&str, &Value)) -> Value {
    let mut content = Map::new();
    content.insert(media.to_owned(), json!({"schema": answer}));
    json!({
        "operationId": id("get", path), "summary": about, "tags": [tag], "parameters": parameters,
        "responses": answers(&Value::Object(content)),
    })
}

fn model_parameter() -> Value {
    let schema = json!({"type": "string", "minLength": 1, "maxLength": 256});
    json!({"name": "model", "in": "path", "required": true, "description": "Name of the model.", "schema": schema})
}

fn listing(protocol: Protocol, about: &str, path: &str) -> Value {
    let parameters = if path.contains("{model}") { vec![model_parameter()] } else { Vec::new() };
    operation(protocol.as_str(), path, about, &parameters, (JSON, &json!({"type": "object"})))
}

fn model_operation(protocol: Protocol, path: &str, about: &str, streams: Streams) -> Value {
    let header = |(name, about): &(&str, &str)| json!({"name": name, "in": "header", "required": false, "description": about, "schema": {"type": "string"}});
    let mut parameters: Vec<Value> = Vec::new();
    if path.contains("{model}") {
        parameters.push(model_parameter());
    }
    parameters.extend(HEADERS.iter().map(header));
    let about_body = "As the protocol has it. The page of a model lists the parameters that it takes.";
    let object = json!({"schema": {"type": "object", "description": about_body}});
    let mut content = Map::new();
    content.insert("application/json".to_owned(), object.clone());
    if streams != Streams::Never {
        content.insert("text/event-stream".to_owned(), json!({"schema": {"type": "string"}}));
    }
    json!({
        "operationId": id("post", path), "summary": about, "tags": [protocol.as_str()], "parameters": parameters,
        "requestBody": {"required": true, "content": {"application/json": object}},
        "responses": answers(&Value::Object(content)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_callers_is_described() {
        let document = document("0");
        for route in ROUTES.iter().filter(|route| is_described(route.path)) {
            assert!(document["paths"][route.path]["get"]["summary"].is_string(), "{}", route.path);
        }
        for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1beta/models/{model}:countTokens"] {
            let operation = &document["paths"][path]["post"];
            assert!(operation["requestBody"]["required"] == true && operation["parameters"].is_array(), "{path}");
        }
        assert!(document["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]["text/event-stream"].is_object());
        assert!(document["paths"]["/v1/messages/count_tokens"]["post"]["summary"].as_str().unwrap().contains("costs nothing"));
        let text = document.to_string();
        for (at, _) in text.match_indices("#/components/schemas/") {
            let name = text[at + 21..].split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
        let mut ids: Vec<&str> = Vec::new();
        for operations in document["paths"].as_object().unwrap().values() {
            ids.extend(operations.as_object().unwrap().values().map(|it| it["operationId"].as_str().unwrap()));
        }
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "each operation has its own id: {ids:?}");
    }
}
