//! The numbers that encode fixed words in the tables of the usage log: the position in the list. New words are added at the end.
//! SQLite stores 0 and 1 without extra bytes.

use tollgate_core::{AttemptResult, Outcome, TokenSource};
use tollgate_protocol::{FinishReason, Method, Protocol};

pub(crate) trait Coded: Copy + PartialEq + 'static {
    const ALL: &'static [Self];

    fn code(self) -> i64 {
        let index = Self::ALL.iter().position(|word| *word == self);
        i64::try_from(index.expect("the list has every word")).expect("lists are short")
    }

    fn of_code(code: i64) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

impl Coded for Outcome {
    const ALL: &'static [Self] = &[Self::Completed, Self::CallerLeft, Self::UpstreamBroke, Self::Refused, Self::GatewayStopped];
}

impl Coded for TokenSource {
    const ALL: &'static [Self] = &[Self::None, Self::Provider, Self::Counted, Self::Estimated];
}

impl Coded for AttemptResult {
    const ALL: &'static [Self] = &[Self::Answered, Self::NotSent, Self::Refused, Self::Failed, Self::Broke, Self::Cancelled];
}

impl Coded for FinishReason {
    const ALL: &'static [Self] = &Self::ALL;
}

impl Coded for Protocol {
    const ALL: &'static [Self] = &[Self::OpenAi, Self::Gemini, Self::Anthropic, Self::Responses];
}

impl Coded for Method {
    const ALL: &'static [Self] = &[
        Self::Chat,
        Self::Generate,
        Self::StreamGenerate,
        Self::CountTokens,
        Self::EmbedContent,
        Self::BatchEmbedContents,
        Self::Embeddings,
        Self::Compact,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Databases contain the codes, so they never change. A new word must be added here, too; it is in the `match` of its type's
    /// `as_str`.
    #[test]
    fn stored_codes_never_change() {
        fn codes<T: Coded + std::fmt::Debug>(expected: &[T]) {
            for (code, word) in (0..).zip(expected) {
                assert_eq!((word.code(), T::of_code(code)), (code, Some(*word)));
            }
            assert_eq!(T::of_code(i64::try_from(expected.len()).unwrap()), None);
        }
        codes(&[Outcome::Completed, Outcome::CallerLeft, Outcome::UpstreamBroke, Outcome::Refused, Outcome::GatewayStopped]);
        codes(&[TokenSource::None, TokenSource::Provider, TokenSource::Counted, TokenSource::Estimated]);
        codes(&[
            FinishReason::Stop,
            FinishReason::Length,
            FinishReason::Tool,
            FinishReason::Filter,
            FinishReason::Fail,
            FinishReason::Other,
        ]);
        codes(&[Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic, Protocol::Responses]);
        assert_eq!((Method::Chat.code(), Method::Embeddings.code(), Method::ALL.len()), (0, 6, 8));
        assert_eq!((AttemptResult::Answered.code(), AttemptResult::Cancelled.code(), AttemptResult::ALL.len()), (0, 5, 6));
    }
}
