//! The trait that each wire format implements for requests and replies of its own protocol.

use bytes::Bytes;

use crate::{
    CheckedReply, Framing, InvalidReply, Malformed, Method, Problem, RequestSummary, StreamRelay, Target, UpstreamProblem,
};

/// Changes to a request that is passed through; all other bytes go upstream unchanged.
#[derive(Clone, Debug, Default)]
pub struct RequestEdits<'a> {
    /// The upstream's model name, if it differs from the caller's.
    pub upstream_model: Option<&'a str>,
    /// Set `stream_options.include_usage`, so that usage can be recorded (chat completions streams).
    pub force_usage: bool,
    /// Output limit in tokens, added or written over a larger one.
    pub max_output: Option<u64>,
    /// The only output-limit field the upstream model accepts (`max_tokens` or `max_completion_tokens`), where its profile
    /// names one. A limit under the other name is renamed and an added limit gets this name. `None`: nothing is renamed and
    /// `max_completion_tokens` is added.
    pub output_limit_field: Option<&'a str>,
    /// Keep `extra_content.google.thought_signature` in histories: the upstream is a Gemini model behind a chat endpoint.
    /// Other upstreams must not receive it.
    pub keep_google_signatures: bool,
    /// Remove Gemini's signatures from native histories, and sealed thoughts from those of Responses: the upstream accepts only its
    /// own, and they may belong to another account.
    pub drop_signatures: bool,
}

/// Changes to a reply that is passed through.
#[derive(Clone, Debug, Default)]
pub struct ReplyEdits {
    /// The caller's model name, to be restored; `None` if it was not changed.
    pub caller_model: Option<String>,
    /// Remove the usage chunk and `"usage":null` members, which the caller did not request.
    pub hide_usage: bool,
}

/// One wire format between a caller and an upstream of the *same* protocol. Translation goes through [`crate::neutral`].
pub trait Codec: Send + Sync {
    /// Scans a caller's body once, without building a tree.
    fn summarise(&self, target: &Target, body: &[u8]) -> Result<RequestSummary, Malformed>;

    /// The body for an upstream of the same protocol; the same buffer if nothing changes.
    fn forward_request(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes;

    /// The parts of the body that [`Codec::forward_request`] removes: items of the history that only another provider can read, and a
    /// member that the remaining history does not allow.
    fn left_out(&self, _body: &[u8], _summary: &RequestSummary) -> Vec<String> {
        Vec::new()
    }

    /// [`Codec::forward_request`] and [`Codec::left_out`] together.
    fn forward(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> (Bytes, Vec<String>) {
        (self.forward_request(body, summary, edits), self.left_out(body, summary))
    }

    /// Path and query relative to a channel's base URL, such as `/chat/completions` or `/models/m:generateContent`.
    fn upstream_path(&self, method: Method, upstream_model: &str, framing: Framing) -> String;

    /// Checks a complete 2xx body and reads what usage records need.
    fn read_reply(&self, method: Method, body: &Bytes, edits: &ReplyEdits) -> Result<CheckedReply, InvalidReply>;

    /// A relay for one streamed reply.
    fn relay(&self, framing: Framing, edits: &ReplyEdits) -> Box<dyn StreamRelay>;

    /// Decodes an upstream's error reply. Never fails: HTML and other bodies give a problem with `is_error_object: false`.
    fn decode_problem(&self, status: u16, body: &[u8]) -> UpstreamProblem;

    /// Encodes an error body as compact JSON.
    fn encode_problem(&self, problem: &Problem) -> Bytes;

    /// The stream of an answer that fails before its first content, for a request that is longer than the context of `model`. `None` where
    /// clients expect an error status instead. `now` is in Unix seconds.
    fn context_exceeded_stream(&self, _problem: &Problem, _model: &str, _now: i64) -> Option<Bytes> {
        None
    }
}
