//! Token counts of native answers, read leniently (wire reference, section 7; translation reference, section 2.6).

use crate::{
    Usage,
    scan::{Fault, NoCount, Scanner},
};

/// Counts as they stand on the wire. An absent number is 0 there.
#[derive(Debug, Default)]
struct Counts {
    prompt: Option<u64>,
    tool_use: Option<u64>,
    candidates: Option<u64>,
    thoughts: Option<u64>,
    total: Option<u64>,
    /// A figure that counts stands there but is none.
    broken: bool,
}

/// Reads a `usageMetadata` value. `None` when it is `null`, no object, empty, or a main count cannot be read.
pub(crate) fn read(scanner: &mut Scanner<'_>) -> Result<Option<Usage>, Fault> {
    let mut counts = Counts::default();
    let mut usage = Usage::default();
    scanner.members(|scanner, name| {
        match &*name.decode() {
            "promptTokenCount" | "prompt_token_count" => {
                counts.prompt = scanner.tokens()?.unwrap_or_else(|NoCount| counts.breaks());
            }
            "toolUsePromptTokenCount" => counts.tool_use = scanner.tokens()?.unwrap_or_else(|NoCount| counts.breaks()),
            "candidatesTokenCount" | "candidates_token_count" => {
                counts.candidates = scanner.tokens()?.unwrap_or_else(|NoCount| counts.breaks());
            }
            "thoughtsTokenCount" => counts.thoughts = scanner.tokens()?.unwrap_or_else(|NoCount| counts.breaks()),
            "totalTokenCount" | "total_token_count" => counts.total = scanner.tokens()?.ok().flatten(),
            "cachedContentTokenCount" => usage.cached = scanner.tokens()?.ok().flatten().unwrap_or(0),
            "promptTokensDetails" => modalities(scanner, &mut usage)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(counts.totals().map(|(prompt_total, completion_total)| {
        Usage { prompt_total, completion_total, reasoning: counts.thoughts.unwrap_or(0), ..usage }.bounded()
    }))
}

impl Counts {
    fn breaks(&mut self) -> Option<u64> {
        self.broken = true;
        None
    }

    /// Prompt and completion, both with all their parts.
    fn totals(&self) -> Option<(u64, u64)> {
        let nothing = [self.prompt, self.candidates, self.thoughts, self.tool_use, self.total].iter().all(Option::is_none);
        if self.broken || nothing {
            return None;
        }
        let (candidates, thoughts) = (self.candidates.unwrap_or(0), self.thoughts.unwrap_or(0));
        let prompt = self.prompt.unwrap_or(0) + self.tool_use.unwrap_or(0);
        // Some compatible servers count thoughts among the candidates' tokens: the total tells.
        let inclusive = thoughts > 0 && self.total == Some(prompt + candidates);
        Some((prompt, if inclusive { candidates } else { candidates + thoughts }))
    }
}

fn modalities(scanner: &mut Scanner<'_>, usage: &mut Usage) -> Result<(), Fault> {
    scanner.elements(|scanner, _| {
        let mut modality = None;
        let mut count = 0;
        scanner.members(|scanner, name| {
            match &*name.decode() {
                "modality" => modality = scanner.words()?,
                "tokenCount" => count = scanner.tokens()?.ok().flatten().unwrap_or(0),
                _ => {}
            }
            Ok(())
        })?;
        match modality.map(|word| word.decode()).as_deref() {
            Some("IMAGE") => usage.image = usage.image.saturating_add(count),
            Some("AUDIO") => usage.audio = usage.audio.saturating_add(count),
            _ => {}
        }
        Ok(())
    })?;
    Ok(())
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
        Usage { prompt_total, cached: 0, cache_write: 0, image: 0, audio: 0, completion_total, reasoning: 0 }
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
    fn an_absent_number_is_zero_and_no_numbers_are_no_usage() {
        check(r#"{"promptTokenCount":10,"totalTokenCount":10}"#, Some(plain(10, 0)));
        check(r#"{"totalTokenCount":0}"#, Some(plain(0, 0)));
        check(r#"{"promptTokenCount":"10","candidatesTokenCount":2.0}"#, Some(plain(10, 2)));
        for missing in ["null", "{}", "[]", "7", r#"{"promptTokenCount":null}"#] {
            check(missing, None);
        }
    }

    #[test]
    fn nonsense_makes_the_usage_unreadable_not_wrong() {
        for count in ["-1", "9223372036854775808", "\"many\"", "true"] {
            check(&format!(r#"{{"promptTokenCount":{count},"candidatesTokenCount":7}}"#), None);
            check(&format!(r#"{{"promptTokenCount":7,"candidatesTokenCount":{count}}}"#), None);
            check(&format!(r#"{{"promptTokenCount":7,"cachedContentTokenCount":{count}}}"#), Some(plain(7, 0)));
        }
    }
}
