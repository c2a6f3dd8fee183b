//! The fields of a channel.

use serde_json::Value;
use tollgate_core::{Budget, ChannelSpec, ModelMapping, Provider};
use tollgate_protocol::{ParameterEdit, Protocol};

use super::{
    Access, Field, FieldShape, FieldValue, Kind,
    base_url::check_url,
    field,
    price::budgets_differ,
    served_model::mappings_differ,
    table,
    value::{MODEL_NAME, NAME, ON_OFF, not_an_id, read_on, show_on},
};
use crate::{
    FieldProblem,
    client_certificate::{MAX_PEM, certificate_chain, private_key},
    redacted_proxy,
};

/// Longest wait: a day.
const DAY_MS: i64 = 86_400_000;
/// Shown in place of a secret.
const STARS: &str = "***";
const TAG: Kind = Kind::Name { max: 40 };
const STATUS: Kind = Kind::Integer { min: 401, max: 599 };
/// Statuses that cannot be set: those about the request, with which one caller could pause every account, and 429, after which an
/// account always cools.
const NEVER_PAUSING: [i64; 6] = [404, 409, 413, 415, 422, 429];

table!(
    ChannelSpec,
    "Channel",
    ChannelSpec::default(),
    &[
        field!("name", name: String, "Unique.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        field!("provider", provider: Provider, "Sets the defaults of `protocol` and `base_url` of a new channel."),
        field!("protocol", protocol: Protocol, "Wire format of the upstream.").default_text("by provider"),
        Field {
            set: |channel: &mut Self, value| {
                value.as_str().unwrap_or_default().trim_end_matches('/').clone_into(&mut channel.base_url);
                Ok(())
            },
            ..field!(
                "base_url",
                base_url: String,
                "Base URL including the API version, such as `https://api.openai.com/v1`. Once an account has a credential, only \
                 admins may change it."
            )
            .default_text("by provider")
            // An empty address is refused below for providers that need one.
            .rule(|value| match value.as_str().unwrap_or_default() {
                "" => Ok(()),
                url => check_url(url, &["http", "https"]),
            })
        },
        field!(
            "tags",
            tags: Vec<String>,
            "Words that operators find channels by, such as a region or a contract: `[\"eu\", \"batch\"]`. They do not change routing."
        )
        .kind(Kind::List { of: &TAG, max: 16 })
        .rule(check_tags),
        Field {
            shape: FieldShape::new("status", ON_OFF, "`off`: disabled by an operator."),
            get: |channel: &Self| show_on(channel.on),
            set: |channel: &mut Self, value| {
                channel.on = read_on(value)?;
                Ok(())
            },
        },
        field!("priority", priority: i32, "Lower values are tried first."),
        field!("weight", weight: u32, "Share of traffic among channels of equal priority.").within(1, 1_000_000),
        field!("private_network", private_network: bool, "Allows loopback and private addresses.").admin_only(),
        field!("cooling", cooling: bool, "`false`: failures never cool its accounts down."),
        field!(
            "failures_to_cool",
            failures_to_cool: u32,
            "Failures in a row after which an account cools. Half of at least ten in 30 s cool it whatever this is, and a connection \
             failure does at once."
        )
        .within(1, 100),
        field!(
            "cool_down_s",
            cool_down_s: u32,
            "First wait of an account that cools, in seconds, also after a 429 without a retry time; half of it after a connection \
             failure. It doubles up to 5 min."
        )
        .within(1, 300),
        field!(
            "pausing_statuses",
            pausing_statuses: Vec<u16>,
            "Statuses of answers after which an account cools at once: `[402, 529]`. Statuses that are about the request are not possible, \
             nor 429, which has a separate rule (docs/operating.md)."
        )
        .kind(Kind::List { of: &STATUS, max: 32 })
        .rule(check_statuses),
        field!(
            "empty_answer_is_failure",
            empty_answer_is_failure: bool,
            "`true`: an answer without content is a failure of the account, and another account is tried. Off: it is passed on. An answer \
             that the output limit or a filter cut is never one."
        ),
        field!("learn_unsupported", learn_unsupported: bool, "`false`: parameters that the upstream rejects are not remembered."),
        field!(
            "hoist",
            translation.hoist: bool,
            "Translated requests: moves system messages from the middle of a conversation to its start. Off: they stay in place, \
             which keeps prompt caches valid."
        ),
        field!(
            "server_tools",
            translation.server_tools: bool,
            "Translated requests: allows tools that the provider runs and bills separately (`web_search_options`). Off: such \
             requests are refused."
        ),
        field!(
            "pass_user",
            translation.pass_user: bool,
            "Translated requests: sends a chat caller's `user` to Anthropic as `metadata.user_id`. Off: it is dropped."
        ),
        field!(
            "fetch_media",
            translation.fetch_media: bool,
            "Translated requests: downloads media URLs that the upstream cannot read itself (limits: docs/translation.md). Off: such \
             requests are refused."
        ),
        field!(
            "parameter_edits",
            parameter_edits: Vec<ParameterEdit>,
            "Changes of optional parameters in requests to the upstream, in this order (docs/translation.md)."
        ),
        field!(
            "retry_uncertain",
            retry_uncertain: bool,
            "Retries a request that was sent but got no usable answer (docs/routing.md)."
        ),
        field!(
            "probe_interval_s",
            probe_interval_s: u32,
            "Interval of probes of every account, in seconds; 0: none but of accounts whose credential was refused. A probe asks for the \
             list of models, which costs nothing."
        )
        .kind(Kind::ZeroOr { min: 10, max: 86_400 }),
        field!(
            "test_model",
            test_model: Option<String>,
            "The served model to which tests of the channel send a request, unless one is chosen."
        )
        .kind(MODEL_NAME)
        .default_text("the first"),
        field!("connect_timeout_ms", timeouts.connect_ms: u64, "Time limit for TCP and TLS connection setup.").within(1, DAY_MS),
        field!(
            "first_byte_timeout_ms",
            timeouts.first_byte_ms: u64,
            "Time limit until the answer begins, and longest silence of a stream before its first content (or `idle_timeout_ms` if that \
             is longer): comments, pings and the like show that the model works. Raise it for models that think in silence."
        )
        .within(1, DAY_MS),
        field!(
            "idle_timeout_ms",
            timeouts.idle_ms: u64,
            "Longest pause between two chunks of a stream. After the finish reason, comments and empty deltas do not count."
        )
        .within(1, DAY_MS),
        field!(
            "total_timeout_ms",
            timeouts.total_ms: u64,
            "Longest time of an attempt, from its start to the end of its answer, whatever comes meanwhile; 0: unlimited. It ends as \
             after a pause that is too long: before the first content another account may answer, after it the stream breaks off. \
             Probes and tests take no longer either."
        )
        .kind(Kind::ZeroOr { min: 1, max: DAY_MS }),
        field!(
            "headers",
            headers: Vec<(String, String)>,
            "Headers added to every upstream request. Their values are stored sealed and shown as `***`; sending `***` keeps a \
             header's value."
        )
        .rule(check_headers),
        Field {
            get: |channel: &Self| channel.proxy.as_deref().map_or(Value::Null, |proxy| redacted_proxy(proxy).into()),
            set: |channel: &mut Self, value| {
                // The redacted address that was shown keeps the password.
                if value.as_str() != channel.proxy.as_deref().map(redacted_proxy).as_deref() {
                    channel.proxy = Option::read(value)?;
                }
                Ok(())
            },
            ..field!(
                "proxy",
                proxy: Option<String>,
                "`http://…` (CONNECT) or `socks5://…`. A password is stored sealed and shown as `***`; sending `***` keeps it."
            )
            .admin_only()
            .rule(|value| check_url(value.as_str().unwrap_or_default(), &["http", "socks5"]))
        },
        field!("ca_file", ca_file: Option<String>, "PEM file with additional root certificates, on the gateway's machine.").admin_only(),
        field!(
            "client_certificate",
            client_certificate: Option<String>,
            "Certificate with which the gateway identifies itself to the upstream (mTLS): a PEM text, intermediate ones after it."
        )
        .kind(Kind::Text { min: 1, max: MAX_PEM })
        .rule(|value| certificate_chain(value.as_str().unwrap_or_default()).map(drop))
        .sourced(),
        Field {
            get: |channel: &Self| channel.client_key.as_ref().map_or(Value::Null, |_| STARS.into()),
            ..field!(
                "client_key",
                client_key: Option<String>,
                "Private key of `client_certificate`, a PEM text without a passphrase. It is stored sealed and shown as `***`; sending \
                 `***` keeps it."
            )
            .kind(Kind::Text { min: 1, max: MAX_PEM })
            .rule(|value| match value.as_str().unwrap_or_default() {
                STARS => Ok(()),
                key => private_key(key).map(drop),
            })
            .sourced()
        },
        field!("concurrency", concurrency: u32, "Concurrent requests of all its accounts together; 0: unlimited."),
        field!("rpm", rpm: u32, "Requests per minute of all its accounts together; 0: unlimited."),
        field!("tpm", tpm: u64, "Tokens per minute of all its accounts together; 0: unlimited."),
        field!("budget", budgets: Vec<Budget>, "One budget or a list, counted by cost.").rule(budgets_differ),
        field!("serves", serves: Vec<ModelMapping>, "The models it serves.").rule(mappings_differ),
    ],
    problems |channel: &ChannelSpec| {
        let message = match (channel.provider, channel.base_url.as_str()) {
            (Provider::Echo, "") => None,
            (Provider::Echo, _) => Some("the echo channel has no address".to_owned()),
            (_, "") => Some("is required for this provider".to_owned()),
            (_, _) => None,
        };
        let half = match (&channel.client_certificate, &channel.client_key) {
            (Some(_), None) => Some(("client_key", "is needed with client_certificate")),
            (None, Some(_)) => Some(("client_certificate", "is needed with client_key")),
            (Some(_), Some(_)) | (None, None) => None,
        };
        let half = half.map(|(field, message)| FieldProblem { field, message: message.to_owned() });
        message.map(|message| FieldProblem { field: "base_url", message }).into_iter().chain(half).collect()
    }
);

fn check_statuses(value: &Value) -> Result<(), String> {
    let statuses: Vec<i64> = value.as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    let mut found = statuses.iter().enumerate();
    let wrong = found.find(|(i, status)| NEVER_PAUSING.contains(status) || statuses[..*i].contains(status));
    wrong.map_or(Ok(()), |(_, status)| Err(format!("{status} occurs twice, is about the request or has a separate rule")))
}

/// The console lists them with commas.
fn check_tags(value: &Value) -> Result<(), String> {
    let mut seen = std::collections::HashSet::new();
    for tag in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if tag.contains(',') {
            return Err(format!("'{tag}' has a comma"));
        }
        if !seen.insert(tag) {
            return Err(format!("'{tag}' occurs twice"));
        }
    }
    Ok(())
}

/// Headers that the gateway sets itself; a channel cannot override them.
const OWN_HEADERS: [&str; 12] = [
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

fn check_headers(value: &Value) -> Result<(), String> {
    let headers: Vec<(&String, &str)> =
        value.as_object().into_iter().flatten().map(|(name, value)| (name, value.as_str().unwrap_or_default())).collect();
    for (i, (name, value)) in headers.iter().enumerate() {
        if headers[..i].iter().any(|(before, _)| before.eq_ignore_ascii_case(name)) {
            return Err(format!("'{name}' occurs twice"));
        }
        check_header(name, value)?;
    }
    Ok(())
}

fn check_header(name: &str, value: &str) -> Result<(), String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(format!("'{name}' is not a header name"));
    }
    if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("'{name}' is set by the gateway itself"));
    }
    if !value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)) {
        return Err(format!("the value of '{name}' contains characters that a header cannot"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_about_the_request_do_not_pause() {
        assert_eq!(check_statuses(&serde_json::json!([402, 403, 529])), Ok(()));
        let bad = [serde_json::json!([404]), serde_json::json!([529, 429]), serde_json::json!([402, 402])];
        assert!(bad.iter().all(|bad| check_statuses(bad).is_err()));
    }

    #[test]
    fn channel_headers_cannot_touch_framing_or_credentials() {
        assert_eq!(check_header("anthropic-version", "2023-06-01"), Ok(()));
        for (name, value) in [("Host", "x"), ("Authorization", "x"), ("a b", "x"), ("x", "a\r\nb: c"), ("", "")] {
            assert!(check_header(name, value).is_err(), "{name}: {value}");
        }
    }
}
