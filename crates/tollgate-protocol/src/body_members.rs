//! Members that the bodies of several protocols have: the model, output limits, and the caller's metadata.

use std::ops::Range;

use crate::{
    scan::{Scanner, SyntaxError, Value, whole},
    summary_builder::SummaryBuilder,
    validation::JsonPath,
};

/// Longest model name, in bytes; names are repeated in errors and usage records.
const MAX_MODEL_BYTES: usize = 1_024;
/// Largest output limit, in tokens.
const MAX_LIMIT: u64 = i64::MAX.unsigned_abs();

/// The member `model`. Its errors are reported after the others, because the body is validated before the model is looked up.
#[derive(Debug, Default)]
pub(crate) enum BodyModel {
    #[default]
    Missing,
    WrongType,
    Invalid(&'static str),
    Named(String),
}

impl BodyModel {
    pub(crate) fn read(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<Self, SyntaxError> {
        let (value, range) = scanner.value()?;
        builder.splices.model = Some(range);
        Ok(match value {
            Value::Null => Self::Missing,
            Value::Text(text) if text.is_blank() => Self::Missing,
            Value::Text(text) => {
                let name = text.decode();
                if name.len() > MAX_MODEL_BYTES {
                    Self::Invalid("must have at most 1024 bytes")
                } else if name.contains(char::is_control) {
                    Self::Invalid("must not hold control characters")
                } else {
                    Self::Named(name.into_owned())
                }
            }
            Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => Self::WrongType,
        })
    }

    /// The name; empty with an error.
    pub(crate) fn validated(self, builder: &mut SummaryBuilder) -> String {
        let path = JsonPath::Root.member("model");
        match self {
            Self::Named(name) => return name,
            Self::Missing => builder.errors.missing(&path),
            Self::WrongType => builder.errors.wrong_type(&path, "a string"),
            Self::Invalid(rule) => builder.errors.invalid(&path, rule),
        }
        String::new()
    }
}

/// Reads an output limit, a whole number from 0 to 2^63−1. The range of a `null` is recorded too: a limit may be written
/// there.
pub(crate) fn output_limit(
    scanner: &mut Scanner<'_>,
    builder: &mut SummaryBuilder,
    name: &'static str,
) -> Result<Option<u64>, SyntaxError> {
    let (value, range): (Value<'_>, Range<usize>) = scanner.value()?;
    builder.splices.max_output.push(range);
    let limit = match value {
        Value::Null => return Ok(None),
        Value::Number(number) => whole(number).filter(|limit| *limit <= MAX_LIMIT),
        Value::Bool(_) | Value::Text(_) | Value::Array | Value::Object => None,
    };
    if limit.is_none() {
        builder.errors.wrong_type(&JsonPath::Root.member(name), "a whole number from 0 to 9223372036854775807");
    }
    Ok(limit)
}

/// Reads `metadata`, an object.
pub(crate) fn metadata(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    let entries = scanner.object(|scanner, name| {
        let (value, _) = scanner.value()?;
        builder.metadata(name.word(), &value);
        Ok(())
    });
    entries.map(drop)
}
