//! The fields of an edit of a parameter.

use serde_json::{Map, Number, Value, json};
use tollgate_protocol::{ParameterChange, ParameterEdit};

use super::{Access, Fault, Field, FieldShape, FieldValue, Kind, Row as _, field, price::objects, table};

/// Most edits of a channel.
pub(super) const MAX_EDITS: usize = 32;
const TEXT: Kind = Kind::Text { min: 1, max: 128 };
/// Lowest and highest bound of `clamp`.
const MAX_BOUND: f64 = 1e15;
const NUMBER: Kind =
    Kind::Form { expected: "a number", schema: || json!({"type": "number", "minimum": -MAX_BOUND, "maximum": MAX_BOUND}) };
/// JSON Schema cannot bound the length of an arbitrary value.
const VALUE: Kind = Kind::Form { expected: "a value", schema: || json!({"x-max-bytes": ParameterEdit::MAX_FORCED_BYTES}) };

/// A bound of `clamp`.
macro_rules! bound {
    ($name:literal, $bound:ident, $doc:literal) => {
        Field {
            shape: FieldShape::new($name, NUMBER, $doc).or_null(),
            get: |edit: &Self| match &edit.change {
                ParameterChange::Clamp { $bound: Some(bound), .. } => Value::Number(bound.clone()),
                _ => Value::Null,
            },
            set: |edit: &mut Self, value| {
                if let ParameterChange::Clamp { $bound: bound, .. } = &mut edit.change {
                    *bound = number(value)?;
                }
                Ok(())
            },
        }
        .rule(|value| number(value).map(drop))
    };
}

table!(
    ParameterEdit,
    "ParameterEdit",
    ParameterEdit { parameter: String::new(), change: ParameterChange::Drop },
    &[
        Field {
            shape: FieldShape::new(
                "action",
                Kind::Word(&["drop", "rename", "clamp", "force"]),
                "`drop` removes the parameter, `rename` gives it another name, `clamp` brings a number into a range, `force` sets it \
                 in every request.",
            )
            .with(Access::Required),
            get: |edit: &Self| match edit.change {
                ParameterChange::Drop => "drop".into(),
                ParameterChange::Rename { .. } => "rename".into(),
                ParameterChange::Clamp { .. } => "clamp".into(),
                ParameterChange::Force { .. } => "force".into(),
            },
            set: |edit: &mut Self, value| {
                edit.change = match value.as_str() {
                    Some("rename") => ParameterChange::Rename { to: String::new() },
                    Some("clamp") => ParameterChange::Clamp { min: None, max: None },
                    Some("force") => ParameterChange::Force { value: Value::Null },
                    Some(_) | None => ParameterChange::Drop,
                };
                Ok(())
            },
        },
        field!(
            "parameter",
            parameter: String,
            "Its name as the upstream's protocol has it, with dots between the names of nested ones: `top_k`, \
             `generationConfig.topK`, `reasoning.effort`."
        )
        .kind(TEXT)
        .access(Access::Required),
        Field {
            shape: FieldShape::new("to", TEXT, "Of `rename`: the new name, without dots, in the same object.").or_null(),
            get: |edit: &Self| match &edit.change {
                ParameterChange::Rename { to } => to.as_str().into(),
                ParameterChange::Drop | ParameterChange::Clamp { .. } | ParameterChange::Force { .. } => Value::Null,
            },
            set: |edit: &mut Self, value| {
                if let ParameterChange::Rename { to } = &mut edit.change {
                    value.as_str().unwrap_or_default().clone_into(to);
                }
                Ok(())
            },
        },
        bound!("min", min, "Of `clamp`: the lowest value."),
        bound!("max", max, "Of `clamp`: the highest value."),
        Field {
            shape: FieldShape::new("value", VALUE, "Of `force`: the value.").or_null(),
            get: |edit: &Self| match &edit.change {
                ParameterChange::Force { value } => value.clone(),
                ParameterChange::Drop | ParameterChange::Rename { .. } | ParameterChange::Clamp { .. } => Value::Null,
            },
            set: |edit: &mut Self, value| {
                if let ParameterChange::Force { value: forced } = &mut edit.change {
                    forced.clone_from(value);
                }
                Ok(())
            },
        },
    ],
    example "[{ action = \"clamp\", parameter = \"temperature\", max = 1 }]",
    review review
);

fn number(value: &Value) -> Result<Option<Number>, String> {
    match value {
        Value::Null => Ok(None),
        Value::Number(number) if number.as_f64().is_some_and(|number| number.abs() > MAX_BOUND) => {
            Err(format!("expected a number between -{MAX_BOUND:e} and {MAX_BOUND:e}"))
        }
        Value::Number(number) if number.is_i64() || number.is_f64() => Ok(Some(number.clone())),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            Err("expected a number".to_owned())
        }
    }
}

/// A member that the action ignores is refused, because it would look effective.
fn review(edit: &Map<String, Value>) -> Option<(&'static str, Fault)> {
    const MEMBERS: [(&str, &str); 4] = [("to", "rename"), ("min", "clamp"), ("max", "clamp"), ("value", "force")];
    let action = edit.get("action").and_then(Value::as_str).unwrap_or_default();
    let has = |name: &str| edit.get(name).is_some_and(|value| !value.is_null());
    if let Some((name, of)) = MEMBERS.into_iter().find(|(name, of)| *of != action && has(name)) {
        return Some((name, Fault::Value(format!("it belongs to the action \"{of}\"; \"{action}\" ignores it"))));
    }
    if let Some((name, _)) = MEMBERS.into_iter().find(|(name, of)| *of == action && action != "clamp" && !has(name)) {
        return Some((name, Fault::Missing));
    }
    let edit: ParameterEdit = super::price::read_object(&Value::Object(edit.clone())).ok()?;
    edit.fault().map(|(member, fault)| (member, Fault::Value(fault)))
}

objects!(ParameterEdit);

impl FieldValue for Vec<ParameterEdit> {
    const KIND: Kind = Kind::List { of: &Kind::Object(ParameterEdit::OBJECT), max: MAX_EDITS };

    fn show(&self) -> Value {
        self.iter().map(FieldValue::show).collect()
    }

    fn read(value: &Value) -> Result<Self, String> {
        value.as_array().into_iter().flatten().map(FieldValue::read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::WriteMode, *};

    /// The problems of a list of edits, or the list as it is shown.
    fn read(list: &Value) -> Result<Value, Vec<String>> {
        let field = FieldShape::new("parameter_edits", Vec::<ParameterEdit>::KIND, "");
        let mut problems = Vec::new();
        super::super::check_field(&field, list, WriteMode::Create, &mut Vec::new(), &mut problems);
        if problems.is_empty() {
            return Ok(Vec::<ParameterEdit>::read(list).unwrap().show());
        }
        Err(problems.iter().map(|problem| problem.below(0)).collect())
    }

    #[test]
    fn edits_are_shown_as_they_were_written() {
        let list = json!([
            {"action": "drop", "parameter": "logit_bias"},
            {"action": "rename", "parameter": "user", "to": "safety_identifier"},
            {"action": "clamp", "parameter": "presence_penalty", "min": -1.5, "max": 2},
            {"action": "force", "parameter": "thinking", "value": {"type": "disabled"}},
        ]);
        assert_eq!(read(&list), Ok(list));
    }

    #[test]
    fn faults_are_at_their_member() {
        for (edit, expected) in [
            (json!({"action": "drop"}), "[0].parameter: is missing"),
            (json!({"action": "move", "parameter": "a"}), "[0].action: 'move' is not one of"),
            (json!({"action": "drop", "parameter": "a", "to": "b"}), "[0].to: it belongs to the action \"rename\""),
            (json!({"action": "rename", "parameter": "a"}), "[0].to: is missing"),
            (json!({"action": "force", "parameter": "a", "value": null}), "[0].value: is missing"),
            (json!({"action": "force", "parameter": "a", "value": [null]}), "[0].value: must not be or contain null"),
            (json!({"action": "clamp", "parameter": "a"}), "[0].max: clamp needs"),
            (json!({"action": "clamp", "parameter": "a", "max": "1"}), "[0].max: expected a number"),
            (json!({"action": "drop", "parameter": "messages"}), "[0].parameter: 'messages' cannot be edited"),
            (json!({"action": "force", "parameter": "max_tokens", "value": 1}), "[0].parameter: 'max_tokens' is an output limit"),
        ] {
            let problems = read(&json!([edit])).unwrap_err();
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
        }
        let many = vec![json!({"action": "drop", "parameter": "a"}); MAX_EDITS + 1];
        assert_eq!(read(&json!(many)), Err(vec!["more than 32 entries".to_owned()]));
    }
}
