//! Decodes `generationConfig`. Values that request the default behaviour are dropped here, so that no encoder refuses them.

use serde_json::Number;

use super::{FROM, tools::google_schema};
use crate::{
    Malformed,
    neutral::{Format, Located, Request, Schema, effort::is_effort},
    object::Fields,
};

/// Decodes every member; unknown members are recorded as unsupported.
pub(super) fn read(mut config: Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let params = &mut request.params;
    params.temperature = config.number("temperature")?;
    params.top_p = config.number("topP")?;
    params.top_k = config.number("topK")?;
    params.max_tokens = config.at_least("maxOutputTokens", 1)?;
    params.n = config.at_least("candidateCount", 1)?.filter(|n| n.value > 1).map(narrow).transpose()?;
    params.stop = config.texts("stopSequences")?.filter(|stop| !stop.value.is_empty());
    params.seed = config.integer("seed")?;
    params.presence = config.number("presencePenalty")?.filter(not_zero);
    params.frequency = config.number("frequencyPenalty")?.filter(not_zero);
    params.logprobs = config.bool("responseLogprobs")?.filter(|wanted| wanted.value);
    params.top_logprobs = config.at_least("logprobs", 0)?.map(narrow).transpose()?;
    media_resolution(&mut config, request)?;
    format(&mut config, request)?;
    if let Some(thinking) = config.object("thinkingConfig")? {
        self::thinking(thinking, request)?;
    }
    if let Some(modalities) = config.texts("responseModalities")?
        && !modalities.value.iter().all(|modality| modality.eq_ignore_ascii_case("TEXT"))
    {
        request.refuse(modalities.path);
    }
    for name in ["enableAffectiveDialog", "enableEnhancedCivicAnswers"] {
        if let Some(enabled) = config.bool(name)?.filter(|enabled| enabled.value) {
            request.refuse(enabled.path);
        }
    }
    for field in config.rest() {
        request.refuse(field);
    }
    Ok(())
}

fn not_zero(number: &Located<Number>) -> bool {
    number.value.as_f64() != Some(0.0)
}

pub(super) fn narrow(given: Located<u64>) -> Result<Located<u32>, Malformed> {
    let Ok(value) = u32::try_from(given.value) else {
        return Err(Malformed::invalid(FROM, &given.path, "is too large"));
    };
    Ok(Located { value, path: given.path })
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
            request.params.format = Some(Located::new(Format::Schema { schema, name: None, strict: None }, path));
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
    for field in config.rest() {
        request.refuse(field);
    }
    Ok(())
}
