//! Tests of the conversion with schemas that occur in practice, and of its bounds.

use serde_json::json;

use super::*;

fn check(schema: &Value, expected: &Value) {
    assert_eq!(&to_google(schema), expected, "{schema}");
}

#[test]
fn references_are_inlined_and_cycles_end() {
    let schema = json!({
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "x": {"$ref": "#/$defs/X", "description": "d"}, "y": {"$ref": "http://x"}},
        "$defs": {"X": {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}}}
    });
    let got = to_google(&schema);
    assert_eq!(got["properties"]["x"], json!({"type": "OBJECT", "description": "d", "properties": {"x": {"type": "OBJECT"}}}));
    assert_eq!(got["properties"]["next"]["properties"]["next"], json!({"type": "OBJECT"}));
    assert_eq!(got["properties"]["y"], json!({"type": "OBJECT"}));
    assert!(got.get("$defs").is_none());
}

#[test]
fn recursive_reference_beside_null_stays_nullable() {
    let schema = json!({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}});
    let next = &to_google(&schema)["properties"]["next"];
    assert_eq!((&next["type"], &next["nullable"]), (&json!("OBJECT"), &json!(true)));
    assert_eq!(next["properties"]["next"], json!({"type": "OBJECT", "nullable": true}));
}

#[test]
fn property_names_are_not_treated_as_keywords() {
    check(
        &json!({"type": "object", "properties": {"const": {"type": "string", "const": "a"}, "format": {"type": "number"}}, "required": ["const", "gone"]}),
        &json!({"type": "OBJECT", "properties": {"const": {"type": "STRING", "enum": ["a"]}, "format": {"type": "NUMBER"}}, "required": ["const"]}),
    );
}

#[test]
fn unions_become_any_of_and_null_becomes_nullable() {
    check(
        &json!({"type": ["string", "integer", "null"], "description": "d"}),
        &json!({"anyOf": [{"type": "STRING", "description": "d", "nullable": true}, {"type": "INTEGER", "description": "d", "nullable": true}]}),
    );
    check(
        &json!({"oneOf": [{"type": "string"}, {"type": "null"}], "title": "t"}),
        &json!({"type": "STRING", "title": "t", "nullable": true}),
    );
}

#[test]
fn all_of_is_merged() {
    check(
        &json!({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"type": "array", "items": {}}}, "required": ["b"]}]}),
        &json!({"type": "OBJECT", "properties": {"a": {"type": "STRING"}, "b": {"type": "ARRAY", "items": {"type": "STRING"}}}, "required": ["a", "b"]}),
    );
}

#[test]
fn multiplying_references_are_bounded() {
    let mut defs = Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/L{}", level + 1)});
        defs.insert(format!("L{level}"), json!({"type": "object", "properties": {"a": next.clone(), "b": next}}));
    }
    let schema = json!({"$ref": "#/$defs/L0", "$defs": defs});
    assert!(to_google(&schema).to_string().len() < 4_000_000);
}

#[test]
fn cyclic_all_of_references_terminate() {
    let schema = json!({"$ref": "#/$defs/A", "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "type": "object"}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}}});
    assert_eq!(to_google(&schema)["type"], "OBJECT");
}

#[test]
fn nested_unions_are_bounded() {
    let mut schema = json!({"type": "string"});
    for _ in 0..50 {
        schema =
            json!({"type": ["string", "number", "integer", "boolean", "object"], "properties": {"a": schema.clone(), "b": schema}});
        if schema.to_string().len() > 100_000 {
            break;
        }
    }
    assert!(to_google(&schema).to_string().len() < 8_000_000);
}

#[test]
fn copies_of_a_large_definition_are_bounded() {
    let text = "x".repeat(1 << 20);
    let uses: Map<String, Value> = (0..1_000).map(|number| (format!("p{number}"), json!({"$ref": "#/$defs/T"}))).collect();
    let schema = json!({"type": "object", "properties": uses, "$defs": {"T": {"type": "string", "description": text}}});
    assert!(to_google(&schema).to_string().len() < 16 << 20);
}
