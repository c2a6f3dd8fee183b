//! How each optional parameter of a request was translated for the upstream.

use serde_json::Value;
use tollgate_protocol::{FieldPath, Protocol};

use crate::offer::{is_structural, names_in};

/// A parameter in the caller's spelling, and its translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslatedParameter {
    pub name: FieldPath,
    pub outcome: ParameterOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterOutcome {
    Kept,
    /// Under this name of the upstream.
    Renamed(String),
    Dropped,
    /// With this value, which the gateway set.
    Set(String),
    /// In another form, such as a part of another field.
    Rewritten,
}

impl ParameterOutcome {
    /// The word of the admin API.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Renamed(_) => "renamed",
            Self::Dropped => "dropped",
            Self::Set(_) => "set",
            Self::Rewritten => "rewritten",
        }
    }
}

/// The path of an entry in the list of dropped fields, and what happened to it.
fn entry(text: &str) -> (&str, ParameterOutcome) {
    if let Some((path, to)) = text.split_once("->") {
        return (path, ParameterOutcome::Renamed(to.to_owned()));
    }
    match text.split_once('=') {
        Some((path, value)) => (path, ParameterOutcome::Set(value.to_owned())),
        None => (text, ParameterOutcome::Dropped),
    }
}

/// The outcomes of these fields, in their order, followed by those of other dropped or set fields. `sent` is the body for the
/// upstream.
pub(super) fn outcomes(
    (from, to): (Protocol, Protocol),
    fields: &[FieldPath],
    dropped: &[String],
    sent: &[u8],
) -> Vec<TranslatedParameter> {
    let sent: Value = serde_json::from_slice(sent).unwrap_or_default();
    let mut entries: Vec<(&str, ParameterOutcome)> = dropped.iter().map(|text| entry(text)).collect();
    let mut parameters: Vec<TranslatedParameter> = Vec::new();
    for field in fields.iter().filter(|field| !is_structural(field)) {
        let at = entries.iter().position(|(path, _)| path == field);
        let outcome = at.map_or_else(|| found((from, to), field, &sent), |at| entries.remove(at).1);
        parameters.push(TranslatedParameter { name: field.clone(), outcome });
    }
    parameters.extend(entries.into_iter().map(|(path, outcome)| TranslatedParameter { name: path.to_owned(), outcome }));
    parameters
}

/// The outcome of a field that no entry names, found in the body for the upstream.
fn found((from, to): (Protocol, Protocol), field: &str, sent: &Value) -> ParameterOutcome {
    if has_path(sent, field) {
        return ParameterOutcome::Kept;
    }
    let other = names_in(from, to, field).into_iter().find(|name| has_path(sent, name));
    other.map_or(ParameterOutcome::Rewritten, |name| ParameterOutcome::Renamed(name.to_owned()))
}

/// Whether a body has something at a path such as `messages[1].content[0].tool`.
fn has_path(body: &Value, path: &str) -> bool {
    let steps = path.split(['.', '[', ']']).filter(|step| !step.is_empty());
    let found = steps.into_iter().try_fold(body, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => value.get(step),
    });
    found.is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_into_lists() {
        let body = json!({"messages": [{}, {"content": [{"tool": 1}]}], "stream_options": {"include_usage": true}});
        for path in ["messages", "messages[1].content[0].tool", "stream_options.include_usage"] {
            assert!(has_path(&body, path), "{path}");
        }
        for path in ["messages[2]", "messages[0].content", "messages.content", "stream_options[0]", "stream"] {
            assert!(!has_path(&body, path), "{path}");
        }
    }
}
