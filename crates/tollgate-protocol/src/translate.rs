//! Translation between protocols through [`neutral`]: requests to the upstream, answers back to the caller.

mod relay;
mod reply;

use std::collections::HashSet;

use crate::{
    Profile, Protocol, Target, TranslateError, TranslateOptions,
    neutral::{self, AnswerKind, MediaSource, Operation, PartKind, effort, encode_context},
};

pub use relay::translating_relay;
pub use reply::{translate_problem, translate_reply};

/// Decodes and normalises a caller's request. Where `target` has no model, the body names it.
pub fn decode_request(from: Protocol, target: &Target, body: &[u8]) -> Result<neutral::Request, TranslateError> {
    Ok((from.spec().decode_request)(target, body)?)
}

/// Encodes a request for an upstream. `profile` is the effective profile ([`crate::effective_profile`]).
///
/// # Errors
/// All fields that the upstream cannot express; [`TranslateError::NoCounter`] for a token count where the upstream
/// protocol has no counter.
pub fn encode_request(
    to: Protocol,
    request: &neutral::Request,
    upstream_model: &str,
    profile: &Profile,
    options: &TranslateOptions<'_>,
) -> Result<neutral::EncodedRequest, TranslateError> {
    if !to.spec().counts_tokens && request.operation == Operation::Count {
        return Err(TranslateError::NoCounter);
    }
    let mut out = encode_context::EncodeContext::new(to, request, upstream_model, profile, options);
    let (method, body) = (to.spec().encode_request)(&mut out);
    let include_thoughts = effort::shows_thoughts(request);
    // Thinking blocks without visible text occur with thoughts shown, and where the upstream was asked to omit the text.
    let carry_thinking = include_thoughts || to == Protocol::Anthropic && profile.thinking_display == Some(true);
    let encoded = neutral::EncodedRequest {
        method,
        stream: request.params.stream,
        body: body.to_bytes(),
        dropped: Vec::new(),
        name_map: Vec::new(),
        custom_tools: request.tools.iter().filter(|tool| tool.custom).map(|tool| tool.name.clone()).collect(),
        include_usage: request.params.include_usage,
        include_thoughts,
        carry_thinking,
        kind: answer_kind(&request.operation),
        parallel: request.params.parallel.is_none(),
    };
    out.finish(encoded)
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
    let media = parts.flat_map(|part| match &part.kind {
        PartKind::Media(media) => std::slice::from_ref(media),
        PartKind::Result { media, .. } => media,
        PartKind::Text(_)
        | PartKind::Think { .. }
        | PartKind::Call { .. }
        | PartKind::Code { .. }
        | PartKind::CodeOutput { .. }
        | PartKind::Opaque { .. } => &[],
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
