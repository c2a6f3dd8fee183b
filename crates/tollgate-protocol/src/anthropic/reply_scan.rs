//! Scans complete answers and stream events for the facts that checks and usage records need.

use super::{finish, usage::MessagesUsageCounts};
use crate::{
    ReplySummary,
    edits::Ranges,
    scan::{Name, Scanner, SyntaxError, ValueKind},
};

#[derive(Debug, Default)]
pub(super) struct MessagesReplyScan {
    pub summary: ReplySummary,
    /// Token counts so far, including those of this text.
    pub counts: MessagesUsageCounts,
    /// Top-level `type`, at most 64 characters.
    pub kind: String,
    pub content_list: bool,
    /// `content` has an element that is not an object.
    pub unusable: bool,
    /// Byte ranges of `model` strings, at the top level and in `message`.
    pub models: Ranges,
    pub error: bool,
    /// Top-level `input_tokens` of a token count.
    pub input_tokens: Option<u64>,
}

impl MessagesReplyScan {
    pub(super) fn read(text: &[u8], counts: MessagesUsageCounts) -> Result<Self, SyntaxError> {
        let mut answer = Self { counts, ..Self::default() };
        Scanner::answer_object(text, |scanner, name| answer.member(scanner, name))?;
        answer.summary.usage = answer.counts.usage();
        answer.summary.searches = answer.counts.searches().max(answer.summary.searches);
        Ok(answer)
    }

    fn member<'a>(&mut self, scanner: &mut Scanner<'a>, name: &Name<'a>) -> Result<(), SyntaxError> {
        match name.word() {
            "type" => {
                if let Some(kind) = scanner.optional_string()? {
                    self.kind = kind.decode().chars().take(64).collect();
                }
            }
            "message" => {
                scanner.members(|scanner, name| self.message(scanner, name))?;
            }
            "error" => self.error = matches!(scanner.peek(), ValueKind::Object | ValueKind::Text),
            "input_tokens" => self.input_tokens = scanner.token_count()?.ok().flatten(),
            "content_block" => {
                self.unusable |= !block(scanner, &mut self.summary)?;
            }
            "delta" => self.delta(scanner)?,
            _ => self.message(scanner, name)?,
        }
        Ok(())
    }

    /// Reads a member of the message: of a complete body, or of `message` in `message_start`.
    fn message<'a>(&mut self, scanner: &mut Scanner<'a>, name: &Name<'a>) -> Result<(), SyntaxError> {
        match name.word() {
            "model" if scanner.peek() == ValueKind::Text => self.models.push(scanner.skip()?),
            "usage" => self.counts.read(scanner)?,
            "stop_reason" => self.stop_reason(scanner)?,
            "content" => self.content(scanner)?,
            _ => {}
        }
        Ok(())
    }

    fn content(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        let list = scanner.elements(|scanner, _| {
            self.unusable |= !block(scanner, &mut self.summary)?;
            Ok(())
        })?;
        self.content_list = list.is_some();
        Ok(())
    }

    fn stop_reason(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        let reason = scanner.optional_string()?.filter(|word| !word.is_empty());
        self.summary.finish = reason.map(|word| finish::read(&word.decode())).or(self.summary.finish);
        Ok(())
    }

    fn delta(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        scanner.members(|scanner, name| match name.word() {
            "text" | "thinking" | "partial_json" => self.summary.add_text(scanner),
            "stop_reason" => self.stop_reason(scanner),
            _ => Ok(()),
        })?;
        Ok(())
    }
}

/// Reads one content block; false when it is not an object.
fn block(scanner: &mut Scanner<'_>, summary: &mut ReplySummary) -> Result<bool, SyntaxError> {
    let mut plain = true;
    let (mut is_search, mut has_results) = (false, false);
    let object = scanner.members(|scanner, name| {
        match name.word() {
            "type" => {
                let kind = scanner.optional_string()?.map(|kind| kind.decode());
                plain = matches!(kind.as_deref(), Some("text" | "thinking"));
                is_search = kind.as_deref() == Some("web_search_tool_result");
            }
            // A search that failed has an object here, and is not charged.
            "content" => has_results = scanner.peek() == ValueKind::Array,
            "text" | "thinking" => summary.add_text(scanner)?,
            // Complete arguments, or `{}` before the streamed pieces.
            "input" => {
                let length = scanner.skip()?.len() as u64;
                summary.text_bytes += if length > 2 { length } else { 0 };
            }
            _ => {}
        }
        Ok(())
    })?;
    if is_search && has_results {
        summary.searches = Some(summary.searches.unwrap_or(0).saturating_add(1));
    }
    // Calls, results and opaque thinking are content even without text.
    summary.content |= object.is_some() && !plain;
    Ok(object.is_some())
}
