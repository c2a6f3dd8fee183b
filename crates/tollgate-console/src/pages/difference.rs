//! The differences of a change of a row in the audit log: each field with its value before and after.

use serde_json::{Map, Value};

use super::locale::Locale;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DifferenceRow {
    pub(crate) field: String,
    /// Empty where there was none.
    pub(crate) before: String,
    pub(crate) after: String,
}

/// Characters of a value.
const MAX_CHARS: usize = 400;
/// Fields of an event.
const MAX_ROWS: usize = 100;
/// Fields that a line names.
const NAMED: usize = 4;

/// The fields that differ. An event without `before` and `after` shows its facts as they are.
pub(crate) fn differences(detail: &Value) -> Vec<DifferenceRow> {
    let empty = Map::new();
    let (before, after) = (detail.get("before"), detail.get("after"));
    if before.is_none() && after.is_none() {
        let facts = detail.as_object().unwrap_or(&empty).iter();
        let row =
            |(field, value): (&String, &Value)| DifferenceRow { field: field.clone(), before: String::new(), after: text(value) };
        return facts.map(row).filter(|row| !row.after.is_empty()).take(MAX_ROWS).collect();
    }
    let side = |side: Option<&Value>| side.and_then(Value::as_object).map(by_name).unwrap_or_default();
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
    // A field that a new row leaves empty is no change.
    changed.map(row).filter(|row| !(row.before.is_empty() && row.after.is_empty())).take(MAX_ROWS).collect()
}

/// Names of the fields that differ, in one line.
pub(crate) fn summary(t: Locale, rows: &[DifferenceRow]) -> String {
    let named: Vec<&str> = rows.iter().take(NAMED).map(|row| row.field.as_str()).collect();
    let names = named.join(t.say("list.separator"));
    if rows.len() <= NAMED {
        return names;
    }
    t.say_with("keys.and_more", &[("names", &names), ("count", &(rows.len() - NAMED).to_string())])
}

/// The fields of a row. Named items of a list, such as the models of a channel, are separate fields, so that a changed item does
/// not show as a change of the whole list.
fn by_name(row: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = Map::new();
    for (field, value) in row {
        let named = |item: &Value| ["model", "name"].iter().find_map(|key| item[*key].as_str().map(str::to_owned));
        let items = value.as_array().filter(|items| !items.is_empty());
        match items.and_then(|items| items.iter().map(|item| Some((named(item)?, item.clone()))).collect::<Option<Vec<_>>>()) {
            Some(items) => fields.extend(items.into_iter().map(|(name, item)| (format!("{field} {name}"), item))),
            None => {
                fields.insert(field.clone(), value.clone());
            }
        }
    }
    fields
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
    fn only_changed_fields_are_shown() {
        let detail =
            json!({"before": {"rpm": 1, "name": "g", "models": ["a"]}, "after": {"rpm": 2, "name": "g", "models": ["a", "b"]}});
        assert_eq!(differences(&detail), [row("models", "a", "a, b"), row("rpm", "1", "2")]);
        let new = json!({"before": null, "after": {"rpm": 2, "hedge": null}});
        assert_eq!(differences(&new), [row("rpm", "", "2")]);
        assert_eq!(differences(&json!({"amount": "5.00", "note": ""})), [row("amount", "", "5.00")]);
        assert!(differences(&Value::Null).is_empty());
    }

    #[test]
    fn named_items_are_compared_individually() {
        let detail = json!({
            "before": {"serves": [{"model": "m", "cost": null}, {"model": "n"}]},
            "after": {"serves": [{"model": "m", "cost": {"input": "1.00"}}]},
        });
        let rows = differences(&detail);
        assert_eq!(summary(Locale::EN, &rows), "serves m, serves n");
        assert!(rows[0].before.contains("null") && rows[0].after.contains("1.00"), "{rows:?}");
        assert_eq!(rows[1], row("serves n", r#"{"model":"n"}"#, ""));
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(text(&"x".repeat(1_000).into()).chars().count(), MAX_CHARS + 1);
    }
}
