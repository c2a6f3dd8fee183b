//! Prepares a Messages body for an upstream of the same protocol by editing byte ranges of the caller's body. Such bodies
//! have no summary with splice points, so they are scanned here, and only where an edit may be needed.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    RequestEdits, RequestSummary,
    edits::{Edits, first_member, literal},
    markers::{THINKING_SIGNATURE, clean_turns, has_suffixed_ids, has_thinking_signatures, strip_id_suffix},
    scan::{JsonStr, Scanner, SyntaxError, Value, ValueKind, whole},
};

/// Applies the edits; returns the same buffer where nothing changes. Splice points of the summary are not used.
pub(super) fn forward_request(body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes {
    let renamed = edits.upstream_model.filter(|name| *name != summary.model);
    let markers = has_suffixed_ids(body) || has_thinking_signatures(body);
    let mut changes = Edits::new();
    if (renamed.is_some() || edits.max_output.is_some() || markers)
        && scan(body, renamed, edits.max_output, markers, &mut changes).is_err()
    {
        // Not JSON: forwarded unchanged, the upstream rejects it.
        return body.clone();
    }
    changes.apply_to(body)
}

fn scan(
    body: &[u8],
    renamed: Option<&str>,
    max_output: Option<u64>,
    markers: bool,
    changes: &mut Edits<'static>,
) -> Result<(), SyntaxError> {
    let mut has_limit = max_output.is_none();
    let range = Scanner::new(body)?.object(|scanner, name| {
        match (name.word(), max_output, renamed) {
            ("model", _, Some(renamed)) => {
                let range = scanner.skip()?;
                changes.replace(range, literal(renamed).into_bytes());
            }
            ("max_tokens", Some(limit), _) => {
                has_limit = true;
                let (value, range) = scanner.value()?;
                if !matches!(value, Value::Number(requested) if whole(requested).is_some_and(|requested| requested <= limit)) {
                    changes.replace(range, limit.to_string().into_bytes());
                }
            }
            ("messages", ..) if markers => clean_turns(scanner, changes, "content", block)?,
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    if let (false, Some(limit)) = (has_limit, max_output) {
        let at = range.start + 1;
        changes.insert(at, first_member(body, at, "max_tokens", &limit.to_string()));
    }
    Ok(())
}

/// Cleans one content block; true for a block to remove entirely: thinking of another provider's model, marked by the
/// gateway.
fn block(scanner: &mut Scanner<'_>, changes: &mut Edits<'static>) -> Result<(Range<usize>, bool), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        return Ok((scanner.skip()?, false));
    }
    let (mut thinking, mut marked) = (false, false);
    let range = scanner.object(|scanner, name| {
        match name.word() {
            "id" | "tool_use_id" => strip_id_suffix(scanner, changes)?,
            "type" => thinking = matches!(scanner.value()?.0, Value::Text(kind) if kind.decode().ends_with("thinking")),
            "signature" | "data" => marked |= matches!(scanner.value()?.0, Value::Text(value) if has_marker(&value)),
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    Ok((range, thinking && marked))
}

fn has_marker(value: &JsonStr<'_>) -> bool {
    value.raw().starts_with(THINKING_SIGNATURE)
}

#[cfg(test)]
mod tests;
