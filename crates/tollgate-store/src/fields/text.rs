//! Values as words of a command line.

use serde_json::{Map, Value};

use super::{FieldShape, Kind, Object, Step, WriteMode, check_field};

/// Reads the text behind `FIELD=`. Lists have commas between their entries; tables take their short form (`5/month`),
/// `name:value` pairs with commas between, inline TOML or JSON; `null` is nothing. A text that is of another type stays a string:
/// the check of the value names what was expected.
///
/// # Errors
/// What the field takes, with a right example.
pub fn parse_text(field: &FieldShape, text: &str) -> Result<Value, String> {
    if field.nullable && matches!(text, "null" | "none") {
        return Ok(Value::Null);
    }
    let takes = || format!("'{}' takes {}; not '{text}'", field.name, example(&field.kind));
    let value = parse(&field.kind, text.trim()).ok_or_else(takes)?;
    // What has a form of its own is checked here, where a right example can stand beside what is wrong.
    if matches!(field.kind, Kind::OneOrMore { .. } | Kind::Object(_)) {
        let (mut path, mut problems) = (vec![Step::Member(field.name.to_owned())], Vec::new());
        check_field(field, &value, WriteMode::Create, &mut path, &mut problems);
        if let Some(problem) = problems.first() {
            return Err(format!("{}: {}", takes(), problem.below(1)));
        }
    }
    Ok(value)
}

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
        Kind::Integer { .. } | Kind::ZeroOr { .. } | Kind::Flag | Kind::Number => Some(match serde_json::from_str::<Value>(text) {
            Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
            Ok(_) | Err(_) => text.into(),
        }),
        Kind::List { of, .. } => match of {
            _ if text.starts_with('[') => literal(text),
            _ if text.is_empty() => Some(Value::Array(Vec::new())),
            Kind::Object(_) | Kind::List { .. } | Kind::OneOrMore { .. } | Kind::TextMap { .. } | Kind::Any => None,
            Kind::Id(_)
            | Kind::Text { .. }
            | Kind::Name { .. }
            | Kind::Time
            | Kind::Flag
            | Kind::Integer { .. }
            | Kind::ZeroOr { .. }
            | Kind::Usd { .. }
            | Kind::Factor { .. }
            | Kind::Number
            | Kind::Word(_)
            | Kind::Network
            | Kind::Form { .. } => text.split(',').map(|part| parse(of, part.trim())).collect(),
        },
        Kind::OneOrMore { .. } if text.is_empty() => Some(Value::Array(Vec::new())),
        Kind::OneOrMore { of, .. } | Kind::Object(of) => {
            if text.starts_with(['{', '[']) {
                literal(text)
            } else {
                short(of, text)
            }
        }
        Kind::TextMap { .. } if text.starts_with('{') => literal(text),
        Kind::TextMap { .. } => pairs(text, |_, value| Some(value.into())),
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

/// A right example, for messages.
fn example(kind: &Kind) -> String {
    match kind {
        Kind::OneOrMore { of, .. } | Kind::Object(of) if !of.example.is_empty() => format!("such as {}", of.example),
        Kind::List { .. } => "a JSON list of objects".to_owned(),
        Kind::TextMap { .. } => "such as x-team:search,x-env:prod".to_owned(),
        Kind::OneOrMore { .. }
        | Kind::Object(_)
        | Kind::Any
        | Kind::Id(_)
        | Kind::Text { .. }
        | Kind::Name { .. }
        | Kind::Time
        | Kind::Flag
        | Kind::Integer { .. }
        | Kind::ZeroOr { .. }
        | Kind::Usd { .. }
        | Kind::Factor { .. }
        | Kind::Number
        | Kind::Word(_)
        | Kind::Network
        | Kind::Form { .. } => "a JSON object".to_owned(),
    }
}
