//! Which protocol, which method, which model: what the request line alone says.

use serde::{Deserialize, Serialize};

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Chat completions.
    OpenAi,
    /// Native content generation.
    Gemini,
    /// Messages; spoken to upstreams only.
    Anthropic,
}

impl Protocol {
    /// The word used in catalogs, records, metrics and the "protocol family" of refusals.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
            Self::Anthropic => "anthropic",
        }
    }

    /// Reads the word of [`Protocol::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "openai" => Some(Self::OpenAi),
            "gemini" => Some(Self::Gemini),
            "anthropic" => Some(Self::Anthropic),
            _ => None,
        }
    }
}

/// What is asked of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// `POST /v1/chat/completions`, streaming or not.
    Chat,
    /// `:generateContent`.
    Generate,
    /// `:streamGenerateContent`.
    StreamGenerate,
    /// `:countTokens`.
    CountTokens,
    /// `:embedContent`.
    EmbedContent,
    /// `:batchEmbedContents`.
    BatchEmbedContents,
    /// `POST /v1/embeddings`.
    Embeddings,
}

impl Method {
    /// The word in records and logs: `chat`, `generate`, `stream`, `count_tokens`, `embeddings`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Generate => "generate",
            Self::StreamGenerate => "stream",
            Self::CountTokens => "count_tokens",
            Self::EmbedContent | Self::BatchEmbedContents | Self::Embeddings => "embeddings",
        }
    }

    /// Whether the answer is text a model writes (not a count, not vectors).
    #[must_use]
    pub const fn generates(self) -> bool {
        matches!(self, Self::Chat | Self::Generate | Self::StreamGenerate)
    }

    /// The verb behind the last `:` of a native path (gemini-native wire reference, section 1).
    #[must_use]
    pub const fn native_verb(self) -> Option<&'static str> {
        match self {
            Self::Generate => Some("generateContent"),
            Self::StreamGenerate => Some("streamGenerateContent"),
            Self::CountTokens => Some("countTokens"),
            Self::EmbedContent => Some("embedContent"),
            Self::BatchEmbedContents => Some("batchEmbedContents"),
            Self::Chat | Self::Embeddings => None,
        }
    }

    /// Reads a native verb.
    #[must_use]
    pub fn from_native_verb(verb: &str) -> Option<Self> {
        match verb {
            "generateContent" => Some(Self::Generate),
            "streamGenerateContent" => Some(Self::StreamGenerate),
            "countTokens" => Some(Self::CountTokens),
            "embedContent" => Some(Self::EmbedContent),
            "batchEmbedContents" => Some(Self::BatchEmbedContents),
            _ => None,
        }
    }
}

/// How a streamed answer is cut into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// `text/event-stream`.
    Sse,
    /// One JSON array, sent piecewise (native `:streamGenerateContent` without `alt=sse`).
    JsonArray,
}

/// What the request line says before a body is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is asked.
    pub method: Method,
    /// The model in a native path, percent-decoded; `None` where the body names it.
    pub model: Option<String>,
    /// How a streamed answer is framed; meaningful only where the answer streams.
    pub framing: Framing,
}
