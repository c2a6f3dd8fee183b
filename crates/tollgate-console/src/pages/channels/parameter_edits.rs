//! Edits of parameters as text, one on each line: `drop seed`, `rename user safety_identifier`, `clamp temperature 0 1`,
//! `force reasoning_effort low`.

use serde_json::{Map, Value, json};

use crate::{
    api_error::ApiError,
    pages::{locale::Locale, problem},
};

/// The text for an absent bound of `clamp`.
const NO_BOUND: &str = "-";

/// The edits of a channel as lines.
pub(in crate::pages) fn lines(edits: Option<&Value>) -> String {
    let edits = edits.and_then(Value::as_array).into_iter().flatten();
    edits.map(line).collect::<Vec<_>>().join("\n")
}

fn line(edit: &Value) -> String {
    let word = |name: &str| edit.get(name).and_then(Value::as_str).unwrap_or_default();
    let bound = |name: &str| edit.get(name).filter(|bound| !bound.is_null()).map_or_else(|| NO_BOUND.to_owned(), Value::to_string);
    let rest = match word("action") {
        "rename" => word("to").to_owned(),
        "clamp" => format!("{} {}", bound("min"), bound("max")),
        "force" => edit.get("value").map(forced).unwrap_or_default(),
        _ => String::new(),
    };
    format!("{} {} {rest}", word("action"), word("parameter")).trim_end().to_owned()
}

/// A text is written without quotes unless it would be read as something else.
fn forced(value: &Value) -> String {
    let plain = value.as_str().filter(|text| read_forced(text) == *value);
    plain.map_or_else(|| value.to_string(), str::to_owned)
}

fn read_forced(text: &str) -> Value {
    let text = text.trim();
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// The edits of such lines. A text with other lines is sent unchanged, so that the admin API refuses it together with the other faults.
pub(super) fn read(text: &str) -> Value {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(edit).collect::<Option<Vec<_>>>().map_or_else(|| text.into(), Value::Array)
}

fn edit(line: &str) -> Option<Value> {
    let (action, rest) = line.split_once(char::is_whitespace)?;
    let (parameter, rest) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
    let mut edit = Map::from_iter([("action".to_owned(), action.into()), ("parameter".to_owned(), parameter.into())]);
    let rest = rest.trim();
    match action {
        "drop" if rest.is_empty() => {}
        "rename" if !rest.is_empty() => {
            edit.insert("to".to_owned(), rest.into());
        }
        "clamp" => {
            let mut bounds = rest.split_whitespace();
            for (name, text) in [("min", bounds.next()?), ("max", bounds.next()?)] {
                if text != NO_BOUND {
                    edit.insert(name.to_owned(), json!(serde_json::from_str::<serde_json::Number>(text).ok()?));
                }
            }
            if bounds.next().is_some() {
                return None;
            }
        }
        "force" if !rest.is_empty() => {
            edit.insert("value".to_owned(), read_forced(rest));
        }
        _ => return None,
    }
    Some(Value::Object(edit))
}

/// The text for a fault of the edits: which of them, and what is wrong with it. `None` for faults of other fields.
pub(super) fn fault(t: Locale, error: &ApiError) -> Option<String> {
    let rest = error.param()?.strip_prefix("parameter_edits")?;
    let entry = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let entry = entry.and_then(|(index, member)| Some((index.parse::<usize>().ok()?, member.trim_start_matches('.'))));
    let Some((index, member)) = entry else { return Some(problem::say(t, &error.clone().because("parameter_edits"))) };
    let reason = match member {
        "parameter" => "edit_parameter",
        "to" => "edit_to",
        "min" | "max" => "edit_bounds",
        _ => "edit_value",
    };
    let number = (index + 1).to_string();
    Some(t.say_with("problem.parameter_edit", &[("number", &number), ("fault", &problem::say(t, &error.clone().because(reason)))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_names_its_edit() {
        let shown = |param: &str| fault(Locale::EN, &ApiError::value(param, "x"));
        assert!(shown("parameter_edits").unwrap().starts_with("Write one edit on each line"));
        assert!(shown("parameter_edits[1].parameter").unwrap().starts_with("Edit 2: this parameter cannot"));
        assert!(shown("parameter_edits[0].max").unwrap().starts_with("Edit 1: the bounds"));
        assert_eq!((shown("headers"), fault(Locale::EN, &ApiError::internal())), (None, None));
    }

    #[test]
    fn edits_are_written_and_read_as_lines() {
        let edits = json!([
            {"action": "drop", "parameter": "seed"},
            {"action": "rename", "parameter": "user", "to": "safety_identifier"},
            {"action": "clamp", "parameter": "temperature", "min": 0, "max": 1.5},
            {"action": "clamp", "parameter": "max_tokens", "max": 4096},
            {"action": "clamp", "parameter": "presence_penalty", "min": -1},
            {"action": "force", "parameter": "reasoning_effort", "value": "low"},
            {"action": "force", "parameter": "store", "value": false},
            {"action": "force", "parameter": "user", "value": "7"},
            {"action": "force", "parameter": "thinking", "value": {"type": "disabled"}},
        ]);
        let text = "drop seed\nrename user safety_identifier\nclamp temperature 0 1.5\nclamp max_tokens - 4096\n\
                    clamp presence_penalty -1 -\nforce reasoning_effort low\nforce store false\nforce user \"7\"\n\
                    force thinking {\"type\":\"disabled\"}";
        assert_eq!(lines(Some(&edits)), text);
        assert_eq!(read(&format!("\r\n{}\r\n", text.replace('\n', "\r\n"))), edits);
        assert_eq!((lines(None), read(" \n")), (String::new(), json!([])));
    }

    #[test]
    fn other_lines_are_left_to_the_admin_api() {
        for bad in
            ["seed", "drop", "drop a b", "rename a", "clamp a", "clamp a 1", "clamp a 0 1 2", "clamp a x 1", "force a", "move a b"]
        {
            assert_eq!(read(&format!("drop seed\n{bad}")), json!(format!("drop seed\n{bad}")), "{bad}");
        }
    }
}
