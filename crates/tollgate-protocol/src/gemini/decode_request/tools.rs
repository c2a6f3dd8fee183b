//! Decodes tools and tool configuration.

use super::FROM;
use crate::{
    Malformed,
    neutral::{Request, Schema, ServerTool, Tool, ToolChoice, ToolChoiceMode, schema},
    object::{Field, Fields},
    tree::Tree,
};

pub(super) fn read(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    if let Some((tools, path)) = fields.list("tools")? {
        for (index, item) in tools.iter().enumerate() {
            tool(item, &format!("{path}[{index}]"), request)?;
        }
    }
    let Some(mut config) = fields.object("toolConfig")? else { return Ok(()) };
    if let Some(calling) = config.object("functionCallingConfig")? {
        choice(calling, request)?;
    }
    if let Some(included) = config.bool("includeServerSideToolInvocations")?.filter(|included| included.value) {
        request.refuse(included.path);
    }
    for field in config.rest() {
        request.refuse(field);
    }
    Ok(())
}

/// Decodes one tool object; each member enables one kind of tool.
fn tool(item: &Tree<'_>, path: &str, request: &mut Request) -> Result<(), Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    if let Some((declarations, path)) = fields.list("functionDeclarations")? {
        for (index, item) in declarations.iter().enumerate() {
            let tool = declaration(item, &format!("{path}[{index}]"))?;
            request.tools.push(tool);
        }
    }
    for (key, value) in fields.unread() {
        let raw = format!("{{{}:{}}}", serde_json::Value::from(key), value.compact());
        request.server_tools.push(ServerTool { owner: FROM, raw, path: format!("{path}.{key}") });
    }
    Ok(())
}

fn declaration(item: &Tree<'_>, path: &str) -> Result<Tool, Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    let name = fields.required_text("name")?;
    let description = fields.text("description")?.map(|text| text.value);
    let json = fields.take("parametersJsonSchema").map(|field| Schema::Json(field.value.value()));
    let own = fields.take("parameters").map(|field| google_schema(&field)).transpose()?;
    let schema = json.or(own).filter(|given| !schema::has_no_parameters(&schema::to_json(given)));
    Ok(Tool { name, description, schema, strict: None, custom: false, path: path.to_owned() })
}

pub(super) fn google_schema(field: &Field<'_, '_>) -> Result<Schema, Malformed> {
    if field.value.members().is_none() {
        return Err(Malformed::wrong_type(FROM, &field.path, "an object"));
    }
    Ok(Schema::Google(field.value.value()))
}

fn choice(mut calling: Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let path = calling.path().to_owned();
    let names = calling.texts("allowedFunctionNames")?.map(|names| names.value).unwrap_or_default();
    let word = match calling.take("mode") {
        None => String::new(),
        // proto3 JSON allows enum numbers.
        Some(field) => match (field.value.str(), field.value.integer()) {
            (Some(word), _) => word.to_ascii_uppercase(),
            (None, Some(number)) => {
                let known = ["", "AUTO", "ANY", "NONE", "VALIDATED"];
                usize::try_from(number).ok().and_then(|number| known.get(number)).copied().unwrap_or("?").to_owned()
            }
            (None, None) => return Err(Malformed::wrong_type(FROM, &field.path, "a string")),
        },
    };
    for field in calling.rest() {
        request.refuse(field);
    }
    let mode = match word.as_str() {
        "" | "MODE_UNSPECIFIED" if names.is_empty() => return Ok(()),
        "" | "MODE_UNSPECIFIED" | "AUTO" | "VALIDATED" => ToolChoiceMode::Auto,
        "ANY" => ToolChoiceMode::Any,
        "NONE" => ToolChoiceMode::None,
        _ => return Err(Malformed::invalid(FROM, &format!("{path}.mode"), "is not a function calling mode")),
    };
    if !request.tools.is_empty() || mode == ToolChoiceMode::Any {
        request.choice = Some(ToolChoice { mode, names, path });
    }
    Ok(())
}
