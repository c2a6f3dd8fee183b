//! Encodes requests for Gemini upstreams. Fields the caller did not set are not written.

mod config;
mod contents;
mod tools;

use crate::{
    Method,
    json_writer::{Json, JsonObject},
    neutral::{EmbedRequest, Operation, Part, encode_context::EncodeContext},
};

/// Encodes the body; returns it with the upstream's method.
pub(crate) fn encode(out: &mut EncodeContext<'_>) -> (Method, Json) {
    let request = out.request;
    match &request.operation {
        Operation::Generate => {
            let method = if request.params.stream { Method::StreamGenerate } else { Method::Generate };
            (method, generate(out).json())
        }
        Operation::Count => (Method::CountTokens, count(out)),
        Operation::Embed(embed) => embed_contents(out, embed),
    }
}

fn generate(out: &mut EncodeContext<'_>) -> JsonObject {
    let mut body = conversation(out);
    body.put_some("generationConfig", config::generation_config(out).some());
    let params = &out.request.params;
    let raw = |given: &crate::neutral::Located<String>| Json::Raw(given.value.clone());
    body.put_some("safetySettings", params.google.safety_settings.as_ref().map(raw));
    body.put_some("cachedContent", params.google.cached_content.as_ref().map(|given| Json::text(&given.value)));
    body.put_some("serviceTier", params.tier.as_ref().map(|given| Json::text(&given.value)));
    if let Some(user) = &params.user {
        out.report.drop_field(&user.path);
    }
    body
}

/// Encodes contents, system instruction and tools, which counts and generation have in common.
fn conversation(out: &mut EncodeContext<'_>) -> JsonObject {
    let mut body = JsonObject::default();
    body.put("contents", Json::List(contents::contents(out)));
    let system: Vec<Json> = out.system().into_iter().filter_map(Part::as_text).map(contents::text_part).collect();
    if !system.is_empty() {
        body.put("systemInstruction", Json::object([("parts", Json::List(system))]));
    }
    let tools = tools::tools(out);
    if !tools.is_empty() {
        body.put("tools", Json::List(tools));
    }
    body.put_some("toolConfig", tools::tool_config(out));
    body
}

/// Encodes a count: only the contents if there is nothing else, otherwise the whole request.
fn count(out: &mut EncodeContext<'_>) -> Json {
    let body = conversation(out);
    if body.0.len() == 1 {
        return body.json();
    }
    let mut inner = JsonObject(vec![("model", Json::text(resource(out.model)))]);
    inner.0.extend(body.0);
    Json::object([("generateContentRequest", inner.json())])
}

fn resource(model: &str) -> String {
    if model.starts_with("models/") || model.starts_with("tunedModels/") { model.to_owned() } else { format!("models/{model}") }
}

/// Encodes embeddings: `:embedContent` if the caller used it, otherwise a batch.
fn embed_contents(out: &mut EncodeContext<'_>, embed: &EmbedRequest) -> (Method, Json) {
    if let Some(user) = &embed.user {
        out.report.drop_field(&user.path);
    }
    let mut requests: Vec<JsonObject> = Vec::with_capacity(embed.inputs.len());
    for input in &embed.inputs {
        let mut request = JsonObject::default();
        request.put("model", Json::text(resource(out.model)));
        request.put("content", Json::object([("parts", Json::List(vec![contents::text_part(input)]))]));
        request.put_some("taskType", embed.task.as_ref().map(|task| Json::text(&task.value)));
        request.put_some("title", embed.title.as_ref().map(|title| Json::text(&title.value)));
        request.put_some("outputDimensionality", embed.dimensions.as_ref().map(|given| Json::Int(given.value.into())));
        requests.push(request);
    }
    if embed.list {
        let requests = requests.into_iter().map(JsonObject::json).collect();
        return (Method::BatchEmbedContents, Json::object([("requests", Json::List(requests))]));
    }
    (Method::EmbedContent, requests.swap_remove(0).json())
}
