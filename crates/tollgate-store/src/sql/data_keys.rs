//! The data key and the pepper of a database: sealed, checked at every start, made at the first one.

use std::path::Path;

use sqlx::{AnyConnection, Connection as _, Row as _};

use super::{Dialect, SqlStore, connect::failed, migrate::has_table};
use crate::{
    KeyHasher, MasterKeySource, RandomSource, StoreError,
    seal::{MasterKeys, SealContext, Sealer, SecretBytes, draw},
};

/// What the check value says once opened.
const CHECK: &[u8] = b"tollgate";

const fn place_of(row: &'static str) -> SealContext<'static> {
    SealContext { table: "vault", column: "sealed", row }
}

/// What a right master key opens.
#[derive(Debug)]
pub(crate) struct DataKeys {
    pub(crate) sealer: Sealer,
    pub(crate) hasher: KeyHasher,
}

/// Opens the vault; `None` when the database has none yet.
pub(super) async fn open(
    connection: &mut AnyConnection,
    dialect: Dialect,
    place: &str,
    source: &MasterKeySource,
    data: &Path,
    random: &RandomSource,
) -> Result<Option<DataKeys>, StoreError> {
    if !has_table(connection, dialect, place, "vault").await? {
        return Ok(None);
    }
    let rows = read_all(connection, place).await?;
    if !rows.iter().any(|(name, _)| name == "data_key") {
        return Ok(None);
    }
    let Some(keys) = MasterKeys::load(source, data)? else {
        let missing = data.join("master.key").display().to_string();
        return Err(StoreError::MasterKeyMissing { place: missing, database: place.to_owned() });
    };
    open_rows(&rows, &keys, place, random).map(Some)
}

/// Opens what a vault holds.
pub(crate) fn open_rows(
    rows: &[(String, Vec<u8>)],
    keys: &MasterKeys,
    place: &str,
    random: &RandomSource,
) -> Result<DataKeys, StoreError> {
    let missing = |row: &str| StoreError::Row { kind: "vault", row: row.to_owned(), detail: "it is missing".to_owned() };
    let row = |wanted: &str| {
        let found = rows.iter().find(|(name, _)| name == wanted);
        found.map(|(_, sealed)| sealed.as_slice()).ok_or_else(|| missing(wanted))
    };
    let data_key = open_data_key(keys, row("data_key")?, place, random)?;
    let sealer = Sealer::new(&data_key, random.clone());
    let opened = sealer.open(place_of("check"), row("check")?)?;
    if opened.as_slice() != CHECK {
        return Err(StoreError::MasterKeyWrong { place: keys.place.clone(), database: place.to_owned() });
    }
    let hasher = KeyHasher::new(&*sealer.open_bytes(place_of("pepper"), row("pepper")?)?);
    Ok(DataKeys { sealer, hasher })
}

async fn read_all(connection: &mut AnyConnection, place: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let query = |error| failed(place, "read the sealed keys", error);
    let rows = sqlx::query("SELECT name, sealed FROM vault ORDER BY name").fetch_all(connection).await.map_err(query)?;
    rows.iter().map(|row| Ok((row.try_get(0).map_err(query)?, row.try_get(1).map_err(query)?))).collect()
}

impl SqlStore {
    /// What the vault holds, sealed.
    pub(crate) async fn vault(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut connection = self.reader.acquire().await.map_err(|error| self.failed("read the sealed keys", error))?;
        read_all(&mut connection, &self.place).await
    }

    /// Seals and opens with the data key.
    pub(crate) fn sealer(&self) -> Sealer {
        self.sealer.clone()
    }
}

fn open_data_key(keys: &MasterKeys, sealed: &[u8], place: &str, random: &RandomSource) -> Result<SecretBytes, StoreError> {
    let mut opened = keys.opening().map(|key| Sealer::new(key, random.clone()).open_bytes(place_of("data_key"), sealed));
    opened.find_map(Result::ok).ok_or_else(|| StoreError::MasterKeyWrong { place: keys.place.clone(), database: place.to_owned() })
}

/// Makes the vault of a new database, and the master key where there is none.
pub(super) async fn fill(
    connection: &mut AnyConnection,
    place: &str,
    source: &MasterKeySource,
    data: &Path,
    random: &RandomSource,
) -> Result<DataKeys, StoreError> {
    let keys = match MasterKeys::load(source, data)? {
        Some(keys) => keys,
        None => MasterKeys::create(data, random)?,
    };
    let (data_key, pepper) = (draw(random), draw(random));
    let sealer = Sealer::new(&data_key, random.clone());
    let values = [
        ("data_key", Sealer::new(keys.sealing(), random.clone()).seal(place_of("data_key"), data_key.as_slice())),
        ("check", sealer.seal(place_of("check"), CHECK)),
        ("pepper", sealer.seal(place_of("pepper"), pepper.as_slice())),
    ];
    let query = |error| failed(place, "write the sealed keys of a new database", error);
    let mut transaction = connection.begin().await.map_err(query)?;
    for (name, sealed) in values {
        let insert = sqlx::query("INSERT INTO vault (name, sealed) VALUES ($1, $2)").bind(name.to_owned()).bind(sealed);
        insert.execute(&mut *transaction).await.map_err(query)?;
    }
    transaction.commit().await.map_err(query)?;
    Ok(DataKeys { sealer, hasher: KeyHasher::new(&pepper) })
}

async fn read(connection: &mut AnyConnection, place: &str, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let query = |error| failed(place, "read the sealed keys", error);
    let row = sqlx::query("SELECT sealed FROM vault WHERE name = $1").bind(name.to_owned()).fetch_optional(connection).await;
    row.map_err(query)?.map(|row| row.try_get(0).map_err(query)).transpose()
}

/// Seals the data key anew with the first of these master keys; any of them may open it.
pub(crate) async fn rotate(store: &SqlStore, source: &MasterKeySource, data: &Path) -> Result<(), StoreError> {
    let query = |error| store.failed("seal the data key anew", error);
    let Some(keys) = MasterKeys::load(source, data)? else {
        let missing = data.join("master.key").display().to_string();
        return Err(StoreError::MasterKeyMissing { place: missing, database: store.place.clone() });
    };
    let mut transaction = store.begin("seal the data key anew").await?;
    let sealed = read(&mut transaction, &store.place, "data_key").await?.unwrap_or_default();
    let data_key = open_data_key(&keys, &sealed, &store.place, &store.random)?;
    let sealed = Sealer::new(keys.sealing(), store.random.clone()).seal(place_of("data_key"), data_key.as_slice());
    let update = sqlx::query("UPDATE vault SET sealed = $1 WHERE name = 'data_key'").bind(sealed);
    update.execute(&mut *transaction).await.map_err(query)?;
    store.commit("seal the data key anew", transaction).await
}
