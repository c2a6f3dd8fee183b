//! Encodes requests for chat completions upstreams. Fields the caller did not set are not written, except those the gateway
//! needs.

mod messages;

use crate::{
    Malformed, Method, Protocol,
    json_writer::{Json, JsonObject},
    neutral::{
        EmbedRequest, Format, Grammar, Located, Operation, Tool, ToolChoice, ToolChoiceMode,
        effort::{as_effort, thinking_setting},
        encode_context::{EncodeContext, NOT_FORCED},
        schema,
    },
};

/// Encodes the body; returns it with the upstream's method. The protocol has no token counter: a count is only encoded to find what
/// cannot be expressed.
pub(crate) fn encode(out: &mut EncodeContext<'_>) -> (Method, Json) {
    match &out.request.operation {
        Operation::Generate => (Method::Chat, chat(out)),
        Operation::Count => (Method::CountTokens, count(out)),
        Operation::Embed(embed) => (Method::Embeddings, embeddings(out, embed)),
    }
}

fn chat(out: &mut EncodeContext<'_>) -> Json {
    let mut body = JsonObject(vec![("model", Json::text(out.model))]);
    let mut messages = messages::system(out);
    let rest = messages::conversation(out);
    if out.needs_the_word_json() {
        messages::add_system_line(&mut messages, "Respond with JSON.");
    }
    messages.extend(rest);
    body.put("messages", Json::List(messages));
    out.write_tools(&mut body, declaration, tool_choice);
    write_params(out, &mut body);
    body.json()
}

/// Encodes the parts of a request that a token count includes.
fn count(out: &mut EncodeContext<'_>) -> Json {
    let mut messages = messages::system(out);
    messages.extend(messages::conversation(out));
    let mut body = JsonObject(vec![("messages", Json::List(messages))]);
    out.write_tools(&mut body, declaration, tool_choice);
    body.json()
}

fn embeddings(out: &mut EncodeContext<'_>, embed: &EmbedRequest) -> Json {
    for given in [&embed.task, &embed.title].into_iter().flatten() {
        out.report.refuse_because(&given.path, "embeddings of OpenAI's protocol have no such field");
    }
    let mut body = JsonObject(vec![("model", Json::text(out.model)), ("input", Json::texts(&embed.inputs))]);
    body.put_some("dimensions", embed.dimensions.as_ref().map(|given| Json::Int(given.value.into())));
    // The gateway parses numbers and writes the caller's format itself.
    body.put("encoding_format", Json::text("float"));
    if let Some(user) = &embed.user {
        if out.request.origin == Protocol::OpenAi {
            body.put("user", Json::text(&user.value));
        } else {
            out.report.drop_field(&user.path);
        }
    }
    body.json()
}

// --- tools ---

fn declaration(out: &EncodeContext<'_>, tool: &Tool) -> Json {
    let mut inner = JsonObject(vec![("name", Json::text(out.names.get(&tool.name)))]);
    inner.put_some("description", tool.description.as_ref().map(Json::text));
    let kind = if tool.custom { "custom" } else { "function" };
    let needs_properties = out.profile.tool_properties == Some(true);
    let parameters = |schema| if needs_properties { schema::for_openai(schema) } else { schema::to_json(schema) };
    inner.put_some("parameters", tool.schema.as_ref().map(|schema| Json::value(&parameters(schema))));
    inner.put_some("strict", tool.strict.filter(|_| !tool.custom).map(Json::Bool));
    inner.put_some("format", tool.grammar.as_ref().map(grammar));
    Json::object([("type", Json::text(kind)), (kind, inner.json())])
}

fn grammar(grammar: &Grammar) -> Json {
    let inner = [("syntax", Json::text(&grammar.syntax)), ("definition", Json::text(&grammar.definition))];
    Json::object([("type", Json::text("grammar")), ("grammar", Json::object(inner))])
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
        Json::object([("type", Json::text(kind)), (kind, Json::object([("name", Json::text(out.names.get(name)))]))])
    };
    Some(match (mode, names.as_slice()) {
        (ToolChoiceMode::None, _) => Json::text("none"),
        (ToolChoiceMode::Auto, []) => Json::text("auto"),
        (ToolChoiceMode::Any, []) => Json::text("required"),
        (ToolChoiceMode::Any, [only]) => named(out, only),
        (ToolChoiceMode::Auto | ToolChoiceMode::Any, names) => {
            let mode = if *mode == ToolChoiceMode::Auto { "auto" } else { "required" };
            let tools = names.iter().map(|name| named(out, name)).collect();
            let allowed = Json::object([("mode", Json::text(mode)), ("tools", Json::List(tools))]);
            Json::object([("type", Json::text("allowed_tools")), ("allowed_tools", allowed)])
        }
    })
}

// --- params ---

/// Encodes every parameter that chat completions have.
fn write_params(out: &mut EncodeContext<'_>, body: &mut JsonObject) {
    let allowed = out.supported_params();
    let request = out.request;
    let params = &request.params;
    body.put_some("temperature", allowed.temperature.map(Json::number));
    body.put_some("top_p", allowed.top_p.map(Json::number));
    body.put_some("top_k", allowed.top_k.map(Json::number));
    let limit = if out.profile.max_tokens_field.as_deref() == Some("max_tokens") { "max_tokens" } else { "max_completion_tokens" };
    body.put_some(limit, params.max_tokens.as_ref().map(|given| Json::uint(given.value)));
    body.put_some("n", allowed.n.map(|n| Json::Int(n.into())));
    body.put_some("stop", allowed.stop.map(Json::texts));
    body.put_some("seed", params.seed.as_ref().map(|given| Json::Int(given.value)));
    body.put_some("presence_penalty", allowed.presence.map(Json::number));
    body.put_some("frequency_penalty", allowed.frequency.map(Json::number));
    body.put_some("logprobs", allowed.logprobs.then_some(Json::Bool(true)));
    body.put_some("top_logprobs", allowed.top_logprobs.map(|count| Json::Int(count.into())));
    body.put_some("response_format", format(out));
    body.put_some("reasoning_effort", effort(out).map(Json::Text));
    body.put_some("verbosity", params.verbosity.as_ref().map(|given| Json::text(&given.value)));
    body.put_some("service_tier", params.tier.as_ref().map(|given| Json::text(&given.value)));
    if let Some(search) = &params.web_search {
        body.put("web_search_options", Json::Raw(search.value.clone()));
    }
    if let Some(user) = &params.user {
        if request.origin == Protocol::OpenAi {
            body.put("user", Json::text(&user.value));
        } else {
            out.report.drop_field(&user.path);
        }
    }
    google(out);
    if params.stream {
        body.put("stream", Json::Bool(true));
        // Usage is always requested: the gateway records it, also when the caller does not receive it.
        body.put("stream_options", Json::object([("include_usage", Json::Bool(true))]));
    }
}

/// Refuses or drops parameters that only Gemini has.
fn google(out: &mut EncodeContext<'_>) {
    let params = &out.request.params;
    let google = &params.google;
    // `image_url.detail` has `low` and `high`, no medium.
    if let Some(resolution) = params.media_resolution.as_ref().filter(|given| !matches!(given.value.as_str(), "low" | "high")) {
        out.report.refuse(&resolution.path);
    }
    if let Some(cached) = &google.cached_content {
        out.report.refuse(&cached.path);
    }
    if let Some(safety) = &google.safety_settings {
        out.report.drop_field(&safety.path);
    }
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
    let mut named = JsonObject(vec![("name", Json::text(name.as_deref().unwrap_or("response")))]);
    named.put_some("description", description.as_ref().map(|given| Json::text(&given.value)));
    named.put("schema", Json::value(&json));
    named.put_some("strict", strict.map(Json::Bool));
    Some(Json::object([("type", Json::text("json_schema")), ("json_schema", named.json())]))
}

/// The value of `reasoning_effort`. The upstream decides whether the reply includes thoughts. A caller that requests them gets
/// this reported.
fn effort(out: &mut EncodeContext<'_>) -> Option<String> {
    let include = out.request.params.thinking.include.as_ref();
    if let Some(include) =
        include.filter(|include| include.value && matches!(out.request.origin, Protocol::Gemini | Protocol::Responses))
    {
        out.report.drop_field(&include.path);
    }
    let word = out.effort_word();
    if out.profile.effort_with_tools != Some(false) || out.request.tools.is_empty() {
        return word;
    }
    let setting = thinking_setting(out.request);
    if let Some((_, source)) = as_effort(&setting) {
        out.report.adjust(source.path(), &source.in_terms("none"));
    } else if let Some(adaptive) = &out.request.params.thinking.adaptive {
        out.report.drop_field(&adaptive.path);
    }
    Some("none".to_owned())
}
