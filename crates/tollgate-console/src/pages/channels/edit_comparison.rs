//! What saving the form of a channel would change: the stored channel and the one that was typed, field by field. Nothing is saved.

use serde_json::{Map, Value, json};

use super::form::{GroupChanges, OfferingGroup};
use crate::pages::{
    difference::{DifferenceRow, differences},
    form::FormData,
    locale::Locale,
};

/// Members of the admin API's answer that no form changes.
const NOT_COMPARED: [&str; 4] = ["id", "revision", "created_at", "owner"];
/// A stored secret in answers of the admin API, and in forms that keep it.
const KEPT: &str = "***";

/// The changes that saving would make.
#[derive(Debug)]
pub(super) struct EditComparison {
    pub(super) rows: Vec<DifferenceRow>,
    /// A private key was typed. Pages never contain one, so it has to be typed again.
    pub(super) needs_key: bool,
}

impl EditComparison {
    /// `before` and `after` are rows from the admin API; `sent` is the body that the form sends to it.
    pub(super) fn of(
        t: Locale,
        name: &str,
        (before, after): (&Map<String, Value>, &Map<String, Value>),
        sent: &Map<String, Value>,
        (groups, form): (&[OfferingGroup], &FormData),
    ) -> Self {
        let (mut before, mut after) = (compared(before), marked(t, before, compared(after), sent));
        let (now, then) = offering(name, groups, form);
        before.insert("groups".to_owned(), now);
        after.insert("groups".to_owned(), then);
        let is_key = |value: &Value| value.as_str().is_some_and(|key| key != KEPT);
        Self {
            rows: differences(t, "channel", &json!({"before": before, "after": after})),
            needs_key: sent.get("client_key").is_some_and(is_key),
        }
    }
}

fn compared(row: &Map<String, Value>) -> Map<String, Value> {
    let fields = row.iter().filter(|(field, _)| !NOT_COMPARED.contains(&field.as_str()));
    fields.map(|(field, value)| (field.clone(), value.clone())).collect()
}

/// The row with typed secrets marked as such: their values are not in the rows of the admin API.
fn marked(t: Locale, before: &Map<String, Value>, mut row: Map<String, Value>, sent: &Map<String, Value>) -> Map<String, Value> {
    let is_typed = |value: &Value| value.as_str().is_some_and(|text| text != KEPT);
    if sent.get("client_key").is_some_and(is_typed) {
        row.insert("client_key".to_owned(), t.say("channels.typed_secret").into());
    }
    // A stored proxy is shown without its password, so a typed one may differ only in the password.
    if sent.get("proxy").is_some_and(|typed| typed.is_string() && Some(typed) != before.get("proxy"))
        && row.get("proxy") == before.get("proxy")
    {
        row.insert("proxy".to_owned(), t.say("channels.typed_secret").into());
    }
    let typed = sent.get("headers").and_then(Value::as_object).into_iter().flatten().filter(|(_, value)| is_typed(value));
    if let Some(headers) = row.get_mut("headers").and_then(Value::as_object_mut) {
        for (name, _) in typed {
            let known = headers.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name));
            if let Some((_, value)) = known {
                *value = t.say("channels.typed_secret").into();
            }
        }
    }
    row
}

/// The names of the groups that offer the channel, and of those that would.
fn offering(channel: &str, groups: &[OfferingGroup], form: &FormData) -> (Value, Value) {
    let GroupChanges { added, removed } = GroupChanges::of(form, groups);
    let now = |group: &&OfferingGroup| group.channels.iter().any(|known| known == channel);
    let then = |group: &&OfferingGroup| {
        let name = group.name.as_str();
        added.contains(&name) || (now(group) && !removed.contains(&name))
    };
    let names = |groups: Vec<&OfferingGroup>| groups.into_iter().map(|group| Value::from(group.name.as_str())).collect();
    (names(groups.iter().filter(now).collect()), names(groups.iter().filter(then).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared_with(before: Value, after: Value, sent: &Value, form: &str) -> EditComparison {
        let groups: Vec<OfferingGroup> = serde_json::from_value(json!([
            {"name": "a", "owner": "database", "channels": ["c"]},
            {"name": "b", "owner": "database", "channels": []},
            {"name": "f", "owner": "file", "channels": ["c"]},
        ]))
        .unwrap();
        let (Value::Object(before), Value::Object(after)) = (before, after) else { panic!() };
        let form = FormData::parse(form.as_bytes());
        EditComparison::of(Locale::EN, "c", (&before, &after), sent.as_object().unwrap(), (groups.as_slice(), &form))
    }

    fn shown(comparison: &EditComparison) -> Vec<(&str, &str, &str)> {
        comparison.rows.iter().map(|row| (row.field.as_str(), row.before.as_str(), row.after.as_str())).collect()
    }

    #[test]
    fn only_what_saving_changes_is_shown() {
        let row = json!({"name": "c", "weight": 1, "revision": 7, "headers": {}});
        let same = compared_with(row.clone(), row.clone(), &json!({"weight": 1}), "groups=a");
        assert!(same.rows.is_empty() && !same.needs_key, "{same:?}");
        let after = json!({"name": "c", "weight": 3, "revision": 8, "headers": {}});
        let changed = compared_with(row, after, &json!({"weight": 3}), "groups=a&groups=b");
        assert_eq!(shown(&changed), [("groups", "a, f", "a, b, f"), ("weight", "1", "3")]);
    }

    #[test]
    fn typed_secrets_are_marked_and_not_shown() {
        let before = json!({"headers": {"x-a": "***", "x-b": "***"}, "client_key": "***"});
        let sent = json!({"headers": {"X-A": "typed-secret", "x-b": "***"}, "client_key": "PEM typed-secret"});
        let changed = compared_with(before.clone(), before, &sent, "groups=a");
        let rows = shown(&changed);
        assert_eq!(rows.iter().map(|(field, ..)| *field).collect::<Vec<_>>(), ["client_key", "headers"]);
        assert!(rows.iter().all(|(_, before, after)| before.contains("***") && after.contains("new value")), "{rows:?}");
        assert!(!format!("{rows:?}").contains("typed-secret") && changed.needs_key);
    }

    #[test]
    fn typed_password_of_a_proxy_is_a_change() {
        let row = json!({"headers": {}, "proxy": "http://me:***@proxy:1"});
        let with = |proxy: &str| compared_with(row.clone(), row.clone(), &json!({"proxy": proxy}), "groups=a");
        let changed = with("http://me:secret@proxy:1");
        assert_eq!(shown(&changed).iter().map(|(field, ..)| *field).collect::<Vec<_>>(), ["proxy"]);
        assert!(!format!("{changed:?}").contains("secret"), "{changed:?}");
        assert!(with("http://me:***@proxy:1").rows.is_empty());
    }
}
