//! The wire formats, and the words that describe them in the table ([`spec`]).

pub(crate) mod spec;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// A wire format. Its row in the table is [`Protocol::spec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "lowercase")]
#[cbor(index_only)]
pub enum Protocol {
    /// OpenAI chat completions and embeddings.
    #[n(0)]
    OpenAi,
    /// Gemini's native `generateContent` family.
    #[n(1)]
    Gemini,
    /// Anthropic Messages.
    #[n(2)]
    Anthropic,
    /// OpenAI Responses.
    #[n(3)]
    Responses,
}

impl Protocol {
    /// Every protocol, in the order of the table.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Gemini, Self::Anthropic, Self::Responses];
}

/// The header that carries an upstream's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialHeader {
    /// Name, in lower case.
    pub name: &'static str,
    /// Text before the credential, such as `Bearer `.
    pub prefix: &'static str,
}

/// Headers of callers that a same-protocol upstream gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedHeaders {
    /// The prefix of their names, in lower case.
    pub prefix: &'static str,
    /// Names of headers about the caller's own account, which are not forwarded, in lower case.
    pub except: &'static [&'static str],
}

impl ForwardedHeaders {
    /// Whether the header with this name, in lower case, is forwarded.
    #[must_use]
    pub fn includes(&self, name: &str) -> bool {
        name.starts_with(self.prefix) && !self.except.contains(&name)
    }
}

/// Methods offered to callers of a protocol, as refusals (E15) and model lists name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerSurface {
    pub model_list_path: &'static str,
    /// Paths or verbs that generate text or count its input.
    pub generation: &'static [&'static str],
    /// Paths or verbs that embed.
    pub embedding: &'static [&'static str],
    /// The subset that is never translated: only an upstream of the same protocol serves it.
    pub own: &'static [&'static str],
}

/// The form of errors that callers of a protocol receive (docs/errors.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorStyle {
    /// `{"error":{"message","type","param","code"}}` (E16, E21).
    OpenAi,
    /// `{"error":{"code","message","status","details"}}` (E20).
    Gemini,
    /// `{"type":"error","error":{"type","message"},"request_id"}` (E16, E21).
    Anthropic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldNames {
    /// Byte for byte.
    Exact,
    /// proto3 JSON: lowerCamelCase or `snake_case`; numbers may also be strings.
    Proto3,
}
