//! Options for opening a store: the address of its database, the source of its keys, and its purpose.

use std::{fmt, path::PathBuf, time::Duration};

use tollgate_core::Timestamp;
use url::Url;

use crate::{MasterKeySource, RandomSource, StoreError};

/// Options of [`open`](crate::open).
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub url: StoreUrl,
    /// The data folder; created if it does not exist.
    pub data: PathBuf,
    pub master: MasterKeySource,
    pub access: AccessMode,
    pub random: RandomSource,
    pub now: Timestamp,
    /// How long the local cache may answer while a PostgreSQL database is unreachable. `None` disables the cache.
    pub without_database: Option<Duration>,
}

/// The purpose that a store is opened for, which decides the locks that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// Serving alone: one process per data folder and per PostgreSQL database.
    Serve,
    /// Serving as one of several nodes on a PostgreSQL database that share their counters.
    Node,
    /// One command; may run beside a server.
    Command,
}

/// The address of a database. `Debug` does not show a password.
#[derive(Clone)]
pub enum StoreUrl {
    /// `sqlite:<path>`.
    Sqlite(PathBuf),
    /// `postgres://…`, including the password.
    Postgres(String),
    /// `memory:`; lost when the process ends.
    Memory,
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl StoreUrl {
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let bad = |detail: &str| StoreError::BadUrl { url: without_password(text), detail: detail.to_owned() };
        if matches!(text, "memory:" | "memory") {
            return Ok(Self::Memory);
        }
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" | ":memory:" => Err(bad("it has no file name")),
                path if path.contains('?') => Err(bad("an SQLite address has no parameters")),
                path => Ok(Self::Sqlite(PathBuf::from(path))),
            };
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Url::parse(text).map_err(|error| bad(&error.to_string()))?;
            return Ok(Self::Postgres(text.to_owned()));
        }
        Err(bad("unknown address format"))
    }

    /// The address without a password, for messages.
    pub fn shown(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Postgres(url) => without_password(url),
            Self::Memory => "memory:".to_owned(),
        }
    }
}

/// An address without its password and parameters.
pub(crate) fn without_password(text: &str) -> String {
    match Url::parse(text) {
        Ok(mut url) if url.has_host() => {
            if url.password().is_some() {
                let _ = url.set_password(Some("***"));
            }
            url.set_query(None);
            url.to_string()
        }
        // Text that does not parse as an address may still contain a password.
        _ => text.split(['@', '?']).next_back().unwrap_or_default().to_owned(),
    }
}
