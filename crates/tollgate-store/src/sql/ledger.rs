//! The [`LedgerStore`] of the database.

use std::collections::BTreeSet;

use async_trait::async_trait;
use sqlx::{Any, AssertSqlSafe, Row as _, Transaction, any::AnyRow};
use tollgate_core::{GroupId, KeyId, MemberId, NanoUsd, RequestId, Timestamp};

use super::{
    append::NEXT_POSITIONS,
    cells::{Cells, FromCells, broken, request_id},
    chains::add_link,
    store::SqlStore,
    usage_filter::bind_ids,
    usage_reader::LookUp,
};
use crate::{
    Balance, CoveredRequests, LedgerEntry, LedgerFilter, LedgerKind, LedgerPosition, LedgerStore, Posting, PostingReceipt,
    PostingRefused, Spending, SpendingChanges, StoreError, VerifyReport, WorkControl,
    chain::{self, LedgerLinkRow},
    ledger::posted,
    rollup::{DAY, bucket},
};

const POST: &str = "post to the ledger";
const READ: &str = "read the ledger";
/// The balances of all members, in no order.
const BALANCES: &str = "SELECT m.id, m.name, COALESCE(b.balance, 0) AS balance FROM catalog_rows m \
                        LEFT JOIN balances b ON b.member_id = m.id \
                        WHERE m.kind = 'member' AND (m.removed_at IS NULL OR b.member_id IS NOT NULL) \
                        UNION ALL SELECT b.member_id, '', b.balance FROM balances b \
                        WHERE NOT EXISTS (SELECT 1 FROM catalog_rows m WHERE m.id = b.member_id)";
/// The condition of the index `ledger_posted`.
const IS_POSTED: &str = "kind <> 'settle'";
const HEDGE_COSTS: &str = "read the cost of hedged attempts";

const REQUESTS_AT_ONCE: usize = 500;

const COLUMNS: &str =
    "seq, member_id, at, kind, amount, balance, idempotency_key, note, actor, address, requests, first_at, last_at";
/// The columns of a posting: the first of [`COLUMNS`].
const POSTED: &str = "seq, member_id, at, kind, amount, balance, idempotency_key, note, actor, address";

impl FromCells for Balance {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let id = cells.text()?;
        let member = MemberId::parse(id).ok_or_else(|| broken(format!("'{id}' is not a member's id")))?;
        Ok(Self { member, name: cells.text()?.to_owned(), balance: NanoUsd(cells.number()?) })
    }
}

/// The entries that a filter selects, from the position `first` on if the filter has times; bind the position before which they
/// are, the member and the kind.
fn entries_sql(filter: &LedgerFilter, first: Option<i64>) -> String {
    // Only the index of top-ups and adjustments finds these few entries among millions of settlements.
    let posted = if matches!(filter.kind, Some(LedgerKind::TopUp | LedgerKind::Adjust)) { IS_POSTED } else { "1 = 1" };
    // The plus prevents the use of the index by time, which does not have the entries in this order.
    let of_period = first.map_or_else(String::new, |first| {
        let (since, until) = times(filter);
        format!(" AND seq >= {first} AND +at >= {since} AND +at < {until}")
    });
    format!(
        "SELECT {COLUMNS} FROM ledger WHERE seq < $1 AND (CAST($2 AS TEXT) IS NULL OR member_id = $2) \
         AND (CAST($3 AS TEXT) IS NULL OR kind = $3) AND {posted}{of_period} ORDER BY seq DESC LIMIT {}",
        filter.size()
    )
}

/// The first and the last position of the entries of a period, by the index by time. The sums with 0 prevent databases from
/// searching for them position by position.
fn positions_sql(filter: &LedgerFilter) -> String {
    let (since, until) = times(filter);
    format!("SELECT MIN(seq + 0), MAX(seq + 0) FROM ledger WHERE at >= {since} AND at < {until}")
}

fn times(filter: &LedgerFilter) -> (i64, i64) {
    (filter.since.map_or(i64::MIN + 1, |since| since.0), filter.until.map_or(i64::MAX, |until| until.0))
}

/// The first and the last position of a period; `None` if it has no entries.
struct Positions(Option<(i64, i64)>);

impl FromCells for Positions {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let (first, last) = (cells.maybe()?, cells.maybe()?);
        Ok(Self(first.zip(last)))
    }
}

/// Top-ups and adjustments after the bound position.
fn posted_since_sql() -> String {
    format!("SELECT {COLUMNS} FROM ledger WHERE seq > $1 AND {IS_POSTED} ORDER BY seq")
}

impl SqlStore {
    async fn post_in(
        &self,
        transaction: &mut Transaction<'static, Any>,
        posting: &Posting,
        now: Timestamp,
    ) -> Result<PostingReceipt, StoreError> {
        let failed = |error| self.failed(POST, error);
        // Taking a position locks the counter: concurrent postings with one idempotency key run one after the other, and the later
        // ones find the entry.
        let row = sqlx::query(NEXT_POSITIONS).bind(1_i64).fetch_one(&mut **transaction).await.map_err(failed)?;
        let seq: i64 = row.try_get(0).map_err(failed)?;
        let sql = "SELECT COUNT(*) FROM catalog_rows WHERE id = $1 AND kind = 'member'";
        let row = sqlx::query(sql).bind(posting.member.to_string()).fetch_one(&mut **transaction).await.map_err(failed)?;
        if row.try_get::<i64, _>(0).map_err(failed)? == 0 {
            return Err(PostingRefused::NoMember(posting.member).into());
        }
        if let Some(key) = &posting.idempotency_key {
            let sql = AssertSqlSafe(format!("SELECT {COLUMNS} FROM ledger WHERE idempotency_key = $1"));
            let existing = sqlx::query(sql).bind(key.clone()).fetch_optional(&mut **transaction).await.map_err(failed)?;
            if let Some(row) = existing {
                return Ok(posting.repeats(entry(&row).map_err(failed)?)?);
            }
        }
        let sql = "SELECT balance FROM balances WHERE member_id = $1";
        let row = sqlx::query(sql).bind(posting.member.to_string()).fetch_optional(&mut **transaction).await.map_err(failed)?;
        let before = row.map_or(Ok(0), |row| row.try_get(0)).map_err(failed)?;
        let balance = posted(NanoUsd(before), posting.amount)?;
        let entry = LedgerEntry {
            position: LedgerPosition(seq),
            member: posting.member,
            at: now,
            kind: posting.kind.into(),
            amount: posting.amount,
            balance,
            covers: None,
            idempotency_key: posting.idempotency_key.clone(),
            note: posting.note.clone(),
            actor: posting.actor.clone(),
            address: posting.address_text(),
        };
        self.insert(transaction, &entry).await?;
        Ok(PostingReceipt { entry, repeated: false })
    }

    async fn insert(&self, transaction: &mut Transaction<'static, Any>, entry: &LedgerEntry) -> Result<(), StoreError> {
        let failed = |error| self.failed(POST, error);
        const BALANCE: &str = "INSERT INTO balances (member_id, balance) VALUES ($1, $2) \
             ON CONFLICT (member_id) DO UPDATE SET balance = excluded.balance";
        let sql = AssertSqlSafe(format!("INSERT INTO ledger ({POSTED}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"));
        let query = sqlx::query(sql)
            .bind(entry.position.0)
            .bind(entry.member.to_string())
            .bind(entry.at.0)
            .bind(entry.kind.as_str())
            .bind(entry.amount.0)
            .bind(entry.balance.0)
            .bind(entry.idempotency_key.clone())
            .bind(entry.note.clone())
            .bind(entry.actor.clone())
            .bind(entry.address.clone());
        query.execute(&mut **transaction).await.map_err(failed)?;
        let query = sqlx::query(BALANCE).bind(entry.member.to_string()).bind(entry.balance.0);
        query.execute(&mut **transaction).await.map_err(failed)?;
        let (seq, member) = (entry.position.0, entry.member.to_string());
        let row = LedgerLinkRow {
            seq,
            member: &member,
            at: entry.at.0,
            kind: entry.kind.as_str(),
            amount: entry.amount.0,
            balance: entry.balance.0,
            covered: None,
            parts: None,
            idempotency_key: entry.idempotency_key.as_deref(),
            note: &entry.note,
            actor: &entry.actor,
            address: entry.address.as_deref(),
        };
        let linked = add_link(transaction, &self.books.chain, chain::LEDGER, (seq, seq), |mac| row.add_to(mac)).await;
        linked.map_err(failed)
    }

    pub(super) async fn ledger_position(&self, transaction: &mut Transaction<'static, Any>) -> Result<LedgerPosition, StoreError> {
        let failed = |error| self.failed(READ, error);
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'ledger'").fetch_one(&mut **transaction).await;
        row.and_then(|row| row.try_get(0)).map(LedgerPosition).map_err(failed)
    }
}

#[async_trait]
impl LedgerStore for SqlStore {
    async fn post(&self, posting: &Posting, now: Timestamp) -> Result<PostingReceipt, StoreError> {
        posting.check()?;
        let mut transaction = self.begin(POST).await?;
        let posted = self.post_in(&mut transaction, posting, now).await?;
        // Dropping the transaction of a repeated posting gives its position back.
        if !posted.repeated {
            self.commit(POST, transaction).await?;
        }
        Ok(posted)
    }

    async fn entries(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError> {
        let (mut first, mut before) = (None, filter.before.map_or(i64::MAX, |before| before.0));
        if filter.since.is_some() || filter.until.is_some() {
            // Entries are in the order in which they were booked, which is almost that of their times: those of a period are close
            // together.
            let found = self.usage_reader.rows::<Positions>(READ, positions_sql(filter), Vec::new()).await?;
            let Some(Positions(Some((begin, end)))) = found.into_iter().next() else { return Ok(Vec::new()) };
            (first, before) = (Some(begin), before.min(end.saturating_add(1)));
        }
        let query = sqlx::query(AssertSqlSafe(entries_sql(filter, first)))
            .bind(before)
            .bind(filter.member.map(|member| member.to_string()))
            .bind(filter.kind.map(LedgerKind::as_str));
        self.fetch_as(READ, query, entry).await
    }

    async fn balances(&self) -> Result<Vec<Balance>, StoreError> {
        self.usage_reader.rows(READ, format!("{BALANCES} ORDER BY 2, 1"), Vec::new()).await
    }

    async fn balances_of(&self, members: Vec<MemberId>) -> Result<Vec<Balance>, StoreError> {
        let ids = LookUp::Texts(members.iter().map(MemberId::to_string).collect());
        self.usage_reader.rows_with(READ, format!("SELECT id, name, balance FROM ({BALANCES}) AS t WHERE id"), ids).await
    }

    async fn posted_since(&self, position: LedgerPosition) -> Result<(Vec<LedgerEntry>, LedgerPosition), StoreError> {
        let failed = |error| self.failed(READ, error);
        let mut transaction = self.snapshot(READ).await?;
        let last = self.ledger_position(&mut transaction).await?;
        let rows =
            sqlx::query(AssertSqlSafe(posted_since_sql())).bind(position.0).fetch_all(&mut *transaction).await.map_err(failed)?;
        Ok((rows.iter().map(entry).collect::<Result<_, _>>().map_err(failed)?, last))
    }

    async fn spending(&self, now: Timestamp) -> Result<Spending, StoreError> {
        self.all_spending(now).await
    }

    async fn spending_since(&self, position: LedgerPosition, now: Timestamp) -> Result<SpendingChanges, StoreError> {
        self.spending_changes(position, now).await
    }

    async fn keys_spent_since(&self, position: LedgerPosition) -> Result<(BTreeSet<KeyId>, LedgerPosition), StoreError> {
        self.keys_of_entries(position).await
    }

    async fn positions(&self, requests: &[RequestId]) -> Result<Vec<(RequestId, LedgerPosition)>, StoreError> {
        let mut found = Vec::new();
        for requests in requests.chunks(REQUESTS_AT_ONCE) {
            let sql = self.dialect.list("SELECT id, booked FROM usage WHERE id IN (", requests.len(), ")");
            let read = |row: &AnyRow| Ok((request_id(row.try_get(0)?)?, LedgerPosition(row.try_get(1)?)));
            found.extend(self.fetch_as(READ, bind_ids(sqlx::query(sql), requests), read).await?);
        }
        Ok(found)
    }

    async fn hedge_costs(&self, now: Timestamp) -> Result<Vec<(GroupId, NanoUsd)>, StoreError> {
        // PostgreSQL sums BIGINT to NUMERIC.
        const SQL: &str = "SELECT n.id, CAST(SUM(a.cost) AS BIGINT) FROM attempts a JOIN usage u ON u.id = a.request \
             JOIN names n ON n.ref = u.grp WHERE a.beside = 1 AND a.at >= $1 AND a.cost IS NOT NULL GROUP BY n.id ORDER BY n.id";
        let read = |row: &AnyRow| Ok((id(row, 0, GroupId::parse)?, NanoUsd(row.try_get(1)?)));
        self.fetch_as(HEDGE_COSTS, sqlx::query(SQL).bind(bucket(now, DAY)), read).await
    }

    async fn verify(&self, now: Timestamp, control: &WorkControl) -> Result<VerifyReport, StoreError> {
        self.verify_all(now, control).await
    }
}

fn id<T>(row: &AnyRow, at: usize, parse: impl Fn(&str) -> Option<T>) -> Result<T, sqlx::Error> {
    let text: String = row.try_get(at)?;
    parse(&text).ok_or_else(|| sqlx::Error::Decode(format!("'{text}' is not an id").into()))
}

fn entry(row: &AnyRow) -> Result<LedgerEntry, sqlx::Error> {
    let kind: String = row.try_get(3)?;
    let kind = LedgerKind::parse(&kind).ok_or_else(|| sqlx::Error::Decode(format!("'{kind}' is not a kind of entry").into()))?;
    Ok(LedgerEntry {
        position: LedgerPosition(row.try_get(0)?),
        member: id(row, 1, MemberId::parse)?,
        at: Timestamp(row.try_get(2)?),
        kind,
        amount: NanoUsd(row.try_get(4)?),
        balance: NanoUsd(row.try_get(5)?),
        covers: covered(row)?,
        idempotency_key: row.try_get(6)?,
        note: row.try_get(7)?,
        actor: row.try_get(8)?,
        address: row.try_get(9)?,
    })
}

fn covered(row: &AnyRow) -> Result<Option<CoveredRequests>, sqlx::Error> {
    let numbers: [Option<i64>; 3] = [row.try_get(10)?, row.try_get(11)?, row.try_get(12)?];
    let [Some(count), Some(first), Some(last)] = numbers else { return Ok(None) };
    let count = u64::try_from(count).unwrap_or(0);
    Ok(Some(CoveredRequests { count, first: Timestamp(first), last: Timestamp(last) }))
}

#[cfg(test)]
mod tests;
