//! Fields of a request as words of a command line, such as `rpm=60`, read by the description that checks the request.

use serde_json::{Map, Value};
use tollgate_store::fields::{FieldShape, Object, WriteMode, parse_text, unknown_member};

use super::{
    check,
    route::{RequestSchema, Route},
};

/// The fields that a request to this route may have.
pub(super) fn request_fields(route: &Route) -> impl Iterator<Item = &'static FieldShape> {
    let (fields, mode) = request_object(route).map_or((&[][..], WriteMode::Create), |(object, mode)| (object.fields, mode));
    fields.iter().filter(move |field| field.access.is_written(mode))
}

/// The request body out of `NAME=VALUE` words. The items of a list of plain values are separated by commas; nested values
/// take a short form (`budget=5/month`), inline TOML or JSON.
///
/// # Errors
/// A sentence that names the word at fault.
pub(super) fn parse(route: &Route, args: &[String]) -> Result<Map<String, Value>, String> {
    let (object, mode) = request_object(route).ok_or_else(|| format!("nothing can be set by {}.", route.id))?;
    let mut body = Map::new();
    for arg in args {
        let Some((name, text)) = arg.split_once('=') else {
            let example = object.fields.first().map_or("name", |field| field.name);
            return Err(format!("'{arg}' is not FIELD=VALUE, such as {example}=…."));
        };
        let field = object.field(name).filter(|field| field.access.is_written(WriteMode::Create));
        let field = field.ok_or_else(|| check::refusal(&unknown_member(object, name, mode)).message().to_owned())?;
        if body.insert(name.to_owned(), parse_text(field, text)?).is_some() {
            return Err(format!("'{name}' stands twice."));
        }
    }
    Ok(body)
}

/// The object a route takes as its body, and for what.
fn request_object(route: &Route) -> Option<(&'static Object, WriteMode)> {
    match route.request {
        RequestSchema::Body(object, mode) => Some((object, mode)),
        RequestSchema::Optional(object) => Some((object, WriteMode::Create)),
        RequestSchema::Empty => None,
    }
}
