//! Tools and how they may be chosen.

use crate::{
    Malformed,
    neutral::{Choice, ChoiceMode, Tool, outgoing::Outgoing, schema},
    written::{Json, Members},
};

/// Writes `tools`, `tool_choice`, `parallel_tool_calls`.
pub(super) fn write(out: &mut Outgoing<'_>, body: &mut Members) {
    let request = out.request;
    for tool in &request.server_tools {
        out.verdicts.refuse(&tool.src);
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

fn declaration(out: &Outgoing<'_>, tool: &Tool) -> Json {
    let mut inner = Members(vec![("name", Json::text(out.names.get(&tool.name)))]);
    inner.put_some("description", tool.description.as_ref().map(Json::text));
    let kind = if tool.custom { "custom" } else { "function" };
    inner.put_some("parameters", tool.schema.as_ref().map(|schema| Json::value(&schema::to_json(schema))));
    inner.put_some("strict", tool.strict.filter(|_| !tool.custom).map(Json::Bool));
    Json::object([("type", Json::text(kind)), (kind, inner.json())])
}

fn tool_choice(out: &mut Outgoing<'_>, choice: &Choice) -> Option<Json> {
    let Choice { mode, names, src } = choice;
    if out.request.tools.is_empty() {
        if *mode == ChoiceMode::Any {
            out.verdicts.fault(Malformed::invalid(out.request.origin, src, "is only allowed when tools are given"));
        }
        return None;
    }
    if *mode == ChoiceMode::Any && out.profile.forced_tools == Some(false) {
        out.verdicts.refuse(src);
        return None;
    }
    let named = |out: &Outgoing<'_>, name: &String| {
        let custom = out.request.tools.iter().any(|tool| tool.custom && tool.name == *name);
        let kind = if custom { "custom" } else { "function" };
        Json::object([("type", Json::text(kind)), (kind, Json::object([("name", Json::text(out.names.get(name)))]))])
    };
    Some(match (mode, names.as_slice()) {
        (ChoiceMode::None, _) => Json::text("none"),
        (ChoiceMode::Auto, []) => Json::text("auto"),
        (ChoiceMode::Any, []) => Json::text("required"),
        (ChoiceMode::Any, [only]) => named(out, only),
        (ChoiceMode::Auto | ChoiceMode::Any, names) => {
            let mode = if *mode == ChoiceMode::Auto { "auto" } else { "required" };
            let tools = names.iter().map(|name| named(out, name)).collect();
            let allowed = Json::object([("mode", Json::text(mode)), ("tools", Json::List(tools))]);
            Json::object([("type", Json::text("allowed_tools")), ("allowed_tools", allowed)])
        }
    })
}
