//! What bytes mean: the wire formats of model requests.
//!
//! Everything here is pure: bytes in, values out. No clock, no network, no database, no money. A protocol
//! lives in a folder of its own and is reached through one table, [`codec`]; what a request means apart from
//! its wire format is [`neutral`].

mod anthropic;
mod carriers;
mod codec;
mod complaint;
mod echo;
mod edits;
mod fault;
mod fields;
mod fingerprint;
mod gemini;
mod json_array;
mod json_text;
mod lenient;
mod markers;
mod object;
mod openai;
mod outline;
mod passing;
mod problem;
mod profile;
mod reading;
mod scan;
mod shape;
mod specimen;
mod survey;
mod target;
mod translate;
mod tree;
mod vectors;
mod written;

pub mod lists;
pub mod neutral;
pub mod sse;

pub use codec::{Codec, ReplyEdits, RequestEdits};
pub use echo::{EchoAnswer, EchoBody, EchoCall, EchoEvents, echo};
pub use fields::without_fields;
pub use neutral::{Fetched, FetchedMedia, RemoteMedia, TranslateOptions, Untranslatable};
pub use outline::{FieldPath, Malformed, MalformedKind, Outline, SplicePoints, Violation};
pub use problem::{NativeFace, OpenAiFace, Problem, QuotaViolation, QuotaWindow, UpstreamProblem};
pub use profile::{CanDisableThinking, F64, Profile, Thinking, effective_profile};
pub use reading::{BadReply, Finish, PassedReply, Reading, StreamFault, StreamRelay, Usage};
pub use specimen::specimen;
pub use target::{Framing, Method, Protocol, Target};
pub use translate::{decode_request, encode_request, pending_media, translate_problem, translate_reply, translating_relay};

/// The one table: which implementation speaks a protocol. A protocol is added here and in a folder of its own.
#[must_use]
pub fn codec(protocol: Protocol) -> &'static dyn Codec {
    match protocol {
        Protocol::OpenAi => &openai::OpenAi,
        Protocol::Gemini => &gemini::Gemini,
        Protocol::Anthropic => &anthropic::Anthropic,
    }
}
