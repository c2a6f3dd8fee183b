//! Opens a database: creates an SQLite file if there is none, migrates the schema, opens the data keys and connects.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use arc_swap::ArcSwap;
use sqlx::{AnyConnection, Connection as _, any::AnyConnectOptions};

use super::{
    address::{SqlAddress, within_connect_timeout},
    append::{Bookkeeping, UsageAppender},
    change_signal::ChangeSignal,
    data_keys,
    dialect::Dialect,
    driver_error::failed,
    journals,
    known_keys::KnownKeys,
    migrate,
    pools::ConnectionPools,
    server_lock::{LockMode, ServerLock},
    store::SqlStore,
    usage_reader::{PostgresReader, SqliteReader, UsageReader},
};
use crate::{
    AccessMode, MasterKeySource, OpenOptions, StoreError, chain::ChainKey, data_folder::publish_new, pairing::JournalPairing,
};

/// Time limit for acquiring a pooled connection, or SQLite's write lock.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of the header of an SQLite file in bytes.
const SQLITE_HEADER_BYTES: u64 = 100;

/// Opens a database, creating and migrating it as needed.
pub(crate) async fn open(address: SqlAddress, options: &OpenOptions) -> Result<SqlStore, StoreError> {
    sqlx::any::install_default_drivers();
    let database = address.shown();
    let dialect = match &address {
        SqlAddress::Sqlite(path) => {
            if check_file(path, &database)? == FileState::Missing {
                check_first_start(path, &database, options)?;
                create(path, options).await?;
            }
            Dialect::Sqlite
        }
        SqlAddress::Postgres { .. } => Dialect::Postgres,
    };
    let connect_options = address.connect_options()?;
    let mut connection = connect(&connect_options, dialect, &database).await?;
    let lock_mode = match (dialect, options.access) {
        (Dialect::Postgres, AccessMode::Serve) => Some(LockMode::Exclusive),
        (Dialect::Postgres, AccessMode::Node) => Some(LockMode::Shared),
        (Dialect::Postgres, AccessMode::Command) | (Dialect::Sqlite, _) => None,
    };
    let server_lock = match lock_mode {
        Some(mode) => Some(ServerLock::acquire(&connect_options, mode, &database).await?),
        None => None,
    };
    let prepared = prepare(&mut connection, dialect, &database, options).await;
    connection.close().await.map_err(|error| failed(&database, "close a connection", error))?;
    let data_keys::DataKeys { sealer, hasher, master: _, sealed_keys } = prepared?;
    let pools =
        ConnectionPools::open(&connect_options, dialect).await.map_err(|error| failed(&database, "open connections", error))?;
    let journal = match options.access {
        AccessMode::Serve | AccessMode::Node => Some(JournalPairing::open(&options.data, &options.random)?),
        AccessMode::Command => None,
    };
    if let Some(journal) = &journal {
        journals::begin(pools.writer(), dialect, &database, journal).await?;
    }
    let books = Bookkeeping { chain: ChainKey::of(&hasher), journal };
    let (change_signal, appender, usage_reader) = match address {
        SqlAddress::Sqlite(path) => {
            let reader = UsageReader::Sqlite(SqliteReader::new(&path, &database));
            (ChangeSignal::poll(), UsageAppender::sqlite(&path, &database), reader)
        }
        SqlAddress::Postgres { url, .. } => {
            let reader = UsageReader::Postgres(PostgresReader::new(&url, &database)?);
            let appender = UsageAppender::postgres(&url, &database);
            (ChangeSignal::listen(url), appender, reader)
        }
    };
    let random = options.random.clone();
    let keys = KnownKeys::new(options);
    keys.note(&sealed_keys);
    Ok(SqlStore {
        dialect,
        database,
        pools,
        sealer,
        hasher,
        random,
        server_lock,
        change_signal,
        appender,
        usage_reader,
        books,
        retention: super::retention::RetentionProgress::default(),
        keys,
        key_numbers: ArcSwap::default(),
    })
}

async fn connect(options: &AnyConnectOptions, dialect: Dialect, database: &str) -> Result<AnyConnection, StoreError> {
    let connecting = within_connect_timeout(database, AnyConnection::connect_with(options)).await?;
    let mut connection = connecting.map_err(|error| failed(database, "connect", error))?;
    if dialect == Dialect::Sqlite {
        let setup = sqlx::raw_sql("PRAGMA synchronous = FULL;").execute(&mut connection).await;
        setup.map_err(|error| failed(database, "read the first page", error))?;
    }
    Ok(connection)
}

/// Opens the data keys and migrates the schema; creates both in a new database. A wrong master key fails before anything is
/// written.
async fn prepare(
    connection: &mut AnyConnection,
    dialect: Dialect,
    database: &str,
    options: &OpenOptions,
) -> Result<data_keys::DataKeys, StoreError> {
    if dialect == Dialect::Postgres {
        // Serialises nodes that start at the same time. The lock ends with this connection.
        let lock = "SELECT pg_advisory_lock(1953459309, hashtext(current_schema()))";
        sqlx::raw_sql(lock).execute(&mut *connection).await.map_err(|error| failed(database, "prepare the database", error))?;
    }
    migrate::check(connection, dialect, database).await?;
    let opened = data_keys::open(connection, dialect, database, options).await?;
    migrate::run(connection, dialect, database, options.now, migrate::ALL).await?;
    match opened {
        Some(opened) => Ok(opened),
        None => data_keys::create(connection, database, options).await,
    }
}

// === SQLite files ===

#[derive(PartialEq, Eq)]
enum FileState {
    Missing,
    Database,
}

/// Whether there is a database file; a folder or a file too short for a database is refused. SQLite refuses other files that are no
/// database when it reads the first page.
///
/// The file is never opened here: closing any descriptor of a file ends the process's POSIX locks on it, also those of SQLite's own
/// connections in a running gateway. Another program that opens the database would then find no locks and remove its
/// write-ahead log.
fn check_file(path: &Path, database: &str) -> Result<FileState, StoreError> {
    let corrupt = |detail: &str| StoreError::Corrupt { database: database.to_owned(), detail: detail.to_owned() };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FileState::Missing),
        Err(source) => Err(StoreError::File { action: "read the database", path: path.to_owned(), source }),
        Ok(file) if file.is_dir() => Err(corrupt("it is a folder")),
        Ok(file) if file.len() < SQLITE_HEADER_BYTES => Err(corrupt("it is too short for a database")),
        Ok(_) => Ok(FileState::Database),
    }
}

/// Refuses to create a database in a data folder that has a master key, because it had a database before. A draft in the folder
/// shows that the start that made the key was killed before its database was complete.
fn check_first_start(path: &Path, database: &str, options: &OpenOptions) -> Result<(), StoreError> {
    let key = options.data.join("master.key");
    if !matches!(options.master, MasterKeySource::DataFolder) || !key.exists() || !drafts(path).is_empty() {
        return Ok(());
    }
    Err(StoreError::DatabaseMissing { database: database.to_owned(), folder: options.data.display().to_string() })
}

/// The drafts of a database, each with the id of the process that wrote it.
fn drafts(path: &Path) -> Vec<(PathBuf, String)> {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { return Vec::new() };
    let start = format!("{}.new-", stem.to_string_lossy());
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let draft = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(&start)?.trim_end_matches(|c: char| !c.is_ascii_digit()).to_owned();
        Some((entry.path(), process))
    };
    entries.filter_map(draft).collect()
}

/// Creates a database in a draft file and publishes it when it is complete: a crash leaves nothing that looks like a damaged
/// database.
async fn create(path: &Path, options: &OpenOptions) -> Result<(), StoreError> {
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let file = |action: &'static str| {
        let path = path.to_owned();
        move |source: io::Error| StoreError::File { action, path, source }
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(file("create the folder of"))?;
    }
    remove_drafts(path);
    let database = path.display().to_string();
    let connect_options = SqlAddress::Sqlite(draft.clone()).connect_options()?;
    let created = async {
        let mut connection = connect(&connect_options, Dialect::Sqlite, &database).await?;
        prepare(&mut connection, Dialect::Sqlite, &database, options).await?;
        connection.close().await.map_err(|error| failed(&database, "close a new database", error))
    };
    let published = match created.await {
        Ok(()) => match publish_new(&draft, path) {
            // Another process has created the database; use that one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(file("create")),
        },
        Err(error) => Err(error),
    };
    remove_draft(&draft);
    published
}

/// Removes the drafts of starts that were killed; those of running processes are kept.
fn remove_drafts(path: &Path) {
    for (draft, process) in drafts(path) {
        if Path::new("/proc/self").exists() && !Path::new("/proc").join(process).exists() {
            let _ = fs::remove_file(draft);
        }
    }
}

fn remove_draft(draft: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = draft.as_os_str().to_owned();
        name.push(suffix);
        let _ = fs::remove_file(PathBuf::from(name));
    }
}
