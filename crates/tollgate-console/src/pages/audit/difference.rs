//! What an event of the audit log changed: each field with its value before and after.

use serde_json::{Map, Value};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct DifferenceRow {
    pub(super) field: String,
    /// Empty where there was none.
    pub(super) before: String,
    pub(super) after: String,
}

/// Characters of a value.
const MAX_CHARS: usize = 400;
/// Fields of an event.
const MAX_ROWS: usize = 100;

/// The fields that differ. An event without `before` and `after` shows its facts as they are.
pub(super) fn differences(detail: &Value) -> Vec<DifferenceRow> {
    let empty = Map::new();
    let (before, after) = (detail.get("before"), detail.get("after"));
    if before.is_none() && after.is_none() {
        let facts = detail.as_object().unwrap_or(&empty).iter();
        let row =
            |(field, value): (&String, &Value)| DifferenceRow { field: field.clone(), before: String::new(), after: text(value) };
        return facts.map(row).filter(|row| !row.after.is_empty()).take(MAX_ROWS).collect();
    }
    let side = |side: Option<&Value>| side.and_then(Value::as_object).cloned().unwrap_or_default();
    let (before, after) = (side(before), side(after));
    let mut fields: Vec<&String> = before.keys().chain(after.keys()).collect();
    fields.sort_unstable();
    fields.dedup();
    let changed = fields.into_iter().filter(|field| before.get(*field) != after.get(*field));
    let row = |field: &String| DifferenceRow {
        field: field.clone(),
        before: before.get(field).map(text).unwrap_or_default(),
        after: after.get(field).map(text).unwrap_or_default(),
    };
    // What a new row leaves empty is no change.
    changed.map(row).filter(|row| !(row.before.is_empty() && row.after.is_empty())).take(MAX_ROWS).collect()
}

/// A value as people read it: texts bare, lists with commas, the rest as JSON.
fn text(value: &Value) -> String {
    let whole = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    };
    if whole.chars().nth(MAX_CHARS).is_none() { whole } else { whole.chars().take(MAX_CHARS).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(field: &str, before: &str, after: &str) -> DifferenceRow {
        DifferenceRow { field: field.to_owned(), before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn only_what_changed_is_shown() {
        let detail =
            json!({"before": {"rpm": 1, "name": "g", "models": ["a"]}, "after": {"rpm": 2, "name": "g", "models": ["a", "b"]}});
        assert_eq!(differences(&detail), [row("models", "a", "a, b"), row("rpm", "1", "2")]);
        let new = json!({"before": null, "after": {"rpm": 2, "hedge": null}});
        assert_eq!(differences(&new), [row("rpm", "", "2")]);
        assert_eq!(differences(&json!({"amount": "5.00", "note": ""})), [row("amount", "", "5.00")]);
        assert!(differences(&Value::Null).is_empty());
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(text(&"x".repeat(1_000).into()).chars().count(), MAX_CHARS + 1);
    }
}
