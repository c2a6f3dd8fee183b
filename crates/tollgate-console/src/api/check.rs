//! Validation of request bodies and queries against their schema. Errors name the unknown field, or the path of the field
//! whose type or value is wrong.

use serde_json::{Map, Value};

use super::schema::{FieldSchema, ObjectSchema, ValueSchema, WriteMode};
use crate::{api_error::ApiError, time::parse_rfc3339};

/// Validates a request body.
pub(crate) fn body(object: &ObjectSchema, value: Value, mode: WriteMode) -> Result<Map<String, Value>, ApiError> {
    check_object(object, &value, mode, "")?;
    if let Value::Object(members) = value { Ok(members) } else { Err(wrong_type("body", "an object")) }
}

fn wrong_type(path: &str, expected: &str) -> ApiError {
    let message = match path {
        "" | "body" => return ApiError::wrong_body(format!("The request body must be {expected}.")),
        path => format!("Invalid type for '{path}': expected {expected}."),
    };
    ApiError::invalid("invalid_type", path, message)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn check_object(object: &ObjectSchema, value: &Value, mode: WriteMode, path: &str) -> Result<(), ApiError> {
    let Some(members) = value.as_object() else { return Err(wrong_type(path, "an object")) };
    for (name, value) in members {
        let at = join(path, name);
        let Some(field) = object.fields.iter().find(|field| field.name == name) else {
            return Err(unknown(object.fields, &at, name));
        };
        if !field.usage.is_written(mode) {
            let message = if field.usage.is_written(WriteMode::Create) {
                format!("'{at}' is fixed when the row is made and cannot be changed.")
            } else {
                format!("'{at}' is set by the gateway and cannot be sent.")
            };
            return Err(ApiError::invalid("read_only_parameter", at, message));
        }
        check_field(field, value, &at)?;
    }
    match object.fields.iter().find(|field| field.usage.is_needed(mode) && !members.contains_key(field.name)) {
        Some(missing) => {
            let at = join(path, missing.name);
            let message = format!("Missing required parameter: '{at}'.");
            Err(ApiError::invalid("missing_required_parameter", at, message))
        }
        None => Ok(()),
    }
}

/// Error for an unknown field, with a similar known one if there is one.
pub(crate) fn unknown(fields: &[FieldSchema], at: &str, name: &str) -> ApiError {
    let shown: String = at.chars().filter(|c| !c.is_control()).take(100).collect();
    let near = fields.iter().find(|field| {
        let (a, b) = (field.name.to_ascii_lowercase(), name.to_ascii_lowercase());
        a.len().abs_diff(b.len()) <= 1 && (a.starts_with(&b) || b.starts_with(&a))
    });
    let hint = near.map_or_else(String::new, |field| format!(" Did you mean '{}'?", field.name));
    ApiError::invalid("unknown_parameter", shown.clone(), format!("Unknown parameter: '{shown}'.{hint}"))
}

/// Validates one field or parameter.
pub(crate) fn check_field(field: &FieldSchema, value: &Value, at: &str) -> Result<(), ApiError> {
    if value.is_null() {
        return if field.nullable { Ok(()) } else { Err(wrong_type(at, &expected(&field.shape))) };
    }
    check(&field.shape, value, at)
}

fn check(shape: &ValueSchema, value: &Value, at: &str) -> Result<(), ApiError> {
    let of_type = |fits: bool| if fits { Ok(()) } else { Err(wrong_type(at, &expected(shape))) };
    match shape {
        ValueSchema::Boolean => of_type(value.is_boolean()),
        ValueSchema::Number => of_type(value.is_number()),
        ValueSchema::Any => of_type(value.is_object()),
        ValueSchema::Integer { least, most } => {
            of_type(value.is_number())?;
            match value.as_i64() {
                Some(number) if (*least..=*most).contains(&number) => Ok(()),
                _ => Err(ApiError::value(at, format_args!("expected {}", expected(shape)))),
            }
        }
        ValueSchema::List { of, most } => {
            let Some(items) = value.as_array() else { return of_type(false) };
            if items.len() > *most {
                return Err(ApiError::value(at, format_args!("more than {most} entries")));
            }
            items.iter().enumerate().try_for_each(|(i, item)| check(of, item, &format!("{at}[{i}]")))
        }
        ValueSchema::StringMap { most } => {
            let Some(members) = value.as_object() else { return of_type(false) };
            if members.len() > *most {
                return Err(ApiError::value(at, format_args!("more than {most} entries")));
            }
            members.iter().try_for_each(|(name, value)| check(&super::schema::TEXT, value, &join(at, name)))
        }
        ValueSchema::Object(object) => check_object(object, value, WriteMode::Create, at),
        ValueSchema::Id(_)
        | ValueSchema::String { .. }
        | ValueSchema::Time
        | ValueSchema::Decimal { .. }
        | ValueSchema::Enum(_) => {
            let Some(text) = value.as_str() else { return of_type(false) };
            if fits(shape, text) { Ok(()) } else { Err(ApiError::value(at, format_args!("expected {}", expected(shape)))) }
        }
    }
}

/// Whether a string matches the schema.
fn fits(shape: &ValueSchema, text: &str) -> bool {
    match shape {
        ValueSchema::Id(prefix) => text.strip_prefix(prefix).is_some_and(|rest| rest.len() == 26),
        ValueSchema::String { least, most } => {
            // Line breaks are allowed in long texts only.
            let multiline = *most > 1_000;
            let bad = |c: char| c.is_control() && !(multiline && matches!(c, '\n' | '\r' | '\t'));
            (*least..=*most).contains(&text.chars().count()) && !text.chars().any(bad)
        }
        ValueSchema::Time => parse_rfc3339(text).is_some(),
        ValueSchema::Decimal { places, signed } => {
            let digits = if *signed { text.strip_prefix('-').unwrap_or(text) } else { text };
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
            let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            all_digits(whole) && all_digits(fraction) && fraction.len() <= *places as usize && whole.len() <= 19
        }
        ValueSchema::Enum(words) => words.contains(&text),
        ValueSchema::Boolean
        | ValueSchema::Integer { .. }
        | ValueSchema::Number
        | ValueSchema::List { .. }
        | ValueSchema::StringMap { .. }
        | ValueSchema::Object(_)
        | ValueSchema::Any => false,
    }
}

/// The expected value in words.
fn expected(shape: &ValueSchema) -> String {
    match shape {
        ValueSchema::Id(prefix) => format!("an id that begins with '{prefix}'"),
        ValueSchema::String { least: 0, most } => format!("a text of at most {most} characters"),
        ValueSchema::String { least, most } => format!("a text of {least} to {most} characters"),
        ValueSchema::Time => "a time such as \"2027-01-01T00:00:00Z\"".to_owned(),
        ValueSchema::Boolean => "true or false".to_owned(),
        ValueSchema::Integer { least: i64::MIN, .. } => "a whole number of 64 bits".to_owned(),
        ValueSchema::Integer { least, most } => format!("a whole number of {least} to {most}"),
        ValueSchema::Decimal { places, .. } => format!("a decimal number in quotes with at most {places} decimals"),
        ValueSchema::Number => "a number".to_owned(),
        ValueSchema::Enum(words) => format!("one of \"{}\"", words.join("\", \"")),
        ValueSchema::List { .. } => "a list".to_owned(),
        ValueSchema::StringMap { .. } | ValueSchema::Object(_) | ValueSchema::Any => "an object".to_owned(),
    }
}

/// Parses and validates a query string; a parameter may occur once.
pub(crate) fn query(fields: &[FieldSchema], text: &str) -> Result<Map<String, Value>, ApiError> {
    let mut found = Map::new();
    for (name, value) in url_pairs(text) {
        let Some(field) = fields.iter().find(|field| field.name == name) else { return Err(unknown(fields, &name, &name)) };
        let number = value.parse::<i64>().ok().filter(|_| matches!(field.shape, ValueSchema::Integer { .. }));
        let flag = value.parse::<bool>().ok().filter(|_| matches!(field.shape, ValueSchema::Boolean));
        let read = number.map(Value::from).or(flag.map(Value::from)).unwrap_or(Value::from(value));
        check_field(field, &read, field.name)?;
        if found.insert(name, read).is_some() {
            return Err(ApiError::value(field.name, "it is sent twice"));
        }
    }
    match fields.iter().find(|field| field.usage.is_needed(WriteMode::Create) && !found.contains_key(field.name)) {
        Some(missing) => {
            let message = format!("Missing required parameter: '{}'.", missing.name);
            Err(ApiError::invalid("missing_required_parameter", missing.name, message))
        }
        None => Ok(found),
    }
}

/// The decoded pairs of a query or form; invalid UTF-8 becomes the replacement character.
fn url_pairs(text: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::schema::{COUNT, NAME, both, fixed, needed, read};

    static ITEM: ObjectSchema = ObjectSchema { name: "Item", fields: &[needed("amount", COUNT, "")] };
    static THING: ObjectSchema = ObjectSchema {
        name: "Thing",
        fields: &[
            fixed("name", NAME, ""),
            both("until", ValueSchema::Time, "").or_null(),
            both("items", ValueSchema::List { of: &ValueSchema::Object(&ITEM), most: 2 }, ""),
            both("factor", ValueSchema::Decimal { places: 6, signed: false }, ""),
            read("id", ValueSchema::Id("key_"), ""),
        ],
    };

    fn fault(value: Value, mode: WriteMode) -> String {
        match body(&THING, value, mode) {
            Ok(_) => "fine".to_owned(),
            Err(problem) => format!("{problem:?}"),
        }
    }

    #[test]
    fn errors_name_the_path_of_the_field() {
        assert_eq!(
            fault(json!({"name": "a", "until": null, "items": [{"amount": 1}], "factor": "1.5"}), WriteMode::Create),
            "fine"
        );
        for (value, mode, code, param) in [
            (json!({}), WriteMode::Create, "missing_required_parameter", "name"),
            (json!({"name": "a", "nam": 1}), WriteMode::Create, "unknown_parameter", "nam"),
            (json!({"name": "a", "id": "key_x"}), WriteMode::Create, "read_only_parameter", "id"),
            (json!({"name": "a"}), WriteMode::Update, "read_only_parameter", "name"),
            (json!({"name": 1}), WriteMode::Create, "invalid_type", "name"),
            (json!({"name": ""}), WriteMode::Create, "invalid_value", "name"),
            (json!({"name": "a\nb\u{0}"}), WriteMode::Create, "invalid_value", "name"),
            (json!({"until": "tomorrow"}), WriteMode::Update, "invalid_value", "until"),
            (json!({"items": null}), WriteMode::Update, "invalid_type", "items"),
            (json!({"items": [{"amount": -1}]}), WriteMode::Update, "invalid_value", "items[0].amount"),
            (json!({"items": [{"amount": 1e308}]}), WriteMode::Update, "invalid_value", "items[0].amount"),
            (json!({"items": [{"amount": 1, "x": 1}]}), WriteMode::Update, "unknown_parameter", "items[0].x"),
            (json!({"items": [{"amount": 1}, {}]}), WriteMode::Update, "missing_required_parameter", "items[1].amount"),
            (json!({"factor": "1.0000001"}), WriteMode::Update, "invalid_value", "factor"),
            (json!({"factor": "1e3"}), WriteMode::Update, "invalid_value", "factor"),
        ] {
            let fault = fault(value, mode);
            assert!(fault.contains(&format!("\"{code}\"")) && fault.contains(&format!("Some(\"{param}\")")), "{fault}");
        }
        assert!(fault(json!([]), WriteMode::Create).contains("must be an object"));
    }

    #[test]
    fn query_parameters_are_typed_and_unique() {
        static FIELDS: &[FieldSchema] =
            &[both("limit", ValueSchema::Integer { least: 1, most: 1_000 }, ""), both("name", NAME, "")];
        assert_eq!(Value::Object(query(FIELDS, "limit=5&name=a%2Fb+c").unwrap()), json!({"limit": 5, "name": "a/b c"}));
        for bad in ["limit=0", "limit=1001", "limit=abc", "limit=1&limit=2", "page=1", "name=%00", "name="] {
            assert!(query(FIELDS, bad).is_err(), "{bad}");
        }
        assert_eq!(url_pairs("name=%zz%4"), [("name".to_owned(), "%zz%4".to_owned())]);
    }
}
