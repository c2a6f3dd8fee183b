//! The fields of a destination of alerts.

use serde_json::Value;
use tollgate_core::{AlertRule, Secret};
use url::Url;

use super::{
    Access, Field, FieldShape, Kind, field, table,
    value::{NAME, ON_OFF, not_an_id, read_on, show_on},
};
use crate::{AlertDestinationSpec, CONFIGURED_DESTINATION, DestinationKind, FieldProblem};

const STARS: &str = "***";
const ADDRESS: Kind = Kind::Text { min: 3, max: 320 };
const RULES: Kind = Kind::List { of: &Kind::Word(AlertRule::WORDS), max: AlertRule::WORDS.len() };

/// A destination in a request: the row, and the secrets that are given.
#[derive(Clone, Debug, Default)]
pub struct DestinationInput {
    pub spec: AlertDestinationSpec,
    /// The address with its secret parts. `None` keeps the stored one.
    pub url: Option<Secret>,
    /// `None` keeps the stored one; an empty one removes it.
    pub secret: Option<Secret>,
}

table!(
    DestinationInput,
    "AlertDestination",
    DestinationInput::default(),
    &[
        field!("name", spec.name: String, "Unique.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        field!(
            "kind",
            spec.kind: DestinationKind,
            "`webhook`: a JSON object by POST; `slack`, `feishu`, `dingtalk`, `wecom` and `telegram`: a message of their own form."
        )
        .access(Access::Fixed),
        Field {
            shape: FieldShape::new(
                "url",
                Kind::Text { min: 1, max: 2_000 },
                "Address: `https://…`; of Telegram `https://api.telegram.org`; of mail `smtp://user@host:587` (STARTTLS), `smtps://` \
                 (TLS) or `smtp+plain://`. Shown with `***` for its path, which may be a secret.",
            )
            .with(Access::Required),
            get: |row: &Self| row.spec.url.as_str().into(),
            set: |row: &mut Self, value| {
                let given = value.as_str().unwrap_or_default();
                if given == row.spec.url && given.contains(STARS) {
                    return Ok(());
                }
                row.spec.url = redacted(given)?;
                row.url = Some(Secret::new(given.to_owned()));
                Ok(())
            },
        },
        Field {
            shape: FieldShape::new(
                "secret",
                Kind::Text { min: 0, max: 1_000 },
                "Webhook, Feishu and DingTalk: signs messages. Telegram: the token of the bot. Mail: the password. Empty: none. Never \
                 shown.",
            )
            .with(Access::WriteOnly),
            get: |_: &Self| Value::Null,
            set: |row: &mut Self, value| {
                row.secret = Some(Secret::new(value.as_str().unwrap_or_default().to_owned()));
                Ok(())
            },
        }
        .secret(),
        Field {
            shape: FieldShape::new("status", ON_OFF, "`off`: it gets no messages."),
            get: |row: &Self| show_on(row.spec.on),
            set: |row: &mut Self, value| {
                row.spec.on = read_on(value)?;
                Ok(())
            },
        },
        field!("rules", spec.rules: Vec<String>, "Rules whose alerts it gets; empty: all.").kind(RULES),
        field!("private_network", spec.private_network: bool, "May reach loopback and private addresses."),
        field!("from", spec.from: String, "Mail: the sender's address.").kind(Kind::Text { min: 0, max: 320 }),
        field!("to", spec.to: Vec<String>, "Mail: addresses of recipients. Telegram: the id of one chat, or `@channel`.").kind(Kind::List { of: &ADDRESS, max: 50 }),
    ],
    problems problems
);

/// Faults of the fields in combination.
fn problems(input: &DestinationInput) -> Vec<FieldProblem> {
    let AlertDestinationSpec { kind, url, private_network, from, to, .. } = &input.spec;
    let mut found = Vec::new();
    let mut problem = |field: &'static str, message: &str| found.push(FieldProblem { field, message: message.to_owned() });
    let scheme = url.split(':').next().unwrap_or_default();
    let is_mail = *kind == DestinationKind::Email;
    if input.spec.name == CONFIGURED_DESTINATION {
        problem("name", "is the name of the destination in the settings");
    }
    if is_mail != scheme.starts_with("smtp") {
        let expected = if is_mail { "begins with smtp://, smtps:// or smtp+plain://" } else { "begins with https:// or http://" };
        problem("url", &format!("of this kind {expected}"));
    }
    if scheme == "smtp+plain" && !private_network {
        problem("url", "sends mail without TLS, which private_network = true permits");
    }
    if !from.is_empty() && !is_mail {
        problem("from", "is a field of mail; leave it out");
    }
    match kind {
        DestinationKind::Email => {
            if !is_mail_address(from) {
                problem("from", "needs the address of a sender, such as tollgate@example.com");
            }
            if to.is_empty() {
                problem("to", "needs at least one recipient");
            }
            if to.iter().any(|address| !is_mail_address(address)) {
                problem("to", "has an entry that is not a mail address");
            }
        }
        DestinationKind::Telegram => {
            if url.contains(STARS) {
                problem("url", "of this kind has no path, such as https://api.telegram.org; the token of the bot is the secret");
            }
            if !has_bot_token(input) {
                problem("secret", "needs the token of a bot, such as 123456:ABC-DEF");
            }
            if !matches!(to.as_slice(), [chat] if is_chat(chat)) {
                problem("to", "needs the id of one chat, such as -1001234567890, or the name of a channel, such as @alerts");
            }
        }
        DestinationKind::Webhook
        | DestinationKind::Slack
        | DestinationKind::Feishu
        | DestinationKind::Dingtalk
        | DestinationKind::Wecom => {
            if !to.is_empty() {
                problem("to", "is a field of mail and Telegram; leave it out");
            }
        }
    }
    found
}

/// Whether a valid bot token is given or already stored. The token becomes part of the request's path.
fn has_bot_token(input: &DestinationInput) -> bool {
    let is_token = |text: &str| {
        let of_secret = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        text.split_once(':').is_some_and(|(bot, secret)| {
            !bot.is_empty() && bot.bytes().all(|byte| byte.is_ascii_digit()) && !secret.is_empty() && secret.bytes().all(of_secret)
        })
    };
    input.secret.as_ref().map_or(input.spec.has_secret, |secret| is_token(secret.expose()))
}

/// The id of a chat, below zero for groups, or the name of a public channel.
fn is_chat(text: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    text.strip_prefix('@').map_or_else(|| text.parse::<i64>().is_ok(), is_name)
}

/// `local@domain` in visible ASCII. The mail server decides about the rest.
fn is_mail_address(text: &str) -> bool {
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>,;:\"\\()[]".contains(&byte));
    is_visible
        && text.split_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty() && !domain.contains('@'))
}

/// The address without its secret parts. The error is the end of a sentence.
fn redacted(text: &str) -> Result<String, String> {
    let form = || "is not an address such as https://example.com/hook or smtp://user@mail.example.com:587".to_owned();
    let url = Url::parse(text).map_err(|_| form())?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(form)?;
    if url.password().is_some() {
        return Err("has a password; give it as secret".to_owned());
    }
    if url.path().contains(STARS) || url.query().is_some_and(|query| query.contains(STARS)) {
        return Err("has '***' in place of hidden parts; give the whole address".to_owned());
    }
    if url.port() == Some(0) {
        return Err("has the port 0".to_owned());
    }
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    match url.scheme() {
        "http" | "https" if !url.username().is_empty() => Err("has a user, which is not sent".to_owned()),
        scheme @ ("http" | "https") => Ok(format!("{scheme}://{host}{port}/{}", if is_bare { "" } else { STARS })),
        "smtp" | "smtps" | "smtp+plain" if !is_bare => Err("of mail has no path".to_owned()),
        scheme @ ("smtp" | "smtps" | "smtp+plain") => {
            let user = if url.username().is_empty() { String::new() } else { format!("{}@", url.username()) };
            Ok(format!("{scheme}://{user}{host}{port}"))
        }
        _ => Err(form()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields::{Row as _, assign};

    fn row(members: &Value) -> Result<DestinationInput, String> {
        let mut row = DestinationInput::blank();
        let mut faults = Vec::new();
        assign(&mut row, members.as_object().unwrap(), &mut faults);
        if let Some(fault) = faults.first() {
            return Err(format!("{fault:?}"));
        }
        match row.problems().first() {
            Some(problem) => Err(format!("{}: {}", problem.field, problem.message)),
            None => Ok(row),
        }
    }

    #[test]
    fn secrets_in_addresses_are_hidden() {
        for (given, shown) in [
            ("https://hooks.slack.com/services/T0/B0/canary", "https://hooks.slack.com/***"),
            ("https://x.example.com:8443/?token=canary", "https://x.example.com:8443/***"),
            ("http://x.example.com", "http://x.example.com/"),
            ("smtp://me@mail.example.com:587", "smtp://me@mail.example.com:587"),
            ("smtps://mail.example.com", "smtps://mail.example.com"),
        ] {
            assert_eq!(redacted(given).as_deref(), Ok(shown));
        }
        for wrong in [
            "",
            "x",
            "ftp://x/",
            "https://",
            "https://me:canary@x/",
            "https://me@x/",
            "https://x/***",
            "smtp://x/y",
            "https://x:0/",
        ] {
            assert!(redacted(wrong).is_err_and(|fault| !fault.contains("canary")), "{wrong}");
        }
    }

    #[test]
    fn masked_address_sent_back_keeps_the_stored_one() {
        let mut given = row(&json!({"name": "a", "url": "https://x.example.com/canary", "secret": "s"})).unwrap();
        assert_eq!(given.url.take().unwrap().expose(), "https://x.example.com/canary");
        let mut faults = Vec::new();
        assign(&mut given, json!({"url": "https://x.example.com/***"}).as_object().unwrap(), &mut faults);
        assert!(faults.is_empty() && given.url.is_none());
        assign(&mut given, json!({"url": "https://y.example.com/***"}).as_object().unwrap(), &mut faults);
        assert_eq!(faults.len(), 1, "another address");
        assert!(!format!("{:?}", crate::fields::whole(&given)).contains("canary"));
    }

    #[test]
    fn fields_are_validated_by_the_kind_of_destination() {
        let mail = json!({"name": "m", "kind": "email", "url": "smtp://mail.example.com", "from": "a@example.com", "to": ["b@example.com"]});
        assert!(row(&mail).is_ok());
        let with = |name: &str, value: Value| {
            let mut members = mail.clone();
            members[name] = value;
            row(&members).unwrap_err()
        };
        assert!(with("url", json!("https://x/y")).starts_with("url"));
        assert!(with("url", json!("smtp+plain://mail.example.com")).contains("private_network"));
        assert!(with("from", json!("a\r\nbcc: x@y")).starts_with("from"));
        assert!(with("to", json!([])).starts_with("to"));
        assert!(with("to", json!(["a b@c"])).starts_with("to"));
        assert!(with("kind", json!("slack")).starts_with("url"));
    }

    #[test]
    fn telegram_needs_a_token_and_one_chat() {
        let bot = json!({
            "name": "t", "kind": "telegram", "url": "https://api.telegram.org", "secret": "123456:ABC-def_1", "to": ["-1001234567890"],
        });
        assert!(row(&bot).is_ok());
        let with = |name: &str, value: Value| {
            let mut members = bot.clone();
            members[name] = value;
            row(&members).map(drop)
        };
        assert_eq!(with("to", json!(["@tollgate_alerts"])), Ok(()));
        for (name, value) in [
            ("url", json!("https://api.telegram.org/bot123456:canary/sendMessage")),
            ("secret", json!("")),
            ("secret", json!("123456:../canary")),
            ("secret", json!("canary")),
            ("to", json!([])),
            ("to", json!(["-1001234567890", "-1001234567891"])),
            ("to", json!(["@a/b"])),
            ("from", json!("a@example.com")),
        ] {
            assert!(
                with(name, value.clone()).is_err_and(|fault| fault.starts_with(name) && !fault.contains("canary")),
                "{name}: {value}"
            );
        }
        let without = json!({"name": "t", "kind": "telegram", "url": "https://api.telegram.org", "to": ["-1001234567890"]});
        assert!(row(&without).unwrap_err().starts_with("secret"));
        let robot = json!({"name": "w", "kind": "wecom", "url": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=canary"});
        assert_eq!(row(&robot).unwrap().spec.url, "https://qyapi.weixin.qq.com/***");
    }
}
