//! The places in a request that may hold the key.

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
        return KEY_HEADERS.iter().find_map(|name| plain(headers, name)).or_else(|| bearer(headers)).or_else(|| in_query(query));
    }
    // Where the documented header is present, it alone decides.
    if headers.contains_key(header::AUTHORIZATION) {
        bearer(headers)
    } else {
        KEY_HEADERS.iter().find_map(|name| plain(headers, name)).or_else(|| in_query(query))
    }
}

/// Whether a request for `/v1/models…` comes from a native client.
pub(super) fn has_native_credentials(headers: &HeaderMap, query: Query<'_>) -> bool {
    KEY_HEADERS.iter().any(|name| headers.contains_key(*name))
        || headers.contains_key("x-goog-api-client")
        || ["key", "pageSize", "pageToken"].iter().any(|name| query.has(name))
}

/// What a header field says.
enum Field {
    Nothing,
    Text(String),
    Twice,
}

fn field(headers: &HeaderMap, name: &str) -> Field {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Field::Nothing,
        (Some(_), Some(_)) => Field::Twice,
        (Some(value), None) => match String::from_utf8_lossy(value.as_bytes()).trim() {
            "" => Field::Nothing,
            text => Field::Text(text.to_owned()),
        },
    }
}

/// A key that does not exist.
fn ambiguous() -> Secret {
    Secret::new(String::new())
}

/// `Authorization: Bearer …`. Another scheme holds no key.
fn bearer(headers: &HeaderMap) -> Option<Secret> {
    let text = match field(headers, header::AUTHORIZATION.as_str()) {
        Field::Nothing => return None,
        Field::Twice => return Some(ambiguous()),
        Field::Text(text) => text,
    };
    let (scheme, key) = text.split_once([' ', '\t'])?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then(|| Secret::new(key.to_owned()))
}

fn plain(headers: &HeaderMap, name: &str) -> Option<Secret> {
    match field(headers, name) {
        Field::Nothing => None,
        Field::Twice => Some(ambiguous()),
        Field::Text(text) => Some(Secret::new(text)),
    }
}

fn in_query(query: Query<'_>) -> Option<Secret> {
    query.get("key").map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()).map(Secret::new)
}
