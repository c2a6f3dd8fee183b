//! Refusals of path and method.

use super::{INVALID_REQUEST, RefusalRow};
use crate::{
    refusal::{PathHint, text::quoted},
    request::Head,
};

/// E10.
pub(super) fn unknown(hint: Option<&PathHint>, head: &Head) -> RefusalRow {
    let hint = hint.map_or_else(String::new, |hint| {
        let base_url = hint.base_url.map_or_else(String::new, |fault| format!(" {fault}"));
        format!(" Did you mean {}?{base_url}", quoted(&hint.path))
    });
    let message = format!("Unknown path {} {}.{hint}", quoted(head.http_method.as_str()), quoted(&head.path));
    RefusalRow::new(404, INVALID_REQUEST, Some("unknown_url"), "NOT_FOUND", "UNKNOWN_PATH", message)
}

/// E11.
pub(super) fn method(allow: &str, head: &Head) -> RefusalRow {
    let (method, path) = (quoted(head.http_method.as_str()), quoted(&head.path));
    let fits = allow.split(',').next().unwrap_or(allow);
    // CONNECT has an authority and no path.
    let place = if head.path.is_empty() { String::new() } else { format!(" on {path}") };
    let message = format!("Method {method} is not allowed{place}; use {fits}.");
    RefusalRow::new(405, INVALID_REQUEST, Some("method_not_supported"), "UNIMPLEMENTED", "METHOD_NOT_ALLOWED", message)
}

/// E12.
pub(super) fn verb(head: &Head) -> RefusalRow {
    let message = format!(
        "The path {} does not name a method. Append ':generateContent' (also: ':streamGenerateContent', ':countTokens', \
         ':embedContent', ':batchEmbedContents').",
        quoted(&head.path)
    );
    RefusalRow::new(404, INVALID_REQUEST, Some("unknown_url"), "NOT_FOUND", "UNKNOWN_METHOD", message)
}
