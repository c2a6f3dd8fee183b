//! Headers of upstream requests. All are built here; of the caller's, those that its protocol defines for the upstream are passed on.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRANSFER_ENCODING, UPGRADE, USER_AGENT},
};
use tollgate_core::{Account, Channel, Secret};
use tollgate_protocol::{Framing, Protocol};

use super::call::{ConnectFault, UpstreamCall};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PRODUCT: HeaderValue = HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Header fields of the connection, which a channel cannot set.
const CONNECTION_HEADERS: [HeaderName; 8] =
    [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, TE, UPGRADE, KEEP_ALIVE, PROXY_CONNECTION];

/// All header fields of a request except `host` and `content-length`. The channel's headers override the others, except
/// those of the connection.
pub(crate) fn headers_for(call: &UpstreamCall) -> Result<HeaderMap, ConnectFault> {
    let mut headers = HeaderMap::with_capacity(8 + call.channel.spec.headers.len());
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(ACCEPT, if call.stream == Some(Framing::Sse) { EVENT_STREAM } else { JSON });
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(USER_AGENT, PRODUCT);
    let spec = call.protocol.spec();
    if let Some(credential) = &call.account.credential {
        let text = [spec.credential.prefix, credential.expose()].concat();
        let mut value = HeaderValue::try_from(text).map_err(|_| ConnectFault::BadHeader)?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(spec.credential.name), value);
    }
    for (name, value) in spec.fixed_headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    for (name, value) in &call.forwarded {
        headers.insert(name.clone(), value.clone());
    }
    for (name, value) in &call.channel.spec.headers {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| ConnectFault::BadHeader)?;
        if !CONNECTION_HEADERS.contains(&name) {
            headers.insert(name, HeaderValue::from_str(value).map_err(|_| ConnectFault::BadHeader)?);
        }
    }
    Ok(headers)
}

/// Headers of a caller that an upstream of the same protocol gets. The values of a repeated one are joined.
pub(crate) fn forwarded_headers(protocol: Protocol, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let Some(forwarded) = protocol.spec().forwarded_headers else { return Vec::new() };
    let names = headers.keys().filter(|name| forwarded.includes(name.as_str()));
    let joined = |name: &HeaderName| {
        let values: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        Some((name.clone(), HeaderValue::from_bytes(&values.join(&b", "[..])).ok()?))
    };
    names.filter_map(joined).collect()
}

/// Shorter values of a channel's header fields are words rather than secrets.
const MIN_SECRET: usize = 12;

/// Secrets of a request that neither a caller nor a record may contain when an upstream quotes them: the account's
/// credential, and the values of the channel's header fields.
pub(crate) fn secrets_of<'a>(channel: &'a Channel, account: &'a Account) -> impl Iterator<Item = &'a str> {
    let credential = account.credential.as_ref().map(Secret::expose).filter(|credential| !credential.is_empty());
    let headers = channel.spec.headers.iter().map(|(_, value)| value.as_str());
    credential.into_iter().chain(headers.filter(|value| value.len() >= MIN_SECRET))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;

    fn shown(call: &UpstreamCall) -> Vec<String> {
        let headers = headers_for(call).unwrap();
        let mut lines: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn each_protocol_gets_its_own_credential_header() {
        let mut call = call("http://127.0.0.1:1/v1");
        assert!(shown(&call).contains(&"authorization: Bearer sk-upstream-secret".to_owned()));
        call.protocol = Protocol::Gemini;
        assert!(shown(&call).contains(&"x-goog-api-key: sk-upstream-secret".to_owned()));
        call.protocol = Protocol::Anthropic;
        let lines = shown(&call);
        assert!(lines.contains(&"x-api-key: sk-upstream-secret".to_owned()), "{lines:?}");
        assert!(lines.contains(&"anthropic-version: 2023-06-01".to_owned()), "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("authorization")), "{lines:?}");
    }

    #[test]
    fn only_built_headers_are_sent() {
        let call = call("http://127.0.0.1:1/v1");
        assert_eq!(
            shown(&call),
            [
                "accept-encoding: identity",
                "accept: application/json",
                "authorization: Bearer sk-upstream-secret",
                "content-type: application/json",
                concat!("user-agent: tollgate/", env!("CARGO_PKG_VERSION")),
            ]
        );
    }

    #[test]
    fn feature_headers_of_the_caller_are_forwarded() {
        let mut given = HeaderMap::new();
        for (name, value) in [
            ("anthropic-version", "2026-10-21"),
            ("anthropic-beta", "a-2026-01-01"),
            ("anthropic-beta", "b-2026-01-01,c"),
            ("anthropic-workspace-id", "w"),
            ("x-api-key", "the caller's"),
            ("x-claude-code-session-id", "s"),
        ] {
            given.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut call = call("http://127.0.0.1:1/v1");
        call.protocol = Protocol::Anthropic;
        call.forwarded = forwarded_headers(Protocol::Anthropic, &given);
        let lines = shown(&call);
        for line in
            ["anthropic-version: 2026-10-21", "anthropic-beta: a-2026-01-01, b-2026-01-01,c", "x-api-key: sk-upstream-secret"]
        {
            assert!(lines.contains(&line.to_owned()), "{lines:?}");
        }
        assert!(!lines.iter().any(|line| line.contains("workspace") || line.contains("session")), "{lines:?}");
        assert!(forwarded_headers(Protocol::OpenAi, &given).is_empty());
    }

    #[test]
    fn channel_headers_override_all_but_connection_headers() {
        let mut call = call("http://127.0.0.1:1/v1");
        let mut row = (*call.channel).clone();
        row.spec.headers =
            [("Anthropic-Version", "2026-10-21"), ("Host", "evil"), ("Transfer-Encoding", "chunked"), ("X-Org", "a")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec();
        call.channel = row.into();
        call.protocol = Protocol::Anthropic;
        let headers = headers_for(&call).unwrap();
        assert_eq!(headers["anthropic-version"], "2026-10-21");
        assert_eq!(headers["x-org"], "a");
        assert!(!headers.contains_key(HOST) && !headers.contains_key(TRANSFER_ENCODING));
    }

    #[test]
    fn invalid_credential_is_a_fault() {
        let mut call = call("http://127.0.0.1:1/v1");
        let mut account = (*call.account).clone();
        account.credential = Some(tollgate_core::Secret::new("a\r\nx: y".to_owned()));
        call.account = account.into();
        assert_eq!(headers_for(&call).unwrap_err(), ConnectFault::BadHeader);
    }
}
