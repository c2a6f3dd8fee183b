//! JSON syntax errors and their position.

use crate::{Malformed, MalformedKind};

/// Invalid syntax or a duplicate member (E18). Boxed, so that results without a value fit into a register, because nearly
/// all input is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError(Box<Fault>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    at: usize,
    what: SyntaxErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyntaxErrorKind {
    Syntax(&'static str),
    Twice(&'static str),
}

impl SyntaxError {
    /// `what` as a fragment such as `expected ':'`, found at byte `at`.
    #[cold]
    pub(crate) fn new(at: usize, what: &'static str) -> Self {
        Self(Box::new(Fault { at, what: SyntaxErrorKind::Syntax(what) }))
    }

    /// A duplicate of a member the gateway reads, at byte `at`.
    #[cold]
    pub(crate) fn duplicate_member(at: usize, name: &'static str) -> Self {
        Self(Box::new(Fault { at, what: SyntaxErrorKind::Twice(name) }))
    }

    /// The error for the caller. Lines and columns count from 1, columns in characters.
    pub(crate) fn malformed(self, body: &[u8]) -> Malformed {
        let (line, column) = position(body, self.0.at);
        let what = match self.0.what {
            SyntaxErrorKind::Syntax(what) => what.to_owned(),
            SyntaxErrorKind::Twice(name) => format!("the member '{name}' appears twice, the second time"),
        };
        let message = format!("The request body is not valid JSON: {what} at line {line} column {column}.");
        Malformed { kind: MalformedKind::NotJson, message, violations: Vec::new() }
    }
}

fn position(body: &[u8], at: usize) -> (usize, usize) {
    let before = &body[..at.min(body.len())];
    let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
    let line = 1 + memchr::memchr_iter(b'\n', before).count();
    let column = 1 + before[line_start..].iter().filter(|byte| **byte & 0xC0 != 0x80).count();
    (line, column)
}
