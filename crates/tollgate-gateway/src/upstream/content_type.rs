//! `Content-Type` of upstream responses.

use http::{HeaderMap, header};

/// Whether the body may be JSON. A missing or generic type counts as JSON; parsing decides then.
pub(crate) fn may_be_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return true };
    let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    matches!(&*kind, b"" | b"application/json" | b"text/json" | b"application/octet-stream" | b"binary/octet-stream")
        || kind.ends_with(b"+json")
}
