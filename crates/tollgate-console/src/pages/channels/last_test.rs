//! The results of the last tests of accounts, and of a channel's accounts together.

use serde::Deserialize;
use tollgate_core::Timestamp;

use crate::{
    pages::{
        failure_text,
        format::{self, TimeText},
        locale::Locale,
        mark::Mark,
        strip::HealthObject,
    },
    time::parse_rfc3339,
};

/// The last test of an account, as the admin API answers it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LastTestObject {
    at: String,
    model: String,
    passed: bool,
    took_ms: u64,
    error: Option<String>,
}

#[derive(Debug)]
pub(super) struct LastTest {
    pub(super) mark: Mark,
    pub(super) at: TimeText,
    pub(super) ago: String,
    /// The model that was asked for, and how long the test took.
    pub(super) about: String,
    /// Why it failed; with several accounts, preceded by the account's name.
    pub(super) error: Option<String>,
}

impl LastTest {
    pub(super) fn of_account(t: Locale, health: &HealthObject, now: Timestamp) -> Option<Self> {
        Self::of_channel(t, std::slice::from_ref(health), now)
    }

    /// The newest test of these accounts, and how many of their last tests failed. The reason is that of the one that failed last.
    pub(super) fn of_channel(t: Locale, accounts: &[HealthObject], now: Timestamp) -> Option<Self> {
        let mut tests: Vec<(&str, &LastTestObject)> =
            accounts.iter().filter_map(|account| Some((account.account.as_str(), account.last_test.as_ref()?))).collect();
        tests.sort_by_key(|(_, test)| std::cmp::Reverse(parse_rfc3339(&test.at)));
        let (_, newest) = tests.first()?;
        let failed = tests.iter().filter(|(_, test)| !test.passed).count();
        let mark = match (failed, tests.len()) {
            (0, _) => Mark::new("ok", "okc", t.say("test.passed")),
            (_, 1) => Mark::new("bad", "badc", t.say("test.failed")),
            (failed, all) => {
                let counts = [("failed", failed.to_string()), ("all", all.to_string())];
                let counts = counts.each_ref().map(|(name, count)| (*name, count.as_str()));
                Mark::new("bad", "badc", t.say_with("test.some_failed", &counts))
            }
        };
        let reason = |account: &str, test: &LastTestObject| {
            let error = failure_text::say(t, test.error.as_deref()?);
            Some(if tests.len() == 1 { error } else { format!("{account}: {error}") })
        };
        Some(Self {
            mark,
            at: format::time(t, &newest.at)?,
            ago: format::ago(t, &newest.at, now),
            about: format!("{} · {} ms", newest.model, format::integer(newest.took_ms)),
            error: tests.iter().find(|(_, test)| !test.passed).and_then(|(account, test)| reason(account, test)),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An account whose last test was `minutes` before noon.
    fn account(name: &str, test: Option<(u32, Option<&str>)>) -> HealthObject {
        let test = test.map_or(Value::Null, |(minutes, error)| {
            json!({"at": format!("2026-11-23T11:{:02}:00Z", 60 - minutes), "model": "m", "passed": error.is_none(), "took_ms": 1_812,
                "error": error})
        });
        serde_json::from_value(json!({
            "channel": "c", "account": name, "credential_end": null, "status": "on", "state": "usable", "reason": null, "since": null,
            "until": null, "running": null, "requests_minute": null, "tokens_minute": null, "concurrency": 0, "rpm": 0, "tpm": 0,
            "cost_multiplier": "1", "last_test": test,
        }))
        .unwrap()
    }

    fn noon() -> Timestamp {
        parse_rfc3339("2026-11-23T12:00:00Z").unwrap()
    }

    #[test]
    fn last_test_of_an_account_has_its_reason() {
        let of = |test| LastTest::of_account(Locale::EN, &account("a", test), noon());
        assert!(of(None).is_none(), "never tested");
        let passed = of(Some((3, None))).unwrap();
        assert_eq!(
            (passed.mark.word.as_str(), passed.ago.as_str(), passed.about.as_str()),
            ("Passed", "3 minutes ago", "m · 1,812 ms")
        );
        let failed = of(Some((5, Some("status 401: no")))).unwrap();
        assert_eq!((failed.mark.word.as_str(), failed.error.as_deref()), ("Failed", Some("status 401: no")));
    }

    #[test]
    fn channel_counts_the_accounts_that_failed() {
        let accounts = [
            account("a", Some((30, Some("old")))),
            account("b", Some((2, None))),
            account("c", Some((9, Some("status 403: no")))),
            account("d", None),
        ];
        let shown = LastTest::of_channel(Locale::EN, &accounts, noon()).unwrap();
        assert_eq!((shown.mark.word.as_str(), shown.ago.as_str()), ("2 of 3 failed", "2 minutes ago"));
        assert_eq!(shown.error.as_deref(), Some("c: status 403: no"), "the latest failure");
        assert!(LastTest::of_channel(Locale::EN, &[], noon()).is_none());
    }
}
