//! Translation between protocols through [`neutral`]: requests to the upstream, answers back to the caller.

mod relay;

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};

use crate::{
    CheckedReply, FinishReason, InvalidReply, Profile, Protocol, ReplySummary, Target, TranslateError, TranslateOptions,
    UpstreamProblem, Usage,
    neutral::{
        self, AnswerKind, AnswerPipeline, BlockedPrompt, Event, Media, MediaSource, Operation, PartKind, Reply, ReplyContext,
        effort, encode_context,
    },
};

pub use relay::translating_relay;

/// Decodes and normalises a caller's request. Where `target` has no model, the body names it.
pub fn decode_request(from: Protocol, target: &Target, body: &[u8]) -> Result<neutral::Request, TranslateError> {
    Ok((from.spec().decode_request)(target, body)?)
}

/// Encodes a request for an upstream. `profile` is the effective profile ([`crate::effective_profile`]).
///
/// # Errors
/// All fields that the upstream cannot express; [`TranslateError::NoCounter`] for a token count that the upstream could express, but
/// whose protocol has no counter.
pub fn encode_request(
    to: Protocol,
    request: &neutral::Request,
    upstream_model: &str,
    profile: &Profile,
    options: &TranslateOptions<'_>,
) -> Result<neutral::EncodedRequest, TranslateError> {
    let mut out = encode_context::EncodeContext::new(to, request, upstream_model, profile, options);
    let (method, body) = (to.spec().encode_request)(&mut out);
    let include_thoughts = effort::shows_thoughts(request);
    let carry_thinking = include_thoughts
        || match to {
            // Thinking blocks without visible text occur where the upstream was asked to omit the text.
            Protocol::Anthropic => profile.thinking_display == Some(true),
            // Thoughts are sealed whether or not they are shown. Callers of Messages read the first block as the answer unless they
            // asked for thinking.
            Protocol::Responses => request.origin == Protocol::Gemini || request.params.thinking.omitted,
            // Chat upstreams get their own thoughts back, and Gemini signatures of calls that are too long for ids.
            Protocol::OpenAi | Protocol::Gemini => request.params.thinking.omitted,
        };
    let encoded = neutral::EncodedRequest {
        method,
        // A count is never streamed, whatever else the body says.
        stream: request.params.stream && request.operation == Operation::Generate,
        body: body.to_bytes(),
        dropped: Vec::new(),
        name_map: Vec::new(),
        custom_tools: request.tools.iter().filter(|tool| tool.custom).map(|tool| tool.name.clone()).collect(),
        include_usage: request.params.include_usage,
        include_thoughts,
        carry_thinking,
        kind: answer_kind(&request.operation),
        parallel: request.params.parallel.is_none() && !request.params.legacy_calls,
        legacy_calls: request.params.legacy_calls,
        echo: request.echo.clone(),
    };
    let encoded = out.finish(encoded)?;
    let is_countable = to.spec().counts_tokens || request.operation != Operation::Count;
    if is_countable { Ok(encoded) } else { Err(TranslateError::NoCounter) }
}

const fn answer_kind(operation: &Operation) -> AnswerKind {
    match operation {
        Operation::Generate => AnswerKind::Generated,
        Operation::Count => AnswerKind::Count,
        Operation::Embed(embed) => AnswerKind::Embeddings { list: embed.list, base64: embed.base64, count: embed.inputs.len() },
    }
}

/// URLs of the remote media that an upstream of protocol `to` needs inline. The gateway downloads them where the channel
/// allows it and passes the result in [`TranslateOptions::media`]; missing ones are refused by name.
pub fn pending_media<'a>(to: Protocol, request: &'a neutral::Request, profile: &Profile) -> Vec<&'a str> {
    let parts = request.turns.iter().flat_map(|turn| &turn.parts);
    let media = parts.flat_map(|part| {
        let media: &[Media] = if let PartKind::Media(media) = &part.kind {
            std::slice::from_ref(media)
        } else if let PartKind::Result { media, .. } = &part.kind {
            media
        } else {
            &[]
        };
        media
    });
    let (mut urls, mut seen) = (Vec::new(), HashSet::new());
    for item in media {
        if let MediaSource::Remote(url) = &item.source
            && !encode_context::accepts_url(to, request, profile, item)
            && seen.insert(url.as_str())
        {
            urls.push(url.as_str());
        }
    }
    urls
}

/// Encodes a token count of the gateway's own for a caller.
pub fn encode_count(caller: Protocol, tokens: u64) -> Bytes {
    caller.spec().reply_codec.encode_count(tokens)
}

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
    let summary = ReplySummary { finish: Some(FinishReason::Filter), content: true, ..ReplySummary::default() };
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
