//! Opening a database: addresses, pools, and what a driver's error means.

use std::{
    fmt::Write as _,
    fs,
    future::Future,
    io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use sqlx::{
    AnyConnection, AnyPool, Connection as _, Error, Row as _,
    any::{AnyConnectOptions, AnyPoolOptions},
};
use tokio::{sync::Mutex, time::timeout};
use tollgate_core::Timestamp;

use super::{Dialect, SqlStore, booking::BookingConnection, change_signal::ChangeSignal, data_keys, migrate};
use crate::{AccessMode, MasterKeySource, RandomSource, StoreError, folder::put_new};

/// How long one waits for a connection or for SQLite's write lock.
const ACQUIRE: Duration = Duration::from_secs(5);
/// How long a database may take to let us in.
const CONNECT: Duration = Duration::from_secs(5);
const SQLITE_READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 10;

/// Pragmas of the SQLite writers; their commits reach the disk before they return. What a statement may have to undo is
/// kept in memory, not in a file: writing that was a fifth of what booking costs. Indexes that do not go by time are
/// written to all over: with 8 MiB of pages in memory instead of two, and with the log copied into the file every 16 MiB
/// instead of every four, the same pages are read and written less often.
pub(super) const SQLITE_SETUP: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 5000; \
     PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192; \
     PRAGMA wal_autocheckpoint = 4096;";
const SQLITE_READER_SETUP: &str = "PRAGMA query_only = 1;";
pub(super) const POSTGRES_SETUP: &str = "SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s';";

/// What is needed to open a database.
pub(crate) struct OpenSql<'a> {
    pub(crate) address: SqlAddress,
    pub(crate) data: &'a Path,
    pub(crate) master: &'a MasterKeySource,
    pub(crate) random: &'a RandomSource,
    pub(crate) now: Timestamp,
    pub(crate) access: AccessMode,
}

/// Where a database is.
#[derive(Clone, Debug)]
pub(crate) enum SqlAddress {
    Sqlite(PathBuf),
    /// The whole address, and the same without its password.
    Postgres {
        url: String,
        place: String,
    },
}

impl SqlAddress {
    fn place(&self) -> String {
        match self {
            Self::Sqlite(path) => path.display().to_string(),
            Self::Postgres { place, .. } => place.clone(),
        }
    }

    pub(super) fn options(&self) -> Result<AnyConnectOptions, StoreError> {
        let url = match self {
            Self::Sqlite(path) => sqlite_url(path),
            Self::Postgres { url, .. } => url.clone(),
        };
        AnyConnectOptions::from_str(&url).map_err(|error| StoreError::BadUrl { url: self.place(), detail: error.to_string() })
    }
}

/// `sqlite:` and the path with what an address gives a meaning to escaped. `mode=rwc` because a new file is made by
/// us, under another name, before it gets its own.
pub(super) fn sqlite_url(path: &Path) -> String {
    let mut url = "sqlite:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => url.push(char::from(*byte)),
            other => write!(url, "%{other:02X}").expect("text does not fail to be written"),
        }
    }
    url + "?mode=rwc"
}

/// Opens a database, making and migrating it as needed.
pub(crate) async fn open(what: OpenSql<'_>) -> Result<SqlStore, StoreError> {
    sqlx::any::install_default_drivers();
    let place = what.address.place();
    let dialect = match &what.address {
        SqlAddress::Sqlite(path) => {
            if check_file(path, &place)? == OnDisk::Nothing {
                create(path, &what).await?;
            }
            Dialect::Sqlite
        }
        SqlAddress::Postgres { .. } => Dialect::Postgres,
    };
    let options = what.address.options()?;
    let mut connection = connect(&options, dialect, &place).await?;
    let guard = match (dialect, what.access) {
        (Dialect::Postgres, AccessMode::Serve) => Some(ServerLock::take(&options, ALONE, &place).await?),
        (Dialect::Postgres, AccessMode::Node) => Some(ServerLock::take(&options, TOGETHER, &place).await?),
        (Dialect::Postgres, AccessMode::Command) | (Dialect::Sqlite, _) => None,
    };
    let prepared = prepare(&mut connection, dialect, &place, &what).await;
    connection.close().await.map_err(|error| failed(&place, "close a connection", error))?;
    let data_keys::DataKeys { sealer, hasher } = prepared?;
    let (writer, reader) = pools(options, dialect).await.map_err(|error| failed(&place, "open connections", error))?;
    let (news, books) = match what.address {
        SqlAddress::Sqlite(path) => (ChangeSignal::Look, BookingConnection::in_file(&path, &place)),
        SqlAddress::Postgres { url, .. } => {
            let books = BookingConnection::at(&url, &place);
            (ChangeSignal::listen(url), books)
        }
    };
    Ok(SqlStore { dialect, place, writer, reader, sealer, hasher, random: what.random.clone(), guard, news, books })
}

/// The lock that says that a server runs on this PostgreSQL database; it goes with its connection.
#[derive(Debug)]
pub(super) struct ServerLock {
    connection: Mutex<AnyConnection>,
    options: AnyConnectOptions,
    sql: &'static str,
}

/// The first number is "toll" in four bytes; the second one tells apart several schemas of one database. Nodes that share
/// their counters share the lock too, and keep those away that do not.
const ALONE: &str = "SELECT CASE WHEN pg_try_advisory_lock(1953459308, hashtext(current_schema())) THEN 1 ELSE 0 END";
const TOGETHER: &str = "SELECT CASE WHEN pg_try_advisory_lock_shared(1953459308, hashtext(current_schema())) THEN 1 ELSE 0 END";

impl ServerLock {
    async fn take(options: &AnyConnectOptions, sql: &'static str, place: &str) -> Result<Self, StoreError> {
        let connection = Mutex::new(lock(options, sql, place).await?);
        Ok(Self { connection, options: options.clone(), sql })
    }

    /// Takes the lock again when its connection broke.
    pub(super) async fn keep(&self, place: &str) -> Result<(), StoreError> {
        let mut connection = self.connection.lock().await;
        if connection.ping().await.is_err() {
            *connection = lock(&self.options, self.sql, place).await?;
        }
        Ok(())
    }

    pub(super) async fn let_go(&self) {
        let unlocked = sqlx::query("SELECT COUNT(*) FROM (SELECT pg_advisory_unlock_all()) AS unlocked");
        // A connection that is broken has let the lock go already.
        let _ = timeout(CONNECT, unlocked.execute(&mut *self.connection.lock().await)).await;
    }
}

async fn lock(options: &AnyConnectOptions, sql: &'static str, place: &str) -> Result<AnyConnection, StoreError> {
    let query = |error| failed(place, "take the server's lock", error);
    let mut connection = in_time(place, AnyConnection::connect_with(options)).await?.map_err(query)?;
    let row = sqlx::query(sql).fetch_one(&mut connection).await.map_err(query)?;
    let taken: i32 = row.try_get(0).map_err(query)?;
    if taken == 1 { Ok(connection) } else { Err(StoreError::SecondNode { place: place.to_owned() }) }
}

/// The server's lock of a PostgreSQL database, for as long as the connection lives.
pub(super) async fn postgres_alone(url: &str, place: &str) -> Result<AnyConnection, StoreError> {
    let address = SqlAddress::Postgres { url: url.to_owned(), place: place.to_owned() };
    lock(&address.options()?, ALONE, place).await
}

/// What is connected to, in time; a server that accepts and says nothing is away.
pub(super) async fn in_time<T>(place: &str, connecting: impl Future<Output = T>) -> Result<T, StoreError> {
    let late = |_| StoreError::Unreachable { place: place.to_owned(), detail: "it did not answer in time".to_owned() };
    timeout(CONNECT, connecting).await.map_err(late)
}

async fn connect(options: &AnyConnectOptions, dialect: Dialect, place: &str) -> Result<AnyConnection, StoreError> {
    let connecting = in_time(place, AnyConnection::connect_with(options)).await?;
    let mut connection = connecting.map_err(|error| failed(place, "connect", error))?;
    if dialect == Dialect::Sqlite {
        let setup = sqlx::raw_sql("PRAGMA synchronous = FULL;").execute(&mut connection).await;
        setup.map_err(|error| failed(place, "read the first page", error))?;
    }
    Ok(connection)
}

/// Checks the master key, migrates, and fills a new database. Nothing is written when the master key is wrong.
async fn prepare(
    connection: &mut AnyConnection,
    dialect: Dialect,
    place: &str,
    what: &OpenSql<'_>,
) -> Result<data_keys::DataKeys, StoreError> {
    if dialect == Dialect::Postgres {
        // Nodes that start at once prepare one after the other; the lock goes with this connection.
        let one = "SELECT pg_advisory_lock(1953459309, hashtext(current_schema()))";
        sqlx::raw_sql(one).execute(&mut *connection).await.map_err(|error| failed(place, "prepare the database", error))?;
    }
    migrate::check(connection, dialect, place).await?;
    let opened = data_keys::open(connection, dialect, place, what.master, what.data, what.random).await?;
    migrate::run(connection, dialect, place, what.now, migrate::ALL).await?;
    match opened {
        Some(opened) => Ok(opened),
        None => data_keys::fill(connection, place, what.master, what.data, what.random).await,
    }
}

async fn pools(options: AnyConnectOptions, dialect: Dialect) -> Result<(AnyPool, AnyPool), Error> {
    let pool = |connections: u32, setup: &'static str| {
        let pool = AnyPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE);
        let pool = match dialect {
            // Files do not go away; a closed connection would only have to be set up again.
            Dialect::Sqlite => pool.idle_timeout(None).max_lifetime(None).test_before_acquire(false),
            Dialect::Postgres => pool,
        };
        // SQLite ends a transaction by itself when the disk fails or is full. The driver counts it as open for ever then, and
        // begins no other.
        let pool = pool.before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }));
        pool.after_connect(move |connection, _| Box::pin(async move { sqlx::raw_sql(setup).execute(connection).await.map(|_| ()) }))
            .connect_with(options.clone())
    };
    match dialect {
        Dialect::Sqlite => {
            let writer = pool(1, SQLITE_SETUP).await?;
            Ok((writer, pool(SQLITE_READERS, SQLITE_READER_SETUP).await?))
        }
        Dialect::Postgres => {
            let both = pool(POSTGRES_CONNECTIONS, POSTGRES_SETUP).await?;
            Ok((both.clone(), both))
        }
    }
}

// === SQLite files ===

#[derive(PartialEq, Eq)]
enum OnDisk {
    Nothing,
    Database,
}

/// A file that is there must be a database; it is never started over.
fn check_file(path: &Path, place: &str) -> Result<OnDisk, StoreError> {
    let corrupt = |detail: &str| StoreError::Corrupt { place: place.to_owned(), detail: detail.to_owned() };
    let file = |source: io::Error| StoreError::File { action: "read the database", path: path.to_owned(), source };
    match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(OnDisk::Nothing),
        Err(error) => Err(file(error)),
        Ok(mut opened) => {
            if opened.metadata().map_err(file)?.is_dir() {
                return Err(corrupt("it is a folder"));
            }
            let mut start = [0; 16];
            match io::Read::read_exact(&mut opened, &mut start) {
                Ok(()) if &start == b"SQLite format 3\0" => Ok(OnDisk::Database),
                Ok(()) => Err(corrupt("it is not an SQLite file")),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(corrupt("it is too short for a database")),
                Err(error) => Err(file(error)),
            }
        }
    }
}

/// Makes a new database under another name and gives it its own when it is whole, so that a crash in between leaves
/// nothing that looks like a damaged database.
async fn create(path: &Path, what: &OpenSql<'_>) -> Result<(), StoreError> {
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let file = |action: &'static str| {
        let path = path.to_owned();
        move |source: io::Error| StoreError::File { action, path, source }
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(file("create the folder of"))?;
    }
    remove_draft(&draft);
    let place = path.display().to_string();
    let options = SqlAddress::Sqlite(draft.clone()).options()?;
    let made = async {
        let mut connection = connect(&options, Dialect::Sqlite, &place).await?;
        prepare(&mut connection, Dialect::Sqlite, &place, what).await?;
        connection.close().await.map_err(|error| failed(&place, "close a new database", error))
    };
    let linked = match made.await {
        Ok(()) => match put_new(&draft, path) {
            // Another process made it meanwhile; that one counts.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(file("create")),
        },
        Err(error) => Err(error),
    };
    remove_draft(&draft);
    linked
}

fn remove_draft(draft: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = draft.as_os_str().to_owned();
        name.push(suffix);
        let _ = fs::remove_file(PathBuf::from(name));
    }
}

// === errors ===

/// What an error of booking's own SQLite connection means.
pub(super) fn sqlite_failed(place: &str, operation: &'static str, error: rusqlite::Error) -> StoreError {
    let code = error.sqlite_error().map(|error| error.extended_code.to_string());
    by_code(place, code.as_deref(), error.to_string())
        .unwrap_or_else(|| StoreError::Query { operation, source: Error::AnyDriverError(error.into()) })
}

/// What a driver's error means: the database is away, damaged, refuses us, or failed at what was asked.
pub(super) fn failed(place: &str, operation: &'static str, error: Error) -> StoreError {
    let detail = error.to_string();
    if matches!(error, Error::Io(_) | Error::Tls(_) | Error::PoolTimedOut | Error::PoolClosed | Error::WorkerCrashed) {
        return StoreError::Unreachable { place: place.to_owned(), detail };
    }
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code).map(std::borrow::Cow::into_owned);
    by_code(place, code.as_deref(), detail).unwrap_or(StoreError::Query { operation, source: error })
}

/// What a database's code says, where it tells who is at fault: the database, or what it was given.
fn by_code(place: &str, code: Option<&str>, detail: String) -> Option<StoreError> {
    let place = place.to_owned();
    match code? {
        // SQLite, primary and extended codes: SQLITE_CORRUPT and SQLITE_NOTADB.
        "11" | "26" | "267" | "523" | "779" => Some(StoreError::Corrupt { place, detail }),
        // SQLite: another process holds the write lock for longer than we wait (SQLITE_BUSY, SQLITE_LOCKED and kin).
        "5" | "6" | "261" | "262" | "517" | "773" => Some(StoreError::Unreachable { place, detail }),
        // PostgreSQL: connection failures, shutting down, no room (disk, memory, connections), nothing may be written now.
        code if code.len() == 5 && (["08", "57P", "53"].iter().any(|class| code.starts_with(class)) || code == "25006") => {
            Some(StoreError::Unreachable { place, detail })
        }
        // PostgreSQL: wrong password, no such role or database.
        code if code.len() == 5 && (code.starts_with("28") || code == "3D000") => Some(StoreError::BadUrl { url: place, detail }),
        // PostgreSQL: data exceptions (out of range, not a text) and broken constraints.
        code if code.len() == 5 && (code.starts_with("22") || code.starts_with("23")) => Some(StoreError::Unfit { detail }),
        // SQLite, by the primary code: SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH, SQLITE_RANGE.
        code if code.len() < 5 && code.parse().is_ok_and(|code: u32| matches!(code & 0xff, 18 | 19 | 20 | 25)) => {
            Some(StoreError::Unfit { detail })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_special_characters_stays_a_path() {
        assert_eq!(sqlite_url(Path::new("/data/a b?c#d%e.db")), "sqlite:/data/a%20b%3Fc%23d%25e.db?mode=rwc");
        assert_eq!(sqlite_url(Path::new("./x/y.db")), "sqlite:./x/y.db?mode=rwc");
    }

    #[test]
    fn what_is_wrong_with_a_row_is_told_from_what_is_wrong_with_the_database() {
        let unfit = |code| by_code("x", Some(code), String::new()).is_some_and(|error| error.is_unfit());
        // Out of range, not a text, a CHECK of either database, a duplicate, NOT NULL.
        assert!(["22003", "22021", "23514", "275", "2067", "1299", "18", "20"].iter().all(|code| unfit(code)));
        // No disk, read only, no memory, serialization, no such table, a shutdown, busy, damaged.
        let other = ["53100", "25006", "53200", "40001", "42P01", "57P01", "13", "8", "10", "1", "5", "11", "266"];
        assert!(other.iter().all(|code| !unfit(code)));
    }

    #[test]
    fn a_database_that_takes_nothing_for_now_is_away() {
        let away = |code| by_code("x", Some(code), String::new()).is_some_and(|error| error.is_away());
        assert!(["53100", "53200", "53300", "25006", "57P01", "08006", "5"].iter().all(|code| away(code)));
        assert!(["25001", "42P01", "53", "23505", "28P01"].iter().all(|code| !away(code)));
    }

    #[tokio::test]
    async fn a_writer_that_has_to_wait_too_long_is_told_to_come_back() {
        use sqlx::{Executor as _, SqliteConnection};
        let dir = tempfile::TempDir::new().unwrap();
        let url = format!("sqlite:{}?mode=rwc", dir.path().join("x.db").display());
        let mut holder = SqliteConnection::connect(&url).await.unwrap();
        holder.execute("CREATE TABLE t (x BIGINT); BEGIN IMMEDIATE;").await.unwrap();
        let mut other = SqliteConnection::connect(&url).await.unwrap();
        other.execute("PRAGMA busy_timeout = 0").await.unwrap();
        let error = other.execute("BEGIN IMMEDIATE").await.unwrap_err();
        assert!(failed("x.db", "write", error).is_away());
    }
}
