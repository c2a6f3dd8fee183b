//! JSON schemas in words: the type of a value, and the fields of an object.

use serde_json::Value;

use crate::pages::{format, locale::Locale};

/// Objects within objects that are described in place.
const MAX_DEPTH: usize = 4;
/// Maximum number of listed words of an enumeration.
const MAX_WORDS: usize = 24;

/// The type of a value, such as "list of Key".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaType {
    pub(super) before: String,
    /// Name of the schema that describes it.
    pub(super) schema: Option<String>,
    pub(super) after: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemaField {
    /// With the names of the objects around it: `rows[].name`.
    pub(super) name: String,
    pub(super) kind: SchemaType,
    pub(super) is_required: bool,
    pub(super) about: String,
}

impl SchemaType {
    fn text(text: impl Into<String>) -> Self {
        Self { before: text.into(), ..Self::default() }
    }

    /// Every part of it as one text.
    fn whole(&self) -> String {
        format!("{}{}{}", self.before, self.schema.as_deref().unwrap_or_default(), self.after)
    }
}

/// What a value with this schema is.
pub(super) fn type_of(t: Locale, schema: &Value) -> SchemaType {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return SchemaType { schema: Some(name.to_owned()), ..SchemaType::default() };
    }
    if let Some(choices) = schema["anyOf"].as_array().filter(|_| schema["type"].is_null()) {
        return one_of(t, choices);
    }
    if let Some(types) = schema["type"].as_array() {
        let or_null = if types.iter().any(|it| it == "null") { t.say("reference.or_null") } else { "" };
        let first = types.iter().find(|it| *it != "null").and_then(Value::as_str).unwrap_or_default();
        return SchemaType::text(format!("{}{or_null}", plain(t, first, schema)));
    }
    match schema["type"].as_str() {
        Some("array") => list(t, schema),
        Some("object") => object(t, schema),
        Some(word) => SchemaType::text(plain(t, word, schema)),
        None => SchemaType::text(t.say("reference.any")),
    }
}

fn one_of(t: Locale, choices: &[Value]) -> SchemaType {
    let or_null = if choices.iter().any(|it| it["type"] == "null") { t.say("reference.or_null") } else { "" };
    let types: Vec<SchemaType> = choices.iter().filter(|it| it["type"] != "null").map(|it| type_of(t, it)).collect();
    let Some((first, others)) = types.split_first() else { return SchemaType::text(t.say("reference.any")) };
    let mut kind = first.clone();
    for other in others {
        kind.after.push_str(&t.say_with("reference.or", &[("other", &other.whole())]));
    }
    kind.after.push_str(or_null);
    kind
}

/// A list, or a page of a list.
fn list(t: Locale, schema: &Value) -> SchemaType {
    let of = type_of(t, &schema["items"]);
    let most = schema["maxItems"].as_u64().map(|most| t.say_with("reference.at_most", &[("most", &format::integer(most))]));
    SchemaType { before: format!("{}{}", t.say("reference.list_of"), of.before), after: of.after + &most.unwrap_or_default(), ..of }
}

fn object(t: Locale, schema: &Value) -> SchemaType {
    let properties = &schema["properties"];
    if properties["items"].is_object() && properties["next"].is_object() {
        let of = type_of(t, &properties["items"]["items"]);
        return SchemaType { before: format!("{}{}", t.say("reference.page_of"), of.before), ..of };
    }
    if schema["additionalProperties"].is_object() {
        let of = type_of(t, &schema["additionalProperties"]);
        return SchemaType { before: format!("{}{}", t.say("reference.by_name"), of.before), ..of };
    }
    SchemaType::text(t.say("reference.object"))
}

/// A value without parts.
fn plain(t: Locale, word: &str, schema: &Value) -> String {
    let number = |name: &str| schema[name].as_i64();
    match word {
        "string" => text(t, schema),
        "integer" => match (number("minimum"), number("maximum")) {
            (Some(min), Some(max)) if max < i64::MAX => bounded(t.say("reference.integer"), &min.to_string(), &max.to_string()),
            _ => t.say("reference.integer").to_owned(),
        },
        "number" => match (number("minimum"), number("maximum")) {
            (Some(min), Some(max)) if max < i64::MAX => bounded(t.say("reference.number"), &min.to_string(), &max.to_string()),
            _ => t.say("reference.number").to_owned(),
        },
        "boolean" => t.say("reference.flag").to_owned(),
        "array" => list(t, schema).whole(),
        "object" => t.say("reference.object").to_owned(),
        _ => word.to_owned(),
    }
}

fn bounded(what: &str, min: &str, max: &str) -> String {
    format!("{what}, {min}–{max}")
}

fn text(t: Locale, schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        let mut said: Vec<String> =
            words.iter().filter_map(Value::as_str).take(MAX_WORDS).map(|word| format!("`{word}`")).collect();
        if words.len() > MAX_WORDS {
            said.push("…".to_owned());
        }
        return said.join(" | ");
    }
    if schema["format"] == "date-time" {
        return t.say("reference.time").to_owned();
    }
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    if let Some(prefix) = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix("[0-9a-z]{26}$")) {
        return t.say_with("reference.id", &[("prefix", &format!("`{prefix}…`"))]);
    }
    if pattern.contains("[0-9]+(\\.[0-9]{1,") {
        return t.say("reference.decimal").to_owned();
    }
    match schema["maxLength"].as_u64() {
        Some(most) => t.say_with("reference.text_up_to", &[("most", &format::integer(most))]),
        None => t.say("reference.text").to_owned(),
    }
}

/// The fields of an object, and those of objects within it that have no name.
pub(super) fn fields(t: Locale, schema: &Value) -> Vec<SchemaField> {
    let mut found = Vec::new();
    add_fields(t, schema, "", 0, &mut found);
    found
}

fn add_fields(t: Locale, schema: &Value, before: &str, depth: usize, found: &mut Vec<SchemaField>) {
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name));
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{before}{name}");
        found.push(SchemaField {
            kind: type_of(t, field),
            is_required: required(name),
            about: field["description"].as_str().unwrap_or_default().to_owned(),
            name: path.clone(),
        });
        if depth < MAX_DEPTH {
            add_fields(t, field, &format!("{path}."), depth + 1, found);
            add_fields(t, &field["items"], &format!("{path}[]."), depth + 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_are_described_as_text() {
        let of = |schema: Value| type_of(Locale::EN, &schema).whole();
        let key = json!({"$ref": "#/components/schemas/Key"});
        for (schema, said) in [
            (key.clone(), "Key"),
            (json!({"anyOf": [key, {"type": "null"}]}), "Key or null"),
            (json!({"type": "array", "items": key, "maxItems": 9}), "list of Key, at most 9"),
            (json!({"type": "object", "properties": {"items": {"type": "array", "items": key}, "next": {}}}), "page of Key"),
            (json!({"type": ["string", "null"]}), "text or null"),
            (json!({"type": "string", "pattern": "^key_[0-9a-z]{26}$"}), "id `key_…`"),
            (json!({"type": "string", "enum": ["a", "b"]}), "`a` | `b`"),
            (json!({"type": "string", "format": "date-time", "maxLength": 64}), "time (RFC 3339)"),
            (json!({"type": "string", "minLength": 1, "maxLength": 100}), "text, at most 100 characters"),
            (json!({"type": "integer", "minimum": 1, "maximum": 9}), "whole number, 1–9"),
            (json!({"type": "integer", "minimum": 0, "maximum": i64::MAX}), "whole number"),
            (json!({"type": "boolean"}), "true or false"),
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), "by name: text"),
            (json!({"type": "object", "additionalProperties": false}), "object"),
            (json!({}), "any value"),
        ] {
            assert_eq!(of(schema.clone()), said, "{schema}");
        }
    }

    #[test]
    fn fields_of_objects_without_a_name_are_listed_in_place() {
        let schema = json!({
            "type": "object", "required": ["error"],
            "properties": {"error": {"type": "object", "required": ["code"], "properties": {
                "code": {"type": "string", "description": "Its code."},
                "rows": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            }}},
        });
        let found = fields(Locale::EN, &schema);
        let named: Vec<(&str, bool)> = found.iter().map(|field| (field.name.as_str(), field.is_required)).collect();
        assert_eq!(named, [("error", true), ("error.code", true), ("error.rows", false), ("error.rows[].name", false)]);
        assert_eq!((found[1].kind.whole().as_str(), found[1].about.as_str()), ("text", "Its code."));
    }
}
