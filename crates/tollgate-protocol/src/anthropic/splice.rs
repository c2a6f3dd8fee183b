//! Edits a Messages body for an upstream of the same protocol in place of re-encoding it. Everything else is passed on, members
//! and beta features that the gateway does not know included.

mod thinking_budget;

use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;

use self::thinking_budget::ThinkingBudget;
use crate::{
    RequestEdits, RequestSummary,
    edits::{Edits, literal},
    markers::{THINKING_SIGNATURE, clean_turns, strip_id_suffix},
    scan::{JsonStr, Scanner, SyntaxError, Value, ValueKind},
};

const LIMIT_FIELD: &str = "max_tokens";
/// The member that sets a budget for thinking.
const BUDGET_MEMBER: &str = "thinking";

/// Applies the edits; returns the same buffer if nothing changes. Also returns the result of [`left_out`], so that the history is read
/// only once.
pub(super) fn forward(body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> (Bytes, Option<&'static str>) {
    let mut changes = Edits::new();
    if let (Some(name), Some(range)) = (edits.upstream_model, &summary.splices.model)
        && name != summary.model
    {
        changes.replace(range.clone(), literal(name).into_bytes());
    }
    if let Some(limit) = edits.max_output
        && summary.method.takes_output_limit()
    {
        changes.limit_output(body, &summary.splices, LIMIT_FIELD, limit);
    }
    if summary.splices.markers {
        let mut cleaned = Edits::new();
        if clean(body, &mut cleaned).is_ok() {
            changes.append(cleaned);
        }
    }
    let mut left = None;
    if let Some(budget) = impossible_budget(body, summary) {
        budget.remove(body, &mut changes);
        left = Some(BUDGET_MEMBER);
    }
    (changes.apply_to(body), left)
}

/// The member that [`forward`] leaves out because of the history.
pub(super) fn left_out(body: &[u8], summary: &RequestSummary) -> Option<&'static str> {
    impossible_budget(body, summary).map(|_| BUDGET_MEMBER)
}

/// The thinking budget, if the history does not allow one after marked thinking is removed.
fn impossible_budget(body: &[u8], summary: &RequestSummary) -> Option<ThinkingBudget> {
    let may_have_budget = summary.turns > 1 && summary.fields.iter().any(|field| field.as_str() == "thinking");
    if !may_have_budget || memmem::find(body, b"\"budget_tokens\"").is_none() {
        return None;
    }
    ThinkingBudget::read(body).ok().filter(ThinkingBudget::is_impossible)
}

/// Removes content that only another provider can read: the suffixes of tool ids, and thinking marked by the gateway.
fn clean(body: &[u8], changes: &mut Edits<'static>) -> Result<(), SyntaxError> {
    Scanner::new(body)?.members(|scanner, name| match name.word() {
        "messages" => clean_turns(scanner, changes, "content", block),
        _ => Ok(()),
    })?;
    Ok(())
}

/// Cleans one content block; true for a block to remove entirely: thinking of another provider's model, marked by the
/// gateway.
fn block(scanner: &mut Scanner<'_>, changes: &mut Edits<'static>) -> Result<(Range<usize>, bool), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        return Ok((scanner.skip()?, false));
    }
    let (mut thinking, mut marked) = (false, false);
    let range = scanner.object(|scanner, name| {
        match name.word() {
            "id" | "tool_use_id" => strip_id_suffix(scanner, changes)?,
            "type" => thinking = matches!(scanner.value()?.0, Value::Text(kind) if kind.decode().ends_with("thinking")),
            "signature" | "data" => marked |= matches!(scanner.value()?.0, Value::Text(value) if has_marker(&value)),
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    Ok((range, thinking && marked))
}

fn has_marker(value: &JsonStr<'_>) -> bool {
    value.raw().starts_with(THINKING_SIGNATURE)
}

#[cfg(test)]
mod tests;
