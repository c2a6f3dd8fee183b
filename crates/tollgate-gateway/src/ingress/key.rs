//! Where a caller may put his key (chat wire reference, section 1; native wire reference, section 2).

use http::{HeaderMap, header};
use tollgate_core::Secret;
use tollgate_protocol::Protocol;

use super::Query;

/// Headers that hold nothing but a key, in order.
const KEY_HEADERS: [&str; 2] = ["x-native-api-key", "x-goog-api-key"];

/// The first place that holds a key decides; the next is not tried. Blanks around it go. Two values in one header
/// are ambiguous and make a key that no lookup knows.
pub(crate) fn presented_key(from: Protocol, headers: &HeaderMap, query: Query<'_>) -> Option<Secret> {
    if from == Protocol::Gemini {
        return KEY_HEADERS
            .iter()
            .find_map(|name| plain(headers, name))
            .or_else(|| bearer(headers).flatten())
            .or_else(|| in_query(query));
    }
    match bearer(headers) {
        // Where the documented header is present, it alone decides.
        Some(key) => key,
        None => KEY_HEADERS.iter().find_map(|name| plain(headers, name)).or_else(|| in_query(query)),
    }
}

/// Whether a request for `/v1/models…` comes from a native client.
pub(super) fn has_native_credentials(headers: &HeaderMap, query: Query<'_>) -> bool {
    KEY_HEADERS.iter().any(|name| headers.contains_key(*name))
        || headers.contains_key("x-goog-api-client")
        || ["key", "pageSize", "pageToken"].iter().any(|name| query.has(name))
}

/// `Authorization: Bearer …`: `None` without the header, `Some(None)` when it holds no bearer key.
fn bearer(headers: &HeaderMap) -> Option<Option<Secret>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let first = values.next()?;
    if values.next().is_some() {
        return Some(Some(Secret::new(String::new())));
    }
    let text = String::from_utf8_lossy(first.as_bytes());
    let Some((scheme, key)) = text.trim().split_once([' ', '\t']) else { return Some(None) };
    let key = key.trim();
    Some((scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then(|| Secret::new(key.to_owned())))
}

fn plain(headers: &HeaderMap, name: &str) -> Option<Secret> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() {
        return Some(Secret::new(String::new()));
    }
    let text = String::from_utf8_lossy(first.as_bytes());
    let key = text.trim();
    (!key.is_empty()).then(|| Secret::new(key.to_owned()))
}

fn in_query(query: Query<'_>) -> Option<Secret> {
    query.get("key").map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()).map(Secret::new)
}
