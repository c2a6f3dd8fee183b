//! The [`ContentStore`] of the database.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{Row as _, any::AnyRow};
use tokio::task::spawn_blocking;
use tollgate_core::{KeyId, MemberId, RequestContents, RequestId, Timestamp, fair_level};

use super::{rows::unsigned, store::SqlStore};
use crate::{
    ContentStore, StoreError, StoredContents,
    contents::{PRUNED_AT_ONCE, context, pack, unpack},
    seal::Sealer,
};

const STORE: &str = "store the contents of requests";
const READ: &str = "read the contents of a request";
const REMOVE: &str = "remove contents of requests";
const ROWS_AT_ONCE: usize = 50;

/// A stored row whose texts are sealed.
struct SealedContents {
    id: String,
    at: Timestamp,
    key: String,
    member: String,
    sealed: Vec<u8>,
}

fn sealed_contents(row: &AnyRow) -> Result<SealedContents, sqlx::Error> {
    Ok(SealedContents {
        id: row.try_get(0)?,
        at: Timestamp(row.try_get(1)?),
        key: row.try_get(2)?,
        member: row.try_get(3)?,
        sealed: row.try_get(4)?,
    })
}

impl SealedContents {
    /// The contents with their texts, which the data key opens.
    fn opened(&self, sealer: &Sealer) -> Result<RequestContents, StoreError> {
        let broken = |what: &str| StoreError::Row {
            kind: "request_contents",
            row: self.id.clone(),
            detail: format!("its {what} is not readable"),
        };
        let packed = sealer.open(context(&self.id), &self.sealed)?;
        let (request, answer) = unpack(&packed).ok_or_else(|| broken("text"))?;
        Ok(RequestContents {
            id: RequestId::parse(&self.id).ok_or_else(|| broken("id"))?,
            at: self.at,
            key: KeyId::parse(&self.key).ok_or_else(|| broken("key"))?,
            member: MemberId::parse(&self.member).ok_or_else(|| broken("member"))?,
            request,
            answer,
        })
    }
}

/// A row to be stored, whose texts are compressed.
struct PackedContents {
    id: String,
    at: Timestamp,
    key: String,
    member: String,
    packed: Vec<u8>,
}

impl PackedContents {
    fn of(contents: &RequestContents) -> Self {
        Self {
            id: contents.id.to_string(),
            at: contents.at,
            key: contents.key.to_string(),
            member: contents.member.to_string(),
            packed: pack(contents),
        }
    }

    fn sealed(self, sealer: &Sealer) -> SealedContents {
        let sealed = sealer.seal(context(&self.id), &self.packed);
        SealedContents { id: self.id, at: self.at, key: self.key, member: self.member, sealed }
    }
}

/// Runs work on a thread that serves no requests: texts take milliseconds to compress and to seal.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is ending.
        Err(_) => Err(StoreError::Cancelled),
    }
}

#[async_trait]
impl ContentStore for SqlStore {
    async fn store_contents(&self, contents: Vec<RequestContents>) -> Result<(), StoreError> {
        let head = "INSERT INTO request_contents (id, at, key_id, member_id, bytes, sealed) VALUES";
        let mut contents = contents.into_iter();
        loop {
            let rows: Vec<RequestContents> = contents.by_ref().take(ROWS_AT_ONCE).collect();
            if rows.is_empty() {
                return Ok(());
            }
            let packed = on_thread(move || rows.iter().map(PackedContents::of).collect::<Vec<_>>()).await?;
            let mut transaction = self.begin(STORE).await?;
            self.lock_sealed_rows(&mut transaction).await?;
            // The lock prevents a change of the data key, so the texts are sealed within the transaction.
            let sealer = self.sealer.clone();
            let sealed = on_thread(move || packed.into_iter().map(|row| row.sealed(&sealer)).collect::<Vec<_>>()).await?;
            let mut query = sqlx::query(self.dialect.values(head, sealed.len(), 6, " ON CONFLICT (id) DO NOTHING"));
            for row in sealed {
                query = query
                    .bind(row.id)
                    .bind(row.at.0)
                    .bind(row.key)
                    .bind(row.member)
                    .bind(i64::try_from(row.sealed.len()).unwrap_or(i64::MAX))
                    .bind(row.sealed);
            }
            query.execute(&mut *transaction).await.map_err(|error| self.failed(STORE, error))?;
            self.commit(STORE, transaction).await?;
        }
    }

    async fn contents(&self, request: RequestId) -> Result<Option<RequestContents>, StoreError> {
        let sql = "SELECT id, at, key_id, member_id, sealed FROM request_contents WHERE id = $1";
        let found = self.fetch_as(READ, sqlx::query(sql).bind(request.to_string()), sealed_contents).await?;
        let Some(row) = found.into_iter().next() else { return Ok(None) };
        let (sealer, row) = (self.sealer.clone(), Arc::new(row));
        let open = |row: Arc<SealedContents>, sealer: Sealer| on_thread(move || row.opened(&sealer));
        match open(Arc::clone(&row), sealer.clone()).await? {
            // The data key may just have been replaced.
            Err(StoreError::Sealed { .. }) if self.reload_keys().await? => open(row, sealer).await?,
            opened => opened,
        }
        .map(Some)
    }

    async fn has_contents(&self, request: RequestId) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT 1 FROM request_contents WHERE id = $1").bind(request.to_string());
        Ok(!self.fetch_as(READ, query, |_| Ok(())).await?.is_empty())
    }

    async fn remove_contents(&self, request: RequestId) -> Result<bool, StoreError> {
        let query = sqlx::query("DELETE FROM request_contents WHERE id = $1").bind(request.to_string());
        let mut transaction = self.begin(REMOVE).await?;
        let removed = query.execute(&mut *transaction).await.map_err(|error| self.failed(REMOVE, error))?.rows_affected();
        self.commit(REMOVE, transaction).await?;
        Ok(removed > 0)
    }

    async fn stored_contents(&self) -> Result<StoredContents, StoreError> {
        let sql = "SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM request_contents";
        let read = |row: &AnyRow| Ok(StoredContents { requests: unsigned(row.try_get(0)?), bytes: unsigned(row.try_get(1)?) });
        Ok(self.fetch_as(READ, sqlx::query(sql), read).await?.into_iter().next().unwrap_or_default())
    }

    async fn prune_contents(&self, before: Timestamp, max_bytes: u64) -> Result<u64, StoreError> {
        let failed = |error| self.failed(REMOVE, error);
        let at_once = i64::try_from(PRUNED_AT_ONCE).unwrap_or(i64::MAX);
        let old = "DELETE FROM request_contents WHERE id IN (SELECT id FROM request_contents WHERE at < $1 ORDER BY at LIMIT $2)";
        let mut transaction = self.begin(REMOVE).await?;
        let done = sqlx::query(old).bind(before.0).bind(at_once).execute(&mut *transaction).await.map_err(failed)?;
        self.commit(REMOVE, transaction).await?;
        if done.rows_affected() > 0 {
            return Ok(done.rows_affected());
        }
        let sql = "SELECT key_id, CAST(SUM(bytes) AS BIGINT) FROM request_contents GROUP BY key_id";
        let read = |row: &AnyRow| Ok((row.try_get::<String, _>(0)?, unsigned(row.try_get(1)?)));
        let held = self.fetch_as(REMOVE, sqlx::query(sql), read).await?;
        let level = fair_level(&held.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), max_bytes);
        // The rows of a key from the newest to the oldest, with the bytes up to each: those beyond its share are removed.
        let beyond = "DELETE FROM request_contents WHERE id IN (SELECT id FROM (SELECT id, at, SUM(bytes) OVER (ORDER BY at DESC, id \
                      DESC) AS up_to FROM request_contents WHERE key_id = $1) AS sums WHERE up_to > $2 ORDER BY at LIMIT $3)";
        let mut removed = 0;
        for (key, _) in held.into_iter().filter(|(_, bytes)| *bytes > level) {
            let mut transaction = self.begin(REMOVE).await?;
            let query = sqlx::query(beyond).bind(key).bind(i64::try_from(level).unwrap_or(i64::MAX)).bind(at_once);
            removed += query.execute(&mut *transaction).await.map_err(failed)?.rows_affected();
            self.commit(REMOVE, transaction).await?;
        }
        Ok(removed)
    }
}
