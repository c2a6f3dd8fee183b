//! Decodes Gemini requests into the neutral form, with the leniency of proto3 JSON. Fields without a counterpart in the other
//! protocols are recorded as unsupported, not ignored.

mod contents;
mod embed;

use crate::{
    FieldViolation, Malformed, MalformedKind, Method, Protocol, Target,
    neutral::{
        Format, Located, Operation, Request, Schema, ServerTool, Tool, ToolChoice, ToolChoiceMode, effort::is_effort,
        normalise::normalise, schema,
    },
    object::{Field, Fields},
    tree::Tree,
};

const FROM: Protocol = Protocol::Gemini;

/// Decodes the body of any Gemini method; model and method come from the path.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Request, Malformed> {
    let tree = Tree::parse_object(body)?;
    let model = target.model.clone().unwrap_or_default();
    let mut fields = Fields::new(&tree, "", FROM)?;
    match target.method {
        Method::EmbedContent | Method::Embeddings => embed::one(fields, model),
        Method::BatchEmbedContents => embed::batch(fields, model),
        Method::CountTokens => {
            let mut request = Request::new(model, FROM, Operation::Count);
            let inner = fields.object("generateContentRequest")?;
            generate(inner.unwrap_or(fields), &mut request)?;
            Ok(request)
        }
        Method::Generate | Method::StreamGenerate | Method::Chat | Method::Compact => {
            let mut request = Request::new(model, FROM, Operation::Generate);
            request.params.stream = target.method == Method::StreamGenerate;
            generate(fields, &mut request)?;
            Ok(request)
        }
    }
}

fn generate(mut fields: Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some((items, path)) = fields.list("contents")? else {
        return Err(no_contents(&mut fields));
    };
    if items.is_empty() {
        return Err(Malformed::invalid(FROM, &path, "must not be empty"));
    }
    if let Some(system) = fields.object("systemInstruction")? {
        contents::system(system, request)?;
    }
    contents::read(items, &path, request)?;
    tools(&mut fields, request)?;
    if let Some(config) = fields.object("generationConfig")? {
        generation_config(config, request)?;
    }
    rest(&mut fields, request)?;
    normalise(request)
}

fn rest(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    request.params.google.cached_content = fields.text("cachedContent")?;
    if let Some((_, path)) = fields.list("safetySettings")? {
        let settings = fields.take("safetySettings").map(|field| field.value.compact()).unwrap_or_default();
        request.params.google.safety_settings = Some(Located::new(settings, path));
    }
    if let Some(tier) = fields.text("serviceTier")? {
        match tier.value.to_ascii_lowercase().as_str() {
            "unspecified" | "standard" | "service_tier_unspecified" => {}
            lower @ ("flex" | "priority") => request.params.tier = Some(Located::new(lower, tier.path)),
            _ => request.refuse(tier.path),
        }
    }
    request.refuse_given(fields.bool("store")?.filter(|store| store.value));
    request.dropped.extend(fields.paths(&["labels"]));
    fields.ignore(&["model"]);
    request.refuse_all(fields.rest());
    Ok(())
}

fn no_contents(fields: &mut Fields<'_, '_>) -> Malformed {
    if fields.take("messages").is_none() {
        return Malformed::missing(FROM, "contents");
    }
    let message = "The body could not be parsed: unknown field 'messages'; the native protocol expects 'contents' (array of \
                   {role, parts}), not 'messages'.";
    let violation = FieldViolation { field: "messages".to_owned(), description: "Unknown field; use 'contents'.".to_owned() };
    Malformed { kind: MalformedKind::Missing, message: message.to_owned(), violations: vec![violation] }
}

// --- generationConfig ---

/// Decodes every member; unknown members are recorded as unsupported.
fn generation_config(mut config: Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let params = &mut request.params;
    params.temperature = config.number("temperature")?;
    params.top_p = config.number("topP")?;
    params.top_k = config.number("topK")?;
    params.max_tokens = config.at_least("maxOutputTokens", 1)?;
    params.n = config.count("candidateCount", 1)?.filter(|n| n.value > 1);
    params.stop = config.texts("stopSequences")?.filter(|stop| !stop.value.is_empty());
    params.seed = config.integer("seed")?;
    params.presence = config.nonzero("presencePenalty")?;
    params.frequency = config.nonzero("frequencyPenalty")?;
    params.logprobs = config.bool("responseLogprobs")?.filter(|wanted| wanted.value);
    params.top_logprobs = config.count("logprobs", 0)?;
    media_resolution(&mut config, request)?;
    format(&mut config, request)?;
    if let Some(given) = config.object("thinkingConfig")? {
        thinking(given, request)?;
    }
    if let Some(modalities) = config.texts("responseModalities")?
        && !modalities.value.iter().all(|modality| modality.eq_ignore_ascii_case("TEXT"))
    {
        request.refuse(modalities.path);
    }
    for name in ["enableAffectiveDialog", "enableEnhancedCivicAnswers"] {
        request.refuse_given(config.bool(name)?.filter(|enabled| enabled.value));
    }
    request.refuse_all(config.rest());
    Ok(())
}

fn media_resolution(config: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(given) = config.text("mediaResolution")? else { return Ok(()) };
    let lower = given.value.to_ascii_lowercase();
    match lower.strip_prefix("media_resolution_").unwrap_or(&lower) {
        "unspecified" => {}
        word @ ("low" | "medium" | "high") => request.params.media_resolution = Some(Located::new(word, given.path)),
        _ => return Err(Malformed::invalid(FROM, &given.path, "is not a media resolution")),
    }
    Ok(())
}

/// Decodes the response format, which MIME type and schema state together.
fn format(config: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let mime = config.text("responseMimeType")?;
    let own = config.take("responseSchema");
    let json = config.take("responseJsonSchema").or_else(|| config.take("_responseJsonSchema"));
    let wants_json = match &mime {
        Some(mime) => match mime.value.to_ascii_lowercase().as_str() {
            "application/json" => true,
            "text/plain" | "" => false,
            _ => {
                request.refuse(mime.path.clone());
                return Ok(());
            }
        },
        None => own.is_some() || json.is_some(),
    };
    let schema = match (own, json) {
        (Some(_), Some(field)) => {
            return Err(Malformed::invalid(FROM, &field.path, "cannot be given together with another schema"));
        }
        (Some(field), None) => Some((google_schema(&field)?, field.path)),
        (None, Some(field)) => Some((Schema::Json(field.value.value()), field.path)),
        (None, None) => None,
    };
    match (schema, mime) {
        (Some((_, path)), _) if !wants_json => Err(Malformed::invalid(FROM, &path, "needs 'responseMimeType' application/json")),
        (Some((schema, path)), _) => {
            request.params.format =
                Some(Located::new(Format::Schema { schema, name: None, description: None, strict: None }, path));
            Ok(())
        }
        (None, Some(mime)) if wants_json => {
            request.params.format = Some(Located::new(Format::Json, mime.path));
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

fn thinking(mut config: Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let thinking = &mut request.params.thinking;
    thinking.include = config.bool("includeThoughts")?;
    thinking.budget = config.integer("thinkingBudget")?;
    if let Some(level) = config.text("thinkingLevel")? {
        let word = level.value.to_ascii_lowercase();
        if word != "thinking_level_unspecified" {
            if !is_effort(&word) || word == "none" {
                return Err(Malformed::invalid(FROM, &level.path, "is not a thinking level"));
            }
            if thinking.budget.is_some() {
                return Err(Malformed::invalid(FROM, &level.path, "cannot be given together with 'thinkingBudget'"));
            }
            thinking.level = Some(Located::new(word, level.path));
        }
    }
    request.refuse_all(config.rest());
    Ok(())
}

// --- tools ---

fn tools(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    for (item, path) in fields.elements("tools")? {
        tool(item, &path, request)?;
    }
    let Some(mut config) = fields.object("toolConfig")? else { return Ok(()) };
    if let Some(calling) = config.object("functionCallingConfig")? {
        choice(calling, request)?;
    }
    request.refuse_given(config.bool("includeServerSideToolInvocations")?.filter(|included| included.value));
    request.refuse_all(config.rest());
    Ok(())
}

/// Decodes one tool object; each member enables one kind of tool.
fn tool(item: &Tree<'_>, path: &str, request: &mut Request) -> Result<(), Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    for (item, path) in fields.elements("functionDeclarations")? {
        let tool = declaration(item, &path)?;
        request.tools.push(tool);
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
    Ok(Tool { name, description, schema, strict: None, custom: false, grammar: None, path: path.to_owned() })
}

fn google_schema(field: &Field<'_, '_>) -> Result<Schema, Malformed> {
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
    request.refuse_all(calling.rest());
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
