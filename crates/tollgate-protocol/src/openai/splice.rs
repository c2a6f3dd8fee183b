//! A chat completions body for an upstream of the same protocol: the caller's bytes with a few ranges changed
//! (translation reference, section 1.3).

use std::ops::Range;

use bytes::Bytes;

use crate::{
    Outline, RequestEdits,
    markers::cut_id,
    scan::{Fault, Kind, Scanner, whole},
    splice::{Splices, first_member, json_string},
    survey::lenient_object,
};

/// The name an added limit gets where the upstream's profile states none.
const LIMIT_FIELD: &str = "max_completion_tokens";
/// Both names of the output limit.
const LIMIT_FIELDS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Applies the edits; the same buffer where nothing has to change.
pub(super) fn forward_request(body: &Bytes, outline: &Outline, edits: &RequestEdits<'_>) -> Bytes {
    let mut splices = Splices::default();
    if let (Some(name), Some(range)) = (edits.upstream_model, &outline.splices.model)
        && name != outline.model
    {
        splices.replace(range.clone(), json_string(name));
    }
    if edits.force_usage && outline.stream && !outline.include_usage {
        force_usage(body, outline, &mut splices);
    }
    if edits.max_output.is_some() || edits.output_limit_field.is_some() {
        limit_output(body, outline, edits, &mut splices);
    }
    if outline.splices.markers {
        let mut cleaned = Splices::default();
        if clean(body, &mut cleaned).is_ok() {
            splices.append(cleaned);
        }
    }
    splices.apply(body)
}

fn force_usage(body: &Bytes, outline: &Outline, splices: &mut Splices<'_>) {
    const WANTED: &str = "{\"include_usage\":true}";
    let points = &outline.splices;
    match (&points.stream_options, &points.include_usage) {
        (_, Some(value)) => {
            // Anything but a boolean or null is the upstream's to judge.
            if matches!(text(body, value), "false" | "null") {
                splices.replace(value.clone(), "true");
            }
        }
        (Some(options), None) if text(body, options) == "null" => splices.replace(options.clone(), WANTED),
        (Some(options), None) if text(body, options).starts_with('{') => {
            let at = options.start + 1;
            splices.insert(at, first_member(body, at, "include_usage", "true"));
        }
        (Some(_), None) => {}
        (None, None) => splices.insert(points.body_open, first_member(body, points.body_open, "stream_options", WANTED)),
    }
}

/// Writes an output limit, and calls it what the upstream calls it.
fn limit_output(body: &Bytes, outline: &Outline, edits: &RequestEdits<'_>, splices: &mut Splices<'_>) {
    let given: Vec<_> = outline.splices.max_output.iter().filter(|range| text(body, range) != "null").collect();
    if let (Some(wanted), [only]) = (edits.output_limit_field, given.as_slice())
        && let Some(name) = name_before(body, only.start)
        && text(body, &name) != wanted
        && outline.splices.max_output.len() == 1
    {
        splices.replace(name, wanted.to_owned());
    }
    let Some(limit) = edits.max_output else { return };
    for range in &given {
        if whole(text(body, range)).is_none_or(|asked| asked > limit) {
            splices.replace((*range).clone(), limit.to_string());
        }
    }
    if !given.is_empty() {
        return;
    }
    let wanted = edits.output_limit_field.unwrap_or(LIMIT_FIELD);
    let points = &outline.splices;
    // A `null` under the same name behind an added member would take the limit away again.
    for range in &points.max_output {
        if name_before(body, range.start).is_some_and(|name| text(body, &name) == wanted) {
            return splices.replace(range.clone(), limit.to_string());
        }
    }
    splices.insert(points.body_open, first_member(body, points.body_open, wanted, &limit.to_string()));
}

/// The name of a limit, without its quotes, whose value begins at `value`. `None` where it is written with escapes.
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

/// Cuts the signatures that tool ids carry.
fn clean(body: &[u8], splices: &mut Splices<'_>) -> Result<(), Fault> {
    Scanner::new(body)?.object(|scanner, name| {
        if name.decode() != "messages" || scanner.peek() != Kind::Array {
            return scanner.skip().map(drop);
        }
        scanner.array(|scanner, _| lenient_object(scanner, |scanner, name| clean_member(scanner, &name.decode(), splices)))?;
        Ok(())
    })?;
    Ok(())
}

fn clean_member(scanner: &mut Scanner<'_>, name: &str, splices: &mut Splices<'_>) -> Result<(), Fault> {
    match name {
        "tool_call_id" => cut_id(scanner, splices),
        "tool_calls" if scanner.peek() == Kind::Array => scanner
            .array(|scanner, _| {
                lenient_object(scanner, |scanner, name| match &*name.decode() {
                    "id" => cut_id(scanner, splices),
                    _ => scanner.skip().map(drop),
                })
            })
            .map(drop),
        _ => scanner.skip().map(drop),
    }
}

#[cfg(test)]
mod tests;
