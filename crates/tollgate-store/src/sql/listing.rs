//! The [`ListingStore`] of the database.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{Key, KeyId, Revision, Timestamp};

use super::{
    cells::{Cells, FromCells},
    dialect::Dialect,
    price_history,
    rows::{AUDIT_COLUMNS, audit_event, catalog_row, columns_of, select, select_with_revision},
    store::SqlStore,
    usage_reader::LookUp,
};
use crate::{
    AdminKey, AuditEvent, AuditFilter, AuditKind, AuditPosition, DatabaseSize, GroupUsers, ImportedPrice, KeyEntry, KeyHash,
    ListingStore, ObjectScope, PriceChange, PriceHistoryFilter, PriceHistoryPosition, RowFilter, RowKind, RowName, RowSearch,
    StoreError, StoredRow,
    group_users::{GroupCount, GroupUserRow},
};

const LIST: &str = "list rows";
/// Members or keys that are read by one query to count them by group.
const USERS_AT_ONCE: usize = 5_000;
const FIND_ADMIN_KEY: &str = "find an admin key";

/// The column with the id of the member that a row belongs to; an empty text for rows that belong to no member.
const fn owner_column(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Key | RowKind::AdminKey => "parent",
        RowKind::Member => "id",
        RowKind::Channel | RowKind::Account | RowKind::Model | RowKind::Group | RowKind::Setting | RowKind::AlertDestination => {
            "''"
        }
    }
}

fn stored(row: &AnyRow) -> Result<StoredRow, StoreError> {
    let read = catalog_row(row)?;
    let revision = row.try_get::<i64, _>("revision").map_err(|error| read.broken(&error.to_string()))?;
    Ok(StoredRow::of(&read, Revision(revision)))
}

impl FromCells for RowName {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let mut text = || cells.text().map(str::to_owned);
        Ok(Self { id: text()?, name: text()?, parent: text()? })
    }
}

impl FromCells for GroupUserRow {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let mut text = || cells.text().map(str::to_owned);
        Ok(Self { id: text()?, parent: text()?, spec: text()? })
    }
}

impl FromCells for KeyEntry {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let mut text = || cells.text().map(str::to_owned);
        let (id, member, name, suffix) = (text()?, text()?, text()?, text()?);
        Ok(Self { id, member, name, suffix, created_at: Timestamp(cells.number()?) })
    }
}

/// The condition that rows are visible, to append to another condition. Ids contain only letters, digits and underscores.
fn visible(kind: RowKind, scope: ObjectScope) -> String {
    scope.member_text().map_or_else(String::new, |member| format!(" AND {} = '{member}'", owner_column(kind)))
}

impl SqlStore {
    /// The number that a query of one row returns; 0 for null.
    async fn number(&self, sql: &'static str) -> Result<i64, StoreError> {
        let read = |row: &AnyRow| row.try_get::<Option<i64>, _>(0);
        let found = self.fetch_as("read the size of the database", sqlx::query(sql), read).await?;
        Ok(found.first().copied().flatten().unwrap_or(0))
    }

    /// The size of a file of an SQLite database; 0 if it does not exist.
    async fn file_size(&self, suffix: &str) -> u64 {
        let path = format!("{}{suffix}", self.database);
        tokio::fs::metadata(path).await.map_or(0, |file| file.len())
    }
}

#[async_trait]
impl ListingStore for SqlStore {
    async fn page(&self, filter: &RowFilter) -> Result<Vec<StoredRow>, StoreError> {
        let sql = format!(
            "WHERE kind = $1 AND id > $2 AND (CAST($3 AS TEXT) IS NULL OR parent = $3) AND (CAST($4 AS TEXT) IS NULL OR name = $4) \
             AND (removed_at IS NULL OR CAST($5 AS BIGINT) = 1) AND (CAST($6 AS TEXT) IS NULL OR {} = $6) \
             AND (CAST($7 AS TEXT) IS NULL OR LOWER(name) LIKE LOWER($7) ESCAPE '!' OR (CAST($8 AS BIGINT) = 1 \
             AND id IN (SELECT member_id FROM logins WHERE LOWER(email) LIKE LOWER($7) ESCAPE '!'))) ORDER BY id LIMIT $9",
            owner_column(filter.kind)
        );
        let search = filter.search.as_ref();
        let query = select_with_revision(filter.kind, &sql)
            .bind(filter.kind.as_str())
            .bind(filter.after.clone().unwrap_or_default())
            .bind(filter.parent.clone())
            .bind(filter.name.clone())
            .bind(i64::from(filter.removed))
            .bind(filter.scope.member_text())
            .bind(search.map(RowSearch::pattern))
            .bind(i64::from(search.is_some_and(|search| search.in_emails)))
            .bind(i64::try_from(filter.size()).unwrap_or(1_001));
        self.fetch(LIST, query).await?.iter().map(stored).collect()
    }

    async fn key_entries(&self, filter: &RowFilter, limit: u32) -> Result<Vec<KeyEntry>, StoreError> {
        // Letters, digits and underscores only, so that it can be part of the query's text.
        let is_id = |id: &String| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !filter.parent.iter().chain(&filter.after).all(is_id) {
            return Ok(Vec::new());
        }
        let parent = filter.parent.as_ref().map_or_else(String::new, |parent| format!(" AND parent = '{parent}'"));
        let live = if filter.removed { "" } else { " AND removed_at IS NULL" };
        let sql = format!(
            "SELECT id, parent, name, suffix, created_at FROM service_keys WHERE id > '{}'{parent}{live}{} ORDER BY id LIMIT {limit}",
            filter.after.as_deref().unwrap_or_default(),
            visible(RowKind::Key, filter.scope)
        );
        self.usage_reader.rows(LIST, sql, Vec::new()).await
    }

    async fn group_users(&self) -> Result<HashMap<String, GroupUsers>, StoreError> {
        let mut count = GroupCount::default();
        for (kind, table) in [(RowKind::Member, "catalog_rows WHERE kind = 'member'"), (RowKind::Key, "service_keys WHERE 1 = 1")] {
            let mut after = String::new();
            loop {
                let sql = format!(
                    "SELECT id, parent, spec FROM {table} AND removed_at IS NULL AND id > '{after}' ORDER BY id LIMIT {USERS_AT_ONCE}"
                );
                let rows = self.usage_reader.rows::<GroupUserRow>(LIST, sql, Vec::new()).await?;
                let is_last = rows.len() < USERS_AT_ONCE;
                if let Some(row) = rows.last() {
                    after.clone_from(&row.id);
                }
                for row in rows {
                    if kind == RowKind::Member { count.add_member(row)? } else { count.add_key(&row)? }
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(count.finish())
    }

    async fn rows(&self, kind: RowKind, ids: Vec<String>, scope: ObjectScope) -> Result<Vec<StoredRow>, StoreError> {
        const IDS_AT_ONCE: usize = 500;
        let head = format!("WHERE kind = '{}'{} AND id IN (", kind.as_str(), visible(kind, scope));
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_AT_ONCE) {
            let query = select_with_revision(kind, &self.dialect.list(&head, ids.len(), ")").0);
            let query = ids.iter().fold(query, |query, id| query.bind(id.clone()));
            for row in &self.fetch(LIST, query).await? {
                found.push(stored(row)?);
            }
        }
        Ok(found)
    }

    async fn row(&self, kind: RowKind, id: &str, scope: ObjectScope) -> Result<Option<StoredRow>, StoreError> {
        let sql = format!("WHERE kind = $1 AND id = $2 AND (CAST($3 AS TEXT) IS NULL OR {} = $3)", owner_column(kind));
        let query = select_with_revision(kind, &sql).bind(kind.as_str()).bind(id.to_owned()).bind(scope.member_text());
        self.fetch(LIST, query).await?.first().map(stored).transpose()
    }

    async fn names(&self, kind: RowKind, ids: Vec<String>, scope: ObjectScope) -> Result<Vec<RowName>, StoreError> {
        let (columns, visible) = (columns_of(kind), visible(kind, scope));
        let sql = format!("SELECT id, name, parent FROM ({columns}) AS t WHERE kind = '{}'{visible} AND id", kind.as_str());
        self.usage_reader.rows_with(LIST, sql, LookUp::Texts(ids)).await
    }

    async fn key(&self, id: KeyId) -> Result<Option<Key>, StoreError> {
        let query = select(RowKind::Key, "WHERE id = $1").bind(id.to_string());
        match self.fetch_rows(LIST, query).await?.pop() {
            Some(row) => self.with_member(row, LIST).await.map(Some),
            None => Ok(None),
        }
    }

    async fn audit_page(&self, filter: &AuditFilter) -> Result<Vec<(AuditPosition, AuditEvent)>, StoreError> {
        let sql = format!(
            "SELECT {AUDIT_COLUMNS}, position FROM audit \
                   WHERE (revision < $1 OR (revision = $1 AND position < $2)) AND (CAST($3 AS TEXT) IS NULL OR kind = $3) \
                   AND (CAST($4 AS TEXT) IS NULL OR id = $4) AND (CAST($5 AS TEXT) IS NULL OR name = $5) \
                   AND (CAST($6 AS TEXT) IS NULL OR actor = $6 OR SUBSTR(actor, 1, LENGTH($6) + 2) = $6 || ' (') \
                   AND at >= $7 AND at < $8 AND (CAST($10 AS TEXT) IS NULL OR address = $10) ORDER BY revision DESC, position DESC LIMIT $9"
        );
        let before = filter.before.unwrap_or(AuditPosition { revision: Revision(i64::MAX), position: 0 });
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(before.revision.0)
            .bind(before.position)
            .bind(filter.kind.map(AuditKind::as_str))
            .bind(filter.id.clone())
            .bind(filter.name.clone())
            .bind(filter.actor.clone())
            .bind(filter.since.map_or(i64::MIN, |since| since.0))
            .bind(filter.until.map_or(i64::MAX, |until| until.0))
            .bind(i64::from(filter.limit.min(1_001)))
            .bind(filter.address.clone());
        let read = |row: &AnyRow| {
            let event = audit_event(row)?;
            Ok((AuditPosition { revision: event.revision, position: row.try_get(10)? }, event))
        };
        self.fetch_as("read the audit log", query, read).await
    }

    async fn price_history(&self, filter: &PriceHistoryFilter) -> Result<Vec<(PriceHistoryPosition, PriceChange)>, StoreError> {
        self.fetch_as("read the history of prices", price_history::page(filter), price_history::change).await
    }

    async fn imported_prices(&self) -> Result<Vec<ImportedPrice>, StoreError> {
        self.fetch_as("read the sources of prices", price_history::imported(), price_history::imported_price).await
    }

    async fn database_size(&self) -> Result<DatabaseSize, StoreError> {
        let schema = self.number("SELECT MAX(version) FROM _sqlx_migrations").await?;
        let bytes = |size: i64| u64::try_from(size).unwrap_or(0);
        Ok(match self.dialect {
            Dialect::Postgres => {
                let size = self.number("SELECT pg_database_size(current_database())").await?;
                DatabaseSize { kind: "postgresql", bytes: bytes(size), log_bytes: None, schema }
            }
            Dialect::Sqlite => {
                let file = self.file_size("").await;
                let log = self.file_size("-wal").await;
                DatabaseSize { kind: "sqlite", bytes: file.saturating_add(log), log_bytes: Some(log), schema }
            }
        })
    }

    async fn admin_key(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<AdminKey>, StoreError> {
        let query = select(RowKind::AdminKey, "WHERE hash = $1 AND removed_at IS NULL").bind(hash.0.to_vec());
        let Some(key) = self.fetch_rows(FIND_ADMIN_KEY, query).await?.pop() else { return Ok(None) };
        let member = match key.parent.as_str() {
            "" => None,
            member => {
                self.fetch_rows(FIND_ADMIN_KEY, select(RowKind::Member, "WHERE id = $1").bind(member.to_owned())).await?.pop()
            }
        };
        AdminKey::of(&key, member.as_ref(), now)
    }
}
