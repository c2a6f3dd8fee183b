//! `usageMetadata`, both ways (translation reference, section 2.6).

use bytes::{BufMut, BytesMut};
use serde::Deserialize;

use crate::{
    Usage,
    lenient::{Count, Text},
};

/// What has been said of usage so far. Members come and go between the events of a stream, so the last one of each
/// counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunningUsage {
    prompt: Option<u64>,
    cached: Option<u64>,
    candidates: Option<u64>,
    thoughts: Option<u64>,
    tool_prompt: Option<u64>,
    total: Option<u64>,
    image: Option<u64>,
    audio: Option<u64>,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default, rename = "promptTokenCount", alias = "prompt_token_count")]
    prompt: Count,
    #[serde(default, rename = "cachedContentTokenCount", alias = "cached_content_token_count")]
    cached: Count,
    #[serde(default, rename = "candidatesTokenCount", alias = "candidates_token_count")]
    candidates: Count,
    #[serde(default, rename = "thoughtsTokenCount", alias = "thoughts_token_count")]
    thoughts: Count,
    #[serde(default, rename = "toolUsePromptTokenCount", alias = "tool_use_prompt_token_count")]
    tool_prompt: Count,
    #[serde(default, rename = "totalTokenCount", alias = "total_token_count")]
    total: Count,
    #[serde(default, rename = "promptTokensDetails", alias = "prompt_tokens_details")]
    details: Option<Vec<Detail>>,
}

#[derive(Deserialize)]
struct Detail {
    #[serde(default)]
    modality: Option<Text>,
    #[serde(default, rename = "tokenCount", alias = "token_count")]
    count: Count,
}

impl RunningUsage {
    /// Takes the raw object of one event. Returns the usage known now; `None` while there is none, and where this
    /// object cannot be read (then nothing changes).
    pub(super) fn merge(&mut self, raw: &str) -> Option<Usage> {
        let wire: Wire = serde_json::from_str(raw).ok()?;
        let counts = [wire.prompt, wire.cached, wire.candidates, wire.thoughts, wire.tool_prompt, wire.total];
        if counts.contains(&Count::Unreadable) {
            return None;
        }
        let members =
            [&mut self.prompt, &mut self.cached, &mut self.candidates, &mut self.thoughts, &mut self.tool_prompt, &mut self.total];
        for (member, count) in members.into_iter().zip(counts) {
            *member = count.given().or(*member);
        }
        for detail in wire.details.unwrap_or_default() {
            match detail.modality.as_ref().map(|modality| modality.0.as_str()) {
                Some("IMAGE") => self.image = detail.count.given().or(self.image),
                Some("AUDIO") => self.audio = detail.count.given().or(self.audio),
                _ => {}
            }
        }
        self.usage()
    }

    /// The usage known so far. An absent member of a usage that exists is 0.
    fn usage(&self) -> Option<Usage> {
        if self.prompt.is_none() && self.candidates.is_none() && self.total.is_none() {
            return None;
        }
        let prompt_total = self.prompt.unwrap_or(0) + self.tool_prompt.unwrap_or(0);
        let candidates = self.candidates.unwrap_or(0);
        let thoughts = self.thoughts.unwrap_or(0);
        // Some answers already count thoughts among the candidates' tokens; their total tells.
        let inclusive = thoughts <= candidates && self.total == Some(prompt_total + candidates);
        Some(Usage {
            prompt_total,
            cached: self.cached.unwrap_or(0).min(prompt_total),
            cache_write: 0,
            image: self.image.unwrap_or(0).min(prompt_total),
            audio: self.audio.unwrap_or(0).min(prompt_total),
            completion_total: if inclusive { candidates } else { candidates + thoughts },
            reasoning: thoughts,
        })
    }
}

/// Appends `usageMetadata` with its name, without a comma. Sub-counts of zero are left out; the wire's counts are
/// 32-bit.
pub(super) fn write(out: &mut BytesMut, usage: &Usage) {
    let count = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
    let text = format!(
        "\"usageMetadata\":{{\"promptTokenCount\":{},\"candidatesTokenCount\":{},\"totalTokenCount\":{}",
        count(usage.prompt_total),
        count(usage.completion_total.saturating_sub(usage.reasoning)),
        count(usage.prompt_total + usage.completion_total),
    );
    out.put_slice(text.as_bytes());
    if usage.cached > 0 {
        out.put_slice(format!(",\"cachedContentTokenCount\":{}", count(usage.cached)).as_bytes());
    }
    if usage.reasoning > 0 {
        out.put_slice(format!(",\"thoughtsTokenCount\":{}", count(usage.reasoning)).as_bytes());
    }
    out.put_u8(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_merge_and_unreadable_objects_change_nothing() {
        let mut running = RunningUsage::default();
        assert_eq!(running.merge(r#"{"trafficType":"ON_DEMAND"}"#), None);
        assert_eq!(running.merge(r#"{"promptTokenCount":4,"candidatesTokenCount":1}"#).unwrap().completion_total, 1);
        for bad in [r#"{"promptTokenCount":-4}"#, r#"{"totalTokenCount":9223372036854775808}"#, "[]", r#"{"promptTokenCount":"x"}"#]
        {
            assert_eq!(running.merge(bad), None, "{bad}");
        }
        let usage = running.merge(r#"{"prompt_token_count":null,"candidatesTokenCount":"3","thoughtsTokenCount":2.0}"#).unwrap();
        assert_eq!((usage.prompt_total, usage.completion_total, usage.reasoning), (4, 5, 2));
        assert_eq!(running.merge(r#"{"promptTokenCount":2,"cachedContentTokenCount":9}"#).unwrap().cached, 2);
    }
}
