//! JSON members that complete replies and stream chunks have in common.

use bytes::{BufMut, Bytes, BytesMut};

use super::finish;
use crate::{
    FinishReason, Usage,
    json_text::{write_separator, write_string},
    json_writer::{Json, JsonObject},
    neutral::{
        BlockedPrompt, Citation, Media, MediaSource, Signature, TextMap, TokenLogprob,
        signature::{self, SealedItem},
    },
};

/// Native reasons that add nothing to `finish_reason`.
const STANDARD_REASONS: [&str; 8] =
    ["", "STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED", "end_turn", "stop_sequence", "tool_use", "max_tokens"];

/// Writes `finish_reason` and, if the native reason adds something, `native_finish_reason`, without a leading comma.
pub(super) fn write_finish(out: &mut BytesMut, finish: FinishReason, native: Option<&str>, legacy_calls: bool) {
    out.put_slice(b"\"finish_reason\":\"");
    out.put_slice(finish::reason_str(finish, legacy_calls).as_bytes());
    out.put_u8(b'"');
    if let Some(native) = native.filter(|native| !STANDARD_REASONS.contains(native)) {
        out.put_slice(b",\"native_finish_reason\":");
        write_string(out, native);
    }
}

/// The value of `native_finish_reason` for a blocked prompt.
pub(super) fn blocked_native(blocked: &BlockedPrompt) -> String {
    format!("PROMPT_BLOCKED:{}", blocked.reason)
}

pub(super) fn write_usage(out: &mut BytesMut, usage: &Usage) {
    let text = format!(
        "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},\"prompt_tokens_details\":{{\"cached_tokens\":{}",
        usage.prompt_total,
        usage.completion_total,
        usage.prompt_total + usage.completion_total,
        usage.cached,
    );
    out.put_slice(text.as_bytes());
    for (name, count) in [("cache_write_tokens", usage.cache_write), ("image_tokens", usage.image), ("audio_tokens", usage.audio)] {
        if count > 0 {
            out.put_slice(format!(",\"{name}\":{count}").as_bytes());
        }
    }
    out.put_slice(format!("}},\"completion_tokens_details\":{{\"reasoning_tokens\":{}}}}}", usage.reasoning).as_bytes());
}

pub(super) fn write_logprobs(out: &mut BytesMut, tokens: &[TokenLogprob]) {
    if tokens.is_empty() {
        out.put_slice(b"null");
        return;
    }
    out.put_slice(b"{\"content\":");
    write_tokens(out, tokens);
    out.put_slice(b",\"refusal\":null}");
}

/// Writes log probabilities as a list.
pub(crate) fn write_tokens(out: &mut BytesMut, tokens: &[TokenLogprob]) {
    out.put_u8(b'[');
    write_token_entries(out, tokens);
    out.put_u8(b']');
}

/// Writes the entries of the list of [`write_tokens`].
pub(crate) fn write_token_entries(out: &mut BytesMut, tokens: &[TokenLogprob]) {
    for (at, token) in tokens.iter().enumerate() {
        write_separator(out, at);
        write_token(out, &token.token, &token.logprob);
        out.put_slice(b",\"top_logprobs\":[");
        for (at, (text, logprob)) in token.top.iter().enumerate() {
            write_separator(out, at);
            write_token(out, text, logprob);
            out.put_u8(b'}');
        }
        out.put_slice(b"]}");
    }
}

/// Writes token, log probability and bytes; the object stays open.
fn write_token(out: &mut BytesMut, token: &str, logprob: &serde_json::Number) {
    out.put_slice(b"{\"token\":");
    write_string(out, token);
    out.put_slice(format!(",\"logprob\":{logprob},\"bytes\":{:?}", token.as_bytes()).as_bytes());
}

/// Writes `extra_content` with a leading comma: Google's signature, in the form of its OpenAI-compatible endpoint, and the thoughts
/// that [`sealed_thought`] wrote, one as an object, several as a list. Other signatures are not written.
pub(super) fn write_extra_content(out: &mut BytesMut, signature: Option<&Signature>, thoughts: &[Bytes]) {
    let signature = signature::google(signature);
    if signature.is_none() && thoughts.is_empty() {
        return;
    }
    out.put_slice(b",\"extra_content\":{");
    if let Some(signature) = signature {
        out.put_slice(b"\"google\":{\"thought_signature\":");
        write_string(out, signature);
        out.put_u8(b'}');
    }
    if !thoughts.is_empty() {
        write_separator(out, usize::from(signature.is_some()));
        let several = thoughts.len() > 1;
        out.put_slice(b"\"openai\":{\"reasoning\":");
        out.put_slice(if several { b"[" } else { b"" });
        for (at, thought) in thoughts.iter().enumerate() {
            write_separator(out, at);
            out.put_slice(thought);
        }
        out.put_slice(if several { b"]}" } else { b"}" });
    }
    out.put_u8(b'}');
}

/// A thought that a Responses upstream sealed: its reasoning item without the type.
pub(super) fn sealed_thought(sealed: SealedItem<'_>, summary: &str) -> Bytes {
    let part = Json::object([("type", Json::text("summary_text")), ("text", Json::text(summary))]);
    let mut item = JsonObject::default();
    item.put_some("id", sealed.id.map(Json::text));
    item.put("summary", Json::List((!summary.is_empty()).then_some(part).into_iter().collect()));
    item.put("encrypted_content", Json::text(sealed.content));
    item.json().to_bytes()
}

/// Arguments as a JSON string value; empty arguments are `{}`.
pub(super) fn arguments(args: &str) -> &str {
    if args.is_empty() { "{}" } else { args }
}

/// Whether `image_url` can carry these media.
pub(crate) fn carries(media: &Media) -> bool {
    match &media.source {
        MediaSource::Inline(_) => media.mime.starts_with("image/"),
        MediaSource::Remote(_) => media.mime.is_empty() || media.mime.starts_with("image/"),
        MediaSource::Uri(_) => false,
    }
}

/// The URL of an image; `None` for media that chat completions cannot carry.
pub(super) fn image_url(media: &Media) -> Option<String> {
    match &media.source {
        MediaSource::Inline(data) if carries(media) => Some(format!("data:{};base64,{data}", media.mime)),
        MediaSource::Remote(url) if carries(media) => Some(url.clone()),
        MediaSource::Inline(_) | MediaSource::Uri(_) | MediaSource::Remote(_) => None,
    }
}

/// Writes `annotations` with a leading comma; byte offsets are converted to character offsets of the text in `map`. Citations outside the
/// text are dropped; without any, nothing is written.
pub(super) fn write_annotations(out: &mut BytesMut, citations: &[Citation], map: &TextMap) {
    if citations.is_empty() || map.bytes() == 0 {
        return;
    }
    let located = citations.iter().filter_map(|citation| {
        Some((citation, map.character_at(citation.start)?, map.character_at(citation.end.min(map.bytes()))?))
    });
    let mut written = 0;
    for (citation, start, end) in located {
        out.put_slice(if written == 0 { b",\"annotations\":[" } else { b"," });
        written += 1;
        let offsets =
            format!("{{\"type\":\"url_citation\",\"url_citation\":{{\"start_index\":{start},\"end_index\":{end},\"title\":");
        out.put_slice(offsets.as_bytes());
        write_string(out, &citation.title);
        out.put_slice(b",\"url\":");
        write_string(out, &citation.url);
        out.put_slice(b"}}");
    }
    if written > 0 {
        out.put_u8(b']');
    }
}
