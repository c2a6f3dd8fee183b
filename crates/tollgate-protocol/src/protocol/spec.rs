//! The table with all facts about each wire format besides its codec.

use std::fmt;

use serde_json::Value;

use crate::{
    CallerSurface, Codec, CredentialHeader, ErrorStyle, ForwardedHeaders, Malformed, Method, Protocol, Target, anthropic, gemini,
    json_writer::Json,
    lists::{self, ListFormat},
    neutral::{Media, ReplyCodec, Request, encode_context::EncodeContext},
    openai,
    protocol::FieldNames,
    responses,
};

impl Protocol {
    pub const WORDS: [&'static str; Self::ALL.len()] = {
        let mut words = [""; Self::ALL.len()];
        let mut index = 0;
        while index < words.len() {
            words[index] = Self::ALL[index].as_str();
            index += 1;
        }
        words
    };

    pub const fn spec(self) -> &'static ProtocolSpec {
        &TABLE[self as usize]
    }

    /// The word in catalogs, records, metrics and the `protocol` member of refusals.
    pub const fn as_str(self) -> &'static str {
        self.spec().word
    }

    /// Whether the list of models of the other protocol also serves clients of this one, because path and form are the same.
    pub fn shares_model_list(self, other: Self) -> bool {
        let list = |protocol: Self| (protocol.spec().error_style, protocol.spec().caller.map(|caller| caller.model_list_path));
        list(self) == list(other)
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str() == word)
    }
}

/// Differences between protocols outside of their codecs. Adding a protocol means a folder, a variant of [`Protocol`]
/// and a row here.
pub struct ProtocolSpec {
    pub protocol: Protocol,
    pub word: &'static str,
    /// Base URL of the vendor's own API, without a trailing slash.
    pub default_base_url: &'static str,
    pub credential: CredentialHeader,
    /// Headers every request to an upstream carries, names in lower case.
    pub fixed_headers: &'static [(&'static str, &'static str)],
    /// Headers of callers that an upstream of the protocol gets; they replace the fixed ones.
    pub forwarded_headers: Option<ForwardedHeaders>,
    /// Header in which the protocol's clients look for the id of a request, besides `x-request-id`.
    pub request_id_header: Option<&'static str>,
    /// Header in which a client names its session, whose requests stay on one account.
    pub session_header: Option<&'static str>,
    /// Headers in which clients name the context of a request, such as a session, and the usage record tags that store them.
    pub tag_headers: &'static [(&'static str, &'static str)],
    /// Path and query of the shortest list of models, relative to the base URL; a health probe requests it.
    pub model_list_path: &'static str,
    pub generate_method: Method,
    /// Body fields that limit the output, in tokens, as paths. The first is written where the caller used none.
    pub output_limit_fields: &'static [&'static str],
    pub embeddings: bool,
    /// The protocol in which an upstream of this one serves embeddings, at the same base URL with the same credentials.
    pub embeddings_protocol: Option<Protocol>,
    /// Whether the built-in echo answers in this protocol. For other protocols its answers are translated.
    pub echoes: bool,
    /// Whether a stream that breaks off is aborted after its error event, because a clean end would look like a complete answer.
    pub aborts_broken_streams: bool,
    /// The minimal fields of a request that generates, as the beginning of a sentence.
    pub essential_fields: &'static str,
    /// Requests that callers can make in this protocol; `None` for a protocol used only for upstreams.
    pub caller: Option<CallerSurface>,
    pub error_style: ErrorStyle,
    /// The model list, for protocols with callers.
    pub model_list: ListFormat,
    pub(crate) field_names: FieldNames,
    /// Longest tool name, in characters.
    pub(crate) tool_name_limit: usize,
    /// Same-protocol requests, replies, streams and errors.
    pub(crate) codec: &'static dyn Codec,
    /// Replies and streams to and from the neutral form.
    pub(crate) reply_codec: &'static dyn ReplyCodec,
    /// Reads a caller's request into the neutral form.
    pub(crate) decode_request: fn(&Target, &[u8]) -> Result<Request, Malformed>,
    pub(crate) encode_request: fn(&mut EncodeContext<'_>) -> (Method, Json),
    /// Whether upstreams count the tokens of a request.
    pub(crate) counts_tokens: bool,
    /// Whether a reply in this protocol can hold a piece of media.
    pub(crate) carries_media: fn(&Media) -> bool,
    /// The smallest body that generates text: a model and one user message with this text.
    pub(crate) minimal_body: fn(model: &str, text: &str) -> Value,
    /// Method and smallest body of a request for embeddings; `None` where the protocol has none.
    pub(crate) minimal_embedding: Option<MinimalEmbedding>,
    /// For a field that accepts only certain values: its value, keyed by `""`, then other members it depends on, by path.
    /// Empty for a field without such requirements.
    pub(crate) field_sample: fn(field: &str) -> Vec<(&'static str, Value)>,
    /// Optional fields of requests that generate, as callers spell them; empty for a protocol without callers.
    pub parameters: &'static [&'static str],
    /// Optional fields of requests for embeddings.
    pub embedding_parameters: &'static [&'static str],
}

/// Method of a request for embeddings, and its smallest body for a model and a text.
pub(crate) type MinimalEmbedding = (Method, fn(model: &str, text: &str) -> Value);

impl fmt::Debug for ProtocolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtocolSpec").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

static TABLE: [ProtocolSpec; Protocol::ALL.len()] = [
    ProtocolSpec {
        protocol: Protocol::OpenAi,
        word: "openai",
        default_base_url: "https://api.openai.com/v1",
        credential: CredentialHeader { name: "authorization", prefix: "Bearer " },
        fixed_headers: &[],
        forwarded_headers: None,
        request_id_header: None,
        session_header: None,
        tag_headers: &[],
        model_list_path: "/models",
        generate_method: Method::Chat,
        output_limit_fields: &["max_completion_tokens", "max_tokens"],
        embeddings: true,
        embeddings_protocol: Some(Protocol::OpenAi),
        echoes: true,
        aborts_broken_streams: true,
        essential_fields: "'model' and 'messages' alone are",
        caller: Some(CallerSurface {
            model_list_path: "/v1/models",
            generation: &["/v1/chat/completions"],
            embedding: &["/v1/embeddings"],
            own: &[],
        }),
        error_style: ErrorStyle::OpenAi,
        model_list: lists::OPENAI,
        field_names: FieldNames::Exact,
        tool_name_limit: 64,
        codec: &openai::OpenAi,
        reply_codec: &openai::OpenAi,
        decode_request: openai::decode_request::decode,
        encode_request: openai::encode_request::encode,
        counts_tokens: false,
        carries_media: openai::carries,
        minimal_body: openai::samples::minimal_body,
        minimal_embedding: Some((Method::Embeddings, openai::samples::minimal_embedding_body)),
        field_sample: openai::samples::field_sample,
        parameters: openai::samples::PARAMETERS,
        embedding_parameters: openai::samples::EMBEDDING_PARAMETERS,
    },
    ProtocolSpec {
        protocol: Protocol::Gemini,
        word: "gemini",
        default_base_url: "https://generativelanguage.googleapis.com/v1beta",
        credential: CredentialHeader { name: "x-goog-api-key", prefix: "" },
        fixed_headers: &[],
        forwarded_headers: None,
        request_id_header: None,
        session_header: None,
        tag_headers: &[],
        model_list_path: "/models?pageSize=1",
        generate_method: Method::Generate,
        output_limit_fields: &["generationConfig.maxOutputTokens"],
        embeddings: true,
        embeddings_protocol: Some(Protocol::Gemini),
        echoes: true,
        aborts_broken_streams: true,
        essential_fields: "'contents' alone is",
        caller: Some(CallerSurface {
            model_list_path: "/v1beta/models",
            generation: &["generateContent", "streamGenerateContent", "countTokens"],
            embedding: &["embedContent", "batchEmbedContents"],
            own: &[],
        }),
        error_style: ErrorStyle::Gemini,
        model_list: lists::GEMINI,
        field_names: FieldNames::Proto3,
        tool_name_limit: 128,
        codec: &gemini::Gemini,
        reply_codec: &gemini::Gemini,
        decode_request: gemini::decode_request::decode,
        encode_request: gemini::encode_request::encode,
        counts_tokens: true,
        carries_media: |_| true,
        minimal_body: gemini::samples::minimal_body,
        minimal_embedding: Some((Method::EmbedContent, gemini::samples::minimal_embedding_body)),
        field_sample: gemini::samples::field_sample,
        parameters: gemini::samples::PARAMETERS,
        embedding_parameters: gemini::samples::EMBEDDING_PARAMETERS,
    },
    ProtocolSpec {
        protocol: Protocol::Anthropic,
        word: "anthropic",
        default_base_url: "https://api.anthropic.com/v1",
        credential: CredentialHeader { name: "x-api-key", prefix: "" },
        // The version that still accepts sampling parameters (Anthropic API reference, "Versions").
        fixed_headers: &[("anthropic-version", "2023-06-01")],
        // Beta features pair with members of the body.
        forwarded_headers: Some(ForwardedHeaders { prefix: "anthropic-", except: &["anthropic-workspace-id"] }),
        request_id_header: Some("request-id"),
        session_header: Some("x-claude-code-session-id"),
        tag_headers: &[("x-claude-code-session-id", "session"), ("x-claude-code-agent-id", "agent")],
        model_list_path: "/models?limit=1",
        generate_method: Method::Chat,
        output_limit_fields: &["max_tokens"],
        embeddings: false,
        embeddings_protocol: None,
        echoes: false,
        aborts_broken_streams: true,
        essential_fields: "'model', 'max_tokens' and 'messages' alone are",
        caller: Some(CallerSurface {
            model_list_path: "/v1/models",
            generation: &["/v1/messages", "/v1/messages/count_tokens"],
            embedding: &[],
            own: &[],
        }),
        error_style: ErrorStyle::Anthropic,
        model_list: lists::ANTHROPIC,
        field_names: FieldNames::Exact,
        tool_name_limit: 64,
        codec: &anthropic::Anthropic,
        reply_codec: &anthropic::Anthropic,
        decode_request: anthropic::decode_request::decode,
        encode_request: anthropic::encode_request::encode,
        counts_tokens: true,
        carries_media: |_| false,
        minimal_body: anthropic::samples::minimal_body,
        minimal_embedding: None,
        field_sample: anthropic::samples::field_sample,
        parameters: anthropic::samples::PARAMETERS,
        embedding_parameters: &[],
    },
    ProtocolSpec {
        protocol: Protocol::Responses,
        word: "responses",
        default_base_url: "https://api.openai.com/v1",
        credential: CredentialHeader { name: "authorization", prefix: "Bearer " },
        fixed_headers: &[],
        forwarded_headers: None,
        request_id_header: None,
        // Sent by Codex; the same in all turns.
        session_header: Some("session-id"),
        tag_headers: &[("session-id", "session")],
        model_list_path: "/models",
        generate_method: Method::Chat,
        output_limit_fields: &["max_output_tokens"],
        embeddings: false,
        embeddings_protocol: Some(Protocol::OpenAi),
        echoes: false,
        // A missing terminal event is visible in this protocol, and its clients lose the error of an aborted body.
        aborts_broken_streams: false,
        essential_fields: "'model' and 'input' alone are",
        caller: Some(CallerSurface {
            model_list_path: "/v1/models",
            generation: &["/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"],
            embedding: &[],
            own: &["/v1/responses/compact"],
        }),
        error_style: ErrorStyle::OpenAi,
        model_list: lists::OPENAI,
        field_names: FieldNames::Exact,
        tool_name_limit: 64,
        codec: &responses::Responses,
        reply_codec: &responses::Responses,
        decode_request: responses::decode_request::decode,
        encode_request: responses::encode_request::encode,
        counts_tokens: true,
        carries_media: responses::carries,
        minimal_body: responses::samples::minimal_body,
        minimal_embedding: None,
        field_sample: responses::samples::field_sample,
        parameters: responses::samples::PARAMETERS,
        embedding_parameters: &[],
    },
];

// `Protocol::spec` indexes the table by discriminant.
const _: () = {
    let mut index = 0;
    while index < TABLE.len() {
        assert!(TABLE[index].protocol as usize == index, "rows are in the order of the variants");
        index += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_names_match_their_serialised_form() {
        for protocol in Protocol::ALL {
            assert_eq!(serde_json::to_value(protocol).unwrap(), protocol.as_str());
            assert_eq!(Protocol::parse(protocol.as_str()), Some(protocol));
        }
        assert_eq!(Protocol::parse("OpenAI"), None);
    }
}
