//! Decodes optional parameters. Values equal to the default are dropped, so that no upstream refuses them.

use super::FROM;
use crate::{
    Malformed,
    neutral::{Format, Located, Request, Schema, effort::is_effort},
    object::Fields,
};

/// Decodes all known optional fields; unknown ones are left in `fields`.
pub(super) fn read(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let params = &mut request.params;
    params.max_tokens = fields.at_least("max_tokens", 1)?;
    params.temperature = fields.number("temperature")?;
    params.top_p = fields.number("top_p")?;
    params.top_k = fields.number("top_k")?;
    params.stop = fields.texts("stop_sequences")?.filter(|stop| !stop.value.is_empty());
    params.stream = fields.bool("stream")?.is_some_and(|stream| stream.value);
    if let Some(mut metadata) = fields.object("metadata")? {
        let path = metadata.path().to_owned();
        params.user = metadata.text("user_id")?.map(|user| Located { value: user.value, path });
    }
    if let Some(tier) = fields.text("service_tier")?
        && !matches!(tier.value.as_str(), "auto" | "standard_only")
    {
        request.refuse(tier.path);
    }
    if let Some(speed) = fields.text("speed")?.filter(|speed| speed.value != "standard") {
        request.refuse(speed.path);
    }
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
        for field in output.rest() {
            request.refuse(field);
        }
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
