//! Encodes tools and tool choice.

use crate::{
    Malformed, Protocol,
    json_writer::{Json, JsonObject},
    neutral::{Tool, ToolChoice, ToolChoiceMode, as_function::free_text, encode_context::EncodeContext, schema},
};

/// Encodes `tools` and `tool_choice`. `budgeted`: thinking has a budget, with which tools cannot be forced.
pub(super) fn write(out: &mut EncodeContext<'_>, body: &mut JsonObject, budgeted: bool) {
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

fn declaration(out: &EncodeContext<'_>, tool: &Tool) -> Json {
    let mut entry = JsonObject(vec![("name", Json::text(out.names.get(&tool.name)))]);
    entry.put_some("description", tool.description.as_ref().map(Json::text));
    let schema = if tool.custom { Some(schema::to_json(&free_text())) } else { tool.schema.as_ref().map(schema::to_json) };
    let mut schema = schema.unwrap_or_else(|| serde_json::json!({"type": "object", "properties": {}}));
    if let serde_json::Value::Object(root) = &mut schema
        && !root.contains_key("type")
    {
        root.insert("type".to_owned(), "object".into());
    }
    entry.put("input_schema", Json::value(&schema));
    entry.put_some("strict", tool.strict.filter(|strict| *strict && !tool.custom).map(Json::Bool));
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
            out.report.refuse(path);
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
