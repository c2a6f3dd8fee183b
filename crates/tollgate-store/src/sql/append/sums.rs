//! What a batch of records adds to the roll-ups.

use std::collections::BTreeMap;

use tollgate_core::UsageRecord;

use crate::{
    rollup::{
        AttemptSumKey, AttemptSums, FIVE_MINUTES, HOUR, KeySumKey, Sums as _, TimedSums, UsageSumKey, UsageSums, minute, tokens,
    },
    sql::{codes::Coded as _, usage_rows::RecordRefs},
};

/// Sums by the narrowest width of each table.
#[derive(Debug, Default)]
pub(in crate::sql) struct BatchSums {
    pub(in crate::sql) usage: BTreeMap<UsageSumKey, TimedSums>,
    pub(in crate::sql) keys: BTreeMap<KeySumKey, UsageSums>,
    pub(in crate::sql) attempts: BTreeMap<AttemptSumKey, AttemptSums>,
}

impl BatchSums {
    pub(in crate::sql) fn add(&mut self, record: &UsageRecord, refs: &RecordRefs) {
        let sums = UsageSums::of(record);
        let (group, model) = (refs.group.unwrap_or(0), refs.model.unwrap_or(0));
        let outcome = record.outcome.code();
        let five_minutes = minute(record.at, FIVE_MINUTES);
        let channel = refs.subject.map_or(0, |at| refs.attempts[at].channel);
        let key = [five_minutes, group, model, channel, record.protocol_in.code(), outcome, refs.reason.unwrap_or(0)];
        let timed = self.usage.entry(key).or_default();
        timed.sums.merge(&sums);
        timed.duration.add(record.duration_us);
        if let Some(ttft) = record.ttft_us {
            timed.ttft.add(ttft);
        }
        self.keys.entry([five_minutes, refs.key, refs.member, group, model, outcome]).or_default().merge(&sums);
        for (attempt, refs) in record.attempts.iter().zip(&refs.attempts) {
            let hour = minute(record.at, HOUR);
            let key = [hour, refs.channel, refs.account, model, attempt.result.code(), refs.error.unwrap_or(0)];
            let (input, output) = tokens(&attempt.tokens);
            let cost = attempt.cost.map_or(0, |cost| cost.0);
            let sums = AttemptSums { attempts: 1, tokens_input: input, tokens_output: output, cost };
            self.attempts.entry(key).or_default().merge(&sums);
        }
    }
}
