//! The tokens that a channel test used, and what they cost at the channel's price.

use serde::{Deserialize, Serialize};

use crate::pages::{
    format,
    locale::Locale,
    money::{self, Amount},
};

/// These fields of a test, as the admin API answers them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TestUsage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokens_input: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokens_output: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokens_cache_read: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokens_cache_write: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<String>,
}

impl TestUsage {
    /// Input and output; `None`: the provider counted no tokens.
    fn counts(&self) -> Option<(String, String)> {
        let (input, output) = self.tokens_input.zip(self.tokens_output)?;
        Some((format::integer(input), format::integer(output)))
    }

    /// The counts of a cell.
    pub(super) fn tokens(&self) -> Option<String> {
        self.counts().map(|(input, output)| format!("{input} → {output}"))
    }

    /// The part of the input that the provider's cache had or got; `None`: nothing.
    pub(super) fn cached(&self, t: Locale) -> Option<String> {
        let known = |count: Option<u64>| count.filter(|count| *count > 0).map(format::integer);
        let read = known(self.tokens_cache_read).map(|count| t.say_with("test.cache_read", &[("count", &count)]));
        let written = known(self.tokens_cache_write).map(|count| t.say_with("test.cache_write", &[("count", &count)]));
        let parts: Vec<String> = read.into_iter().chain(written).collect();
        (!parts.is_empty()).then(|| parts.join(t.say("list.separator")))
    }

    /// The amount of a cell, or that the channel has no price; `None`: there are no tokens that could cost something.
    pub(super) fn cost(&self, t: Locale) -> Option<Amount> {
        self.counts()?;
        let amount = self.cost.as_deref().map(|cost| money::short(t, cost));
        Some(amount.unwrap_or_else(|| Amount::plain(t.say("price.none").to_owned())))
    }

    /// Everything in words; `None`: the provider counted no tokens.
    pub(super) fn text(&self, t: Locale) -> Option<String> {
        let (input, output) = self.counts()?;
        let tokens = t.say_with("test.tokens", &[("input", &input), ("output", &output)]);
        let cost = match &self.cost {
            Some(cost) => t.say_with("overview.cost", &[("cost", &money::short(t, cost).with_title())]),
            None => t.say("test.cost_unknown").to_owned(),
        };
        let parts: Vec<String> = [Some(tokens), self.cached(t), Some(cost)].into_iter().flatten().collect();
        Some(parts.join(" · "))
    }
}

/// A passed test in words, with what it used.
pub(super) fn passed(t: Locale, usage: &TestUsage) -> String {
    let passed = t.say("test.passed");
    usage.text(t).map_or_else(|| passed.to_owned(), |usage| format!("{passed} · {usage}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cost: Option<&str>) -> TestUsage {
        TestUsage { tokens_input: Some(1_209), tokens_output: Some(3), cost: cost.map(str::to_owned), ..TestUsage::default() }
    }

    #[test]
    fn passed_test_shows_its_tokens_and_their_cost() {
        let t = Locale::EN;
        assert_eq!(passed(t, &usage(Some("0.0000125"))), "Passed · 1,209 tokens in, 3 out · cost $0.0000125");
        let cached = TestUsage { tokens_cache_read: Some(1_024), tokens_cache_write: Some(0), ..usage(Some("0.5")) };
        assert_eq!(passed(t, &cached), "Passed · 1,209 tokens in, 3 out · 1,024 from the cache · cost $0.50");
        assert_eq!(cached.cost(t).unwrap().text, "$0.50");
        assert!(passed(Locale::ZH_CN, &cached).contains("1,024"));
    }

    #[test]
    fn unknown_price_is_shown_as_text() {
        let t = Locale::EN;
        assert_eq!(usage(None).cost(t).unwrap().text, "Not priced");
        assert!(passed(t, &usage(None)).ends_with("the channel has no price for the model"), "{}", passed(t, &usage(None)));
    }

    #[test]
    fn uncounted_tokens_have_no_cost() {
        let usage = TestUsage::default();
        assert_eq!((usage.tokens(), usage.cached(Locale::EN), usage.cost(Locale::EN)), (None, None, None));
        assert_eq!(passed(Locale::EN, &usage), "Passed");
    }
}
