//! The headers that say when a request is to happen: once, or for one revision of a row only.

use http::HeaderMap;
use tollgate_core::Revision;

use super::route::{Idempotency, Route};
use crate::api_error::ApiError;

/// Refuses malformed headers that the route takes into account.
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
        // A header may contain tabs.
        Ok(text) if (1..=200).contains(&text.len()) && !text.contains('\t') => Ok(Some(text)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_keys_are_visible_characters() {
        let parse = |value: &str| {
            let headers =
                HeaderMap::from_iter([(http::header::HeaderName::from_static("idempotency-key"), value.parse().unwrap())]);
            idempotency_key(&headers).map(|key| key.map(str::to_owned)).ok()
        };
        assert_eq!(parse("invoice 7"), Some(Some("invoice 7".to_owned())));
        assert_eq!(idempotency_key(&HeaderMap::new()).ok(), Some(None));
        for wrong in ["", "a\tb", "é", &"a".repeat(201)] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
