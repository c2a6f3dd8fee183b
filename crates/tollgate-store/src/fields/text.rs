//! Values as text: command-line arguments, and the TOML that `pull` writes and plans show.

use serde_json::{Map, Value};

use super::{FieldShape, Kind, Object, Step, WriteMode, check_field};

/// Reads the text behind `FIELD=`. Entries of lists are separated by commas; tables take their short form (`5/month`),
/// `name:value` pairs separated by commas, inline TOML or JSON; `null` means no value. Text of another type remains a string, so
/// that the check of the value names the expected type. The error describes valid values, with an example.
pub fn parse_text(field: &FieldShape, text: &str) -> Result<Value, String> {
    if field.nullable && matches!(text, "null" | "none") {
        return Ok(Value::Null);
    }
    let takes = || format!("'{}' takes {}; not '{text}'", field.name, example(&field.kind));
    let value = parse(&field.kind, text.trim()).ok_or_else(takes)?;
    // Lists and objects are checked here, so that the error can show a valid example.
    if matches!(field.kind, Kind::OneOrMore { .. } | Kind::Object(_)) {
        let (mut path, mut problems) = (vec![Step::Member(field.name.to_owned())], Vec::new());
        check_field(field, &value, WriteMode::Create, &mut path, &mut problems);
        if let Some(problem) = problems.first() {
            return Err(format!("{}: {}", takes(), problem.below(1)));
        }
    }
    Ok(value)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "lists of all other kinds have commas")]
fn parse(kind: &Kind, text: &str) -> Option<Value> {
    match kind {
        Kind::Id(_)
        | Kind::Text { .. }
        | Kind::Name { .. }
        | Kind::Time
        | Kind::Usd { .. }
        | Kind::Factor { .. }
        | Kind::Network
        | Kind::Word(_) => Some(text.into()),
        Kind::Integer { .. } | Kind::ZeroOr { .. } | Kind::Flag | Kind::Number { .. } | Kind::NumberOrNull { .. } => {
            Some(match serde_json::from_str::<Value>(text) {
                Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
                Ok(_) | Err(_) => text.into(),
            })
        }
        Kind::List { of, .. } => match of {
            _ if text.starts_with('[') => literal(text),
            _ if text.is_empty() => Some(Value::Array(Vec::new())),
            Kind::Object(_)
            | Kind::List { .. }
            | Kind::OneOrMore { .. }
            | Kind::TextMap { .. }
            | Kind::FactorMap { .. }
            | Kind::Any => None,
            _ => text.split(',').map(|part| parse(of, part.trim())).collect(),
        },
        Kind::OneOrMore { .. } if text.is_empty() => Some(Value::Array(Vec::new())),
        Kind::OneOrMore { of, .. } | Kind::Object(of) => {
            if text.starts_with(['{', '[']) {
                literal(text)
            } else {
                short(of, text)
            }
        }
        Kind::TextMap { .. } | Kind::FactorMap { .. } if text.starts_with('{') => literal(text),
        Kind::TextMap { .. } => pairs(text, |_, value| Some(value.into())),
        Kind::FactorMap { .. } if text.is_empty() => Some(Value::Object(Map::new())),
        Kind::FactorMap { .. } => factors(text),
        Kind::Form { .. } => Some(literal(text).unwrap_or_else(|| text.into())),
        Kind::Any => literal(text),
    }
}

/// A value as JSON, or as TOML inline.
fn literal(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let mut table: toml::Table = toml::from_str(&format!("value = {text}")).ok()?;
    serde_json::to_value(table.remove("value")?).ok()
}

/// An object's own short form, or `name:value` pairs.
fn short(object: &Object, text: &str) -> Option<Value> {
    if let Some(value) = object.short.and_then(|short| short(text)) {
        return Some(value);
    }
    pairs(text, |name, value| match object.field(name) {
        Some(field) => parse(&field.kind, value),
        None => Some(value.into()),
    })
}

fn pairs(text: &str, value: impl Fn(&str, &str) -> Option<Value>) -> Option<Value> {
    let mut members = Map::new();
    for part in text.split(',') {
        let (name, text) = part.split_once(':').or_else(|| part.split_once('='))?;
        let name = name.trim();
        members.insert(name.to_owned(), value(name, text.trim())?);
    }
    Some(Value::Object(members))
}

/// `name:factor` pairs. Names may have colons.
fn factors(text: &str) -> Option<Value> {
    let pair = |part: &str| {
        let (name, factor) = part.rsplit_once([':', '='])?;
        Some((name.trim().to_owned(), Value::from(factor.trim())))
    };
    text.split(',').map(pair).collect::<Option<Map<_, _>>>().map(Value::Object)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds take a JSON object")]
fn example(kind: &Kind) -> String {
    match kind {
        Kind::OneOrMore { of, .. } | Kind::Object(of) if !of.example.is_empty() => format!("such as {}", of.example),
        Kind::List { .. } => "a JSON list of objects".to_owned(),
        Kind::TextMap { .. } => "such as x-team:search,x-env:prod".to_owned(),
        Kind::FactorMap { .. } => "such as gpt-*:1.5,gpt-fast:0.9".to_owned(),
        _ => "a JSON object".to_owned(),
    }
}

pub(crate) fn toml_string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A value of a field. Null has no TOML form.
pub(crate) fn toml_value(kind: &Kind, value: &Value) -> String {
    match (kind, value) {
        (Kind::Object(object) | Kind::OneOrMore { of: object, .. }, Value::Object(members)) => table(object, members),
        (Kind::OneOrMore { of, .. }, Value::Array(items)) => list(items, |item| toml_value(&Kind::Object(of), item)),
        (Kind::List { of, .. }, Value::Array(items)) => list(items, |item| toml_value(of, item)),
        (_, value) => plain(value),
    }
}

fn table(object: &Object, members: &Map<String, Value>) -> String {
    let blank = (object.blank)();
    let written = |field: &FieldShape| Some((field.name, field.kind, members.get(field.name)?));
    let kept = object.fields.iter().filter(|field| is_written(field, members.get(field.name), blank.get(field.name)));
    let pairs: Vec<String> =
        kept.filter_map(written).map(|(name, kind, it)| format!("{name} = {}", toml_value(&kind, it))).collect();
    braced(&pairs)
}

/// Whether a field is written: it has a value, and is required or differs from its default.
pub(crate) fn is_written(field: &FieldShape, value: Option<&Value>, default: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null() && (field.access.is_needed(super::WriteMode::File) || Some(value) != default))
}

fn list(items: &[Value], form: impl Fn(&Value) -> String) -> String {
    format!("[{}]", items.iter().map(form).collect::<Vec<_>>().join(", "))
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "\"\"".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => toml_string(text),
        Value::Array(items) => list(items, plain),
        Value::Object(members) => {
            let pairs: Vec<String> = members.iter().map(|(name, value)| format!("{} = {}", key(name), plain(value))).collect();
            braced(&pairs)
        }
    }
}

fn braced(pairs: &[String]) -> String {
    if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
}

/// A key, quoted where it needs it.
fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if bare { name.to_owned() } else { toml_string(name) }
}
