//! Content of a Messages body: texts and blocks.

use super::tool;
use crate::{
    scan::{JsonStr, Scanner, SyntaxError, Value, ValueKind},
    summary_builder::{MAX_TURNS, SummaryBuilder},
    validation::JsonPath,
};

/// Content: a string, or blocks.
pub(super) fn content(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    match scanner.peek() {
        ValueKind::Null => scanner.skip().map(drop),
        ValueKind::Text => builder.any_text(scanner),
        ValueKind::Array => builder.list(scanner, path, MAX_TURNS, block).map(drop),
        ValueKind::Bool | ValueKind::Number | ValueKind::Object => {
            builder.errors.wrong_type(path, "a string or an array");
            scanner.skip().map(drop)
        }
    }
}

fn block(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut kind = Value::Null;
    // Whether `text` is a string; `None` where it is absent.
    let mut text = None;
    let mut source = Source::default();
    scanner.object(|scanner, name| {
        match name.word() {
            "type" => kind = scanner.value()?.0,
            "text" => match scanner.value()?.0 {
                Value::Text(value) => {
                    builder.text(&value);
                    text = Some(true);
                }
                Value::Null => {}
                Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => text = Some(false),
            },
            "thinking" | "title" | "context" | "name" | "tool_name" => builder.any_text(scanner)?,
            "content" if matches!(scanner.peek(), ValueKind::Array | ValueKind::Text) => {
                content(builder, scanner, &path.member("content"))?;
            }
            "input" => {
                let range = scanner.skip()?;
                builder.text_of(scanner.slice(range));
            }
            "tool" if scanner.peek() == ValueKind::Object => tool::added(scanner, builder, &path.member("tool"))?,
            "source" if scanner.peek() == ValueKind::Object => source = read_source(builder, scanner, &path.member("source"))?,
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    match kind {
        Value::Text(kind) => {
            let kind = kind.decode();
            match text {
                None if kind == "text" => builder.errors.missing(&path.member("text")),
                Some(false) if kind == "text" => builder.errors.wrong_type(&path.member("text"), "a string"),
                None | Some(_) => {}
            }
            source.count(builder, if kind == "image" { "image/*" } else { "application/pdf" }, &path.member("source"));
        }
        Value::Null => builder.errors.missing(&path.member("type")),
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => {
            builder.errors.wrong_type(&path.member("type"), "a string");
        }
    }
    Ok(())
}

/// The source of an image or a document. Its kind may follow its data.
#[derive(Debug, Default)]
struct Source<'a> {
    kind: Option<JsonStr<'a>>,
    media_type: Option<JsonStr<'a>>,
    data: Option<JsonStr<'a>>,
    url: Option<JsonStr<'a>>,
    is_file: bool,
}

fn read_source<'a>(
    builder: &mut SummaryBuilder,
    scanner: &mut Scanner<'a>,
    path: &JsonPath<'_>,
) -> Result<Source<'a>, SyntaxError> {
    let mut source = Source::default();
    scanner.object(|scanner, name| {
        match name.word() {
            "type" => source.kind = scanner.optional_string()?,
            "media_type" => source.media_type = scanner.optional_string()?,
            "data" => source.data = scanner.optional_string()?,
            "url" => source.url = scanner.optional_string()?,
            "file_id" => {
                source.is_file = true;
                scanner.skip()?;
            }
            "content" if matches!(scanner.peek(), ValueKind::Array | ValueKind::Text) => {
                content(builder, scanner, &path.member("content"))?;
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    Ok(source)
}

impl Source<'_> {
    /// Counts the media. `mime` is the type where the source names none.
    fn count(&self, builder: &mut SummaryBuilder, mime: &str, path: &JsonPath<'_>) {
        if let Some(data) = &self.data {
            if self.kind.as_ref().is_some_and(|kind| kind.decode() == "text") {
                builder.text(data);
            } else {
                builder.base64(&self.media_type.as_ref().map_or(mime.into(), JsonStr::decode), data);
            }
        }
        if let Some(url) = &self.url {
            builder.url(mime, url, path);
        }
        if self.is_file {
            builder.media_of_unknown_size(mime, path);
        }
    }
}
