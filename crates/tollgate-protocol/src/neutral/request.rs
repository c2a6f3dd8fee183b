//! What a request means, apart from any wire format.

use bytes::Bytes;

use super::{AnswerKind, EmbedRequest, Params, Part, ReplyContext};
use crate::{FieldPath, Framing, Method, Protocol};

/// A request as it is meant.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Model as the caller named it.
    pub model: String,
    /// Protocol it came in.
    pub origin: Protocol,
    /// What is asked for.
    pub operation: Operation,
    /// Leading system texts, in order.
    pub system: Vec<Part>,
    /// The conversation, normalised: no neighbouring model turns, results directly behind their calls, every call with
    /// an id, no empty turns.
    pub turns: Vec<Turn>,
    /// Tools offered.
    pub tools: Vec<Tool>,
    /// Tools the provider runs itself, and other kinds only one protocol knows.
    pub server_tools: Vec<ServerTool>,
    /// How tools may be chosen.
    pub choice: Option<ToolChoice>,
    /// Everything optional.
    pub params: Params,
    /// Fields that no other protocol can express, found while reading.
    pub refused: Vec<UnsupportedField>,
    /// Fields that are dropped whatever the upstream, in the caller's spelling.
    pub dropped: Vec<FieldPath>,
}

impl Request {
    /// Whether it came over the native protocol: its thoughts, signatures and schemas are Google's own.
    pub(crate) fn is_native(&self) -> bool {
        self.origin == Protocol::Gemini
    }

    /// A request that says nothing yet.
    #[must_use]
    pub fn new(model: impl Into<String>, origin: Protocol, operation: Operation) -> Self {
        Self {
            model: model.into(),
            origin,
            operation,
            system: Vec::new(),
            turns: Vec::new(),
            tools: Vec::new(),
            server_tools: Vec::new(),
            choice: None,
            params: Params::default(),
            refused: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// Notes a parameter that no other protocol can express.
    pub(crate) fn refuse(&mut self, field: impl Into<FieldPath>) {
        self.refused.push(UnsupportedField { field: field.into(), reason: None, droppable: true });
    }

    /// Notes a message or part that no other protocol can express.
    pub(crate) fn refuse_part(&mut self, field: impl Into<FieldPath>) {
        self.refused.push(UnsupportedField { field: field.into(), reason: None, droppable: false });
    }
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Text a model writes.
    Generate,
    /// The number of input tokens.
    Count,
    /// Embeddings.
    Embed(Box<EmbedRequest>),
}

/// A field that cannot be expressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedField {
    /// Path in the caller's spelling.
    pub field: FieldPath,
    /// Why, a short phrase.
    pub reason: Option<String>,
    /// Whether policy may drop it instead. Messages and parts may not be dropped: that changes what is asked.
    pub droppable: bool,
}

/// One turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// Path of the turn in the caller's body.
    pub path: FieldPath,
}

/// Who speaks in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// System text that does not stand at the beginning.
    System,
    /// The person or program that asks.
    User,
    /// The model.
    Model,
    /// Tool results that belong to the model turn before.
    ToolResults,
}

/// A tool offered.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Name.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// Parameter schema; `None` when there are no parameters.
    pub schema: Option<Schema>,
    /// `strict` of chat completions.
    pub strict: Option<bool>,
    /// Free-text tool of chat completions.
    pub custom: bool,
    /// Path in the caller's body.
    pub path: FieldPath,
}

/// A tool only its own protocol can carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTool {
    /// Which protocol.
    pub owner: Protocol,
    /// The whole tool entry, compact JSON.
    pub raw: String,
    /// Path in the caller's body, such as `tools[0].googleSearch`.
    pub path: FieldPath,
}

/// A schema: real JSON Schema, or Google's `OpenAPI` subset. Member order is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Schema {
    /// JSON Schema.
    Json(serde_json::Value),
    /// Google's `Schema` message, as the caller wrote it (names in either spelling).
    Google(serde_json::Value),
}

/// How tools may be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolChoice {
    /// Mode.
    pub mode: ToolChoiceMode,
    /// Restricts to these names when not empty.
    pub names: Vec<String>,
    /// Path in the caller's body.
    pub path: FieldPath,
}

/// Mode of tool choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoiceMode {
    /// The model decides.
    Auto,
    /// No tool.
    None,
    /// Some tool.
    Any,
}

/// A request written for an upstream, with what its answer's translation needs.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedRequest {
    /// What is asked of the upstream, in its own terms; decides the path.
    pub method: Method,
    /// Whether the upstream will stream.
    pub stream: bool,
    /// Body.
    pub body: Bytes,
    /// Entries for `x-tollgate-dropped`, sorted: paths, or `path=value` for adjusted ones.
    pub dropped: Vec<String>,
    /// Upstream tool name to caller's tool name, only those that differ.
    pub name_map: Vec<(String, String)>,
    /// Names (the caller's) of custom tools.
    pub custom_tools: Vec<String>,
    /// The caller wants a usage chunk.
    pub include_usage: bool,
    /// The caller wants to see thoughts.
    pub include_thoughts: bool,
    /// Thinking blocks without visible text are to travel to a native caller ([`ReplyContext::carry_thinking`]).
    pub carry_thinking: bool,
    /// What kind of answer the caller expects.
    pub kind: AnswerKind,
    /// `false`: only the first call of a candidate is to be handed on.
    pub parallel: bool,
}

impl EncodedRequest {
    /// What the translation of the answer must remember. `request_id` is ours without `req_`, `now` is Unix seconds,
    /// `model` the caller's name of the model.
    #[must_use]
    pub fn reply_context(&self, request_id: &str, now: i64, model: &str, framing: Framing) -> ReplyContext {
        ReplyContext {
            kind: self.kind,
            framing,
            stream: self.stream,
            include_usage: self.include_usage,
            include_thoughts: self.include_thoughts,
            carry_thinking: self.carry_thinking,
            parallel: self.parallel,
            custom_tools: self.custom_tools.clone(),
            name_map: self.name_map.clone(),
            ..ReplyContext::new(request_id, now, model)
        }
    }
}
