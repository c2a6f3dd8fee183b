//! Sentences for bodies that are refused before any upstream call (E18, E20, E21 of the error table).

use crate::{FieldViolation, Malformed, MalformedKind, Protocol};

impl Malformed {
    /// E18. `detail` is a phrase without a full stop.
    pub(crate) fn not_json(detail: &str) -> Self {
        Self {
            kind: MalformedKind::NotJson,
            message: format!("The request body is not valid JSON: {detail}."),
            violations: Vec::new(),
        }
    }

    /// A required field that is not there.
    pub(crate) fn missing(from: Protocol, field: &str) -> Self {
        let (message, description) = match from {
            Protocol::Gemini => (
                format!("The body could not be parsed: required field '{field}' is missing."),
                "Required field is missing.".to_owned(),
            ),
            Protocol::OpenAi | Protocol::Anthropic => {
                let message = format!("Missing required parameter: '{field}'.");
                (message.clone(), message)
            }
        };
        Self { kind: MalformedKind::Missing, message, violations: vec![FieldViolation { field: field.to_owned(), description }] }
    }

    /// A field of the wrong type. `expected` is a phrase such as `a string`.
    pub(crate) fn wrong_type(from: Protocol, field: &str, expected: &str) -> Self {
        let message = match from {
            Protocol::Gemini => format!("The body could not be parsed: '{field}' must be {expected}."),
            Protocol::OpenAi | Protocol::Anthropic => format!("Invalid type for '{field}': expected {expected}."),
        };
        Self::told(MalformedKind::WrongType, field, message)
    }

    /// A field whose value cannot be. `why` is a phrase such as `must be at least 1`.
    pub(crate) fn invalid(from: Protocol, field: &str, why: &str) -> Self {
        let message = match from {
            Protocol::Gemini => format!("The body could not be parsed: '{field}': {why}."),
            Protocol::OpenAi | Protocol::Anthropic => format!("Invalid value for '{field}': {why}."),
        };
        Self::told(MalformedKind::InvalidValue, field, message)
    }

    fn told(kind: MalformedKind, field: &str, message: String) -> Self {
        Self { kind, violations: vec![FieldViolation { field: field.to_owned(), description: message.clone() }], message }
    }
}
