//! The tables that usage records are written to, and the conversion of records to rows.

use serde::Serialize;
use tollgate_core::{AttemptRecord, RequestId, Tokens, UsageRecord};
use tollgate_protocol::{Method, Protocol};

use super::row_batch::{OnConflict, RowBatch, TargetTable};
use crate::{
    rollup::{AttemptRow, AttemptSums, UsageRow, UsageSums},
    sql::usage_rows::{ATTEMPT_COLUMNS, USAGE_COLUMNS},
};

pub(super) const USAGE: TargetTable = table("usage", USAGE_COLUMNS, OnConflict::Ignore);
pub(super) const ATTEMPTS: TargetTable = table("attempts", ATTEMPT_COLUMNS, OnConflict::Ignore);
/// Ledger entries of requests. Postings also use the column `idempotency_key`.
pub(super) const LEDGER: TargetTable =
    table("ledger", "seq, member_id, at, kind, amount, balance, request_id, note, actor", OnConflict::Fail);
pub(super) const BALANCES: TargetTable = table("balances", "member_id, balance", OnConflict::Replace { key: 1 });
pub(super) const USAGE_FIVE_MINUTES: TargetTable = table("usage_five_minutes", SUMS_OF_USAGE, OnConflict::Add { key: 6 });
pub(super) const USAGE_HOURS: TargetTable = table("usage_hours", SUMS_OF_USAGE, OnConflict::Add { key: 6 });
pub(super) const USAGE_DAYS: TargetTable = table("usage_days", SUMS_OF_USAGE, OnConflict::Add { key: 6 });
pub(super) const ATTEMPT_HOURS: TargetTable = table("attempt_hours", SUMS_OF_ATTEMPTS, OnConflict::Add { key: 3 });
pub(super) const ATTEMPT_DAYS: TargetTable = table("attempt_days", SUMS_OF_ATTEMPTS, OnConflict::Add { key: 3 });

const SUMS_OF_USAGE: &str =
    "bucket, key_id, member_id, group_id, model, outcome, requests, tokens_input, tokens_output, sale, cost, unpriced";
const SUMS_OF_ATTEMPTS: &str = "bucket, channel_id, account_id, attempts, answered, tokens_input, tokens_output, cost";

/// The columns of the type `BIGINT`; all others are `TEXT`.
const NUMBERS: &str = "at, stream, status, tokens_input, tokens_output, tokens_cache_read, tokens_cache_write, \
     tokens_cache_write_1h, tokens_thinking, tokens_image, \
     tokens_audio, cost, sale, price_version, ttft_us, duration_us, position, first_byte_us, beside, seq, amount, balance, \
     bucket, requests, unpriced, attempts, answered";

pub(super) fn is_number(column: &str) -> bool {
    NUMBERS.split(", ").any(|number| number == column)
}

const fn table(name: &'static str, columns: &'static str, on_conflict: OnConflict) -> TargetTable {
    TargetTable { name, columns, on_conflict }
}

const fn method_name(method: Method) -> &'static str {
    match method {
        Method::Chat => "chat",
        Method::Generate => "generate",
        Method::StreamGenerate => "stream_generate",
        Method::CountTokens => "count_tokens",
        Method::EmbedContent => "embed_content",
        Method::BatchEmbedContents => "batch_embed_contents",
        Method::Embeddings => "embeddings",
    }
}

fn json<T: Serialize>(rows: &mut RowBatch, list: &[T]) {
    if list.is_empty() {
        rows.text("[]");
    } else {
        rows.text(&serde_json::to_string(list).expect("lists of texts and trace entries serialise to JSON"));
    }
}

fn tokens(rows: &mut RowBatch, tokens: &Tokens) {
    rows.count(tokens.input).count(tokens.output).count(tokens.cache_read).count(tokens.cache_write).count(tokens.cache_write_1h);
    rows.count(tokens.thinking).count(tokens.image).count(tokens.audio).text(tokens.source.as_str());
}

pub(super) fn usage(records: &[&UsageRecord]) -> RowBatch {
    let mut rows = RowBatch::with_capacity(&USAGE, records.len());
    for record in records {
        rows.display(&record.id).number(record.at.0).display(&record.key).text(&record.key_name).display(&record.member);
        rows.maybe_display(record.group.as_ref()).maybe_text(record.group_name.as_deref());
        rows.text(record.protocol_in.as_str()).maybe_text(record.protocol_out.map(Protocol::as_str));
        rows.text(method_name(record.method)).maybe_text(record.model.as_deref());
        rows.number(i64::from(record.stream)).number(i64::from(record.status)).text(record.outcome.as_str());
        rows.maybe_text(record.reason.as_deref()).maybe_text(record.detail.as_deref());
        tokens(&mut rows, &record.tokens);
        rows.maybe(record.cost.map(|cost| cost.0)).maybe(record.sale.map(|sale| sale.0)).number(record.price_version.0);
        rows.maybe_count(record.ttft_us).count(record.duration_us);
        rows.maybe_text(record.address.as_deref()).maybe_text(record.client_request_id.as_deref());
        json(&mut rows, &record.dropped);
        json(&mut rows, &record.trace);
    }
    rows
}

pub(super) fn attempts(records: &[&UsageRecord]) -> RowBatch {
    let mut rows = RowBatch::with_capacity(&ATTEMPTS, records.iter().map(|record| record.attempts.len()).sum());
    for record in records {
        for (position, attempt) in (0..).zip(&record.attempts) {
            push_attempt(&mut rows, record.id, position, attempt);
        }
    }
    rows
}

fn push_attempt(rows: &mut RowBatch, id: RequestId, position: i64, attempt: &AttemptRecord) {
    rows.display(&id).number(position).display(&attempt.channel).text(&attempt.channel_name);
    rows.display(&attempt.account).text(&attempt.account_name).text(attempt.protocol.as_str()).text(&attempt.upstream_model);
    rows.number(attempt.at.0).maybe(attempt.status.map(i64::from)).text(attempt.result.as_str());
    rows.maybe_text(attempt.error.as_deref());
    tokens(rows, &attempt.tokens);
    rows.maybe(attempt.cost.map(|cost| cost.0)).maybe_count(attempt.first_byte_us).count(attempt.duration_us);
    rows.maybe_text(attempt.upstream_request_id.as_deref()).number(i64::from(attempt.hedged));
}

pub(super) fn usage_sums<'a>(table: &TargetTable, sums: impl ExactSizeIterator<Item = (&'a UsageRow, &'a UsageSums)>) -> RowBatch {
    let mut rows = RowBatch::with_capacity(table, sums.len());
    for (row, sums) in sums {
        rows.number(row.bucket).display(&row.key).display(&row.member).text(&row.group).text(&row.model).text(row.outcome);
        rows.number(sums.requests).number(sums.tokens_input).number(sums.tokens_output);
        rows.number(sums.sale).number(sums.cost).number(sums.unpriced);
    }
    rows
}

pub(super) fn attempt_sums<'a>(
    table: &TargetTable,
    sums: impl ExactSizeIterator<Item = (&'a AttemptRow, &'a AttemptSums)>,
) -> RowBatch {
    let mut rows = RowBatch::with_capacity(table, sums.len());
    for (row, sums) in sums {
        rows.number(row.bucket).display(&row.channel).display(&row.account).number(sums.attempts).number(sums.answered);
        rows.number(sums.tokens_input).number(sums.tokens_output).number(sums.cost);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_names_are_the_serialised_ones() {
        use Method::{BatchEmbedContents, Chat, CountTokens, EmbedContent, Embeddings, Generate, StreamGenerate};
        for method in [Chat, Generate, StreamGenerate, CountTokens, EmbedContent, BatchEmbedContents, Embeddings] {
            assert_eq!(serde_json::to_value(method).unwrap(), method_name(method));
        }
    }
}
