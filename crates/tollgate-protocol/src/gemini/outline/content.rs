//! One content and its parts.

use crate::{
    scan::{Fault, Kind, Scanner, Text, Value},
    shape::Path,
    survey::{MAX_TURNS, Speaker, Survey},
};

/// Reads a content of the conversation: its shape, its text, its media.
pub(super) fn content(survey: &mut Survey, scanner: &mut Scanner<'_>, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    // A blank role is allowed for a single turn.
    let mut speaker = Speaker::User;
    survey.turn_begins();
    scanner.object(|scanner, name| {
        match &*name.decode() {
            "role" => {
                if let Some(role) = survey.string(scanner, &path.member("role"))? {
                    speaker = speaker_of(&role.decode());
                }
            }
            "parts" if scanner.peek() != Kind::Null => {
                survey.list(scanner, &path.member("parts"), MAX_TURNS, part)?;
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    survey.turn_ends(speaker);
    Ok(())
}

fn speaker_of(role: &str) -> Speaker {
    match role {
        "user" | "" => Speaker::User,
        "system" => Speaker::System,
        _ => Speaker::Other,
    }
}

/// Reads the system instruction. Only that it is an object is checked; its text counts.
pub(super) fn instruction(scanner: &mut Scanner<'_>, survey: &mut Survey, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    survey.instruction_begins();
    scanner.members(|scanner, name| if name.decode() == "parts" { unchecked_parts(scanner, survey) } else { Ok(()) })?;
    survey.turn_ends(Speaker::System);
    Ok(())
}

fn part(survey: &mut Survey, scanner: &mut Scanner<'_>, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    scanner.object(|scanner, name| {
        let word = name.decode();
        match &*word {
            "text" => {
                if let Some(text) = survey.string(scanner, &path.member("text"))? {
                    survey.text(&text);
                }
                Ok(())
            }
            "inlineData" | "inline_data" if scanner.peek() != Kind::Null => inline_data(scanner, survey, &path.member(&word)),
            word => unchecked(scanner, survey, word),
        }
    })?;
    Ok(())
}

/// Parts of which nothing is checked, only counted.
fn unchecked_parts(scanner: &mut Scanner<'_>, survey: &mut Survey) -> Result<(), Fault> {
    scanner.elements(|scanner, _| {
        scanner.members(|scanner, name| match &*name.decode() {
            "text" => survey.any_text(scanner),
            "inlineData" | "inline_data" => {
                let blob = blob(scanner)?;
                count(survey, &blob);
                Ok(())
            }
            word => unchecked(scanner, survey, word),
        })?;
        Ok(())
    })?;
    Ok(())
}

/// A member of a part whose shape is the upstream's business: what the model reads is counted.
fn unchecked(scanner: &mut Scanner<'_>, survey: &mut Survey, word: &str) -> Result<(), Fault> {
    match word {
        "functionResponse" | "function_response" => {
            scanner.members(|scanner, name| match &*name.decode() {
                "parts" => unchecked_parts(scanner, survey),
                "response" => {
                    let range = scanner.skip()?;
                    survey.text_of(scanner.slice(range));
                    Ok(())
                }
                "name" => survey.any_text(scanner),
                _ => Ok(()),
            })?;
            Ok(())
        }
        "functionCall"
        | "function_call"
        | "executableCode"
        | "executable_code"
        | "codeExecutionResult"
        | "code_execution_result"
        | "toolCall"
        | "tool_call"
        | "toolResponse"
        | "tool_response" => {
            let range = scanner.skip()?;
            survey.text_of(scanner.slice(range));
            Ok(())
        }
        "fileData" | "file_data" => {
            let blob = blob(scanner)?;
            if let Mime::Named(mime) = blob.mime {
                survey.elsewhere(&mime.decode());
            }
            Ok(())
        }
        _ => scanner.skip().map(drop),
    }
}

/// `{mimeType, data}` as far as it is read.
struct Blob<'a> {
    mime: Mime<'a>,
    /// The spelling of `mimeType` that was met.
    mime_name: &'static str,
    data: Option<Text<'a>>,
}

enum Mime<'a> {
    Missing,
    WrongType,
    Named(Text<'a>),
}

fn blob<'a>(scanner: &mut Scanner<'a>) -> Result<Blob<'a>, Fault> {
    let mut blob = Blob { mime: Mime::Missing, mime_name: "mimeType", data: None };
    scanner.members(|scanner, name| {
        match &*name.decode() {
            word @ ("mimeType" | "mime_type") => {
                blob.mime_name = if word == "mimeType" { "mimeType" } else { "mime_type" };
                blob.mime = match scanner.value()?.0 {
                    Value::Null => Mime::Missing,
                    Value::Text(mime) if mime.is_blank() => Mime::Missing,
                    Value::Text(mime) => Mime::Named(mime),
                    Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => Mime::WrongType,
                };
            }
            "data" => blob.data = scanner.words()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(blob)
}

fn inline_data(scanner: &mut Scanner<'_>, survey: &mut Survey, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let blob = blob(scanner)?;
    match blob.mime {
        Mime::Missing => survey.faults.missing(&path.member(blob.mime_name)),
        Mime::WrongType => survey.faults.wrong_type(&path.member(blob.mime_name), "a string"),
        Mime::Named(_) => count(survey, &blob),
    }
    Ok(())
}

fn count(survey: &mut Survey, blob: &Blob<'_>) {
    let Mime::Named(mime) = &blob.mime else { return };
    match &blob.data {
        Some(data) => survey.base64(&mime.decode(), data),
        None => survey.elsewhere(&mime.decode()),
    }
}
