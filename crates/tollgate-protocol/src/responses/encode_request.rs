//! Encodes requests for Responses upstreams. They forbid storing, and request thoughts in sealed form.

mod items;

use crate::{
    Malformed, Method, Protocol, Thinking,
    json_writer::{Json, JsonObject},
    neutral::{
        Format, Grammar, Located, Operation, Part, Tool, ToolChoice, ToolChoiceMode,
        effort::shows_thoughts,
        encode_context::{EncodeContext, NOT_FORCED},
        schema,
    },
};

pub(crate) fn encode(out: &mut EncodeContext<'_>) -> (Method, Json) {
    match &out.request.operation {
        Operation::Generate => (Method::Chat, generate(out)),
        Operation::Count => (Method::CountTokens, count(out)),
        Operation::Embed(embed) => {
            out.refuse_embeddings(embed);
            (Method::Embeddings, Json::Object(Vec::new()))
        }
    }
}

fn generate(out: &mut EncodeContext<'_>) -> Json {
    let mut body = conversation(out);
    write_params(out, &mut body);
    body.json()
}

/// Encodes the members that the token counter accepts.
fn count(out: &mut EncodeContext<'_>) -> Json {
    conversation(out).json()
}

/// Encodes model, instructions, input and tools. Several system texts are items of the input.
fn conversation(out: &mut EncodeContext<'_>) -> JsonObject {
    let mut body = JsonObject(vec![("model", Json::text(out.model))]);
    let system: Vec<&str> = out.system().into_iter().filter_map(Part::as_text).collect();
    let mut input = Vec::new();
    match system.as_slice() {
        [] => {}
        [only] => body.put("instructions", Json::text(*only)),
        texts => input.extend(texts.iter().map(|text| items::message("developer", Json::text(*text)))),
    }
    input.extend(items::conversation(out));
    if out.needs_the_word_json() {
        input.push(items::message("developer", Json::text("Respond with JSON.")));
    }
    body.put("input", Json::List(input));
    out.write_tools(&mut body, declaration, tool_choice);
    body
}

// --- tools ---

fn declaration(out: &EncodeContext<'_>, tool: &Tool) -> Json {
    let kind = if tool.custom { "custom" } else { "function" };
    let mut entry = JsonObject(vec![("type", Json::text(kind)), ("name", Json::text(out.names.get(&tool.name)))]);
    entry.put_some("description", tool.description.as_ref().map(Json::text));
    if tool.custom {
        entry.put_some("format", tool.grammar.as_ref().map(grammar));
        return entry.json();
    }
    let schema = tool.schema.as_ref().map(schema::for_openai);
    let schema = schema.unwrap_or_else(|| serde_json::json!({"type": "object", "properties": {}}));
    entry.put("parameters", Json::value(&schema));
    // Absent means strict here, and lax in the other protocols.
    entry.put("strict", Json::Bool(tool.strict.unwrap_or(false)));
    entry.json()
}

fn grammar(Grammar { syntax, definition, .. }: &Grammar) -> Json {
    Json::object([("type", Json::text("grammar")), ("syntax", Json::text(syntax)), ("definition", Json::text(definition))])
}

fn tool_choice(out: &mut EncodeContext<'_>, choice: &ToolChoice) -> Option<Json> {
    let ToolChoice { mode, names, path } = choice;
    if out.request.tools.is_empty() {
        if *mode == ToolChoiceMode::Any {
            out.report.malformed(Malformed::invalid(out.request.origin, path, "is only allowed when tools are given"));
        }
        return None;
    }
    if *mode == ToolChoiceMode::Any && out.profile.forced_tools == Some(false) {
        out.report.refuse_because(path, NOT_FORCED);
        return None;
    }
    let named = |out: &EncodeContext<'_>, name: &String| {
        let custom = out.request.tools.iter().any(|tool| tool.custom && tool.name == *name);
        let kind = if custom { "custom" } else { "function" };
        Json::object([("type", Json::text(kind)), ("name", Json::text(out.names.get(name)))])
    };
    Some(match (mode, names.as_slice()) {
        (ToolChoiceMode::None, _) => Json::text("none"),
        (ToolChoiceMode::Auto, []) => Json::text("auto"),
        (ToolChoiceMode::Any, []) => Json::text("required"),
        (ToolChoiceMode::Any, [only]) => named(out, only),
        (ToolChoiceMode::Auto | ToolChoiceMode::Any, names) => {
            let mode = if *mode == ToolChoiceMode::Auto { "auto" } else { "required" };
            let tools = names.iter().map(|name| named(out, name)).collect();
            Json::object([("type", Json::text("allowed_tools")), ("mode", Json::text(mode)), ("tools", Json::List(tools))])
        }
    })
}

// --- params ---

fn write_params(out: &mut EncodeContext<'_>, body: &mut JsonObject) {
    let allowed = out.supported_params();
    let request = out.request;
    let params = &request.params;
    body.put_some("temperature", allowed.temperature.map(Json::number));
    body.put_some("top_p", allowed.top_p.map(Json::number));
    body.put_some("max_output_tokens", output_limit(out).map(Json::uint));
    let mut include = Vec::new();
    // OpenAI refuses it for models that do not think: "Encrypted content is not supported with this model."
    if out.profile.thinking != Some(Thinking::None) {
        include.push("reasoning.encrypted_content");
    }
    if allowed.logprobs {
        include.push("message.output_text.logprobs");
        body.put_some("top_logprobs", allowed.top_logprobs.map(|count| Json::Int(count.into())));
    }
    refuse_unsupported(out);
    body.put_some("text", text(out));
    body.put_some("reasoning", reasoning(out).some());
    body.put_some("service_tier", params.tier.as_ref().map(|given| Json::text(&given.value)));
    for label in &params.labels {
        body.put(label.name, Json::Raw(label.value.clone()));
    }
    if let Some(user) = &params.user {
        if request.origin == Protocol::OpenAi {
            body.put("user", Json::text(&user.value));
        } else {
            out.report.drop_field(&user.path);
        }
    }
    if !include.is_empty() {
        body.put("include", Json::texts(&include));
    }
    body.put("store", Json::Bool(false));
    if params.stream {
        body.put("stream", Json::Bool(true));
    }
}

/// The limit of output tokens. OpenAI's Responses API accepts no limit below 16, but agents request one token to test whether a model
/// answers.
fn output_limit(out: &mut EncodeContext<'_>) -> Option<u64> {
    const MIN_TOKENS: u64 = 16;
    let Located { value, path } = out.request.params.max_tokens.as_ref()?;
    if *value < MIN_TOKENS {
        out.report.adjust(path, &MIN_TOKENS.to_string());
    }
    Some(MIN_TOKENS.max(*value))
}

/// Why stop sequences are refused.
const NO_STOP: &str = "the Responses API of its upstream has no stop sequences; cut the answer off yourself";

/// Refuses parameters that the protocol does not have, including some that `supported_params` allows by the profile.
fn refuse_unsupported(out: &mut EncodeContext<'_>) {
    let params = &out.request.params;
    let google = &params.google;
    if let Some(stop) = &params.stop {
        out.report.refuse_because(&stop.path, NO_STOP);
    }
    let unsupported = [
        params.n.as_ref().map(|given| &given.path),
        params.seed.as_ref().map(|given| &given.path),
        params.presence.as_ref().map(|given| &given.path),
        params.frequency.as_ref().map(|given| &given.path),
        params.top_k.as_ref().map(|given| &given.path),
        params.web_search.as_ref().map(|given| &given.path),
        google.cached_content.as_ref().map(|given| &given.path),
    ];
    for field in unsupported.into_iter().flatten() {
        out.report.refuse(field);
    }
    // `detail` has `low` and `high`, no medium.
    if let Some(resolution) = params.media_resolution.as_ref().filter(|given| !matches!(given.value.as_str(), "low" | "high")) {
        out.report.refuse(&resolution.path);
    }
    if let Some(safety) = &google.safety_settings {
        out.report.drop_field(&safety.path);
    }
}

fn text(out: &mut EncodeContext<'_>) -> Option<Json> {
    let mut text = JsonObject::default();
    text.put_some("format", format(out));
    text.put_some("verbosity", out.request.params.verbosity.as_ref().map(|given| Json::text(&given.value)));
    text.some()
}

fn format(out: &mut EncodeContext<'_>) -> Option<Json> {
    let Located { value, path } = out.request.params.format.as_ref()?;
    let Format::Schema { schema, name, description, strict } = value else {
        return Some(Json::object([("type", Json::text("json_object"))]));
    };
    let json = schema::to_json(schema);
    if !schema::root_is_object(&json) {
        out.report.refuse_because(path, "the root type must be object");
        return None;
    }
    let name = name.as_deref().unwrap_or("response");
    let mut format = JsonObject(vec![("type", Json::text("json_schema")), ("name", Json::text(name))]);
    format.put_some("description", description.as_ref().map(|given| Json::text(&given.value)));
    format.put("schema", Json::value(&json));
    format.put("strict", Json::Bool(strict.unwrap_or(false)));
    Some(format.json())
}

/// Effort, and a summary if the caller gets thoughts.
fn reasoning(out: &mut EncodeContext<'_>) -> JsonObject {
    let mut reasoning = JsonObject::default();
    reasoning.put_some("effort", out.effort_word().map(Json::Text));
    if matches!(out.profile.thinking, Some(Thinking::None) | None) {
        let include = out.request.params.thinking.include.as_ref();
        if let Some(include) = include.filter(|include| include.value && out.request.origin != Protocol::Anthropic) {
            out.report.drop_field(&include.path);
        }
    } else if shows_thoughts(out.request) {
        reasoning.put("summary", Json::text("auto"));
    }
    reasoning
}
