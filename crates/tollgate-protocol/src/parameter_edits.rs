//! A channel's edits of optional parameters in a request's body: a parameter is dropped, renamed, clamped or forced. Values
//! that no edit names keep their bytes.

mod guard;

use std::{borrow::Cow, cmp::Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::{
    Protocol,
    edits::literal,
    scan::{Scanner, SyntaxError, ValueKind},
};

/// One edit, in the spelling of the upstream's protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterEdit {
    /// Path of the parameter, such as `top_k`, `generationConfig.topK` or `reasoning.effort`.
    pub parameter: String,
    pub change: ParameterChange,
}

/// The effect of an edit on its parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParameterChange {
    /// Removes it.
    Drop,
    /// Renames it within its object. If the request already has the new name, the old one is removed.
    Rename { to: String },
    /// Brings a number into a range.
    Clamp { min: Option<Number>, max: Option<Number> },
    /// Sets it, whether the request has it or not. Missing objects on its path are added.
    Force { value: Value },
}

/// Maximum length of a parameter's path in bytes, and maximum number of its names.
const MAX_PARAMETER_BYTES: usize = 128;
const MAX_PARAMETER_DEPTH: usize = 4;
/// Deepest nesting of a value that is forced.
const MAX_FORCED_DEPTH: usize = 16;

impl ParameterEdit {
    /// Longest value that is forced, in bytes of compact JSON.
    pub const MAX_FORCED_BYTES: usize = 2_048;
}

/// The body of a request with the edits applied in order, and what they changed: `top_k` was dropped, `top_k->k` renamed,
/// `temperature=1` clamped or forced. Returns the same buffer if nothing changes or the body is no JSON object.
#[must_use]
pub fn edit_parameters(protocol: Protocol, body: &Bytes, edits: &[ParameterEdit]) -> (Bytes, Vec<String>) {
    let unchanged = || (body.clone(), Vec::new());
    if edits.is_empty() {
        return unchanged();
    }
    let paths: Vec<&str> = edits.iter().map(|edit| edit.parameter.as_str()).collect();
    let read = Scanner::new(body).and_then(|mut scanner| read_object(&mut scanner, protocol, &paths));
    let Ok(mut members) = read else { return unchanged() };
    let changed: Vec<String> = edits.iter().filter_map(|edit| apply(protocol, &mut members, &edit.parameter, edit)).collect();
    if changed.is_empty() {
        return unchanged();
    }
    let mut out = String::with_capacity(body.len() + 256);
    write_object(&members, &mut out);
    (Bytes::from(out), changed)
}

/// A value: its text, or the members of an object that edits search.
enum EditedValue<'a> {
    Text(Cow<'a, str>),
    Object(Vec<EditedMember<'a>>),
}

struct EditedMember<'a> {
    name: Cow<'a, str>,
    /// The name as it is written, with quotes, colon and white space.
    written: Cow<'a, str>,
    value: EditedValue<'a>,
}

impl<'a> EditedMember<'a> {
    fn new(name: &str, value: EditedValue<'a>) -> Self {
        Self { name: Cow::Owned(name.to_owned()), written: Cow::Owned(format!("{}:", literal(name))), value }
    }
}

/// Reads an object. Only objects on a path are read further.
fn read_object<'a>(scanner: &mut Scanner<'a>, protocol: Protocol, paths: &[&str]) -> Result<Vec<EditedMember<'a>>, SyntaxError> {
    let mut members = Vec::new();
    scanner.object(|scanner, name| {
        let rest = |path: &&'_ str| -> Option<usize> {
            let (head, _) = path.split_once('.')?;
            is_same(protocol, head, name.word()).then_some(head.len() + 1)
        };
        let below: Vec<&str> = paths.iter().filter_map(|path| rest(path).map(|at| &path[at..])).collect();
        let goes_on = scanner.peek() == ValueKind::Object && !below.is_empty();
        let written = scanner.slice(name.quote()..scanner.position());
        let value = if goes_on {
            EditedValue::Object(read_object(scanner, protocol, &below)?)
        } else {
            let range = scanner.skip()?;
            EditedValue::Text(Cow::Borrowed(scanner.slice(range)))
        };
        members.push(EditedMember { name: name.into_word(), written: Cow::Borrowed(written), value });
        Ok(())
    })?;
    Ok(members)
}

/// Whether two names mean the same member. Native bodies have members in camel or snake case.
fn is_same(protocol: Protocol, one: &str, other: &str) -> bool {
    if protocol == Protocol::Gemini { guard::is_same_loosely(one, other) } else { one == other }
}

/// Applies an edit at `path` below these members. Returns the entry for the list of changes, if anything changed.
fn apply(protocol: Protocol, members: &mut Vec<EditedMember<'_>>, path: &str, edit: &ParameterEdit) -> Option<String> {
    let Some((head, rest)) = path.split_once('.') else { return change(protocol, members, path, edit) };
    let adds = matches!(edit.change, ParameterChange::Force { .. });
    if adds && !members.iter().any(|member| is_same(protocol, &member.name, head)) {
        members.push(EditedMember::new(head, EditedValue::Object(Vec::new())));
    }
    let mut changed = None;
    for member in members.iter_mut().filter(|member| is_same(protocol, &member.name, head)) {
        if adds && matches!(&member.value, EditedValue::Text(text) if text == "null") {
            member.value = EditedValue::Object(Vec::new());
        }
        if let EditedValue::Object(inner) = &mut member.value {
            changed = apply(protocol, inner, rest, edit).or(changed);
        }
    }
    changed
}

fn change(protocol: Protocol, members: &mut Vec<EditedMember<'_>>, name: &str, edit: &ParameterEdit) -> Option<String> {
    let is_it = |member: &EditedMember<'_>| is_same(protocol, &member.name, name);
    let field = &edit.parameter;
    match &edit.change {
        ParameterChange::Drop => {
            let before = members.len();
            members.retain(|member| !is_it(member));
            (members.len() < before).then(|| field.clone())
        }
        ParameterChange::Rename { to } => {
            if !members.iter().any(is_it) {
                return None;
            }
            if members.iter().any(|member| is_same(protocol, &member.name, to)) {
                members.retain(|member| !is_it(member));
            }
            for member in members.iter_mut().filter(|member| is_it(member)) {
                let value = std::mem::replace(&mut member.value, EditedValue::Object(Vec::new()));
                *member = EditedMember::new(to, value);
            }
            Some(format!("{field}->{to}"))
        }
        ParameterChange::Clamp { min, max } => {
            let mut changed = None;
            for member in members.iter_mut().filter(|member| is_it(member)) {
                if let EditedValue::Text(text) = &member.value
                    && let Some(bound) = outside(text, min.as_ref(), max.as_ref())
                {
                    changed = Some(format!("{field}={bound}"));
                    member.value = EditedValue::Text(Cow::Owned(bound.to_string()));
                }
            }
            changed
        }
        ParameterChange::Force { value } => {
            let mut changed = false;
            if !members.iter().any(is_it) {
                members.push(EditedMember::new(name, EditedValue::Object(Vec::new())));
                changed = true;
            }
            for member in members.iter_mut().filter(|member| is_it(member)) {
                changed |= !is_value(&member.value, value);
                member.value = EditedValue::Text(Cow::Owned(value.to_string()));
            }
            changed.then(|| format!("{field}={}", shown(value)))
        }
    }
}

/// The bound that a number is beyond.
fn outside<'n>(text: &str, min: Option<&'n Number>, max: Option<&'n Number>) -> Option<&'n Number> {
    let number: f64 = text.parse().ok()?;
    // Not every text that Rust parses as a number is a JSON number.
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') || !text.ends_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let compare = |bound: &Number| match (text.parse::<i64>(), bound.as_i64()) {
        (Ok(number), Some(bound)) => Some(number.cmp(&bound)),
        (Ok(_) | Err(_), _) => number.partial_cmp(&bound.as_f64()?),
    };
    let below = min.filter(|bound| compare(bound) == Some(Ordering::Less));
    below.or_else(|| max.filter(|bound| compare(bound) == Some(Ordering::Greater)))
}

fn is_value(edited: &EditedValue<'_>, value: &Value) -> bool {
    let mut text = String::new();
    write_value(edited, &mut text);
    serde_json::from_str::<Value>(&text).is_ok_and(|parsed| parsed == *value)
}

/// A forced value in the list of changes: objects and lists are not written out.
fn shown(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => Cow::Owned(value.to_string()),
        Value::Array(_) | Value::Object(_) => Cow::Borrowed("..."),
    }
}

fn write_object(members: &[EditedMember<'_>], out: &mut String) {
    out.push('{');
    for (i, member) in members.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&member.written);
        write_value(&member.value, out);
    }
    out.push('}');
}

fn write_value(edited: &EditedValue<'_>, out: &mut String) {
    match edited {
        EditedValue::Text(text) => out.push_str(text),
        EditedValue::Object(members) => write_object(members, out),
    }
}

#[cfg(test)]
mod tests;
