//! The wire formats of model requests.
//!
//! Everything here is pure: bytes in, values out; no clock, network, database or prices. Each protocol lives in a folder of
//! its own and has one row in the table behind [`Protocol::spec`]. [`neutral`] holds requests and replies independent of a
//! wire format; translation goes through it.

mod anthropic;
mod body_members;
mod codec;
mod echo;
mod edits;
mod embedding_values;
mod fields;
mod fingerprint;
mod gemini;
mod json_array;
mod json_text;
mod json_writer;
mod lenient;
mod malformed;
mod markers;
mod minimal_request;
mod named_events;
mod object;
mod opaque_state;
mod openai;
mod outline;
mod parameter_edits;
mod passthrough;
mod price_fields;
mod problem;
mod profile;
mod protocol;
mod reply_summary;
mod responses;
mod scan;
mod shared_pieces;
mod summary;
mod summary_builder;
mod target;
mod translate;
mod tree;
mod upstream_error;
mod validation;
mod whole_relay;

pub mod lists;
pub mod neutral;
pub mod sse;

pub use codec::{Codec, ReplyEdits, RequestEdits};
pub use echo::{EchoAnswer, EchoBody, EchoCall, EchoEvents, echo};
pub use fields::remove_fields;
pub use minimal_request::{minimal_body, minimal_embedding_request, minimal_request, probe_request};
pub use neutral::{DownloadedMedia, FetchedMedia, RemoteMedia, TranslateError, TranslateOptions};
pub use parameter_edits::{ParameterChange, ParameterEdit, edit_parameters};
pub use price_fields::{PriceEffect, price_effects};
pub use problem::{
    AnthropicErrorFields, GeminiErrorFields, OpenAiErrorFields, Problem, QuotaViolation, QuotaWindow, UpstreamProblem,
};
pub use profile::{CanDisableThinking, F64, Profile, Thinking, effective_profile};
pub use protocol::{CallerSurface, CredentialHeader, ErrorStyle, ForwardedHeaders, Protocol, spec::ProtocolSpec};
pub use reply_summary::{CheckedReply, FinishReason, InvalidReply, ReplySummary, StreamError, StreamRelay, Usage};
pub use summary::{
    FieldPath, FieldViolation, MAX_METADATA, Malformed, MalformedKind, RequestExtras, RequestSummary, ServiceTier, SplicePoints,
    UnseenInput,
};
pub use target::{Framing, Method, Target};
pub use translate::{
    decode_request, encode_count, encode_request, pending_media, translate_problem, translate_reply, translating_relay,
};
pub use upstream_error::{CONTEXT_EXCEEDED, RefusedOutputLimit, names_context_limit};
pub use whole_relay::relay_whole;

pub fn codec(protocol: Protocol) -> &'static dyn Codec {
    protocol.spec().codec
}
