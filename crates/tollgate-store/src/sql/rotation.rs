//! Rotation of the master key: the steps in the database. All of them can be repeated, so a rotation that was killed is resumed.
//!
//! The master key seals one data key, and the data key seals everything else. A rotation replaces both. One transaction seals a new
//! data key, the pepper and the old data key with the new master key; then each sealed row is sealed again, a few at a time; then
//! the old data key is removed. Gateways that run hold the data keys in memory and read them again when a row does not open.
//! Each writer of sealed rows compares the data key inside its transaction first, so no row is sealed with the old one after it was
//! replaced.

use std::collections::HashSet;

use sqlx::{Any, Row as _, Transaction};
use tollgate_core::{Revision, Timestamp};

use super::{
    change_transaction::SqlChangeTransaction,
    data_keys::{self, LAST_DATA_KEY, context, open_row, seal_data_key, sealed_rows},
    store::SqlStore,
};
use crate::{
    Actor, AuditAction, AuditEvent, AuditKind, KeyHolder, RowKind, StoreError, contents, credential,
    identity_rows::totp_context,
    rows::{BatchRecord, ChangeTransaction as _},
    seal::{MasterKeys, SealContext, Sealer, generate_key},
};

const ROTATE: &str = "rotate the master key";
/// Rows sealed again per transaction.
const ROWS_AT_ONCE: i64 = 100;
/// Excludes other writers of sealed rows.
const LOCK: &str = "UPDATE counters SET value = value WHERE name = 'revision' RETURNING value";

/// A table with a sealed column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SealedTable {
    Credentials,
    OneTimeSecrets,
    Contents,
}

impl SealedTable {
    pub(crate) const ALL: [Self; 3] = [Self::Credentials, Self::OneTimeSecrets, Self::Contents];

    /// Reads ids and sealed values behind an id; replaces the sealed value of an id.
    const fn statements(self) -> (&'static str, &'static str) {
        match self {
            Self::Credentials => (
                "SELECT id, credential FROM catalog_rows WHERE credential IS NOT NULL AND id > $1 ORDER BY id LIMIT $2",
                "UPDATE catalog_rows SET credential = $2 WHERE id = $1",
            ),
            Self::OneTimeSecrets => (
                "SELECT member_id, totp FROM logins WHERE totp IS NOT NULL AND member_id > $1 ORDER BY member_id LIMIT $2",
                "UPDATE logins SET totp = $2 WHERE member_id = $1",
            ),
            Self::Contents => (
                "SELECT id, sealed FROM request_contents WHERE id > $1 ORDER BY id LIMIT $2",
                "UPDATE request_contents SET sealed = $2 WHERE id = $1",
            ),
        }
    }

    const fn context(self, row: &str) -> SealContext<'_> {
        match self {
            Self::Credentials => credential::context(row),
            Self::OneTimeSecrets => totp_context(row),
            Self::Contents => contents::context(row),
        }
    }
}

/// State of the database's keys.
#[derive(Debug)]
pub(crate) struct KeyState {
    /// Fingerprint of the master key that seals the data key.
    pub(crate) sealing: String,
    /// Fingerprints of master keys that were replaced.
    pub(crate) retired: HashSet<String>,
    /// A rotation has begun: rows may be sealed with the old data key.
    pub(crate) is_underway: bool,
}

impl SqlStore {
    pub(crate) fn master_keys(&self) -> Result<MasterKeys, StoreError> {
        MasterKeys::load(&self.keys.master, &self.keys.data)?.ok_or_else(|| StoreError::MasterKeyMissing {
            location: self.keys.data.join("master.key").display().to_string(),
            database: self.database.clone(),
        })
    }

    /// Reads the data keys again. Returns whether they have changed.
    pub(crate) async fn reload_keys(&self) -> Result<bool, StoreError> {
        let sealed_keys = self.sealed_keys().await?;
        if !self.keys.is_new(&sealed_keys) {
            return Ok(false);
        }
        let opened = data_keys::open_rows(&sealed_keys, &self.master_keys()?, &self.database, &self.random)?;
        self.sealer.adopt(&opened.sealer);
        self.keys.note(&sealed_keys);
        Ok(true)
    }

    /// Excludes other writers of sealed rows, and makes sure that the data key in use is the current one.
    pub(super) async fn lock_sealed_rows(&self, transaction: &mut Transaction<'static, Any>) -> Result<(), StoreError> {
        let failed = |error| self.failed(ROTATE, error);
        sqlx::query(LOCK).fetch_one(&mut **transaction).await.map_err(failed)?;
        let sealed_keys = data_keys::read_all(transaction, &self.database).await?;
        if self.keys.is_new(&sealed_keys) {
            let opened = data_keys::open_rows(&sealed_keys, &self.master_keys()?, &self.database, &self.random)?;
            self.sealer.adopt(&opened.sealer);
            self.keys.note(&sealed_keys);
        }
        Ok(())
    }

    pub(crate) async fn key_state(&self) -> Result<KeyState, StoreError> {
        let sealed_keys = self.sealed_keys().await?;
        let opened = data_keys::open_rows(&sealed_keys, &self.master_keys()?, &self.database, &self.random)?;
        let rows = sqlx::query("SELECT fingerprint FROM retired_master_keys").fetch_all(self.pools.reader()).await;
        let rows = rows.map_err(|error| self.failed(ROTATE, error))?;
        let retired =
            rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(|error| self.failed(ROTATE, error))?;
        let is_underway = sealed_keys.iter().any(|(name, _)| name == LAST_DATA_KEY);
        Ok(KeyState { sealing: opened.master, retired, is_underway })
    }

    /// Replaces the data key, and seals the new one and the old one with the master key `target`.
    pub(crate) async fn replace_data_key(&self, target: &str) -> Result<(), StoreError> {
        let failed = |error| self.failed(ROTATE, error);
        let keys = self.master_keys()?;
        let missing = || StoreError::MasterKeyWrong { location: keys.location.clone(), database: self.database.clone() };
        let master = keys.by_fingerprint(target).ok_or_else(missing)?;
        let mut transaction = self.begin(ROTATE).await?;
        self.lock_sealed_rows(&mut transaction).await?;
        let sealed_keys = data_keys::read_all(&mut transaction, &self.database).await?;
        let row = |wanted: &str| sealed_keys.iter().find(|(name, _)| name == wanted).map(|(_, sealed)| sealed.as_slice());
        let (old, sealing) =
            row("data_key").and_then(|sealed| open_row(&keys, "data_key", sealed, &self.random)).ok_or_else(missing)?;
        // Already done, by this rotation or by a concurrent one.
        if sealing == target || row(LAST_DATA_KEY).is_some() {
            return Ok(());
        }
        let pepper = Sealer::new(&old, self.random.clone()).open_bytes(context("pepper"), row("pepper").unwrap_or_default())?;
        let new = generate_key(&self.random);
        for (name, sealed) in sealed_rows(master, &new, &pepper, &self.random) {
            let update = sqlx::query("UPDATE data_keys SET sealed = $2 WHERE name = $1").bind(name).bind(sealed);
            update.execute(&mut *transaction).await.map_err(failed)?;
        }
        let last = seal_data_key(master, LAST_DATA_KEY, &old, &self.random);
        let insert = sqlx::query("INSERT INTO data_keys (name, sealed) VALUES ($1, $2)").bind(LAST_DATA_KEY).bind(last);
        insert.execute(&mut *transaction).await.map_err(failed)?;
        self.commit(ROTATE, transaction).await?;
        self.reload_keys().await.map(drop)
    }

    /// Seals the rows of a table behind `after` again, as many as fit a transaction. Returns the last one and how many were sealed;
    /// `None` when no rows are left. Rows that no data key opens are left as they are.
    pub(crate) async fn reseal_rows(&self, table: SealedTable, after: &str) -> Result<Option<(String, u64)>, StoreError> {
        let failed = |error| self.failed(ROTATE, error);
        let mut transaction = self.begin(ROTATE).await?;
        self.lock_sealed_rows(&mut transaction).await?;
        let (sql, update) = table.statements();
        let rows = sqlx::query(sql).bind(after.to_owned()).bind(ROWS_AT_ONCE).fetch_all(&mut *transaction).await.map_err(failed)?;
        let (mut last, mut sealed) = (None, 0);
        for row in &rows {
            let (id, old): (String, Vec<u8>) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
            let context = table.context(&id);
            match self.sealer.open_with_old(context, &old) {
                Some(Ok(secret)) => {
                    let new = self.sealer.seal(context, &secret);
                    let update = sqlx::query(update).bind(id.clone()).bind(new);
                    update.execute(&mut *transaction).await.map_err(failed)?;
                    sealed += 1;
                }
                Some(Err(error)) => tracing::error!("{error}"),
                None => {}
            }
            last = Some(id);
        }
        self.commit(ROTATE, transaction).await?;
        Ok(last.map(|last| (last, sealed)))
    }

    /// Removes the old data key and retires the other master keys.
    pub(crate) async fn finish_rotation(
        &self,
        target: &str,
        retired: &[String],
        actor: &Actor,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let failed = |error| self.failed(ROTATE, error);
        let mut transaction = self.begin(ROTATE).await?;
        self.lock_sealed_rows(&mut transaction).await?;
        let removed = sqlx::query("DELETE FROM data_keys WHERE name = $1").bind(LAST_DATA_KEY).execute(&mut *transaction).await;
        if removed.map_err(failed)?.rows_affected() == 0 {
            return Ok(());
        }
        for key in retired.iter().filter(|key| *key != target) {
            let insert = "INSERT INTO retired_master_keys (fingerprint) VALUES ($1) ON CONFLICT DO NOTHING";
            sqlx::query(insert).bind(key.clone()).execute(&mut *transaction).await.map_err(failed)?;
        }
        let mut rows = SqlChangeTransaction { connection: &mut transaction, database: &self.database, chain: &self.books.chain };
        let revision = Revision(rows.revision().await?.0 + 1);
        let event = AuditEvent {
            revision,
            at: now,
            origin: actor.origin.as_str().to_owned(),
            actor: actor.name.clone(),
            action: AuditAction::RotateMasterKey.as_str().to_owned(),
            kind: AuditKind::Row(RowKind::Account),
            id: String::new(),
            name: String::new(),
            detail: serde_json::json!({"master_key": target}).to_string(),
            address: actor.address_text(),
        };
        rows.record(revision, &BatchRecord { changed: &[], audit: &[event], prices: &[], offers: &[] }).await?;
        self.commit(ROTATE, transaction).await?;
        self.reload_keys().await.map(drop)
    }

    // === the gateways that run ===

    /// Answers a request for the master keys that this gateway holds, and notices changed keys. Returns whether any have changed.
    pub(crate) async fn watch_keys(&self) -> Result<bool, StoreError> {
        let failed = |error| self.failed(ROTATE, error);
        let Some(journal) = &self.books.journal else { return Ok(false) };
        let fingerprints = self.master_keys()?.fingerprints().join(" ");
        let request = self.key_request().await?;
        let is_new = self.reload_keys().await?;
        let lines_changed = self.keys.lines_changed(&fingerprints);
        if self.keys.is_answered(request, &fingerprints) {
            return Ok(is_new);
        }
        let sql = "INSERT INTO key_holders (id, name, answered, master_keys) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE \
                   SET name = excluded.name, answered = excluded.answered, master_keys = excluded.master_keys";
        let name = std::path::absolute(&self.keys.data).unwrap_or_else(|_| self.keys.data.clone()).display().to_string();
        let query = sqlx::query(sql).bind(journal.id.to_string()).bind(name).bind(request).bind(fingerprints.clone());
        query.execute(self.pools.writer()).await.map_err(failed)?;
        self.keys.answered(request, fingerprints);
        Ok(is_new || lines_changed)
    }

    /// Records that this gateway stops.
    pub(crate) async fn stop_holding(&self) -> Result<(), StoreError> {
        let Some(journal) = &self.books.journal else { return Ok(()) };
        let sql = "DELETE FROM key_holders WHERE id = $1";
        let done = sqlx::query(sql).bind(journal.id.to_string()).execute(self.pools.writer()).await;
        done.map(drop).map_err(|error| self.failed(ROTATE, error))
    }

    async fn key_request(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'key_check'").fetch_optional(self.pools.reader()).await;
        let value = row.and_then(|row| row.map_or(Ok(0), |row| row.try_get(0)));
        value.map_err(|error| self.failed(ROTATE, error))
    }

    /// Asks every gateway for its master keys.
    pub(crate) async fn request_keys(&self) -> Result<i64, StoreError> {
        let sql = "INSERT INTO counters (name, value) VALUES ('key_check', 1) ON CONFLICT (name) DO UPDATE \
                   SET value = counters.value + 1 RETURNING value";
        let row = sqlx::query(sql).fetch_one(self.pools.writer()).await;
        row.and_then(|row| row.try_get(0)).map_err(|error| self.failed(ROTATE, error))
    }

    /// The known gateways, and whether each has answered and holds the key `target`.
    pub(crate) async fn key_holders(&self, request: i64, target: &str) -> Result<Vec<KeyHolder>, StoreError> {
        let failed = |error| self.failed(ROTATE, error);
        let sql = "SELECT id, name, answered, master_keys FROM key_holders ORDER BY name, id";
        let rows = sqlx::query(sql).fetch_all(self.pools.reader()).await.map_err(failed)?;
        let read = |row: &sqlx::any::AnyRow| -> Result<KeyHolder, sqlx::Error> {
            let keys: String = row.try_get(3)?;
            let has_answered = row.try_get::<i64, _>(2)? >= request;
            let has_key = keys.split(' ').any(|key| key == target);
            Ok(KeyHolder { id: row.try_get(0)?, name: row.try_get(1)?, has_answered, has_key })
        };
        rows.iter().map(read).collect::<Result<_, _>>().map_err(failed)
    }

    /// Deletes the rows of gateways that did not answer.
    pub(crate) async fn delete_key_holders(&self, holders: &[KeyHolder]) -> Result<(), StoreError> {
        for holder in holders {
            let delete = sqlx::query("DELETE FROM key_holders WHERE id = $1").bind(holder.id.clone());
            delete.execute(self.pools.writer()).await.map_err(|error| self.failed(ROTATE, error))?;
        }
        Ok(())
    }
}
