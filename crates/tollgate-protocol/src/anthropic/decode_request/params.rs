//! Optional parameters.

use super::FROM;
use crate::{
    Malformed,
    neutral::{Format, Located, Request, Schema, effort::is_effort},
    object::{Field, Fields},
};

/// Fields that change neither the answer nor its price at other providers.
const BOOKKEEPING: &[&str] = &["tags", "user_profile_id", "fallback_credit_token", "billing_policy"];

/// Fields that name skills and tools, which the model reads as part of the prompt.
const READ_BY_THE_MODEL: [&str; 2] = ["container", "mcp_servers"];

/// Field that lists fallback models.
const FALLBACKS: &str = "fallbacks";

/// Edits of the history that remove thinking, which is never sent to other providers.
const CLEARS_THINKING: &str = "clear_thinking_";

/// Decodes all known optional fields; unknown ones are left in `fields`.
pub(super) fn params(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
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
        // These become tags of the usage record. Other protocols have no member for them.
        request.dropped.extend(metadata.rest());
    }
    if let Some(tier) = fields.text("service_tier")?
        && !matches!(tier.value.as_str(), "auto" | "standard_only")
    {
        request.refuse(tier.path);
    }
    request.refuse_given(fields.text("speed")?.filter(|speed| speed.value != "standard"));
    // The thread holds the conversation before this message. Without it the model would give another answer.
    if let Some(thread) = fields.take("thread") {
        request.refuse_part(thread.path);
    }
    for name in READ_BY_THE_MODEL {
        if let Some(field) = fields.take(name).filter(|field| !is_empty_list(field)) {
            request.refuse_input(field.path);
        }
    }
    if let Some(field) = fields.take(FALLBACKS).filter(|field| !is_empty_list(field)) {
        request.refuse(field.path);
    }
    context_management(fields, request)?;
    thinking(fields, request)?;
    fields.ignore(&["cache_control", "diagnostics"]);
    request.dropped.extend(fields.paths(BOOKKEEPING));
    Ok(())
}

fn is_empty_list(field: &Field<'_, '_>) -> bool {
    field.value.list().is_some_and(<[_]>::is_empty)
}

fn context_management(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(mut management) = fields.object("context_management")? else { return Ok(()) };
    for (edit, path) in management.elements("edits")? {
        if !Fields::new(edit, &path, FROM)?.required_text("type")?.starts_with(CLEARS_THINKING) {
            request.refuse(path);
        }
    }
    request.refuse_all(management.rest());
    Ok(())
}

/// Decodes `thinking` and `output_config`: effort or budget, visibility of thoughts, and output format.
fn thinking(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let effort = output_config(fields, request)?;
    let params = &mut request.params.thinking;
    let Some(mut thinking) = fields.object("thinking")? else {
        params.effort = effort;
        return Ok(());
    };
    let path = thinking.path().to_owned();
    // Callers read the first block as the answer, so thoughts are shown only on request.
    let shows = thinking.text("display")?.is_none_or(|display| display.value != "omitted");
    let include = shows.then(|| Located::new(true, path.clone()));
    match thinking.required_text("type")?.as_str() {
        "enabled" => {
            let missing = || Malformed::missing(FROM, &format!("{path}.budget_tokens"));
            params.omitted = !shows;
            params.budget = Some(thinking.integer("budget_tokens")?.ok_or_else(missing)?);
            params.include = include;
        }
        "adaptive" => {
            params.omitted = !shows;
            params.adaptive = effort.is_none().then(|| Located::new((), path));
            params.effort = effort;
            params.include = include;
        }
        "disabled" | "between_tools" => params.effort = Some(Located::new("none", path)),
        _ => return Err(Malformed::invalid(FROM, &format!("{path}.type"), "is not a kind of thinking")),
    }
    Ok(())
}

/// Decodes the output format and returns the effort.
fn output_config(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<Option<Located<String>>, Malformed> {
    let Some(mut output) = fields.object("output_config")? else { return Ok(None) };
    let effort = output.text("effort")?;
    if let Some(effort) = effort.as_ref().filter(|effort| !is_effort(&effort.value)) {
        return Err(Malformed::invalid(FROM, &effort.path, "is not an effort"));
    }
    if let Some(mut format) = output.object("format")? {
        let path = format.path().to_owned();
        let known = format.required_text("type")? == "json_schema";
        match format.take("schema").filter(|_| known) {
            Some(field) => {
                let schema = Schema::Json(field.value.value());
                request.params.format =
                    Some(Located::new(Format::Schema { schema, name: None, description: None, strict: None }, path));
            }
            None => request.refuse(path),
        }
    }
    request.dropped.extend(output.paths(&["task_budget"]));
    request.refuse_all(output.rest());
    Ok(effort)
}
