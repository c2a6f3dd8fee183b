//! Validation errors of request bodies: the path of each invalid field and the sentence for it (E16, E20, E21).

use std::fmt;

use crate::{ErrorStyle, FieldViolation, Malformed, MalformedKind};

/// Most errors reported in one answer; further ones are dropped.
const MAX_REPORTED_ERRORS: usize = 20;

/// The path of a value in the body. Built on the stack while scanning; formatted only for an error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JsonPath<'p> {
    Root,
    Member(&'p JsonPath<'p>, &'p str),
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

#[derive(Debug)]
struct ValidationError {
    kind: MalformedKind,
    message: String,
    violation: FieldViolation,
}

/// The errors found so far, in the order they are reported.
#[derive(Debug)]
pub(crate) struct ValidationErrors {
    style: ErrorStyle,
    found: Vec<ValidationError>,
}

impl ValidationErrors {
    pub(crate) const fn new(style: ErrorStyle) -> Self {
        Self { style, found: Vec::new() }
    }

    /// A required member is absent, `null` or blank.
    pub(crate) fn missing(&mut self, path: &JsonPath<'_>) {
        let field = path.to_string();
        let message = self.style.missing(&field);
        self.push(MalformedKind::Missing, field, message, self.style.missing_description());
    }

    /// A member has another type than `expected`, a phrase such as `an array`.
    pub(crate) fn wrong_type(&mut self, path: &JsonPath<'_>, expected: &str) {
        let field = path.to_string();
        let message = self.style.wrong_type(&field, expected);
        self.push(MalformedKind::WrongType, field, message, None);
    }

    /// A member violates a rule, a phrase such as `must not be empty`.
    pub(crate) fn invalid(&mut self, path: &JsonPath<'_>, rule: &str) {
        let message = match self.style {
            ErrorStyle::OpenAi | ErrorStyle::Anthropic => format!("Invalid value for '{path}': it {rule}."),
            ErrorStyle::Gemini => format!("The body could not be parsed: '{path}' {rule}."),
        };
        self.push(MalformedKind::InvalidValue, path.to_string(), message, None);
    }

    /// A member is missing, for the reason that the message states.
    pub(crate) fn missing_because(&mut self, path: &JsonPath<'_>, message: &str) {
        self.push(MalformedKind::Missing, path.to_string(), message.to_owned(), None);
    }

    /// The conversation has the member name of the other caller protocol: `contents` for `messages` or the reverse.
    pub(crate) fn other_protocol(&mut self, path: &JsonPath<'_>) {
        match self.style {
            ErrorStyle::OpenAi | ErrorStyle::Anthropic => {
                let expecting =
                    if self.style == ErrorStyle::OpenAi { "chat completions expect" } else { "the Messages API expects" };
                let message = format!(
                    "Missing required parameter: '{path}'. The body has the unknown field 'contents'; {expecting} 'messages' \
                     (array of {{role, content}}), not 'contents'."
                );
                self.push(MalformedKind::Missing, path.to_string(), message, None);
            }
            ErrorStyle::Gemini => self.push(
                MalformedKind::Missing,
                "messages".to_owned(),
                "The body could not be parsed: unknown field 'messages'; the native protocol expects 'contents' (array of \
                 {role, parts}), not 'messages'."
                    .to_owned(),
                Some("Unknown field; use 'contents'."),
            ),
        }
    }

    /// Without a `description` the violation repeats the message.
    fn push(&mut self, kind: MalformedKind, field: String, message: String, description: Option<&str>) {
        if self.found.len() == MAX_REPORTED_ERRORS {
            return;
        }
        let description = description.unwrap_or(&message).to_owned();
        self.found.push(ValidationError { kind, message, violation: FieldViolation { field, description } });
    }

    /// Fails if there are errors; kind and message are those of the first.
    pub(crate) fn into_result(self) -> Result<(), Malformed> {
        let Some(first) = self.found.first() else { return Ok(()) };
        let (kind, message) = (first.kind, first.message.clone());
        Err(Malformed { kind, message, violations: self.found.into_iter().map(|error| error.violation).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_use_dots_and_brackets() {
        let path = JsonPath::Root;
        let messages = path.member("messages");
        let first = messages.element(0);
        let content = first.member("content");
        assert_eq!(content.element(12).member("type").to_string(), "messages[0].content[12].type");
    }

    #[test]
    fn first_error_gives_the_message_and_twenty_are_listed() {
        let mut errors = ValidationErrors::new(ErrorStyle::Gemini);
        let contents = JsonPath::Member(&JsonPath::Root, "contents");
        for index in 0..30 {
            errors.wrong_type(&contents.element(index), "an object");
        }
        let refusal = errors.into_result().expect_err("errors were found");
        assert_eq!(refusal.kind, MalformedKind::WrongType);
        assert_eq!(refusal.message, "The body could not be parsed: 'contents[0]' must be an object.");
        assert_eq!(refusal.violations.len(), 20);
        assert_eq!(refusal.violations[19].field, "contents[19]");
    }

    #[test]
    fn no_errors_is_ok() {
        assert_eq!(ValidationErrors::new(ErrorStyle::OpenAi).into_result(), Ok(()));
    }
}
