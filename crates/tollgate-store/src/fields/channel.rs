//! The fields of a channel, and of a model as a channel serves it.

use serde_json::Value;
use tollgate_core::{Budget, ChannelSpec, ModelMapping, PriceSchedule, Provider};
use tollgate_protocol::{ParameterEdit, Profile, Protocol};
use url::Url;

use super::{
    Access, Field, FieldShape, FieldValue, Kind, Row as _, field,
    price::{budgets_differ, objects, times_rise},
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
/// Statuses that are about the request, so that one caller could pause every account, and 429, which cools anyway.
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
            // An empty one is refused for providers that need an address, see below.
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
             nor 429, which has a rule of its own (docs/operating.md)."
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

table!(
    ModelMapping,
    "ServedModel",
    ModelMapping::default(),
    &[
        field!("model", model: String, "Model name used by callers.").kind(MODEL_NAME).access(Access::Fixed),
        field!("upstream", upstream: String, "Model name used by the provider.")
            .kind(MODEL_NAME)
            .default_text("as `model`")
            .rule(no_dot_segments),
        field!("cost", cost: Option<PriceSchedule>, "What the provider charges: a price, or a list of prices over time.")
            .default_text("not known")
            .rule(times_rise),
        field!("profile", profile: Profile, "Facts about the upstream model that translation needs."),
    ],
    problems |mapping: &ModelMapping| {
        let as_model = if mapping.upstream.is_empty() { as_upstream(&mapping.model) } else { Ok(()) };
        as_model.err().map(|message| FieldProblem { field: "model", message }).into_iter().collect()
    }
);

impl FieldValue for ModelMapping {
    const KIND: Kind = Kind::Object(Self::OBJECT);

    fn show(&self) -> Value {
        super::whole(self).into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        let mut mapping: Self = super::price::read_object(value)?;
        if mapping.upstream.is_empty() {
            as_upstream(&mapping.model)?;
            mapping.upstream.clone_from(&mapping.model);
        }
        Ok(mapping)
    }
}

impl FieldValue for Vec<ModelMapping> {
    const KIND: Kind = Kind::List { of: &Kind::Object(ModelMapping::OBJECT), max: 10_000 };

    fn show(&self) -> Value {
        self.iter().map(FieldValue::show).collect()
    }

    fn read(value: &Value) -> Result<Self, String> {
        value.as_array().into_iter().flatten().map(FieldValue::read).collect()
    }
}

objects!(Profile);

/// The name becomes part of a path at some providers.
fn no_dot_segments(value: &Value) -> Result<(), String> {
    let name = value.as_str().unwrap_or_default();
    if name.split(['/', '\\']).any(|segment| segment.is_empty() || is_dots(segment)) {
        return Err("must not have empty segments or the segments . and .., such as in models/../x".to_owned());
    }
    Ok(())
}

/// Checks a model name that is the upstream's name as well.
fn as_upstream(model: &str) -> Result<(), String> {
    no_dot_segments(&model.into()).map_err(|fault| format!("upstream, which is as `model`, {fault}"))
}

/// Whether a segment of a path is `.` or `..`, also percent-encoded, as servers decode it.
fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

fn check_statuses(value: &Value) -> Result<(), String> {
    let statuses: Vec<i64> = value.as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    let mut found = statuses.iter().enumerate();
    let wrong = found.find(|(i, status)| NEVER_PAUSING.contains(status) || statuses[..*i].contains(status));
    wrong.map_or(Ok(()), |(_, status)| Err(format!("{status} is there twice, is about the request or has a rule of its own")))
}

/// The console lists them with commas.
fn check_tags(value: &Value) -> Result<(), String> {
    let mut seen = std::collections::HashSet::new();
    for tag in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if tag.contains(',') {
            return Err(format!("'{tag}' has a comma"));
        }
        if !seen.insert(tag) {
            return Err(format!("'{tag}' is there twice"));
        }
    }
    Ok(())
}

fn mappings_differ(value: &Value) -> Result<(), String> {
    let mut seen = std::collections::HashSet::new();
    let mut models = value.as_array().into_iter().flatten().filter_map(|mapping| mapping["model"].as_str());
    models.find(|model| !seen.insert(*model)).map_or(Ok(()), |model| Err(format!("model '{model}' is served twice")))
}

/// The host of a base URL, if it is a loopback or private address or a name of this machine.
#[must_use]
pub fn private_host(base_url: &str) -> Option<String> {
    let url = Url::parse(base_url).ok()?;
    let is_private = match url.host()? {
        url::Host::Ipv4(address) => !tollgate_core::is_public(address.into()),
        url::Host::Ipv6(address) => !tollgate_core::is_public(std::net::IpAddr::from(address).to_canonical()),
        url::Host::Domain(name) => {
            // The host of a scheme such as `smtp` is a name even where it is written as an address.
            let is_private = |address: std::net::IpAddr| !tollgate_core::is_public(address.to_canonical());
            let name = name.trim_end_matches('.');
            name.parse().is_ok_and(is_private)
                || name.eq_ignore_ascii_case("localhost")
                || name.to_ascii_lowercase().ends_with(".localhost")
        }
    };
    is_private.then(|| url.host_str().unwrap_or_default().to_owned())
}

fn check_url(text: &str, schemes: &[&str]) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("is not an address: {error}"))?;
    if !schemes.contains(&url.scheme()) {
        return Err(format!("must begin with {}://", schemes.join(":// or ")));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("has no host".to_owned());
    }
    if url.port() == Some(0) {
        return Err("must not use port 0".to_owned());
    }
    if schemes.contains(&"https") && (!url.username().is_empty() || url.password().is_some()) {
        return Err("must not contain a user name or password; the credential belongs to an account".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not have a query or fragment".to_owned());
    }
    // As written: parsing resolves the segments, and the address that is sent would be another one than the one shown.
    let path = text.split_once("://").map_or(text, |(_, rest)| rest).split_once(['/', '\\']).map_or("", |(_, path)| path);
    if path.split(['/', '\\']).any(is_dots) {
        return Err("must not have the segments . and ..; write the address without them".to_owned());
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

    fn url(text: &str) -> Option<String> {
        check_url(text, &["http", "https"]).err()
    }

    #[test]
    fn base_url_is_an_http_address_and_nothing_more() {
        assert_eq!(url("http://127.0.0.1:4010/v1"), None);
        assert_eq!(url("https://api.openai.com/v1"), None);
        for bad in ["", "http://x:0/v1", "api.openai.com/v1", "ftp://x/v1", "https://me:secret@x/v1", "https://x/v1?key=1"] {
            assert!(url(bad).is_some(), "{bad}");
        }
        assert!(!url("https://me:secret@x/v1").unwrap().contains("secret"));
    }

    #[test]
    fn private_host_is_detected_in_every_notation() {
        for (url, host) in [
            ("http://127.0.0.1:1/", "127.0.0.1"),
            ("http://2852039166/", "169.254.169.254"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://[::ffff:10.0.0.1]/v1", "[::ffff:a00:1]"),
            ("http://[fd00:ec2::254]/", "[fd00:ec2::254]"),
            ("http://localhost:11434/v1", "localhost"),
            ("http://LOCALHOST./v1", "localhost."),
            ("http://vllm.localhost/v1", "vllm.localhost"),
            ("smtp://127.0.0.1:25", "127.0.0.1"),
            ("smtps://me@[::1]:465", "[::1]"),
        ] {
            assert_eq!(private_host(url).as_deref(), Some(host), "{url}");
        }
        for url in ["https://api.example.com/v1", "http://8.8.8.8/v1", "smtp://8.8.8.8", "", "localhost"] {
            assert_eq!(private_host(url), None, "{url}");
        }
    }

    #[test]
    fn upstream_name_has_no_dot_segments() {
        for good in ["gpt-5-mini", "models/gemini-2.5-pro", "openai/gpt-4o:free", "a..b", "accounts/x/models/y"] {
            assert_eq!(no_dot_segments(&good.into()), Ok(()), "{good}");
        }
        for bad in ["../../../x", "models/../x", "a/./b", "..", "/x", "a//b", "a\\..\\b", "x/", "a/%2e%2E/b", "%2e", ".%2e"] {
            assert!(no_dot_segments(&bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn base_url_has_no_dot_segments() {
        for good in ["https://x/v1", "https://x/a..b/v1", "https://x/...", "https://x"] {
            assert_eq!(url(good), None, "{good}");
        }
        for bad in ["https://x/v1/..", "https://x/../v1", "https://x/a/./v1", "https://x/%2e%2E/v1", "https://x\\..\\v1"] {
            assert!(url(bad).is_some_and(|fault| fault.contains("segments")), "{bad}");
        }
    }

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
