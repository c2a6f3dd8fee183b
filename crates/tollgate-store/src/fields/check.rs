//! Checks a JSON value against its description and collects every problem with its path.

use std::{fmt::Write as _, ops::RangeInclusive};

use serde_json::{Map, Value};
use tollgate_core::{Multiplier, NanoUsd};

use super::{
    FieldShape, Kind, MAX_DECIMAL, MAX_NETWORK, MAX_TEXT_NAME, MAX_TEXT_VALUE, MAX_TIME, Object, WriteMode,
    value::{decimal_text, parse_network, parse_time},
};

/// A step of the path to a value in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Member(String),
    /// An entry of a list, from 0.
    Item(usize),
}

/// A fault of a value, at its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the value; for a missing or unknown member, the path that it would have.
    pub path: Vec<Step>,
    pub fault: Fault,
}

/// Fault of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No member has this name; what to write instead, as the end of the sentence: `; did you mean 'rpm'?`.
    Unknown(String),
    /// A required field is absent.
    Missing,
    /// The field can only be set at creation.
    CreateOnly,
    /// The field cannot be set.
    ReadOnly,
    /// The value is of another type.
    Type { expected: String, found: &'static str },
    /// Right type, invalid value; worded as the end of a sentence.
    Value(String),
}

impl Problem {
    pub(crate) fn at(name: &str, fault: Fault) -> Self {
        Self { path: vec![Step::Member(name.to_owned())], fault }
    }

    /// Whether the path is in or below this member.
    pub(crate) fn begins_at(&self, name: &str) -> bool {
        matches!(self.path.first(), Some(Step::Member(first)) if first == name)
    }

    /// The path as text, such as `serves[1].cost.input`.
    pub fn path_text(&self) -> String {
        path_text(&self.path)
    }

    /// The message with the path without its first `steps`.
    pub(crate) fn below(&self, steps: usize) -> String {
        let message = match &self.fault {
            Fault::Unknown(instead) => format!("unknown field{instead}"),
            Fault::Missing => "is missing".to_owned(),
            Fault::CreateOnly | Fault::ReadOnly => "cannot be set".to_owned(),
            Fault::Type { expected, found } => format!("expected {expected}, found {found}"),
            Fault::Value(message) => message.clone(),
        };
        match self.path.get(steps..) {
            None | Some([]) => message,
            Some(rest) => format!("{}: {message}", path_text(rest)),
        }
    }
}

fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Member(name) if text.is_empty() => text.push_str(name),
            Step::Member(name) => write!(text, ".{name}").expect("writing to a string cannot fail"),
            Step::Item(i) => write!(text, "[{i}]").expect("writing to a string cannot fail"),
        }
    }
    text
}

/// Checks the members of an object. `path` is where it is; problems are added in the order of its members.
pub fn check_object(
    object: &Object,
    members: &Map<String, Value>,
    mode: WriteMode,
    path: &mut Vec<Step>,
    problems: &mut Vec<Problem>,
) {
    let before = problems.len();
    for (name, value) in members {
        path.push(Step::Member(name.clone()));
        match object.field(name) {
            Some(field) if field.access.is_written(mode) => check_field(field, value, mode, path, problems),
            Some(field) if field.access.is_written(WriteMode::Create) => add(problems, path, Fault::CreateOnly),
            Some(field) if field.access.is_shown() => add(problems, path, Fault::ReadOnly),
            Some(_) | None => add(problems, path, Fault::Unknown(instead(object, name, mode))),
        }
        path.pop();
    }
    for field in object.fields.iter().filter(|field| field.access.is_needed(mode) && !members.contains_key(field.name)) {
        path.push(Step::Member(field.name.to_owned()));
        add(problems, path, Fault::Missing);
        path.pop();
    }
    if problems.len() == before
        && let Some((member, fault)) = object.review.and_then(|review| review(members))
    {
        let depth = path.len();
        if !member.is_empty() {
            path.push(Step::Member(member.to_owned()));
        }
        add(problems, path, fault);
        path.truncate(depth);
    }
}

fn add(problems: &mut Vec<Problem>, path: &[Step], fault: Fault) {
    problems.push(Problem { path: path.to_vec(), fault });
}

/// The problem of a name that no member of the object has.
pub fn unknown_member(object: &Object, name: &str, mode: WriteMode) -> Problem {
    Problem::at(name, Fault::Unknown(instead(object, name, mode)))
}

fn instead(object: &Object, name: &str, mode: WriteMode) -> String {
    const PLURALS: [(&str, &str, &str); 2] =
        [("budgets", "budget", "{\"amount\": \"5\", \"window\": \"month\"}"), ("prices", "price", "{\"input\": \"0.30\"}")];
    let known = |name: &str| object.field(name).is_some_and(|field| field.access.is_written(mode));
    if let Some((_, now, example)) = PLURALS.iter().find(|(old, now, _)| *old == name && known(now)) {
        return format!("; `{name}` is now `{now}`, such as {example}");
    }
    let amount = name.strip_suffix("_nano_usd").or_else(|| name.strip_suffix("_usd"));
    if let Some(now) = amount.filter(|now| known(now)) {
        return format!("; `{name}` is now `{now}`, in USD, such as \"5.00\"");
    }
    hint(name, object.fields.iter().filter(|field| field.access.is_written(mode)).map(|field| field.name))
}

pub fn check_field(field: &FieldShape, value: &Value, mode: WriteMode, path: &mut Vec<Step>, problems: &mut Vec<Problem>) {
    if value.is_null() && field.nullable {
        return;
    }
    let before = problems.len();
    check(&field.kind, value, mode, path, problems);
    if problems.len() == before
        && let Some(Err(message)) = field.rule.map(|rule| rule(value))
    {
        add(problems, path, Fault::Value(message));
    }
}

fn check(kind: &Kind, value: &Value, mode: WriteMode, path: &mut Vec<Step>, problems: &mut Vec<Problem>) {
    // Nested values are replaced as a whole.
    let mode = if mode == WriteMode::Update { WriteMode::Create } else { mode };
    match (kind, value) {
        (Kind::List { of, max }, Value::Array(items)) => check_items(of, 0..=*max, items, mode, path, problems),
        (Kind::OneOrMore { of, min, max }, Value::Array(items)) => {
            check_items(&Kind::Object(of), *min..=*max, items, mode, path, problems);
        }
        (Kind::Object(of) | Kind::OneOrMore { of, .. }, Value::Object(members)) => check_object(of, members, mode, path, problems),
        (Kind::TextMap { max } | Kind::FactorMap { max }, Value::Object(members)) if members.len() > *max => {
            add(problems, path, too_many(*max));
        }
        (Kind::FactorMap { .. }, Value::Object(members)) => {
            for (name, value) in members {
                path.push(Step::Member(name.clone()));
                match check_name(name, MAX_TEXT_NAME) {
                    Ok(()) => check(&Kind::Factor { max: i64::MAX }, value, mode, path, problems),
                    Err(message) => add(problems, path, Fault::Value(format!("the name {message}"))),
                }
                path.pop();
            }
        }
        (Kind::TextMap { .. }, Value::Object(members)) => {
            for (name, value) in members {
                path.push(Step::Member(name.clone()));
                if name.chars().count() > MAX_TEXT_NAME {
                    add(problems, path, Fault::Value(format!("its name is longer than {MAX_TEXT_NAME} characters")));
                }
                check(&Kind::Text { min: 0, max: MAX_TEXT_VALUE }, value, mode, path, problems);
                path.pop();
            }
        }
        (Kind::List { .. } | Kind::OneOrMore { .. } | Kind::TextMap { .. } | Kind::FactorMap { .. } | Kind::Object(_), _) => {
            add(problems, path, wrong_type(kind, value));
        }
        (_, _) => {
            if let Err(fault) = check_plain(kind, value) {
                add(problems, path, fault);
            }
        }
    }
}

fn check_items(
    of: &Kind,
    bounds: RangeInclusive<usize>,
    items: &[Value],
    mode: WriteMode,
    path: &mut Vec<Step>,
    problems: &mut Vec<Problem>,
) {
    if items.len() < *bounds.start() {
        return add(problems, path, Fault::Value("an empty list".to_owned()));
    }
    if items.len() > *bounds.end() {
        return add(problems, path, too_many(*bounds.end()));
    }
    for (i, item) in items.iter().enumerate() {
        path.push(Step::Item(i));
        check(of, item, mode, path, problems);
        path.pop();
    }
}

fn too_many(max: usize) -> Fault {
    Fault::Value(format!("more than {max} entries"))
}

fn check_plain(kind: &Kind, value: &Value) -> Result<(), Fault> {
    let text = || value.as_str().ok_or_else(|| wrong_type(kind, value));
    let fits = |good: bool| if good { Ok(()) } else { Err(Fault::Value(format!("expected {}", expected(kind)))) };
    match kind {
        Kind::Id(prefix) => fits(text()?.strip_prefix(prefix).is_some_and(|digits| digits.len() == 26)),
        Kind::Text { min, max } => {
            let text = text()?;
            // Only long texts have lines.
            let lines = *max > 500;
            let bad = |c: char| c.is_control() && !(lines && matches!(c, '\n' | '\r' | '\t'));
            fits((*min..=*max).contains(&text.chars().count()) && !text.chars().any(bad))
        }
        Kind::Name { max } => check_name(text()?, *max).map_err(Fault::Value),
        Kind::Time => parse_time(at_most(MAX_TIME, text()?)?).map(drop).map_err(Fault::Value),
        Kind::Network => parse_network(at_most(MAX_NETWORK, text()?)?).map(drop).map_err(Fault::Value),
        Kind::Flag => value.as_bool().map(drop).ok_or_else(|| wrong_type(kind, value)),
        Kind::NumberOrNull { .. } if value.is_null() => Ok(()),
        Kind::Number { max } | Kind::NumberOrNull { max } => {
            let number = value.as_f64().ok_or_else(|| wrong_type(kind, value))?;
            #[expect(clippy::cast_precision_loss, reason = "bounds of numbers are small")]
            fits((0.0..=*max as f64).contains(&number))
        }
        Kind::Any => value.as_object().map(drop).ok_or_else(|| wrong_type(kind, value)),
        Kind::Integer { min, max } => fits(integer(kind, value)?.is_some_and(|number| (*min..=*max).contains(&number))),
        Kind::ZeroOr { min, max } => {
            fits(integer(kind, value)?.is_some_and(|number| number == 0 || (*min..=*max).contains(&number)))
        }
        Kind::Usd { min, max } => {
            let text = decimal_text(value).ok_or_else(|| wrong_type(kind, value))?;
            at_most(MAX_DECIMAL, &text)?;
            let amount = if *min < 0 { NanoUsd::parse(&text) } else { tollgate_core::parse_usd(&text).map(NanoUsd) };
            let amount = amount.map_err(|error| Fault::Value(error.to_string()))?;
            fits((*min..=*max).contains(&amount.0))
        }
        Kind::Factor { max } => {
            let text = decimal_text(value).ok_or_else(|| wrong_type(kind, value))?;
            at_most(MAX_DECIMAL, &text)?;
            fits(Multiplier::parse(&text).map_err(|error| Fault::Value(error.to_string()))?.0 <= *max)
        }
        Kind::Word(words) => {
            let text = text()?;
            if words.contains(&text) {
                return Ok(());
            }
            let shown: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
            Err(Fault::Value(format!("'{shown}' is not one of {}{}", words.join(", "), hint(text, words.iter().copied()))))
        }
        Kind::Form { .. }
        | Kind::List { .. }
        | Kind::OneOrMore { .. }
        | Kind::Object(_)
        | Kind::TextMap { .. }
        | Kind::FactorMap { .. } => Ok(()),
    }
}

fn at_most(max: usize, text: &str) -> Result<&str, Fault> {
    if text.chars().count() > max { Err(Fault::Value(format!("is longer than {max} characters"))) } else { Ok(text) }
}

/// The number, if it fits 64 bits.
fn integer(kind: &Kind, value: &Value) -> Result<Option<i64>, Fault> {
    if value.is_number() { Ok(value.as_i64()) } else { Err(wrong_type(kind, value)) }
}

fn check_name(name: &str, max: usize) -> Result<(), String> {
    if name.is_empty() {
        return Err("must not be empty".to_owned());
    }
    if name.len() > max {
        return Err(format!("is longer than {max} bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err("contains control characters".to_owned());
    }
    if name.trim() != name {
        return Err("begins or ends with white space".to_owned());
    }
    if name.chars().any(is_invisible) {
        return Err("contains invisible characters".to_owned());
    }
    Ok(())
}

/// Characters that make two names look alike, or that reverse the direction of what follows them.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn wrong_type(kind: &Kind, found: &Value) -> Fault {
    let expected = match kind {
        Kind::Id(_) | Kind::Text { .. } | Kind::Name { .. } | Kind::Network | Kind::Word(_) => "a string",
        Kind::Time => "a time such as \"2027-01-01T00:00:00Z\"",
        Kind::Flag => "true or false",
        Kind::Integer { .. } | Kind::ZeroOr { .. } => "a whole number",
        Kind::Usd { .. } | Kind::Factor { .. } => "a decimal string or a number",
        Kind::Number { .. } | Kind::NumberOrNull { .. } => "a number",
        Kind::List { .. } => "a list",
        Kind::OneOrMore { .. } => "a table or a list of tables",
        Kind::TextMap { .. } => "a table of strings",
        Kind::FactorMap { .. } => "a table of factors such as { \"gpt-*\" = \"1.5\" }",
        Kind::Object(_) | Kind::Any => "a table",
        Kind::Form { expected, .. } => expected,
    };
    Fault::Type { expected: expected.to_owned(), found: article(found) }
}

/// Description of the values that fit a kind.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds have no bounds")]
fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Id(prefix) => format!("an id that begins with '{prefix}'"),
        Kind::Text { min: 0, max } => format!("a text of at most {max} characters"),
        Kind::Text { min, max } => format!("a text of {min} to {max} characters"),
        Kind::Integer { min: i64::MIN, .. } => "a whole number of 64 bits".to_owned(),
        Kind::Integer { min, max: i64::MAX } => format!("a whole number of at least {min}"),
        Kind::Integer { min, max } => format!("a whole number of {min} to {max}"),
        Kind::ZeroOr { min, max } => format!("0, or a whole number of {min} to {max}"),
        Kind::Usd { min: 1, max: i64::MAX } => "an amount above 0 USD".to_owned(),
        Kind::Usd { min, max } => {
            format!("an amount of {} to {} USD", NanoUsd(*min).to_decimal(), NanoUsd(*max).to_decimal())
        }
        Kind::Factor { max } => format!("a factor of 0 to {}", Multiplier(*max).to_decimal()),
        Kind::Number { max } => format!("a number of 0 to {max}"),
        Kind::Form { expected, .. } => (*expected).to_owned(),
        _ => "another value".to_owned(),
    }
}

/// Type of a value, with its article.
pub fn article(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a number",
        Value::Number(_) => "a whole number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// The known name nearest to a wrong one, if it is near enough to be a typing error.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let allowed = (wrong.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|name| (distance(&wrong, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// `; did you mean 'x'?`, or nothing.
pub(crate) fn hint<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wrong, known).map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

/// Edit distance between two words: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]));
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_are_matched_to_the_nearest_known_name() {
        let known = ["base_url", "protocol", "priority", "rpm", "tpm"];
        assert_eq!(nearest("base_ulr", known), Some("base_url"));
        assert_eq!(nearest("baseurl", known), Some("base_url"));
        assert_eq!(nearest("Protocol", known), Some("protocol"));
        assert_eq!(nearest("rmp", known), Some("rpm"));
        assert_eq!(nearest("colour", known), None);
    }
}
