//! The protocol-neutral form of requests, answers and streams. Every translation goes through it.
//!
//! Its unit is the [`Part`], which carries its own attributes (path, signature). Values are never stored or sent, so the
//! types may change freely.

mod answer_pipeline;
pub(crate) mod compatibility;
pub(crate) mod effort;
pub(crate) mod encode_context;
pub(crate) mod media;
pub(crate) mod names;
pub(crate) mod normalise;
mod options;
mod params;
mod part;
mod reply;
mod reply_codec;
mod request;
pub(crate) mod schema;
pub(crate) mod signature;
mod text_map;

pub use options::{DownloadedMedia, FetchedMedia, RemoteMedia, TranslateError, TranslateOptions};
pub use params::{Format, GoogleParams, Label, Located, Params, ThinkingParams};
pub use part::{Media, MediaSource, Part, PartKind, Signature};
pub use reply::{AnswerKind, BlockedPrompt, Candidate, Citation, Embeddings, Event, Reply, ReplyContext, TokenLogprob};
pub use reply_codec::StreamDecoder;
pub use request::{
    EmbedRequest, EncodedRequest, Grammar, NamespacedTool, Operation, Request, RequestEcho, Role, Schema, ServerTool, Tool,
    ToolChoice, ToolChoiceMode, Turn, UnsupportedField,
};

pub(crate) use answer_pipeline::{AnswerPipeline, CALL_BYTES_LIMIT, CANDIDATE_LIMIT, CITATION_BYTES_LIMIT, OPEN_CALL_LIMIT};
pub(crate) use reply::{filtered_sentence, find_or_insert};
pub(crate) use reply_codec::{ReplyCodec, StreamEncoder, read_input_tokens};
pub(crate) use text_map::TextMap;

pub use crate::{FinishReason, Usage};
