//! The unit of meaning: a part of a turn or of an answer, with its attributes on it.

use crate::{FieldPath, Protocol};

/// One part of a turn or of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// Opaque state that must travel with it.
    pub signature: Option<Signature>,
    /// Path in the caller's body, for error messages; empty in answers.
    pub path: FieldPath,
}

/// What a part is.
#[derive(Clone, Debug, PartialEq)]
pub enum PartKind {
    /// Text.
    Text(String),
    /// Thinking text; `redacted` when only opaque data came.
    Think {
        /// The text, possibly empty.
        text: String,
        /// Opaque data instead of text.
        redacted: Option<String>,
    },
    /// Image, audio, document, video.
    Media(Media),
    /// A tool call. `args` is JSON text exactly as received, or compact JSON.
    Call {
        /// Id, empty when the wire had none.
        id: String,
        /// Name.
        name: String,
        /// Arguments as JSON text (custom tools: plain text).
        args: String,
        /// A custom (free text) tool.
        custom: bool,
    },
    /// A tool result.
    Result {
        /// Id of the call it answers, empty when the wire had none.
        call_id: String,
        /// Name of the function, empty when the wire had none.
        name: String,
        /// Text content.
        content: String,
        /// Whether `content` is the compact JSON text of an object on the wire (native `response` other than
        /// `{"output": "…"}`).
        json: bool,
        /// Media beside the text.
        media: Vec<Media>,
        /// The tool reported a failure.
        is_error: bool,
    },
    /// Code the model wrote to run.
    Code {
        /// Language name, lower case.
        language: String,
        /// The code.
        text: String,
    },
    /// What running it gave.
    CodeOutput {
        /// `OUTCOME_OK` and the like.
        outcome: String,
        /// Output text.
        text: String,
    },
    /// Something only its own protocol can carry.
    Opaque {
        /// Which protocol.
        protocol: Protocol,
        /// Raw JSON.
        raw: String,
    },
}

/// Image, audio, document or video.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// Mime type, lower case, without parameters; empty when unknown.
    pub mime: String,
    /// The bytes or where they are.
    pub source: MediaSource,
    /// File name.
    pub name: Option<String>,
    /// Resolution asked for, lower case: `low`, `medium`, `high`… `None` leaves it to the model.
    pub detail: Option<String>,
    /// Path a refusal of this item names, in the caller's spelling; empty in answers.
    pub path: FieldPath,
}

/// Where media comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaSource {
    /// Standard padded base64.
    Inline(String),
    /// A provider's own file address (`gs://`, Files API).
    Uri(String),
    /// A public http(s) address.
    Remote(String),
}

/// Opaque state and whose it is: where it came from decides where it may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Whose.
    pub owner: Protocol,
    /// As on the wire.
    pub value: String,
}

impl Part {
    /// A text that stood at `path`.
    pub(crate) fn text(text: impl Into<String>, path: impl Into<FieldPath>) -> Self {
        Self::of(PartKind::Text(text.into()), path)
    }

    /// The text of a text part.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let PartKind::Text(text) = &self.kind { Some(text) } else { None }
    }

    /// Whether it is a tool call.
    pub(crate) const fn is_call(&self) -> bool {
        matches!(self.kind, PartKind::Call { .. })
    }

    /// Anything unsigned that stood at `path`.
    pub(crate) fn of(kind: PartKind, path: impl Into<FieldPath>) -> Self {
        Self { kind, signature: None, path: path.into() }
    }
}
