//! Reads token counts leniently (Anthropic API reference, Messages, `usage`).

use crate::{
    Usage,
    scan::{Scanner, SyntaxError},
};

/// Counts as received: `input_tokens` excludes tokens read from or written to the cache. In streams, members of a later event
/// replace earlier ones; they are cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessagesUsageCounts {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_creation: Option<u64>,
    cache_creation_1h: Option<u64>,
    output: Option<u64>,
    thinking: Option<u64>,
}

impl MessagesUsageCounts {
    /// Updates the counts with a `usage` value; invalid numbers are ignored.
    pub(crate) fn read(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        scanner.members(|scanner, name| {
            let count = match name.word() {
                "input_tokens" => &mut self.input,
                "cache_read_input_tokens" => &mut self.cache_read,
                "cache_creation_input_tokens" => &mut self.cache_creation,
                "output_tokens" => &mut self.output,
                "cache_creation" => {
                    scanner.members(|scanner, name| {
                        if name.word() == "ephemeral_1h_input_tokens" {
                            self.cache_creation_1h = scanner.token_count()?.ok().flatten().or(self.cache_creation_1h);
                        }
                        Ok(())
                    })?;
                    return Ok(());
                }
                "output_tokens_details" => {
                    scanner.members(|scanner, name| {
                        if name.word() == "thinking_tokens" {
                            self.thinking = scanner.token_count()?.ok().flatten().or(self.thinking);
                        }
                        Ok(())
                    })?;
                    return Ok(());
                }
                _ => return Ok(()),
            };
            *count = scanner.token_count()?.ok().flatten().or(*count);
            Ok(())
        })?;
        Ok(())
    }

    /// Usage with totals that include cached tokens; `None` until input and output counts are known.
    pub(crate) fn usage(self) -> Option<Usage> {
        let (cached, cache_write) = (self.cache_read.unwrap_or(0), self.cache_creation.unwrap_or(0));
        Some(Usage {
            prompt_total: self.input? + cached + cache_write,
            cached,
            cache_write,
            cache_write_1h: self.cache_creation_1h.unwrap_or(0).min(cache_write),
            completion_total: self.output?,
            reasoning: self.thinking.unwrap_or(0).min(self.output?),
            ..Usage::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Option<Usage> {
        let mut counts = MessagesUsageCounts::default();
        for text in texts {
            counts.read(&mut Scanner::answer(text.as_bytes()).unwrap()).unwrap();
        }
        counts.usage()
    }

    #[test]
    fn prompt_total_includes_cached_tokens() {
        let usage = read(&[r#"{"input_tokens":5,"cache_read_input_tokens":7,"cache_creation_input_tokens":2,"output_tokens":9,
            "output_tokens_details":{"thinking_tokens":4},"cache_creation":{"ephemeral_5m_input_tokens":2},"service_tier":"standard"}"#]);
        let expected = Usage { prompt_total: 14, cached: 7, cache_write: 2, completion_total: 9, reasoning: 4, ..Usage::default() };
        assert_eq!(usage, Some(expected));
    }

    #[test]
    fn cache_writes_kept_for_an_hour_are_counted_apart() {
        let usage = read(&[r#"{"input_tokens":5,"cache_creation_input_tokens":9,"output_tokens":1,
            "cache_creation":{"ephemeral_5m_input_tokens":2,"ephemeral_1h_input_tokens":7}}"#])
        .unwrap();
        assert_eq!((usage.prompt_total, usage.cache_write, usage.cache_write_1h), (14, 9, 7));
        let more_than_all = read(&[r#"{"input_tokens":5,"cache_creation_input_tokens":3,"output_tokens":1,
            "cache_creation":{"ephemeral_1h_input_tokens":7}}"#])
        .unwrap();
        assert_eq!(more_than_all.cache_write_1h, 3);
    }

    #[test]
    fn later_counts_replace_earlier_ones() {
        let usage = read(&[r#"{"input_tokens":5,"output_tokens":1}"#, r#"{"output_tokens":9,"input_tokens":null}"#]).unwrap();
        assert_eq!((usage.prompt_total, usage.completion_total), (5, 9));
        assert_eq!(read(&[r#"{"input_tokens":5,"output_tokens":-1}"#]), None);
        assert_eq!(read(&["null", "7"]), None);
        assert_eq!(read(&[r#"{"input_tokens":0,"output_tokens":0}"#]), Some(Usage::default()));
    }
}
