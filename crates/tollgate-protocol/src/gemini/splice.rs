//! Edits a Gemini body for an upstream of the same protocol in place of re-encoding it. The model is in the path; it is changed
//! in the body only where the protocol repeats it there and requires both to be equal.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    Method, RequestEdits, RequestSummary,
    edits::{Edits, first_member, literal},
    markers::{CleanItem, WRAPPED_SIGNATURE, clean_turns},
    opaque_state::PLACEHOLDER,
    scan::{Scanner, SyntaxError, Value, ValueKind, whole},
};

/// Applies the edits; returns the same buffer if nothing changes.
pub(super) fn forward_request(body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes {
    let mut changes = Edits::new();
    if let Some(limit) = edits.max_output
        && summary.method.takes_output_limit()
    {
        limit_output(body, summary, limit, &mut changes);
    }
    if let Some(name) = edits.upstream_model
        && name != summary.model
        && matches!(summary.method, Method::BatchEmbedContents | Method::CountTokens)
    {
        adopt(&mut changes, |changes| rename(body, name, changes));
    }
    if edits.drop_signatures {
        adopt(&mut changes, |changes| clean(body, unsigned_part, changes));
    } else if summary.splices.markers {
        adopt(&mut changes, |changes| clean(body, unwrapped_part, changes));
    }
    changes.apply_to(body)
}

/// Applies the edits of a second scan. The body was scanned before, so an error is not expected; if one occurs, the body stays
/// unchanged.
fn adopt(changes: &mut Edits<'static>, scan: impl FnOnce(&mut Edits<'static>) -> Result<(), SyntaxError>) {
    let mut found = Edits::new();
    if scan(&mut found).is_ok() {
        changes.append(found);
    }
}

/// Inserts the output limit, or lowers a larger one.
fn limit_output(body: &Bytes, summary: &RequestSummary, limit: u64, changes: &mut Edits<'static>) {
    let points = &summary.splices;
    let mut bound = false;
    for range in &points.max_output {
        let given = text(body, range);
        let requested = whole(given.trim_matches('"'));
        if requested.is_none_or(|requested| requested > limit) {
            changes.replace(range.clone(), limit.to_string().into_bytes());
        }
        bound = true;
    }
    if bound {
        return;
    }
    let value = limit.to_string();
    if let Some(at) = points.config_open {
        changes.insert(at, first_member(body, at, "maxOutputTokens", &value));
    } else if let Ok(Some(null)) = null_config(body) {
        changes.replace(null, format!("{{\"maxOutputTokens\":{value}}}").into_bytes());
    } else {
        let config = format!("{{\"maxOutputTokens\":{value}}}");
        changes.insert(points.body_open, first_member(body, points.body_open, "generationConfig", &config));
    }
}

/// Range of a `generationConfig` that is `null`. The limit is written in its place: a `null` after an added member might override it.
fn null_config(body: &[u8]) -> Result<Option<Range<usize>>, SyntaxError> {
    let mut found = None;
    Scanner::new(body)?.object(|scanner, name| {
        let (value, range) = scanner.value()?;
        if value == Value::Null && matches!(name.word(), "generationConfig" | "generation_config") {
            found = Some(range);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Writes the upstream's model name where the body repeats the one in the path: in each request of a batch, and in the request
/// whose tokens are counted.
fn rename(body: &[u8], name: &str, changes: &mut Edits<'static>) -> Result<(), SyntaxError> {
    let resource = if name.contains('/') { name.to_owned() } else { format!("models/{name}") };
    let resource = literal(&resource).into_bytes();
    let mut request = |scanner: &mut Scanner<'_>| {
        scanner.members(|scanner, name| {
            if name.word() == "model"
                && let (Value::Text(_), range) = scanner.value()?
            {
                changes.replace(range, resource.clone());
            }
            Ok(())
        })?;
        Ok(())
    };
    Scanner::new(body)?.members(|scanner, name| match name.word() {
        "requests" => scanner.elements(|scanner, _| request(scanner)).map(drop),
        "generateContentRequest" | "generate_content_request" => request(scanner),
        _ => Ok(()),
    })?;
    Ok(())
}

fn text<'a>(body: &'a [u8], range: &Range<usize>) -> &'a str {
    body.get(range.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

// --- histories ---

/// Removes content that only another provider can read, namely signatures wrapped by this gateway and the thoughts they
/// belong to, from the contents at the top level and inside `generateContentRequest`.
fn clean<'a>(body: &'a [u8], part: CleanItem<'a>, changes: &mut Edits<'static>) -> Result<(), SyntaxError> {
    Scanner::new(body)?.members(|scanner, name| match name.word() {
        "contents" => clean_turns(scanner, changes, "parts", part),
        "generateContentRequest" | "generate_content_request" => {
            scanner.members(|scanner, name| match name.word() {
                "contents" => clean_turns(scanner, changes, "parts", part),
                _ => Ok(()),
            })?;
            Ok(())
        }
        _ => Ok(()),
    })?;
    Ok(())
}

/// Removes signatures that this gateway has wrapped.
fn unwrapped_part(scanner: &mut Scanner<'_>, changes: &mut Edits<'static>) -> Result<(Range<usize>, bool), SyntaxError> {
    part(scanner, changes, |signature| signature.starts_with(WRAPPED_SIGNATURE))
}

/// Removes all signatures.
fn unsigned_part(scanner: &mut Scanner<'_>, changes: &mut Edits<'static>) -> Result<(Range<usize>, bool), SyntaxError> {
    part(scanner, changes, |signature| signature != PLACEHOLDER)
}

/// Properties of a part that decide how its signature is removed.
#[derive(Default)]
struct PartTraits {
    thought: bool,
    call: bool,
    text: bool,
    other: bool,
    members: Vec<(Range<usize>, bool)>,
    wrapped: Vec<Range<usize>>,
}

/// Cleans one part of the signatures that `is_foreign` finds. Returns its range, and true if the whole part has to be removed.
fn part(
    scanner: &mut Scanner<'_>,
    changes: &mut Edits<'static>,
    is_foreign: fn(&str) -> bool,
) -> Result<(Range<usize>, bool), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        return Ok((scanner.skip()?, false));
    }
    let mut traits = PartTraits::default();
    let range = scanner.object(|scanner, name| {
        let (value, range) = scanner.value()?;
        let mut wrapped = false;
        match name.word() {
            "thought" => traits.thought = value == Value::Bool(true),
            "functionCall" | "function_call" => traits.call |= value != Value::Null,
            "text" => traits.text = matches!(value, Value::Text(text) if !text.is_empty()),
            "thoughtSignature" | "thought_signature" => {
                wrapped = matches!(value, Value::Text(text) if is_foreign(text.raw()));
            }
            _ => traits.other |= value != Value::Null,
        }
        if wrapped {
            traits.wrapped.push(range.clone());
        }
        traits.members.push((name.quote()..range.end, wrapped));
        Ok(())
    })?;
    if traits.wrapped.is_empty() {
        return Ok((range, false));
    }
    if traits.call {
        let placeholder = format!("\"{PLACEHOLDER}\"").into_bytes();
        for value in traits.wrapped {
            changes.replace(value, placeholder.clone());
        }
        return Ok((range, false));
    }
    if traits.thought || !(traits.text || traits.other) {
        return Ok((range, true));
    }
    changes.remove_items(&traits.members);
    Ok((range, false))
}

#[cfg(test)]
mod tests;
