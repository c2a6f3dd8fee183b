//! Parts of turns and answers: text, thinking, media, tool calls and results.

use crate::{FieldPath, Protocol};

/// A piece of a message or of an answer: text, thinking, media, a tool call or its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub kind: PartKind,
    /// Opaque state that must be returned with the part.
    pub signature: Option<Signature>,
    /// Path in the caller's body, for error messages; empty in answers.
    pub path: FieldPath,
}

/// The content of a [`Part`].
#[derive(Clone, Debug, PartialEq)]
pub enum PartKind {
    Text(String),
    /// Thinking text, or opaque data in `redacted`.
    Think {
        text: String,
        redacted: Option<String>,
    },
    Media(Media),
    /// A tool call. `args` is JSON text exactly as received, or compact JSON; plain text for a custom (free-text) tool. The id is
    /// empty where the message had none.
    Call {
        id: String,
        name: String,
        args: String,
        custom: bool,
    },
    /// A tool result. Id and name are empty where the message had none. `json`: the content is the compact JSON text of an object
    /// (Gemini `response` other than `{"output": "…"}`).
    Result {
        call_id: String,
        name: String,
        content: String,
        json: bool,
        media: Vec<Media>,
        is_error: bool,
    },
    /// Code written by the model for execution; the language is in lower case.
    Code {
        language: String,
        text: String,
    },
    /// Result of executing code; the outcome is `OUTCOME_OK` or the like.
    CodeOutput {
        outcome: String,
        text: String,
    },
    /// JSON that only its own protocol can represent.
    Opaque {
        protocol: Protocol,
        raw: String,
    },
}

/// Image, audio, document or video.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// MIME type, lower case, without parameters; empty when unknown.
    pub mime: String,
    /// The bytes or their location.
    pub source: MediaSource,
    pub name: Option<String>,
    /// Requested resolution, lower case: `low`, `medium`, `high`… `None` leaves it to the model.
    pub detail: Option<String>,
    /// Path in the caller's spelling, for error messages; empty in answers.
    pub path: FieldPath,
}

/// The place of the bytes of a media part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaSource {
    /// Standard padded base64.
    Inline(String),
    /// URI of a provider file (`gs://`, Gemini Files API).
    Uri(String),
    /// Public http(s) URL.
    Remote(String),
}

/// Opaque state of a provider. It may only be sent back to the protocol it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub owner: Protocol,
    pub value: String,
}

impl Part {
    pub(crate) fn text(text: impl Into<String>, path: impl Into<FieldPath>) -> Self {
        Self::new(PartKind::Text(text.into()), path)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let PartKind::Text(text) = &self.kind { Some(text) } else { None }
    }

    pub(crate) const fn is_call(&self) -> bool {
        matches!(self.kind, PartKind::Call { .. })
    }

    pub(crate) fn new(kind: PartKind, path: impl Into<FieldPath>) -> Self {
        Self { kind, signature: None, path: path.into() }
    }
}
