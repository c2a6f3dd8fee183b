//! Converts JSON Schema to the subset that Anthropic accepts for structured outputs and strict tools (Anthropic API docs,
//! "Structured outputs", "JSON Schema limitations"), as Anthropic's own SDKs do: objects are closed, and keywords outside
//! the subset move into the description.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::to_google::merge;

/// Keywords that are kept as they are. `enum` and `const` are checked, the others have no restrictions.
const KEPT: [&str; 6] = ["type", "title", "description", "default", "required", "$ref"];
/// Annotations that have no meaning for the model.
const IGNORED: [&str; 7] = ["$schema", "$id", "$comment", "$anchor", "deprecated", "readOnly", "writeOnly"];
const FORMATS: [&str; 10] = ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// Maximum number of values that are visited while references are followed.
const MAX_FOLLOWED_VALUES: usize = 1_000_000;

/// A schema in the subset, and the treatment of the other keywords. Paths are relative to the schema, with a leading point.
#[derive(Debug, Default)]
pub(crate) struct ClosedSchema {
    pub(crate) schema: Value,
    /// Keywords that moved into a description.
    pub(crate) described: Vec<String>,
    /// Objects that stated that they are open, and are closed.
    pub(crate) closed: Vec<String>,
    /// Schema parts that cannot be expressed, with the reason.
    pub(crate) refused: Vec<(String, &'static str)>,
}

pub(crate) fn to_anthropic(schema: &Value) -> ClosedSchema {
    let mut out = ClosedSchema::default();
    if has_cycle(schema) {
        out.refused.push((String::new(), "the upstream does not accept recursive schemas"));
        return out;
    }
    out.schema = out.node(schema, "");
    out
}

impl ClosedSchema {
    fn node(&mut self, schema: &Value, path: &str) -> Value {
        let Value::Object(given) = schema else { return schema.clone() };
        let mut given = given.clone();
        merge_all_of(&mut given);
        let mut node = Map::new();
        let mut hints = Vec::new();
        if given.contains_key("properties") && !given.contains_key("type") {
            node.insert("type".to_owned(), Value::from("object"));
        }
        for (key, value) in given {
            let place = format!("{path}.{key}");
            match key.as_str() {
                "properties" | "$defs" | "definitions" => {
                    let named = value.as_object().into_iter().flatten();
                    let named: Map<_, _> =
                        named.map(|(name, value)| (name.clone(), self.node(value, &format!("{place}.{name}")))).collect();
                    node.insert(key, Value::Object(named));
                }
                "items" if value.is_object() => drop(node.insert(key, self.node(&value, &place))),
                "anyOf" | "oneOf" | "allOf" if value.is_array() => {
                    let members = value.as_array().into_iter().flatten().enumerate();
                    let members = members.map(|(at, member)| self.node(member, &format!("{place}[{at}]"))).collect();
                    let key = if key == "oneOf" { "anyOf".to_owned() } else { key };
                    node.insert(key, Value::Array(members));
                }
                "additionalProperties" => self.open_object(&value, &place),
                "enum" | "const" if is_plain(&value) => drop(node.insert(key, value)),
                "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => drop(node.insert(key, value)),
                "minItems" if matches!(value.as_u64(), Some(0 | 1)) => drop(node.insert(key, value)),
                known if KEPT.contains(&known) => drop(node.insert(key, value)),
                ignored if IGNORED.contains(&ignored) => {}
                _ => {
                    hints.push(format!("{key}: {value}"));
                    self.described.push(place);
                }
            }
        }
        if is_object(&node) {
            node.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            node.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
        describe(&mut node, &hints);
        Value::Object(node)
    }

    /// Records how an `additionalProperties` other than `false` is treated.
    fn open_object(&mut self, value: &Value, place: &str) {
        match value {
            Value::Bool(false) => {}
            Value::Bool(true) => self.closed.push(place.to_owned()),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.refused.push((place.to_owned(), "the upstream does not accept objects with free names"));
            }
        }
    }
}

fn describe(node: &mut Map<String, Value>, hints: &[String]) {
    if hints.is_empty() {
        return;
    }
    let hints = format!("{{{}}}", hints.join(", "));
    let description = match node.get("description").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text}\n\n{hints}"),
        _ => hints,
    };
    node.insert("description".to_owned(), Value::from(description));
}

/// Merges `allOf` into its node, unless a member is a reference: closed, the members would exclude each other.
fn merge_all_of(node: &mut Map<String, Value>) {
    let Some(Value::Array(members)) = node.get("allOf") else { return };
    if !members.iter().all(|member| member.as_object().is_some_and(|member| !member.contains_key("$ref"))) {
        return;
    }
    let Some(Value::Array(members)) = node.shift_remove("allOf") else { return };
    for member in members {
        let Value::Object(mut member) = member else { continue };
        merge_all_of(&mut member);
        merge(node, member);
    }
}

fn is_object(node: &Map<String, Value>) -> bool {
    match node.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => false,
    }
}

/// Whether the subset allows an enumerated value.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().all(|value| !value.is_array() && !value.is_object()),
        Value::Object(_) => false,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Whether a reference leads back to a schema that contains it. Also true if following all references takes too many steps.
fn has_cycle(root: &Value) -> bool {
    let mut work = MAX_FOLLOWED_VALUES;
    // False while the references of a target are followed.
    let mut followed: HashMap<&str, bool> = HashMap::from([("#", false)]);
    let mut stack = vec![("#", references_of(root, "#", &mut work))];
    while let Some((target, open)) = stack.last_mut() {
        let Some(next) = open.pop() else {
            followed.insert(*target, true);
            stack.pop();
            continue;
        };
        match followed.get(next) {
            Some(true) => {}
            Some(false) => return true,
            None => {
                followed.insert(next, false);
                stack.push((next, references_of(root, next, &mut work)));
            }
        }
    }
    work == 0
}

fn references_of<'v>(root: &'v Value, target: &str, work: &mut usize) -> Vec<&'v str> {
    let mut found = Vec::new();
    if let Some(schema) = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) {
        references(schema, target != "#", &mut found, work);
    }
    found
}

/// Collects the references in a schema; definitions only count where they are referred to.
fn references<'v>(schema: &'v Value, inside: bool, found: &mut Vec<&'v str>, work: &mut usize) {
    if *work == 0 {
        return;
    }
    *work -= 1;
    match schema {
        Value::Object(object) => {
            for (key, value) in object {
                match (key.as_str(), value) {
                    ("$ref", Value::String(target)) => found.push(target),
                    ("$defs" | "definitions", Value::Object(_)) if !inside => {}
                    _ => references(value, true, found, work),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, true, found, work)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_object_disallows_additional_properties() {
        let closed = to_anthropic(&json!({
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": ["object", "null"]}}}},
                "c": {"anyOf": [{"type": "object"}, {"type": "null"}]},
                "type": {"properties": {"x": {"type": "string"}}, "additionalProperties": true}
            },
            "required": ["a"],
            "$defs": {"D": {"type": "object"}},
            "$schema": "https://json-schema.org/draft/2020-12/schema"
        }));
        let expected = json!({
            "type": "object",
            "properties": {
                "a": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"b": {"type": ["object", "null"], "properties": {}, "additionalProperties": false}},
                        "additionalProperties": false
                    }
                },
                "c": {"anyOf": [{"type": "object", "properties": {}, "additionalProperties": false}, {"type": "null"}]},
                "type": {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": false}
            },
            "required": ["a"],
            "$defs": {"D": {"type": "object", "properties": {}, "additionalProperties": false}},
            "additionalProperties": false
        });
        assert_eq!(closed.schema, expected);
        assert_eq!(closed.closed, [".properties.type.additionalProperties"]);
        assert!(closed.described.is_empty() && closed.refused.is_empty());
    }

    #[test]
    fn unsupported_keywords_move_into_the_description() {
        let closed = to_anthropic(&json!({
            "type": "object",
            "properties": {
                "age": {"type": "integer", "minimum": 0, "maximum": 150, "format": "int32", "description": "Years."},
                "name": {"type": "string", "minLength": 1, "format": "email"},
                "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
                "kind": {"enum": ["a", null, 1]}
            }
        }));
        let properties = &closed.schema["properties"];
        let age = json!({"type": "integer", "description": "Years.\n\n{minimum: 0, maximum: 150, format: \"int32\"}"});
        assert_eq!(properties["age"], age);
        assert_eq!(properties["name"], json!({"type": "string", "format": "email", "description": "{minLength: 1}"}));
        let tags = json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "{maxItems: 3}"});
        assert_eq!(properties["tags"], tags);
        assert_eq!(properties["kind"], json!({"enum": ["a", null, 1]}));
        assert_eq!(closed.described.len(), 5);
        assert!(closed.described.contains(&".properties.age.minimum".to_owned()), "{:?}", closed.described);
    }

    #[test]
    fn free_form_maps_and_recursive_references_are_refused() {
        let map = to_anthropic(&json!({"type": "object", "additionalProperties": {"type": "string"}}));
        assert_eq!(map.refused, [(".additionalProperties".to_owned(), "the upstream does not accept objects with free names")]);
        for recursive in [
            json!({"type": "object", "properties": {"child": {"$ref": "#"}}}),
            json!({"$ref": "#/$defs/A", "$defs": {"A": {"items": {"$ref": "#/$defs/B"}}, "B": {"anyOf": [{"$ref": "#/$defs/A"}]}}}),
        ] {
            assert_eq!(to_anthropic(&recursive).refused.len(), 1, "{recursive}");
        }
        let twice =
            json!({"properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}});
        assert!(to_anthropic(&twice).refused.is_empty());
    }

    #[test]
    fn all_of_parts_are_merged_into_one_object() {
        let parts = json!({"allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string"}}, "required": ["b"]}
        ]});
        let one = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "required": ["a", "b"], "additionalProperties": false});
        assert_eq!(to_anthropic(&parts).schema, one);
    }
}
