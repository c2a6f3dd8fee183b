//! Translates complete answers.

use bytes::{Bytes, BytesMut};

use crate::{
    CheckedReply, InvalidReply, Protocol, ReplySummary, UpstreamProblem, Usage,
    neutral::{AnswerKind, AnswerPipeline, BlockedPrompt, Event, Reply, ReplyContext},
};

/// Translates a complete 2xx answer to the caller's protocol.
///
/// # Errors
/// A body that is not an answer, or an answer that reports a failure; both may be retried on another account.
pub fn translate_reply(
    upstream: Protocol,
    caller: Protocol,
    body: &Bytes,
    context: &ReplyContext,
) -> Result<CheckedReply, InvalidReply> {
    let (from, to) = (upstream.spec().reply_codec, caller.spec().reply_codec);
    match context.kind {
        AnswerKind::Generated => {
            let mut decoded = Vec::new();
            from.decode_reply(body, &mut decoded)?;
            let mut pipeline = AnswerPipeline::new(context, caller.spec().carries_media);
            let mut processed = Vec::with_capacity(decoded.len());
            for event in decoded {
                pipeline.push(event, &mut processed)?;
            }
            let reply = Reply::assemble(processed);
            Ok(CheckedReply { body: to.encode_reply(&reply, upstream, context), summary: pipeline.summary() })
        }
        AnswerKind::Count => {
            let tokens = from.decode_count(body)?;
            Ok(CheckedReply { body: to.encode_count(tokens), summary: ReplySummary { content: true, ..ReplySummary::default() } })
        }
        AnswerKind::Embeddings { count, .. } => {
            let vectors = from.decode_embeddings(body)?;
            if vectors.items.len() != count {
                return Err(InvalidReply::Unreadable("not one vector for each text"));
            }
            let usage = vectors.prompt_tokens.map(|prompt_total| Usage { prompt_total, ..Usage::default() });
            let summary = ReplySummary { usage, content: true, ..ReplySummary::default() };
            Ok(CheckedReply { body: to.encode_embeddings(&vectors, context), summary })
        }
    }
}

/// Translates an upstream error that is a regular answer in the caller's protocol: OpenAI reports a blocked prompt as 400
/// `content_filter`, Gemini as 200 with a block reason. `None` for every other error. The body is framed as `context` says.
pub fn translate_problem(
    upstream: Protocol,
    caller: Protocol,
    problem: &UpstreamProblem,
    context: &ReplyContext,
) -> Option<CheckedReply> {
    let filtered = problem.status == 400 && problem.code.as_deref() == Some("content_filter");
    if upstream != Protocol::OpenAi || caller != Protocol::Gemini || !filtered || context.kind != AnswerKind::Generated {
        return None;
    }
    let events = [Event::BlockedPrompt(BlockedPrompt { reason: "SAFETY".to_owned(), message: None }), Event::End];
    let summary = ReplySummary { finish: Some(crate::FinishReason::Filter), content: true, ..ReplySummary::default() };
    let to = caller.spec().reply_codec;
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
    Some(CheckedReply { body, summary })
}
