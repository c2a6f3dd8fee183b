//! Validation of request bodies and queries against their schema. Errors name the unknown field, or the path of the field
//! whose type or value is wrong.

use serde_json::{Map, Value};
use tollgate_store::fields::{
    Fault, FieldShape, Kind, Object, Problem, Row, WriteMode, assign, check_field, check_object, nearest,
};

use crate::api_error::ApiError;

/// Checks a request's body against its schema.
pub(crate) fn body(object: &Object, value: Value, mode: WriteMode) -> Result<Map<String, Value>, ApiError> {
    let Value::Object(members) = value else {
        return Err(ApiError::wrong_body("The request body must be an object.".to_owned()));
    };
    let mut problems = Vec::new();
    check_object(object, &members, mode, &mut Vec::new(), &mut problems);
    ApiError::first_of(problems.iter().map(refusal).collect())?;
    Ok(members)
}

/// Writes checked fields into a row; the others stay.
pub(crate) fn write<R: Row>(members: &Map<String, Value>, row: &mut R) -> Result<(), ApiError> {
    let mut problems = Vec::new();
    assign(row, members, &mut problems);
    ApiError::first_of(problems.iter().map(refusal).collect())
}

/// The error response for a problem.
pub(crate) fn refusal(problem: &Problem) -> ApiError {
    let at: String = problem.path_text().chars().filter(|c| !c.is_control()).take(100).collect();
    match &problem.fault {
        Fault::Unknown(instead) => {
            let message = format!("Unknown parameter: '{at}'.{}", sentence(instead));
            ApiError::invalid("unknown_parameter", at, message)
        }
        Fault::Missing => {
            let message = format!("Missing required parameter: '{at}'.");
            ApiError::invalid("missing_required_parameter", at, message)
        }
        Fault::CreateOnly => {
            let message = format!("'{at}' is fixed when the row is made and cannot be changed.");
            ApiError::invalid("read_only_parameter", at, message)
        }
        Fault::ReadOnly => {
            let message = format!("'{at}' is set by the gateway and cannot be sent.");
            ApiError::invalid("read_only_parameter", at, message)
        }
        Fault::Type { expected, .. } => {
            let expected = expected.replace("a table", "an object").replace("tables", "objects");
            let message = format!("Invalid type for '{at}': expected {expected}.");
            ApiError::invalid("invalid_type", at, message)
        }
        Fault::Value(message) => ApiError::value(&at, message),
    }
}

/// Turns `; did you mean 'rpm'?` into a sentence.
fn sentence(instead: &str) -> String {
    let Some(rest) = instead.strip_prefix("; ") else { return String::new() };
    let mut chars = rest.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    let end = if rest.ends_with('?') { "" } else { "." };
    format!(" {first}{}{end}", chars.as_str())
}

/// Parses a query and checks it against its schema; each parameter may occur once.
pub(crate) fn query(fields: &[FieldShape], text: &str) -> Result<Map<String, Value>, ApiError> {
    let mut found = Map::new();
    for (name, value) in url_pairs(text) {
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            let near = nearest(&name, fields.iter().map(|field| field.name));
            let hint = near.map_or_else(String::new, |name| format!(" Did you mean '{name}'?"));
            let shown: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
            return Err(ApiError::invalid("unknown_parameter", shown.clone(), format!("Unknown parameter: '{shown}'.{hint}")));
        };
        let number = value.parse::<i64>().ok().filter(|_| matches!(field.kind, Kind::Integer { .. }));
        let flag = value.parse::<bool>().ok().filter(|_| matches!(field.kind, Kind::Flag));
        let read = number.map(Value::from).or(flag.map(Value::from)).unwrap_or_else(|| Value::from(value.as_str()));
        let mut problems = Vec::new();
        let mut path = vec![tollgate_store::fields::Step::Member(name.clone())];
        check_field(field, &read, WriteMode::Create, &mut path, &mut problems);
        if let Some(problem) = problems.first() {
            return Err(refusal(&without_secret(problem, &value)));
        }
        if found.insert(name, read).is_some() {
            return Err(ApiError::value(field.name, "it is sent twice"));
        }
    }
    match fields.iter().find(|field| field.access.is_needed(WriteMode::Create) && !found.contains_key(field.name)) {
        Some(missing) => {
            let message = format!("Missing required parameter: '{}'.", missing.name);
            Err(ApiError::invalid("missing_required_parameter", missing.name, message))
        }
        None => Ok(found),
    }
}

/// Fewest characters of a service key.
const SHORTEST_KEY: usize = 16;

/// The problem without the value, if that is as long as a key: it may be one that was sent by mistake.
fn without_secret(problem: &Problem, value: &str) -> Problem {
    let mut problem = problem.clone();
    if let Fault::Value(message) = &mut problem.fault
        && value.chars().count() >= SHORTEST_KEY
    {
        *message = message.replace(&format!("'{value}'"), "the text").replace(value, "***");
    }
    problem
}

/// The decoded pairs of a query or form; invalid UTF-8 becomes the replacement character.
fn url_pairs(text: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use tollgate_store::fields::Access;

    use crate::api::schema::{COUNT, NAME, both, needed, read};

    static ITEM: Object = Object::of("Item", &[needed("amount", COUNT, "")]);
    static THING: Object = Object::of(
        "Thing",
        &[
            both("name", NAME, "").with(Access::Fixed),
            both("until", Kind::Time, "").or_null(),
            both("items", Kind::List { of: &Kind::Object(&ITEM), max: 2 }, ""),
            both("factor", Kind::Factor { max: i64::MAX }, ""),
            read("id", Kind::Id("key_"), ""),
        ],
    );

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
    fn query_parameters_are_validated_against_their_shapes_and_duplicates_are_refused() {
        static FIELDS: &[FieldShape] = &[both("limit", Kind::Integer { min: 1, max: 1_000 }, ""), both("name", NAME, "")];
        assert_eq!(Value::Object(query(FIELDS, "limit=5&name=a%2Fb+c").unwrap()), json!({"limit": 5, "name": "a/b c"}));
        for bad in ["limit=0", "limit=1001", "limit=abc", "limit=1&limit=2", "page=1", "name=%00", "name="] {
            assert!(query(FIELDS, bad).is_err(), "{bad}");
        }
        assert_eq!(url_pairs("name=%zz%4"), [("name".to_owned(), "%zz%4".to_owned())]);
    }
}
