//! Encodes requests for Gemini upstreams. Fields the caller did not set are not written.

mod contents;

use crate::{
    CanDisableThinking, Malformed, Method, Protocol, Thinking,
    json_writer::{Json, JsonObject},
    neutral::{
        EmbedRequest, Format, Located, Operation, Part, Schema, Tool, ToolChoice, ToolChoiceMode,
        effort::{
            SettingSource, ThinkingSetting, as_effort, budget_within, effort_of, lowest, nearest, shows_thoughts, thinking_setting,
        },
        encode_context::{EncodeContext, free_text},
        schema,
    },
    tree::Tree,
};

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
    body.put_some("generationConfig", generation_config(out).some());
    let params = &out.request.params;
    let raw = |given: &Located<String>| Json::Raw(given.value.clone());
    body.put_some("safetySettings", params.google.safety_settings.as_ref().map(raw));
    body.put_some("cachedContent", params.google.cached_content.as_ref().map(|given| Json::text(&given.value)));
    if let Some(tier) = &params.tier {
        if matches!(tier.value.as_str(), "flex" | "priority") {
            body.put("serviceTier", Json::text(&tier.value));
        } else {
            out.report.refuse(&tier.path);
        }
    }
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
    let declared = tools(out);
    if !declared.is_empty() {
        body.put("tools", Json::List(declared));
    }
    body.put_some("toolConfig", tool_config(out));
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

/// Maximum number of texts in a batch. Google answers 400 to more ("at most 100 requests can be in one batch").
const MAX_BATCH: usize = 100;

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
    if requests.len() > MAX_BATCH {
        let path = if out.request.is_native() { "requests" } else { "input" };
        out.report.refuse_because(path, format!("at most {MAX_BATCH} texts in one request"));
    }
    if embed.list {
        let requests = requests.into_iter().map(JsonObject::json).collect();
        return (Method::BatchEmbedContents, Json::object([("requests", Json::List(requests))]));
    }
    (Method::EmbedContent, requests.swap_remove(0).json())
}

// --- config ---

fn generation_config(out: &mut EncodeContext<'_>) -> JsonObject {
    let allowed = out.supported_params();
    let params = &out.request.params;
    let mut config = JsonObject::default();
    config.put_some("temperature", allowed.temperature.map(Json::number));
    config.put_some("topP", allowed.top_p.map(Json::number));
    config.put_some("topK", allowed.top_k.map(Json::number));
    config.put_some("candidateCount", allowed.n.map(|n| Json::Int(n.into())));
    config.put_some("maxOutputTokens", params.max_tokens.as_ref().map(|given| Json::uint(given.value)));
    config.put_some("stopSequences", allowed.stop.map(Json::texts));
    // The field is an int32; the low bits of a wider seed serve as well.
    let seed = |given: &Located<i64>| Json::Int(if out.request.is_native() { given.value } else { given.value & 0x7fff_ffff });
    config.put_some("seed", params.seed.as_ref().map(seed));
    config.put_some("presencePenalty", allowed.presence.map(Json::number));
    config.put_some("frequencyPenalty", allowed.frequency.map(Json::number));
    config.put_some("responseLogprobs", allowed.logprobs.then_some(Json::Bool(true)));
    config.put_some("logprobs", allowed.top_logprobs.map(|count| Json::Int(count.into())));
    if let Some(resolution) = &params.media_resolution {
        config.put("mediaResolution", Json::text(format!("MEDIA_RESOLUTION_{}", resolution.value.to_ascii_uppercase())));
    }
    format(out, &mut config);
    out.supported(params.verbosity.as_ref(), false);
    config.put_some("thinkingConfig", thinking(out).some());
    config
}

fn format(out: &mut EncodeContext<'_>, config: &mut JsonObject) {
    let Some(Located { value, path }) = &out.request.params.format else { return };
    if !out.request.tools.is_empty() && out.profile.tools_with_json == Some(false) {
        out.report.refuse_because(path, "cannot be combined with 'tools'");
        return;
    }
    config.put("responseMimeType", Json::text("application/json"));
    if let Format::Schema { schema, description, .. } = value {
        let schema = out.described_schema(schema, description.as_ref());
        let (name, value) = schema_member(out, &schema, "responseSchema", "responseJsonSchema");
        config.put(name, value);
    }
}

/// Levels for models with thinking levels, budgets for models with thinking budgets, never both.
fn thinking(out: &mut EncodeContext<'_>) -> JsonObject {
    let mut config = JsonObject::default();
    let setting = thinking_setting(out.request);
    match &out.profile.thinking {
        Some(Thinking::Level(levels) | Thinking::Effort(levels) | Thinking::Adaptive(levels)) => {
            config.put_some("thinkingLevel", level(out, &setting, levels).map(|level| Json::text(level.to_ascii_uppercase())));
        }
        Some(Thinking::Budget(range)) => config.put_some("thinkingBudget", budget(out, &setting, *range).map(Json::Int)),
        Some(Thinking::None) | None => {
            if let ThinkingSetting::Effort(_, source) | ThinkingSetting::Budget(_, source) = setting {
                out.refuse_thinking(source);
            } else if let Some(include) = out.request.params.thinking.include.as_ref()
                && include.value
                && out.request.origin != Protocol::Anthropic
            {
                out.report.drop_field(&include.path);
            }
            return config;
        }
    }
    let specified = out.request.params.thinking.include.is_some() || shows_thoughts(out.request);
    if matches!(setting, ThinkingSetting::Off(_)) {
        config.put("includeThoughts", Json::Bool(false));
    } else if specified {
        config.put("includeThoughts", Json::Bool(shows_thoughts(out.request)));
    }
    config
}

/// The model's level for the setting. "Off" becomes the lowest level: models with levels cannot stop thinking.
fn level<'p>(out: &mut EncodeContext<'_>, setting: &ThinkingSetting<'_>, levels: &'p [String]) -> Option<&'p str> {
    if let ThinkingSetting::Off(source) = setting {
        let level = lowest(levels)?;
        out.report.adjust(source.path(), &source.in_terms(level));
        return Some(level);
    }
    let (wanted, source) = as_effort(setting)?;
    let (level, changed) = nearest(wanted, levels)?;
    if changed {
        out.report.adjust(source.path(), &source.in_terms(level));
    }
    Some(level)
}

fn budget(out: &mut EncodeContext<'_>, setting: &ThinkingSetting<'_>, range: [u64; 2]) -> Option<i64> {
    let ThinkingSetting::Off(source) = setting else {
        return if *setting == ThinkingSetting::Auto { Some(-1) } else { budget_within(setting, range, &mut out.report) };
    };
    if out.profile.can_disable_thinking == Some(CanDisableThinking::Yes) {
        return Some(0);
    }
    let min = i64::try_from(range[0]).unwrap_or(i64::MAX);
    let used = if matches!(source, SettingSource::Budget(_)) { min.to_string() } else { source.in_terms(effort_of(min)) };
    out.report.adjust(source.path(), &used);
    Some(min)
}

// --- tools ---

/// Encodes all functions as one tool, then the tools that only Gemini has.
fn tools(out: &mut EncodeContext<'_>) -> Vec<Json> {
    let request = out.request;
    let mut tools = Vec::new();
    if !request.is_native() && !out.tool_choice_is_valid() {
        return tools;
    }
    let declared_tools = declared_tools(out);
    if !declared_tools.is_empty() {
        let declarations = declared_tools.into_iter().map(|tool| declaration(out, tool)).collect();
        tools.push(Json::object([("functionDeclarations", Json::List(declarations))]));
    }
    for tool in &request.server_tools {
        if tool.owner == Protocol::Gemini {
            tools.push(Json::Raw(tool.raw.clone()));
        } else {
            out.report.refuse(&tool.path);
        }
    }
    if let Some(search) = &request.params.web_search {
        if out.options.server_tools {
            tools.push(Json::object([("googleSearch", Json::Object(Vec::new()))]));
            report_search_options(out, search);
        } else {
            out.report.refuse(&search.path);
        }
    }
    tools
}

/// Reports the members of `web_search_options`, none of which has a counterpart. `medium` is the default.
fn report_search_options(out: &mut EncodeContext<'_>, search: &Located<String>) {
    let Ok(tree) = Tree::parse(search.value.as_bytes()) else { return };
    for (name, value) in tree.members().unwrap_or_default() {
        let path = format!("{}.{name}", search.path);
        match &**name {
            _ if value.is_null() => {}
            "search_context_size" if value.str() == Some("medium") => {}
            "search_context_size" | "user_location" => out.report.drop_field(&path),
            _ => out.report.refuse(&path),
        }
    }
}

/// The tools, reduced to the allowed ones if the model has no mode for that.
fn declared_tools<'a>(out: &EncodeContext<'a>) -> Vec<&'a Tool> {
    let request = out.request;
    let only = request.choice.as_ref().filter(|choice| {
        choice.mode == ToolChoiceMode::Auto && !choice.names.is_empty() && out.profile.validated_mode == Some(false)
    });
    request.tools.iter().filter(|tool| only.is_none_or(|choice| choice.names.contains(&tool.name))).collect()
}

fn declaration(out: &mut EncodeContext<'_>, tool: &Tool) -> Json {
    let mut function = JsonObject::default();
    function.put("name", Json::text(out.names.get(&tool.name)));
    function.put_some("description", out.tool_description(tool).map(Json::Text));
    let schema = if tool.custom { Some(free_text()) } else { tool.schema.clone() };
    if let Some(schema) = schema.filter(|schema| out.request.is_native() || !schema::has_no_parameters(&schema::to_json(schema))) {
        let (name, value) = schema_member(out, &schema, "parameters", "parametersJsonSchema");
        function.put(name, value);
    }
    function.json()
}

/// Encodes a schema in the member that fits it and the model: JSON Schema if the model accepts it, otherwise a `Schema` message.
fn schema_member(out: &EncodeContext<'_>, schema: &Schema, plain: &'static str, json: &'static str) -> (&'static str, Json) {
    match schema {
        Schema::Google(value) => (plain, Json::value(value)),
        Schema::Json(value) if out.request.is_native() => (json, Json::value(value)),
        Schema::Json(value) if out.profile.json_schema_fields.unwrap_or(true) => {
            (json, Json::value(&schema::for_google_json(value.clone())))
        }
        Schema::Json(value) => (plain, Json::value(&schema::to_google(value))),
    }
}

fn tool_config(out: &mut EncodeContext<'_>) -> Option<Json> {
    let ToolChoice { mode, names, path } = out.request.choice.as_ref()?;
    if *mode == ToolChoiceMode::Any && out.profile.forced_tools == Some(false) {
        out.report.refuse(path);
        return None;
    }
    if *mode == ToolChoiceMode::Any && out.request.tools.is_empty() {
        out.report.malformed(Malformed::invalid(out.request.origin, path, "is only allowed when tools are given"));
        return None;
    }
    let validated = !names.is_empty() && out.profile.validated_mode.unwrap_or(true);
    let word = match mode {
        ToolChoiceMode::None => "NONE",
        ToolChoiceMode::Any => "ANY",
        ToolChoiceMode::Auto if validated => "VALIDATED",
        ToolChoiceMode::Auto => "AUTO",
    };
    let mut config = JsonObject(vec![("mode", Json::text(word))]);
    if !names.is_empty() && matches!(word, "ANY" | "VALIDATED") {
        let names: Vec<&str> = names.iter().map(|name| out.names.get(name)).collect();
        config.put("allowedFunctionNames", Json::texts(&names));
    }
    Some(Json::object([("functionCallingConfig", config.json())]))
}
