//! Summarises a chat completions reply, a complete body or a stream chunk, while it is relayed.

use std::ops::Range;

use super::{finish, usage};
use crate::{
    ReplySummary, Usage,
    edits::Ranges,
    reply_summary::CandidateProgress,
    scan::{Name, Scanner, SyntaxError, ValueKind},
};

#[derive(Debug, Default)]
pub(super) struct ChatReplyScan {
    pub summary: ReplySummary,
    pub candidates: CandidateProgress,
    pub choices: Choices,
    pub usage: Option<Usage>,
    /// `usage` is an object, even if it cannot be parsed.
    pub usage_object: bool,
    /// Ranges of all `usage` members, from the quote of the name to the end of the value.
    pub usage_members: Ranges,
    pub padding: Ranges,
    pub models: Ranges,
    /// An `error` member is set, or the body is the flat error object some servers send.
    pub error: bool,
    /// A choice has no message, so a complete reply is invalid.
    pub bare_choice: bool,
    /// `data` of an embeddings reply is not empty.
    pub vectors: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Choices {
    #[default]
    Missing,
    /// `null`, with its range.
    Null(Range<usize>),
    /// Neither a list nor `null`.
    Wrong,
    /// A list with an element that is not an object.
    Unusable,
    /// A list of this many choices.
    Listed(usize),
}

impl ChatReplyScan {
    pub(super) fn read(text: &[u8]) -> Result<Self, SyntaxError> {
        let mut answer = Self::default();
        Scanner::answer_object(text, |scanner, name| answer.member(scanner, name))?;
        answer.summary.usage = answer.usage;
        Ok(answer)
    }

    fn member<'a>(&mut self, scanner: &mut Scanner<'a>, name: &Name<'a>) -> Result<(), SyntaxError> {
        let starts = name.quote();
        match name.word() {
            "choices" => self.choices(scanner)?,
            "usage" => {
                self.usage_object = scanner.peek() == ValueKind::Object;
                // The last usage that can be parsed counts; one that cannot be parsed does not erase it.
                let value = scanner.position();
                self.usage = usage::read(scanner)?.or(self.usage);
                let value = scanner.slice(value..scanner.position());
                self.summary.searches = usage::searches(value)?.max(self.summary.searches);
                self.usage_members.push(starts..scanner.position());
            }
            "obfuscation" => self.padding.push(starts..scanner.skip()?.end),
            "model" if scanner.peek() == ValueKind::Text => self.models.push(scanner.skip()?),
            "error" => self.error |= is_set(scanner)?,
            "object" => self.error |= scanner.optional_string()?.is_some_and(|object| object.decode() == "error"),
            "data" => self.vectors = scanner.elements(|_, _| Ok(()))?.is_some_and(|length| length > 0),
            _ => {}
        }
        Ok(())
    }

    fn choices(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        match scanner.peek() {
            ValueKind::Array => {
                let mut sound = true;
                let length = scanner.elements(|scanner, _| {
                    sound &= self.choice(scanner)?;
                    Ok(())
                })?;
                self.choices = if sound { Choices::Listed(length.unwrap_or(0)) } else { Choices::Unusable };
            }
            ValueKind::Null => self.choices = Choices::Null(scanner.skip()?),
            ValueKind::Bool | ValueKind::Number | ValueKind::Text | ValueKind::Object => {
                scanner.skip()?;
                self.choices = Choices::Wrong;
            }
        }
        Ok(())
    }

    /// Scans one choice; false if it is not an object.
    fn choice(&mut self, scanner: &mut Scanner<'_>) -> Result<bool, SyntaxError> {
        let mut index = 0;
        let mut finish = None;
        let mut blank = false;
        let mut body = false;
        let others_content = std::mem::take(&mut self.summary.content);
        let object = scanner.members(|scanner, name| {
            match name.word() {
                "index" => index = scanner.token_count()?.ok().flatten().unwrap_or(0),
                "finish_reason" => {
                    let word = scanner.optional_string()?;
                    blank = word.is_some_and(|word| word.is_empty());
                    finish =
                        word.map(|word| word.decode()).filter(|word| !word.is_empty()).map(|word| finish::read(&word)).or(finish);
                }
                "message" => body |= message(scanner, &mut self.summary)?,
                "delta" => {
                    message(scanner, &mut self.summary)?;
                }
                _ => {}
            }
            Ok(())
        })?;
        let content = self.summary.content;
        self.summary.content |= others_content;
        if object.is_none() {
            return Ok(false);
        }
        self.candidates.record(index, content, finish.is_some());
        if blank {
            self.candidates.record_blank_finish(index);
        }
        if index == 0 && finish.is_some() {
            self.summary.finish = finish;
        }
        self.bare_choice |= !body;
        Ok(true)
    }
}

/// Scans `message` or `delta`; false if it is not an object.
fn message(scanner: &mut Scanner<'_>, summary: &mut ReplySummary) -> Result<bool, SyntaxError> {
    // Some upstreams send the same thoughts under two names.
    let mut thoughts = 0;
    let object = scanner.members(|scanner, name| {
        match name.word() {
            "content" => content(scanner, summary)?,
            "refusal" => summary.add_text(scanner)?,
            "reasoning_content" | "reasoning" => {
                thoughts = thoughts.max(scanner.optional_string()?.map_or(0, |text| text.decoded_bytes()));
            }
            "reasoning_details" => {
                summary.content |= scanner.elements(|_, _| Ok(()))?.is_some_and(|length| length > 0);
            }
            "tool_calls" => {
                scanner.elements(|scanner, _| tool_call(scanner, summary))?;
            }
            "function_call" => call(scanner, summary)?,
            "audio" => audio(scanner, summary)?,
            "images" => {
                let images = scanner.elements(|_, _| Ok(()))?.unwrap_or(0);
                summary.media = summary.media.saturating_add(u32::try_from(images).unwrap_or(u32::MAX));
                summary.content |= images > 0;
            }
            _ => {}
        }
        Ok(())
    })?;
    summary.content |= thoughts > 0;
    summary.text_bytes += thoughts;
    Ok(object.is_some())
}

/// `content` is a string, or a list of parts from some upstreams.
fn content(scanner: &mut Scanner<'_>, summary: &mut ReplySummary) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Array {
        return summary.add_text(scanner);
    }
    scanner.elements(|scanner, _| {
        scanner.members(|scanner, name| match name.word() {
            "text" | "refusal" | "thinking" => summary.add_text(scanner),
            _ => Ok(()),
        })?;
        Ok(())
    })?;
    Ok(())
}

fn tool_call(scanner: &mut Scanner<'_>, summary: &mut ReplySummary) -> Result<(), SyntaxError> {
    scanner.members(|scanner, name| match name.word() {
        "function" | "custom" => call(scanner, summary),
        _ => Ok(()),
    })?;
    Ok(())
}

/// Scans `{name, arguments}` or `{name, input}`; either counts as content if it is an object.
fn call(scanner: &mut Scanner<'_>, summary: &mut ReplySummary) -> Result<(), SyntaxError> {
    let object = scanner.members(|scanner, name| match name.word() {
        "arguments" | "input" => summary.add_text(scanner),
        _ => Ok(()),
    })?;
    summary.content |= object.is_some();
    Ok(())
}

fn audio(scanner: &mut Scanner<'_>, summary: &mut ReplySummary) -> Result<(), SyntaxError> {
    scanner.members(|scanner, name| match name.word() {
        "data" => {
            if scanner.optional_string()?.is_some_and(|data| !data.is_empty()) {
                summary.media = summary.media.saturating_add(1);
                summary.content = true;
            }
            Ok(())
        }
        "transcript" => summary.add_text(scanner),
        _ => Ok(()),
    })?;
    Ok(())
}

/// Whether an `error` member is set. Some servers always send one, with `null`, `false`, `""` or `{}`.
fn is_set(scanner: &mut Scanner<'_>) -> Result<bool, SyntaxError> {
    Ok(match scanner.peek() {
        ValueKind::Object => {
            let mut members = false;
            scanner.members(|_, _| {
                members = true;
                Ok(())
            })?;
            members
        }
        ValueKind::Text => scanner.optional_string()?.is_some_and(|text| !text.is_empty()),
        ValueKind::Bool | ValueKind::Null => {
            scanner.skip()?;
            false
        }
        ValueKind::Array | ValueKind::Number => {
            scanner.skip()?;
            true
        }
    })
}
