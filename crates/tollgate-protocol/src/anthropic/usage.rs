//! Reads token counts leniently (Anthropic API reference, Messages, `usage`).

use crate::{
    Usage,
    scan::{Name, Scanner, SyntaxError},
};

/// Counts as received. In streams, members of a later event replace earlier ones; they are cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessagesUsageCounts {
    answer: TokenCounts,
    /// Summaries of the conversation that the provider made first. The counts of the answer do not include them.
    compactions: Usage,
    searches: Option<u64>,
}

/// `input_tokens` excludes tokens read from or written to the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TokenCounts {
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
            if name.word() == "iterations" {
                self.compactions = compactions(scanner)?.unwrap_or(self.compactions);
                return Ok(());
            }
            if name.word() == "server_tool_use" {
                return inner_count(scanner, "web_search_requests", &mut self.searches);
            }
            self.answer.member(scanner, name)
        })?;
        Ok(())
    }

    /// Web searches so far.
    pub(crate) fn searches(self) -> Option<u32> {
        self.searches.map(|searches| u32::try_from(searches).unwrap_or(u32::MAX))
    }

    /// Usage with totals that include cached tokens; `None` until input and output counts are known.
    pub(crate) fn usage(self) -> Option<Usage> {
        self.answer.usage().map(|answer| sum(answer, self.compactions))
    }
}

/// Adds up the compactions among the `iterations` of a usage, which are a list; `None` for anything else.
fn compactions(scanner: &mut Scanner<'_>) -> Result<Option<Usage>, SyntaxError> {
    let mut total = Usage::default();
    let list = scanner.elements(|scanner, _| {
        let mut counts = TokenCounts::default();
        let mut compacts = false;
        scanner.members(|scanner, name| {
            if name.word() == "type" {
                compacts = scanner.optional_string()?.is_some_and(|kind| kind.decode() == "compaction");
                return Ok(());
            }
            counts.member(scanner, name)
        })?;
        if let Some(usage) = counts.usage().filter(|_| compacts) {
            total = sum(total, usage);
        }
        Ok(())
    })?;
    Ok(list.map(|_| total))
}

fn sum(one: Usage, other: Usage) -> Usage {
    Usage {
        prompt_total: one.prompt_total.saturating_add(other.prompt_total),
        cached: one.cached.saturating_add(other.cached),
        cache_write: one.cache_write.saturating_add(other.cache_write),
        cache_write_1h: one.cache_write_1h.saturating_add(other.cache_write_1h),
        completion_total: one.completion_total.saturating_add(other.completion_total),
        reasoning: one.reasoning.saturating_add(other.reasoning),
        ..one
    }
}

impl TokenCounts {
    fn member(&mut self, scanner: &mut Scanner<'_>, name: &Name<'_>) -> Result<(), SyntaxError> {
        let count = match name.word() {
            "input_tokens" => &mut self.input,
            "cache_read_input_tokens" => &mut self.cache_read,
            "cache_creation_input_tokens" => &mut self.cache_creation,
            "output_tokens" => &mut self.output,
            "cache_creation" => return inner_count(scanner, "ephemeral_1h_input_tokens", &mut self.cache_creation_1h),
            "output_tokens_details" => return inner_count(scanner, "thinking_tokens", &mut self.thinking),
            _ => return Ok(()),
        };
        *count = scanner.token_count()?.ok().flatten().or(*count);
        Ok(())
    }

    fn usage(self) -> Option<Usage> {
        let (input, output) = (self.input?, self.output?);
        let (cached, cache_write) = (self.cache_read.unwrap_or(0), self.cache_creation.unwrap_or(0));
        Some(Usage {
            prompt_total: input.saturating_add(cached).saturating_add(cache_write),
            cached,
            cache_write,
            cache_write_1h: self.cache_creation_1h.unwrap_or(0).min(cache_write),
            completion_total: output,
            reasoning: self.thinking.unwrap_or(0).min(output),
            ..Usage::default()
        })
    }
}

/// Reads one count of an object.
fn inner_count(scanner: &mut Scanner<'_>, wanted: &str, count: &mut Option<u64>) -> Result<(), SyntaxError> {
    scanner.members(|scanner, name| {
        if name.word() == wanted {
            *count = scanner.token_count()?.ok().flatten().or(*count);
        }
        Ok(())
    })?;
    Ok(())
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
    fn searches_are_cumulative() {
        let mut counts = MessagesUsageCounts::default();
        let mut after = |text: &str| {
            counts.read(&mut Scanner::answer(text.as_bytes()).unwrap()).unwrap();
            counts.searches()
        };
        assert_eq!(after(r#"{"input_tokens":5,"server_tool_use":null}"#), None);
        assert_eq!(after(r#"{"server_tool_use":{"web_search_requests":0,"web_fetch_requests":7}}"#), Some(0));
        assert_eq!(after(r#"{"output_tokens":9,"server_tool_use":{"web_search_requests":8}}"#), Some(8));
        assert_eq!(after(r#"{"output_tokens":9}"#), Some(8));
    }

    #[test]
    fn cache_writes_kept_for_an_hour_are_counted_separately() {
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

    #[test]
    fn compaction_iterations_are_added_to_the_usage() {
        let usage = read(&[r#"{"input_tokens":23,"cache_read_input_tokens":2,"output_tokens":10,"iterations":[
            {"type":"compaction","input_tokens":180,"cache_read_input_tokens":7,"cache_creation_input_tokens":5,"output_tokens":35,
             "cache_creation":{"ephemeral_1h_input_tokens":4}},
            {"type":"message","input_tokens":23,"cache_read_input_tokens":2,"output_tokens":10},
            {"type":"advisor_message","model":"other","input_tokens":900,"output_tokens":900},
            {"input_tokens":1,"type":"compaction","output_tokens":1},"x",{"type":"compaction","input_tokens":-1,"output_tokens":1}]}"#]);
        let expected = Usage {
            prompt_total: 23 + 2 + (180 + 7 + 5) + 1,
            cached: 2 + 7,
            cache_write: 5,
            cache_write_1h: 4,
            completion_total: 10 + 35 + 1,
            ..Usage::default()
        };
        assert_eq!(usage, Some(expected));
    }

    #[test]
    fn later_iteration_lists_replace_earlier_ones() {
        let compaction = r#"{"output_tokens":9,"iterations":[{"type":"compaction","input_tokens":100,"output_tokens":1}]}"#;
        let usage = |texts: &[&str]| read(texts).map(|usage| (usage.prompt_total, usage.completion_total));
        assert_eq!(usage(&[r#"{"input_tokens":5,"output_tokens":0,"iterations":[]}"#, compaction]), Some((105, 10)));
        assert_eq!(usage(&[r#"{"input_tokens":5,"output_tokens":0}"#, compaction, compaction]), Some((105, 10)));
        assert_eq!(usage(&[r#"{"input_tokens":5}"#, compaction, r#"{"iterations":null}"#]), Some((105, 10)));
    }
}
