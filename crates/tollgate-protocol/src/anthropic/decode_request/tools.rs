//! Tools and the choice among them.

use std::collections::HashSet;

use super::FROM;
use crate::{
    Malformed,
    neutral::{Located, Request, Schema, ServerTool, Tool, ToolChoice, ToolChoiceMode},
    object::Fields,
    tree::Tree,
};

/// Decodes `tools` and `tool_choice`. A deferred tool is not part of the prompt before the history loads it or the choice names it.
pub(super) fn tools(fields: &mut Fields<'_, '_>, mut loaded: HashSet<String>, request: &mut Request) -> Result<(), Malformed> {
    let choice = choice(fields, request)?;
    loaded.extend(choice.iter().flat_map(|choice| choice.names.iter().cloned()));
    for (item, path) in fields.elements("tools")? {
        tool(item, &path, &loaded, request)?;
    }
    let has_tools = !request.tools.is_empty() || !request.server_tools.is_empty();
    request.choice = choice.filter(|choice| has_tools || choice.mode == ToolChoiceMode::Any);
    Ok(())
}

fn choice(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<Option<ToolChoice>, Malformed> {
    let Some(mut choice) = fields.object("tool_choice")? else { return Ok(None) };
    let path = choice.path().to_owned();
    let kind = choice.required_text("type")?;
    if let Some(disabled) = choice.bool("disable_parallel_tool_use")?.filter(|disabled| disabled.value) {
        request.params.parallel = Some(Located::new(false, disabled.path));
    }
    let (mode, names) = match kind.as_str() {
        "auto" => (ToolChoiceMode::Auto, Vec::new()),
        "none" => (ToolChoiceMode::None, Vec::new()),
        "any" => (ToolChoiceMode::Any, Vec::new()),
        "tool" => (ToolChoiceMode::Any, vec![choice.required_text("name")?]),
        _ => return Err(Malformed::invalid(FROM, &format!("{path}.type"), "is not a tool choice")),
    };
    Ok(Some(ToolChoice { mode, names, path }))
}

/// Decodes one tool. Server tools can only be sent to Anthropic upstreams.
fn tool(item: &Tree<'_>, path: &str, loaded: &HashSet<String>, request: &mut Request) -> Result<(), Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    if fields.text("type")?.is_some_and(|kind| kind.value != "custom") {
        request.server_tools.push(ServerTool { owner: FROM, raw: item.compact(), path: path.to_owned() });
        return Ok(());
    }
    let name = fields.required_text("name")?;
    let description = fields.text("description")?.map(|text| text.value);
    let schema = match fields.take("input_schema") {
        Some(field) if field.value.members().is_none() => return Err(Malformed::wrong_type(FROM, &field.path, "an object")),
        field => field.map(|field| Schema::Json(field.value.value())),
    };
    let strict = fields.bool("strict")?.map(|strict| strict.value);
    if let Some(callers) = fields.texts("allowed_callers")?
        && callers.value != ["direct"]
    {
        request.refuse(callers.path);
    }
    if fields.flag("defer_loading")? && !loaded.contains(&name) {
        return Ok(());
    }
    request.tools.push(Tool { name, description, schema, strict, custom: false, grammar: None, path: path.to_owned() });
    Ok(())
}
