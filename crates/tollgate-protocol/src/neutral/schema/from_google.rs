//! Converts Google's `Schema` message to JSON Schema.

use serde_json::{Map, Value};

use crate::tree::same_proto_name;

/// `int64` members, which protobuf JSON may encode as strings.
const INT64_MEMBERS: [&str; 6] = ["minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"];

/// Members with a camelCase and a `snake_case` spelling.
const MULTI_WORD_MEMBERS: [&str; 9] = [
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "anyOf",
    "propertyOrdering",
    "additionalProperties",
];

pub(super) fn from_google(schema: &Value) -> Value {
    let Value::Object(object) = schema else { return schema.clone() };
    let mut out = Map::new();
    let (mut nullable, mut ordering) = (false, None);
    for (key, value) in object {
        let key = MULTI_WORD_MEMBERS.iter().find(|known| same_proto_name(key, known)).map_or(key.as_str(), |known| *known);
        match key {
            _ if value.is_null() && key != "default" && key != "example" => {}
            "nullable" => nullable = value == &Value::Bool(true),
            "propertyOrdering" => ordering = value.as_array().cloned(),
            "type" => {
                if let Some(kind) = type_name(value) {
                    out.insert("type".to_owned(), Value::from(kind));
                }
            }
            "items" => drop(out.insert(key.to_owned(), from_google(value))),
            "anyOf" => {
                let members = value.as_array().map(|items| items.iter().map(from_google).collect());
                out.insert(key.to_owned(), Value::Array(members.unwrap_or_default()));
            }
            "properties" => {
                let named = value.as_object().into_iter().flatten();
                out.insert(
                    key.to_owned(),
                    named.map(|(name, value)| (name.clone(), from_google(value))).collect::<Map<_, _>>().into(),
                );
            }
            "example" => drop(out.insert("examples".to_owned(), Value::Array(vec![value.clone()]))),
            "format" if value.as_str() == Some("enum") => {}
            _ if INT64_MEMBERS.contains(&key) => drop(out.insert(key.to_owned(), int64(value))),
            _ => drop(out.insert(key.to_owned(), value.clone())),
        }
    }
    if nullable {
        allow_null(&mut out);
    }
    if let Some(ordering) = ordering {
        order_properties(&mut out, &ordering);
    }
    Value::Object(out)
}

/// JSON Schema type of a protobuf enum value, given as a name in any case or as a number.
fn type_name(value: &Value) -> Option<String> {
    const BY_NUMBER: [&str; 8] = ["", "string", "number", "integer", "boolean", "array", "object", "null"];
    let name = match value {
        Value::Number(number) => (*BY_NUMBER.get(usize::try_from(number.as_u64()?).ok()?)?).to_owned(),
        Value::String(name) => name.to_ascii_lowercase(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (!name.is_empty() && name != "type_unspecified").then_some(name)
}

fn int64(value: &Value) -> Value {
    value.as_str().and_then(crate::tree::whole).map_or_else(|| value.clone(), Value::from)
}

fn allow_null(out: &mut Map<String, Value>) {
    if let Some(kind) = out.get_mut("type") {
        *kind = Value::Array(vec![kind.take(), Value::from("null")]);
    } else if let Some(Value::Array(members)) = out.get_mut("anyOf") {
        members.push(serde_json::json!({"type": "null"}));
    }
    if let Some(Value::Array(values)) = out.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}

fn order_properties(out: &mut Map<String, Value>, ordering: &[Value]) {
    let Some(Value::Object(named)) = out.get_mut("properties") else { return };
    let mut ordered = Map::new();
    for name in ordering.iter().filter_map(Value::as_str) {
        if let Some(value) = named.shift_remove(name) {
            ordered.insert(name.to_owned(), value);
        }
    }
    ordered.append(named);
    *named = ordered;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn google_schema_becomes_json_schema() {
        let schema = json!({
            "type": "OBJECT", "property_ordering": ["b"],
            "properties": {
                "a": {"type": "string", "nullable": true, "enum": ["x"], "format": "enum", "example": 1},
                "b": {"type": "ARRAY", "min_items": "2", "items": {"type": 3}},
                "nullable": {"anyOf": [{"type": "NUMBER"}], "nullable": true}
            }
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "b": {"type": "array", "minItems": 2, "items": {"type": "integer"}},
                "a": {"type": ["string", "null"], "enum": ["x", null], "examples": [1]},
                "nullable": {"anyOf": [{"type": "number"}, {"type": "null"}]}
            }
        });
        let converted = from_google(&schema);
        assert_eq!(converted.to_string(), expected.to_string(), "property order is preserved");
    }
}
