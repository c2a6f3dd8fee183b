//! The cache serves during an outage, and never reports that something does not exist.

use tempfile::TempDir;

use super::*;
use crate::{
    CatalogStore, KeyHash, KeyStore as _, StoreUrl,
    conformance::{actor, options, put_account, put_channel, put_group, put_key},
    rows::RowSecret,
    samples::MIDNIGHT,
    sql::SqlAddress,
};

/// A cached store around SQLite instead of PostgreSQL: the same code, without a server.
async fn around(dir: &TempDir) -> (CachedStore, OpenOptions) {
    let file = dir.path().join("tollgate.db");
    let mut options = options(StoreUrl::Sqlite(file.clone()), dir);
    options.without_database = Some(Duration::from_hours(1));
    let store = crate::open(OpenOptions { without_database: None, ..options.clone() }).await.unwrap();
    let batch = [
        put_channel("main"),
        put_account("main", "a", Some("sk-upstream")),
        put_group("default", &["main"]),
        put_key(&store, "ci", &["default"], Some("tk-imported-0123456789")),
        put_key(&store, "other", &["default"], Some("tk-another-0123456789")),
    ];
    store.catalog.apply(&batch, &actor(crate::ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
    store.close().await;
    let address = SqlAddress::Sqlite(file);
    let sql = Arc::new(sql::open(address.clone(), &options).await.unwrap());
    (CachedStore::around(sql, address, options.clone()).await.unwrap(), options)
}

fn hash(standby: &CachedStore, secret: &str) -> KeyHash {
    standby.sql().unwrap().hasher.hash(secret)
}

fn without(options: &OpenOptions, now: Timestamp) -> Option<CachedStore> {
    let StoreUrl::Sqlite(file) = &options.url else { unreachable!("the tests use SQLite") };
    let options = OpenOptions { now, ..options.clone() };
    let made = CachedStore::without(SqlAddress::Sqlite(file.clone()), options, Duration::from_hours(1)).unwrap();
    made.map(|(standby, _)| standby)
}

#[tokio::test]
async fn catalog_and_cached_keys_serve_without_the_database() {
    let dir = TempDir::new().unwrap();
    let (standby, options) = around(&dir).await;
    let (seen, unseen) = (hash(&standby, "tk-imported-0123456789"), hash(&standby, "tk-another-0123456789"));
    let catalog = standby.load().await.unwrap();
    let key = standby.find(&seen).await.unwrap().unwrap();
    assert!(standby.write_cache(MIDNIGHT).await.unwrap());
    standby.close().await;

    let away = without(&options, MIDNIGHT.plus_ms(3_599_000)).unwrap();
    let known = away.load().await.unwrap();
    assert_eq!((known.revision, known.channels.len()), (catalog.revision, 1));
    let credential = known.channel_by_name("main").unwrap().accounts[0].credential.as_ref().unwrap().expose().to_owned();
    assert_eq!(credential, "sk-upstream");
    assert_eq!(format!("{:?}", away.find(&seen).await.unwrap()), format!("{:?}", Some(key)));
    assert!(away.find(&unseen).await.unwrap_err().is_unreachable(), "an uncached key is unreachable, not unknown");
    assert!(away.revision().await.unwrap_err().is_unreachable());
    assert!(without(&options, MIDNIGHT.plus_ms(3_601_000)).is_none(), "too old");

    // Once the database is reachable, the same store serves from it.
    assert_eq!(away.heartbeat(MIDNIGHT).await.unwrap(), DatabaseStatus::Available);
    assert!(away.find(&unseen).await.unwrap().is_some());
    assert_eq!(away.revision().await.unwrap(), catalog.revision);
    away.close().await;
}

#[tokio::test]
async fn revoked_key_is_cached_as_revoked() {
    let dir = TempDir::new().unwrap();
    let (standby, options) = around(&dir).await;
    let seen = hash(&standby, "tk-imported-0123456789");
    let key = standby.find(&seen).await.unwrap().unwrap();
    let known = CatalogStore::revision(&standby).await.unwrap();
    standby.apply(&[crate::Change::RevokeKey { key: key.id }], &actor(crate::ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
    standby.changed_since(known).await.unwrap();
    standby.write_cache(MIDNIGHT).await.unwrap();
    standby.close().await;
    let away = without(&options, MIDNIGHT).unwrap();
    assert_eq!(away.find(&seen).await.unwrap().unwrap().status, tollgate_core::KeyStatus::Revoked);
}

#[tokio::test]
async fn modified_file_or_file_of_another_database_is_ignored() {
    let dir = TempDir::new().unwrap();
    let (standby, options) = around(&dir).await;
    standby.write_cache(MIDNIGHT).await.unwrap();
    standby.close().await;
    let path = dir.path().join("cache.sealed");
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(4).any(|part| part == b"main"), "the file is encrypted");
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions()) & 0o777, 0o600);
    for at in [0, 4, bytes.len() / 2, bytes.len() - 1] {
        let mut touched = bytes.clone();
        touched[at] ^= 1;
        std::fs::write(&path, touched).unwrap();
        assert!(without(&options, MIDNIGHT).is_none(), "byte {at}");
    }
    std::fs::write(&path, &bytes).unwrap();
    let other = OpenOptions { url: StoreUrl::Sqlite(dir.path().join("other.db")), ..options.clone() };
    assert!(without(&other, MIDNIGHT).is_none());
    assert!(without(&options, MIDNIGHT).is_some());
}

#[tokio::test]
async fn keys_are_dropped_when_the_file_would_be_too_large() {
    let dir = TempDir::new().unwrap();
    let (standby, _) = around(&dir).await;
    let seen = hash(&standby, "tk-imported-0123456789");
    standby.find(&seen).await.unwrap().unwrap();
    let row = standby.keys.get(&seen.0).unwrap();
    let many = (0..1_000_u32).map(|number| {
        let mut row = CatalogRow::clone(&row);
        row.spec = format!("{}{}", row.spec, " ".repeat(600));
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        if let RowSecret::Key(secret) = &mut row.secret {
            secret.hash = KeyHash(hash);
        }
        (hash, Arc::new(row))
    });
    let mut contents = CacheContents::of(&standby.known.load(), many, MIDNIGHT);
    assert!(contents.json_within(512 << 10).len() <= 512 << 10);
    assert_eq!(contents.keys().unwrap().len(), 250);
    standby.close().await;
}
