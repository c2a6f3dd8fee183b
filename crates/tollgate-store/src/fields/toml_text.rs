//! Values as TOML text: what `pull` writes and plans show. Members that have their default are left out.

use serde_json::{Map, Value};

use super::{FieldShape, Kind, Object};

pub(crate) fn string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A value of a field. Null has no TOML form.
pub(crate) fn value(kind: &Kind, value: &Value) -> String {
    match (kind, value) {
        (Kind::Object(object) | Kind::OneOrMore { of: object, .. }, Value::Object(members)) => table(object, members),
        (Kind::OneOrMore { of, .. }, Value::Array(items)) => list(items, |item| self::value(&Kind::Object(of), item)),
        (Kind::List { of, .. }, Value::Array(items)) => list(items, |item| self::value(of, item)),
        (_, value) => plain(value),
    }
}

fn table(object: &Object, members: &Map<String, Value>) -> String {
    let blank = (object.blank)();
    let written = |field: &FieldShape| Some((field.name, field.kind, members.get(field.name)?));
    let kept = object.fields.iter().filter(|field| is_written(field, members.get(field.name), blank.get(field.name)));
    let pairs: Vec<String> = kept.filter_map(written).map(|(name, kind, it)| format!("{name} = {}", value(&kind, it))).collect();
    braced(&pairs)
}

/// Whether a field is written: it is there, and required or not its default.
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
        Value::String(text) => string(text),
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
    if bare { name.to_owned() } else { string(name) }
}
