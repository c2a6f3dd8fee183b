//! What a request, an answer and a stream mean, apart from any wire format (translation reference, section 1.2).
//!
//! The unit is the part, with attributes on the part. These values never reach a disk or a wire, so they may
//! change freely.

mod embed;
mod params;
mod part;
mod reply;
mod request;
mod stream;

pub use embed::EmbedRequest;
pub use params::{Format, Given, GoogleParams, Params, ThinkingParams};
pub use part::{Media, MediaSource, Part, PartKind, Signature};
pub use reply::{AnswerKind, Blocked, Candidate, Citation, Event, Reply, ReplyContext, TokenLogprob};
pub use request::{Ask, Choice, ChoiceMode, Encoded, Refused, Request, Role, Schema, ServerTool, Tool, Turn};
pub use stream::{StreamDecoder, StreamEncoder};

pub use crate::{Finish, Usage};
