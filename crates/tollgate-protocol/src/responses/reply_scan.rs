//! Scans complete responses and stream events for the facts that checks and usage records need.

use std::ops::Range;

use super::{finish, usage};
use crate::{
    ReplySummary,
    edits::Ranges,
    scan::{Name, Scanner, SyntaxError, ValueKind},
};

/// Longest `type`, id and status that is kept, in characters.
const MAX_WORD: usize = 128;

#[derive(Debug, Default)]
pub(super) struct ResponsesReplyScan {
    pub summary: ReplySummary,
    /// Top-level `type`.
    pub kind: String,
    /// Id of the response.
    pub id: String,
    pub created_at: Option<u64>,
    status: String,
    reason: Option<String>,
    called: bool,
    pub output_list: bool,
    /// `output` has an element that is not an object.
    pub unusable: bool,
    /// Byte ranges of `model` strings, at the top level and in `response`.
    pub models: Ranges,
    pub error: bool,
    /// Byte range of the `item` of an event.
    pub item: Option<Range<usize>>,
    pub sequence: Option<u64>,
    /// Top-level `input_tokens` of a token count.
    pub input_tokens: Option<u64>,
}

impl ResponsesReplyScan {
    pub(super) fn read(text: &[u8]) -> Result<Self, SyntaxError> {
        let mut answer = Self::default();
        Scanner::answer_object(text, |scanner, name| answer.member(scanner, name))?;
        answer.summary.finish = finish::read(&answer.status, answer.reason.as_deref(), answer.called);
        Ok(answer)
    }

    fn member<'a>(&mut self, scanner: &mut Scanner<'a>, name: &Name<'a>) -> Result<(), SyntaxError> {
        match name.word() {
            "type" => self.kind = word(scanner)?.unwrap_or_default(),
            "response" => {
                scanner.members(|scanner, name| self.response(scanner, name))?;
            }
            "sequence_number" => self.sequence = scanner.token_count()?.ok().flatten(),
            "input_tokens" => self.input_tokens = scanner.token_count()?.ok().flatten(),
            // Pieces of texts, thoughts and arguments.
            "delta" => self.summary.add_text(scanner)?,
            "item" => {
                let mut piece = ReplySummary::default();
                let start = scanner.position();
                self.unusable |= !item(scanner, &mut piece, &mut self.called)?;
                self.item = Some(start..scanner.position());
                // The texts of an item already arrived in pieces.
                self.summary.content |= piece.content;
                self.summary.searches = piece.searches;
            }
            _ => self.response(scanner, name)?,
        }
        Ok(())
    }

    /// Reads a member of the response: of a complete body, or of `response` in an event.
    fn response<'a>(&mut self, scanner: &mut Scanner<'a>, name: &Name<'a>) -> Result<(), SyntaxError> {
        match name.word() {
            "id" => self.id = word(scanner)?.unwrap_or_default(),
            "created_at" => self.created_at = scanner.token_count()?.ok().flatten(),
            "model" if scanner.peek() == ValueKind::Text => self.models.push(scanner.skip()?),
            "usage" => self.summary.usage = usage::read(scanner)?.or(self.summary.usage),
            "status" => self.status = word(scanner)?.unwrap_or_default(),
            "incomplete_details" => {
                scanner.members(|scanner, name| {
                    if name.word() == "reason" {
                        self.reason = word(scanner)?;
                    }
                    Ok(())
                })?;
            }
            "output" => {
                let list = scanner.elements(|scanner, _| {
                    self.unusable |= !item(scanner, &mut self.summary, &mut self.called)?;
                    Ok(())
                })?;
                self.output_list = list.is_some();
            }
            "error" => self.error |= matches!(scanner.peek(), ValueKind::Object | ValueKind::Text),
            _ => {}
        }
        Ok(())
    }
}

fn word(scanner: &mut Scanner<'_>) -> Result<Option<String>, SyntaxError> {
    Ok(scanner.optional_string()?.map(|text| text.decode().chars().take(MAX_WORD).collect()))
}

/// Reads one output item; false when it is not an object.
fn item(scanner: &mut Scanner<'_>, summary: &mut ReplySummary, called: &mut bool) -> Result<bool, SyntaxError> {
    let mut kind = None;
    let mut action = None;
    let object = scanner.members(|scanner, name| {
        match name.word() {
            "type" => kind = word(scanner)?,
            "content" | "summary" => {
                scanner.elements(|scanner, _| {
                    scanner.members(|scanner, name| match name.word() {
                        "text" | "refusal" => summary.add_text(scanner),
                        _ => Ok(()),
                    })?;
                    Ok(())
                })?;
            }
            "arguments" | "input" => summary.add_text(scanner)?,
            "action" => {
                scanner.members(|scanner, name| {
                    if name.word() == "type" {
                        action = word(scanner)?;
                    }
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    })?;
    *called |= matches!(kind.as_deref(), Some("function_call" | "custom_tool_call"));
    // Calls, also those that the provider runs, are content even without text.
    summary.content |= object.is_some() && !matches!(kind.as_deref(), Some("message" | "reasoning"));
    // Opening a found page, or searching in it, is not charged.
    if is_web_search(kind.as_deref()) && !matches!(action.as_deref(), Some("open_page" | "find_in_page")) {
        summary.searches = Some(summary.searches.unwrap_or(0).saturating_add(1));
    }
    if kind.as_deref() == Some("image_generation_call") {
        summary.media = summary.media.saturating_add(1);
    }
    Ok(object.is_some())
}

/// True if an item is a search outside the caller's own files. Other vendors have tools such as `x_search`.
fn is_web_search(kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| kind.ends_with("search_call") && !matches!(kind, "file_search_call" | "tool_search_call"))
}
