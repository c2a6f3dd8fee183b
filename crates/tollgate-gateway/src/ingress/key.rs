//! Extracts the service key: `Authorization: Bearer`, `x-api-key`, `x-goog-api-key`, `x-native-api-key`, or the query parameter
//! `key`.

use std::borrow::Cow;

use http::{HeaderName, header};
use tollgate_core::Secret;
use tollgate_protocol::Protocol;

use super::Query;
use crate::header_fields::HeaderFields;

/// Headers whose whole value is a key, in order of preference.
const KEY_HEADERS: [HeaderName; 2] = [HeaderName::from_static("x-native-api-key"), HeaderName::from_static("x-goog-api-key")];

/// Anthropic's header.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The keys that a request presents.
#[derive(Debug, Default)]
pub(crate) struct PresentedKeys {
    pub(crate) first: Option<Secret>,
    /// Another key, which is used if the first one is not valid.
    pub(crate) other: Option<Secret>,
}

/// The first location with a key decides; whitespace around it is trimmed. A repeated header is ambiguous and yields a key that no lookup
/// finds. Anthropic's clients send a vendor key beside the gateway's if they are configured with both, so their second key is tried too.
pub(crate) fn presented_keys(from: Protocol, headers: &HeaderFields, query: Query<'_>) -> PresentedKeys {
    let native = || KEY_HEADERS.iter().find_map(|name| plain(headers, name));
    let first = match from {
        Protocol::Anthropic => {
            let (own, bearer) = (plain(headers, &API_KEY), bearer(headers));
            return match own {
                Some(own) => PresentedKeys { first: Some(own), other: bearer },
                None => PresentedKeys { first: bearer, other: None },
            };
        }
        Protocol::Gemini => native().or_else(|| bearer(headers)).or_else(|| in_query(query)),
        // `Authorization` takes precedence even if it holds no key.
        Protocol::OpenAi | Protocol::Responses if headers.contains(header::AUTHORIZATION) => bearer(headers),
        Protocol::OpenAi | Protocol::Responses => native().or_else(|| in_query(query)),
    };
    PresentedKeys { first, other: None }
}

/// Whether a request for `/v1/models…` comes from a Gemini client.
pub(super) fn has_gemini_credentials(headers: &HeaderFields, query: Query<'_>) -> bool {
    KEY_HEADERS.iter().any(|name| headers.contains(name))
        || headers.contains("x-goog-api-client")
        || ["key", "pageSize", "pageToken"].iter().any(|name| query.has(name))
}

enum Field<'a> {
    Absent,
    Text(Cow<'a, str>),
    Repeated,
}

fn field<'a>(headers: &'a HeaderFields, name: &HeaderName) -> Field<'a> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Field::Absent,
        (Some(_), Some(_)) => Field::Repeated,
        (Some(value), None) => match trimmed(text_of(value.as_bytes())) {
            text if text.is_empty() => Field::Absent,
            text => Field::Text(text),
        },
    }
}

/// The text of a header field. UTF-8 is checked first, because the lossy conversion costs much more, and no key needs it.
fn text_of(value: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(value).map_or_else(|_| String::from_utf8_lossy(value), Cow::Borrowed)
}

fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    }
}

fn ambiguous() -> Secret {
    Secret::new(String::new())
}

/// `Authorization: Bearer …`. Other schemes are ignored.
fn bearer(headers: &HeaderFields) -> Option<Secret> {
    let text = match field(headers, &header::AUTHORIZATION) {
        Field::Absent => return None,
        Field::Repeated => return Some(ambiguous()),
        Field::Text(text) => text,
    };
    // The scheme ends at ASCII, so that the text can be divided there.
    let (scheme, key) = text.split_at(text.bytes().position(|byte| matches!(byte, b' ' | b'\t'))?);
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then(|| Secret::new(key.to_owned()))
}

fn plain(headers: &HeaderFields, name: &HeaderName) -> Option<Secret> {
    match field(headers, name) {
        Field::Absent => None,
        Field::Repeated => Some(ambiguous()),
        Field::Text(text) => Some(Secret::new(text.into_owned())),
    }
}

fn in_query(query: Query<'_>) -> Option<Secret> {
    query.get("key").map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()).map(Secret::new)
}
