//! Additions of a batch of records to the roll-ups.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use tollgate_core::UsageRecord;

use crate::{
    rollup::{
        AccountSumKey, AttemptSumKey, AttemptSums, FIVE_MINUTES, HOUR, KeySumKey, KeyTagSumKey, KeyTotalKey, Sums as _, TagSumKey,
        TimedSums, UsageSumKey, UsageSums, minute, tokens,
    },
    sql::{codes::Coded as _, usage_rows::RecordRefs},
};

/// Sums by the narrowest width of each table.
#[derive(Debug, Default)]
pub(in crate::sql) struct BatchSums {
    pub(in crate::sql) usage: SumsByKey<7, TimedSums>,
    pub(in crate::sql) keys: SumsByKey<10, UsageSums>,
    pub(in crate::sql) totals: SumsByKey<4, UsageSums>,
    pub(in crate::sql) accounts: SumsByKey<8, UsageSums>,
    pub(in crate::sql) tags: SumsByKey<6, UsageSums>,
    pub(in crate::sql) key_tags: SumsByKey<12, UsageSums>,
    pub(in crate::sql) attempts: SumsByKey<6, AttemptSums>,
}

/// Sums that are added to in any order.
#[derive(Debug, Default)]
pub(in crate::sql) struct SumsByKey<const N: usize, S> {
    sums: Vec<([i64; N], S)>,
    places: HashMap<[i64; N], usize, RandomState>,
    /// Index of the key that was used last: most consecutive records have the same key.
    last: usize,
}

impl<const N: usize, S: Default> SumsByKey<N, S> {
    fn of(&mut self, key: [i64; N]) -> &mut S {
        if self.sums.get(self.last).is_none_or(|(last, _)| *last != key) {
            self.last = *self.places.entry(key).or_insert_with(|| {
                self.sums.push((key, S::default()));
                self.sums.len() - 1
            });
        }
        &mut self.sums[self.last].1
    }

    pub(in crate::sql) fn sorted(self) -> BTreeMap<[i64; N], S> {
        self.sums.into_iter().collect()
    }
}

impl BatchSums {
    pub(in crate::sql) fn add(&mut self, record: &UsageRecord, refs: &RecordRefs) {
        let sums = UsageSums::of(record);
        let five_minutes = minute(record.at, FIVE_MINUTES);
        let (channel, account) = refs.subject.map_or((0, 0), |at| (refs.attempts[at].channel, refs.attempts[at].account));
        let (group, model, reason) = (refs.group.unwrap_or(0), refs.model.unwrap_or(0), refs.reason.unwrap_or(0));
        let (protocol, outcome) = (record.protocol_in.code(), record.outcome.code());
        let key: UsageSumKey = [five_minutes, group, model, channel, protocol, outcome, reason];
        self.usage.of(key).add(record, &sums);
        let key: KeySumKey = [five_minutes, refs.key, refs.member, group, model, channel, account, protocol, outcome, reason];
        self.keys.of(key).merge(&sums);
        let hour = minute(record.at, HOUR);
        let key: KeyTotalKey = [hour, refs.key, refs.member, outcome];
        self.totals.of(key).merge(&sums);
        for (tag, value) in refs.tags.iter().map(|tag| tag.summed()) {
            let key: TagSumKey = [five_minutes, tag, value, group, model, outcome];
            self.tags.of(key).merge(&sums);
            let (key, member) = (refs.key, refs.member);
            let key: KeyTagSumKey =
                [five_minutes, key, member, tag, value, group, model, channel, account, protocol, outcome, reason];
            self.key_tags.of(key).merge(&sums);
        }
        let key: AccountSumKey = [five_minutes, account, group, model, channel, protocol, outcome, reason];
        self.accounts.of(key).merge(&sums);
        for (attempt, refs) in record.attempts.iter().zip(&refs.attempts) {
            let key: AttemptSumKey = [hour, refs.channel, refs.account, model, attempt.result.code(), refs.error.unwrap_or(0)];
            let (input, output) = tokens(&attempt.tokens);
            let cost = attempt.cost.map_or(0, |cost| cost.0);
            let sums = AttemptSums { attempts: 1, tokens_input: input, tokens_output: output, cost };
            self.attempts.of(key).merge(&sums);
        }
    }
}
