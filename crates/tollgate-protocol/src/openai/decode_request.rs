//! Decodes chat completions and embeddings requests into the neutral form. Fields without a counterpart in the other protocols
//! are recorded as unsupported, not ignored.

mod messages;
mod params;

use crate::{
    FieldViolation, Malformed, MalformedKind, Method, Protocol, Target,
    neutral::{
        EmbedRequest, Operation, Request, Schema, Tool, ToolChoice, ToolChoiceMode, normalise::normalise, schema::has_no_parameters,
    },
    object::{Field, Fields},
    tree::Tree,
};

const FROM: Protocol = Protocol::OpenAi;

/// Decodes a request body: embeddings or chat completions, by the target's method.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Request, Malformed> {
    if target.method == Method::Embeddings { embeddings(body) } else { chat(body) }
}

fn chat(body: &[u8]) -> Result<Request, Malformed> {
    let tree = document(body)?;
    let mut fields = Fields::new(&tree, "", FROM)?;
    let mut request = Request::new(fields.required_text("model")?, FROM, Operation::Generate);
    let Some((messages, _)) = fields.list("messages")? else {
        return Err(no_messages(fields.take("contents").is_some()));
    };
    if messages.is_empty() {
        return Err(Malformed::invalid(FROM, "messages", "must not be empty"));
    }
    messages::read(messages, &mut request)?;
    tools(&mut fields, &mut request)?;
    params::read(&mut fields, &mut request)?;
    request.refuse_all(fields.rest());
    normalise(&mut request)?;
    Ok(request)
}

fn embeddings(body: &[u8]) -> Result<Request, Malformed> {
    let tree = document(body)?;
    let mut fields = Fields::new(&tree, "", FROM)?;
    let model = fields.required_text("model")?;
    let input = fields.take("input").ok_or_else(|| Malformed::missing(FROM, "input"))?;
    let mut refused = Vec::new();
    let inputs = match (input.value.str(), input.value.list()) {
        (Some(text), _) => vec![text.to_owned()],
        (None, Some([])) => return Err(Malformed::invalid(FROM, "input", "must not be empty")),
        (None, Some(items)) => items.iter().filter_map(|item| item.str().map(str::to_owned)).collect(),
        (None, None) => return Err(Malformed::wrong_type(FROM, "input", "a string or an array")),
    };
    let count = input.value.list().map_or(1, <[Tree<'_>]>::len);
    if inputs.len() != count {
        refused.push(input.path); // Token ids are specific to one tokeniser.
    }
    let dimensions = fields.count("dimensions", 1)?;
    let format = fields.text("encoding_format")?;
    let base64 = format.as_ref().is_some_and(|format| format.value == "base64");
    if let Some(format) = format.filter(|format| !matches!(format.value.as_str(), "float" | "base64")) {
        refused.push(format.path);
    }
    let user = fields.text("user")?;
    refused.extend(fields.rest());
    let embed = EmbedRequest { inputs, list: true, dimensions, task: None, title: None, base64, user };
    let mut request = Request::new(model, FROM, Operation::Embed(Box::new(embed)));
    request.refuse_all(refused);
    Ok(request)
}

fn document(body: &[u8]) -> Result<Tree<'_>, Malformed> {
    let tree = Tree::parse_object(body)?;
    Ok(tree)
}

fn no_messages(contents: bool) -> Malformed {
    if !contents {
        return Malformed::missing(FROM, "messages");
    }
    let message = "Missing required parameter: 'messages'; chat completions expect 'messages' (array of {role, content}), not \
                   'contents'.";
    let violation = FieldViolation { field: "messages".to_owned(), description: message.to_owned() };
    Malformed { kind: MalformedKind::Missing, message: message.to_owned(), violations: vec![violation] }
}

// --- tools ---

/// Decodes `tools`, `functions`, `tool_choice` and `function_call`.
fn tools(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    for (item, path) in fields.elements("tools")? {
        tool(item, &path, request)?;
    }
    let is_legacy = request.tools.is_empty();
    for (item, path) in fields.elements("functions")? {
        let tool = function(item, &path)?;
        request.tools.push(tool);
        request.params.legacy_calls = is_legacy;
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
            let path = path.to_owned();
            request.tools.push(Tool { name, description, schema: None, strict: None, custom: true, grammar: None, path });
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
    Ok(Tool { name, description, schema, strict, custom: false, grammar: None, path: path.to_owned() })
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
