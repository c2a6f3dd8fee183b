//! Recognises the refusal of an output limit that is above the model's. Coding agents lower their limit and retry, but only for the message
//! of the provider whose protocol they use.

/// An output limit that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedOutputLimit {
    pub given: u64,
    /// The most that the model takes.
    pub most: u64,
}

impl RefusedOutputLimit {
    /// Parses a provider's message; `None` if it is another one.
    #[must_use]
    pub fn read(message: &str) -> Option<Self> {
        let text = message.to_ascii_lowercase();
        let after = |words| number_after(&text, words);
        // "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000."
        let openai = || Some((after("is too large: ")?, after("supports at most ")?));
        // "it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 65537 (exclusive)."
        let gemini = || Some((after("maxoutputtokens value of ")?, after("(inclusive) to ")?.checked_sub(1)?));
        let (given, most) = openai().or_else(gemini)?;
        (given > most).then_some(Self { given, most })
    }

    /// The refusal as the Messages API words it.
    #[must_use]
    pub fn in_messages_words(&self) -> String {
        let Self { given, most } = self;
        format!("max_tokens: {given} > {most}, which is the maximum allowed number of output tokens for this model")
    }
}

fn number_after(text: &str, words: &str) -> Option<u64> {
    let rest = &text[text.find(words)? + words.len()..];
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_limits_are_parsed_from_refusal_messages() {
        for (message, found) in [
            (
                "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.",
                Some((32_000, 16_384)),
            ),
            (
                "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 \
                 (inclusive) to 65537 (exclusive). Update the value and try again.",
                Some((100_000, 65_536)),
            ),
            ("max_tokens is too large: 9. This model supports at most 99999999999999999999 completion tokens", None),
            ("max_tokens is too large: 9. This model supports at most 10 completion tokens", None),
            ("This model's maximum context length is 128000 tokens.", None),
            ("is too large: ", None),
        ] {
            let expected = found.map(|(given, most)| RefusedOutputLimit { given, most });
            assert_eq!(RefusedOutputLimit::read(message), expected, "{message}");
        }
    }
}
