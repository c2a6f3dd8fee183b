//! Error sentences for malformed request bodies (E16, E18, E20, E21), in the style of the caller's protocol.

use crate::{ErrorStyle, FieldViolation, Malformed, MalformedKind, Protocol};

impl ErrorStyle {
    /// A required field is absent, `null` or blank.
    pub(crate) fn missing(self, field: &str) -> String {
        match self {
            Self::OpenAi | Self::Anthropic => format!("Missing required parameter: '{field}'."),
            Self::Gemini => format!("The body could not be parsed: required field '{field}' is missing."),
        }
    }

    /// Description of the field violation for [`ErrorStyle::missing`]; `None` if it repeats the message.
    pub(crate) const fn missing_description(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::Anthropic => None,
            Self::Gemini => Some("Required field is missing."),
        }
    }

    /// A field has another type than `expected`, a phrase such as `a string`.
    pub(crate) fn wrong_type(self, field: &str, expected: &str) -> String {
        match self {
            Self::OpenAi | Self::Anthropic => format!("Invalid type for '{field}': expected {expected}."),
            Self::Gemini => format!("The body could not be parsed: '{field}' must be {expected}."),
        }
    }

    /// A field has a value that is not allowed. `reason` is a phrase such as `must be at least 1`.
    fn invalid(self, field: &str, reason: &str) -> String {
        match self {
            Self::OpenAi | Self::Anthropic => format!("Invalid value for '{field}': {reason}."),
            Self::Gemini => format!("The body could not be parsed: '{field}': {reason}."),
        }
    }
}

impl Malformed {
    /// E18. `detail` is a phrase without a full stop.
    pub(crate) fn not_json(detail: &str) -> Self {
        Self {
            kind: MalformedKind::NotJson,
            message: format!("The request body is not valid JSON: {detail}."),
            violations: Vec::new(),
        }
    }

    pub(crate) fn missing(from: Protocol, field: &str) -> Self {
        let style = from.spec().error_style;
        Self::new(MalformedKind::Missing, field, style.missing(field), style.missing_description())
    }

    pub(crate) fn wrong_type(from: Protocol, field: &str, expected: &str) -> Self {
        Self::new(MalformedKind::WrongType, field, from.spec().error_style.wrong_type(field, expected), None)
    }

    pub(crate) fn invalid(from: Protocol, field: &str, reason: &str) -> Self {
        Self::new(MalformedKind::InvalidValue, field, from.spec().error_style.invalid(field, reason), None)
    }

    fn new(kind: MalformedKind, field: &str, message: String, description: Option<&str>) -> Self {
        let description = description.unwrap_or(&message).to_owned();
        Self { kind, violations: vec![FieldViolation { field: field.to_owned(), description }], message }
    }
}
