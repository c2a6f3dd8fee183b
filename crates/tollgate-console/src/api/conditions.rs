//! The headers that say when a request is to happen: once, or for one revision of a row only.

use http::HeaderMap;
use tollgate_core::Revision;

use super::route::{Idempotency, Route};
use crate::api_error::ApiError;

/// Refuses malformed ones wherever the route considers them.
pub(crate) fn check(route: &Route, headers: &HeaderMap) -> Result<(), ApiError> {
    if route.idempotency != Idempotency::Ignored {
        idempotency_key(headers)?;
    }
    if route.takes_revision {
        revision(headers)?;
    }
    Ok(())
}

/// `Idempotency-Key`.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(text) if (1..=200).contains(&text.len()) => Ok(Some(text)),
        _ => Err(ApiError::value("Idempotency-Key", "expected 1 to 200 visible characters")),
    }
}

/// The revision in `If-Match`; `None` without the header or for `*`.
pub(super) fn revision(headers: &HeaderMap) -> Result<Option<Revision>, ApiError> {
    let Some(value) = headers.get("if-match") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    // Compressing proxies turn tags into weak ones.
    let number = text.strip_prefix("W/").unwrap_or(text).trim_matches('"').parse();
    let wrong = |_| ApiError::value("If-Match", "expected one revision in quotes, such as \"5\"");
    number.map(|number| Some(Revision(number))).map_err(wrong)
}
