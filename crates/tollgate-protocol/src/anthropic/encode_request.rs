//! Encodes requests for Messages upstreams.

mod messages;
mod thinking;

use serde_json::Number;

use self::thinking::ThinkingFields;
use crate::{
    Malformed, Method, Protocol,
    json_writer::{Json, JsonObject},
    neutral::{
        Format, Located, Operation, Tool, ToolChoice, ToolChoiceMode,
        encode_context::{EncodeContext, NOT_FORCED, free_text},
        schema,
    },
};

/// Output limit in tokens where neither the caller nor the profile gives one; the protocol requires it.
const DEFAULT_MAX_TOKENS: u64 = 16_384;

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
    let request = out.request;
    let given = request.params.max_tokens.as_ref().map(|given| given.value);
    let fallback = out.profile.default_max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let thinking = thinking::thinking(out, given, fallback);
    let limit = thinking.max_tokens.or(given).unwrap_or(fallback);
    let mut body = JsonObject(vec![("model", Json::text(out.model)), ("max_tokens", Json::uint(limit))]);
    conversation(out, &mut body);
    write_tools(out, &mut body, thinking.budgeted);
    write_params(out, &mut body, thinking);
    body.json()
}

fn conversation(out: &mut EncodeContext<'_>, body: &mut JsonObject) {
    body.put_some("system", messages::system(out));
    let messages = messages::conversation(out);
    body.put("messages", Json::List(messages));
}

/// Encodes the members that the token counter accepts.
fn count(out: &mut EncodeContext<'_>) -> Json {
    let mut body = JsonObject(vec![("model", Json::text(out.model))]);
    conversation(out, &mut body);
    write_tools(out, &mut body, false);
    body.json()
}

// --- tools ---

/// Encodes `tools` and `tool_choice`. `budgeted`: thinking has a budget, with which tools cannot be forced.
fn write_tools(out: &mut EncodeContext<'_>, body: &mut JsonObject, budgeted: bool) {
    let request = out.request;
    let choice = request.choice.as_ref();
    if !out.tool_choice_is_valid() {
        return;
    }
    // The protocol has no list of allowed tools: only the allowed ones are declared.
    let allowed = choice.filter(|choice| match choice.mode {
        ToolChoiceMode::None => false,
        ToolChoiceMode::Auto => !choice.names.is_empty(),
        ToolChoiceMode::Any => choice.names.len() > 1,
    });
    let declared = request.tools.iter().filter(|tool| allowed.is_none_or(|choice| choice.names.contains(&tool.name)));
    let mut tools: Vec<Json> = declared.map(|tool| declaration(out, tool)).collect();
    for tool in &request.server_tools {
        if tool.owner == Protocol::Anthropic {
            tools.push(Json::Raw(tool.raw.clone()));
        } else {
            out.report.refuse(&tool.path);
        }
    }
    let has_tools = !tools.is_empty();
    if has_tools {
        body.put("tools", Json::List(tools));
    }
    body.put_some("tool_choice", tool_choice(out, choice, has_tools, budgeted));
}

fn declaration(out: &mut EncodeContext<'_>, tool: &Tool) -> Json {
    let mut entry = JsonObject(vec![("name", Json::text(out.names.get(&tool.name)))]);
    entry.put_some("description", out.tool_description(tool).map(Json::Text));
    let schema = if tool.custom { Some(schema::to_json(&free_text())) } else { tool.schema.as_ref().map(schema::to_json) };
    let mut schema = schema.unwrap_or_else(|| serde_json::json!({"type": "object", "properties": {}}));
    if let serde_json::Value::Object(root) = &mut schema
        && !root.contains_key("type")
    {
        root.insert("type".to_owned(), "object".into());
    }
    for keyword in schema::without_root_choices(&mut schema) {
        out.report.drop_field(&format!("{}.parameters.{keyword}", tool.path));
    }
    let strict = tool.strict.filter(|strict| *strict && !tool.custom);
    if strict.is_some() {
        schema = closed_schema(out, &schema, &format!("{}.parameters", tool.path));
    }
    entry.put("input_schema", Json::value(&schema));
    entry.put_some("strict", strict.map(Json::Bool));
    entry.json()
}

fn tool_choice(out: &mut EncodeContext<'_>, choice: Option<&ToolChoice>, has_tools: bool, budgeted: bool) -> Option<Json> {
    let disable_parallel = out.request.params.parallel.is_some();
    if !has_tools {
        if let Some(ToolChoice { mode: ToolChoiceMode::Any, path, .. }) = choice {
            out.report.malformed(Malformed::invalid(out.request.origin, path, "is only allowed when tools are given"));
        }
        return None;
    }
    let mut encoded = match choice {
        None if disable_parallel => JsonObject(vec![("type", Json::text("auto"))]),
        None => return None,
        Some(ToolChoice { mode: ToolChoiceMode::None, .. }) => return Some(Json::object([("type", Json::text("none"))])),
        Some(ToolChoice { mode: ToolChoiceMode::Auto, .. }) => JsonObject(vec![("type", Json::text("auto"))]),
        Some(ToolChoice { path, .. }) if budgeted || out.profile.forced_tools == Some(false) => {
            let reason = if budgeted { "the model cannot be forced to call a tool while it thinks" } else { NOT_FORCED };
            out.report.refuse_because(path, reason);
            return None;
        }
        Some(ToolChoice { names, .. }) => match names.as_slice() {
            [only] => JsonObject(vec![("type", Json::text("tool")), ("name", Json::text(out.names.get(only)))]),
            _ => JsonObject(vec![("type", Json::text("any"))]),
        },
    };
    if disable_parallel {
        encoded.put("disable_parallel_tool_use", Json::Bool(true));
    }
    Some(encoded.json())
}

// --- params ---

/// Minimum `top_p` with a thinking budget (Anthropic API docs, "Extended thinking").
const MIN_TOP_P: f64 = 0.95;

/// True for 1, the default temperature.
fn is_one(value: f64) -> bool {
    (value - 1.0).abs() < f64::EPSILON
}

/// Encodes the parameters that the protocol supports and refuses the others.
fn write_params(out: &mut EncodeContext<'_>, body: &mut JsonObject, thinking: ThinkingFields) {
    let request = out.request;
    let params = &request.params;
    let mut supported = out.supported_params();
    if thinking.budgeted {
        let restrict = |number: &mut Option<&Number>, given: &Option<Located<Number>>, is_allowed: &dyn Fn(f64) -> bool| {
            let (Some(value), Some(given)) = (*number, given) else { return None };
            if value.as_f64().is_some_and(is_allowed) {
                return None;
            }
            *number = None;
            Some(given.path.clone())
        };
        let refused = [
            restrict(&mut supported.temperature, &params.temperature, &is_one),
            restrict(&mut supported.top_p, &params.top_p, &|value| value >= MIN_TOP_P),
            restrict(&mut supported.top_k, &params.top_k, &|_| false),
        ];
        for field in refused.into_iter().flatten() {
            out.report.refuse_because(&field, "cannot be combined with thinking");
        }
    }
    body.put_some("thinking", thinking.thinking);
    let mut output = JsonObject::default();
    output.put_some("effort", thinking.effort.map(Json::Text));
    output.put_some("format", format(out));
    body.put_some("output_config", output.some());
    body.put_some("temperature", supported.temperature.map(Json::number));
    body.put_some("top_p", supported.top_p.map(Json::number));
    body.put_some("top_k", supported.top_k.map(Json::number));
    if let (Some(stop), Some(given)) = (supported.stop, &params.stop) {
        if stop.iter().any(|sequence| sequence.trim().is_empty()) {
            out.report.refuse_because(&given.path, "a stop sequence must not be blank");
        } else {
            body.put("stop_sequences", Json::texts(stop));
        }
    }
    refuse_unsupported(out);
    user(out, body);
    if params.stream {
        body.put("stream", Json::Bool(true));
    }
}

fn refuse_unsupported(out: &mut EncodeContext<'_>) {
    let params = &out.request.params;
    let google = &params.google;
    let unsupported = [
        params.seed.as_ref().map(|given| &given.path),
        params.tier.as_ref().map(|given| &given.path),
        params.web_search.as_ref().map(|given| &given.path),
        params.verbosity.as_ref().map(|given| &given.path),
        google.cached_content.as_ref().map(|given| &given.path),
        params.media_resolution.as_ref().map(|given| &given.path),
    ];
    for field in unsupported.into_iter().flatten() {
        out.report.refuse(field);
    }
    if let Some(safety) = &google.safety_settings {
        out.report.drop_field(&safety.path);
    }
}

/// Encodes the end-user id where the channel allows it.
fn user(out: &mut EncodeContext<'_>, body: &mut JsonObject) {
    let Some(user) = &out.request.params.user else { return };
    if out.options.pass_user || out.request.origin == Protocol::Anthropic {
        body.put("metadata", Json::object([("user_id", Json::text(&user.value))]));
    } else {
        out.report.drop_field(&user.path);
    }
}

fn format(out: &mut EncodeContext<'_>) -> Option<Json> {
    let Located { value, path } = out.request.params.format.as_ref()?;
    let Format::Schema { schema, description, .. } = value else {
        out.report.refuse(path);
        return None;
    };
    let path = match out.request.origin {
        Protocol::OpenAi => format!("{path}.json_schema.schema"),
        Protocol::Responses => format!("{path}.schema"),
        Protocol::Gemini | Protocol::Anthropic => path.clone(),
    };
    let schema = out.described_schema(schema, description.as_ref());
    let schema = closed_schema(out, &schema::to_json(&schema), &path);
    Some(Json::object([("type", Json::text("json_schema")), ("schema", Json::value(&schema))]))
}

/// The schema in the subset that the upstream enforces. Keywords outside the subset are reported by name. Schemas of
/// Anthropic callers are already in the subset.
fn closed_schema(out: &mut EncodeContext<'_>, schema: &serde_json::Value, path: &str) -> serde_json::Value {
    if out.request.origin == Protocol::Anthropic {
        return schema.clone();
    }
    let closed = schema::to_anthropic(schema);
    for place in &closed.described {
        out.report.drop_field(&format!("{path}{place}"));
    }
    for place in &closed.closed {
        out.report.adjust(&format!("{path}{place}"), "false");
    }
    for (place, reason) in closed.refused {
        out.report.refuse_because(&format!("{path}{place}"), reason);
    }
    closed.schema
}
