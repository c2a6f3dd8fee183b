//! Conversion between JSON Schema and Google's `Schema` subset. Property names are data: keyword rules never apply to them.

mod from_google;
mod to_anthropic;
mod to_google;

use serde_json::{Map, Value};

use super::Schema;
pub(crate) use to_anthropic::to_anthropic;
pub(crate) use to_google::to_google;

/// Keywords whose value is a schema.
const SCHEMA_KEYWORDS: [&str; 12] = [
    "items",
    "additionalProperties",
    "additionalItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contains",
    "propertyNames",
    "contentSchema",
    "not",
    "if",
    "then",
    "else",
];
/// Keywords whose value is a list of schemas.
const SCHEMA_LIST_KEYWORDS: [&str; 5] = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];
/// Keywords whose value maps names to schemas.
const SCHEMA_MAP_KEYWORDS: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

pub(crate) fn to_json(schema: &Schema) -> Value {
    match schema {
        Schema::Json(value) => value.clone(),
        Schema::Google(value) => from_google::from_google(value),
    }
}

/// Parameters of a function as OpenAI takes them: it refuses an object without `properties` at the root ("object schema missing
/// properties"), which tools without parameters have.
pub(crate) fn for_openai(schema: &Schema) -> Value {
    let mut schema = to_json(schema);
    if let Value::Object(root) = &mut schema
        && root.get("type").is_some_and(|kind| kind == "object")
        && !root.contains_key("properties")
    {
        root.insert("properties".to_owned(), Value::Object(Map::new()));
    }
    schema
}

/// Removes `anyOf`, `oneOf` and `allOf` from the root of a tool's parameters, where Anthropic refuses them (`input_schema does not
/// support oneOf, allOf, or anyOf at the top level`). The properties of their members become properties of the root. Properties
/// that a member requires stay required only for `allOf`. Returns the removed keywords.
pub(crate) fn without_root_choices(schema: &mut Value) -> Vec<&'static str> {
    let Value::Object(root) = schema else { return Vec::new() };
    let mut taken = Vec::new();
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let Some(members) = root.shift_remove(keyword) else { continue };
        taken.push(keyword);
        for member in members.as_array().into_iter().flatten() {
            let member = resolved(root, member).clone();
            add_to_root(root, &member, keyword == "allOf");
        }
    }
    taken
}

/// The schema that a reference within the root names.
fn resolved<'a>(root: &'a Map<String, Value>, member: &'a Value) -> &'a Value {
    let target = member.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix("#/"));
    let found = target.and_then(|path| path.split_once('/')).and_then(|(list, name)| root.get(list)?.get(name));
    found.unwrap_or(member)
}

fn add_to_root(root: &mut Map<String, Value>, member: &Value, is_required: bool) {
    let more = member.get("properties").and_then(Value::as_object);
    if let (Some(more), Value::Object(known)) = (more, root.entry("properties").or_insert_with(|| Value::Object(Map::new()))) {
        for (name, schema) in more {
            known.entry(name.clone()).or_insert_with(|| schema.clone());
        }
    }
    let Some(required) = member.get("required").and_then(Value::as_array).filter(|_| is_required) else { return };
    if let Value::Array(known) = root.entry("required").or_insert_with(|| Value::Array(Vec::new())) {
        for name in required {
            if !known.contains(name) {
                known.push(name.clone());
            }
        }
    }
}

/// JSON Schema as Gemini's `parametersJsonSchema` and `responseJsonSchema` accept it: no root `$schema`, `const` as an
/// `enum` of one value, and a type on a root with properties.
pub(crate) fn for_google_json(mut schema: Value) -> Value {
    if let Value::Object(root) = &mut schema {
        root.shift_remove("$schema");
        if root.contains_key("properties") && !root.contains_key("type") {
            root.insert("type".to_owned(), Value::from("object"));
        }
    }
    each_schema(&mut schema, &mut const_to_enum);
    schema
}

/// Calls `edit` on a schema and every nested schema.
fn each_schema(schema: &mut Value, edit: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Value::Object(object) = schema else { return };
    edit(object);
    for (keyword, value) in object.iter_mut() {
        let keyword = keyword.as_str();
        match value {
            Value::Object(_) if SCHEMA_KEYWORDS.contains(&keyword) => each_schema(value, edit),
            Value::Array(items) if SCHEMA_LIST_KEYWORDS.contains(&keyword) => {
                for item in items {
                    each_schema(item, edit);
                }
            }
            Value::Object(named) if SCHEMA_MAP_KEYWORDS.contains(&keyword) => {
                for item in named.values_mut() {
                    each_schema(item, edit);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }
}

fn const_to_enum(object: &mut Map<String, Value>) {
    let Some(index) = object.keys().position(|key| key == "const") else { return };
    if let Some(value) = object.shift_remove("const")
        && !object.contains_key("enum")
    {
        object.shift_insert(index, "enum".to_owned(), Value::Array(vec![value]));
    }
}

/// True for a parameter schema without parameters.
pub(crate) fn has_no_parameters(schema: &Value) -> bool {
    let Value::Object(object) = schema else { return schema.is_null() };
    let is_object = object.get("type").is_none_or(|kind| kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("object")));
    let no_properties = object.get("properties").is_none_or(|named| named.as_object().is_none_or(Map::is_empty));
    let adds_parameters = |key: &str| match key {
        "additionalProperties" => object.get(key).is_some_and(Value::is_object),
        _ => ["$ref", "anyOf", "oneOf", "allOf", "patternProperties", "enum", "const", "if"].contains(&key),
    };
    is_object && no_properties && !object.keys().any(|key| adds_parameters(key))
}

/// True when the root can only be an object.
pub(crate) fn root_is_object(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind.eq_ignore_ascii_case("object"),
        Some(_) => false,
        None => schema.is_object(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn const_becomes_enum_except_in_data() {
        let schema = json!({
            "$schema": "x",
            "properties": {"const": {"const": 1}, "a": {"items": [{"const": "v"}], "default": {"const": 2}}},
            "$defs": {"X": {"anyOf": [{"const": null}]}}
        });
        let expected = json!({
            "type": "object",
            "properties": {"const": {"enum": [1]}, "a": {"items": [{"enum": ["v"]}], "default": {"const": 2}}},
            "$defs": {"X": {"anyOf": [{"enum": [null]}]}}
        });
        assert_eq!(for_google_json(schema), expected);
    }

    #[test]
    fn object_without_properties_gets_empty_ones_for_openai() {
        let sent = |schema: Value| for_openai(&Schema::Json(schema));
        assert_eq!(sent(json!({"type": "object"})), json!({"type": "object", "properties": {}}));
        for as_it_is in [json!({"type": "object", "properties": {"a": {}}}), json!({"$ref": "#/$defs/X"}), json!({}), json!(true)] {
            assert_eq!(sent(as_it_is.clone()), as_it_is);
        }
    }

    #[test]
    fn choices_of_the_root_become_its_properties() {
        let mut schema = json!({
            "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
            "anyOf": [{"required": ["b"]}, {"properties": {"a": {}, "b": {"type": "number"}}}, {"$ref": "#/$defs/C"}],
            "allOf": [{"properties": {"d": {}}, "required": ["d", "a"]}], "$defs": {"C": {"properties": {"c": {}}}},
        });
        assert_eq!(without_root_choices(&mut schema), ["allOf", "anyOf"]);
        let expected = json!({
            "type": "object", "properties": {"a": {"type": "string"}, "d": {}, "b": {"type": "number"}, "c": {}},
            "required": ["a", "d"], "$defs": {"C": {"properties": {"c": {}}}},
        });
        assert_eq!(schema, expected);
        let mut nested = json!({"properties": {"a": {"anyOf": [{}]}}});
        assert!(without_root_choices(&mut nested).is_empty() && nested == json!({"properties": {"a": {"anyOf": [{}]}}}));
    }

    #[test]
    fn schema_with_additional_properties_or_a_reference_has_parameters() {
        assert!(has_no_parameters(&json!({"type": "object", "properties": {}, "additionalProperties": false})));
        assert!(has_no_parameters(&json!({})));
        assert!(!has_no_parameters(&json!({"type": "object", "additionalProperties": {"type": "string"}})));
        assert!(!has_no_parameters(&json!({"$ref": "#/$defs/X"})));
    }
}
