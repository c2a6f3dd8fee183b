//! Roll-ups: sums over usage records by five minutes, hour and day, and over attempts by hour and day. Computes what a batch of new
//! records adds to them.

use std::collections::BTreeMap;

use tollgate_core::{AccountId, AttemptResult, ChannelId, KeyId, MemberId, Timestamp, Tokens, UsageRecord};

/// Microseconds of five minutes, of an hour and of a day.
pub(crate) const FIVE_MINUTES: i64 = 300_000_000;
pub(crate) const HOUR: i64 = 3_600_000_000;
pub(crate) const DAY: i64 = 24 * HOUR;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UsageRow {
    pub(crate) bucket: i64,
    pub(crate) key: KeyId,
    pub(crate) member: MemberId,
    /// Empty, like the model, if the request was refused before a group was chosen.
    pub(crate) group: String,
    pub(crate) model: String,
    pub(crate) outcome: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageSums {
    pub(crate) requests: i64,
    pub(crate) tokens_input: i64,
    pub(crate) tokens_output: i64,
    pub(crate) sale: i64,
    pub(crate) cost: i64,
    pub(crate) unpriced: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AttemptRow {
    pub(crate) bucket: i64,
    pub(crate) channel: ChannelId,
    pub(crate) account: AccountId,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttemptSums {
    pub(crate) attempts: i64,
    pub(crate) answered: i64,
    pub(crate) tokens_input: i64,
    pub(crate) tokens_output: i64,
    pub(crate) cost: i64,
}

/// The beginning of the bucket of a time; both in microseconds.
pub(crate) const fn bucket(at: Timestamp, width: i64) -> i64 {
    at.0.div_euclid(width) * width
}

/// Sums by five minutes.
pub(crate) fn usage<'a>(records: impl IntoIterator<Item = &'a UsageRecord>) -> BTreeMap<UsageRow, UsageSums> {
    let mut rows: BTreeMap<UsageRow, UsageSums> = BTreeMap::new();
    for record in records {
        let model = record.group.and(record.model.as_ref()).map_or_else(String::new, |model| model.replace('\0', "\u{fffd}"));
        let group = record.group.map_or_else(String::new, |group| group.to_string());
        let row = UsageRow {
            bucket: bucket(record.at, FIVE_MINUTES),
            key: record.key,
            member: record.member,
            group,
            model,
            outcome: record.outcome.as_str(),
        };
        let sums = rows.entry(row).or_default();
        let (input, output) = tokens(&record.tokens);
        sums.requests += 1;
        sums.tokens_input = sums.tokens_input.saturating_add(input);
        sums.tokens_output = sums.tokens_output.saturating_add(output);
        sums.sale = sums.sale.saturating_add(record.sale.map_or(0, |sale| sale.0));
        sums.cost = sums.cost.saturating_add(record.cost.map_or(0, |cost| cost.0));
        sums.unpriced += i64::from(record.sale.is_none());
    }
    rows
}

/// The same sums by wider buckets.
pub(crate) fn widen(rows: &BTreeMap<UsageRow, UsageSums>, width: i64) -> BTreeMap<UsageRow, UsageSums> {
    let mut wide: BTreeMap<UsageRow, UsageSums> = BTreeMap::new();
    for (row, add) in rows {
        let sums = wide.entry(UsageRow { bucket: bucket(Timestamp(row.bucket), width), ..row.clone() }).or_default();
        sums.requests = sums.requests.saturating_add(add.requests);
        sums.tokens_input = sums.tokens_input.saturating_add(add.tokens_input);
        sums.tokens_output = sums.tokens_output.saturating_add(add.tokens_output);
        sums.sale = sums.sale.saturating_add(add.sale);
        sums.cost = sums.cost.saturating_add(add.cost);
        sums.unpriced = sums.unpriced.saturating_add(add.unpriced);
    }
    wide
}

pub(crate) fn attempts<'a>(records: impl IntoIterator<Item = &'a UsageRecord>, width: i64) -> BTreeMap<AttemptRow, AttemptSums> {
    let mut rows: BTreeMap<AttemptRow, AttemptSums> = BTreeMap::new();
    for record in records {
        for attempt in &record.attempts {
            let row = AttemptRow { bucket: bucket(record.at, width), channel: attempt.channel, account: attempt.account };
            let sums = rows.entry(row).or_default();
            let (input, output) = tokens(&attempt.tokens);
            sums.attempts += 1;
            sums.answered += i64::from(attempt.result == AttemptResult::Answered);
            sums.tokens_input = sums.tokens_input.saturating_add(input);
            sums.tokens_output = sums.tokens_output.saturating_add(output);
            sums.cost = sums.cost.saturating_add(attempt.cost.map_or(0, |cost| cost.0));
        }
    }
    rows
}

fn tokens(tokens: &Tokens) -> (i64, i64) {
    let narrow = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    (narrow(tokens.prompt()), narrow(tokens.completion()))
}
