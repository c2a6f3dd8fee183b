//! One item of `input`: a message, a call, a result, a thought.

use super::tool;
use crate::{
    scan::{JsonStr, Scanner, SyntaxError, Value, ValueKind},
    summary_builder::{MAX_TURNS, SummaryBuilder, TurnRole},
    validation::JsonPath,
};

pub(super) fn item(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut speaker = TurnRole::Other;
    let (mut is_message, mut has_id, mut is_kept) = (false, false, false);
    builder.begin_turn();
    scanner.object(|scanner, name| {
        match name.word() {
            "role" => {
                is_message = scanner.peek() != ValueKind::Null;
                speaker = role(scanner, builder, &path.member("role"))?;
            }
            "content" | "output" => content(scanner, builder, &path.member(name.word()))?,
            "summary" => texts(scanner, builder)?,
            "tools" if scanner.peek() == ValueKind::Array => tool::added(scanner, builder, &path.member("tools"))?,
            "arguments" | "input" | "name" | "encrypted_content" => builder.any_text(scanner)?,
            "type" => {
                if let Some(kind) = builder.string(scanner, &path.member("type"))? {
                    let kind = kind.decode();
                    is_message |= kind != "item_reference";
                    // The conversation is read again, and its summary is output beyond the limit.
                    builder.extras.unseen.compaction |= kind == "compaction_trigger";
                    // An item of this type is a reference, whatever its other members.
                    is_kept |= matches!(&*kind, "compaction_trigger" | "item_reference");
                }
            }
            "id" => {
                has_id = scanner.peek() != ValueKind::Null;
                scanner.skip()?;
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    // The provider has stored the item. A reference may lack the type.
    if is_kept || (has_id && !is_message) {
        builder.kept_content(path);
    }
    builder.end_turn(speaker);
    Ok(())
}

fn role(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<TurnRole, SyntaxError> {
    let role = builder.string(scanner, path)?;
    Ok(role.map_or(TurnRole::Other, |role| match &*role.decode() {
        "system" | "developer" => TurnRole::System,
        "user" => TurnRole::User,
        _ => TurnRole::Other,
    }))
}

/// Content of a message or of a result: a string, or parts.
fn content(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    match scanner.peek() {
        ValueKind::Null => scanner.skip().map(drop),
        ValueKind::Text => builder.any_text(scanner),
        ValueKind::Array => builder.list(scanner, path, MAX_TURNS, part).map(drop),
        ValueKind::Object => object(scanner, builder, path),
        ValueKind::Bool | ValueKind::Number => {
            builder.errors.wrong_type(path, "a string or an array of parts");
            scanner.skip().map(drop)
        }
    }
}

/// The result of a hosted tool. The result of a computer tool is a screenshot.
fn object(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    let mut kind = Value::Null;
    let mut media = PartMedia::default();
    scanner.object(|scanner, name| {
        match name.word() {
            "type" => kind = scanner.value()?.0,
            "image_url" => media.image = scanner.optional_string()?,
            "file_id" => media.is_by_id = scanner.optional_string()?.is_some(),
            _ => {
                let range = scanner.skip()?;
                builder.text_of(scanner.slice(range));
            }
        }
        Ok(())
    })?;
    media.count(builder, &kind, path);
    Ok(())
}

/// The media fields of a part. They may precede the field with the part's kind.
#[derive(Debug, Default)]
struct PartMedia<'a> {
    image: Option<JsonStr<'a>>,
    file: Option<JsonStr<'a>>,
    is_by_id: bool,
}

fn part(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut kind = Value::Null;
    let mut media = PartMedia::default();
    scanner.object(|scanner, name| {
        match name.word() {
            "type" => kind = scanner.value()?.0,
            "text" => {
                if let Some(text) = builder.string(scanner, &path.member("text"))? {
                    builder.text(&text);
                }
            }
            "refusal" => builder.any_text(scanner)?,
            "image_url" => media.image = scanner.optional_string()?,
            "file_data" | "file_url" => media.file = scanner.optional_string()?,
            "file_id" => media.is_by_id = scanner.optional_string()?.is_some(),
            "input_audio" => {
                scanner.members(|scanner, name| {
                    if name.word() == "data"
                        && let Some(data) = scanner.optional_string()?
                    {
                        builder.base64("audio/*", &data);
                    }
                    Ok(())
                })?;
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    media.count(builder, &kind, path);
    match kind {
        Value::Text(_) => {}
        Value::Null => builder.errors.missing(&path.member("type")),
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => {
            builder.errors.wrong_type(&path.member("type"), "a string");
        }
    }
    Ok(())
}

/// A colon this early ends the scheme of a URL; base64 has none.
const MAX_SCHEME_BYTES: usize = 16;
const DOCUMENT: &str = "application/pdf";
const IMAGE: &str = "image/*";

impl PartMedia<'_> {
    fn count(&self, builder: &mut SummaryBuilder, kind: &Value<'_>, path: &JsonPath<'_>) {
        if let Some(url) = &self.image {
            builder.url(IMAGE, url, &path.member("image_url"));
        }
        if let Some(file) = &self.file {
            if file.raw().bytes().take(MAX_SCHEME_BYTES).any(|byte| byte == b':') {
                builder.url(DOCUMENT, file, path);
            } else {
                builder.base64(DOCUMENT, file);
            }
        }
        if self.is_by_id {
            let is_image = matches!(kind, Value::Text(kind) if matches!(&*kind.decode(), "input_image" | "computer_screenshot"));
            builder.media_of_unknown_size(if is_image { IMAGE } else { DOCUMENT }, &path.member("file_id"));
        }
    }
}

/// Counts the texts of a thought.
fn texts(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    scanner.elements(|scanner, _| {
        scanner.members(|scanner, name| match name.word() {
            "text" => builder.any_text(scanner),
            _ => Ok(()),
        })?;
        Ok(())
    })?;
    Ok(())
}
