//! The data key and the pepper of a database. They are created with the database, stored sealed in the table `vault`, and
//! checked at every start.

use sqlx::{AnyConnection, Connection as _, Row as _};

use super::{dialect::Dialect, driver_error::failed, migrate::has_table, store::SqlStore};
use crate::{
    KeyHasher, OpenOptions, RandomSource, StoreError,
    seal::{MasterKeys, SealContext, Sealer, SecretBytes, draw},
};

const CHECK: &[u8] = b"tollgate";

const fn context(row: &'static str) -> SealContext<'static> {
    SealContext { table: "vault", column: "sealed", row }
}

/// What the master key gives access to: the data key and the pepper, ready for use.
#[derive(Debug)]
pub(crate) struct DataKeys {
    pub(crate) sealer: Sealer,
    pub(crate) hasher: KeyHasher,
}

/// Opens the data keys of a database; `None` if it has none yet.
pub(super) async fn open(
    connection: &mut AnyConnection,
    dialect: Dialect,
    database: &str,
    options: &OpenOptions,
) -> Result<Option<DataKeys>, StoreError> {
    if !has_table(connection, dialect, database, "vault").await? {
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
    let wrong_key = || StoreError::MasterKeyWrong { location: keys.place.clone(), database: database.to_owned() };
    let missing = |row: &str| StoreError::Row { kind: "vault", row: row.to_owned(), detail: "it is missing".to_owned() };
    let row = |wanted: &str| {
        let found = rows.iter().find(|(name, _)| name == wanted);
        found.map(|(_, sealed)| sealed.as_slice()).ok_or_else(|| missing(wanted))
    };
    let sealed = row("data_key")?;
    let mut opened = keys.opening().map(|key| Sealer::new(key, random.clone()).open_bytes(context("data_key"), sealed));
    let data_key: SecretBytes = opened.find_map(Result::ok).ok_or_else(wrong_key)?;
    let sealer = Sealer::new(&data_key, random.clone());
    let check = sealer.open(context("check"), row("check")?)?;
    if check.as_slice() != CHECK {
        return Err(wrong_key());
    }
    let hasher = KeyHasher::new(&*sealer.open_bytes(context("pepper"), row("pepper")?)?);
    Ok(DataKeys { sealer, hasher })
}

async fn read_all(connection: &mut AnyConnection, database: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let query = |error| failed(database, "read the sealed keys", error);
    let rows = sqlx::query("SELECT name, sealed FROM vault ORDER BY name").fetch_all(connection).await.map_err(query)?;
    rows.iter().map(|row| Ok((row.try_get(0).map_err(query)?, row.try_get(1).map_err(query)?))).collect()
}

impl SqlStore {
    /// The rows of the table `vault`: names and sealed values.
    pub(crate) async fn sealed_keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut connection = self.reader.acquire().await.map_err(|error| self.failed("read the sealed keys", error))?;
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
    let (data_key, pepper) = (draw(random), draw(random));
    let sealer = Sealer::new(&data_key, random.clone());
    let values = [
        ("data_key", Sealer::new(keys.sealing(), random.clone()).seal(context("data_key"), data_key.as_slice())),
        ("check", sealer.seal(context("check"), CHECK)),
        ("pepper", sealer.seal(context("pepper"), pepper.as_slice())),
    ];
    let query = |error| failed(database, "write the sealed keys of a new database", error);
    let mut transaction = connection.begin().await.map_err(query)?;
    for (name, sealed) in values {
        let insert = sqlx::query("INSERT INTO vault (name, sealed) VALUES ($1, $2)").bind(name.to_owned()).bind(sealed);
        insert.execute(&mut *transaction).await.map_err(query)?;
    }
    transaction.commit().await.map_err(query)?;
    Ok(DataKeys { sealer, hasher: KeyHasher::new(&pepper) })
}
