//! The tables that usage records are written to, and the conversion of records to rows.

use std::collections::BTreeMap;

use tollgate_core::{AttemptRecord, Multiplier, RequestId, Tokens, UsageRecord};

use super::row_batch::{OnConflict, RowBatch, TableStatements, TargetTable};
use crate::{
    rollup::{AttemptSumKey, AttemptSums, MINUTE, TimedSums, UsageSumKey, UsageSums},
    sql::{
        codes::Coded,
        columns::{self, Column, big, bytes, int, text},
        names::NameText,
        sum_tables::{self, SumTable},
        tags,
        usage_rows::{AttemptRefs, RecordRefs},
    },
};

pub(super) static NAMES: TargetTable = table("names", columns::NAMES, OnConflict::Fail);
pub(super) static USAGE: TargetTable = table("usage", columns::USAGE, OnConflict::Fail);
pub(super) static ATTEMPTS: TargetTable = table("attempts", columns::ATTEMPTS, OnConflict::Fail);
pub(super) static REMOVED: TargetTable = table("removed", &[bytes("id")], OnConflict::Fail);
pub(super) static RECENT_BATCHES: TargetTable = table("recent_batches", &[big("batch"), bytes("ids")], OnConflict::Fail);
/// Ledger entries of batches. Postings also use the column `idempotency_key`.
pub(super) static LEDGER: TargetTable = table("ledger", LEDGER_COLUMNS, OnConflict::Fail);
pub(super) static BALANCES: TargetTable = table("balances", &[text("member_id"), big("balance")], OnConflict::Replace { key: 1 });
pub(super) static TAG_VALUES: TargetTable = table("tag_values", TAG_VALUE_COLUMNS, OnConflict::Fail);
pub(super) static USAGE_SUMS: TargetTable = sums(&sum_tables::USAGE_SUMS);
pub(super) static KEY_SUMS: TargetTable = packed(&sum_tables::KEY_SUMS);
pub(super) static KEY_TOTALS: TargetTable = packed(&sum_tables::KEY_TOTALS);
pub(super) static KEY_DAYS: TargetTable = sums(&sum_tables::KEY_DAYS);
pub(super) static ACCOUNT_SUMS: TargetTable = sums(&sum_tables::ACCOUNT_SUMS);
pub(super) static TAG_SUMS: TargetTable = sums(&sum_tables::TAG_SUMS);
pub(super) static KEY_TAG_SUMS: TargetTable = packed(&sum_tables::KEY_TAG_SUMS);
pub(super) static ATTEMPT_SUMS: TargetTable = sums(&sum_tables::ATTEMPT_SUMS);

const TAG_VALUE_COLUMNS: &[Column] = &[int("month"), int("place"), int("tag"), int("value"), int("member")];

const LEDGER_COLUMNS: &[Column] = &[
    big("seq"),
    text("member_id"),
    big("at"),
    text("kind"),
    big("amount"),
    big("balance"),
    big("batch"),
    big("requests"),
    big("first_at"),
    big("last_at"),
    text("parts"),
    text("note"),
    text("actor"),
];

const fn table(name: &'static str, columns: &'static [Column], on_conflict: OnConflict) -> TargetTable {
    TargetTable { name, columns, on_conflict, statements: TableStatements::new() }
}

const fn sums(table: &SumTable) -> TargetTable {
    self::table(table.name, table.columns, OnConflict::Add { key: table.key })
}

/// The packed sums of a part replace the stored ones, which they include.
const fn packed(table: &SumTable) -> TargetTable {
    self::table(table.name, sum_tables::PACKED_COLUMNS, OnConflict::Replace { key: sum_tables::PACKED_KEY })
}

/// The counts of each kind.
fn tokens(rows: &mut RowBatch, tokens: &Tokens) {
    rows.count(tokens.input).count(tokens.output).count(tokens.cache_read).count(tokens.cache_write).count(tokens.cache_write_1h);
    rows.count(tokens.thinking).count(tokens.image).count(tokens.audio);
}

pub(super) fn names<'a>(texts: impl ExactSizeIterator<Item = (&'a NameText, i64)>) -> RowBatch {
    let mut rows = RowBatch::with_capacity(&NAMES, texts.len());
    for (text, number) in texts {
        rows.number(number).number(text.kind.code()).display(&text.stored_id()).text(&text.name);
    }
    rows
}

/// Ids of records that arrived so late that retention may already have passed their time.
pub(super) fn removed(ids: impl Iterator<Item = RequestId>) -> RowBatch {
    let mut rows = RowBatch::with_capacity(&REMOVED, 0);
    for id in ids {
        rows.blob(id.uuid().as_bytes());
    }
    rows
}

/// The row of a batch with the ids of its records.
pub(super) fn recent_batch(batch: i64, records: &[(&UsageRecord, RecordRefs)]) -> RowBatch {
    let mut rows = RowBatch::with_capacity(&RECENT_BATCHES, 1);
    let ids: Vec<u8> = records.iter().flat_map(|(record, _)| *record.id.uuid().as_bytes()).collect();
    rows.number(batch).blob(&ids);
    rows
}

/// Rows of names and values that have sums: month, place, numbers of name, value and member.
pub(super) fn tag_values(values: &[[i64; 5]]) -> RowBatch {
    let mut rows = RowBatch::with_capacity(&TAG_VALUES, values.len());
    for row in values {
        numbers(&mut rows, row);
    }
    rows
}

/// Rows of records. `booked` is the ledger's last position after the batch.
pub(super) fn usage(records: &[(&UsageRecord, RecordRefs)], booked: i64) -> RowBatch {
    let mut rows = RowBatch::with_capacity(&USAGE, records.len());
    for (record, refs) in records {
        let subject = refs.subject.map(|at| refs.attempts[at]);
        rows.blob(record.id.uuid().as_bytes()).number(record.at.0.rem_euclid(1_000)).number(refs.key).number(refs.member);
        rows.maybe(refs.group).maybe(refs.model);
        rows.maybe(subject.map(|it| it.channel)).maybe(subject.map(|it| it.account));
        rows.number(record.protocol_in.code())
            .number(record.method.code())
            .number(i64::from(record.stream))
            .maybe(record.finish.map(Coded::code));
        rows.number(i64::from(record.status));
        rows.number(record.outcome.code()).maybe(refs.reason);
        tokens(&mut rows, &record.tokens);
        rows.maybe(record.cost.map(|cost| cost.0)).maybe(record.sale.map(|sale| sale.0));
        rows.maybe_count(record.ttft_us).count(record.duration_us).number(booked);
        rows.maybe_text(record.address.as_deref()).maybe_text(record.client_request_id.as_deref());
        rows.maybe_text(record.client.as_deref());
        rows.count(record.attempts.len() as u64);
        rows.maybe_text(refs.inline.and_then(|at| record.attempts[at].upstream_request_id.as_deref()));
        rows.encoded(|bytes| refs.packed(record).encode(bytes)).maybe_text(refs.extra(record).as_deref());
        rows.maybe_text(tags::text(&record.tags, &refs.tags).as_deref());
    }
    rows
}

/// `None` for a factor of one, which most rows have: NULL takes no space.
fn other_than_one(multiplier: Multiplier) -> Option<i64> {
    (!multiplier.is_one()).then_some(multiplier.0)
}

pub(super) fn attempts(records: &[(&UsageRecord, RecordRefs)]) -> RowBatch {
    let mut rows = RowBatch::with_capacity(&ATTEMPTS, 0);
    for (record, refs) in records {
        for (position, attempt) in refs.others(record) {
            push_attempt(&mut rows, record.id, position, attempt, refs.attempts[position]);
        }
    }
    rows
}

fn push_attempt(rows: &mut RowBatch, id: RequestId, position: usize, attempt: &AttemptRecord, refs: AttemptRefs) {
    rows.blob(id.uuid().as_bytes()).count(position as u64).number(refs.channel).number(refs.account).number(refs.upstream_model);
    rows.number(attempt.protocol.code()).number(attempt.at.0).maybe(attempt.status.map(i64::from)).number(attempt.result.code());
    rows.maybe(refs.error);
    tokens(rows, &attempt.tokens);
    rows.number(attempt.tokens.source.code()).count(attempt.tokens.web_searches);
    rows.maybe(attempt.cost.map(|cost| cost.0)).maybe_count(attempt.first_byte_us).count(attempt.duration_us);
    rows.maybe_text(attempt.upstream_request_id.as_deref()).number(i64::from(attempt.hedged));
    rows.maybe(other_than_one(attempt.cost_multiplier)).maybe_text(attempt.message.as_deref());
    rows.maybe_count(attempt.sent_us);
}

/// Rows of sums over all keys by their width; the histograms replace the stored ones.
pub(super) fn usage_sums(sums: &[(i64, BTreeMap<UsageSumKey, TimedSums>)]) -> RowBatch {
    sum_rows(&USAGE_SUMS, sums, |rows, sums| {
        numbers(rows, &sums.figures());
        for histogram in sums.times.each() {
            rows.blob(&histogram.encode());
        }
    })
}

/// Rows of sums over records by their width.
pub(super) fn record_sums<const N: usize>(table: &TargetTable, sums: &[(i64, BTreeMap<[i64; N], UsageSums>)]) -> RowBatch {
    sum_rows(table, sums, |rows, sums| numbers(rows, &sums.0))
}

/// Rows of packed sums of a width in minutes: the minute, the part, and the value of each.
pub(super) fn packed_sums(
    table: &TargetTable,
    width: i64,
    parts: impl ExactSizeIterator<Item = ((i64, i64), Vec<u8>)>,
) -> RowBatch {
    let mut rows = RowBatch::with_capacity(table, parts.len());
    for ((minute, part), sums) in parts {
        rows.number(width).number(minute).number(part).blob(&sums);
    }
    rows
}

pub(super) fn attempt_sums(sums: &[(i64, BTreeMap<AttemptSumKey, AttemptSums>)]) -> RowBatch {
    sum_rows(&ATTEMPT_SUMS, sums, |rows, sums| numbers(rows, &sums.figures()))
}

fn sum_rows<const N: usize, S>(
    table: &TargetTable,
    sums: &[(i64, BTreeMap<[i64; N], S>)],
    figures: impl Fn(&mut RowBatch, &S),
) -> RowBatch {
    let mut rows = RowBatch::with_capacity(table, sums.iter().map(|(_, sums)| sums.len()).sum());
    for (width, sums) in sums {
        for (key, sums) in sums {
            rows.number(width / MINUTE);
            numbers(&mut rows, key);
            figures(&mut rows, sums);
        }
    }
    rows
}

fn numbers(rows: &mut RowBatch, numbers: &[i64]) {
    for number in numbers {
        rows.number(*number);
    }
}
