//! Encodes tools and the tool choice.

use crate::{
    Malformed,
    json_writer::{Json, JsonObject},
    neutral::{Tool, ToolChoice, ToolChoiceMode, encode_context::EncodeContext, schema},
};

/// Encodes `tools`, `tool_choice` and `parallel_tool_calls`.
pub(super) fn write(out: &mut EncodeContext<'_>, body: &mut JsonObject) {
    let request = out.request;
    for tool in &request.server_tools {
        out.report.refuse(&tool.path);
    }
    if !request.tools.is_empty() {
        body.put("tools", Json::List(request.tools.iter().map(|tool| declaration(out, tool)).collect()));
    }
    if let Some(choice) = &request.choice {
        body.put_some("tool_choice", tool_choice(out, choice));
    }
    if request.params.parallel.is_some() && !request.tools.is_empty() {
        body.put("parallel_tool_calls", Json::Bool(false));
    }
}

fn declaration(out: &EncodeContext<'_>, tool: &Tool) -> Json {
    let mut inner = JsonObject(vec![("name", Json::text(out.names.get(&tool.name)))]);
    inner.put_some("description", tool.description.as_ref().map(Json::text));
    let kind = if tool.custom { "custom" } else { "function" };
    inner.put_some("parameters", tool.schema.as_ref().map(|schema| Json::value(&schema::to_json(schema))));
    inner.put_some("strict", tool.strict.filter(|_| !tool.custom).map(Json::Bool));
    Json::object([("type", Json::text(kind)), (kind, inner.json())])
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
        out.report.refuse(path);
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
