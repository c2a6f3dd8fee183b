//! Decodes Messages requests of callers. No caller route uses it yet; see the [module](super). Fields without a counterpart
//! in any other protocol are recorded as refused.

use crate::{
    Malformed, Method, Protocol, Target,
    neutral::{
        Format, Located, Media, Operation, Part, PartKind, Request, Role, Schema, ServerTool, Signature, Tool, ToolChoice,
        ToolChoiceMode, Turn,
        effort::is_effort,
        media::{self, BadMedia},
        normalise::normalise,
        signature::split_id,
    },
    object::{Field, Fields},
    tree::Tree,
};

const FROM: Protocol = Protocol::Anthropic;

/// Decodes the body of `POST /v1/messages` or `POST /v1/messages/count_tokens`.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Request, Malformed> {
    let tree = Tree::parse_object(body)?;
    let mut fields = Fields::new(&tree, "", FROM)?;
    let operation = if target.method == Method::CountTokens { Operation::Count } else { Operation::Generate };
    let counts_tokens = operation == Operation::Count;
    let mut request = Request::new(fields.required_text("model")?, FROM, operation);
    let Some((items, path)) = fields.list("messages")? else { return Err(Malformed::missing(FROM, "messages")) };
    if items.is_empty() {
        return Err(Malformed::invalid(FROM, &path, "must not be empty"));
    }
    system(&mut fields, &mut request)?;
    messages(items, &path, &mut request)?;
    tools(&mut fields, &mut request)?;
    params(&mut fields, &mut request)?;
    if !counts_tokens && request.params.max_tokens.is_none() {
        return Err(Malformed::missing(FROM, "max_tokens"));
    }
    request.refuse_all(fields.rest());
    normalise(&mut request)?;
    Ok(request)
}

/// Prefix of signatures that the gateway generates for thoughts of other providers' models.
const FOREIGN_SIGNATURE: &str = "tg1.";

/// Decodes `system`: a string, or text blocks.
fn system(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(field) = fields.take("system") else { return Ok(()) };
    let parts = content(&field, request)?;
    for part in parts {
        match part.as_text() {
            Some("") => {}
            Some(_) => request.system.push(part),
            None => request.refuse_part(part.path),
        }
    }
    Ok(())
}

/// Decodes all messages. Tool results become turns of their own.
fn messages(messages: &[Tree<'_>], path: &str, request: &mut Request) -> Result<(), Malformed> {
    for (index, message) in messages.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut fields = Fields::new(message, &path, FROM)?;
        let role = match fields.required_text("role")?.as_str() {
            "user" => Role::User,
            "assistant" => Role::Model,
            "system" => Role::System,
            other => {
                let why = format!("'{other}' is not one of 'user', 'assistant', 'system'");
                return Err(Malformed::invalid(FROM, &format!("{path}.role"), &why));
            }
        };
        let Some(field) = fields.take("content") else { return Err(Malformed::missing(FROM, &format!("{path}.content"))) };
        let (results, others): (Vec<Part>, Vec<Part>) =
            content(&field, request)?.into_iter().partition(|part| matches!(part.kind, PartKind::Result { .. }));
        let has_results = !results.is_empty();
        if has_results {
            request.turns.push(Turn { role: Role::ToolResults, parts: results, path: path.clone() });
        }
        if !others.is_empty() || !has_results {
            request.turns.push(Turn { role, parts: others, path });
        }
    }
    Ok(())
}

/// Decodes content: a string, or blocks.
fn content(field: &Field<'_, '_>, request: &mut Request) -> Result<Vec<Part>, Malformed> {
    if let Some(text) = field.value.str() {
        return Ok(vec![Part::text(text, field.path.clone())]);
    }
    let blocks = field.value.list().ok_or_else(|| Malformed::wrong_type(FROM, &field.path, "a string or an array"))?;
    let mut parts = Vec::with_capacity(blocks.len());
    for (index, item) in blocks.iter().enumerate() {
        parts.extend(block(item, &format!("{}[{index}]", field.path), request)?);
    }
    Ok(parts)
}

/// Decodes one block. Unknown kinds can only be sent to Anthropic upstreams.
fn block(item: &Tree<'_>, path: &str, request: &mut Request) -> Result<Option<Part>, Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    let kind = fields.required_text("type")?;
    let mut signature = None;
    let kind = match kind.as_str() {
        "text" => PartKind::Text(fields.required_text("text")?),
        "thinking" => {
            let value = fields.text_or_empty("signature")?;
            let is_genuine = !value.is_empty() && !value.starts_with(FOREIGN_SIGNATURE);
            signature = is_genuine.then_some(Signature { owner: Protocol::Anthropic, value });
            let text = fields.text_or_empty("thinking")?;
            PartKind::Think { text, redacted: None }
        }
        "redacted_thinking" => PartKind::Think { text: String::new(), redacted: Some(fields.required_text("data")?) },
        "image" | "document" => {
            let Some(media) = source(&mut fields, path)? else {
                request.refuse_part(format!("{path}.source"));
                return Ok(None);
            };
            PartKind::Media(media)
        }
        "tool_use" => {
            let given = fields.required_text("id")?;
            let (id, carried) = split_id(&given);
            signature = carried;
            let name = fields.required_text("name")?;
            let args = fields.take("input").map_or_else(|| "{}".to_owned(), |input| input.value.compact());
            PartKind::Call { id: id.to_owned(), name, args, custom: false }
        }
        "tool_result" => result(&mut fields, request)?,
        _ => PartKind::Opaque { protocol: FROM, raw: item.compact() },
    };
    Ok(Some(Part { kind, signature, path: path.to_owned() }))
}

/// Decodes the source of an image or document; `None` for sources that only Anthropic can read, such as files.
fn source(fields: &mut Fields<'_, '_>, path: &str) -> Result<Option<Media>, Malformed> {
    let path = format!("{path}.source");
    let name = fields.text("title")?.map(|title| title.value);
    let mut source = fields.object("source")?.ok_or_else(|| Malformed::missing(FROM, &path))?;
    let kind = source.required_text("type")?;
    let bad = |fault: BadMedia| {
        let why = match fault {
            BadMedia::Base64 => "the data is not base64",
            BadMedia::Url => "is not an https: address",
        };
        Malformed::invalid(FROM, &path, why)
    };
    let media = match kind.as_str() {
        "base64" => {
            media::inline(&source.required_text("media_type")?, &source.required_text("data")?, path.clone()).map_err(bad)?
        }
        "url" => {
            let media = media::from_url(&source.required_text("url")?, path.clone()).map_err(bad)?;
            let is_document = fields.required_text("type")? == "document";
            let mime = if is_document { "application/pdf".to_owned() } else { media.mime };
            Media { mime, ..media }
        }
        _ => return Ok(None),
    };
    Ok(Some(Media { name, ..media }))
}

fn result(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<PartKind, Malformed> {
    let given = fields.required_text("tool_use_id")?;
    let is_error = fields.flag("is_error")?;
    let (mut texts, mut media) = (Vec::new(), Vec::new());
    if let Some(field) = fields.take("content") {
        for part in content(&field, request)? {
            if let PartKind::Text(text) = part.kind {
                texts.push(text);
            } else if let PartKind::Media(item) = part.kind {
                media.push(item);
            } else {
                request.refuse_part(part.path);
            }
        }
    }
    let call_id = split_id(&given).0.to_owned();
    Ok(PartKind::Result { call_id, name: String::new(), content: texts.join("\n"), json: false, media, is_error })
}

// --- tools ---

fn tools(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    for (item, path) in fields.elements("tools")? {
        tool(item, &path, request)?;
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

// --- parameters ---

/// Decodes all known optional fields; unknown ones are left in `fields`.
fn params(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let params = &mut request.params;
    params.max_tokens = fields.at_least("max_tokens", 1)?;
    params.temperature = fields.number("temperature")?;
    params.top_p = fields.number("top_p")?;
    params.top_k = fields.number("top_k")?;
    params.stop = fields.texts("stop_sequences")?.filter(|stop| !stop.value.is_empty());
    params.stream = fields.flag("stream")?;
    if let Some(mut metadata) = fields.object("metadata")? {
        let path = metadata.path().to_owned();
        params.user = metadata.text("user_id")?.map(|user| Located { value: user.value, path });
    }
    if let Some(tier) = fields.text("service_tier")?
        && !matches!(tier.value.as_str(), "auto" | "standard_only")
    {
        request.refuse(tier.path);
    }
    request.refuse_given(fields.text("speed")?.filter(|speed| speed.value != "standard"));
    thinking(fields, request)?;
    fields.ignore(&["cache_control"]);
    request.dropped.extend(fields.paths(&["diagnostics"]));
    Ok(())
}

/// Decodes `thinking` and `output_config`: effort or budget, visibility of thoughts, and output format.
fn thinking(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let mut effort = None;
    if let Some(mut output) = fields.object("output_config")? {
        effort = output.text("effort")?;
        if let Some(effort) = effort.as_ref().filter(|effort| !is_effort(&effort.value)) {
            return Err(Malformed::invalid(FROM, &effort.path, "is not an effort"));
        }
        if let Some(mut format) = output.object("format")? {
            let path = format.path().to_owned();
            let known = format.required_text("type")? == "json_schema";
            match format.take("schema").filter(|_| known) {
                Some(field) => {
                    let schema = Schema::Json(field.value.value());
                    request.params.format = Some(Located::new(Format::Schema { schema, name: None, strict: None }, path));
                }
                None => request.refuse(path),
            }
        }
        request.refuse_all(output.rest());
    }
    let params = &mut request.params.thinking;
    let Some(mut thinking) = fields.object("thinking")? else {
        params.effort = effort;
        return Ok(());
    };
    let path = thinking.path().to_owned();
    let shows = thinking.text("display")?.is_none_or(|display| display.value != "omitted");
    let include = Located::new(shows, path.clone());
    match thinking.required_text("type")?.as_str() {
        "enabled" => {
            let missing = || Malformed::missing(FROM, &format!("{path}.budget_tokens"));
            params.budget = Some(thinking.integer("budget_tokens")?.ok_or_else(missing)?);
            params.include = Some(include);
        }
        "adaptive" => {
            params.adaptive = effort.is_none().then(|| Located::new((), path));
            params.effort = effort;
            params.include = Some(include);
        }
        "disabled" | "between_tools" => params.effort = Some(Located::new("none", path)),
        _ => return Err(Malformed::invalid(FROM, &format!("{path}.type"), "is not a kind of thinking")),
    }
    Ok(())
}
