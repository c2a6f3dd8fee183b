//! Lenient parsing of token counts in chat completions replies.

use crate::{
    Usage,
    scan::{InvalidCount, Scanner, SyntaxError},
};

/// Reads the number of web searches in a `usage` value. Gateways that pass on their upstreams' charges report it (`OpenRouter`).
pub(crate) fn searches(usage: &str) -> Result<Option<u32>, SyntaxError> {
    if !usage.contains("server_tool_use") {
        return Ok(None);
    }
    let mut searches = None;
    Scanner::answer(usage.as_bytes())?.members(|scanner, name| {
        if name.word() == "server_tool_use" {
            scanner.members(|scanner, name| {
                if name.word() == "web_search_requests" {
                    searches = scanner.token_count()?.ok().flatten();
                }
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(searches.map(|searches| u32::try_from(searches).unwrap_or(u32::MAX)))
}

/// Parses a `usage` value. `None` if it is `null`, not an object, or its totals cannot be parsed.
pub(crate) fn read(scanner: &mut Scanner<'_>) -> Result<Option<Usage>, SyntaxError> {
    let mut usage = Usage::default();
    let (mut prompt, mut completion, mut total) = (Ok(None), Ok(None), Ok(None));
    scanner.members(|scanner, name| {
        match name.word() {
            "prompt_tokens" => prompt = scanner.token_count()?,
            "completion_tokens" => completion = scanner.token_count()?,
            "total_tokens" => total = scanner.token_count()?,
            "prompt_tokens_details" => input_details(scanner, &mut usage)?,
            "completion_tokens_details" => output_details(scanner, &mut usage)?,
            // DeepSeek API reference: cached prompt tokens.
            "prompt_cache_hit_tokens" => {
                if let Ok(Some(cached)) = scanner.token_count()? {
                    usage.cached = usage.cached.max(cached);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(totals(prompt, completion, total.ok().flatten())
        .map(|(prompt_total, completion_total)| Usage { prompt_total, completion_total, ..usage }.bounded()))
}

type Count = Result<Option<u64>, InvalidCount>;

/// Prompt and completion tokens. One of them may be absent (embeddings have no completion) and is then derived from the total.
fn totals(prompt: Count, completion: Count, total: Option<u64>) -> Option<(u64, u64)> {
    match (prompt.ok()?, completion.ok()?) {
        (Some(prompt), Some(completion)) => Some((prompt, completion)),
        (Some(prompt), None) => Some((prompt, total?.saturating_sub(prompt))),
        (None, Some(completion)) => Some((total?.saturating_sub(completion), completion)),
        (None, None) => None,
    }
}

/// Parts of the input tokens: `prompt_tokens_details`, and `input_tokens_details` of the Responses API.
pub(crate) fn input_details(scanner: &mut Scanner<'_>, usage: &mut Usage) -> Result<(), SyntaxError> {
    scanner.members(|scanner, name| {
        let place = match name.word() {
            "cached_tokens" => &mut usage.cached,
            "cache_write_tokens" => &mut usage.cache_write,
            "image_tokens" => &mut usage.image,
            "audio_tokens" => &mut usage.audio,
            _ => return Ok(()),
        };
        *place = scanner.token_count()?.ok().flatten().unwrap_or(0);
        Ok(())
    })?;
    Ok(())
}

/// Parts of the output tokens: `completion_tokens_details`, and `output_tokens_details` of the Responses API.
pub(crate) fn output_details(scanner: &mut Scanner<'_>, usage: &mut Usage) -> Result<(), SyntaxError> {
    scanner.members(|scanner, name| {
        if name.word() == "reasoning_tokens" {
            usage.reasoning = scanner.token_count()?.ok().flatten().unwrap_or(0);
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
        Usage { prompt_total, cached: 0, cache_write: 0, cache_write_1h: 0, image: 0, audio: 0, completion_total, reasoning: 0 }
    }

    #[test]
    fn searches_are_read_from_server_tool_use() {
        let usage = r#"{"prompt_tokens":1,"completion_tokens":2,"server_tool_use":{"web_search_requests":3}}"#;
        assert_eq!(searches(usage), Ok(Some(3)));
        assert_eq!([searches("{}"), searches(r#"{"server_tool_use":null}"#)], [Ok(None), Ok(None)]);
    }

    #[test]
    fn all_members_are_parsed() {
        check(
            r#"{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"cost":0.1,
                "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2,"image_tokens":1,"audio_tokens":3},
                "completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":null}}"#,
            Some(Usage { cached: 4, cache_write: 2, image: 1, audio: 3, reasoning: 5, ..plain(10, 7) }),
        );
        check(
            r#"{"prompt_tokens":10,"completion_tokens":7,"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":4}"#,
            Some(Usage { cached: 6, ..plain(10, 7) }),
        );
    }

    #[test]
    fn usage_of_zero_is_distinguished_from_missing_usage() {
        check(r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#, Some(plain(0, 0)));
        for missing in ["null", "{}", "[]", "7", "\"x\"", r#"{"prompt_tokens":null,"completion_tokens":null}"#] {
            check(missing, None);
        }
    }

    #[test]
    fn floats_strings_and_duplicates_are_parsed() {
        check(r#"{"prompt_tokens":10.0,"completion_tokens":"7"}"#, Some(plain(10, 7)));
        check(r#"{"prompt_tokens":1,"prompt_tokens":10,"completion_tokens":7}"#, Some(plain(10, 7)));
        check(r#"{"prompt_tokens":5,"total_tokens":5}"#, Some(plain(5, 0)));
        check(r#"{"prompt_tokens":null,"completion_tokens":2,"total_tokens":5}"#, Some(plain(3, 2)));
        check(r#"{"prompt_tokens":5}"#, None);
    }

    #[test]
    fn invalid_totals_give_no_usage() {
        for total in ["-1", "9223372036854775808", "1e300", "\"many\"", "{}", "true"] {
            check(&format!(r#"{{"prompt_tokens":{total},"completion_tokens":7,"total_tokens":9}}"#), None);
            check(&format!(r#"{{"prompt_tokens":7,"completion_tokens":{total}}}"#), None);
        }
    }

    #[test]
    fn parts_never_exceed_their_totals() {
        check(
            r#"{"prompt_tokens":10,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":8,
                "image_tokens":-3},"completion_tokens_details":{"reasoning_tokens":70}}"#,
            Some(Usage { cached: 8, cache_write: 2, reasoning: 7, ..plain(10, 7) }),
        );
    }
}
