//! The journals registered in a database: which one a gateway books from, and whether it stopped cleanly.

use std::path::Path;

use sqlx::{AnyPool, Row as _};
use uuid::Uuid;

use super::{dialect::Dialect, driver_error::failed, store::SqlStore};
use crate::{
    StoreError,
    pairing::{JournalPairing, PairingState},
    verify::{ConsistencyRule, Mismatch},
};

const OPERATION: &str = "look up the journal";
const BEGIN: &str = "INSERT INTO journals (id, booked, unfinished) VALUES ($1, 0, 1) ON CONFLICT (id) DO UPDATE SET unfinished = 1 \
     RETURNING booked";

/// Records that a gateway begins to book from a journal. Does nothing while the database takes no writes, because the first batch
/// of records does the same.
pub(super) async fn begin(writer: &AnyPool, dialect: Dialect, database: &str, journal: &JournalPairing) -> Result<(), StoreError> {
    let begun = sqlx::query(BEGIN).bind(journal.id.to_string()).fetch_one(writer).await;
    let booked = match begun.and_then(|row| row.try_get::<i64, _>(0)).map_err(|error| failed(database, OPERATION, error)) {
        Ok(booked) => u64::try_from(booked).unwrap_or(0),
        Err(error) if error.is_unreachable() => return Ok(()),
        Err(error) => return Err(error),
    };
    if booked < journal.booked() {
        tracing::error!(
            database,
            missing = journal.booked() - booked,
            "the database is older than the journal: records that were booked are not in it; put the right database back if there is one"
        );
    }
    if dialect == Dialect::Sqlite {
        // A copy of the file alone must show that a gateway was running.
        let checkpoint = sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(writer).await;
        if let Err(error) = checkpoint {
            tracing::debug!(%error, "the write-ahead log was not written into the database file");
        }
    }
    Ok(())
}

impl SqlStore {
    /// Records that everything in the journal is booked and its gateway stops.
    pub(crate) async fn finish_journal(&self) -> Result<(), StoreError> {
        let Some(journal) = &self.books.journal else { return Ok(()) };
        let sql = "UPDATE journals SET unfinished = 0 WHERE id = $1";
        let done = sqlx::query(sql).bind(journal.id.to_string()).execute(self.pools.writer()).await;
        done.map(drop).map_err(|error| self.failed(OPERATION, error))
    }

    /// Whether the journal of a data folder and this database belong together.
    pub(crate) async fn compare_journal(&self, data: &Path) -> Result<Vec<Mismatch>, StoreError> {
        let failed = |error| self.failed(OPERATION, error);
        // Read the file before the database. Booking counts in the database first, so a batch in between cannot make the journal
        // count more.
        let here = PairingState::read(data);
        let rows = sqlx::query("SELECT id, booked, unfinished FROM journals ORDER BY id")
            .fetch_all(self.pools.reader())
            .await
            .map_err(failed)?;
        let mut found = Vec::new();
        let mut is_known = false;
        for row in &rows {
            let id: String = row.try_get(0).map_err(failed)?;
            let (booked, unfinished): (i64, i64) = (row.try_get(1).map_err(failed)?, row.try_get(2).map_err(failed)?);
            match here.filter(|here| Uuid::parse_str(&id).is_ok_and(|id| id == here.id)) {
                Some(here) => {
                    is_known = true;
                    let counted = i64::try_from(here.booked).unwrap_or(i64::MAX);
                    if counted > booked {
                        found.push(Mismatch { rule: ConsistencyRule::Journals, what: id, expected: counted, found: booked });
                    }
                }
                // On PostgreSQL the journal may be on another node.
                None if unfinished != 0 && self.dialect == Dialect::Sqlite => {
                    found.push(Mismatch { rule: ConsistencyRule::JournalMissing, what: id, expected: booked, found: 0 });
                }
                None => {}
            }
        }
        if let Some(PairingState { id, booked }) = here.filter(|here| !is_known && here.booked > 0) {
            let counted = i64::try_from(booked).unwrap_or(i64::MAX);
            found.push(Mismatch { rule: ConsistencyRule::Journals, what: id.to_string(), expected: counted, found: 0 });
        }
        Ok(found)
    }

    /// Accepts journal and database as they are, so that missing records are not reported again. Returns the mismatches.
    pub(crate) async fn accept_journal(&self, data: &Path) -> Result<Vec<Mismatch>, StoreError> {
        let found = self.compare_journal(data).await?;
        for mismatch in &found {
            let query = if mismatch.rule == ConsistencyRule::JournalMissing {
                sqlx::query("UPDATE journals SET unfinished = 0 WHERE id = $1").bind(mismatch.what.clone())
            } else {
                let sql = "INSERT INTO journals (id, booked, unfinished) VALUES ($1, $2, 0) \
                           ON CONFLICT (id) DO UPDATE SET booked = excluded.booked";
                sqlx::query(sql).bind(mismatch.what.clone()).bind(mismatch.expected)
            };
            query.execute(self.pools.writer()).await.map_err(|error| self.failed(OPERATION, error))?;
        }
        Ok(found)
    }
}
