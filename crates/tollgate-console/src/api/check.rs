//! Validation of request bodies and queries against their schema. Errors name the unknown field, or the path of the field
//! whose type or value is wrong.

use serde_json::{Map, Value};
use tollgate_store::fields::{
    Fault, FieldShape, Kind, Object, Problem, Row, Step, WriteMode, assign, check_field, check_object, nearest,
};

use crate::api_error::{ApiError, NumberRange};

/// Checks a request's body against its schema.
pub(crate) fn body(object: &Object, value: Value, mode: WriteMode) -> Result<Map<String, Value>, ApiError> {
    let Value::Object(members) = value else {
        return Err(ApiError::wrong_body("The request body must be an object.".to_owned()));
    };
    let mut problems = Vec::new();
    check_object(object, &members, mode, &mut Vec::new(), &mut problems);
    let faults = problems.iter().map(|problem| refusal(problem).within(range_at(object, &problem.path)));
    ApiError::first_of(faults.collect())?;
    Ok(members)
}

/// The numbers that the value at a path may be.
fn range_at(object: &Object, path: &[Step]) -> Option<NumberRange> {
    let Some((Step::Member(name), rest)) = path.split_first() else { return None };
    let kind = rest.iter().try_fold(object.field(name)?.kind, |kind, step| match (kind, step) {
        (Kind::Object(of) | Kind::OneOrMore { of, .. }, Step::Member(name)) => Some(of.field(name)?.kind),
        (Kind::List { of, .. }, Step::Item(_)) => Some(*of),
        (Kind::OneOrMore { .. }, Step::Item(_)) => Some(kind),
        _ => None,
    });
    NumberRange::of(&kind?)
}

/// Writes checked fields into a row; other fields are unchanged.
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
    let (mut found, mut faults) = (Map::new(), Vec::new());
    for (name, value) in url_pairs(text) {
        if faults.len() >= MAX_FAULTS {
            break;
        }
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            let near = nearest(&name, fields.iter().map(|field| field.name));
            let hint = near.map_or_else(String::new, |name| format!(" Did you mean '{name}'?"));
            let shown: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
            faults.push(ApiError::invalid("unknown_parameter", shown.clone(), format!("Unknown parameter: '{shown}'.{hint}")));
            continue;
        };
        let number = value.parse::<i64>().ok().filter(|_| matches!(field.kind, Kind::Integer { .. }));
        let flag = value.parse::<bool>().ok().filter(|_| matches!(field.kind, Kind::Flag));
        let read = number.map(Value::from).or(flag.map(Value::from)).unwrap_or_else(|| Value::from(value.as_str()));
        let mut problems = Vec::new();
        let mut path = vec![Step::Member(name.clone())];
        check_field(field, &read, WriteMode::Create, &mut path, &mut problems);
        if let Some(problem) = problems.first() {
            faults.push(refusal(&without_secret(problem, &value)));
            continue;
        }
        if found.insert(name, read).is_some() {
            faults.push(ApiError::value(field.name, "it is sent twice"));
        }
    }
    ApiError::first_of(faults)?;
    match fields.iter().find(|field| field.access.is_needed(WriteMode::Create) && !found.contains_key(field.name)) {
        Some(missing) => {
            let message = format!("Missing required parameter: '{}'.", missing.name);
            Err(ApiError::invalid("missing_required_parameter", missing.name, message))
        }
        None => Ok(found),
    }
}

/// Most faults that are collected from one query.
const MAX_FAULTS: usize = 20;

/// Fewest characters of a service key.
const SHORTEST_KEY: usize = 16;

/// The problem without the value if the value is as long as a key, because it may be a key that was sent by mistake.
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
    fn faults_of_numbers_carry_the_bounds_of_the_field() {
        static BOUNDED: Object = Object::of(
            "Bounded",
            &[
                both("weight", Kind::Integer { min: 1, max: 9 }, ""),
                both("seconds", Kind::ZeroOr { min: 10, max: 20 }, ""),
                both("items", Kind::List { of: &Kind::Object(&ITEM), max: 2 }, ""),
                both("name", NAME, ""),
            ],
        );
        let range = |value: Value| body(&BOUNDED, value, WriteMode::Update).unwrap_err().range();
        let of = |min, max, or_zero| Some(NumberRange { min, max, or_zero });
        assert_eq!(range(json!({"weight": 0})), of(1, 9, false));
        assert_eq!(range(json!({"weight": "x"})), of(1, 9, false), "the error for a text states the bounds, too");
        assert_eq!(range(json!({"seconds": 1})), of(10, 20, true));
        assert_eq!(range(json!({"items": [{"amount": 1}, {"amount": -1}]})), of(0, i64::MAX, false));
        assert_eq!(range(json!({"name": ""})), None);
    }

    #[test]
    fn query_parameters_are_validated_against_their_shapes_and_duplicates_are_refused() {
        static FIELDS: &[FieldShape] = &[both("limit", Kind::Integer { min: 1, max: 1_000 }, ""), both("name", NAME, "")];
        assert_eq!(Value::Object(query(FIELDS, "limit=5&name=a%2Fb+c").unwrap()), json!({"limit": 5, "name": "a/b c"}));
        for bad in ["limit=0", "limit=1001", "limit=abc", "limit=1&limit=2", "page=1", "name=%00", "name="] {
            assert!(query(FIELDS, bad).is_err(), "{bad}");
        }
        let several = query(FIELDS, "limit=0&nam=x&name=a").unwrap_err();
        let named: Vec<_> = several.each().iter().map(|fault| fault.param().unwrap_or_default().to_owned()).collect();
        assert_eq!(named, ["limit", "nam"], "pages show each fault beside its field");
        assert_eq!(query(FIELDS, &"x=1&".repeat(1_000)).unwrap_err().each().len(), MAX_FAULTS);
        assert_eq!(url_pairs("name=%zz%4"), [("name".to_owned(), "%zz%4".to_owned())]);
    }
}
