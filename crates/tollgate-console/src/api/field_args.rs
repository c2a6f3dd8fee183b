//! Members of a request as words of a command line, such as `rpm=60`: read by the same description that checks the
//! request itself, so that a member added there can be written here at once.

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

/// The request body out of `NAME=VALUE` words. The items of a list of plain values are separated by commas; nested values
/// are JSON.
///
/// # Errors
/// A sentence that names the word at fault.
pub(super) fn parse(route: &Route, words: &[String]) -> Result<Map<String, Value>, String> {
    let (object, _) = request_object(route).ok_or_else(|| format!("nothing can be set by {}.", route.id))?;
    let mut body = Map::new();
    for word in words {
        let Some((name, text)) = word.split_once('=') else {
            let example = object.fields.first().map_or("name", |field| field.name);
            return Err(format!("'{word}' is not MEMBER=VALUE, such as {example}=…."));
        };
        let field = object.fields.iter().find(|field| field.name == name);
        let field = field.ok_or_else(|| check::unknown(object.fields, name, name).message().to_owned())?;
        if body.insert(name.to_owned(), read(field, text)?).is_some() {
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

fn read(field: &FieldSchema, text: &str) -> Result<Value, String> {
    if field.nullable && text == "null" {
        return Ok(Value::Null);
    }
    of_shape(&field.shape, text).ok_or_else(|| format!("'{}' takes JSON: {}", field.name, field.doc))
}

/// What does not fit stays a text: the check of the request says what was expected.
fn of_shape(shape: &ValueSchema, text: &str) -> Option<Value> {
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
            (false, of) => text.split(',').map(|part| of_shape(of, part.trim())).collect(),
        },
        ValueSchema::StringMap { .. } | ValueSchema::Object(_) | ValueSchema::Any => serde_json::from_str(text).ok(),
    }
}
