//! One message of a chat body.

use crate::{
    scan::{Fault, Kind, Scanner, Value},
    shape::Path,
    survey::{MAX_TURNS, Speaker, Survey},
};

/// Reads a message: its shape, its text, its media.
pub(super) fn message(survey: &mut Survey, scanner: &mut Scanner<'_>, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut role = Role::Missing;
    survey.turn_begins();
    scanner.object(|scanner, name| {
        match &*name.decode() {
            "role" => role = read_role(scanner)?,
            "content" => content(scanner, survey, &path.member("content"))?,
            "tool_calls" => tool_calls(scanner, survey, &path.member("tool_calls"))?,
            "function_call" => strings(scanner, survey)?,
            "refusal" | "reasoning_content" | "reasoning" => survey.any_text(scanner)?,
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    let speaker = match role {
        Role::Known(speaker) => speaker,
        Role::Missing => {
            survey.faults.missing(&path.member("role"));
            Speaker::Other
        }
        Role::WrongType => {
            survey.faults.wrong_type(&path.member("role"), "a string");
            Speaker::Other
        }
    };
    survey.turn_ends(speaker);
    Ok(())
}

enum Role {
    Missing,
    WrongType,
    Known(Speaker),
}

fn read_role(scanner: &mut Scanner<'_>) -> Result<Role, Fault> {
    Ok(match scanner.value()?.0 {
        Value::Null => Role::Missing,
        Value::Text(text) if text.is_blank() => Role::Missing,
        Value::Text(text) => Role::Known(match &*text.decode() {
            "system" | "developer" => Speaker::System,
            "user" => Speaker::User,
            _ => Speaker::Other,
        }),
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => Role::WrongType,
    })
}

fn content(scanner: &mut Scanner<'_>, survey: &mut Survey, path: &Path<'_>) -> Result<(), Fault> {
    match scanner.peek() {
        Kind::Null => scanner.skip().map(drop),
        Kind::Text => survey.any_text(scanner),
        Kind::Array => survey.list(scanner, path, MAX_TURNS, part).map(drop),
        Kind::Bool | Kind::Number | Kind::Object => {
            survey.faults.wrong_type(path, "a string or an array of parts");
            scanner.skip().map(drop)
        }
    }
}

fn part(survey: &mut Survey, scanner: &mut Scanner<'_>, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut kind = Value::Null;
    let mut text_is_text = true;
    scanner.object(|scanner, name| {
        match &*name.decode() {
            "type" => kind = scanner.value()?.0,
            "text" => match scanner.value()?.0 {
                Value::Text(text) => survey.text(&text),
                Value::Null => {}
                Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => text_is_text = false,
            },
            "refusal" => survey.any_text(scanner)?,
            "image_url" => url(scanner, survey, "image/*")?,
            "video_url" => url(scanner, survey, "video/*")?,
            "input_audio" => inline(scanner, survey, "data", "audio/*")?,
            "file" => inline(scanner, survey, "file_data", "application/pdf")?,
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    match kind {
        Value::Text(kind) if kind.decode() == "text" && !text_is_text => survey.faults.wrong_type(&path.member("text"), "a string"),
        Value::Text(_) => {}
        Value::Null => survey.faults.missing(&path.member("type")),
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => {
            survey.faults.wrong_type(&path.member("type"), "a string");
        }
    }
    Ok(())
}

/// `{"url":…}`, or the bare address that some clients send.
fn url(scanner: &mut Scanner<'_>, survey: &mut Survey, mime: &str) -> Result<(), Fault> {
    if scanner.peek() == Kind::Text {
        if let Some(address) = scanner.words()? {
            survey.url(mime, &address);
        }
        return Ok(());
    }
    inline(scanner, survey, "url", mime)
}

/// An object with one member that holds media: an address, a `data:` URL or bare base64.
fn inline(scanner: &mut Scanner<'_>, survey: &mut Survey, member: &str, mime: &str) -> Result<(), Fault> {
    scanner.members(|scanner, name| {
        if name.decode() == member
            && let Some(text) = scanner.words()?
        {
            if member == "url" || text.raw().starts_with("data:") { survey.url(mime, &text) } else { survey.base64(mime, &text) }
        }
        Ok(())
    })?;
    Ok(())
}

fn tool_calls(scanner: &mut Scanner<'_>, survey: &mut Survey, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() == Kind::Null {
        return scanner.skip().map(drop);
    }
    survey.list(scanner, path, MAX_TURNS, |survey, scanner, _| {
        scanner.members(|scanner, name| match &*name.decode() {
            "function" | "custom" => strings(scanner, survey),
            _ => Ok(()),
        })?;
        Ok(())
    })?;
    Ok(())
}

/// Counts the strings of an object: a call's name and arguments.
fn strings(scanner: &mut Scanner<'_>, survey: &mut Survey) -> Result<(), Fault> {
    scanner.members(|scanner, _| survey.any_text(scanner))?;
    Ok(())
}
