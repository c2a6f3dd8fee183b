//! Faults of a body's shape: which member, what is wrong, and the sentence each caller protocol has for it (E16, E20,
//! E21 of the error table).

use std::fmt;

use crate::{FieldViolation, Malformed, MalformedKind};

/// Most faults told in one answer.
const MAX_REPORTED_ERRORS: usize = 20;

/// A place in a body, built on the stack while scanning and written down only where a fault is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JsonPath<'p> {
    /// The body itself.
    Root,
    /// A member of an object.
    Member(&'p JsonPath<'p>, &'p str),
    /// An element of an array.
    Element(&'p JsonPath<'p>, usize),
}

impl<'p> JsonPath<'p> {
    pub(crate) const fn member(&'p self, name: &'p str) -> Self {
        Self::Member(self, name)
    }

    pub(crate) const fn element(&'p self, index: usize) -> Self {
        Self::Element(self, index)
    }
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => to.write_str(name),
            Self::Member(parent, name) => write!(to, "{parent}.{name}"),
            Self::Element(parent, index) => write!(to, "{parent}[{index}]"),
        }
    }
}

/// Whose sentences are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorStyle {
    /// Chat completions and embeddings (E16, E21).
    OpenAi,
    /// Native (E20).
    Gemini,
}

#[derive(Debug)]
struct ValidationError {
    kind: MalformedKind,
    message: String,
    violation: FieldViolation,
}

/// The faults found so far, in the order they are told.
#[derive(Debug)]
pub(crate) struct ValidationErrors {
    wording: ErrorStyle,
    found: Vec<ValidationError>,
}

impl ValidationErrors {
    pub(crate) const fn new(wording: ErrorStyle) -> Self {
        Self { wording, found: Vec::new() }
    }

    /// A required member is absent, `null` or blank.
    pub(crate) fn missing(&mut self, path: &JsonPath<'_>) {
        let message = match self.wording {
            ErrorStyle::OpenAi => format!("Missing required parameter: '{path}'."),
            ErrorStyle::Gemini => format!("The body could not be parsed: required field '{path}' is missing."),
        };
        self.note(MalformedKind::Missing, path.to_string(), message, Some("Required field is missing."));
    }

    /// A member has a value of another kind than `expected`, such as `an array`.
    pub(crate) fn wrong_type(&mut self, path: &JsonPath<'_>, expected: &str) {
        let message = match self.wording {
            ErrorStyle::OpenAi => format!("Invalid type for '{path}': expected {expected}."),
            ErrorStyle::Gemini => format!("The body could not be parsed: '{path}' must be {expected}."),
        };
        self.note(MalformedKind::WrongType, path.to_string(), message, None);
    }

    /// A member breaks a rule, such as `must not be empty`.
    pub(crate) fn invalid(&mut self, path: &JsonPath<'_>, rule: &str) {
        let message = match self.wording {
            ErrorStyle::OpenAi => format!("Invalid value for '{path}': it {rule}."),
            ErrorStyle::Gemini => format!("The body could not be parsed: '{path}' {rule}."),
        };
        self.note(MalformedKind::InvalidValue, path.to_string(), message, None);
    }

    /// The conversation stands under the other protocol's name.
    pub(crate) fn other_protocol(&mut self, path: &JsonPath<'_>) {
        match self.wording {
            ErrorStyle::OpenAi => self.note(
                MalformedKind::Missing,
                path.to_string(),
                format!(
                    "Missing required parameter: '{path}'. The body has the unknown field 'contents'; chat completions expect \
                     'messages' (array of {{role, content}}), not 'contents'."
                ),
                None,
            ),
            ErrorStyle::Gemini => self.note(
                MalformedKind::Missing,
                "messages".to_owned(),
                "The body could not be parsed: unknown field 'messages'; the native protocol expects 'contents' (array of \
                 {role, parts}), not 'messages'."
                    .to_owned(),
                Some("Unknown field; use 'contents'."),
            ),
        }
    }

    fn note(&mut self, kind: MalformedKind, field: String, message: String, native: Option<&str>) {
        if self.found.len() == MAX_REPORTED_ERRORS {
            return;
        }
        let description = match (self.wording, native) {
            (ErrorStyle::Gemini, Some(words)) => words.to_owned(),
            _ => message.clone(),
        };
        self.found.push(ValidationError { kind, message, violation: FieldViolation { field, description } });
    }

    /// The refusal: kind and sentence are those of the first fault.
    pub(crate) fn into_result(self) -> Result<(), Malformed> {
        let Some(first) = self.found.first() else { return Ok(()) };
        let (kind, message) = (first.kind, first.message.clone());
        Err(Malformed { kind, message, violations: self.found.into_iter().map(|fault| fault.violation).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_a_caller_would_write_them() {
        let path = JsonPath::Root;
        let messages = path.member("messages");
        let first = messages.element(0);
        let content = first.member("content");
        assert_eq!(content.element(12).member("type").to_string(), "messages[0].content[12].type");
    }

    #[test]
    fn tells_the_first_fault_and_lists_at_most_twenty() {
        let mut faults = ValidationErrors::new(ErrorStyle::Gemini);
        let contents = JsonPath::Member(&JsonPath::Root, "contents");
        for index in 0..30 {
            faults.wrong_type(&contents.element(index), "an object");
        }
        let refusal = faults.into_result().expect_err("faults were found");
        assert_eq!(refusal.kind, MalformedKind::WrongType);
        assert_eq!(refusal.message, "The body could not be parsed: 'contents[0]' must be an object.");
        assert_eq!(refusal.violations.len(), 20);
        assert_eq!(refusal.violations[19].field, "contents[19]");
    }

    #[test]
    fn nothing_found_is_no_refusal() {
        assert_eq!(ValidationErrors::new(ErrorStyle::OpenAi).into_result(), Ok(()));
    }
}
