//! The data key and the pepper of a database. They are created with the database, stored sealed in the table `data_keys`, and
//! checked at every start.

use sqlx::{AnyConnection, Connection as _, Row as _};

use super::{dialect::Dialect, driver_error::failed, migrate::has_table, store::SqlStore};
use crate::{
    KeyHasher, OpenOptions, RandomSource, StoreError,
    seal::{MasterKeys, SealContext, Sealer, SecretBytes, generate_key},
};

const CHECK: &[u8] = b"tollgate";

/// The data key before the current one, while rows are sealed with it.
pub(super) const LAST_DATA_KEY: &str = "last_data_key";

pub(super) const fn context(row: &'static str) -> SealContext<'static> {
    SealContext { table: "data_keys", column: "sealed", row }
}

/// Keys that the master key decrypts: the data key and the pepper, ready for use.
#[derive(Debug)]
pub(crate) struct DataKeys {
    pub(crate) sealer: Sealer,
    pub(crate) hasher: KeyHasher,
    /// Fingerprint of the master key that opens them.
    pub(crate) master: String,
    /// The rows of the table `data_keys`, by name.
    pub(crate) sealed_keys: Vec<(String, Vec<u8>)>,
}

/// Opens the data keys of a database; `None` if it has none yet.
pub(super) async fn open(
    connection: &mut AnyConnection,
    dialect: Dialect,
    database: &str,
    options: &OpenOptions,
) -> Result<Option<DataKeys>, StoreError> {
    if !has_table(connection, dialect, database, "data_keys").await? {
        return Ok(None);
    }
    let rows = read_all(connection, database).await?;
    if !rows.iter().any(|(name, _)| name == "data_key") {
        return Ok(None);
    }
    let Some(keys) = MasterKeys::load(&options.master, &options.data)? else {
        let location = options.data.join("master.key").display().to_string();
        return Err(StoreError::MasterKeyMissing { location, database: database.to_owned() });
    };
    open_rows(&rows, &keys, database, &options.random).map(Some)
}

pub(crate) fn open_rows(
    rows: &[(String, Vec<u8>)],
    keys: &MasterKeys,
    database: &str,
    random: &RandomSource,
) -> Result<DataKeys, StoreError> {
    let wrong_key = || StoreError::MasterKeyWrong { location: keys.location.clone(), database: database.to_owned() };
    let missing = |row: &str| StoreError::Row { kind: "data_keys", row: row.to_owned(), detail: "it is missing".to_owned() };
    let row = |wanted: &str| {
        let found = rows.iter().find(|(name, _)| name == wanted);
        found.map(|(_, sealed)| sealed.as_slice()).ok_or_else(|| missing(wanted))
    };
    let opened = open_row(keys, "data_key", row("data_key")?, random).ok_or_else(wrong_key)?;
    let (data_key, master) = opened;
    let sealer = Sealer::new(&data_key, random.clone());
    if let Ok(last) = row(LAST_DATA_KEY)
        && let Some((last, _)) = open_row(keys, LAST_DATA_KEY, last, random)
    {
        sealer.use_keys(&data_key, Some(&last));
    }
    let check = sealer.open(context("check"), row("check")?)?;
    if check.as_slice() != CHECK {
        return Err(wrong_key());
    }
    let hasher = KeyHasher::new(&*sealer.open_bytes(context("pepper"), row("pepper")?)?);
    Ok(DataKeys { sealer, hasher, master, sealed_keys: rows.to_vec() })
}

/// Opens a data key; returns it with the fingerprint of the master key that opened it.
pub(super) fn open_row(
    keys: &MasterKeys,
    name: &'static str,
    sealed: &[u8],
    random: &RandomSource,
) -> Option<(SecretBytes, String)> {
    keys.opening().zip(keys.fingerprints()).find_map(|(key, id)| {
        let opened = Sealer::new(key, random.clone()).open_bytes(context(name), sealed);
        opened.ok().map(|data_key| (data_key, id))
    })
}

/// Form of a data key, the pepper and the check value in the table `data_keys`.
pub(super) fn sealed_rows(
    master: &SecretBytes,
    data_key: &SecretBytes,
    pepper: &SecretBytes,
    random: &RandomSource,
) -> [(&'static str, Vec<u8>); 3] {
    let sealer = Sealer::new(data_key, random.clone());
    [
        ("data_key", seal_data_key(master, "data_key", data_key, random)),
        ("check", sealer.seal(context("check"), CHECK)),
        ("pepper", sealer.seal(context("pepper"), pepper.as_slice())),
    ]
}

/// Seals a data key with a master key.
pub(super) fn seal_data_key(master: &SecretBytes, name: &'static str, data_key: &SecretBytes, random: &RandomSource) -> Vec<u8> {
    Sealer::new(master, random.clone()).seal(context(name), data_key.as_slice())
}

pub(super) async fn read_all(connection: &mut AnyConnection, database: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let query = |error| failed(database, "read the sealed keys", error);
    let rows = sqlx::query("SELECT name, sealed FROM data_keys ORDER BY name").fetch_all(connection).await.map_err(query)?;
    rows.iter().map(|row| Ok((row.try_get(0).map_err(query)?, row.try_get(1).map_err(query)?))).collect()
}

impl SqlStore {
    /// The rows of the table `data_keys`: names and sealed values.
    pub(crate) async fn sealed_keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut connection = self.pools.reader().acquire().await.map_err(|error| self.failed("read the sealed keys", error))?;
        read_all(&mut connection, &self.database).await
    }
}

/// Creates the data keys of a new database, and the master key if there is none.
pub(super) async fn create(connection: &mut AnyConnection, database: &str, options: &OpenOptions) -> Result<DataKeys, StoreError> {
    let OpenOptions { master, data, random, .. } = options;
    let keys = match MasterKeys::load(master, data)? {
        Some(keys) => keys,
        None => MasterKeys::create(data, random)?,
    };
    let (data_key, pepper) = (generate_key(random), generate_key(random));
    let values = sealed_rows(keys.sealing(), &data_key, &pepper, random);
    let query = |error| failed(database, "write the sealed keys of a new database", error);
    let mut transaction = connection.begin().await.map_err(query)?;
    let mut sealed_keys = Vec::new();
    for (name, sealed) in values {
        sealed_keys.push((name.to_owned(), sealed.clone()));
        let insert = sqlx::query("INSERT INTO data_keys (name, sealed) VALUES ($1, $2)").bind(name.to_owned()).bind(sealed);
        insert.execute(&mut *transaction).await.map_err(query)?;
    }
    transaction.commit().await.map_err(query)?;
    let master = keys.fingerprints().swap_remove(0);
    sealed_keys.sort();
    Ok(DataKeys { sealer: Sealer::new(&data_key, random.clone()), hasher: KeyHasher::new(&pepper), master, sealed_keys })
}
