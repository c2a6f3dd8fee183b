//! Edits a chat completions body for an upstream of the same protocol in place of re-encoding it.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    RequestEdits, RequestSummary,
    edits::{Edits, first_member, literal},
    markers::{EXTRA_CONTENT, strip_id_suffix},
    scan::{Scanner, SyntaxError, ValueKind, whole},
};

/// Name of an added limit where the upstream's profile names none.
const LIMIT_FIELD: &str = "max_completion_tokens";
const LIMIT_FIELDS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Applies the edits; returns the same buffer if nothing changes.
pub(super) fn forward_request(body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes {
    let mut changes = Edits::new();
    if let (Some(name), Some(range)) = (edits.upstream_model, &summary.splices.model)
        && name != summary.model
    {
        changes.replace(range.clone(), literal(name).into_bytes());
    }
    if edits.force_usage && summary.stream && !summary.include_usage {
        force_usage(body, summary, &mut changes);
    }
    if edits.max_output.is_some() || edits.output_limit_field.is_some() {
        limit_output(body, summary, edits, &mut changes);
    }
    if summary.splices.markers {
        let mut cleaned = Edits::new();
        if clean(body, !edits.keep_google_signatures, &mut cleaned).is_ok() {
            changes.append(cleaned);
        }
    }
    changes.apply_to(body)
}

fn force_usage(body: &Bytes, summary: &RequestSummary, changes: &mut Edits<'_>) {
    const WANTED: &str = "{\"include_usage\":true}";
    let points = &summary.splices;
    match (&points.stream_options, &points.include_usage) {
        (_, Some(value)) => {
            // Other values are left to the upstream.
            if matches!(text(body, value), "false" | "null") {
                changes.replace(value.clone(), b"true");
            }
        }
        (Some(options), None) if text(body, options) == "null" => changes.replace(options.clone(), WANTED.as_bytes()),
        (Some(options), None) if text(body, options).starts_with('{') => {
            let at = options.start + 1;
            changes.insert(at, first_member(body, at, "include_usage", "true"));
        }
        (Some(_), None) => {}
        (None, None) => changes.insert(points.body_open, first_member(body, points.body_open, "stream_options", WANTED)),
    }
}

fn limit_output(body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>, changes: &mut Edits<'_>) {
    let given: Vec<_> = summary.splices.max_output.iter().filter(|range| text(body, range) != "null").collect();
    if let (Some(wanted), [only]) = (edits.output_limit_field, given.as_slice())
        && let Some(name) = name_before(body, only.start)
        && text(body, &name) != wanted
        && summary.splices.max_output.len() == 1
    {
        changes.replace(name, wanted.as_bytes().to_vec());
    }
    let Some(limit) = edits.max_output else { return };
    for range in &given {
        if whole(text(body, range)).is_none_or(|requested| requested > limit) {
            changes.replace((*range).clone(), limit.to_string().into_bytes());
        }
    }
    if !given.is_empty() {
        return;
    }
    let wanted = edits.output_limit_field.unwrap_or(LIMIT_FIELD);
    let points = &summary.splices;
    // A later `null` member of the same name would override an added one.
    for range in &points.max_output {
        if name_before(body, range.start).is_some_and(|name| text(body, &name) == wanted) {
            return changes.replace(range.clone(), limit.to_string().into_bytes());
        }
    }
    changes.insert(points.body_open, first_member(body, points.body_open, wanted, &limit.to_string()));
}

/// Range of the member name of the limit whose value begins at `value`, without quotes. `None` if it contains escapes.
fn name_before(body: &[u8], value: usize) -> Option<Range<usize>> {
    let before = body.get(..value)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(b"\"")?;
    LIMIT_FIELDS.iter().find_map(|name| {
        let start = before.strip_suffix(name.as_bytes())?.strip_suffix(b"\"")?.len() + 1;
        Some(start..start + name.len())
    })
}

fn text<'a>(body: &'a [u8], range: &Range<usize>) -> &'a str {
    body.get(range.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Removes the signatures in histories: the suffixes of tool ids, the thoughts that a Responses upstream sealed, and with `google`
/// also `thought_signature` members.
fn clean(body: &[u8], google: bool, changes: &mut Edits<'_>) -> Result<(), SyntaxError> {
    Scanner::new(body)?.members(|scanner, name| {
        if name.word() == "messages" {
            scanner.elements(|scanner, _| clean_message(scanner, google, changes))?;
        }
        Ok(())
    })?;
    Ok(())
}

fn clean_message(scanner: &mut Scanner<'_>, google: bool, changes: &mut Edits<'_>) -> Result<(), SyntaxError> {
    strip_signature(scanner, google, changes, |scanner, name, changes| {
        match name {
            "tool_call_id" => strip_id_suffix(scanner, changes)?,
            "tool_calls" => {
                scanner.elements(|scanner, _| clean_call(scanner, google, changes))?;
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })
}

fn clean_call(scanner: &mut Scanner<'_>, google: bool, changes: &mut Edits<'_>) -> Result<(), SyntaxError> {
    strip_signature(scanner, google, changes, |scanner, name, changes| {
        if name == "id" { strip_id_suffix(scanner, changes) } else { scanner.skip().map(drop) }
    })
}

/// Reads an object with `each` and removes signatures from its `extra_content`.
fn strip_signature<'a>(
    scanner: &mut Scanner<'a>,
    google: bool,
    changes: &mut Edits<'_>,
    mut each: impl FnMut(&mut Scanner<'a>, &str, &mut Edits<'_>) -> Result<(), SyntaxError>,
) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        return scanner.skip().map(drop);
    }
    let mut inside = Edits::new();
    without(scanner, &mut inside, |scanner, name, inside| {
        if name == EXTRA_CONTENT {
            return without(scanner, inside, |scanner, name, inside| {
                let signature = match name {
                    "google" if google => "thought_signature",
                    "openai" => "reasoning",
                    _ => return scanner.skip().map(|_| false),
                };
                without(scanner, inside, |scanner, name, _| scanner.skip().map(|_| name == signature))
            });
        }
        each(scanner, name, inside).map(|()| false)
    })?;
    changes.append(inside);
    Ok(())
}

/// Reads a value. Of an object, removes the members for which `each`, which reads their values, returns true. Returns whether
/// all members were removed.
fn without<'a>(
    scanner: &mut Scanner<'a>,
    changes: &mut Edits<'static>,
    mut each: impl FnMut(&mut Scanner<'a>, &str, &mut Edits<'static>) -> Result<bool, SyntaxError>,
) -> Result<bool, SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        return scanner.skip().map(|_| false);
    }
    let mut members = Vec::new();
    let mut kept = Vec::new();
    scanner.object(|scanner, name| {
        let mut inside = Edits::new();
        let removed = each(scanner, name.word(), &mut inside)?;
        members.push((name.quote()..scanner.position(), removed));
        kept.push(inside);
        Ok(())
    })?;
    if !members.is_empty() && members.iter().all(|(_, removed)| *removed) {
        return Ok(true);
    }
    changes.remove_items(&members);
    for (inside, (_, removed)) in kept.into_iter().zip(&members) {
        if !removed {
            changes.append(inside);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
