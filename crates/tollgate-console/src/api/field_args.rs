//! Members of a request as words of a command line, such as `rpm=60`: read by the same description that checks the
//! request itself, so that a member added there can be written here at once.

use serde_json::{Map, Value};

use super::{
    check,
    route::{RequestSchema, Route},
    routes,
    schema::{FieldSchema, ValueSchema, WriteMode},
};

/// The members that the route of this name takes, each with what it is.
#[must_use]
pub fn route_fields(route: &str) -> Vec<(&'static str, &'static str)> {
    let Some((fields, how)) = taken(route) else { return Vec::new() };
    fields.iter().filter(|field| field.usage.is_written(how)).map(|field| (field.name, field.doc)).collect()
}

/// The body that the route of this name takes, out of `member=value` words. Lists of words have commas between; what is
/// nested is JSON.
///
/// # Errors
/// A sentence that names the word at fault.
pub fn parse_field_args(route: &str, words: &[String]) -> Result<Map<String, Value>, String> {
    let (fields, _) = taken(route).ok_or_else(|| format!("nothing can be set by {route}."))?;
    let mut body = Map::new();
    for word in words {
        let Some((name, text)) = word.split_once('=') else {
            return Err(format!("'{word}' is not MEMBER=VALUE, such as {}=….", fields.first().map_or("name", |field| field.name)));
        };
        let field = fields.iter().find(|field| field.name == name);
        let field = field.ok_or_else(|| check::unknown(fields, name, name).message().to_owned())?;
        if body.insert(name.to_owned(), read(field, text)?).is_some() {
            return Err(format!("'{name}' stands twice."));
        }
    }
    Ok(body)
}

fn taken(route: &str) -> Option<(&'static [FieldSchema], WriteMode)> {
    let found: Option<&'static Route> = routes().find(|known| known.id == route);
    match found?.request {
        RequestSchema::Body(object, how) => Some((object.fields, how)),
        RequestSchema::Optional(object) => Some((object.fields, WriteMode::Create)),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(route: &str, words: &[&str]) -> Result<Value, String> {
        parse_field_args(route, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).map(Value::Object)
    }

    #[test]
    fn words_are_read_by_the_description_of_the_request() {
        let words =
            ["sale_multiplier=1.5", "rpm=60", "channels=a, b", "models=", "trace=true", "price_limit=null", "visibility=private"];
        let expected = json!({
            "sale_multiplier": "1.5", "rpm": 60, "channels": ["a", "b"], "models": [], "trace": true, "price_limit": null,
            "visibility": "private",
        });
        assert_eq!(of("change_group", &words), Ok(expected));
        let nested = r#"price=[{"input_usd":"1"}]"#;
        assert_eq!(of("change_model", &[nested]), Ok(json!({"price": [{"input_usd": "1"}]})));
        assert_eq!(of("change_channel", &[r#"headers={"x-a":"1"}"#]), Ok(json!({"headers": {"x-a": "1"}})));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert!(of("change_group", &["rpms=1"]).unwrap_err().contains("Did you mean 'rpm'"));
        assert!(of("change_group", &["rpm"]).unwrap_err().contains("MEMBER=VALUE"));
        assert!(of("change_group", &["rpm=1", "rpm=2"]).unwrap_err().contains("twice"));
        assert!(of("change_model", &["price=cheap"]).unwrap_err().contains("takes JSON"));
        assert_eq!(of("change_group", &["rpm=many"]), Ok(json!({"rpm": "many"})), "the check of the request says what it takes");
        assert!(route_fields("change_group").iter().any(|(name, _)| *name == "rpm"));
        assert!(!route_fields("change_group").iter().any(|(name, _)| *name == "id" || *name == "name"));
    }
}
