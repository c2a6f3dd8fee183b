//! Maps errors of the database drivers to [`StoreError`].

use std::borrow::Cow;

use sqlx::{Error, error::DatabaseError};

use crate::StoreError;

/// Maps an sqlx error: the database is unreachable, damaged, refuses access, rejects a value, or the query failed.
pub(super) fn failed(database: &str, operation: &'static str, error: Error) -> StoreError {
    let detail = error.to_string();
    if matches!(error, Error::Io(_) | Error::Tls(_) | Error::PoolTimedOut | Error::PoolClosed | Error::WorkerCrashed) {
        return StoreError::Unreachable { database: database.to_owned(), detail };
    }
    let code = error.as_database_error().and_then(DatabaseError::code).map(Cow::into_owned);
    by_code(database, code.as_deref(), detail).unwrap_or(StoreError::Query { operation, source: error })
}

/// Maps an error of the rusqlite connection that appends usage records.
pub(super) fn sqlite_failed(database: &str, operation: &'static str, error: rusqlite::Error) -> StoreError {
    let code = error.sqlite_error().map(|error| error.extended_code.to_string());
    by_code(database, code.as_deref(), error.to_string())
        .unwrap_or_else(|| StoreError::Query { operation, source: Error::AnyDriverError(error.into()) })
}

/// The error that a result code stands for, if the code shows whether the database or the data is at fault.
fn by_code(database: &str, code: Option<&str>, detail: String) -> Option<StoreError> {
    let database = database.to_owned();
    match code? {
        // SQLite: SQLITE_CORRUPT and SQLITE_NOTADB with their extended codes.
        "11" | "26" | "267" | "523" | "779" => Some(StoreError::Corrupt { database, detail }),
        // SQLite: SQLITE_BUSY and SQLITE_LOCKED with their extended codes; another process held the write lock too long.
        "5" | "6" | "261" | "262" | "517" | "773" => Some(StoreError::Unreachable { database, detail }),
        // PostgreSQL: connection exceptions, operator intervention, insufficient resources, read-only transaction.
        code if code.len() == 5 && (["08", "57P", "53"].iter().any(|class| code.starts_with(class)) || code == "25006") => {
            Some(StoreError::Unreachable { database, detail })
        }
        // PostgreSQL: wrong password, unknown role, unknown database.
        code if code.len() == 5 && (code.starts_with("28") || code == "3D000") => {
            Some(StoreError::BadUrl { url: database, detail })
        }
        // PostgreSQL: data exceptions and violated constraints.
        code if code.len() == 5 && (code.starts_with("22") || code.starts_with("23")) => Some(StoreError::InvalidData { detail }),
        // SQLite, by the primary code: SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH, SQLITE_RANGE.
        code if code.len() < 5 && code.parse().is_ok_and(|code: u32| matches!(code & 0xff, 18 | 19 | 20 | 25)) => {
            Some(StoreError::InvalidData { detail })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_data_is_distinguished_from_database_failures() {
        let invalid = |code| by_code("x", Some(code), String::new()).is_some_and(|error| error.is_invalid_data());
        // Out of range, not a text, a CHECK of either database, a duplicate, NOT NULL.
        assert!(["22003", "22021", "23514", "275", "2067", "1299", "18", "20"].iter().all(|code| invalid(code)));
        // Disk full, read-only, out of memory, serialization, unknown table, shutdown, busy, damaged.
        let other = ["53100", "25006", "53200", "40001", "42P01", "57P01", "13", "8", "10", "1", "5", "11", "266"];
        assert!(other.iter().all(|code| !invalid(code)));
    }

    #[test]
    fn database_that_accepts_no_writes_is_unreachable() {
        let unreachable = |code| by_code("x", Some(code), String::new()).is_some_and(|error| error.is_unreachable());
        assert!(["53100", "53200", "53300", "25006", "57P01", "08006", "5"].iter().all(|code| unreachable(code)));
        assert!(["25001", "42P01", "53", "23505", "28P01"].iter().all(|code| !unreachable(code)));
    }

    #[tokio::test]
    async fn write_lock_timeout_is_unreachable() {
        use sqlx::{Connection as _, Executor as _, SqliteConnection};
        let dir = tempfile::TempDir::new().unwrap();
        let url = format!("sqlite:{}?mode=rwc", dir.path().join("x.db").display());
        let mut holder = SqliteConnection::connect(&url).await.unwrap();
        holder.execute("CREATE TABLE t (x BIGINT); BEGIN IMMEDIATE;").await.unwrap();
        let mut other = SqliteConnection::connect(&url).await.unwrap();
        other.execute("PRAGMA busy_timeout = 0").await.unwrap();
        let error = other.execute("BEGIN IMMEDIATE").await.unwrap_err();
        assert!(failed("x.db", "write", error).is_unreachable());
    }
}
