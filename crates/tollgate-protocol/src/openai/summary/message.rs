//! One message of a chat body.

use crate::{
    markers::EXTRA_CONTENT,
    scan::{Scanner, SyntaxError, Value, ValueKind},
    summary_builder::{MAX_TURNS, SummaryBuilder, TurnRole},
    validation::JsonPath,
};

pub(super) fn message(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut role = Role::Missing;
    builder.begin_turn();
    scanner.object(|scanner, name| {
        match name.word() {
            "role" => role = read_role(scanner)?,
            "content" => content(scanner, builder, &path.member("content"))?,
            "tool_calls" => tool_calls(scanner, builder, &path.member("tool_calls"))?,
            "function_call" => strings(scanner, builder)?,
            "refusal" | "reasoning_content" | "reasoning" => builder.any_text(scanner)?,
            EXTRA_CONTENT => extra_content(scanner, builder)?,
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    let speaker = match role {
        Role::Known(speaker) => speaker,
        Role::Missing => {
            builder.errors.missing(&path.member("role"));
            TurnRole::Other
        }
        Role::WrongType => {
            builder.errors.wrong_type(&path.member("role"), "a string");
            TurnRole::Other
        }
    };
    builder.end_turn(speaker);
    Ok(())
}

enum Role {
    Missing,
    WrongType,
    Known(TurnRole),
}

fn read_role(scanner: &mut Scanner<'_>) -> Result<Role, SyntaxError> {
    Ok(match scanner.value()?.0 {
        Value::Null => Role::Missing,
        Value::Text(text) if text.is_blank() => Role::Missing,
        Value::Text(text) => Role::Known(match &*text.decode() {
            "system" | "developer" => TurnRole::System,
            "user" => TurnRole::User,
            _ => TurnRole::Other,
        }),
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => Role::WrongType,
    })
}

fn content(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    match scanner.peek() {
        ValueKind::Null => scanner.skip().map(drop),
        ValueKind::Text => builder.any_text(scanner),
        ValueKind::Array => builder.list(scanner, path, MAX_TURNS, part).map(drop),
        ValueKind::Bool | ValueKind::Number | ValueKind::Object => {
            builder.errors.wrong_type(path, "a string or an array of parts");
            scanner.skip().map(drop)
        }
    }
}

fn part(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut kind = Value::Null;
    let mut text_is_text = true;
    scanner.object(|scanner, name| {
        match name.word() {
            "type" => kind = scanner.value()?.0,
            "text" => match scanner.value()?.0 {
                Value::Text(text) => builder.text(&text),
                Value::Null => {}
                Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => text_is_text = false,
            },
            "refusal" => builder.any_text(scanner)?,
            "image_url" => url(scanner, builder, "image/*", &path.member("image_url"))?,
            "video_url" => url(scanner, builder, "video/*", &path.member("video_url"))?,
            "input_audio" => inline(scanner, builder, "data", "audio/*", &path.member("input_audio"))?,
            "file" => inline(scanner, builder, "file_data", "application/pdf", &path.member("file"))?,
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    match kind {
        Value::Text(kind) if kind.decode() == "text" && !text_is_text => {
            builder.errors.wrong_type(&path.member("text"), "a string");
        }
        Value::Text(_) => {}
        Value::Null => builder.errors.missing(&path.member("type")),
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => {
            builder.errors.wrong_type(&path.member("type"), "a string");
        }
    }
    Ok(())
}

/// `{"url":…}`, or the bare URL that some clients send.
fn url(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, mime: &str, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() == ValueKind::Text {
        if let Some(address) = scanner.optional_string()? {
            builder.url(mime, &address, path);
        }
        return Ok(());
    }
    inline(scanner, builder, "url", mime, path)
}

/// Member with the id of an uploaded file.
const FILE_ID: &str = "file_id";
/// A colon this early ends the scheme of a URL; base64 has none.
const MAX_SCHEME_BYTES: usize = 16;

/// An object with media in one member: a URL, a `data:` URL or bare base64.
fn inline(
    scanner: &mut Scanner<'_>,
    builder: &mut SummaryBuilder,
    member: &str,
    mime: &str,
    path: &JsonPath<'_>,
) -> Result<(), SyntaxError> {
    scanner.members(|scanner, name| {
        let word = name.word();
        if word != member && word != FILE_ID {
            return Ok(());
        }
        if let Some(text) = scanner.optional_string()? {
            let has_scheme = text.raw().bytes().take(MAX_SCHEME_BYTES).any(|byte| byte == b':');
            if word == FILE_ID {
                builder.media_of_unknown_size(mime, path);
            } else if member == "url" || has_scheme {
                builder.url(mime, &text, path);
            } else {
                builder.base64(mime, &text);
            }
        }
        Ok(())
    })?;
    Ok(())
}

fn tool_calls(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() == ValueKind::Null {
        return scanner.skip().map(drop);
    }
    builder.list(scanner, path, MAX_TURNS, |builder, scanner, _| {
        scanner.members(|scanner, name| match name.word() {
            "function" | "custom" => strings(scanner, builder),
            EXTRA_CONTENT => extra_content(scanner, builder),
            _ => Ok(()),
        })?;
        Ok(())
    })?;
    Ok(())
}

/// Skips the member in which signatures of other providers come back.
fn extra_content(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    builder.splices.markers = true;
    scanner.skip().map(drop)
}

/// Counts all strings of an object: a call's name and arguments.
fn strings(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    scanner.members(|scanner, _| builder.any_text(scanner))?;
    Ok(())
}
