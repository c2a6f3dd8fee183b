//! Checks which edits are permitted. Routing, reservations, prices and the reading of answers depend on parameters of the
//! caller's request, so editing these parameters would make the results wrong.

use serde_json::{Number, Value};

use super::{MAX_FORCED_DEPTH, MAX_PARAMETER_BYTES, MAX_PARAMETER_DEPTH, ParameterChange, ParameterEdit, outside};
use crate::price_fields::price_field_names;

/// Output limits. The reservation was made for the caller's limit, so they can only be lowered.
const OUTPUT_LIMITS: &[&str] = &["max_tokens", "max_completion_tokens", "max_output_tokens", "generation_config.max_output_tokens"];

/// Members that no edit may touch, besides those with an effect on the price.
const PROTECTED: &[&str] = &[
    "model",
    "messages",
    "contents",
    "input",
    "system",
    "system_instruction",
    "instructions",
    "stream",
    "stream_options",
    "n",
    "generation_config.candidate_count",
    "functions",
    "function_call",
    "tool_choice",
    "tool_config",
    "max_tool_calls",
];

/// Members that are part of the prompt: they can be dropped, but not made longer, because the reservation would not
/// cover that.
const PROMPT: &[&str] = &[
    "response_format",
    "text.format",
    "output_config.format",
    "output_format",
    "generation_config.response_schema",
    "generation_config.response_json_schema",
    "generation_config._response_json_schema",
    "generation_config.response_format",
];

/// Longest forced text, in bytes: longer ones may be prompts.
const MAX_FORCED_TEXT: usize = 256;

impl ParameterEdit {
    /// The member of the edit that is at fault (`parameter`, `to`, `min`, `max`, `value`), and the fault as the end of a sentence.
    #[must_use]
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if let Some(fault) = path_fault(&self.parameter) {
            return Some(("parameter", fault));
        }
        let is_limit = is_among(OUTPUT_LIMITS, &self.parameter);
        if is_protected(&self.parameter) || is_limit && !OUTPUT_LIMITS.iter().any(|known| is_same_loosely(known, &self.parameter)) {
            return Some(("parameter", format!("'{}' cannot be edited: {DEPENDS}", self.parameter)));
        }
        match &self.change {
            ParameterChange::Drop | ParameterChange::Rename { .. } | ParameterChange::Force { .. } if is_limit => Some((
                "parameter",
                format!("'{}' is an output limit, for which money is reserved; it can only be clamped with max", self.parameter),
            )),
            ParameterChange::Rename { to } => self.rename_fault(to).map(|fault| ("to", fault)),
            ParameterChange::Clamp { min: Some(_), .. } if is_limit => {
                Some(("min", "an output limit cannot be raised, because money is reserved for the caller's".to_owned()))
            }
            ParameterChange::Clamp { max: Some(max), .. } if is_limit && max.as_i64().is_none_or(|max| max < 1) => {
                Some(("max", "an output limit is a whole number of at least 1".to_owned()))
            }
            ParameterChange::Clamp { min: None, max: None } => Some(("max", "clamp needs min, max or both".to_owned())),
            ParameterChange::Clamp { min: Some(min), max: Some(max) } if is_above(min, max) => {
                Some(("max", "must not be less than min".to_owned()))
            }
            ParameterChange::Drop | ParameterChange::Clamp { .. } => None,
            ParameterChange::Force { .. } if is_among(PROMPT, &self.parameter) => Some((
                "parameter",
                format!("'{}' is part of the prompt, for which money is reserved; it can only be dropped", self.parameter),
            )),
            ParameterChange::Force { value } => value_fault(value).map(|fault| ("value", fault)),
        }
    }

    fn rename_fault(&self, to: &str) -> Option<String> {
        if to.contains('.') {
            return Some("must be a name without dots, because the parameter stays in its object".to_owned());
        }
        if let Some(fault) = path_fault(to) {
            return Some(fault);
        }
        let path = self.parameter.rsplit_once('.').map_or_else(|| to.to_owned(), |(parent, _)| format!("{parent}.{to}"));
        if path == self.parameter {
            return Some("is the same name".to_owned());
        }
        let taken = is_protected(&path) || is_among(OUTPUT_LIMITS, &path) || is_among(PROMPT, &path);
        taken.then(|| format!("'{path}' cannot be set: {DEPENDS}"))
    }
}

const DEPENDS: &str = "routing, prices or the reading of answers depend on it";

fn path_fault(path: &str) -> Option<String> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if path.len() > MAX_PARAMETER_BYTES {
        return Some(format!("is longer than {MAX_PARAMETER_BYTES} bytes"));
    }
    if !path.split('.').all(is_name) {
        return Some("must be a name of letters, digits, _ and -, or several with dots between them".to_owned());
    }
    (path.split('.').count() > MAX_PARAMETER_DEPTH).then(|| format!("has more than {MAX_PARAMETER_DEPTH} names"))
}

fn is_protected(path: &str) -> bool {
    is_among(PROTECTED, path) || price_field_names().any(|known| is_related(known, path))
}

fn is_among(list: &[&str], path: &str) -> bool {
    list.iter().any(|known| is_related(known, path))
}

/// Whether two paths are the same, or one is inside the other.
fn is_related(known: &str, path: &str) -> bool {
    known.split('.').zip(path.split('.')).all(|(one, other)| is_same_loosely(one, other))
}

/// Whether two names differ only in case and underscores.
pub(super) fn is_same_loosely(one: &str, other: &str) -> bool {
    let letters = |name: &'_ str| {
        let bytes: Vec<u8> = name.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase()).collect();
        bytes
    };
    one == other || letters(one) == letters(other)
}

fn is_above(min: &Number, max: &Number) -> bool {
    outside(&min.to_string(), None, Some(max)).is_some()
}

fn value_fault(value: &Value) -> Option<String> {
    let length = value.to_string().len();
    if length > ParameterEdit::MAX_FORCED_BYTES {
        return Some(format!("is longer than {} bytes", ParameterEdit::MAX_FORCED_BYTES));
    }
    content_fault(value, MAX_FORCED_DEPTH)
}

fn content_fault(value: &Value, depth: usize) -> Option<String> {
    if depth == 0 {
        return Some(format!("is nested more than {MAX_FORCED_DEPTH} deep"));
    }
    match value {
        // A catalog file has no null, and upstreams treat it like an absent member.
        Value::Null => Some("must not be or contain null; use drop".to_owned()),
        Value::Bool(_) => None,
        Value::Number(number) => (!number.is_f64() && !number.is_i64()).then(|| "has a number beyond 64 bits".to_owned()),
        Value::String(text) => (text.len() > MAX_FORCED_TEXT).then(|| format!("has a text of more than {MAX_FORCED_TEXT} bytes")),
        Value::Array(items) => items.iter().find_map(|item| content_fault(item, depth - 1)),
        Value::Object(members) => members.values().find_map(|member| content_fault(member, depth - 1)),
    }
}
