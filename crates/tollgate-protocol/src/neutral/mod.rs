//! What a request, an answer and a stream mean, apart from any wire format (translation reference, section 1.2).
//!
//! The unit is the part, with attributes on the part. These values never reach a disk or a wire, so they may
//! change freely.

mod answers;
pub(crate) mod as_function;
mod assemble;
pub(crate) mod effort;
mod embed;
mod handover;
mod loss;
pub(crate) mod media;
pub(crate) mod names;
pub(crate) mod normalise;
mod options;
pub(crate) mod outgoing;
mod params;
mod part;
mod reply;
mod request;
pub(crate) mod schema;
pub(crate) mod signature;
mod stream;
mod text_map;
pub(crate) mod verdict;

pub use embed::EmbedRequest;
pub use loss::{LossRow, LossVerdict, loss_matrix};
pub use options::{Fetched, FetchedMedia, RemoteMedia, TranslateOptions, Untranslatable};
pub use params::{Format, Given, GoogleParams, Params, ThinkingParams};
pub use part::{Media, MediaSource, Part, PartKind, Signature};
pub use reply::{AnswerKind, Blocked, Candidate, Citation, Event, Reply, ReplyContext, TokenLogprob, Vectors};
pub use request::{Ask, Choice, ChoiceMode, Encoded, Refused, Request, Role, Schema, ServerTool, Tool, Turn};
pub use stream::{StreamDecoder, StreamEncoder};

pub(crate) use answers::Answers;
pub(crate) use handover::{CALL_BYTES_LIMIT, CANDIDATE_LIMIT, CITATION_BYTES_LIMIT, Handover, OPEN_CALL_LIMIT};
pub(crate) use text_map::TextMap;

pub use crate::{Finish, Usage};
