//! Reads token counts leniently (OpenAI API reference, "The response object", `usage`).

use crate::{
    Usage,
    openai::usage::{input_details, output_details},
    scan::{Scanner, SyntaxError},
};

/// Parses a `usage` value. `None` if it is `null`, not an object, or its totals cannot be parsed.
pub(crate) fn read(scanner: &mut Scanner<'_>) -> Result<Option<Usage>, SyntaxError> {
    let mut usage = Usage::default();
    let (mut input, mut output) = (None, None);
    scanner.members(|scanner, name| {
        match name.word() {
            "input_tokens" => input = scanner.token_count()?.ok().flatten(),
            "output_tokens" => output = scanner.token_count()?.ok().flatten(),
            "input_tokens_details" => input_details(scanner, &mut usage)?,
            "output_tokens_details" => output_details(scanner, &mut usage)?,
            _ => {}
        }
        Ok(())
    })?;
    let totals = input.zip(output);
    Ok(totals.map(|(prompt_total, completion_total)| Usage { prompt_total, completion_total, ..usage }.bounded()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<Usage>) {
        let mut scanner = Scanner::answer(text.as_bytes()).unwrap();
        assert_eq!(read(&mut scanner), Ok(expected), "{text}");
        assert_eq!(scanner.end(), Ok(()));
    }

    #[test]
    fn all_members_are_parsed() {
        check(
            r#"{"input_tokens":10,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"output_tokens":7,
                "output_tokens_details":{"reasoning_tokens":5},"total_tokens":17}"#,
            Some(Usage { prompt_total: 10, cached: 4, cache_write: 2, completion_total: 7, reasoning: 5, ..Usage::default() }),
        );
        check(
            r#"{"input_tokens":"3","output_tokens":2.0,"output_tokens_details":null}"#,
            Some(Usage { prompt_total: 3, completion_total: 2, ..Usage::default() }),
        );
    }

    #[test]
    fn invalid_totals_give_no_usage() {
        for text in ["null", "{}", "7", r#"{"input_tokens":3}"#, r#"{"input_tokens":-1,"output_tokens":2}"#] {
            check(text, None);
        }
    }

    #[test]
    fn parts_never_exceed_their_totals() {
        check(
            r#"{"input_tokens":1,"input_tokens_details":{"cached_tokens":4},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":9}}"#,
            Some(Usage { prompt_total: 1, cached: 1, completion_total: 1, reasoning: 1, ..Usage::default() }),
        );
    }
}
