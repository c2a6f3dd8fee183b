//! The config objects of a native body.

use crate::{
    scan::{Fault, Kind, Scanner, Value, is_finite, whole},
    shape::Path,
    survey::{Seen, Survey, candidates_of},
};

/// Most tokens `maxOutputTokens` may name; it is an int32.
const MAX_LIMIT: u64 = i32::MAX.unsigned_abs() as u64;

/// `generationConfig`, which is present: limits are read, every member's name is noted.
pub(super) fn generation(scanner: &mut Scanner<'_>, survey: &mut Survey, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut seen = Seen::default();
    let range = scanner.object(|scanner, name| {
        let word = name.decode();
        let path = path.member(&word);
        let present = scanner.peek() != Kind::Null;
        match &*word {
            "maxOutputTokens" => {
                seen.once("maxOutputTokens", &name)?;
                limit(scanner, survey, &path)?;
            }
            "max_output_tokens" => {
                seen.once("max_output_tokens", &name)?;
                limit(scanner, survey, &path)?;
            }
            "candidateCount" => {
                seen.once("candidateCount", &name)?;
                survey.candidates = survey.candidates.max(candidates_of(&scanner.value()?.0));
            }
            "candidate_count" => {
                seen.once("candidate_count", &name)?;
                survey.candidates = survey.candidates.max(candidates_of(&scanner.value()?.0));
            }
            "temperature" => {
                let value = scanner.value()?.0;
                if present && !is_float(&value) {
                    survey.faults.wrong_type(&path, "a number");
                }
            }
            _ => {
                scanner.skip()?;
            }
        }
        if present {
            survey.field(&path);
        }
        Ok(())
    })?;
    survey.splices.config_open = Some(range.start + 1);
    Ok(())
}

/// The largest limit counts where both spellings are given: which one an upstream takes is not known.
fn limit(scanner: &mut Scanner<'_>, survey: &mut Survey, path: &Path<'_>) -> Result<(), Fault> {
    let (value, range) = scanner.value()?;
    survey.splices.max_output.push(range);
    let limit = match value {
        Value::Null => return Ok(()),
        Value::Number(number) => whole(number),
        Value::Text(text) => whole(&text.decode()),
        Value::Bool(_) | Value::Array | Value::Object => None,
    };
    match limit.filter(|limit| *limit <= MAX_LIMIT) {
        Some(limit) => survey.max_output = survey.max_output.max(Some(limit)),
        None => survey.faults.wrong_type(path, "a whole number from 0 to 2147483647"),
    }
    Ok(())
}

/// A number, or a string that is one: proto3 JSON takes both, and the names of what JSON numbers cannot say.
fn is_float(value: &Value<'_>) -> bool {
    match value {
        Value::Number(number) => is_finite(number),
        Value::Text(text) => matches!(&*text.decode(), "NaN" | "Infinity" | "-Infinity") || is_finite(&text.decode()),
        Value::Null | Value::Bool(_) | Value::Array | Value::Object => false,
    }
}

/// Another config object, which is present: only its members' names are noted.
pub(super) fn open_object(scanner: &mut Scanner<'_>, survey: &mut Survey, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.field(path);
        return scanner.skip().map(drop);
    }
    scanner.object(|scanner, name| {
        if scanner.peek() != Kind::Null {
            survey.field(&path.member(&name.decode()));
        }
        scanner.skip().map(drop)
    })?;
    Ok(())
}

/// An optional member of a request to embed.
pub(super) fn embedding(scanner: &mut Scanner<'_>, survey: &mut Survey, word: &str) -> Result<(), Fault> {
    let path = Path::Member(&Path::Root, word);
    match word {
        "model" => scanner.skip().map(drop),
        _ if scanner.peek() == Kind::Null => scanner.skip().map(drop),
        "embedContentConfig" | "embed_content_config" => open_object(scanner, survey, &path),
        _ => {
            survey.field(&path);
            scanner.skip().map(drop)
        }
    }
}
