//! The tables of sums: their columns, and the widths of their buckets. Batches add to them, `verify` recomputes them, retention deletes
//! the narrowest buckets, and summaries choose the table with the fewest rows that has the columns they need.
//!
//! Sums of keys are packed, except those by days that SQL reads (`key_days`): ten thousand keys have hundreds of thousands of sums a day,
//! more than a database can add up in a fraction of a second if each is a row.

use super::columns::{Column, ColumnKind, big, bytes, int, small};
use crate::rollup::{ATTEMPT_WIDTHS, DAY, FIVE_MINUTES, TOTAL_WIDTHS, USAGE_WIDTHS};

/// The columns of a table of packed sums: the sums of a part of the keys.
pub(super) const PACKED_COLUMNS: &[Column] = &[int("width"), int("minute"), int("part"), bytes("sums")];
/// Number of columns of its key.
pub(super) const PACKED_KEY: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct SumTable {
    pub(super) name: &'static str,
    /// The key (`width`, `minute` and the dimensions), then the figures.
    pub(super) columns: &'static [Column],
    /// Number of columns of the key.
    pub(super) key: usize,
    /// Widths of the buckets in microseconds, the narrowest first.
    pub(super) widths: &'static [i64],
    pub(super) form: SumForm,
}

/// How sums are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SumForm {
    /// A row has the columns of the table.
    Rows,
    /// A row has [`PACKED_COLUMNS`]: the table's columns for a part of the keys are packed into one value.
    Packed,
}

impl SumTable {
    /// The columns that identify a row, besides its time.
    pub(super) fn dimensions(&self) -> &'static [Column] {
        &self.columns[2..self.key]
    }

    pub(super) fn has(&self, dimension: &str) -> bool {
        self.dimensions().iter().any(|column| column.name == dimension)
    }

    pub(super) fn is_packed(&self) -> bool {
        self.form == SumForm::Packed
    }

    /// Whether it has buckets of five minutes, which retention deletes with their records.
    pub(super) fn has_five_minutes(&self) -> bool {
        self.widths.first() == Some(&FIVE_MINUTES)
    }
}

impl Column {
    /// Whether a dimension's numbers are those of the dictionary; others are codes of words.
    pub(super) const fn is_text_number(&self) -> bool {
        matches!(self.kind, ColumnKind::Int)
    }
}

/// The figures of sums over records.
const FIGURES: [Column; 12] = [
    big("requests"),
    big("tokens_input"),
    big("tokens_output"),
    big("tokens_cache_read"),
    big("tokens_cache_write"),
    big("tokens_cache_write_1h"),
    big("tokens_thinking"),
    big("tokens_image"),
    big("tokens_audio"),
    big("sale"),
    big("cost"),
    big("unpriced"),
];
/// Further figures of sums over all keys, about complete answers that were streamed: their number, their output tokens without thinking,
/// and the microseconds from the first content to the end.
const STREAMED: [Column; 3] = [big("streamed"), big("streamed_tokens"), big("streamed_us")];
/// The histograms of sums over all keys.
const TIMES: [Column; 3] = [bytes("ttft"), bytes("duration"), bytes("overhead")];

const fn join<const N: usize>(parts: &[&[Column]]) -> [Column; N] {
    let (mut all, mut at, mut part) = ([int("width"); N], 1, 0);
    while part < parts.len() {
        let mut column = 0;
        while column < parts[part].len() {
            all[at] = parts[part][column];
            at += 1;
            column += 1;
        }
        part += 1;
    }
    assert!(at == N, "the number of columns");
    all
}

const USAGE_KEY: [Column; 7] =
    [int("minute"), int("grp"), int("model"), int("channel"), small("protocol_in"), small("outcome"), int("reason")];
/// Sums over all keys, with histograms.
pub(super) const USAGE_SUMS: SumTable = SumTable {
    name: "usage_sums",
    columns: &join::<{ 1 + USAGE_KEY.len() + FIGURES.len() + STREAMED.len() + TIMES.len() }>(&[
        &USAGE_KEY, &FIGURES, &STREAMED, &TIMES,
    ]),
    key: 1 + USAGE_KEY.len(),
    widths: &USAGE_WIDTHS,
    form: SumForm::Rows,
};

const KEYS_KEY: [Column; 10] = [
    int("minute"),
    int("key"),
    int("member"),
    int("grp"),
    int("model"),
    int("channel"),
    int("account"),
    small("protocol_in"),
    small("outcome"),
    int("reason"),
];
/// Sums of each key.
pub(super) const KEY_SUMS: SumTable = SumTable {
    name: "key_sums",
    columns: &join::<{ 1 + KEYS_KEY.len() + FIGURES.len() }>(&[&KEYS_KEY, &FIGURES]),
    key: 1 + KEYS_KEY.len(),
    widths: &USAGE_WIDTHS,
    form: SumForm::Packed,
};

const TOTALS_KEY: [Column; 4] = [int("minute"), int("key"), int("member"), small("outcome")];
/// Totals of each key over all models, groups and channels.
pub(super) const KEY_TOTALS: SumTable = SumTable {
    name: "key_totals",
    columns: &join::<{ 1 + TOTALS_KEY.len() + FIGURES.len() }>(&[&TOTALS_KEY, &FIGURES]),
    key: 1 + TOTALS_KEY.len(),
    widths: &TOTAL_WIDTHS,
    form: SumForm::Packed,
};

/// The totals by days as rows, in which an index finds those of one key or member.
pub(super) const KEY_DAYS: SumTable = SumTable { name: "key_days", widths: &[DAY], form: SumForm::Rows, ..KEY_TOTALS };

const ACCOUNTS_KEY: [Column; 8] = [
    int("minute"),
    int("account"),
    int("grp"),
    int("model"),
    int("channel"),
    small("protocol_in"),
    small("outcome"),
    int("reason"),
];
/// Sums of each account.
pub(super) const ACCOUNT_SUMS: SumTable = SumTable {
    name: "account_sums",
    columns: &join::<{ 1 + ACCOUNTS_KEY.len() + FIGURES.len() }>(&[&ACCOUNTS_KEY, &FIGURES]),
    key: 1 + ACCOUNTS_KEY.len(),
    widths: &USAGE_WIDTHS,
    form: SumForm::Rows,
};

const TAGS_KEY: [Column; 6] = [int("minute"), int("tag"), int("value"), int("grp"), int("model"), small("outcome")];
/// Sums of each value of a tag.
pub(super) const TAG_SUMS: SumTable = SumTable {
    name: "tag_sums",
    columns: &join::<{ 1 + TAGS_KEY.len() + FIGURES.len() }>(&[&TAGS_KEY, &FIGURES]),
    key: 1 + TAGS_KEY.len(),
    widths: &USAGE_WIDTHS,
    form: SumForm::Rows,
};

const KEY_TAGS_KEY: [Column; 12] = [
    int("minute"),
    int("key"),
    int("member"),
    int("tag"),
    int("value"),
    int("grp"),
    int("model"),
    int("channel"),
    int("account"),
    small("protocol_in"),
    small("outcome"),
    int("reason"),
];
/// Sums of each value of a tag, by key.
pub(super) const KEY_TAG_SUMS: SumTable = SumTable {
    name: "key_tag_sums",
    columns: &join::<{ 1 + KEY_TAGS_KEY.len() + FIGURES.len() }>(&[&KEY_TAGS_KEY, &FIGURES]),
    key: 1 + KEY_TAGS_KEY.len(),
    widths: &USAGE_WIDTHS,
    form: SumForm::Packed,
};

const ATTEMPTS_KEY: [Column; 6] = [int("minute"), int("channel"), int("account"), int("model"), small("result"), int("error")];
const ATTEMPT_FIGURES: [Column; 4] = [big("attempts"), big("tokens_input"), big("tokens_output"), big("cost")];
/// Over attempts.
pub(super) const ATTEMPT_SUMS: SumTable = SumTable {
    name: "attempt_sums",
    columns: &join::<{ 1 + ATTEMPTS_KEY.len() + ATTEMPT_FIGURES.len() }>(&[&ATTEMPTS_KEY, &ATTEMPT_FIGURES]),
    key: 1 + ATTEMPTS_KEY.len(),
    widths: &ATTEMPT_WIDTHS,
    form: SumForm::Rows,
};

/// The sums over records.
pub(super) const OF_RECORDS: [SumTable; 7] = [USAGE_SUMS, KEY_SUMS, KEY_TOTALS, KEY_DAYS, ACCOUNT_SUMS, TAG_SUMS, KEY_TAG_SUMS];
