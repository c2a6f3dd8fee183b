//! Usage of the limits per minute: requests, and tokens if they are limited.

use crate::pages::{format, locale::Locale};

/// The usage of the last minute, and the limit.
pub(super) type MinuteUse = Option<(u64, u64)>;

/// Use of one limit, as pages show it.
#[derive(Clone, Debug)]
pub(super) struct RateUse {
    pub(super) text: String,
    /// Use and limit in full.
    pub(super) title: String,
    pub(super) percent: u64,
}

impl RateUse {
    fn of((used, limit): (u64, u64), text: String, title: impl Fn(&str) -> String) -> Self {
        let percent = (used.saturating_mul(100) / limit.max(1)).min(100);
        Self { text, title: title(&format!("{} / {}", format::integer(used), format::integer(limit))), percent }
    }

    fn of_both(t: Locale, requests: MinuteUse, tokens: MinuteUse, text: impl Fn((u64, u64)) -> String) -> Vec<Self> {
        let requests = requests.map(|it| Self::of(it, text(it), |of| t.say_with("channels.requests_minute", &[("used", of)])));
        let tokens = tokens.map(|it| {
            let text = t.say_with("channels.of_tokens", &[("used", &text(it))]);
            Self::of(it, text, |of| t.say_with("channels.tokens_minute", &[("used", of)]))
        });
        requests.into_iter().chain(tokens).collect()
    }

    /// With the share that is used.
    pub(super) fn shares(t: Locale, requests: MinuteUse, tokens: MinuteUse) -> Vec<Self> {
        Self::of_both(t, requests, tokens, |(used, limit)| format::ratio_short(used, limit))
    }

    /// With use and limit.
    pub(super) fn amounts(t: Locale, requests: MinuteUse, tokens: MinuteUse) -> Vec<Self> {
        Self::of_both(t, requests, tokens, |(used, limit)| format!("{} / {}", format::compact(t, used), format::compact(t, limit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_minute_are_shown_beside_requests() {
        let shares = RateUse::shares(Locale::EN, Some((30, 60)), Some((1_000, 4_000)));
        let shown: Vec<(&str, &str, u64)> =
            shares.iter().map(|rate| (rate.text.as_str(), rate.title.as_str(), rate.percent)).collect();
        let expected = [
            ("50.0 %", "30 / 60 requests in the last minute", 50),
            ("25.0 % tokens", "1,000 / 4,000 tokens in the last minute", 25),
        ];
        assert_eq!(shown, expected);
        let amounts = RateUse::amounts(Locale::EN, None, Some((9, 4)));
        assert_eq!((amounts.len(), amounts[0].text.as_str(), amounts[0].percent), (1, "9 / 4 tokens", 100));
        assert!(RateUse::shares(Locale::EN, None, None).is_empty());
    }
}
