//! Opening a store: first starts, concurrent processes, wrong keys and damaged files.

use std::{fs, path::Path};

use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;
use tollgate_core::Secret;

use super::*;
use crate::{
    ErrorClass, MasterKeySource,
    conformance::{options, put_account, put_channel, sqlite},
    samples::{MIDNIGHT, record},
};

const CLI: ChangeOrigin = ChangeOrigin::Cli;

async fn open_in(dir: &TempDir) -> Result<Store, StoreError> {
    open(options(sqlite(dir), dir)).await
}

/// Creates a database with a sealed credential.
async fn create_with_credential(dir: &TempDir) {
    let store = open_in(dir).await.unwrap();
    let batch = [put_channel("main"), put_account("main", "a", Some("sk-upstream"))];
    store.catalog.apply(&batch, &Actor::local(CLI, "tester"), MIDNIGHT).await.unwrap();
    store.close().await;
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn first_start_creates_the_owner_and_later_starts_reuse_the_data() {
    let dir = TempDir::new().unwrap();
    let nested = OpenOptions { data: dir.path().join("a/b"), ..options(StoreUrl::Sqlite(dir.path().join("a/b/x.db")), &dir) };
    let first = open(nested.clone()).await.unwrap();
    assert!(first.first_start);
    first.usage.append(&[record(1)]).await.unwrap();
    first.close().await;
    assert_eq!(files(&dir.path().join("a/b")), ["master.key", "x.db"]);
    let second = open(nested).await.unwrap();
    assert_eq!(second.catalog.revision().await.unwrap(), Revision(1));
    assert_eq!(second.usage.find(record(1).id).await.unwrap(), Some(record(1)));
    assert_eq!(first.hasher.hash("x"), second.hasher.hash("x"));
}

#[tokio::test]
async fn start_counts_as_the_first_until_the_catalog_changes() {
    let dir = TempDir::new().unwrap();
    open_in(&dir).await.unwrap().close().await;
    let store = open_in(&dir).await.unwrap();
    assert!(store.first_start, "only a read-only command ran before");
    store.catalog.apply(&[put_channel("main")], &Actor::local(CLI, "tester"), MIDNIGHT).await.unwrap();
    store.close().await;
    assert!(!open_in(&dir).await.unwrap().first_start);
}

#[tokio::test]
async fn committed_records_survive_a_kill() {
    let dir = TempDir::new().unwrap();
    let store = open_in(&dir).await.unwrap();
    store.usage.append(&[record(1), record(2)]).await.unwrap();
    // The store is neither closed nor dropped, so the write-ahead log stays, as after a kill.
    std::mem::forget(store);
    let again = open_in(&dir).await.unwrap();
    assert_eq!(again.usage.append(&[record(1), record(2), record(3)]).await.unwrap(), 1);
}

#[tokio::test]
async fn second_server_is_refused_and_a_command_is_not() {
    let dir = TempDir::new().unwrap();
    let serve = OpenOptions { access: AccessMode::Serve, ..options(sqlite(&dir), &dir) };
    let first = open(serve.clone()).await.unwrap();
    let refused = open(serve.clone()).await.unwrap_err();
    assert!(matches!(refused, StoreError::InUse { holder: Some(pid), .. } if pid == std::process::id()), "{refused}");
    assert_eq!(refused.class(), ErrorClass::Data);
    let beside = open_in(&dir).await.unwrap();
    beside.catalog.apply(&[put_channel("main")], &Actor::local(CLI, "tester"), MIDNIGHT).await.unwrap();
    assert_eq!(first.catalog.load().await.unwrap().channels.len(), 1);
    drop(first);
    open(serve).await.unwrap();
}

#[tokio::test]
async fn wrong_or_missing_master_key_changes_nothing() {
    let dir = TempDir::new().unwrap();
    create_with_credential(&dir).await;
    let database = fs::read(dir.path().join("tollgate.db")).unwrap();
    let key = fs::read_to_string(dir.path().join("master.key")).unwrap();

    let other = OpenOptions { data: dir.path().join("other"), ..options(StoreUrl::Sqlite(dir.path().join("other/x.db")), &dir) };
    open(other).await.unwrap().close().await;
    let wrong = fs::read_to_string(dir.path().join("other/master.key")).unwrap();
    for master in [MasterKeySource::Text(Secret::new(wrong.clone())), MasterKeySource::File(dir.path().join("other/master.key"))] {
        let refused = open(OpenOptions { master, ..options(sqlite(&dir), &dir) }).await.unwrap_err();
        assert!(matches!(refused, StoreError::MasterKeyWrong { .. }), "{refused}");
        assert_eq!(refused.class(), ErrorClass::Operator);
    }
    fs::remove_file(dir.path().join("master.key")).unwrap();
    let refused = open_in(&dir).await.unwrap_err();
    assert!(matches!(refused, StoreError::MasterKeyMissing { .. }), "{refused}");
    assert_eq!(refused.class(), ErrorClass::Operator);
    assert!(!dir.path().join("master.key").exists(), "no new key is created for a database sealed with another");
    assert_eq!(fs::read(dir.path().join("tollgate.db")).unwrap(), database);

    // Of several keys one has to fit.
    let both = MasterKeySource::Text(Secret::new(format!("{wrong}{key}")));
    let store = open(OpenOptions { master: both, ..options(sqlite(&dir), &dir) }).await.unwrap();
    let catalog = store.catalog.load().await.unwrap();
    let credential = catalog.channel_by_name("main").unwrap().accounts[0].credential.clone().unwrap();
    assert_eq!(credential.expose(), "sk-upstream");
}

#[tokio::test]
async fn damaged_file_is_refused_and_not_changed() {
    let sound = {
        let dir = TempDir::new().unwrap();
        create_with_credential(&dir).await;
        fs::read(dir.path().join("tollgate.db")).unwrap()
    };
    let mut damaged = sound.clone();
    damaged[4_096..12_288].fill(0x5a);
    for bytes in [
        Vec::new(),
        b"SQLite format 3\0".to_vec(),
        b"just some text that is not a database".to_vec(),
        b"text of the size of a small database, which only reading its first page can tell from one ".repeat(100),
        sound[..5_000].to_vec(),
        damaged,
    ] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("tollgate.db");
        fs::write(&path, &bytes).unwrap();
        let refused = open_in(&dir).await.unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { .. }), "{} bytes: {refused:?}", bytes.len());
        assert_eq!(refused.class(), ErrorClass::Data);
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert!(!dir.path().join("master.key").exists());
    }
}

/// Whether this process holds SQLite's shared lock on a database, which a connection in WAL mode holds until it is closed.
#[cfg(target_os = "linux")]
fn holds_shared_lock(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // `SHARED_FIRST` in https://www.sqlite.org/src/file/src/os.h.
    const SHARED_FIRST: &str = "1073741826";
    let (process, inode) = (std::process::id().to_string(), format!(":{}", fs::metadata(path).unwrap().ino()));
    // The kernel writes the list piece by piece: while other programs take and release locks, it can lack a lock or have it twice. It
    // never has a lock that is not held.
    (0..50).any(|_| {
        let list = fs::read_to_string("/proc/locks").unwrap();
        let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.any(|line| line[4] == process && line[5].ends_with(&inode) && line[6] == SHARED_FIRST)
    })
}

/// Without its locks, another program that opens the database removes the write-ahead log of the running gateway.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn opening_a_database_again_keeps_the_locks_of_the_running_gateway() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("tollgate.db");
    let serving = open_in(&dir).await.unwrap();
    serving.usage.append(&[record(1)]).await.unwrap();
    assert!(holds_shared_lock(&path));
    open_in(&dir).await.unwrap().close().await;
    assert!(holds_shared_lock(&path));
    serving.close().await;
    assert!(!holds_shared_lock(&path));
}

#[tokio::test]
async fn database_of_another_program_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("tollgate.db");
    let mut other = SqliteConnection::connect(&format!("sqlite:{}?mode=rwc", path.display())).await.unwrap();
    sqlx::raw_sql("CREATE TABLE songs (name TEXT)").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let refused = open_in(&dir).await.unwrap_err();
    assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused}");
}

#[tokio::test]
async fn database_of_a_newer_version_is_refused() {
    let dir = TempDir::new().unwrap();
    create_with_credential(&dir).await;
    let path = dir.path().join("tollgate.db");
    let mut newer = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    let sql =
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (99, 'later', 1, x'00', 0)";
    sqlx::raw_sql(sql).execute(&mut newer).await.unwrap();
    newer.close().await.unwrap();
    let refused = open_in(&dir).await.unwrap_err();
    assert!(matches!(refused, StoreError::Newer { found: 99, .. }), "{refused}");
    assert_eq!(refused.class(), ErrorClass::Data);
}

#[tokio::test]
async fn error_names_the_folder_that_cannot_be_created() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let options = OpenOptions { data: dir.path().join("file/data"), ..options(sqlite(&dir), &dir) };
    let refused = open(options).await.unwrap_err();
    assert!(refused.to_string().contains("file/data"), "{refused}");
    assert_eq!(refused.class(), ErrorClass::Data);
}

#[tokio::test]
async fn database_that_does_not_answer_is_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let dir = TempDir::new().unwrap();
    let url = StoreUrl::parse(&format!("postgres://me:hidden@127.0.0.1:{port}/tollgate")).unwrap();
    let refused = open(options(url, &dir)).await.unwrap_err();
    assert!(refused.is_unreachable(), "{refused:?}");
    assert_eq!(refused.class(), ErrorClass::Unreachable);
    assert!(!refused.to_string().contains("hidden"), "{refused}");
}

#[test]
fn addresses_are_parsed_and_shown_without_passwords() {
    assert_eq!(StoreUrl::parse("sqlite:./x/y.db").unwrap().shown(), "sqlite:./x/y.db");
    assert_eq!(StoreUrl::parse("sqlite:///x/y.db").unwrap().shown(), "sqlite:/x/y.db");
    assert_eq!(StoreUrl::parse("memory:").unwrap().shown(), "memory:");
    let postgres = StoreUrl::parse("postgres://me:canary@host:5433/name?sslmode=require").unwrap();
    assert_eq!(format!("{postgres:?}"), "postgres://me:***@host:5433/name");
    for bad in ["", "sqlite:", "sqlite::memory:", "sqlite:x.db?mode=ro", "mysql://me:canary@host/x", "me:canary@host"] {
        let error = StoreUrl::parse(bad).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Operator, "{bad}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}
