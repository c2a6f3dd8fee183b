//! Checks whether a history allows a thinking budget. With a budget, the API requires a thinking block before the last calls ("Expected
//! `thinking` or `redacted_thinking`, but found `tool_use`"). Calls made by another provider's model have no such block or lose it, so
//! the budget must be removed as well. Calls that Claude then makes without thinking have no block either.

use std::ops::Range;

use super::has_marker;
use crate::{
    edits::Edits,
    scan::{Name, Scanner, SyntaxError, ValueKind},
};

/// The parts of a body that concern thinking with a budget.
#[derive(Debug, Default)]
pub(super) struct ThinkingBudget {
    /// The member `thinking` that sets a budget, from the quote of its name.
    member: Option<Range<usize>>,
    /// The edits of `context_management`, with `true` for those that need thinking.
    context_edits: Vec<(Range<usize>, bool)>,
    last: ModelTurn,
    /// True if a model turn since the last user message other than tool results has a thinking block of its own. Claude thinks only
    /// before the first of several consecutive calls.
    has_thought: bool,
}

enum Message {
    OfModel(ModelTurn),
    /// A user message with tool results.
    Results,
    Other,
}

/// The blocks of a message.
#[derive(Clone, Copy, Debug, Default)]
struct ModelTurn {
    calls: bool,
    results: bool,
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
                    match message(scanner)? {
                        Message::OfModel(turn) => {
                            self.has_thought |= turn.own_thinking;
                            self.last = turn;
                        }
                        Message::Results => {}
                        Message::Other => self.has_thought = false,
                    }
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the budget must be removed, because the last calls have no thinking block or lose it.
    pub(super) fn is_impossible(&self) -> bool {
        let ModelTurn { calls, own_thinking, marked_thinking, .. } = self.last;
        self.member.is_some() && calls && !own_thinking && (marked_thinking || !self.has_thought)
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

fn message(scanner: &mut Scanner<'_>) -> Result<Message, SyntaxError> {
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
    Ok(match turn {
        turn if is_model => Message::OfModel(turn),
        ModelTurn { results: true, .. } => Message::Results,
        _ => Message::Other,
    })
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
                    turn.results |= kind == "tool_result";
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
