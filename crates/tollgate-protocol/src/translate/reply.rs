//! Complete answers on their way back.

use bytes::{Bytes, BytesMut};

use crate::{
    BadReply, PassedReply, Protocol, Reading, UpstreamProblem, Usage,
    neutral::{AnswerKind, Blocked, Event, Handover, Reply, ReplyContext},
};

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
    let (from, to) = (super::answers(upstream), super::answers(caller));
    match context.kind {
        AnswerKind::Generated => {
            let mut decoded = Vec::new();
            from.decode_reply(body, &mut decoded)?;
            let mut handover = Handover::new(context, super::carries(caller));
            let mut handed = Vec::with_capacity(decoded.len());
            for event in decoded {
                handover.take(event, &mut handed)?;
            }
            let reply = Reply::assemble(handed);
            Ok(PassedReply { body: to.encode_reply(&reply, upstream, context), reading: handover.reading() })
        }
        AnswerKind::Count => {
            let tokens = from.decode_count(body)?;
            Ok(PassedReply { body: to.encode_count(tokens), reading: Reading { content: true, ..Reading::default() } })
        }
        AnswerKind::Vectors { count, .. } => {
            let vectors = from.decode_vectors(body)?;
            if vectors.items.len() != count {
                return Err(BadReply::Unreadable("not one vector for each text"));
            }
            let usage = vectors.prompt_tokens.map(|prompt_total| Usage { prompt_total, ..Usage::default() });
            let reading = Reading { usage, content: true, ..Reading::default() };
            Ok(PassedReply { body: to.encode_vectors(&vectors, context), reading })
        }
    }
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
    let filtered = problem.status == 400 && problem.code.as_deref() == Some("content_filter");
    if upstream != Protocol::OpenAi || caller != Protocol::Gemini || !filtered || context.kind != AnswerKind::Generated {
        return None;
    }
    let events = [Event::Blocked(Blocked { reason: "SAFETY".to_owned(), message: None }), Event::End];
    let reading = Reading { finish: Some(crate::Finish::Filter), content: true, ..Reading::default() };
    let to = super::answers(caller);
    let body = if context.stream {
        let mut encoder = to.stream_encoder(upstream, context);
        let mut out = BytesMut::new();
        for event in events {
            encoder.push(event, &mut out);
        }
        out.freeze()
    } else {
        to.encode_reply(&Reply::assemble(events.into()), upstream, context)
    };
    Some(PassedReply { body, reading })
}
