//! Contents and parts of a Gemini body.

use crate::{
    scan::{JsonStr, Scanner, SyntaxError, Value, ValueKind},
    summary_builder::{MAX_TURNS, SummaryBuilder, TurnRole},
    validation::JsonPath,
};

/// Validates a content of the conversation and counts its text and media.
pub(super) fn content(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    // A single turn may have a blank role.
    let mut speaker = TurnRole::User;
    builder.begin_turn();
    scanner.object(|scanner, name| {
        match name.word() {
            "role" => {
                if let Some(role) = builder.string(scanner, &path.member("role"))? {
                    speaker = role_of(&role.decode());
                }
            }
            "parts" if scanner.peek() != ValueKind::Null => {
                builder.list(scanner, &path.member("parts"), MAX_TURNS, part)?;
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    builder.end_turn(speaker);
    Ok(())
}

fn role_of(role: &str) -> TurnRole {
    match role {
        "user" | "" => TurnRole::User,
        "system" => TurnRole::System,
        _ => TurnRole::Other,
    }
}

/// Reads the system instruction. It must be an object; its text is counted.
pub(super) fn instruction(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    builder.begin_instruction();
    let parts = path.member("parts");
    scanner.members(|scanner, name| if name.word() == "parts" { unchecked_parts(scanner, builder, &parts) } else { Ok(()) })?;
    builder.end_turn(TurnRole::System);
    Ok(())
}

fn part(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    scanner.object(|scanner, name| {
        let word = name.word();
        match word {
            "text" => {
                if let Some(text) = builder.string(scanner, &path.member("text"))? {
                    builder.text(&text);
                }
                Ok(())
            }
            "inlineData" | "inline_data" if scanner.peek() != ValueKind::Null => inline_data(scanner, builder, &path.member(word)),
            word => unchecked(scanner, builder, word, &path.member(word)),
        }
    })?;
    Ok(())
}

/// Counts parts without validating them.
fn unchecked_parts(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    scanner.elements(|scanner, index| {
        let path = path.element(index);
        scanner.members(|scanner, name| match name.word() {
            "text" => builder.any_text(scanner),
            word @ ("inlineData" | "inline_data") => {
                let blob = blob(scanner)?;
                count(builder, &blob, &path.member(word));
                Ok(())
            }
            word => unchecked(scanner, builder, word, &path.member(word)),
        })?;
        Ok(())
    })?;
    Ok(())
}

/// Counts the text of a member that only the upstream validates.
fn unchecked(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, word: &str, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    match word {
        "functionResponse" | "function_response" => {
            scanner.members(|scanner, name| match name.word() {
                "parts" => unchecked_parts(scanner, builder, &path.member("parts")),
                "response" => {
                    let range = scanner.skip()?;
                    builder.text_of(scanner.slice(range));
                    Ok(())
                }
                "name" => builder.any_text(scanner),
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
            builder.text_of(scanner.slice(range));
            Ok(())
        }
        "fileData" | "file_data" => {
            if scanner.peek() == ValueKind::Null {
                return scanner.skip().map(drop);
            }
            let blob = blob(scanner)?;
            // URLs of videos come without a media type.
            let mime = if let Mime::Named(mime) = &blob.mime { mime.decode() } else { "".into() };
            builder.media_of_unknown_size(&mime, path);
            Ok(())
        }
        _ => scanner.skip().map(drop),
    }
}

/// The members of `inlineData` and `fileData` that are used.
struct Blob<'a> {
    mime: Mime<'a>,
    /// The spelling of `mimeType` in the body.
    mime_name: &'static str,
    data: Option<JsonStr<'a>>,
}

enum Mime<'a> {
    Missing,
    WrongType,
    Named(JsonStr<'a>),
}

fn blob<'a>(scanner: &mut Scanner<'a>) -> Result<Blob<'a>, SyntaxError> {
    let mut blob = Blob { mime: Mime::Missing, mime_name: "mimeType", data: None };
    scanner.members(|scanner, name| {
        match name.word() {
            word @ ("mimeType" | "mime_type") => {
                blob.mime_name = if word == "mimeType" { "mimeType" } else { "mime_type" };
                blob.mime = match scanner.value()?.0 {
                    Value::Null => Mime::Missing,
                    Value::Text(mime) if mime.is_blank() => Mime::Missing,
                    Value::Text(mime) => Mime::Named(mime),
                    Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => Mime::WrongType,
                };
            }
            "data" => blob.data = scanner.optional_string()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(blob)
}

fn inline_data(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let blob = blob(scanner)?;
    match blob.mime {
        Mime::Missing => builder.errors.missing(&path.member(blob.mime_name)),
        Mime::WrongType => builder.errors.wrong_type(&path.member(blob.mime_name), "a string"),
        Mime::Named(_) => count(builder, &blob, path),
    }
    Ok(())
}

fn count(builder: &mut SummaryBuilder, blob: &Blob<'_>, path: &JsonPath<'_>) {
    let Mime::Named(mime) = &blob.mime else { return };
    match &blob.data {
        Some(data) => builder.base64(&mime.decode(), data),
        None => builder.media_of_unknown_size(&mime.decode(), path),
    }
}
