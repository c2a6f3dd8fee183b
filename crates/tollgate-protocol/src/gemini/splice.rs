//! Edits a Gemini body for an upstream of the same protocol in place of re-encoding it. The model is in the path; it is changed
//! in the body only where the protocol repeats it there and requires both to be equal.

mod clean;

use std::ops::Range;

use bytes::Bytes;

use crate::{
    Method, RequestEdits, RequestSummary,
    edits::{Edits, first_member, literal},
    scan::{Scanner, SyntaxError, Value, whole},
};

/// Applies the edits; returns the same buffer if nothing changes.
pub(super) fn forward_request(body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes {
    let mut changes = Edits::new();
    if let Some(limit) = edits.max_output
        && summary.method.generates()
    {
        limit_output(body, summary, limit, &mut changes);
    }
    if let Some(name) = edits.upstream_model
        && name != summary.model
        && matches!(summary.method, Method::BatchEmbedContents | Method::CountTokens)
    {
        adopt(&mut changes, |changes| rename(body, name, changes));
    }
    if summary.splices.markers {
        adopt(&mut changes, |changes| clean::clean(body, changes));
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
        if value == Value::Null && matches!(&*name.decode(), "generationConfig" | "generation_config") {
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
            if name.decode() == "model"
                && let (Value::Text(_), range) = scanner.value()?
            {
                changes.replace(range, resource.clone());
            }
            Ok(())
        })?;
        Ok(())
    };
    Scanner::new(body)?.members(|scanner, name| match &*name.decode() {
        "requests" => scanner.elements(|scanner, _| request(scanner)).map(drop),
        "generateContentRequest" | "generate_content_request" => request(scanner),
        _ => Ok(()),
    })?;
    Ok(())
}

fn text<'a>(body: &'a [u8], range: &Range<usize>) -> &'a str {
    body.get(range.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
