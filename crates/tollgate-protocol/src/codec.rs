//! The seam between bytes and meaning: one implementation per wire format.

use bytes::Bytes;

use crate::{
    CheckedReply, Framing, InvalidReply, Malformed, Method, Problem, Protocol, RequestSummary, StreamRelay, Target, UpstreamProblem,
};

/// What pass-through changes in a request; everything else goes upstream byte for byte.
#[derive(Clone, Debug, Default)]
pub struct RequestEdits<'a> {
    /// Name the upstream knows the model by, where it differs from the caller's.
    pub upstream_model: Option<&'a str>,
    /// Force `include_usage` so that usage can be recorded (streams of chat completions).
    pub force_usage: bool,
    /// An output limit to write into the request, replacing a larger one or adding one, in tokens.
    pub max_output: Option<u64>,
    /// The only name the upstream model takes an output limit by (`max_tokens` or `max_completion_tokens`, chat
    /// completions), where its profile states one. A limit the caller gave under the other name alone is renamed, a
    /// limit that is added gets this name. `None`: nothing is renamed, `max_completion_tokens` is added.
    pub output_limit_field: Option<&'a str>,
    /// The upstream is a Gemini model behind a chat endpoint: `extra_content.google.thought_signature` in histories is its
    /// own and stays. Everywhere else it is another family's and is taken out.
    pub keep_google_signatures: bool,
}

/// What pass-through changes in an answer.
#[derive(Clone, Debug, Default)]
pub struct ReplyEdits {
    /// The caller's name of the model, to be put back; `None` where it was not renamed.
    pub caller_model: Option<String>,
    /// Take the usage chunk and `"usage":null` members out again (the caller did not ask).
    pub hide_usage: bool,
}

/// One wire format, as callers and upstreams of the *same* protocol need it. Crossing protocols goes through
/// [`crate::neutral`].
pub trait Codec: Send + Sync {
    /// Which one.
    fn protocol(&self) -> Protocol;

    /// One light scan of a caller's body.
    ///
    /// # Errors
    /// A body that is refused before any upstream call.
    fn summarise(&self, target: &Target, body: &[u8]) -> Result<RequestSummary, Malformed>;

    /// The body for an upstream of the same protocol. Returns the same buffer when nothing has to change.
    fn forward_request(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes;

    /// Path and query behind a channel's base URL, such as `/chat/completions` or `/models/m:generateContent`.
    fn upstream_path(&self, method: Method, upstream_model: &str, framing: Framing) -> String;

    /// Checks a complete 2xx body of the same protocol and reads what records need.
    ///
    /// # Errors
    /// When it is not an answer.
    fn read_reply(&self, method: Method, body: &Bytes, edits: &ReplyEdits) -> Result<CheckedReply, InvalidReply>;

    /// A relay for one streamed answer of the same protocol.
    fn relay(&self, framing: Framing, edits: &ReplyEdits) -> Box<dyn StreamRelay>;

    /// Reads an error answer of an upstream; never fails, HTML and garbage give an unrecognised problem.
    fn decode_problem(&self, status: u16, body: &[u8]) -> UpstreamProblem;

    /// Writes an error body, compact JSON.
    fn encode_problem(&self, problem: &Problem) -> Bytes;
}
