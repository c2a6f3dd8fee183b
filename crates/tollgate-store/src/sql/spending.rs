//! Spending by subject: everything, for the initial state of counters, and afterwards only changes.
//!
//! Bounds: reading everything streams one row per subject; changes are read 20,000 ledger entries at a time, with the sums of 200
//! subjects per statement.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt as _;
use sqlx::{Any, AssertSqlSafe, Row as _, Transaction, any::AnyRow};
use tollgate_core::{ChannelId, GroupId, KeyId, MemberId, NanoUsd, SpendTotals, Subject, Timestamp};

use super::{names::NameKind, store::SqlStore, usage::names_on};
use crate::{
    LedgerPosition, Spending, SpendingChanges, StoreError,
    rollup::{DAY, minute},
};

const SPENDING: &str = "read spending";
/// Ledger entries per call of [`SqlStore::spending_changes`] and [`SqlStore::keys_of_entries`].
const MAX_ENTRIES: i64 = 20_000;
const SUBJECTS_AT_ONCE: usize = 200;

/// Sums of one column of a daily roll-up by subject: since `$1` (today), since `$2` (this month), and in total; both are minutes.
macro_rules! spent {
    ($table:literal, $of:literal, $amount:literal) => {
        concat!(
            "SELECT n.id, CAST(SUM(CASE WHEN s.minute >= $1 THEN ",
            $amount,
            " ELSE 0 END) AS BIGINT), CAST(SUM(CASE WHEN s.minute >= $2 THEN ",
            $amount,
            " ELSE 0 END) AS BIGINT), CAST(SUM(",
            $amount,
            ") AS BIGINT) FROM ",
            $table,
            " s JOIN names n ON n.ref = s.",
            $of,
            " WHERE s.width = 1440 GROUP BY n.id"
        )
    };
}

const BY_CHANNEL: &str = spent!("attempt_sums", "channel", "s.cost");
const BY_KEY: &str = spent!("key_days", "key", "s.sale");
const BY_MEMBER: &str = spent!("key_days", "member", "s.sale");
const BY_GROUP: &str = spent!("usage_sums", "grp", "s.sale");
const OF_THE_GATEWAY: &str = "SELECT 'all', CAST(SUM(CASE WHEN minute >= $1 THEN sale ELSE 0 END) AS BIGINT), \
     CAST(SUM(CASE WHEN minute >= $2 THEN sale ELSE 0 END) AS BIGINT), CAST(SUM(sale) AS BIGINT) \
     FROM usage_sums WHERE width = 1440 HAVING COUNT(*) > 0";

fn channel(id: &str) -> Option<Subject> {
    ChannelId::parse(id).map(Subject::Channel)
}

fn key(id: &str) -> Option<Subject> {
    KeyId::parse(id).map(Subject::Key)
}

fn member(id: &str) -> Option<Subject> {
    MemberId::parse(id).map(Subject::Member)
}

fn group(id: &str) -> Option<Subject> {
    GroupId::parse(id).map(Subject::Group)
}

/// Whether to include groups, channels and the gateway, which requires reading the whole daily roll-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpendingScope {
    With,
    Without,
}

/// A column of `key_days` by which sums are read for given ids, with its kind of text, and the subject of an id.
type SubjectColumn = (&'static str, NameKind, fn(&str) -> Option<Subject>);

const KEY: SubjectColumn = ("key", NameKind::Key, key);
const MEMBER: SubjectColumn = ("member", NameKind::Member, member);

impl SqlStore {
    /// The spending of all subjects, in one snapshot.
    pub(super) async fn all_spending(&self, now: Timestamp) -> Result<Spending, StoreError> {
        let failed = |error| self.failed(SPENDING, error);
        let mut snapshot = self.snapshot(SPENDING).await?;
        let mut spent = Vec::new();
        self.spent_by(&mut snapshot, BY_KEY, now, key, &mut spent).await?;
        self.spent_by(&mut snapshot, BY_MEMBER, now, member, &mut spent).await?;
        self.shared_spending(&mut snapshot, now, &mut spent).await?;
        let mut balances = Vec::new();
        let mut rows = sqlx::query("SELECT member_id, balance FROM balances ORDER BY member_id").fetch(&mut *snapshot);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let id: String = row.try_get(0).map_err(failed)?;
            let balance = row.try_get(1).map(NanoUsd).map_err(failed)?;
            balances.extend(MemberId::parse(&id).map(|member| (member, balance)));
        }
        drop(rows);
        let ledger = self.ledger_position(&mut snapshot).await?;
        Ok(Spending { spent, balances, ledger })
    }

    /// The spending of these keys and members, in one snapshot.
    pub(crate) async fn spending_of(
        &self,
        keys: &[String],
        members: &[String],
        shared: SpendingScope,
        now: Timestamp,
    ) -> Result<Spending, StoreError> {
        let mut snapshot = self.snapshot(SPENDING).await?;
        let mut spent = Vec::new();
        self.spent_of(&mut snapshot, KEY, keys, now, &mut spent).await?;
        self.spent_of(&mut snapshot, MEMBER, members, now, &mut spent).await?;
        if shared == SpendingScope::With {
            self.shared_spending(&mut snapshot, now, &mut spent).await?;
        }
        let balances = self.balances_among(&mut snapshot, members).await?;
        let ledger = self.ledger_position(&mut snapshot).await?;
        Ok(Spending { spent, balances, ledger })
    }

    /// Changes of spending after a position of the ledger.
    pub(super) async fn spending_changes(&self, position: LedgerPosition, now: Timestamp) -> Result<SpendingChanges, StoreError> {
        let failed = |error| self.failed(SPENDING, error);
        let mut snapshot = self.snapshot(SPENDING).await?;
        let ledger = self.ledger_position(&mut snapshot).await?;
        let until = read_until(position, ledger);
        let mut changed = SpendingChanges { until, ledger, ..SpendingChanges::default() };
        if until == ledger {
            // Requests without a sale price are not in the ledger but still have a cost, so read the channels in full.
            self.spent_by(&mut snapshot, BY_CHANNEL, now, channel, &mut changed.spent).await?;
        }
        if until == position {
            return Ok(changed);
        }
        let mut keys = BTreeSet::new();
        let mut added: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        let settled = |[key, group, day, amount]: [i64; 4]| {
            keys.insert(key);
            let sum = added.entry((group, day)).or_default();
            *sum = sum.saturating_add(amount);
        };
        self.read_settled(&mut snapshot, (position, until), settled).await?;
        let texts = keys.iter().copied().chain(added.keys().map(|(group, _)| *group)).collect();
        let names = names_on(&mut snapshot, &texts).await.map_err(failed)?;
        for ((of, day), amount) in added {
            let group = names.get(&of).and_then(|(id, _)| group(id));
            for subject in [group, Some(Subject::Gateway)].into_iter().flatten() {
                changed.added.push((subject, Timestamp::of_day(day), NanoUsd(amount)));
            }
        }
        let sql = "SELECT DISTINCT member_id FROM ledger WHERE seq > $1 AND seq <= $2";
        let rows = sqlx::query(sql).bind(position.0).bind(until.0).fetch_all(&mut *snapshot).await.map_err(failed)?;
        let members: Result<Vec<String>, _> = rows.iter().map(|row| row.try_get(0)).collect();
        let keys: BTreeSet<String> = keys.iter().filter_map(|key| Some(names.get(key)?.0.clone())).collect();
        let (keys, members): (Vec<String>, Vec<String>) = (keys.into_iter().collect(), members.map_err(failed)?);
        self.spent_of(&mut snapshot, KEY, &keys, now, &mut changed.spent).await?;
        self.spent_of(&mut snapshot, MEMBER, &members, now, &mut changed.spent).await?;
        changed.balances = self.balances_among(&mut snapshot, &members).await?;
        Ok(changed)
    }

    /// The keys of the entries after a position, and the position up to which they were read.
    pub(super) async fn keys_of_entries(&self, position: LedgerPosition) -> Result<(BTreeSet<KeyId>, LedgerPosition), StoreError> {
        let mut snapshot = self.snapshot(SPENDING).await?;
        let until = read_until(position, self.ledger_position(&mut snapshot).await?);
        let mut keys = BTreeSet::new();
        if until > position {
            self.read_settled(&mut snapshot, (position, until), |[key, ..]| {
                keys.insert(key);
            })
            .await?;
        }
        let names = names_on(&mut snapshot, &keys).await.map_err(|error| self.failed(SPENDING, error))?;
        Ok((names.values().filter_map(|(id, _)| KeyId::parse(id)).collect(), until))
    }

    /// Reads the settled amounts of a range of entries: numbers of the key and the group, the day, and the amount.
    async fn read_settled(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        (after, until): (LedgerPosition, LedgerPosition),
        mut settled: impl FnMut([i64; 4]),
    ) -> Result<(), StoreError> {
        let failed = |error| self.failed(SPENDING, error);
        let sql = "SELECT parts FROM ledger WHERE seq > $1 AND seq <= $2 AND parts IS NOT NULL";
        let mut rows = sqlx::query(sql).bind(after.0).bind(until.0).fetch(&mut **snapshot);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let parts: String = row.try_get(0).map_err(failed)?;
            let parts: Vec<[i64; 4]> = serde_json::from_str(&parts).map_err(|error| failed(sqlx::Error::Decode(error.into())))?;
            parts.into_iter().for_each(&mut settled);
        }
        Ok(())
    }

    async fn shared_spending(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        now: Timestamp,
        spent: &mut Vec<(Subject, SpendTotals)>,
    ) -> Result<(), StoreError> {
        self.spent_by(snapshot, BY_GROUP, now, group, spent).await?;
        self.spent_by(snapshot, BY_CHANNEL, now, channel, spent).await?;
        self.spent_by(snapshot, OF_THE_GATEWAY, now, |_| Some(Subject::Gateway), spent).await
    }

    async fn spent_by(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        sql: &'static str,
        now: Timestamp,
        subject: fn(&str) -> Option<Subject>,
        spent: &mut Vec<(Subject, SpendTotals)>,
    ) -> Result<(), StoreError> {
        let failed = |error| self.failed(SPENDING, error);
        let (day, month) = periods(now);
        let mut rows = sqlx::query(sql).bind(day).bind(month).fetch(&mut **snapshot);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            spent.extend(read(&row, now, subject).map_err(failed)?);
        }
        Ok(())
    }

    async fn spent_of(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        (of, kind, subject): SubjectColumn,
        ids: &[String],
        now: Timestamp,
        spent: &mut Vec<(Subject, SpendTotals)>,
    ) -> Result<(), StoreError> {
        let failed = |error| self.failed(SPENDING, error);
        let (day, month) = periods(now);
        for ids in ids.chunks(SUBJECTS_AT_ONCE) {
            let list = self.dialect.list("", ids.len(), "").0;
            let kind = kind.code();
            let sql = AssertSqlSafe(format!(
                "SELECT n.id, CAST(SUM(CASE WHEN s.minute >= {day} THEN s.sale ELSE 0 END) AS BIGINT), \
                 CAST(SUM(CASE WHEN s.minute >= {month} THEN s.sale ELSE 0 END) AS BIGINT), CAST(SUM(s.sale) AS BIGINT) \
                 FROM names n JOIN key_days s ON s.{of} = n.ref AND s.width = 1440 WHERE n.kind = {kind} AND n.id IN ({list}) \
                 GROUP BY n.id"
            ));
            let query = ids.iter().fold(sqlx::query(sql), |query, id| query.bind(id.clone()));
            for row in query.fetch_all(&mut **snapshot).await.map_err(failed)? {
                spent.extend(read(&row, now, subject).map_err(failed)?);
            }
        }
        Ok(())
    }

    async fn balances_among(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        ids: &[String],
    ) -> Result<Vec<(MemberId, NanoUsd)>, StoreError> {
        let failed = |error| self.failed(SPENDING, error);
        let mut balances = Vec::new();
        for ids in ids.chunks(SUBJECTS_AT_ONCE) {
            let sql = self.dialect.list("SELECT member_id, balance FROM balances WHERE member_id IN (", ids.len(), ")");
            let query = ids.iter().fold(sqlx::query(sql), |query, id| query.bind(id.clone()));
            for row in query.fetch_all(&mut **snapshot).await.map_err(failed)? {
                let id: String = row.try_get(0).map_err(failed)?;
                let balance = row.try_get(1).map(NanoUsd).map_err(failed)?;
                balances.extend(MemberId::parse(&id).map(|member| (member, balance)));
            }
        }
        Ok(balances)
    }
}

/// The position up to which one query reads entries after `position`.
fn read_until(position: LedgerPosition, ledger: LedgerPosition) -> LedgerPosition {
    LedgerPosition(position.0.saturating_add(MAX_ENTRIES).min(ledger.0).max(position.0))
}

/// The beginning of the day and of the month, as minutes of the daily roll-up.
fn periods(now: Timestamp) -> (i64, i64) {
    (minute(now, DAY), minute(Timestamp::of_month(now.month()), DAY))
}

fn read(row: &AnyRow, now: Timestamp, subject: fn(&str) -> Option<Subject>) -> Result<Option<(Subject, SpendTotals)>, sqlx::Error> {
    let id: String = row.try_get(0)?;
    let money = |at: usize| row.try_get::<i64, _>(at).map(NanoUsd);
    let spent = SpendTotals::loaded(now, money(1)?, money(2)?, money(3)?);
    Ok(subject(&id).map(|subject| (subject, spent)))
}
