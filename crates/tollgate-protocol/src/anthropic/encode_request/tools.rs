//! Tools and how they may be chosen.

use crate::{
    Malformed, Protocol,
    json_writer::{Json, JsonObject},
    neutral::{Tool, ToolChoice, ToolChoiceMode, as_function::free_text, encode_context::EncodeContext, schema},
};

/// Writes `tools` and `tool_choice`. `budgeted`: thinking is on with a budget, beside which no tool can be forced.
pub(super) fn write(out: &mut EncodeContext<'_>, body: &mut JsonObject, budgeted: bool) {
    let request = out.request;
    let choice = request.choice.as_ref();
    if !out.choice_is_known() {
        return;
    }
    // An allow-list has no form here: the tools themselves are cut to it.
    let only = choice.filter(|choice| match choice.mode {
        ToolChoiceMode::None => false,
        ToolChoiceMode::Auto => !choice.names.is_empty(),
        ToolChoiceMode::Any => choice.names.len() > 1,
    });
    let offered = request.tools.iter().filter(|tool| only.is_none_or(|choice| choice.names.contains(&tool.name)));
    let mut tools: Vec<Json> = offered.map(|tool| declaration(out, tool)).collect();
    for tool in &request.server_tools {
        if tool.owner == Protocol::Anthropic {
            tools.push(Json::Raw(tool.raw.clone()));
        } else {
            out.report.refuse(&tool.path);
        }
    }
    let offered = !tools.is_empty();
    if offered {
        body.put("tools", Json::List(tools));
    }
    body.put_some("tool_choice", tool_choice(out, choice, offered, budgeted));
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

fn tool_choice(out: &mut EncodeContext<'_>, choice: Option<&ToolChoice>, offered: bool, budgeted: bool) -> Option<Json> {
    let single = out.request.params.parallel.is_some();
    if !offered {
        if let Some(ToolChoice { mode: ToolChoiceMode::Any, path, .. }) = choice {
            out.report.fault(Malformed::invalid(out.request.origin, path, "is only allowed when tools are given"));
        }
        return None;
    }
    let mut written = match choice {
        None if single => JsonObject(vec![("type", Json::text("auto"))]),
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
    if single {
        written.put("disable_parallel_tool_use", Json::Bool(true));
    }
    Some(written.json())
}
