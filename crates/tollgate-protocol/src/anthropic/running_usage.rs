//! Usage of Messages, both ways (translation reference, section 2.6): `message_start` seeds it, `message_delta` overwrites
//! it member by member.

use bytes::{BufMut, BytesMut};
use serde::Deserialize;

use crate::{Usage, lenient::Count};

/// What has been said of usage so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunningUsage {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_creation: Option<u64>,
    output: Option<u64>,
    thinking: Option<u64>,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    output_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    thinking_tokens: Count,
}

impl RunningUsage {
    /// Takes a raw usage object. Returns the usage known now; `None` while input or output is not known, and where this
    /// object cannot be read (then nothing changes).
    pub(super) fn merge(&mut self, raw: &str) -> Option<Usage> {
        let wire: Wire = serde_json::from_str(raw).ok()?;
        let thinking = wire.output_tokens_details.map_or(Count::Absent, |details| details.thinking_tokens);
        let counts =
            [wire.input_tokens, wire.cache_read_input_tokens, wire.cache_creation_input_tokens, wire.output_tokens, thinking];
        if counts.contains(&Count::Unreadable) {
            return None;
        }
        let members = [&mut self.input, &mut self.cache_read, &mut self.cache_creation, &mut self.output, &mut self.thinking];
        for (member, count) in members.into_iter().zip(counts) {
            *member = count.given().or(*member);
        }
        let (input, output) = (self.input?, self.output?);
        let (cached, cache_write) = (self.cache_read.unwrap_or(0), self.cache_creation.unwrap_or(0));
        Some(Usage {
            prompt_total: input + cached + cache_write,
            cached,
            cache_write,
            image: 0,
            audio: 0,
            completion_total: output,
            reasoning: self.thinking.unwrap_or(0).min(output),
        })
    }
}

/// The usage object of an answer. The protocol's libraries need one, so an unknown usage is all zeros.
pub(super) fn write(out: &mut BytesMut, usage: Option<&Usage>) {
    let usage = usage.copied().unwrap_or_default();
    let text = format!(
        "{{\"input_tokens\":{},\"output_tokens\":{},\"cache_read_input_tokens\":{},\"cache_creation_input_tokens\":{}}}",
        usage.prompt_total.saturating_sub(usage.cached + usage.cache_write),
        usage.completion_total,
        usage.cached,
        usage.cache_write,
    );
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_overwritten_never_added() {
        let mut running = RunningUsage::default();
        assert_eq!(running.merge(r#"{"input_tokens":10}"#), None);
        let first = running.merge(r#"{"cache_read_input_tokens":2,"cache_creation_input_tokens":null,"output_tokens":1}"#).unwrap();
        assert_eq!((first.prompt_total, first.cached, first.completion_total), (12, 2, 1));
        assert_eq!(running.merge(r#"{"output_tokens":-7}"#), None);
        let last = running.merge(r#"{"output_tokens":7,"output_tokens_details":{"thinking_tokens":9}}"#).unwrap();
        assert_eq!((last.prompt_total, last.completion_total, last.reasoning), (12, 7, 7));
    }
}
