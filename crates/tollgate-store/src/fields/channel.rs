//! The fields of a channel, of a model as a channel serves it, and of an account.

use serde_json::Value;
use tollgate_core::{Budget, ModelMapping, Multiplier, PriceSchedule, Provider, Secret};
use tollgate_protocol::{Profile, Protocol};
use url::Url;

use super::{
    Access, Field, FieldShape, FieldValue, Kind, Row as _, field,
    price::{budgets_differ, objects, times_rise},
    table,
    value::{MODEL_NAME, NAME, ON_OFF, not_an_id, read_on, show_on},
};
use crate::{AccountSpec, ChannelSpec, FieldProblem, redacted_proxy};

/// Longest wait: a day.
const DAY_MS: i64 = 86_400_000;

table!(
    ChannelSpec,
    "Channel",
    ChannelSpec::default(),
    &[
        field!("name", name: String, "Unique.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        field!("provider", provider: Provider, "Sets the defaults of `protocol` and `base_url` of a new channel."),
        field!("protocol", protocol: Protocol, "What the upstream speaks.").default_text("by provider"),
        Field {
            set: |channel: &mut Self, value| {
                value.as_str().unwrap_or_default().trim_end_matches('/').clone_into(&mut channel.base_url);
                Ok(())
            },
            ..field!(
                "base_url",
                base_url: String,
                "With the version: `https://api.openai.com/v1`. Only admins change it once accounts have credentials."
            )
            .default_text("by provider")
        },
        Field {
            shape: FieldShape::new("status", ON_OFF, "`off`: switched off by hand."),
            get: |channel: &Self| show_on(channel.on),
            set: |channel: &mut Self, value| {
                channel.on = read_on(value)?;
                Ok(())
            },
        },
        field!("priority", priority: i32, "Lower is tried first."),
        field!("weight", weight: u32, "Share among channels of one priority.").within(1, 1_000_000),
        field!("private_network", private_network: bool, "May reach loopback and private addresses.").admin_only(),
        field!("cooling", cooling: bool, "`false`: failures never cool its accounts down."),
        field!("learn_unsupported", learn_unsupported: bool, "`false`: parameters the upstream refused are not remembered."),
        field!(
            "hoist",
            translation.hoist: bool,
            "Where requests are translated: system texts from the middle of a conversation go to its beginning; off, they stay, \
             which keeps prompt caches."
        ),
        field!(
            "server_tools",
            translation.server_tools: bool,
            "Where requests are translated: callers may ask for tools that the provider runs and charges apart \
             (`web_search_options`); off, they are refused."
        ),
        field!(
            "pass_user",
            translation.pass_user: bool,
            "Where requests are translated: a chat caller's `user` reaches an Anthropic upstream as `metadata.user_id`; off, it is \
             dropped."
        ),
        field!(
            "fetch_media",
            translation.fetch_media: bool,
            "Where requests are translated: the gateway fetches addresses of media that the upstream does not read itself, within \
             bounds (docs/translation.md); off, they are refused."
        ),
        field!(
            "retry_uncertain",
            retry_uncertain: bool,
            "Another attempt after a request was sent and no usable answer came (docs/routing.md)."
        ),
        field!("probe_interval_s", probe_interval_s: u32, "Probes each account this often by listing models; 0: only accounts that rest.")
            .kind(Kind::ZeroOr { least: 10, most: 86_400 }),
        field!("connect_timeout_ms", timeouts.connect_ms: u64, "TCP and TLS.").within(1, DAY_MS),
        field!(
            "first_byte_timeout_ms",
            timeouts.first_byte_ms: u64,
            "Until the answer begins; then as long again, or `idle_timeout_ms` if that is longer, until a stream's first content, \
             whatever comments arrive meanwhile."
        )
        .within(1, DAY_MS),
        field!(
            "idle_timeout_ms",
            timeouts.idle_ms: u64,
            "Between two pieces of a stream; after its finish, comments and empty deltas do not count as pieces."
        )
        .within(1, DAY_MS),
        field!("headers", headers: Vec<(String, String)>, "Added to every request upstream.").rule(check_headers),
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
                "`http://…` (CONNECT) or `socks5://…`. A password in it is sealed like a credential and shown as `***`; written so, \
                 it keeps the one that is there."
            )
            .admin_only()
            .rule(|value| check_url(value.as_str().unwrap_or_default(), &["http", "socks5"]))
        },
        field!("ca_file", ca_file: Option<String>, "PEM file with further roots, on the gateway's machine.").admin_only(),
        field!("budget", budgets: Vec<Budget>, "Budget on cost, or a list of them.").rule(budgets_differ),
        field!("serves", serves: Vec<ModelMapping>, "The models it serves.").rule(mappings_differ),
    ],
    problems |channel: &ChannelSpec| {
        let message = match (channel.provider, channel.base_url.as_str()) {
            (Provider::Echo, "") => None,
            (Provider::Echo, _) => Some("the echo channel has no address".to_owned()),
            (_, url) => check_url(url, &["http", "https"]).err(),
        };
        message.map(|message| FieldProblem { field: "base_url", message }).into_iter().collect()
    }
);

table!(
    ModelMapping,
    "ServedModel",
    ModelMapping::default(),
    &[
        field!("model", model: String, "What callers say.").kind(MODEL_NAME).access(Access::Fixed),
        field!("upstream", upstream: String, "What the provider says.").kind(MODEL_NAME).default_text("as `model`"),
        field!("cost", cost: Option<PriceSchedule>, "What the provider charges: a price, or a list of prices over time.")
            .default_text("not known")
            .rule(times_rise),
        field!("profile", profile: Profile, "Facts about the upstream model that translation needs."),
    ]
);

impl FieldValue for ModelMapping {
    const KIND: Kind = Kind::Object(Self::OBJECT);

    fn show(&self) -> Value {
        super::whole(self).into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        let mut mapping: Self = super::price::read_object(value)?;
        if mapping.upstream.is_empty() {
            mapping.upstream.clone_from(&mapping.model);
        }
        Ok(mapping)
    }
}

impl FieldValue for Vec<ModelMapping> {
    const KIND: Kind = Kind::List { of: &Kind::Object(ModelMapping::OBJECT), most: 10_000 };

    fn show(&self) -> Value {
        self.iter().map(FieldValue::show).collect()
    }

    fn read(value: &Value) -> Result<Self, String> {
        value.as_array().into_iter().flatten().map(FieldValue::read).collect()
    }
}

objects!(Profile);

fn mappings_differ(value: &Value) -> Result<(), String> {
    let mut seen = std::collections::HashSet::new();
    let mut models = value.as_array().into_iter().flatten().filter_map(|mapping| mapping["model"].as_str());
    models.find(|model| !seen.insert(*model)).map_or(Ok(()), |model| Err(format!("model '{model}' is served twice")))
}

fn check_url(text: &str, schemes: &[&str]) -> Result<(), String> {
    if text.is_empty() {
        return Err("is needed for this provider".to_owned());
    }
    let url = Url::parse(text).map_err(|error| format!("is not an address: {error}"))?;
    if !schemes.contains(&url.scheme()) {
        return Err(format!("must begin with {}://", schemes.join(":// or ")));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("names no host".to_owned());
    }
    if url.port() == Some(0) {
        return Err("names the port 0, where nothing listens".to_owned());
    }
    if schemes.contains(&"https") && (!url.username().is_empty() || url.password().is_some()) {
        return Err("must not hold a user name or password; the credential belongs to an account".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not have a query or fragment".to_owned());
    }
    Ok(())
}

/// Headers of the connection and of the credential; a channel cannot set them.
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
            return Err(format!("'{name}' stands twice"));
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
        return Err(format!("the value of '{name}' holds characters that a header cannot"));
    }
    Ok(())
}

/// An account as it is written: its row, and the credential that is stored sealed beside it.
#[derive(Clone, Debug, Default)]
pub struct AccountInput {
    pub spec: AccountSpec,
    /// The provider's key; `None` keeps the one that is there.
    pub credential: Option<Secret>,
}

table!(
    AccountInput,
    "Account",
    AccountInput::default(),
    &[
        field!("name", spec.name: String, "Unique in its channel.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        Field {
            shape: FieldShape::new(
                "credential",
                Kind::Text { least: 1, most: 10_000 },
                "The provider's key; a new account needs one.",
            )
            .with(Access::WriteOnly),
            get: |_: &Self| Value::Null,
            set: |account: &mut Self, value| {
                let credential = value.as_str().unwrap_or_default();
                if credential.chars().any(char::is_control) {
                    return Err("the secret holds control characters".to_owned());
                }
                account.credential = Some(Secret::new(credential.to_owned()));
                Ok(())
            },
        }
        .secret(),
        Field {
            shape: FieldShape::new("status", ON_OFF, "`off`: switched off by hand."),
            get: |account: &Self| show_on(account.spec.on),
            set: |account: &mut Self, value| {
                account.spec.on = read_on(value)?;
                Ok(())
            },
        },
        field!("rpm", spec.rpm: u32, "Requests a minute; 0: no bound."),
        field!("tpm", spec.tpm: u64, "Tokens a minute; 0: no bound."),
        field!("concurrency", spec.concurrency: u32, "Requests at once; 0: no bound."),
        field!("cost_multiplier", spec.cost_multiplier: Multiplier, "Factor on the channel's cost prices."),
    ]
);

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
    fn channel_headers_cannot_touch_framing_or_credentials() {
        assert_eq!(check_header("anthropic-version", "2023-06-01"), Ok(()));
        for (name, value) in [("Host", "x"), ("Authorization", "x"), ("a b", "x"), ("x", "a\r\nb: c"), ("", "")] {
            assert!(check_header(name, value).is_err(), "{name}: {value}");
        }
    }
}
