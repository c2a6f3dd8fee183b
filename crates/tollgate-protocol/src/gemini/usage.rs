//! Lenient parsing of token counts in Gemini replies.

use crate::{
    Usage,
    scan::{InvalidCount, Scanner, SyntaxError},
};

/// Counts as on the wire, where an absent number is 0. In streams, some events have only a few of them; the last value of each
/// counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GeminiUsageCounts {
    prompt: Option<u64>,
    tool_use: Option<u64>,
    candidates: Option<u64>,
    thoughts: Option<u64>,
    /// From the last object only; it shows whether that object's candidate count includes thoughts.
    total: Option<u64>,
    cached: Option<u64>,
    image: Option<u64>,
    audio: Option<u64>,
    invalid: bool,
}

/// Parses a `usageMetadata` value. `None` if it is `null`, not an object, empty, or a main count cannot be parsed.
pub(crate) fn read(scanner: &mut Scanner<'_>) -> Result<Option<Usage>, SyntaxError> {
    GeminiUsageCounts::default().merge(scanner)
}

impl GeminiUsageCounts {
    /// Merges a `usageMetadata` value into the counts. `None` while no count is known, and for a value that cannot be parsed,
    /// which changes nothing.
    pub(crate) fn merge(&mut self, scanner: &mut Scanner<'_>) -> Result<Option<Usage>, SyntaxError> {
        let mut counts = Self { total: None, ..*self };
        scanner.members(|scanner, name| {
            let count = match name.word() {
                "promptTokenCount" | "prompt_token_count" => &mut counts.prompt,
                "toolUsePromptTokenCount" | "tool_use_prompt_token_count" => &mut counts.tool_use,
                "candidatesTokenCount" | "candidates_token_count" => &mut counts.candidates,
                "thoughtsTokenCount" | "thoughts_token_count" => &mut counts.thoughts,
                "totalTokenCount" | "total_token_count" => {
                    counts.total = scanner.token_count()?.ok().flatten();
                    return Ok(());
                }
                "cachedContentTokenCount" | "cached_content_token_count" => {
                    counts.cached = scanner.token_count()?.ok().flatten().or(counts.cached);
                    return Ok(());
                }
                "promptTokensDetails" | "prompt_tokens_details" => return counts.modalities(scanner),
                _ => return Ok(()),
            };
            match scanner.token_count()? {
                Ok(given) => *count = given.or(*count),
                Err(InvalidCount) => counts.invalid = true,
            }
            Ok(())
        })?;
        let usage = counts.usage();
        if usage.is_some() {
            *self = counts;
        }
        Ok(usage)
    }

    /// Usage with totals that include their parts.
    fn usage(&self) -> Option<Usage> {
        let nothing = [self.prompt, self.candidates, self.thoughts, self.tool_use, self.total].iter().all(Option::is_none);
        if self.invalid || nothing {
            return None;
        }
        let (candidates, thoughts) = (self.candidates.unwrap_or(0), self.thoughts.unwrap_or(0));
        let prompt_total = self.prompt.unwrap_or(0) + self.tool_use.unwrap_or(0);
        // Some compatible servers include thoughts in the candidates' tokens; the total shows which.
        let inclusive = thoughts > 0 && self.total == Some(prompt_total + candidates);
        let usage = Usage {
            prompt_total,
            cached: self.cached.unwrap_or(0),
            cache_write: 0,
            cache_write_1h: 0,
            image: self.image.unwrap_or(0),
            audio: self.audio.unwrap_or(0),
            completion_total: if inclusive { candidates } else { candidates + thoughts },
            reasoning: thoughts,
        };
        Some(usage.bounded())
    }

    fn modalities(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        let (mut image, mut audio) = (None, None);
        scanner.elements(|scanner, _| {
            let mut modality = None;
            let mut count = 0;
            scanner.members(|scanner, name| {
                match name.word() {
                    "modality" => modality = scanner.optional_string()?,
                    "tokenCount" | "token_count" => count = scanner.token_count()?.ok().flatten().unwrap_or(0),
                    _ => {}
                }
                Ok(())
            })?;
            match modality.map(|word| word.decode()).as_deref() {
                Some("IMAGE") => image = Some(image.unwrap_or(0) + count),
                Some("AUDIO") => audio = Some(audio.unwrap_or(0) + count),
                _ => {}
            }
            Ok(())
        })?;
        self.image = image.or(self.image);
        self.audio = audio.or(self.audio);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<Usage>) {
        let mut scanner = Scanner::answer(text.as_bytes()).unwrap();
        assert_eq!(read(&mut scanner), Ok(expected), "{text}");
        assert_eq!(scanner.end(), Ok(()));
    }

    const fn plain(prompt_total: u64, completion_total: u64) -> Usage {
        Usage { prompt_total, cached: 0, cache_write: 0, cache_write_1h: 0, image: 0, audio: 0, completion_total, reasoning: 0 }
    }

    #[test]
    fn totals_include_their_parts() {
        check(
            r#"{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":7,
                "toolUsePromptTokenCount":3,"totalTokenCount":25,"serviceTier":"standard","promptTokensDetails":
                [{"modality":"TEXT","tokenCount":6},{"modality":"IMAGE","tokenCount":2},{"tokenCount":2,"modality":"AUDIO"}]}"#,
            Some(Usage { cached: 4, image: 2, audio: 2, reasoning: 7, ..plain(13, 12) }),
        );
    }

    #[test]
    fn thoughts_inside_the_candidates_count_are_not_counted_twice() {
        check(
            r#"{"promptTokenCount":10,"candidatesTokenCount":12,"thoughtsTokenCount":7,"totalTokenCount":22}"#,
            Some(Usage { reasoning: 7, ..plain(10, 12) }),
        );
    }

    #[test]
    fn absent_counts_are_zero_and_all_absent_is_no_usage() {
        check(r#"{"promptTokenCount":10,"totalTokenCount":10}"#, Some(plain(10, 0)));
        check(r#"{"totalTokenCount":0}"#, Some(plain(0, 0)));
        check(r#"{"promptTokenCount":"10","candidatesTokenCount":2.0}"#, Some(plain(10, 2)));
        for missing in ["null", "{}", "[]", "7", r#"{"promptTokenCount":null}"#] {
            check(missing, None);
        }
    }

    #[test]
    fn invalid_counts_give_no_usage() {
        for count in ["-1", "9223372036854775808", "\"many\"", "true"] {
            check(&format!(r#"{{"promptTokenCount":{count},"candidatesTokenCount":7}}"#), None);
            check(&format!(r#"{{"promptTokenCount":7,"candidatesTokenCount":{count}}}"#), None);
            check(&format!(r#"{{"promptTokenCount":7,"cachedContentTokenCount":{count}}}"#), Some(plain(7, 0)));
        }
    }

    #[test]
    fn stream_counts_are_merged_and_invalid_objects_ignored() {
        let mut counts = GeminiUsageCounts::default();
        let mut merge = |text: &str| counts.merge(&mut Scanner::answer(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(merge(r#"{"trafficType":"ON_DEMAND"}"#), None);
        assert_eq!(merge(r#"{"promptTokenCount":4,"candidatesTokenCount":1,"totalTokenCount":5}"#), Some(plain(4, 1)));
        assert_eq!(merge(r#"{"promptTokenCount":-4,"candidatesTokenCount":9}"#), None);
        let last = merge(r#"{"prompt_token_count":null,"candidatesTokenCount":3,"thoughts_token_count":2}"#);
        assert_eq!(last, Some(Usage { reasoning: 2, ..plain(4, 5) }));
    }
}
