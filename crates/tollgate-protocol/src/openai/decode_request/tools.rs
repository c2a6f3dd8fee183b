//! Decodes tools and the tool choice, including the deprecated `functions` and `function_call`.

use super::FROM;
use crate::{
    Malformed,
    neutral::{Request, Schema, Tool, ToolChoice, ToolChoiceMode, schema::has_no_parameters},
    object::{Field, Fields},
    tree::Tree,
};

/// Decodes `tools`, `functions`, `tool_choice` and `function_call`.
pub(super) fn read(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    if let Some((tools, path)) = fields.list("tools")? {
        for (index, item) in tools.iter().enumerate() {
            tool(item, &format!("{path}[{index}]"), request)?;
        }
    }
    if let Some((functions, path)) = fields.list("functions")? {
        for (index, item) in functions.iter().enumerate() {
            let tool = function(item, &format!("{path}[{index}]"))?;
            request.tools.push(tool);
        }
    }
    let choice = fields.take("tool_choice").map(|field| tool_choice(&field)).transpose()?;
    let older = fields.take("function_call").map(|field| function_call(&field)).transpose()?;
    if let Some(choice) = choice.or(older).flatten() {
        if !request.tools.is_empty() {
            request.choice = Some(choice);
        } else if choice.mode == ToolChoiceMode::Any {
            return Err(Malformed::invalid(FROM, &choice.path, "is only allowed when 'tools' are given"));
        }
    }
    Ok(())
}

fn tool(item: &Tree<'_>, path: &str, request: &mut Request) -> Result<(), Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    let kind = fields.required_text("type")?;
    match kind.as_str() {
        "function" => {
            let field = fields.take("function").ok_or_else(|| Malformed::missing(FROM, &format!("{path}.function")))?;
            let tool = function(field.value, &field.path)?;
            request.tools.push(tool);
        }
        "custom" => {
            let mut custom = fields.object("custom")?.ok_or_else(|| Malformed::missing(FROM, &format!("{path}.custom")))?;
            let name = custom.required_text("name")?;
            let description = custom.text("description")?.map(|text| text.value);
            if let Some(format) =
                custom.take("format").filter(|format| format.value.get("type").and_then(Tree::str) != Some("text"))
            {
                request.refuse(format.path);
            }
            request.tools.push(Tool { name, description, schema: None, strict: None, custom: true, path: path.to_owned() });
        }
        _ => request.refuse(path),
    }
    Ok(())
}

fn function(item: &Tree<'_>, path: &str) -> Result<Tool, Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    let name = fields.required_text("name")?;
    let description = fields.text("description")?.map(|text| text.value);
    let strict = fields.bool("strict")?.map(|strict| strict.value);
    let schema = match fields.take("parameters") {
        Some(field) if field.value.members().is_none() => return Err(Malformed::wrong_type(FROM, &field.path, "an object")),
        Some(field) => Some(field.value.value()).filter(|schema| !has_no_parameters(schema)).map(Schema::Json),
        None => None,
    };
    Ok(Tool { name, description, schema, strict, custom: false, path: path.to_owned() })
}

fn plain_mode(word: &str) -> Option<ToolChoiceMode> {
    match word {
        "none" => Some(ToolChoiceMode::None),
        "auto" => Some(ToolChoiceMode::Auto),
        "required" => Some(ToolChoiceMode::Any),
        _ => None,
    }
}

fn unknown_choice(path: &str) -> Malformed {
    Malformed::invalid(FROM, path, "is not a tool choice")
}

fn tool_choice(field: &Field<'_, '_>) -> Result<Option<ToolChoice>, Malformed> {
    let path = field.path.clone();
    if let Some(word) = field.value.str() {
        let mode = plain_mode(word).ok_or_else(|| unknown_choice(&path))?;
        return Ok(Some(ToolChoice { mode, names: Vec::new(), path }));
    }
    let mut fields = Fields::new(field.value, &path, FROM)?;
    let kind = fields.required_text("type")?;
    let named = |fields: &mut Fields<'_, '_>| -> Result<String, Malformed> {
        let path = format!("{}.{kind}", fields.path());
        fields.object(&kind)?.ok_or_else(|| Malformed::missing(FROM, &path))?.required_text("name")
    };
    match kind.as_str() {
        "function" | "custom" => Ok(Some(ToolChoice { mode: ToolChoiceMode::Any, names: vec![named(&mut fields)?], path })),
        "allowed_tools" => {
            let mut allowed =
                fields.object("allowed_tools")?.ok_or_else(|| Malformed::missing(FROM, &format!("{path}.allowed_tools")))?;
            let mode = plain_mode(&allowed.required_text("mode")?).ok_or_else(|| unknown_choice(&path))?;
            let Some((tools, list_path)) = allowed.list("tools")? else {
                return Err(Malformed::missing(FROM, &format!("{path}.allowed_tools.tools")));
            };
            let name = |(index, tool): (usize, &Tree<'_>)| {
                let entry =
                    tool.get("function").or_else(|| tool.get("custom")).and_then(|inner| inner.get("name")).and_then(Tree::str);
                entry.map(str::to_owned).ok_or_else(|| Malformed::missing(FROM, &format!("{list_path}[{index}].function.name")))
            };
            let names = tools.iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()?;
            Ok(Some(ToolChoice { mode, names, path }))
        }
        _ => Err(unknown_choice(&path)),
    }
}

/// Decodes the deprecated form: `"none"`, `"auto"` or `{"name": …}`.
fn function_call(field: &Field<'_, '_>) -> Result<Option<ToolChoice>, Malformed> {
    let path = field.path.clone();
    if let Some(word) = field.value.str() {
        let mode = plain_mode(word).ok_or_else(|| unknown_choice(&path))?;
        return Ok(Some(ToolChoice { mode, names: Vec::new(), path }));
    }
    let name = Fields::new(field.value, &path, FROM)?.required_text("name")?;
    Ok(Some(ToolChoice { mode: ToolChoiceMode::Any, names: vec![name], path }))
}
