//! Whether a history allows thinking with a budget. The API requires the thinking block in front of the last calls then; where another
//! provider's model made it, it is removed, and so must be the budget.

use std::ops::Range;

use super::has_marker;
use crate::{
    edits::Edits,
    scan::{Name, Scanner, SyntaxError, ValueKind},
};

/// What a body says about thinking with a budget.
#[derive(Debug, Default)]
pub(super) struct ThinkingBudget {
    /// The member `thinking` that sets a budget, from the quote of its name.
    member: Option<Range<usize>>,
    /// The edits of `context_management`, with `true` for those that need thinking.
    context_edits: Vec<(Range<usize>, bool)>,
    last: ModelTurn,
}

/// The blocks of a turn of the model.
#[derive(Clone, Copy, Debug, Default)]
struct ModelTurn {
    calls: bool,
    own_thinking: bool,
    marked_thinking: bool,
}

impl ThinkingBudget {
    pub(super) fn read(body: &[u8]) -> Result<Self, SyntaxError> {
        let mut read = Self::default();
        Scanner::new(body)?.members(|scanner, name| read.member(scanner, name))?;
        Ok(read)
    }

    fn member(&mut self, scanner: &mut Scanner<'_>, name: &Name<'_>) -> Result<(), SyntaxError> {
        match name.word() {
            "thinking" => {
                let is_budget = has_type(scanner, |kind| kind == "enabled")?.1;
                self.member = is_budget.then(|| name.quote()..scanner.position());
            }
            "context_management" => {
                scanner.members(|scanner, name| {
                    if name.word() == "edits" {
                        scanner.elements(|scanner, _| {
                            self.context_edits.push(has_type(scanner, |kind| kind.starts_with("clear_thinking"))?);
                            Ok(())
                        })?;
                    }
                    Ok(())
                })?;
            }
            "messages" => {
                scanner.elements(|scanner, _| {
                    self.last = model_turn(scanner)?.unwrap_or(self.last);
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the budget must go with the thinking block that is removed.
    pub(super) fn is_impossible(&self) -> bool {
        let ModelTurn { calls, own_thinking, marked_thinking } = self.last;
        self.member.is_some() && calls && marked_thinking && !own_thinking
    }

    /// Removes the budget, and the edits of the context that are refused without thinking.
    pub(super) fn remove(self, body: &[u8], changes: &mut Edits<'static>) {
        if let Some(member) = self.member {
            changes.remove_member(body, member);
        }
        changes.remove_items(&self.context_edits);
    }
}

/// Reads a value and whether it is an object whose `type` `is` accepts.
fn has_type(scanner: &mut Scanner<'_>, is: impl Fn(&str) -> bool) -> Result<(Range<usize>, bool), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        return Ok((scanner.skip()?, false));
    }
    let mut found = false;
    let range = scanner.members(|scanner, name| {
        if name.word() == "type" {
            found = scanner.optional_string()?.is_some_and(|kind| is(&kind.decode()));
        }
        Ok(())
    })?;
    Ok((range.unwrap_or_default(), found))
}

/// Reads a turn; `None` if it is not one of the model.
fn model_turn(scanner: &mut Scanner<'_>) -> Result<Option<ModelTurn>, SyntaxError> {
    let (mut turn, mut is_model) = (ModelTurn::default(), false);
    scanner.members(|scanner, name| {
        match name.word() {
            "role" => is_model = scanner.optional_string()?.is_some_and(|role| role.decode() == "assistant"),
            "content" => {
                scanner.elements(|scanner, _| block(scanner, &mut turn))?;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(is_model.then_some(turn))
}

fn block(scanner: &mut Scanner<'_>, turn: &mut ModelTurn) -> Result<(), SyntaxError> {
    let (mut thinks, mut marked) = (false, false);
    scanner.members(|scanner, name| {
        match name.word() {
            "type" => {
                if let Some(kind) = scanner.optional_string()? {
                    let kind = kind.decode();
                    thinks = kind.ends_with("thinking");
                    turn.calls |= kind == "tool_use";
                }
            }
            "signature" | "data" => marked |= scanner.optional_string()?.is_some_and(|value| has_marker(&value)),
            _ => {}
        }
        Ok(())
    })?;
    turn.marked_thinking |= thinks && marked;
    turn.own_thinking |= thinks && !marked;
    Ok(())
}
