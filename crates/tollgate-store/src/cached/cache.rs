//! The cache file `<data>/cache.sealed`: `TGC1`, then JSON sealed with the master key and bound to the address of the database.
//! It is replaced atomically; a file that cannot be opened is ignored.

use std::{
    fs::{self, OpenOptions as FileOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use tollgate_core::{MemberId, NanoUsd, Owner, Revision, SpendTotals, Timestamp, Window};
use zeroize::Zeroizing;

use crate::{
    KeyHash, KeySecret, LedgerPosition, OpenOptions, PreviousSecret, RowKind, Spending, StoreError,
    assemble::GroupIds,
    rows::{CatalogRow, RowSecret},
    seal::{MasterKeys, SealContext, Sealer},
    sql::{DataKeys, open_data_keys},
    subject,
};

const MAGIC: &[u8; 4] = b"TGC1";
const MAX_BYTES: usize = 64 << 20;
/// Upper limit of the bytes that sealing adds: version, nonce and tag.
const OVERHEAD: usize = 64;

/// The path of the file in a data folder.
pub(super) fn path(data: &Path) -> PathBuf {
    data.join("cache.sealed")
}

fn seal_context(database: &str) -> SealContext<'_> {
    SealContext { table: "cache", column: "sealed", row: database }
}

#[derive(Serialize, Deserialize)]
pub(super) struct CacheContents {
    at: i64,
    revision: i64,
    data_keys: Vec<(String, String)>,
    rows: Vec<CachedRow>,
    keys: Vec<CachedRow>,
    spending_at: i64,
    /// Subject; spending in the day and in the month of `spending_at`, and in total.
    spent: Vec<(String, i64, i64, i64)>,
    balances: Vec<(String, i64)>,
    ledger: i64,
}

#[derive(Clone, Serialize, Deserialize)]
struct CachedRow {
    id: String,
    kind: String,
    parent: String,
    name: String,
    file: bool,
    spec: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<(String, String, String)>,
    /// Hash and end of the secret that was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<(String, i64)>,
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removed_at: Option<i64>,
}

impl CachedRow {
    fn of(row: &CatalogRow) -> Self {
        let (sealed, key) = match &row.secret {
            RowSecret::None => (None, None),
            RowSecret::Sealed(sealed) => (Some(hex::encode(sealed)), None),
            RowSecret::Key(secret) => (None, Some((hex::encode(secret.hash.0), secret.prefix.clone(), secret.suffix.clone()))),
        };
        let previous = match &row.secret {
            RowSecret::Key(secret) => secret.previous.map(|previous| (hex::encode(previous.hash.0), previous.until.0)),
            RowSecret::None | RowSecret::Sealed(_) => None,
        };
        Self {
            id: row.id.clone(),
            kind: row.kind.as_str().to_owned(),
            parent: row.parent.clone(),
            name: row.name.clone(),
            file: row.owner == Owner::File,
            spec: row.spec.clone(),
            sealed,
            key,
            previous,
            created_at: row.created_at.0,
            removed_at: row.removed_at.map(|at| at.0),
        }
    }

    fn into_row(self) -> Option<CatalogRow> {
        let secret = match (self.sealed, self.key) {
            (Some(sealed), _) => RowSecret::Sealed(hex::decode(sealed).ok()?),
            (None, Some((key, prefix, suffix))) => {
                let hash = |text: String| Some(KeyHash(hex::decode(text).ok()?.try_into().ok()?));
                let previous = match self.previous {
                    Some((text, until)) => Some(PreviousSecret { hash: hash(text)?, until: Timestamp(until) }),
                    None => None,
                };
                let hash = KeyHash(hex::decode(key).ok()?.try_into().ok()?);
                RowSecret::Key(KeySecret { hash, prefix, suffix, previous })
            }
            (None, None) => RowSecret::None,
        };
        Some(CatalogRow {
            id: self.id,
            kind: RowKind::parse(&self.kind)?,
            parent: self.parent,
            name: self.name,
            owner: if self.file { Owner::File } else { Owner::Database },
            spec: self.spec,
            secret,
            created_at: Timestamp(self.created_at),
            removed_at: self.removed_at.map(Timestamp),
        })
    }
}

impl CacheContents {
    pub(super) fn of(known: &KnownCatalog, keys: impl Iterator<Item = ([u8; 32], Arc<CatalogRow>)>, now: Timestamp) -> Self {
        let spending = &known.spending;
        let spent = spending.spent.iter().map(|(of, spent)| {
            let within = |window| spent.within(window, known.spending_at).0;
            (subject::name(*of), within(Window::Day), within(Window::Month), within(Window::Total))
        });
        Self {
            at: now.0,
            revision: known.revision.0,
            data_keys: known.data_keys.iter().map(|(name, sealed)| (name.clone(), hex::encode(sealed))).collect(),
            rows: known.rows.iter().map(CachedRow::of).collect(),
            keys: keys.map(|(_, row)| CachedRow::of(&row)).collect(),
            spending_at: known.spending_at.0,
            spent: spent.collect(),
            balances: spending.balances.iter().map(|(member, balance)| (member.to_string(), balance.0)).collect(),
            ledger: spending.ledger.0,
        }
    }

    /// The JSON, with keys dropped until it fits `limit` bytes or none are left.
    pub(super) fn json_within(&mut self, limit: usize) -> Zeroizing<Vec<u8>> {
        loop {
            let text = Zeroizing::new(serde_json::to_vec(&*self).expect("strings and numbers are valid JSON"));
            if text.len() <= limit || self.keys.is_empty() {
                return text;
            }
            self.keys.truncate(self.keys.len() / 2);
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        Timestamp(self.at)
    }

    fn data_keys(&self) -> Option<Vec<(String, Vec<u8>)>> {
        self.data_keys.iter().map(|(name, sealed)| Some((name.clone(), hex::decode(sealed).ok()?))).collect()
    }

    pub(super) fn keys(&self) -> Result<Vec<([u8; 32], CatalogRow)>, StoreError> {
        let read = |row: &CachedRow| {
            let row = row.clone().into_row()?;
            let RowSecret::Key(secret) = &row.secret else { return None };
            Some(secret.hashes().map(|hash| (hash.0, row.clone())).collect::<Vec<_>>())
        };
        let rows: Option<Vec<_>> = self.keys.iter().map(read).collect();
        Ok(rows.ok_or_else(unreadable)?.concat())
    }

    pub(super) fn into_known(self) -> Result<KnownCatalog, StoreError> {
        let data_keys = self.data_keys().ok_or_else(unreadable)?;
        let rows = self.rows.into_iter().map(CachedRow::into_row).collect::<Option<_>>().ok_or_else(unreadable)?;
        let at = Timestamp(self.spending_at);
        let loaded = |day, month, total| SpendTotals::loaded(at, NanoUsd(day), NanoUsd(month), NanoUsd(total));
        let spent =
            self.spent.iter().filter_map(|(of, day, month, total)| Some((subject::parse(of)?, loaded(*day, *month, *total))));
        let balances = self.balances.iter().filter_map(|(member, balance)| Some((MemberId::parse(member)?, NanoUsd(*balance))));
        let spending = Spending { spent: spent.collect(), balances: balances.collect(), ledger: LedgerPosition(self.ledger) };
        Ok(KnownCatalog { data_keys, revision: Revision(self.revision), rows, spending, spending_at: at })
    }
}

fn unreadable() -> StoreError {
    StoreError::Row { kind: "cache", row: "cache.sealed".to_owned(), detail: "it cannot be parsed".to_owned() }
}

/// Reads the file; `None` if there is none, or it cannot be used with this master key and database.
pub(super) fn read(path: &Path, database: &str, options: &OpenOptions) -> Result<Option<(CacheContents, DataKeys)>, StoreError> {
    let Some(keys) = MasterKeys::load(&options.master, &options.data)? else { return Ok(None) };
    let useless = |why: &str| {
        tracing::warn!(path = %path.display(), "the cache file cannot be used: {why}");
        Ok(None)
    };
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return useless(&error.to_string()),
    };
    let Some(sealed) = bytes.strip_prefix(MAGIC) else { return useless("it is another kind of file") };
    let opened = keys.opening().find_map(|key| Sealer::new(key, options.random.clone()).open(seal_context(database), sealed).ok());
    let Some(text) = opened else { return useless("wrong master key or another database's file") };
    let contents: CacheContents = match serde_json::from_slice(&text) {
        Ok(contents) => contents,
        Err(error) => return useless(&error.to_string()),
    };
    let Some(data_keys) = contents.data_keys() else { return useless("its data keys cannot be read") };
    match open_data_keys(&data_keys, &keys, database, &options.random) {
        Ok(opened) => Ok(Some((contents, opened))),
        Err(error) => useless(&error.to_string()),
    }
}

/// Replaces the file atomically.
pub(super) fn write(path: &Path, database: &str, mut contents: CacheContents, options: &OpenOptions) -> Result<(), StoreError> {
    let failed = |source: io::Error| StoreError::File { action: "write", path: path.to_owned(), source };
    let Some(keys) = MasterKeys::load(&options.master, &options.data)? else { return Ok(()) };
    let text = contents.json_within(MAX_BYTES - OVERHEAD);
    if text.len() + OVERHEAD > MAX_BYTES {
        return Err(failed(io::Error::other("the catalog alone is larger than the file may be")));
    }
    let sealed = Sealer::new(keys.sealing(), options.random.clone()).seal(seal_context(database), &text);
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let mut how = FileOptions::new();
    how.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut how, 0o600);
    let written = how.open(&draft).and_then(|mut file| {
        file.write_all(MAGIC)?;
        file.write_all(&sealed)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&draft, path)).map_err(|error| {
        let _ = fs::remove_file(&draft);
        failed(error)
    })
}

/// The last known state of the database, without keys.
#[derive(Debug, Default)]
pub(super) struct KnownCatalog {
    pub(super) data_keys: Vec<(String, Vec<u8>)>,
    pub(super) revision: Revision,
    /// Live rows and removed groups.
    pub(super) rows: Vec<CatalogRow>,
    pub(super) spending: Spending,
    pub(super) spending_at: Timestamp,
}

impl KnownCatalog {
    pub(super) fn live(&self) -> Vec<CatalogRow> {
        self.rows.iter().filter(|row| row.removed_at.is_none()).cloned().collect()
    }

    pub(super) fn groups(&self) -> GroupIds {
        GroupIds::of(self.rows.iter().filter(|row| row.kind == RowKind::Group))
    }
}
