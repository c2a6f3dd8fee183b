//! Addresses of SQL databases and the settings of their connections.

use std::{
    fmt::Write as _,
    future::Future,
    path::{Path, PathBuf},
    str::FromStr as _,
    time::Duration,
};

use sqlx::any::AnyConnectOptions;
use tokio::time::timeout;

use crate::StoreError;

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pragmas of connections that write to SQLite. `synchronous = FULL`: a commit has reached the disk when it returns.
/// `temp_store = MEMORY`: the statement journal stays in memory, which saves a fifth of the time of appending usage records. Most
/// indexes are not ordered by time, so appends touch pages everywhere: a cache of 8 MiB (default: 2) and a checkpoint every 16 MiB
/// (default: 4) read and write fewer of them.
pub(super) const SQLITE_SETUP: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 5000; \
     PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192; \
     PRAGMA wal_autocheckpoint = 4096;";
pub(super) const SQLITE_READER_SETUP: &str = "PRAGMA query_only = 1;";
/// Settings of connections to PostgreSQL. `random_page_cost = 1.1`: rows of the same time were written together, so an index by time
/// reads pages nearly in order. With the default (4), which is meant for spinning disks, PostgreSQL reads a whole table of sums for one
/// width. `jit = off`: compiling a query of sums takes as long as running it.
pub(super) const POSTGRES_SETUP: &str = "SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s'; \
     SET random_page_cost = 1.1; SET jit = off;";

#[derive(Clone, Debug)]
pub(crate) enum SqlAddress {
    Sqlite(PathBuf),
    /// The whole address, and the same without its password.
    Postgres {
        url: String,
        shown: String,
    },
}

impl SqlAddress {
    /// The address without a password, for messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Sqlite(path) => path.display().to_string(),
            Self::Postgres { shown, .. } => shown.clone(),
        }
    }

    pub(super) fn connect_options(&self) -> Result<AnyConnectOptions, StoreError> {
        let url = match self {
            Self::Sqlite(path) => sqlite_url(path),
            Self::Postgres { url, .. } => url.clone(),
        };
        AnyConnectOptions::from_str(&url).map_err(|error| StoreError::BadUrl { url: self.shown(), detail: error.to_string() })
    }
}

/// `sqlite:` and the percent-encoded path. `mode=rwc` lets the connection create the draft of a new database.
pub(super) fn sqlite_url(path: &Path) -> String {
    let mut url = "sqlite:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => url.push(char::from(*byte)),
            other => write!(url, "%{other:02X}").expect("writing to a String cannot fail"),
        }
    }
    url + "?mode=rwc"
}

/// Awaits a connection attempt for at most [`CONNECT_TIMEOUT`]: a server may accept the connection and then not answer.
pub(super) async fn within_connect_timeout<T>(database: &str, connecting: impl Future<Output = T>) -> Result<T, StoreError> {
    let late = |_| StoreError::Unreachable { database: database.to_owned(), detail: "it did not answer in time".to_owned() };
    timeout(CONNECT_TIMEOUT, connecting).await.map_err(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_in_a_path_are_encoded() {
        assert_eq!(sqlite_url(Path::new("/data/a b?c#d%e.db")), "sqlite:/data/a%20b%3Fc%23d%25e.db?mode=rwc");
        assert_eq!(sqlite_url(Path::new("./x/y.db")), "sqlite:./x/y.db?mode=rwc");
    }
}
