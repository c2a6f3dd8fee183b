//! Encodes tools and tool configuration.

use serde_json::Value;

use crate::{
    Malformed, Protocol,
    json_writer::{Json, JsonObject},
    neutral::{Schema, Tool, ToolChoice, ToolChoiceMode, as_function, encode_context::EncodeContext, schema},
};

/// Encodes all functions as one tool, then the tools that only Gemini has.
pub(super) fn tools(out: &mut EncodeContext<'_>) -> Vec<Json> {
    let request = out.request;
    let mut tools = Vec::new();
    if !request.is_native() && !out.tool_choice_is_valid() {
        return tools;
    }
    let offered = offered(out);
    if !offered.is_empty() {
        let declarations = offered.into_iter().map(|tool| declaration(out, tool)).collect();
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
        } else {
            out.report.refuse(&search.path);
        }
    }
    tools
}

/// The tools, reduced to the allowed ones if the model has no mode for that.
fn offered<'a>(out: &EncodeContext<'a>) -> Vec<&'a Tool> {
    let request = out.request;
    let only = request.choice.as_ref().filter(|choice| {
        choice.mode == ToolChoiceMode::Auto && !choice.names.is_empty() && out.profile.validated_mode == Some(false)
    });
    request.tools.iter().filter(|tool| only.is_none_or(|choice| choice.names.contains(&tool.name))).collect()
}

fn declaration(out: &EncodeContext<'_>, tool: &Tool) -> Json {
    let mut function = JsonObject::default();
    function.put("name", Json::text(out.names.get(&tool.name)));
    function.put_some("description", tool.description.as_ref().map(Json::text));
    let schema = if tool.custom { Some(as_function::free_text()) } else { tool.schema.clone() };
    if let Some(schema) = schema.filter(|schema| out.request.is_native() || !schema::has_no_parameters(&schema::to_json(schema))) {
        let (name, value) = fitting(out, &schema, "parameters", "parametersJsonSchema");
        function.put(name, value);
    }
    function.json()
}

/// Encodes a schema in the member that fits it and the model: JSON Schema if the model accepts it, otherwise a `Schema` message.
pub(super) fn fitting(out: &EncodeContext<'_>, schema: &Schema, plain: &'static str, json: &'static str) -> (&'static str, Json) {
    match schema {
        Schema::Google(value) => (plain, Json::value(value)),
        Schema::Json(value) if out.request.is_native() => (json, Json::value(value)),
        Schema::Json(value) if out.profile.json_schema_fields.unwrap_or(true) => {
            (json, Json::value(&schema::for_google_json(value.clone())))
        }
        Schema::Json(value) => {
            let lowered: Value = schema::to_google(value);
            (plain, Json::value(&lowered))
        }
    }
}

pub(super) fn tool_config(out: &mut EncodeContext<'_>) -> Option<Json> {
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
