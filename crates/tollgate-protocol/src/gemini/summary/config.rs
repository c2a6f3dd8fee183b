//! Configuration objects of a Gemini body.

use crate::{
    scan::{Scanner, SyntaxError, Value, ValueKind, is_finite, whole},
    summary_builder::{SeenMembers, SummaryBuilder, candidates_of},
    validation::JsonPath,
};

/// Largest `maxOutputTokens`; the field is an int32.
const MAX_LIMIT: u64 = i32::MAX.unsigned_abs() as u64;

/// Reads a `generationConfig` that is not `null`: limits, and the names of all members.
pub(super) fn generation(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut members = SeenMembers::default();
    let range = scanner.object(|scanner, name| {
        let word = name.decode();
        let path = path.member(&word);
        let present = scanner.peek() != ValueKind::Null;
        match &*word {
            "maxOutputTokens" => {
                members.check_unique("maxOutputTokens", &name)?;
                limit(scanner, builder, &path)?;
            }
            "max_output_tokens" => {
                members.check_unique("max_output_tokens", &name)?;
                limit(scanner, builder, &path)?;
            }
            "candidateCount" => {
                members.check_unique("candidateCount", &name)?;
                builder.candidates = builder.candidates.max(candidates_of(&scanner.value()?.0));
            }
            "candidate_count" => {
                members.check_unique("candidate_count", &name)?;
                builder.candidates = builder.candidates.max(candidates_of(&scanner.value()?.0));
            }
            "temperature" => {
                let value = scanner.value()?.0;
                if present && !is_float(&value) {
                    builder.errors.wrong_type(&path, "a number");
                }
            }
            _ => {
                scanner.skip()?;
            }
        }
        if present {
            builder.field(&path);
        }
        Ok(())
    })?;
    builder.splices.config_open = Some(range.start + 1);
    Ok(())
}

/// Reads an output limit. If both spellings are present, the larger one counts: which one an upstream uses is unknown.
fn limit(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    let (value, range) = scanner.value()?;
    builder.splices.max_output.push(range);
    let limit = match value {
        Value::Null => return Ok(()),
        Value::Number(number) => whole(number),
        Value::Text(text) => whole(&text.decode()),
        Value::Bool(_) | Value::Array | Value::Object => None,
    };
    match limit.filter(|limit| *limit <= MAX_LIMIT) {
        Some(limit) => builder.max_output = builder.max_output.max(Some(limit)),
        None => builder.errors.wrong_type(path, "a whole number from 0 to 2147483647"),
    }
    Ok(())
}

/// A number, or a string with one. proto3 JSON accepts both, and `NaN` and infinities as strings.
fn is_float(value: &Value<'_>) -> bool {
    match value {
        Value::Number(number) => is_finite(number),
        Value::Text(text) => matches!(&*text.decode(), "NaN" | "Infinity" | "-Infinity") || is_finite(&text.decode()),
        Value::Null | Value::Bool(_) | Value::Array | Value::Object => false,
    }
}

/// Reads another configuration object that is not `null`: only the names of its members.
pub(super) fn open_object(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.field(path);
        return scanner.skip().map(drop);
    }
    scanner.object(|scanner, name| {
        if scanner.peek() != ValueKind::Null {
            builder.field(&path.member(&name.decode()));
        }
        scanner.skip().map(drop)
    })?;
    Ok(())
}

pub(super) fn embedding(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, word: &str) -> Result<(), SyntaxError> {
    let path = JsonPath::Member(&JsonPath::Root, word);
    match word {
        "model" => scanner.skip().map(drop),
        _ if scanner.peek() == ValueKind::Null => scanner.skip().map(drop),
        "embedContentConfig" | "embed_content_config" => open_object(scanner, builder, &path),
        _ => {
            builder.field(&path);
            scanner.skip().map(drop)
        }
    }
}
