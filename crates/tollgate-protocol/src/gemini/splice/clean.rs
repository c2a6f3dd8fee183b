//! Removes from histories what only another provider can read: signatures wrapped by this gateway, and the thoughts they belong
//! to.

use std::ops::Range;

use crate::{
    edits::Edits,
    markers::{WRAPPED_SIGNATURE, clean_turns},
    opaque_state::PLACEHOLDER,
    scan::{Scanner, SyntaxError, Value, ValueKind},
};

/// Cleans the contents at the top level and inside `generateContentRequest`.
pub(super) fn clean(body: &[u8], changes: &mut Edits<'static>) -> Result<(), SyntaxError> {
    Scanner::new(body)?.members(|scanner, name| match &*name.decode() {
        "contents" => contents(scanner, changes),
        "generateContentRequest" | "generate_content_request" => {
            scanner.members(|scanner, name| if name.decode() == "contents" { contents(scanner, changes) } else { Ok(()) })?;
            Ok(())
        }
        _ => Ok(()),
    })?;
    Ok(())
}

fn contents(scanner: &mut Scanner<'_>, changes: &mut Edits<'static>) -> Result<(), SyntaxError> {
    clean_turns(scanner, changes, "parts", part)
}

/// Properties of a part that decide how its signature is removed.
#[derive(Default)]
struct PartTraits {
    thought: bool,
    call: bool,
    text: bool,
    other: bool,
    members: Vec<(Range<usize>, bool)>,
    wrapped: Vec<Range<usize>>,
}

/// Cleans one part. Returns its range, and true if the whole part has to be removed.
fn part(scanner: &mut Scanner<'_>, changes: &mut Edits<'static>) -> Result<(Range<usize>, bool), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        return Ok((scanner.skip()?, false));
    }
    let mut traits = PartTraits::default();
    let range = scanner.object(|scanner, name| {
        let (value, range) = scanner.value()?;
        let mut wrapped = false;
        match &*name.decode() {
            "thought" => traits.thought = value == Value::Bool(true),
            "functionCall" | "function_call" => traits.call |= value != Value::Null,
            "text" => traits.text = matches!(value, Value::Text(text) if !text.raw().is_empty()),
            "thoughtSignature" | "thought_signature" => {
                wrapped = matches!(value, Value::Text(text) if text.raw().starts_with(WRAPPED_SIGNATURE));
            }
            _ => traits.other |= value != Value::Null,
        }
        if wrapped {
            traits.wrapped.push(range.clone());
        }
        traits.members.push((name.content_range().start - 1..range.end, wrapped));
        Ok(())
    })?;
    if traits.wrapped.is_empty() {
        return Ok((range, false));
    }
    if traits.call {
        let placeholder = format!("\"{PLACEHOLDER}\"").into_bytes();
        for value in traits.wrapped {
            changes.replace(value, placeholder.clone());
        }
        return Ok((range, false));
    }
    if traits.thought || !(traits.text || traits.other) {
        return Ok((range, true));
    }
    changes.remove_items(&traits.members);
    Ok((range, false))
}
