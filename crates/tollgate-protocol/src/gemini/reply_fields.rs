//! JSON members that complete replies and stream events have in common.

use bytes::{BufMut, BytesMut};

use super::finish;
use crate::{
    FinishReason, Usage,
    json_text::{write_separator, write_string},
    neutral::{Citation, TokenLogprob},
};

#[derive(Debug)]
pub(super) struct CandidateEnd<'a> {
    pub finish: FinishReason,
    /// A call was dropped because its arguments are not an object.
    pub malformed: bool,
    pub refusal: Option<&'a str>,
    /// The upstream's explanation.
    pub message: Option<&'a str>,
}

/// Writes `finishReason` and `finishMessage` with a leading comma.
pub(super) fn write_ending(out: &mut BytesMut, ending: &CandidateEnd<'_>) {
    let cut = matches!(ending.finish, FinishReason::Length | FinishReason::Filter);
    let (reason, message) = if let Some(refusal) = ending.refusal {
        ("SAFETY", Some(refusal))
    } else if ending.malformed && !cut {
        ("MALFORMED_FUNCTION_CALL", Some("the upstream returned tool arguments that are not a JSON object"))
    } else {
        (finish::reason_str(ending.finish), ending.message)
    };
    out.put_slice(b",\"finishReason\":\"");
    out.put_slice(reason.as_bytes());
    out.put_u8(b'"');
    if let Some(message) = message {
        out.put_slice(b",\"finishMessage\":");
        write_string(out, message);
    }
}

/// Writes `logprobsResult` with a leading comma; nothing without tokens.
pub(super) fn write_logprobs(out: &mut BytesMut, tokens: &[TokenLogprob]) {
    if tokens.is_empty() {
        return;
    }
    out.put_slice(b",\"logprobsResult\":{\"chosenCandidates\":[");
    for (at, token) in tokens.iter().enumerate() {
        write_separator(out, at);
        write_token(out, &token.token, &token.logprob);
    }
    out.put_u8(b']');
    if tokens.iter().any(|token| !token.top.is_empty()) {
        out.put_slice(b",\"topCandidates\":[");
        for (at, token) in tokens.iter().enumerate() {
            write_separator(out, at);
            out.put_slice(b"{\"candidates\":[");
            for (at, (text, logprob)) in token.top.iter().enumerate() {
                write_separator(out, at);
                write_token(out, text, logprob);
            }
            out.put_slice(b"]}");
        }
        out.put_u8(b']');
    }
    out.put_u8(b'}');
}

fn write_token(out: &mut BytesMut, token: &str, logprob: &serde_json::Number) {
    out.put_slice(b"{\"token\":");
    write_string(out, token);
    out.put_slice(format!(",\"logProbability\":{logprob}}}").as_bytes());
}

/// Running mean of log probabilities.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    pub(super) fn add(&mut self, tokens: &[TokenLogprob]) {
        for logprob in tokens.iter().filter_map(|token| token.logprob.as_f64()) {
            self.sum += logprob;
            self.count = self.count.saturating_add(1);
        }
    }

    /// Writes `avgLogprobs` with a leading comma; nothing without tokens.
    pub(super) fn write(&self, out: &mut BytesMut) {
        if self.count > 0
            && let Some(mean) = serde_json::Number::from_f64(self.sum / f64::from(self.count))
        {
            out.put_slice(format!(",\"avgLogprobs\":{mean}").as_bytes());
        }
    }
}

/// Writes `groundingMetadata` with a leading comma; nothing without citations. Each URL is listed once.
pub(super) fn write_grounding(out: &mut BytesMut, citations: &[Citation]) {
    if citations.is_empty() {
        return;
    }
    let mut sources: Vec<&Citation> = Vec::new();
    let mut supports = BytesMut::new();
    for (at, citation) in citations.iter().enumerate() {
        let index = sources.iter().position(|source| source.url == citation.url).unwrap_or_else(|| {
            sources.push(citation);
            sources.len() - 1
        });
        write_separator(&mut supports, at);
        let segment = format!(
            "{{\"segment\":{{\"startIndex\":{},\"endIndex\":{}}},\"groundingChunkIndices\":[{index}]}}",
            citation.start, citation.end
        );
        supports.put_slice(segment.as_bytes());
    }
    out.put_slice(b",\"groundingMetadata\":{\"groundingChunks\":[");
    for (at, source) in sources.iter().enumerate() {
        write_separator(out, at);
        out.put_slice(b"{\"web\":{\"uri\":");
        write_string(out, &source.url);
        out.put_slice(b",\"title\":");
        write_string(out, &source.title);
        out.put_slice(b"}}");
    }
    out.put_slice(b"],\"groundingSupports\":[");
    out.put_slice(&supports);
    out.put_slice(b"]}");
}

/// `"modelVersion":…,"responseId":…}`, the end of every reply.
pub(super) fn identity(model: &str, response_id: &str) -> Vec<u8> {
    let mut out = BytesMut::new();
    out.put_slice(b"\"modelVersion\":");
    write_string(&mut out, model);
    out.put_slice(b",\"responseId\":");
    write_string(&mut out, response_id);
    out.put_u8(b'}');
    out.to_vec()
}

/// Writes `"content":{…}` around parts. Without parts, one empty text is written, because clients read `parts[0].text`.
pub(super) fn write_content(out: &mut BytesMut, parts: &[u8]) {
    out.put_slice(b"\"content\":{\"role\":\"model\",\"parts\":[");
    out.put_slice(if parts.is_empty() { b"{\"text\":\"\"}" } else { parts });
    out.put_slice(b"]}");
}

pub(super) fn write_feedback(out: &mut BytesMut, reason: &str) {
    out.put_slice(b"\"promptFeedback\":{\"blockReason\":");
    write_string(out, reason);
    out.put_u8(b'}');
}

/// Writes `usageMetadata` without a leading comma. Zero sub-counts are omitted; counts are capped at int32.
pub(super) fn write_usage(out: &mut BytesMut, usage: &Usage) {
    let count = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
    out.put_slice(b"\"usageMetadata\":{");
    // As Google writes it, members that are 0 are left out.
    let counts = [
        ("promptTokenCount", usage.prompt_total),
        ("candidatesTokenCount", usage.completion_total.saturating_sub(usage.reasoning)),
        ("totalTokenCount", usage.prompt_total + usage.completion_total),
        ("cachedContentTokenCount", usage.cached),
        ("thoughtsTokenCount", usage.reasoning),
    ];
    for (at, (name, value)) in counts.into_iter().filter(|(_, value)| *value > 0).enumerate() {
        write_separator(out, at);
        out.put_slice(format!("\"{name}\":{}", count(value)).as_bytes());
    }
    out.put_u8(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_usage_members_are_omitted() {
        let written = |usage| {
            let mut out = BytesMut::new();
            write_usage(&mut out, &usage);
            String::from_utf8(out.to_vec()).unwrap()
        };
        let thought_only = Usage { prompt_total: 3, completion_total: 2, reasoning: 2, ..Usage::default() };
        let expected = r#""usageMetadata":{"promptTokenCount":3,"totalTokenCount":5,"thoughtsTokenCount":2}"#;
        assert_eq!(written(thought_only), expected);
        assert_eq!(written(Usage::default()), r#""usageMetadata":{}"#);
    }
}
