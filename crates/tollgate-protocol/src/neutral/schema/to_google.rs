//! Converts JSON Schema to Google's `Schema` message, for models without the JSON Schema members.

use serde_json::{Map, Value};

/// Members of the message. All others are dropped.
const SUPPORTED_MEMBERS: [&str; 20] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "anyOf",
    "default",
];
const SUPPORTED_FORMATS: [&str; 6] = ["enum", "date-time", "int32", "int64", "float", "double"];

/// Maximum nesting of references and members; deeper schemas become bare objects.
const MAX_DEPTH: usize = 64;

/// Maximum number of schemas in the output. Further ones, from multiplying references or unions, become bare objects.
const MAX_NODES: usize = 20_000;

/// Approximate maximum size of the text that references and unions may copy, in bytes. Further copies become bare objects.
const MAX_COPIED_BYTES: usize = 8 << 20;

/// Converts a schema; local references are resolved against it.
pub(crate) fn to_google(schema: &Value) -> Value {
    Lowering { root: schema, path: Vec::new(), nodes: MAX_NODES, copy_bytes: MAX_COPIED_BYTES }.lower(schema.clone())
}

struct Lowering<'a> {
    root: &'a Value,
    /// References being resolved, and an empty entry for each level of members.
    path: Vec<String>,
    nodes: usize,
    /// Remaining bytes that may be copied.
    copy_bytes: usize,
}

fn bare_object() -> Value {
    serde_json::json!({"type": "OBJECT"})
}

/// Approximate text size of a value in bytes; counting stops beyond `limit`.
fn text_size(value: &Value, limit: usize) -> usize {
    let mut sum = 8_usize;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => sum += text.len(),
        Value::Array(items) => {
            for item in items {
                if sum > limit {
                    break;
                }
                sum += text_size(item, limit - sum);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                sum += name.len();
                if sum > limit {
                    break;
                }
                sum += text_size(member, limit - sum);
            }
        }
    }
    sum
}

impl<'a> Lowering<'a> {
    fn lower(&mut self, schema: Value) -> Value {
        let Value::Object(mut node) = schema else { return Value::Object(Map::new()) };
        if self.nodes == 0 || self.path.len() > MAX_DEPTH {
            return bare_object();
        }
        self.nodes -= 1;
        if let Some(Value::String(reference)) = node.get("$ref").cloned() {
            return self.resolve(&reference, node);
        }
        self.merge_all_of(&mut node);
        if let Some(members) = node.shift_remove("oneOf") {
            node.entry("anyOf").or_insert(members);
        }
        if let Some(value) = node.shift_remove("const") {
            node.entry("enum").or_insert(Value::Array(vec![value]));
        }
        let mut nullable = node.get("nullable") == Some(&Value::Bool(true));
        self.split_types(&mut node, &mut nullable);
        self.path.push(String::new());
        let out = self.write(node, nullable);
        self.path.pop();
        out
    }

    /// Charges `times` copies of a value to the copy budget. Once a copy exceeds it, the budget is zero and nothing more is
    /// copied.
    fn charge_copies(&mut self, value: &Value, times: usize) -> bool {
        let size = text_size(value, self.copy_bytes).saturating_mul(times);
        let fits = size <= self.copy_bytes;
        self.copy_bytes = if fits { self.copy_bytes - size } else { 0 };
        fits
    }

    /// The target of a local reference; `None` for an external one, a cycle, or an exhausted copy budget.
    fn reference_target(&mut self, reference: &str) -> Option<Map<String, Value>> {
        let root: &'a Value = self.root;
        let found = root.pointer(reference.strip_prefix('#')?)?;
        if self.path.iter().any(|resolving| resolving == reference) || !self.charge_copies(found, 1) {
            return None;
        }
        found.as_object().cloned()
    }

    /// Replaces a local reference by its target, overlaid with the sibling members. Cycles become a bare object.
    fn resolve(&mut self, reference: &str, siblings: Map<String, Value>) -> Value {
        let Some(mut merged) = self.reference_target(reference) else {
            let mut bare = bare_object();
            if siblings.get("nullable") == Some(&Value::Bool(true)) {
                bare["nullable"] = Value::from(true);
            }
            return bare;
        };
        merged.extend(siblings.into_iter().filter(|(key, _)| key != "$ref"));
        self.path.push(reference.to_owned());
        let out = self.lower(Value::Object(merged));
        self.path.pop();
        out
    }

    fn merge_all_of(&mut self, node: &mut Map<String, Value>) {
        let Some(Value::Array(members)) = node.shift_remove("allOf") else { return };
        for member in members {
            let Value::Object(mut member) = member else { continue };
            let reference = member.get("$ref").and_then(Value::as_str).map(str::to_owned);
            if let Some(reference) = &reference {
                member = self.reference_target(reference).unwrap_or_default();
            }
            if self.nodes == 0 || self.path.len() > MAX_DEPTH {
                return;
            }
            self.nodes -= 1;
            self.path.push(reference.unwrap_or_default());
            self.merge_all_of(&mut member);
            self.path.pop();
            merge(node, member);
        }
    }

    fn write(&mut self, mut node: Map<String, Value>, mut nullable: bool) -> Value {
        if let Some(Value::Array(members)) = node.shift_remove("anyOf") {
            let (nulls, mut others): (Vec<Value>, Vec<Value>) =
                members.into_iter().partition(|member| member.get("type") == Some(&Value::from("null")));
            nullable |= !nulls.is_empty();
            match others.len() {
                0 => {}
                1 => {
                    let Value::Object(only) = others.remove(0) else { return bare_object() };
                    merge(&mut node, only);
                    if nullable {
                        node.insert("nullable".to_owned(), Value::Bool(true));
                    }
                    return self.lower(Value::Object(node));
                }
                _ => return self.alternatives(&node, others, nullable),
            }
        }
        write_enum(&mut node, &mut nullable);
        self.write_members(node, nullable)
    }

    /// Splits a list of types: `null` becomes `nullable`, several other types become `anyOf` members.
    fn split_types(&mut self, node: &mut Map<String, Value>, nullable: &mut bool) {
        let Some(Value::Array(types)) = node.get("type") else { return };
        *nullable |= types.iter().any(|kind| kind == "null");
        let known = ["string", "number", "integer", "boolean", "array", "object"];
        let kinds: Vec<&str> = known.into_iter().filter(|known| types.iter().any(|kind| kind == known)).collect();
        node.shift_remove("type");
        match kinds.as_slice() {
            [] => {}
            [only] => drop(node.insert("type".to_owned(), Value::from(*only))),
            several => {
                let is_annotation = |key: &String| matches!(key.as_str(), "title" | "description");
                let (annotations, rest): (Map<_, _>, Map<_, _>) =
                    std::mem::take(node).into_iter().partition(|(key, _)| is_annotation(key));
                *node = annotations;
                let rest = Value::Object(rest);
                let copies = if self.charge_copies(&rest, several.len()) { rest } else { Value::Object(Map::new()) };
                let member = |kind: &&str| {
                    let mut member = copies.clone();
                    member["type"] = Value::from(*kind);
                    member
                };
                node.insert("anyOf".to_owned(), several.iter().map(member).collect());
            }
        }
    }

    /// Builds a node of `anyOf` alone, as the message requires; annotations of the node move into each member.
    fn alternatives(&mut self, node: &Map<String, Value>, members: Vec<Value>, nullable: bool) -> Value {
        let mut lowered = Vec::with_capacity(members.len());
        for member in members {
            let mut member = self.lower(member);
            if let Value::Object(object) = &mut member {
                for key in ["title", "description"] {
                    if let (Some(text), false) = (node.get(key), object.contains_key(key))
                        && self.charge_copies(text, 1)
                    {
                        object.insert(key.to_owned(), text.clone());
                    }
                }
                if nullable {
                    object.insert("nullable".to_owned(), Value::Bool(true));
                }
            }
            lowered.push(member);
        }
        Value::Object(Map::from_iter([("anyOf".to_owned(), Value::Array(lowered))]))
    }

    fn write_members(&mut self, node: Map<String, Value>, nullable: bool) -> Value {
        let kind = node.get("type").and_then(Value::as_str).map(str::to_ascii_lowercase).or_else(|| inferred_type(&node));
        let mut out = Map::new();
        if let Some(kind) = &kind {
            out.insert("type".to_owned(), Value::from(kind.to_ascii_uppercase()));
        }
        for (key, value) in node {
            match key.as_str() {
                "type" | "nullable" => {}
                "properties" => {
                    let Value::Object(named) = value else { continue };
                    let named: Map<String, Value> = named.into_iter().map(|(name, member)| (name, self.lower(member))).collect();
                    out.insert(key, Value::Object(named));
                }
                "items" => drop(out.insert(key, self.lower(value))),
                "format" if !value.as_str().is_some_and(|format| SUPPORTED_FORMATS.contains(&format)) => {}
                "default" if value.is_null() => {}
                known if SUPPORTED_MEMBERS.contains(&known) => drop(out.insert(key, value)),
                _ => {}
            }
        }
        if kind.as_deref() == Some("array") && out.get("items").is_none_or(|items| items.as_object().is_none_or(Map::is_empty)) {
            out.insert("items".to_owned(), serde_json::json!({"type": "STRING"}));
        }
        keep_known_required(&mut out);
        if nullable {
            out.insert("nullable".to_owned(), Value::Bool(true));
        }
        Value::Object(out)
    }
}

/// Merges `from` into `into`: properties and required names are united, other members of `into` take precedence.
pub(super) fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => {
                for (name, member) in more {
                    known.entry(name).or_insert(member);
                }
            }
            (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                known.extend(more.into_iter().filter(|name| !known.contains(name)).collect::<Vec<_>>());
            }
            (Some(_), _) => {}
            (None, value) => drop(into.insert(key, value)),
        }
    }
}

/// Writes an enumeration. The message allows strings only; other values are listed in the description.
fn write_enum(node: &mut Map<String, Value>, nullable: &mut bool) {
    let Some(Value::Array(mut values)) = node.shift_remove("enum") else { return };
    let before = values.len();
    values.retain(|value| !value.is_null());
    *nullable |= values.len() < before;
    if values.is_empty() {
        return;
    }
    if values.iter().all(Value::is_string) {
        node.insert("type".to_owned(), Value::from("string"));
        node.insert("enum".to_owned(), Value::Array(values));
        return;
    }
    let listed = format!("One of: {}", values.iter().map(Value::to_string).collect::<Vec<_>>().join(", "));
    let description = match node.get("description").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text} {listed}"),
        _ => listed,
    };
    let kind = if values.iter().all(|value| value.is_i64() || value.is_u64()) {
        Some("integer")
    } else if values.iter().all(Value::is_number) {
        Some("number")
    } else if values.iter().all(Value::is_boolean) {
        Some("boolean")
    } else {
        None
    };
    if let (Some(kind), false) = (kind, node.contains_key("type")) {
        node.insert("type".to_owned(), Value::from(kind));
    }
    node.insert("description".to_owned(), Value::from(description));
}

fn inferred_type(node: &Map<String, Value>) -> Option<String> {
    let kind = if node.contains_key("properties") {
        "object"
    } else if node.contains_key("items") {
        "array"
    } else {
        return None;
    };
    Some(kind.to_owned())
}

/// Removes required names that are not properties; Gemini rejects them.
fn keep_known_required(out: &mut Map<String, Value>) {
    let Some(Value::Array(names)) = out.get("required") else { return };
    let known = out.get("properties").and_then(Value::as_object);
    let kept: Vec<Value> = names
        .iter()
        .filter(|name| name.as_str().is_some_and(|name| known.is_some_and(|known| known.contains_key(name))))
        .cloned()
        .collect();
    if kept.is_empty() {
        out.shift_remove("required");
    } else {
        out.insert("required".to_owned(), Value::Array(kept));
    }
}

#[cfg(test)]
mod tests;
