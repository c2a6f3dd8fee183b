//! Complete answers on their way back.

use bytes::Bytes;

use crate::{BadReply, PassedReply, Protocol, UpstreamProblem, neutral::ReplyContext};

/// Puts a complete 2xx answer into the caller's protocol.
///
/// # Errors
/// What is not an answer, and an answer in which the upstream failed; both are open for another attempt.
pub fn translate_reply(
    upstream: Protocol,
    caller: Protocol,
    body: &Bytes,
    context: &ReplyContext,
) -> Result<PassedReply, BadReply> {
    let _ = (upstream, caller, body, context);
    Err(BadReply::Unreadable("not translated yet"))
}

/// The answer a caller gets instead of an upstream's error, where his protocol has no error for it: a blocked prompt,
/// which chat completions report as 400 `content_filter` and the native protocol as 200 with a block reason. `None` for
/// every other error: those stay errors. The body is framed as `context` says.
#[must_use]
pub fn translate_problem(
    upstream: Protocol,
    caller: Protocol,
    problem: &UpstreamProblem,
    context: &ReplyContext,
) -> Option<PassedReply> {
    let _ = (upstream, caller, problem, context);
    None
}
