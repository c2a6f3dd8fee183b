//! Protocol-neutral requests, and requests encoded for an upstream.

use std::sync::Arc;

use bytes::Bytes;

use super::{AnswerKind, Located, Params, Part, ReplyContext};
use crate::{FieldPath, Framing, Method, Protocol};

/// A request in neutral form.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub model: String,
    pub origin: Protocol,
    pub operation: Operation,
    /// Leading system texts, in order.
    pub system: Vec<Part>,
    /// The conversation, normalised: no adjacent model turns, tool results directly after their calls, every call with an
    /// id, no empty turns.
    pub turns: Vec<Turn>,
    pub tools: Vec<Tool>,
    /// Tools that the provider executes, and other kinds of tools that exist in one protocol only.
    pub server_tools: Vec<ServerTool>,
    pub choice: Option<ToolChoice>,
    pub params: Params,
    /// Fields that no other protocol can express, found while decoding.
    pub refused: Vec<UnsupportedField>,
    /// Fields dropped for every upstream, in the caller's spelling.
    pub dropped: Vec<FieldPath>,
    /// Members of the request that the answer repeats (Responses).
    pub echo: Option<Arc<RequestEcho>>,
}

impl Request {
    /// True for a Gemini caller: thoughts, signatures and schemas are Gemini's own.
    pub(crate) fn is_native(&self) -> bool {
        self.origin == Protocol::Gemini
    }

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
            echo: None,
        }
    }

    /// Records a parameter that no other protocol can express.
    pub(crate) fn refuse(&mut self, field: impl Into<FieldPath>) {
        self.refused.push(UnsupportedField { field: field.into(), reason: None, droppable: true, is_input: false });
    }

    /// Records a parameter that no other protocol can express, and what to do instead.
    pub(crate) fn refuse_because(&mut self, field: impl Into<FieldPath>, reason: &str) {
        let reason = Some(reason.to_owned());
        self.refused.push(UnsupportedField { field: field.into(), reason, droppable: true, is_input: false });
    }

    /// Records a parameter that no other protocol can express and that adds to the model's input.
    pub(crate) fn refuse_input(&mut self, field: impl Into<FieldPath>) {
        self.refused.push(UnsupportedField { field: field.into(), reason: None, droppable: true, is_input: true });
    }

    /// Records parameters that no other protocol can express.
    pub(crate) fn refuse_all(&mut self, fields: impl IntoIterator<Item = FieldPath>) {
        fields.into_iter().for_each(|field| self.refuse(field));
    }

    /// Records a parameter that no other protocol can express, if it was given.
    pub(crate) fn refuse_given<T>(&mut self, given: Option<Located<T>>) {
        self.refuse_all(given.map(|given| given.path));
    }

    /// Records a message or part that no other protocol can express.
    pub(crate) fn refuse_part(&mut self, field: impl Into<FieldPath>) {
        self.refused.push(UnsupportedField { field: field.into(), reason: None, droppable: false, is_input: true });
    }

    /// Records a field that no other protocol can express, with the reason. It is never dropped: without it the model would answer
    /// something else.
    pub(crate) fn refuse_part_because(&mut self, field: impl Into<FieldPath>, reason: &str) {
        let reason = Some(reason.to_owned());
        self.refused.push(UnsupportedField { field: field.into(), reason, droppable: false, is_input: true });
    }
}

/// Members of a Responses request that its answer repeats, as JSON text, and the names of its tools that are in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestEcho {
    /// Members besides the next two, without a leading comma.
    pub members: String,
    pub instructions: String,
    pub tools: String,
    pub namespaced: Vec<NamespacedTool>,
}

/// A tool in a namespace, which other protocols do not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacedTool {
    /// The name that stands for both in the neutral form.
    pub flat: String,
    pub namespace: String,
    pub name: String,
}

/// The operation that a request asks for, with the input of embeddings.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Generate,
    Count,
    Embed(Box<EmbedRequest>),
}

/// Input and options of an embeddings request.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedRequest {
    /// The texts, at least one, in order.
    pub inputs: Vec<String>,
    /// The answer is a list (every form except Gemini's `:embedContent`).
    pub list: bool,
    pub dimensions: Option<Located<u32>>,
    /// Gemini `taskType`, upper case.
    pub task: Option<Located<String>>,
    pub title: Option<Located<String>>,
    /// The caller requested the vectors as base64 of little-endian floats.
    pub base64: bool,
    pub user: Option<Located<String>>,
}

/// A field of the caller's body without a counterpart in the other protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedField {
    /// Path in the caller's spelling.
    pub field: FieldPath,
    /// Reason, a short phrase.
    pub reason: Option<String>,
    /// True where lenient translation may drop it. Messages and parts are never dropped.
    pub droppable: bool,
    /// True if the field's content becomes input of the model, so that a token count depends on it: messages, parts, tools and skills.
    pub is_input: bool,
}

/// Consecutive parts of one role; `path` is that of the message in the caller's body.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub role: Role,
    pub parts: Vec<Part>,
    pub path: FieldPath,
}

/// The author of a [`Turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// System text after the beginning of the conversation.
    System,
    User,
    Model,
    /// Results of the tool calls in the preceding model turn.
    ToolResults,
}

/// A function or custom tool that the caller runs itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    /// Parameter schema; `None` when there are no parameters.
    pub schema: Option<Schema>,
    pub strict: Option<bool>,
    /// True for a custom (free-text) tool of OpenAI.
    pub custom: bool,
    /// Grammar of the text of a custom tool.
    pub grammar: Option<Grammar>,
    pub path: FieldPath,
}

/// A grammar in the form of OpenAI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grammar {
    /// `lark` or `regex`.
    pub syntax: String,
    pub definition: String,
    pub path: FieldPath,
}

/// A tool that only its own protocol can represent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTool {
    pub owner: Protocol,
    pub raw: String,
    /// Path in the caller's body, such as `tools[0].googleSearch`.
    pub path: FieldPath,
}

/// A schema: JSON Schema, or Google's `OpenAPI` subset. Member order is preserved.
#[derive(Clone, Debug, PartialEq)]
pub enum Schema {
    Json(serde_json::Value),
    /// Google's `Schema` message as the caller sent it (camelCase or `snake_case` names).
    Google(serde_json::Value),
}

/// The caller's restriction on which tools the model calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolChoice {
    /// Whether tools may or must be called.
    pub mode: ToolChoiceMode,
    /// Allowed tools; all where empty.
    pub names: Vec<String>,
    pub path: FieldPath,
}

/// Whether the model calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoiceMode {
    Auto,
    None,
    /// At least one tool is called.
    Any,
}

/// A request encoded for an upstream, with the facts that the translation of its answer needs.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedRequest {
    pub method: Method,
    pub stream: bool,
    pub body: Bytes,
    /// Entries for `x-tollgate-dropped`, sorted: paths, or `path=value` for adjusted ones.
    pub dropped: Vec<String>,
    /// Pairs of upstream tool name and caller's tool name, where they differ.
    pub name_map: Vec<(String, String)>,
    pub custom_tools: Vec<String>,
    pub include_usage: bool,
    pub include_thoughts: bool,
    /// See [`ReplyContext::carry_thinking`].
    pub carry_thinking: bool,
    pub kind: AnswerKind,
    /// `false`: forward only the first call of a candidate.
    pub parallel: bool,
    /// See [`ReplyContext::legacy_calls`].
    pub legacy_calls: bool,
    /// See [`Request::echo`].
    pub echo: Option<Arc<RequestEcho>>,
}

impl EncodedRequest {
    /// Context for translating the answer. `request_id` is given without `req_`, `now` in Unix seconds, `model` as the caller
    /// named it.
    pub fn reply_context(&self, request_id: &str, now: i64, model: &str, framing: Framing) -> ReplyContext {
        ReplyContext {
            kind: self.kind,
            framing,
            stream: self.stream,
            include_usage: self.include_usage,
            include_thoughts: self.include_thoughts,
            carry_thinking: self.carry_thinking,
            parallel: self.parallel,
            legacy_calls: self.legacy_calls,
            custom_tools: self.custom_tools.clone(),
            name_map: self.name_map.clone(),
            echo: self.echo.clone(),
            ..ReplyContext::new(request_id, now, model)
        }
    }
}
