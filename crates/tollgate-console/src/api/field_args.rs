//! `NAME=VALUE` arguments of the command line, such as `rpm=60`, parsed by the schema that also validates the request.

use serde_json::{Map, Value};

use super::{
    check,
    route::{RequestSchema, Route},
    schema::{FieldSchema, ObjectSchema, ValueSchema, WriteMode},
};

/// The fields that a request to this route may have.
pub(super) fn request_fields(route: &Route) -> impl Iterator<Item = &'static FieldSchema> {
    let (fields, mode) = request_object(route).map_or((&[][..], WriteMode::Create), |(object, mode)| (object.fields, mode));
    fields.iter().filter(move |field| field.usage.is_written(mode))
}

/// The request body from `NAME=VALUE` arguments. The items of a list of plain values are separated by commas; nested values
/// are JSON.
///
/// # Errors
/// A sentence that names the invalid argument.
pub(super) fn parse(route: &Route, args: &[String]) -> Result<Map<String, Value>, String> {
    let (object, _) = request_object(route).ok_or_else(|| format!("nothing can be set by {}.", route.id))?;
    let mut body = Map::new();
    for arg in args {
        let Some((name, text)) = arg.split_once('=') else {
            let example = object.fields.first().map_or("name", |field| field.name);
            return Err(format!("'{arg}' is not MEMBER=VALUE, such as {example}=…."));
        };
        let field = object.fields.iter().find(|field| field.name == name);
        let field = field.ok_or_else(|| check::unknown(object.fields, name, name).message().to_owned())?;
        if body.insert(name.to_owned(), parse_field(field, text)?).is_some() {
            return Err(format!("'{name}' stands twice."));
        }
    }
    Ok(body)
}

/// The object a route takes as its body, and for what.
fn request_object(route: &Route) -> Option<(&'static ObjectSchema, WriteMode)> {
    match route.request {
        RequestSchema::Body(object, mode) => Some((object, mode)),
        RequestSchema::Optional(object) => Some((object, WriteMode::Create)),
        RequestSchema::Empty => None,
    }
}

fn parse_field(field: &FieldSchema, text: &str) -> Result<Value, String> {
    if field.nullable && text == "null" {
        return Ok(Value::Null);
    }
    parse_value(&field.shape, text).ok_or_else(|| format!("'{}' takes JSON: {}", field.name, field.doc))
}

/// A value that does not match the schema stays a string: validation of the request reports what was expected.
fn parse_value(shape: &ValueSchema, text: &str) -> Option<Value> {
    match shape {
        ValueSchema::Id(_)
        | ValueSchema::String { .. }
        | ValueSchema::Time
        | ValueSchema::Decimal { .. }
        | ValueSchema::Enum(_) => Some(text.into()),
        ValueSchema::Integer { .. } | ValueSchema::Boolean | ValueSchema::Number => {
            Some(match serde_json::from_str::<Value>(text) {
                Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
                Ok(_) | Err(_) => text.into(),
            })
        }
        ValueSchema::List { of, .. } => match (text.trim_start().starts_with('['), of) {
            (true, _) => serde_json::from_str(text).ok(),
            (false, ValueSchema::Object(_) | ValueSchema::Any | ValueSchema::StringMap { .. } | ValueSchema::List { .. }) => None,
            (false, _) if text.is_empty() => Some(Value::Array(Vec::new())),
            (false, of) => text.split(',').map(|part| parse_value(of, part.trim())).collect(),
        },
        ValueSchema::StringMap { .. } | ValueSchema::Object(_) | ValueSchema::Any => serde_json::from_str(text).ok(),
    }
}
