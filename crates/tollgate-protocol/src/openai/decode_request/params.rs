//! Decodes optional parameters. Values that request the default behaviour are dropped here, so that no encoder refuses them.

use super::FROM;
use crate::{
    Malformed,
    neutral::{Format, Located, Request, Schema, effort::is_effort},
    object::Fields,
    tree::{NodeKind, Tree},
};

/// Bookkeeping fields that cannot change the reply and that Responses has too.
const LABELS: [&str; 4] = ["metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"];
/// Others that cannot change the reply.
const DROPPED: [&str; 2] = ["prediction", "prompt_cache_options"];

/// Decodes every known optional field. Unknown fields stay unread; the caller of this function refuses them.
pub(super) fn read(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let params = &mut request.params;
    params.temperature = fields.number("temperature")?;
    params.top_p = fields.number("top_p")?;
    let newer = fields.at_least("max_completion_tokens", 1)?;
    let older = fields.at_least("max_tokens", 1)?;
    params.max_tokens = newer.or(older);
    params.n = fields.count("n", 1)?.filter(|n| n.value > 1);
    params.stop = stop(fields)?;
    params.seed = fields.integer("seed")?;
    params.presence = fields.nonzero("presence_penalty")?;
    params.frequency = fields.nonzero("frequency_penalty")?;
    params.logprobs = fields.bool("logprobs")?.filter(|wanted| wanted.value);
    params.top_logprobs = fields.count("top_logprobs", 0)?;
    params.parallel = fields.bool("parallel_tool_calls")?.filter(|parallel| !parallel.value);
    params.user = fields.text("user")?;
    params.web_search = fields.take("web_search_options").map(|field| Located::new(field.value.compact(), field.path));
    params.stream = fields.flag("stream")?;
    if let Some(mut options) = fields.object("stream_options")? {
        params.include_usage = options.flag("include_usage")?;
    }
    format(fields, request)?;
    thinking(fields, request)?;
    tier(fields, request)?;
    harmless(fields, request)?;
    request.params.labels = fields.labels(&LABELS);
    request.dropped.extend(fields.paths(&DROPPED));
    Ok(())
}

fn stop(fields: &mut Fields<'_, '_>) -> Result<Option<Located<Vec<String>>>, Malformed> {
    let Some(field) = fields.take("stop") else { return Ok(None) };
    let value = match (field.value.str(), field.value.list()) {
        (Some(text), _) => vec![text.to_owned()],
        (None, Some(items)) => items
            .iter()
            .enumerate()
            .map(|(index, item)| {
                let wrong = || Malformed::wrong_type(FROM, &format!("{}[{index}]", field.path), "a string");
                item.str().map(str::to_owned).ok_or_else(wrong)
            })
            .collect::<Result<_, _>>()?,
        (None, None) => return Err(Malformed::wrong_type(FROM, &field.path, "a string or an array of strings")),
    };
    Ok((!value.is_empty()).then(|| Located::new(value, field.path)))
}

fn format(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(mut format) = fields.object("response_format")? else { return Ok(()) };
    let path = format.path().to_owned();
    let value = match format.required_text("type")?.as_str() {
        "text" => return Ok(()),
        "json_object" => Format::Json,
        "json_schema" => {
            let path = format!("{path}.json_schema");
            let mut named = format.object("json_schema")?.ok_or_else(|| Malformed::missing(FROM, &path))?;
            let name = Some(named.required_text("name")?);
            let strict = named.bool("strict")?.map(|strict| strict.value);
            let schema = named.take("schema").map(|schema| Schema::Json(schema.value.value()));
            let description = named.text("description")?.filter(|given| !given.value.is_empty());
            request.refuse_all(named.rest());
            if let Some(schema) = schema {
                Format::Schema { schema, name, description, strict }
            } else {
                request.refuse_given(description);
                Format::Json
            }
        }
        _ => {
            request.refuse(path);
            return Ok(());
        }
    };
    request.params.format = Some(Located::new(value, path));
    Ok(())
}

/// Decodes `reasoning_effort` and `thinking_config` inside `extra_body`, the spelling of Google's OpenAI-compatible endpoint.
fn thinking(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    if let Some(effort) = fields.text("reasoning_effort")? {
        if !is_effort(&effort.value) {
            let why = "is not one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'";
            return Err(Malformed::invalid(FROM, &effort.path, why));
        }
        request.params.thinking.effort = Some(effort);
    }
    let Some(mut extra) = fields.object("extra_body")? else { return Ok(()) };
    if let Some(mut google) = extra.object("google")? {
        if let Some(config) = google.take("thinking_config") {
            google_thinking(config.value, &config.path, request)?;
        }
        request.params.google.cached_content = google.text("cached_content")?;
        let safety = google.take("safety_settings");
        request.params.google.safety_settings = safety.map(|field| Located::new(field.value.compact(), field.path));
        request.refuse_all(google.rest());
    }
    request.refuse_all(extra.rest());
    Ok(())
}

/// Decodes Google's `thinking_config`; both spellings of its member names are accepted.
fn google_thinking(config: &Tree<'_>, path: &str, request: &mut Request) -> Result<(), Malformed> {
    let thinking = &mut request.params.thinking;
    if thinking.effort.is_some() {
        return Err(Malformed::invalid(FROM, path, "cannot be given together with 'reasoning_effort'"));
    }
    let Some(members) = config.members() else { return Err(Malformed::wrong_type(FROM, path, "an object")) };
    let named = |camel: &str| {
        let key = members.iter().rev().find(|(key, _)| crate::tree::same_proto_name(key, camel)).map_or(camel, |(key, _)| key);
        format!("{path}.{key}")
    };
    if let Some(level) = config.get_proto("thinkingLevel") {
        let path = named("thinkingLevel");
        let word = level.str().map(str::to_ascii_lowercase).filter(|word| is_effort(word) && word != "none");
        let word = word.ok_or_else(|| Malformed::invalid(FROM, &path, "is not a thinking level"))?;
        thinking.level = Some(Located::new(word, path));
    }
    if let Some(budget) = config.get_proto("thinkingBudget") {
        let path = named("thinkingBudget");
        if thinking.level.is_some() {
            return Err(Malformed::invalid(FROM, &path, "cannot be given together with a level"));
        }
        let number = budget.integer().ok_or_else(|| Malformed::wrong_type(FROM, &path, "a whole number"))?;
        thinking.budget = Some(Located::new(number, path));
    }
    if let Some(include) = config.get_proto("includeThoughts") {
        let path = named("includeThoughts");
        let value = include.bool().ok_or_else(|| Malformed::wrong_type(FROM, &path, "a boolean"))?;
        thinking.include = Some(Located::new(value, path));
    }
    let known = ["thinkingLevel", "thinkingBudget", "includeThoughts"];
    for (key, value) in members {
        if !matches!(value.kind, NodeKind::Null) && !known.iter().any(|name| crate::tree::same_proto_name(key, name)) {
            request.refuse(format!("{path}.{key}"));
        }
    }
    Ok(())
}

fn tier(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(tier) = fields.text("service_tier")? else { return Ok(()) };
    match tier.value.as_str() {
        "auto" | "default" => {}
        "flex" | "priority" => request.params.tier = Some(tier),
        _ => request.refuse(tier.path),
    }
    Ok(())
}

/// Accepts fields whose value requests the default behaviour and refuses other values.
fn harmless(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    if let Some(bias) = fields.take("logit_bias").filter(|bias| bias.value.members().is_none_or(|members| !members.is_empty())) {
        request.refuse(bias.path);
    }
    request.refuse_given(fields.bool("store")?.filter(|store| store.value));
    request.params.verbosity = fields.text("verbosity")?.filter(|verbosity| verbosity.value != "medium");
    if let Some(modalities) = fields.take("modalities") {
        let only_text =
            matches!(&modalities.value.kind, NodeKind::List(items) if items.iter().all(|item| item.str() == Some("text")));
        if !only_text {
            request.refuse(modalities.path);
        }
    }
    Ok(())
}
