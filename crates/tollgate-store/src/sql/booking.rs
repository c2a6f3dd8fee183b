//! What booking new records does beside keeping them: ledger entries, balances, roll-ups. All in the transaction that
//! inserted the records, and only for those it inserted.

use std::collections::HashMap;

use sqlx::{Any, AnyConnection, Row as _};
use tollgate_core::{MemberId, NanoUsd, UsageRecord};

use super::{SqlStore, statement};
use crate::{
    LedgerKind, StoreError,
    ledger::settled,
    rollup::{self, DAY, HOUR},
};

const IDS_AT_ONCE: usize = 200;
const BOOK: &str = "book usage records";

const LEDGER_HEAD: &str =
    "INSERT INTO ledger (seq, member_id, at, kind, amount, balance, request_id, idempotency_key, note, actor) VALUES";
const LEDGER_WIDTH: usize = 10;

const USAGE_WIDTH: usize = 12;
const ATTEMPT_WIDTH: usize = 8;

/// `INSERT …` and the sums that are added to rows that are there.
macro_rules! add_usage {
    ($table:literal) => {
        (
            concat!(
                "INSERT INTO ",
                $table,
                " (bucket, key_id, member_id, group_id, model, outcome, requests, tokens_input, tokens_output, sale, cost, unpriced) VALUES"
            ),
            concat!(
                " ON CONFLICT (bucket, key_id, member_id, group_id, model, outcome) DO UPDATE SET requests = ",
                $table,
                ".requests + excluded.requests, tokens_input = ",
                $table,
                ".tokens_input + excluded.tokens_input, tokens_output = ",
                $table,
                ".tokens_output + excluded.tokens_output, sale = ",
                $table,
                ".sale + excluded.sale, cost = ",
                $table,
                ".cost + excluded.cost, unpriced = ",
                $table,
                ".unpriced + excluded.unpriced"
            ),
        )
    };
}

macro_rules! add_attempts {
    ($table:literal) => {
        (
            concat!(
                "INSERT INTO ",
                $table,
                " (bucket, channel_id, account_id, attempts, answered, tokens_input, tokens_output, cost) VALUES"
            ),
            concat!(
                " ON CONFLICT (bucket, channel_id, account_id) DO UPDATE SET attempts = ",
                $table,
                ".attempts + excluded.attempts, answered = ",
                $table,
                ".answered + excluded.answered, tokens_input = ",
                $table,
                ".tokens_input + excluded.tokens_input, tokens_output = ",
                $table,
                ".tokens_output + excluded.tokens_output, cost = ",
                $table,
                ".cost + excluded.cost"
            ),
        )
    };
}

const USAGE_TABLES: [((&str, &str), i64); 2] = [(add_usage!("usage_hours"), HOUR), (add_usage!("usage_days"), DAY)];
const ATTEMPT_TABLES: [((&str, &str), i64); 2] = [(add_attempts!("attempt_hours"), HOUR), (add_attempts!("attempt_days"), DAY)];

type Query<'q> = sqlx::query::Query<'q, Any, sqlx::any::AnyArguments>;

/// One entry as it is written.
pub(super) struct NewEntry<'a> {
    pub(super) seq: i64,
    pub(super) member: MemberId,
    pub(super) at: i64,
    pub(super) kind: LedgerKind,
    pub(super) amount: NanoUsd,
    pub(super) balance: NanoUsd,
    pub(super) request: Option<String>,
    pub(super) idempotency_key: Option<&'a str>,
    pub(super) note: &'a str,
    pub(super) actor: &'a str,
}

impl SqlStore {
    /// Enters what new records cost, and adds them to the roll-ups.
    pub(super) async fn book(&self, connection: &mut AnyConnection, new: &[&UsageRecord]) -> Result<(), StoreError> {
        if new.is_empty() {
            return Ok(());
        }
        self.roll_up(connection, new).await?;
        let sold: Vec<(&UsageRecord, NanoUsd)> =
            new.iter().filter_map(|record| record.sale.filter(|sale| *sale != NanoUsd::ZERO).map(|sale| (*record, sale))).collect();
        if sold.is_empty() {
            return Ok(());
        }
        let last = self.next_places(connection, sold.len()).await?;
        let mut balances = self.balances_of(connection, sold.iter().map(|(record, _)| record.member)).await?;
        let first = last - i64::try_from(sold.len()).unwrap_or(i64::MAX) + 1;
        let entries: Vec<NewEntry<'_>> = (first..)
            .zip(&sold)
            .map(|(seq, (record, sale))| {
                let balance = balances.entry(record.member).or_default();
                let (after, amount) = settled(*balance, NanoUsd(sale.0.saturating_neg()));
                *balance = after;
                NewEntry {
                    seq,
                    member: record.member,
                    at: record.at.0,
                    kind: LedgerKind::Settle,
                    amount,
                    balance: after,
                    request: Some(record.id.to_string()),
                    idempotency_key: None,
                    note: "",
                    actor: "",
                }
            })
            .collect();
        self.enter(connection, &entries).await?;
        let balances: Vec<(MemberId, NanoUsd)> = balances.into_iter().collect();
        self.write_balances(connection, &balances).await
    }

    /// Takes the next places of the ledger: the last of them. Whoever else wants some waits for the end of this
    /// transaction.
    pub(super) async fn next_places(&self, connection: &mut AnyConnection, count: usize) -> Result<i64, StoreError> {
        let failed = |error| self.failed(BOOK, error);
        let sql = "UPDATE counters SET value = value + $1 WHERE name = 'ledger' RETURNING value";
        let row = sqlx::query(sql).bind(i64::try_from(count).unwrap_or(i64::MAX)).fetch_one(connection).await.map_err(failed)?;
        row.try_get(0).map_err(failed)
    }

    /// What these members have.
    pub(super) async fn balances_of(
        &self,
        connection: &mut AnyConnection,
        members: impl Iterator<Item = MemberId>,
    ) -> Result<HashMap<MemberId, NanoUsd>, StoreError> {
        let failed = |error| self.failed(BOOK, error);
        let mut members: Vec<MemberId> = members.collect();
        members.sort_unstable();
        members.dedup();
        let mut balances = HashMap::new();
        for members in members.chunks(IDS_AT_ONCE) {
            let sql =
                statement::list(self.dialect, "SELECT member_id, balance FROM balances WHERE member_id IN (", members.len(), ")");
            let query = members.iter().fold(sqlx::query(sql), |query, member| query.bind(member.to_string()));
            for row in query.fetch_all(&mut *connection).await.map_err(failed)? {
                let id: String = row.try_get(0).map_err(failed)?;
                let balance: i64 = row.try_get(1).map_err(failed)?;
                balances.extend(MemberId::parse(&id).map(|member| (member, NanoUsd(balance))));
            }
        }
        Ok(balances)
    }

    /// Writes entries.
    pub(super) async fn enter(&self, connection: &mut AnyConnection, entries: &[NewEntry<'_>]) -> Result<(), StoreError> {
        for entries in statement::pieces(entries) {
            let sql = statement::values(self.dialect, LEDGER_HEAD, entries.len(), LEDGER_WIDTH, "");
            let query = entries.iter().fold(sqlx::query(sql), |query, entry| {
                query
                    .bind(entry.seq)
                    .bind(entry.member.to_string())
                    .bind(entry.at)
                    .bind(entry.kind.as_str())
                    .bind(entry.amount.0)
                    .bind(entry.balance.0)
                    .bind(entry.request.clone())
                    .bind(entry.idempotency_key.map(str::to_owned))
                    .bind(entry.note.to_owned())
                    .bind(entry.actor.to_owned())
            });
            query.execute(&mut *connection).await.map_err(|error| self.failed(BOOK, error))?;
        }
        Ok(())
    }

    /// Writes balances.
    pub(super) async fn write_balances(
        &self,
        connection: &mut AnyConnection,
        balances: &[(MemberId, NanoUsd)],
    ) -> Result<(), StoreError> {
        const HEAD: &str = "INSERT INTO balances (member_id, balance) VALUES";
        const TAIL: &str = " ON CONFLICT (member_id) DO UPDATE SET balance = excluded.balance";
        for balances in statement::pieces(balances) {
            let sql = statement::values(self.dialect, HEAD, balances.len(), 2, TAIL);
            let query =
                balances.iter().fold(sqlx::query(sql), |query, (member, balance)| query.bind(member.to_string()).bind(balance.0));
            query.execute(&mut *connection).await.map_err(|error| self.failed(BOOK, error))?;
        }
        Ok(())
    }

    async fn roll_up(&self, connection: &mut AnyConnection, new: &[&UsageRecord]) -> Result<(), StoreError> {
        for ((head, tail), width) in USAGE_TABLES {
            let rows: Vec<_> = rollup::usage(new.iter().copied(), width).into_iter().collect();
            for rows in statement::pieces(&rows) {
                let sql = statement::values(self.dialect, head, rows.len(), USAGE_WIDTH, tail);
                let query = rows.iter().fold(sqlx::query(sql), |query, (row, sums)| bind_usage(query, row, sums));
                query.execute(&mut *connection).await.map_err(|error| self.failed(BOOK, error))?;
            }
        }
        for ((head, tail), width) in ATTEMPT_TABLES {
            let rows: Vec<_> = rollup::attempts(new.iter().copied(), width).into_iter().collect();
            for rows in statement::pieces(&rows) {
                let sql = statement::values(self.dialect, head, rows.len(), ATTEMPT_WIDTH, tail);
                let query = rows.iter().fold(sqlx::query(sql), |query, (row, sums)| bind_attempts(query, row, sums));
                query.execute(&mut *connection).await.map_err(|error| self.failed(BOOK, error))?;
            }
        }
        Ok(())
    }
}

fn bind_usage<'q>(query: Query<'q>, row: &rollup::UsageRow, sums: &rollup::UsageSums) -> Query<'q> {
    query
        .bind(row.bucket)
        .bind(row.key.to_string())
        .bind(row.member.to_string())
        .bind(row.group.clone())
        .bind(row.model.clone())
        .bind(row.outcome)
        .bind(sums.requests)
        .bind(sums.tokens_input)
        .bind(sums.tokens_output)
        .bind(sums.sale)
        .bind(sums.cost)
        .bind(sums.unpriced)
}

fn bind_attempts<'q>(query: Query<'q>, row: &rollup::AttemptRow, sums: &rollup::AttemptSums) -> Query<'q> {
    query
        .bind(row.bucket)
        .bind(row.channel.to_string())
        .bind(row.account.to_string())
        .bind(sums.attempts)
        .bind(sums.answered)
        .bind(sums.tokens_input)
        .bind(sums.tokens_output)
        .bind(sums.cost)
}
