//! Sums over attempts: the requests sent to each account and their results, including requests that another account answered. The
//! sums are kept by the hour and day in which the request arrived.

use std::collections::BTreeMap;

use tollgate_core::{AccountId, AttemptRecord, AttemptResult, ChannelId, NanoUsd, Timestamp, UsageRecord};

use crate::{
    rollup::{HOUR, bucket, next_bucket},
    usage::{day, hour},
};

/// The error of attempts whose request the provider rejected.
pub(crate) const REJECTED: &str = "E52";

/// The dimension by which attempts are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttemptsBy {
    #[default]
    Nothing,
    /// By UTC day (`2026-11-30`).
    Day,
    /// By UTC hour (`2026-11-30T12:00:00Z`, its beginning).
    Hour,
    Channel,
    Account,
    /// By model, as named by the caller.
    Model,
    Result,
    /// By error id; empty without an error.
    Error,
}

/// Attempts to sum up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptFilter {
    pub channel: Option<ChannelId>,
    pub account: Option<AccountId>,
    pub model: Option<String>,
    pub result: Option<AttemptResult>,
    /// Only attempts of requests that arrived at or after the hour of this time.
    pub since: Option<Timestamp>,
    /// Only attempts of requests that arrived before the end of the hour of this time.
    pub until: Option<Timestamp>,
}

/// Sums over the attempts of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptsRow {
    /// Value of the first grouping; ids of channels and accounts.
    pub of: String,
    /// Value of the second grouping.
    pub and: String,
    pub attempts: u64,
    /// Attempts that answered.
    pub answered: u64,
    /// Attempts that did not answer through no fault of the account: the caller left, the other attempt of a hedged pair answered, or
    /// the provider rejected the request.
    pub excused: u64,
    /// Tokens of every kind.
    pub tokens_input: u64,
    pub tokens_output: u64,
    pub cost: NanoUsd,
}

impl AttemptsRow {
    /// Attempts that the account failed.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.attempts.saturating_sub(self.answered).saturating_sub(self.excused)
    }
}

impl AttemptFilter {
    /// The whole hours of the range.
    pub(crate) fn hours(&self) -> (Option<i64>, Option<i64>) {
        (self.since.map(|at| bucket(at, HOUR)), self.until.map(|at| next_bucket(at.0, HOUR)))
    }
}

fn is_excused(attempt: &AttemptRecord) -> bool {
    let is_rejected = || attempt.error.as_deref() == Some(REJECTED);
    attempt.result == AttemptResult::Cancelled || (attempt.result != AttemptResult::Answered && is_rejected())
}

/// The sums of records in memory.
pub(crate) fn summary<'a>(
    records: impl Iterator<Item = &'a UsageRecord>,
    filter: &AttemptFilter,
    by: (AttemptsBy, AttemptsBy),
) -> Vec<AttemptsRow> {
    let (since, until) = filter.hours();
    let is_within =
        |record: &&UsageRecord| since.is_none_or(|since| record.at.0 >= since) && until.is_none_or(|until| record.at.0 < until);
    let mut sums: BTreeMap<(String, String), AttemptsRow> = BTreeMap::new();
    for record in records.filter(is_within) {
        let model = record.offered_model().unwrap_or_default();
        let wanted = record.attempts.iter().filter(|attempt| {
            filter.channel.is_none_or(|channel| attempt.channel == channel)
                && filter.account.is_none_or(|account| attempt.account == account)
                && filter.model.as_deref().is_none_or(|wanted| model == wanted)
                && filter.result.is_none_or(|result| attempt.result == result)
        });
        for attempt in wanted {
            let group = |by: AttemptsBy| match by {
                AttemptsBy::Nothing => String::new(),
                AttemptsBy::Day => day(record.at),
                AttemptsBy::Hour => hour(record.at),
                AttemptsBy::Channel => attempt.channel.to_string(),
                AttemptsBy::Account => attempt.account.to_string(),
                AttemptsBy::Model => model.to_owned(),
                AttemptsBy::Result => attempt.result.as_str().to_owned(),
                AttemptsBy::Error => attempt.error.clone().unwrap_or_default(),
            };
            let (of, and) = (group(by.0), group(by.1));
            let sum = sums.entry((of.clone(), and.clone())).or_insert_with(|| AttemptsRow { of, and, ..AttemptsRow::default() });
            sum.attempts += 1;
            sum.answered += u64::from(attempt.result == AttemptResult::Answered);
            sum.excused += u64::from(is_excused(attempt));
            sum.tokens_input += attempt.tokens.prompt();
            sum.tokens_output += attempt.tokens.completion();
            sum.cost = NanoUsd(sum.cost.0.saturating_add(attempt.cost.map_or(0, |cost| cost.0)));
        }
    }
    sums.into_values().collect()
}
