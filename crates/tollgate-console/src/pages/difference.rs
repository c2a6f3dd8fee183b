//! The differences of a change of a row in the audit log: each field with its value before and after.

use serde_json::{Map, Value};

use super::{channels::parameter_edits, field_label, locale::Locale};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DifferenceRow {
    /// The name of the admin API.
    pub(crate) field: String,
    /// The words of the forms for it.
    pub(crate) label: String,
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

/// The fields of a row or event of this kind that differ. An event without `before` and `after` shows its facts as they are.
pub(crate) fn differences(t: Locale, kind: &str, detail: &Value) -> Vec<DifferenceRow> {
    let row = |field: &String, before: String, after: String| {
        let label = field_label::of(t, kind, field);
        let said = |word: String| field_label::value(t, kind, field, &word).map_or(word, str::to_owned);
        DifferenceRow { field: field.clone(), label, before: said(before), after: said(after) }
    };
    let empty = Map::new();
    let (before, after) = (detail.get("before"), detail.get("after"));
    if before.is_none() && after.is_none() {
        let facts = detail.as_object().unwrap_or(&empty).iter().map(|(field, value)| row(field, String::new(), text(value)));
        return facts.filter(|row| !row.after.is_empty()).take(MAX_ROWS).collect();
    }
    let side = |side: Option<&Value>| side.and_then(Value::as_object).map(by_name).unwrap_or_default();
    let (before, after) = (side(before), side(after));
    let mut fields: Vec<&String> = before.keys().chain(after.keys()).collect();
    fields.sort_unstable();
    fields.dedup();
    let changed = fields.into_iter().filter(|field| before.get(*field) != after.get(*field));
    let value = |side: &Map<String, Value>, field: &String| side.get(field).map(text).unwrap_or_default();
    let changed = changed.map(|field| row(field, value(&before, field), value(&after, field)));
    // A field that a new row leaves empty is not a change.
    changed.filter(|row| !(row.before.is_empty() && row.after.is_empty())).take(MAX_ROWS).collect()
}

/// Names of the fields that differ, in one line.
pub(crate) fn summary(t: Locale, rows: &[DifferenceRow]) -> String {
    let named: Vec<&str> = rows.iter().take(NAMED).map(|row| row.label.as_str()).collect();
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
        Value::Object(members) if members.is_empty() => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) if items.iter().all(|item| item.get("parameter").is_some()) => {
            parameter_edits::lines(Some(value)).replace('\n', "; ")
        }
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    };
    if whole.chars().nth(MAX_CHARS).is_none() { whole } else { whole.chars().take(MAX_CHARS).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(detail: &Value) -> Vec<(String, String, String)> {
        differences(Locale::EN, "group", detail).into_iter().map(|row| (row.field, row.before, row.after)).collect()
    }

    fn row(field: &str, before: &str, after: &str) -> (String, String, String) {
        (field.to_owned(), before.to_owned(), after.to_owned())
    }

    #[test]
    fn only_changed_fields_are_shown() {
        let detail =
            json!({"before": {"rpm": 1, "name": "g", "models": ["a"]}, "after": {"rpm": 2, "name": "g", "models": ["a", "b"]}});
        assert_eq!(of(&detail), [row("models", "a", "a, b"), row("rpm", "1", "2")]);
        let new = json!({"before": null, "after": {"rpm": 2, "hedge": null}});
        assert_eq!(of(&new), [row("rpm", "", "2")]);
        assert_eq!(of(&json!({"amount": "5.00", "note": ""})), [row("amount", "", "5.00")]);
        let edits = json!([{"action": "drop", "parameter": "seed"}, {"action": "clamp", "parameter": "temperature", "max": 1}]);
        let edited = json!({"before": {"parameter_edits": []}, "after": {"parameter_edits": edits}});
        assert_eq!(of(&edited), [row("parameter_edits", "", "drop seed; clamp temperature - 1")]);
        assert!(of(&Value::Null).is_empty());
    }

    #[test]
    fn named_items_are_compared_individually() {
        let detail = json!({
            "before": {"serves": [{"model": "m", "cost": null}, {"model": "n"}]},
            "after": {"serves": [{"model": "m", "cost": {"input": "1.00"}}]},
        });
        let rows = differences(Locale::EN, "channel", &detail);
        assert_eq!(summary(Locale::EN, &rows), "Model m, Model n");
        assert!(rows[0].before.contains("null") && rows[0].after.contains("1.00"), "{rows:?}");
        assert_eq!(of(&detail)[1], row("serves n", r#"{"model":"n"}"#, ""));
    }

    #[test]
    fn summary_has_the_words_of_the_forms() {
        let signed_in = json!({"address": "192.0.2.7", "method": "password", "second_factor": "none"});
        let in_words = |t| summary(t, &differences(t, "session", &signed_in));
        assert_eq!(in_words(Locale::ZH_CN), "地址、登录方式、第二验证");
        assert_eq!(in_words(Locale::EN), "Address, Signed in with, Second factor");
        let served = json!({"before": null, "after": {"serves": [{"model": "gemini-4-argon"}], "connect_timeout_ms": 5_000}});
        assert_eq!(
            summary(Locale::ZH_CN, &differences(Locale::ZH_CN, "channel", &served)),
            "连接超时（毫秒）、模型 gemini-4-argon"
        );
    }

    #[test]
    fn values_of_a_fixed_set_are_in_the_words_of_the_forms() {
        let signed_in = json!({"address": "192.0.2.7", "method": "password", "second_factor": "totp"});
        let after =
            |t, kind: &str, detail: &Value| differences(t, kind, detail).into_iter().map(|row| row.after).collect::<Vec<_>>();
        assert_eq!(after(Locale::ZH_CN, "session", &signed_in), ["192.0.2.7", "密码", "一次性验证码"]);
        assert_eq!(after(Locale::EN, "session", &signed_in), ["192.0.2.7", "Password", "One-time code"]);
        let changed = json!({"before": {"role": "member"}, "after": {"role": "operator"}});
        assert_eq!(after(Locale::EN, "member", &changed), ["Operator"]);
        assert_eq!(after(Locale::EN, "group", &json!({"routing": "none"})), ["none"], "an unknown word is kept");
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(text(&"x".repeat(1_000).into()).chars().count(), MAX_CHARS + 1);
    }
}
