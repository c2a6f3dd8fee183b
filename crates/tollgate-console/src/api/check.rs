//! Checks what was sent against its description: unknown members are refused by name, wrong types and values with the
//! path of the member at fault.

use serde_json::{Map, Value};
use tollgate_core::Timestamp;

use super::shape::{Field, How, Object, Shape};
use crate::problem::Problem;

/// A request's body as an object of this description.
pub(crate) fn body(object: &Object, value: Value, how: How) -> Result<Map<String, Value>, Problem> {
    check_object(object, &value, how, "")?;
    if let Value::Object(members) = value { Ok(members) } else { Err(wrong_type("body", "an object")) }
}

fn wrong_type(path: &str, expected: &str) -> Problem {
    let message = match path {
        "" | "body" => return Problem::whole(format!("The request body must be {expected}.")),
        path => format!("Invalid type for '{path}': expected {expected}."),
    };
    Problem::invalid("invalid_type", path, message)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn check_object(object: &Object, value: &Value, how: How, path: &str) -> Result<(), Problem> {
    let Some(members) = value.as_object() else { return Err(wrong_type(path, "an object")) };
    for (name, value) in members {
        let at = join(path, name);
        let Some(field) = object.fields.iter().find(|field| field.name == name) else {
            return Err(unknown(object.fields, &at, name));
        };
        if !field.usage.is_written(how) {
            let message = if field.usage.is_written(How::New) {
                format!("'{at}' is fixed when the row is made and cannot be changed.")
            } else {
                format!("'{at}' is set by the gateway and cannot be sent.")
            };
            return Err(Problem::invalid("read_only_parameter", at, message));
        }
        check_field(field, value, &at)?;
    }
    match object.fields.iter().find(|field| field.usage.is_needed(how) && !members.contains_key(field.name)) {
        Some(missing) => {
            let at = join(path, missing.name);
            let message = format!("Missing required parameter: '{at}'.");
            Err(Problem::invalid("missing_required_parameter", at, message))
        }
        None => Ok(()),
    }
}

/// An unknown member, with what may be sent instead.
pub(crate) fn unknown(fields: &[Field], at: &str, name: &str) -> Problem {
    let shown: String = at.chars().filter(|c| !c.is_control()).take(100).collect();
    let near = fields.iter().find(|field| {
        let (a, b) = (field.name.to_ascii_lowercase(), name.to_ascii_lowercase());
        a.len().abs_diff(b.len()) <= 1 && (a.starts_with(&b) || b.starts_with(&a))
    });
    let hint = near.map_or_else(String::new, |field| format!(" Did you mean '{}'?", field.name));
    Problem::invalid("unknown_parameter", shown.clone(), format!("Unknown parameter: '{shown}'.{hint}"))
}

/// One member or parameter.
pub(crate) fn check_field(field: &Field, value: &Value, at: &str) -> Result<(), Problem> {
    if value.is_null() {
        return if field.nullable { Ok(()) } else { Err(wrong_type(at, &expected(&field.shape))) };
    }
    check(&field.shape, value, at)
}

fn check(shape: &Shape, value: &Value, at: &str) -> Result<(), Problem> {
    let of_type = |fits: bool| if fits { Ok(()) } else { Err(wrong_type(at, &expected(shape))) };
    match shape {
        Shape::Flag => of_type(value.is_boolean()),
        Shape::Number => of_type(value.is_number()),
        Shape::Any => of_type(value.is_object()),
        Shape::Whole { least, most } => {
            of_type(value.is_number())?;
            match value.as_i64() {
                Some(number) if (*least..=*most).contains(&number) => Ok(()),
                _ => Err(Problem::value(at, format_args!("expected {}", expected(shape)))),
            }
        }
        Shape::List { of, most } => {
            let Some(items) = value.as_array() else { return of_type(false) };
            if items.len() > *most {
                return Err(Problem::value(at, format_args!("more than {most} entries")));
            }
            items.iter().enumerate().try_for_each(|(i, item)| check(of, item, &format!("{at}[{i}]")))
        }
        Shape::Texts { most } => {
            let Some(members) = value.as_object() else { return of_type(false) };
            if members.len() > *most {
                return Err(Problem::value(at, format_args!("more than {most} entries")));
            }
            members.iter().try_for_each(|(name, value)| check(&super::shape::TEXT, value, &join(at, name)))
        }
        Shape::Of(object) => check_object(object, value, How::New, at),
        Shape::Id(_) | Shape::Text { .. } | Shape::Time | Shape::Decimal { .. } | Shape::Word(_) => {
            let Some(text) = value.as_str() else { return of_type(false) };
            if fits(shape, text) { Ok(()) } else { Err(Problem::value(at, format_args!("expected {}", expected(shape)))) }
        }
    }
}

/// Whether a text is one of this shape.
fn fits(shape: &Shape, text: &str) -> bool {
    match shape {
        Shape::Id(prefix) => text.strip_prefix(prefix).is_some_and(|rest| rest.len() == 26),
        Shape::Text { least, most } => {
            // Only long texts have lines.
            let lines = *most > 1_000;
            let bad = |c: char| c.is_control() && !(lines && matches!(c, '\n' | '\r' | '\t'));
            (*least..=*most).contains(&text.chars().count()) && !text.chars().any(bad)
        }
        Shape::Time => time(text).is_some(),
        Shape::Decimal { places, signed } => {
            let digits = if *signed { text.strip_prefix('-').unwrap_or(text) } else { text };
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
            let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            all_digits(whole) && all_digits(fraction) && fraction.len() <= *places as usize && whole.len() <= 19
        }
        Shape::Word(words) => words.contains(&text),
        Shape::Flag
        | Shape::Whole { .. }
        | Shape::Number
        | Shape::List { .. }
        | Shape::Texts { .. }
        | Shape::Of(_)
        | Shape::Any => false,
    }
}

/// A point in time as RFC 3339 says it.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|time| Timestamp(time.as_microsecond()))
}

/// What would have fitted.
fn expected(shape: &Shape) -> String {
    match shape {
        Shape::Id(prefix) => format!("an id that begins with '{prefix}'"),
        Shape::Text { least: 0, most } => format!("a text of at most {most} characters"),
        Shape::Text { least, most } => format!("a text of {least} to {most} characters"),
        Shape::Time => "a time such as \"2027-01-01T00:00:00Z\"".to_owned(),
        Shape::Flag => "true or false".to_owned(),
        Shape::Whole { least: i64::MIN, .. } => "a whole number of 64 bits".to_owned(),
        Shape::Whole { least, most } => format!("a whole number of {least} to {most}"),
        Shape::Decimal { places, .. } => format!("a decimal number in quotes with at most {places} decimals"),
        Shape::Number => "a number".to_owned(),
        Shape::Word(words) => format!("one of \"{}\"", words.join("\", \"")),
        Shape::List { .. } => "a list".to_owned(),
        Shape::Texts { .. } | Shape::Of(_) | Shape::Any => "an object".to_owned(),
    }
}

/// A query's parameters, each at most once, as their shapes read them.
pub(crate) fn query(fields: &[Field], text: &str) -> Result<Map<String, Value>, Problem> {
    let mut found = Map::new();
    for (name, value) in url_pairs(text) {
        let Some(field) = fields.iter().find(|field| field.name == name) else { return Err(unknown(fields, &name, &name)) };
        let number = value.parse::<i64>().ok().filter(|_| matches!(field.shape, Shape::Whole { .. }));
        let flag = value.parse::<bool>().ok().filter(|_| matches!(field.shape, Shape::Flag));
        let read = number.map(Value::from).or(flag.map(Value::from)).unwrap_or(Value::from(value));
        check_field(field, &read, field.name)?;
        if found.insert(name, read).is_some() {
            return Err(Problem::value(field.name, "it is sent twice"));
        }
    }
    match fields.iter().find(|field| field.usage.is_needed(How::New) && !found.contains_key(field.name)) {
        Some(missing) => {
            let message = format!("Missing required parameter: '{}'.", missing.name);
            Err(Problem::invalid("missing_required_parameter", missing.name, message))
        }
        None => Ok(found),
    }
}

/// `a=b&c=d`, decoded; what is not UTF-8 becomes the replacement character.
fn url_pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// Undoes the percent encoding of a query.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digit = |offset: usize| bytes.get(at + offset).and_then(|byte| char::from(*byte).to_digit(16));
        match (byte, digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).expect("two digits are a byte"));
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            (byte, ..) => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::shape::{COUNT, NAME, both, fixed, needed, read};

    static ITEM: Object = Object { name: "Item", fields: &[needed("amount", COUNT, "")] };
    static THING: Object = Object {
        name: "Thing",
        fields: &[
            fixed("name", NAME, ""),
            both("until", Shape::Time, "").or_null(),
            both("items", Shape::List { of: &Shape::Of(&ITEM), most: 2 }, ""),
            both("factor", Shape::Decimal { places: 6, signed: false }, ""),
            read("id", Shape::Id("key_"), ""),
        ],
    };

    fn fault(value: Value, how: How) -> String {
        match body(&THING, value, how) {
            Ok(_) => "fine".to_owned(),
            Err(problem) => format!("{problem:?}"),
        }
    }

    #[test]
    fn members_are_refused_by_name_and_path() {
        assert_eq!(fault(json!({"name": "a", "until": null, "items": [{"amount": 1}], "factor": "1.5"}), How::New), "fine");
        for (value, how, code, param) in [
            (json!({}), How::New, "missing_required_parameter", "name"),
            (json!({"name": "a", "nam": 1}), How::New, "unknown_parameter", "nam"),
            (json!({"name": "a", "id": "key_x"}), How::New, "read_only_parameter", "id"),
            (json!({"name": "a"}), How::Part, "read_only_parameter", "name"),
            (json!({"name": 1}), How::New, "invalid_type", "name"),
            (json!({"name": ""}), How::New, "invalid_value", "name"),
            (json!({"name": "a\nb\u{0}"}), How::New, "invalid_value", "name"),
            (json!({"until": "tomorrow"}), How::Part, "invalid_value", "until"),
            (json!({"items": null}), How::Part, "invalid_type", "items"),
            (json!({"items": [{"amount": -1}]}), How::Part, "invalid_value", "items[0].amount"),
            (json!({"items": [{"amount": 1e308}]}), How::Part, "invalid_value", "items[0].amount"),
            (json!({"items": [{"amount": 1, "x": 1}]}), How::Part, "unknown_parameter", "items[0].x"),
            (json!({"items": [{"amount": 1}, {}]}), How::Part, "missing_required_parameter", "items[1].amount"),
            (json!({"factor": "1.0000001"}), How::Part, "invalid_value", "factor"),
            (json!({"factor": "1e3"}), How::Part, "invalid_value", "factor"),
        ] {
            let fault = fault(value, how);
            assert!(fault.contains(&format!("\"{code}\"")) && fault.contains(&format!("Some(\"{param}\")")), "{fault}");
        }
        assert!(fault(json!([]), How::New).contains("must be an object"));
    }

    #[test]
    fn queries_are_read_once_and_by_shape() {
        static FIELDS: &[Field] = &[both("limit", Shape::Whole { least: 1, most: 1_000 }, ""), both("name", NAME, "")];
        assert_eq!(Value::Object(query(FIELDS, "limit=5&name=a%2Fb+c").unwrap()), json!({"limit": 5, "name": "a/b c"}));
        for bad in ["limit=0", "limit=1001", "limit=abc", "limit=1&limit=2", "page=1", "name=%00", "name="] {
            assert!(query(FIELDS, bad).is_err(), "{bad}");
        }
        assert_eq!(decode("%zz%4"), "%zz%4");
    }
}
