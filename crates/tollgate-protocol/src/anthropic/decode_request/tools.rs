//! Decodes tools and tool choice.

use super::FROM;
use crate::{
    Malformed,
    neutral::{Located, Request, Schema, ServerTool, Tool, ToolChoice, ToolChoiceMode},
    object::Fields,
    tree::Tree,
};

pub(super) fn read(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    if let Some((tools, path)) = fields.list("tools")? {
        for (index, item) in tools.iter().enumerate() {
            tool(item, &format!("{path}[{index}]"), request)?;
        }
    }
    let Some(mut choice) = fields.object("tool_choice")? else { return Ok(()) };
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
    if !request.tools.is_empty() || mode == ToolChoiceMode::Any {
        request.choice = Some(ToolChoice { mode, names, path });
    }
    Ok(())
}

/// Decodes one tool. Server tools can only be sent to Anthropic upstreams.
fn tool(item: &Tree<'_>, path: &str, request: &mut Request) -> Result<(), Malformed> {
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
    request.tools.push(Tool { name, description, schema, strict: None, custom: false, path: path.to_owned() });
    Ok(())
}
