//! The [`UsageStore`] of the database.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
};

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row as _};
use tollgate_core::{AttemptRecord, Outcome, RequestId, Timestamp, UsageRecord};

use super::{
    rows::AnyQuery,
    store::SqlStore,
    usage_rows::{ATTEMPT_COLUMNS, USAGE_COLUMNS, attempt, record},
};
use crate::{Page, SortOrder, StoreError, SummaryBy, SummaryRow, UsageCursor, UsageFilter, UsageStore};

pub(super) const IDS_AT_ONCE: usize = 500;

const PAGE: &str = "read the usage log";

#[derive(Debug)]
enum BindValue {
    Text(String),
    Number(i64),
}

/// Conditions made of fixed fragments, with the values to bind.
#[derive(Debug, Default)]
pub(super) struct WhereClause {
    sql: String,
    values: Vec<BindValue>,
}

impl WhereClause {
    fn add(&mut self, fragment: &'static str, value: BindValue) {
        self.sql.push_str(if self.values.is_empty() { " WHERE " } else { " AND " });
        self.values.push(value);
        self.sql.push_str(&fragment.replace('?', &format!("${}", self.values.len())));
    }

    pub(super) fn of(filter: &UsageFilter) -> Self {
        let mut conditions = Self::default();
        let words = [
            ("key_id = ?", filter.key.map(|id| id.to_string())),
            ("member_id = ?", filter.member.map(|id| id.to_string())),
            ("group_id = ?", filter.group.map(|id| id.to_string())),
            ("model = ?", filter.model.clone()),
            (outcome_condition(filter.outcome), filter.outcome.map(|outcome| outcome.as_str().to_owned())),
        ];
        for (fragment, word) in words {
            if let Some(word) = word {
                conditions.add(fragment, BindValue::Text(word));
            }
        }
        for (fragment, at) in [("at >= ?", filter.since), ("at < ?", filter.until)] {
            if let Some(at) = at {
                conditions.add(fragment, BindValue::Number(at.0));
            }
        }
        conditions
    }

    fn after(&mut self, cursor: UsageCursor, order: SortOrder) {
        self.add(if order == SortOrder::Newest { "(at, id) < (?," } else { "(at, id) > (?," }, BindValue::Number(cursor.at.0));
        self.values.push(BindValue::Text(cursor.id.to_string()));
        write!(self.sql, " ${})", self.values.len()).expect("writing to a String cannot fail");
    }

    /// ` WHERE …`, or an empty text.
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }

    pub(super) fn bind(self, query: AnyQuery<'_>) -> AnyQuery<'_> {
        self.values.into_iter().fold(query, |query, value| match value {
            BindValue::Text(text) => query.bind(text),
            BindValue::Number(number) => query.bind(number),
        })
    }
}

/// Repeats the condition of the partial index `usage_failed` where it applies, so that the databases use it.
fn outcome_condition(outcome: Option<Outcome>) -> &'static str {
    if outcome == Some(Outcome::Completed) { "outcome = ?" } else { "outcome <> 'completed' AND outcome = ?" }
}

impl SqlStore {
    async fn with_attempts(&self, mut records: Vec<UsageRecord>) -> Result<Vec<UsageRecord>, StoreError> {
        let head = format!("SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE request_id IN (");
        let mut attempts: HashMap<RequestId, Vec<AttemptRecord>> = HashMap::new();
        for records in records.chunks(IDS_AT_ONCE) {
            let sql = self.dialect.list(&head, records.len(), ") ORDER BY request_id, position");
            let query = records.iter().fold(sqlx::query(sql), |query, record| query.bind(record.id.to_string()));
            for (id, attempt) in self.fetch_as(PAGE, query, attempt).await? {
                attempts.entry(id).or_default().push(attempt);
            }
        }
        for record in &mut records {
            record.attempts = attempts.remove(&record.id).unwrap_or_default();
        }
        Ok(records)
    }
}

#[async_trait]
impl UsageStore for SqlStore {
    async fn append(&self, records: &[UsageRecord]) -> Result<u64, StoreError> {
        if records.is_empty() {
            return Ok(0);
        }
        // Always in the same order: two writers of the same records wait for each other instead of deadlocking.
        let mut records: Vec<&UsageRecord> = records.iter().collect();
        records.sort_by_key(|record| record.id);
        self.appender.append(&self.writer, &records, &self.books).await
    }

    async fn prune(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.prune_slice(before).await
    }

    async fn log_time(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read_log_time().await
    }

    async fn set_log_time(&self, expected: Option<Timestamp>, time: Timestamp) -> Result<bool, StoreError> {
        self.write_log_time(expected, time).await
    }

    async fn create_partitions(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.create_month_partitions(now).await
    }

    async fn page(&self, filter: &UsageFilter) -> Result<Page<UsageRecord>, StoreError> {
        let mut conditions = WhereClause::of(filter);
        if let Some(after) = filter.after {
            conditions.after(after, filter.order);
        }
        let order = match filter.order {
            SortOrder::Newest => "at DESC, id DESC",
            SortOrder::Oldest => "at, id",
        };
        let size = filter.page_size();
        let sql = format!("SELECT {USAGE_COLUMNS} FROM usage{} ORDER BY {order} LIMIT {}", conditions.sql, size + 1);
        let records = self.fetch_as(PAGE, conditions.bind(sqlx::query(AssertSqlSafe(sql))), record).await?;
        let page = Page::cut(records, size as usize, |record| UsageCursor { at: record.at, id: record.id });
        Ok(Page { items: self.with_attempts(page.items).await?, next: page.next })
    }

    async fn find(&self, id: RequestId) -> Result<Option<UsageRecord>, StoreError> {
        let sql = AssertSqlSafe(format!("SELECT {USAGE_COLUMNS} FROM usage WHERE id = $1"));
        let found = self.fetch_as(PAGE, sqlx::query(sql).bind(id.to_string()), record).await?;
        Ok(self.with_attempts(found).await?.pop())
    }

    async fn known(&self, ids: &[RequestId]) -> Result<HashSet<RequestId>, StoreError> {
        let mut known = HashSet::new();
        for ids in ids.chunks(IDS_AT_ONCE) {
            let sql = self.dialect.list("SELECT id FROM usage WHERE id IN (", ids.len(), ")");
            let query = ids.iter().fold(sqlx::query(sql), |query, id| query.bind(id.to_string()));
            let found = self.fetch_as(PAGE, query, |row| row.try_get::<String, _>(0)).await?;
            known.extend(found.iter().filter_map(|id| RequestId::parse(id)));
        }
        Ok(known)
    }

    async fn summary(&self, filter: &UsageFilter, by: SummaryBy) -> Result<Vec<SummaryRow>, StoreError> {
        self.summarise_usage(filter, by).await
    }
}
