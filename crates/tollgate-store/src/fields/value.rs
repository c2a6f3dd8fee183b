//! Conversions between the types of fields and JSON. Values are checked against their kind before they are read.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde_json::{Map, Value};
use tollgate_core::{
    Billing, BudgetAction, Glob, KeyStatus, MAX_MODEL_MULTIPLIERS, MemberStatus, Modality, ModelBadge, Multiplier, NanoUsd,
    OnUnsupported, PriceLimitOn, Provider, Role, Routing, StreamBreak, Tags, Timestamp, TranslationPolicy, Visibility, Window,
    parse_usd,
};
use tollgate_protocol::Protocol;

use super::Kind;
use crate::{AdminScope, DestinationKind};

/// A type of row fields with its form in JSON.
pub trait FieldValue: Sized {
    /// The widest kind of value it takes.
    const KIND: Kind;
    const NULLABLE: bool = false;

    fn show(&self) -> Value;

    /// Reads its JSON form. The error is the end of a sentence.
    fn read(value: &Value) -> Result<Self, String>;
}

/// A decimal as text: strings unchanged, numbers in their shortest form.
pub(super) fn decimal_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(match number.as_f64() {
            Some(float) if number.is_f64() => float.to_string(),
            Some(_) | None => number.to_string(),
        }),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

pub(super) fn parse_time(text: &str) -> Result<Timestamp, String> {
    let time = text.parse::<jiff::Timestamp>();
    time.map(|time| Timestamp(time.as_microsecond())).map_err(|_| {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
        format!("'{shown}' is not a time like 2027-01-01T00:00:00Z, with its offset")
    })
}

pub(super) fn parse_network(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| net.trunc()).map_err(|_| {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
        format!("'{shown}' is neither an address nor a network like 10.0.0.0/8")
    })
}

/// RFC 3339 in UTC, to the microsecond.
pub fn time_text(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map_or_else(|_| at.0.to_string(), |time| time.to_string())
}

/// A price or an amount in nano-USD as decimal text in USD.
pub(super) fn show_usd(nano_usd: i64) -> Value {
    NanoUsd(nano_usd).to_usd_string().into()
}

pub(super) fn read_usd(value: &Value) -> Result<i64, String> {
    parse_usd(&decimal_text(value).unwrap_or_default()).map_err(|error| error.to_string())
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "expected a string".to_owned())
}

fn items(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| "expected a list".to_owned())
}

impl FieldValue for bool {
    const KIND: Kind = Kind::Flag;

    fn show(&self) -> Value {
        (*self).into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| "expected true or false".to_owned())
    }
}

macro_rules! integers {
    ($($type:ty: $min:expr, $max:expr;)+) => {
        $(impl FieldValue for $type {
            const KIND: Kind = Kind::Integer { min: $min, max: $max };

            fn show(&self) -> Value {
                (*self).into()
            }

            fn read(value: &Value) -> Result<Self, String> {
                let number = value.as_i64().and_then(|number| Self::try_from(number).ok());
                number.ok_or_else(|| "the number is out of range".to_owned())
            }
        })+
    };
}
integers! {
    u16: 0, u16::MAX as i64;
    u32: 0, u32::MAX as i64;
    i32: i32::MIN as i64, i32::MAX as i64;
    u64: 0, i64::MAX;
}

impl FieldValue for String {
    const KIND: Kind = Kind::Text { min: 0, max: 1_000 };

    fn show(&self) -> Value {
        self.as_str().into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        text(value).map(str::to_owned)
    }
}

impl FieldValue for Glob {
    const KIND: Kind = Kind::Text { min: 1, max: 256 };

    fn show(&self) -> Value {
        self.0.as_str().into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        text(value).map(|text| Self(text.to_owned()))
    }
}

impl FieldValue for Timestamp {
    const KIND: Kind = Kind::Time;

    fn show(&self) -> Value {
        time_text(*self).into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        parse_time(text(value)?)
    }
}

impl FieldValue for IpNet {
    const KIND: Kind = Kind::Network;

    fn show(&self) -> Value {
        self.to_string().into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        parse_network(text(value)?)
    }
}

impl FieldValue for Multiplier {
    const KIND: Kind = Kind::Factor { max: i64::MAX };

    fn show(&self) -> Value {
        self.to_decimal().into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        Self::parse(&decimal_text(value).unwrap_or_default()).map_err(|error| error.to_string())
    }
}

impl FieldValue for NanoUsd {
    const KIND: Kind = Kind::Usd { min: 0, max: i64::MAX };

    fn show(&self) -> Value {
        show_usd(self.0)
    }

    fn read(value: &Value) -> Result<Self, String> {
        Self::parse(&decimal_text(value).unwrap_or_default()).map_err(|error| error.to_string())
    }
}

impl<T: FieldValue> FieldValue for Option<T> {
    const KIND: Kind = T::KIND;
    const NULLABLE: bool = true;

    fn show(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::show)
    }

    fn read(value: &Value) -> Result<Self, String> {
        if value.is_null() { Ok(None) } else { T::read(value).map(Some) }
    }
}

macro_rules! lists {
    ($($type:ty),+) => {
        $(impl FieldValue for Vec<$type> {
            const KIND: Kind = Kind::List { of: &<$type as FieldValue>::KIND, max: 1_000 };

            fn show(&self) -> Value {
                self.iter().map(FieldValue::show).collect()
            }

            fn read(value: &Value) -> Result<Self, String> {
                items(value)?.iter().map(FieldValue::read).collect()
            }
        })+
    };
}
lists!(String, u16, Glob, IpNet, Modality, Protocol);

/// Texts by name, in order of name.
impl FieldValue for Vec<(String, String)> {
    const KIND: Kind = Kind::TextMap { max: 32 };

    fn show(&self) -> Value {
        self.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect::<Map<_, _>>().into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        let members = value.as_object().ok_or_else(|| "expected a table of strings".to_owned())?;
        let pair = |(name, value): (&String, &Value)| Ok::<_, String>((name.clone(), text(value)?.to_owned()));
        let mut pairs = members.iter().map(pair).collect::<Result<Self, _>>()?;
        pairs.sort();
        Ok(pairs)
    }
}

impl FieldValue for Tags {
    const KIND: Kind = <Vec<(String, String)> as FieldValue>::KIND;

    fn show(&self) -> Value {
        self.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect::<Map<_, _>>().into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        let pairs = Vec::<(String, String)>::read(value)?;
        let mut tags = Self::default();
        tags.add_metadata(&pairs);
        if tags.iter().len() == pairs.len() { Ok(tags) } else { Err("expected a table of tags".to_owned()) }
    }
}

/// Factors by name or pattern of models, ordered by it.
impl FieldValue for BTreeMap<Glob, Multiplier> {
    const KIND: Kind = Kind::FactorMap { max: MAX_MODEL_MULTIPLIERS };

    fn show(&self) -> Value {
        self.iter().map(|(pattern, factor)| (pattern.0.clone(), factor.show())).collect::<Map<_, _>>().into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        let members = value.as_object().ok_or_else(|| "expected a table of factors".to_owned())?;
        members.iter().map(|(pattern, factor)| Ok((Glob(pattern.clone()), Multiplier::read(factor)?))).collect()
    }
}

impl FieldValue for Protocol {
    const KIND: Kind = Kind::Word(&Self::WORDS);

    fn show(&self) -> Value {
        self.as_str().into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        Self::parse(text(value)?).ok_or_else(|| format!("expected one of {}", Self::WORDS.join(", ")))
    }
}

/// The words of an enum in files, requests and answers.
macro_rules! words {
    ($($type:ident { $($word:literal => $variant:ident),+ $(,)? })+) => {
        $(impl FieldValue for $type {
            const KIND: Kind = Kind::Word(&[$($word),+]);

            fn show(&self) -> Value {
                match self {
                    $(Self::$variant => $word.into(),)+
                }
            }

            fn read(value: &Value) -> Result<Self, String> {
                match text(value)? {
                    $($word => Ok(Self::$variant),)+
                    other => Err(format!("'{other}' is not one of its words")),
                }
            }
        })+
    };
}
words! {
    Provider {
        "openai" => OpenAi, "gemini" => Gemini, "anthropic" => Anthropic, "compatible" => Compatible, "echo" => Echo,
    }
    Visibility { "public" => Public, "private" => Private }
    TranslationPolicy { "strict" => Strict, "lenient" => Lenient }
    StreamBreak { "provider_usage" => ProviderUsage, "delivered" => Delivered, "none_if_empty" => NoneIfEmpty }
    Routing { "weighted" => Weighted, "cheapest" => Cheapest, "fastest" => Fastest }
    OnUnsupported { "refuse" => Refuse, "drop" => Drop }
    Role { "admin" => Admin, "operator" => Operator, "member" => Member }
    MemberStatus { "active" => Active, "suspended" => Suspended }
    Billing { "postpaid" => Postpaid, "prepaid" => Prepaid }
    KeyStatus { "active" => Active, "disabled" => Disabled, "revoked" => Revoked }
    Window { "day" => Day, "month" => Month, "total" => Total }
    BudgetAction { "block" => Block, "alert" => Alert }
    AdminScope { "member" => Member, "operator" => Operator, "admin" => Admin }
    DestinationKind {
        "webhook" => Webhook, "slack" => Slack, "feishu" => Feishu, "dingtalk" => Dingtalk, "wecom" => Wecom,
        "telegram" => Telegram, "email" => Email,
    }
    PriceLimitOn { "sale" => Sale, "cost" => Cost }
    Modality { "text" => Text, "image" => Image, "audio" => Audio, "video" => Video, "document" => Document }
    ModelBadge { "deprecated" => Deprecated, "limited" => Limited }
}

/// `"on"` or `"off"`, for fields that a type keeps as a flag.
pub(super) const ON_OFF: Kind = Kind::Word(&["on", "off"]);

pub(super) fn show_on(on: bool) -> Value {
    if on { "on" } else { "off" }.into()
}

pub(super) fn read_on(value: &Value) -> Result<bool, String> {
    text(value).map(|word| word == "on")
}

/// Rows are found by id or by name, so a name in the form of an id could not be found.
pub(super) fn not_an_id(value: &Value) -> Result<(), String> {
    const PREFIXES: [&str; 13] =
        ["chn_", "acc_", "mdl_", "grp_", "mbr_", "key_", "adm_", "set_", "alt_", "dst_", "req_", "ses_", "inv_"];
    let digits = value.as_str().and_then(|name| PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)));
    let is_id = digits.is_some_and(|digits| digits.len() == 26 && digits.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    if is_id { Err("looks like an id, so it could be confused with the row of that id".to_owned()) } else { Ok(()) }
}

pub(super) const NAME: Kind = Kind::Name { max: 100 };
pub(super) const MODEL_NAME: Kind = Kind::Name { max: 256 };
