//! Decodes optional parameters. Values that request the default behaviour are dropped here, so that no encoder refuses them.

use super::FROM;
use crate::{
    Malformed,
    neutral::{Format, Located, Request, Schema, effort::is_effort},
    object::Fields,
    tree::Tree,
};

/// Advice for a request that names a stored response.
const NOT_STORED: &str = "nothing is stored here; send the whole conversation in 'input'";
/// Advice for a request that names a stored conversation or prompt, or asks to fetch the answer later.
const NO_CONVERSATIONS: &str = "nothing is stored here; send the whole conversation in 'input', \
                                with 'store': false and 'include': [\"reasoning.encrypted_content\"]";
const NO_PROMPTS: &str = "no prompts are stored here; send the text of the prompt in 'instructions' and 'input'";
const NO_BACKGROUND: &str = "no answers are stored here; leave 'background' out and use 'stream': true for long answers";

/// Fields that cannot change the answer.
const DROPPED: [&str; 9] = [
    "client_metadata",
    "max_tool_calls",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
    // Compression of images before the model gets them.
    "image",
];

/// Values of `include` that request results of hosted tools, or members that every answer has.
const INCLUDED: [&str; 7] = [
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "message.input_image.image_url",
];
const LOGPROBS: &str = "message.output_text.logprobs";

/// Decodes every known optional field but those of tools. Unknown fields stay unread; the caller of this function refuses them.
pub(super) fn read(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let params = &mut request.params;
    params.temperature = fields.number("temperature")?;
    params.top_p = fields.number("top_p")?;
    params.max_tokens = fields.at_least("max_output_tokens", 1)?;
    params.stream = fields.flag("stream")?;
    // Usage is part of every answer.
    params.include_usage = true;
    stream_options(fields, request)?;
    logprobs(fields, request)?;
    reasoning(fields, request)?;
    text(fields, request)?;
    stored(fields, request)?;
    tier(fields, request)?;
    request.dropped.extend(fields.paths(&DROPPED));
    Ok(())
}

fn stream_options(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(mut options) = fields.object("stream_options")? else { return Ok(()) };
    // Padding of streams, which the gateway never writes.
    options.ignore(&["include_obfuscation"]);
    // A member of chat completions: every answer of this protocol has its usage.
    request.dropped.extend(options.paths(&["include_usage"]));
    request.refuse_all(options.rest());
    Ok(())
}

/// Decodes `include` and `top_logprobs`. The latter has an effect only with one value of the former.
fn logprobs(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let mut wanted = None;
    if let Some(include) = fields.texts("include")? {
        for (index, value) in include.value.iter().enumerate() {
            let path = format!("{}[{index}]", include.path);
            if value == LOGPROBS {
                wanted = Some(path);
            } else if !INCLUDED.contains(&value.as_str()) {
                request.refuse(path);
            }
        }
    }
    let top = fields.count("top_logprobs", 0)?.filter(|top| top.value > 0);
    match (wanted, top) {
        (Some(_), Some(top)) => {
            request.params.logprobs = Some(Located::new(true, top.path.clone()));
            request.params.top_logprobs = Some(top);
        }
        (Some(path), None) => request.params.logprobs = Some(Located::new(true, path)),
        (None, Some(top)) => request.dropped.push(top.path),
        (None, None) => {}
    }
    Ok(())
}

fn reasoning(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(mut reasoning) = fields.object("reasoning")? else { return Ok(()) };
    let path = reasoning.path().to_owned();
    let thinking = &mut request.params.thinking;
    if let Some(effort) = reasoning.text("effort")? {
        if !is_effort(&effort.value) {
            let why = "is not one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'";
            return Err(Malformed::invalid(FROM, &effort.path, why));
        }
        thinking.effort = Some(effort);
    }
    let summary = reasoning.text("summary")?;
    let older = reasoning.text("generate_summary")?;
    thinking.include = match summary.or(older) {
        Some(summary) => Some(Located::new(true, summary.path)),
        // Thoughts are shown only where a summary is requested.
        None => thinking.effort.is_some().then(|| Located::new(false, format!("{path}.summary"))),
    };
    if let Some(context) = reasoning.text("context")?.filter(|context| context.value != "auto") {
        request.dropped.push(context.path);
    }
    request.refuse_given(reasoning.text("mode")?.filter(|mode| mode.value != "standard"));
    request.refuse_all(reasoning.rest());
    Ok(())
}

/// Decodes `text`: format and length of the answer.
fn text(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(mut text) = fields.object("text")? else { return Ok(()) };
    request.params.verbosity = text.text("verbosity")?.filter(|verbosity| verbosity.value != "medium");
    if let Some(mut format) = text.object("format")? {
        let path = format.path().to_owned();
        let value = match format.required_text("type")?.as_str() {
            "text" => None,
            "json_object" => Some(Format::Json),
            "json_schema" => {
                let name = Some(format.required_text("name")?);
                let schema = format.take("schema").ok_or_else(|| Malformed::missing(FROM, &format!("{path}.schema")))?;
                let schema = Schema::Json(schema.value.value());
                let description = format.text("description")?.filter(|given| !given.value.is_empty());
                let strict = format.bool("strict")?.map(|strict| strict.value);
                request.refuse_all(format.rest());
                Some(Format::Schema { schema, name, description, strict })
            }
            _ => {
                request.refuse(path.clone());
                None
            }
        };
        request.params.format = value.map(|value| Located::new(value, path));
    }
    request.refuse_all(text.rest());
    Ok(())
}

/// Decodes fields about stored objects. A field that replaces a part of the conversation cannot be dropped.
fn stored(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    for (name, instead) in [("previous_response_id", NOT_STORED), ("conversation", NO_CONVERSATIONS), ("prompt", NO_PROMPTS)] {
        if let Some(field) = fields.take(name) {
            request.refuse_part_because(field.path, instead);
        }
    }
    if let Some(background) = fields.bool("background")?.filter(|background| background.value) {
        request.refuse_because(background.path, NO_BACKGROUND);
    }
    if let Some(management) =
        fields.take("context_management").filter(|field| field.value.list().is_none_or(|list| !list.is_empty()))
    {
        request.refuse(management.path);
    }
    // SDKs leave it out, which means true: asking for storage is not an error.
    if let Some(store) = fields.bool("store")?.filter(|store| store.value) {
        request.dropped.push(store.path);
    }
    if let Some(truncation) = fields.take("truncation").filter(|field| field.value.str() != Some("disabled")) {
        request.dropped.push(truncation.path);
    }
    for name in ["moderation", "access_programs"] {
        if let Some(field) = fields.take(name).filter(|field| !is_empty(field.value)) {
            request.refuse(field.path);
        }
    }
    Ok(())
}

fn is_empty(value: &Tree<'_>) -> bool {
    value.members().is_some_and(<[_]>::is_empty)
}

fn tier(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(tier) = fields.text("service_tier")? else { return Ok(()) };
    match tier.value.as_str() {
        "auto" | "default" => {}
        "flex" | "priority" | "scale" | "fast" | "ultrafast" => request.params.tier = Some(tier),
        _ => request.refuse(tier.path),
    }
    Ok(())
}
