//! Schema migrations, embedded and forward only. Both databases share one text; steps that differ have a file for each.
//! A database with a newer schema is refused, and an SQLite file is backed up before its schema changes.

use std::path::Path;

use sqlx::{
    AnyConnection, Row as _, SqlSafeStr as _,
    migrate::{Migrate as _, MigrateError, Migration, MigrationType, Migrator},
};
use tollgate_core::Timestamp;

use super::{dialect::Dialect, driver_error::failed};
use crate::{StoreError, usage::day};

#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaStep {
    pub(super) version: i64,
    pub(super) name: &'static str,
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

/// Every step, oldest first. A released step never changes: its checksum is compared at every start.
pub(super) const ALL: &[SchemaStep] = &[SchemaStep {
    version: 1,
    name: "schema",
    sqlite: concat!(include_str!("../../migrations/0001_schema.sql"), include_str!("../../migrations/0001_usage.sqlite.sql")),
    postgres: concat!(include_str!("../../migrations/0001_schema.sql"), include_str!("../../migrations/0001_usage.postgres.sql")),
}];

const TABLE: &str = "_sqlx_migrations";

/// The version of a database after every step.
pub(crate) fn newest_schema() -> i64 {
    ALL.last().map_or(0, |step| step.version)
}

pub(super) async fn has_table(
    connection: &mut AnyConnection,
    dialect: Dialect,
    database: &str,
    table: &str,
) -> Result<bool, StoreError> {
    let sql = match dialect {
        Dialect::Sqlite => "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = $1",
        Dialect::Postgres => {
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = $1"
        }
    };
    let row = sqlx::query(sql).bind(table.to_owned()).fetch_one(connection).await;
    let count: Result<i64, _> = row.and_then(|row| row.try_get(0));
    count.map(|count| count > 0).map_err(|error| failed(database, "read the schema", error))
}

/// Refuses a damaged database, one of another program and one with a newer schema, before anything is written.
pub(super) async fn check(connection: &mut AnyConnection, dialect: Dialect, database: &str) -> Result<(), StoreError> {
    if dialect == Dialect::Sqlite {
        quick_check(connection, database).await?;
    }
    if has_table(connection, dialect, database, TABLE).await? {
        let known = newest_schema();
        let found = applied(connection, database).await?;
        return match found.into_iter().max() {
            Some(found) if found > known => Err(StoreError::Newer { database: database.to_owned(), found, known }),
            Some(_) | None => Ok(()),
        };
    }
    if dialect == Dialect::Sqlite {
        let row = sqlx::query("SELECT COUNT(*) FROM sqlite_master").fetch_one(connection).await;
        let tables: i64 = row.and_then(|row| row.try_get(0)).map_err(|error| failed(database, "read the schema", error))?;
        if tables > 0 {
            return Err(StoreError::Corrupt { database: database.to_owned(), detail: "it belongs to another program".to_owned() });
        }
    }
    Ok(())
}

/// Checks a file of at most 256 MiB for damage. Damage in a larger one is found when the damaged pages are read.
async fn quick_check(connection: &mut AnyConnection, database: &str) -> Result<(), StoreError> {
    const MAX_BYTES: i64 = 256 << 20;
    let query = |error| failed(database, "check the database", error);
    let size = sqlx::query("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()");
    let size: i64 = size.fetch_one(&mut *connection).await.and_then(|row| row.try_get(0)).map_err(query)?;
    if size > MAX_BYTES {
        return Ok(());
    }
    let rows = sqlx::query("PRAGMA quick_check(1)").fetch_all(connection).await.map_err(query)?;
    let found: String = rows.first().map_or(Ok(String::new()), |row| row.try_get(0)).map_err(query)?;
    if found == "ok" { Ok(()) } else { Err(StoreError::Corrupt { database: database.to_owned(), detail: found }) }
}

async fn applied(connection: &mut AnyConnection, database: &str) -> Result<Vec<i64>, StoreError> {
    let found = connection.list_applied_migrations(TABLE).await.map_err(|error| migration_failed(database, error))?;
    Ok(found.into_iter().map(|step| step.version).collect())
}

/// Applies the pending steps. An SQLite file that already has a schema is backed up first.
pub(super) async fn run(
    connection: &mut AnyConnection,
    dialect: Dialect,
    database: &str,
    now: Timestamp,
    steps: &[SchemaStep],
) -> Result<(), StoreError> {
    if has_table(connection, dialect, database, TABLE).await? {
        let applied = applied(connection, database).await?;
        let pending = steps.iter().any(|step| !applied.contains(&step.version));
        if let (true, Dialect::Sqlite, Some(version)) = (pending, dialect, applied.iter().max()) {
            back_up(connection, database, *version, now).await?;
        }
    }
    let migrations = steps
        .iter()
        .map(|step| {
            let sql = match dialect {
                Dialect::Sqlite => step.sqlite,
                Dialect::Postgres => step.postgres,
            };
            Migration::new(step.version, step.name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        })
        .collect();
    let migrator = Migrator::with_migrations(migrations);
    // Write nothing when no step is pending: a read-only or full database can still be opened.
    if is_up_to_date(connection, dialect, database, &migrator).await? {
        return Ok(());
    }
    migrator.run_direct(None, connection, false).await.map_err(|error| migration_failed(database, error))
}

/// Whether every step was applied completely and with the same checksum.
async fn is_up_to_date(
    connection: &mut AnyConnection,
    dialect: Dialect,
    database: &str,
    migrator: &Migrator,
) -> Result<bool, StoreError> {
    if !has_table(connection, dialect, database, TABLE).await? {
        return Ok(false);
    }
    let wrong = |error| migration_failed(database, error);
    if connection.dirty_version(TABLE).await.map_err(wrong)?.is_some() {
        return Ok(false);
    }
    let applied = connection.list_applied_migrations(TABLE).await.map_err(wrong)?;
    let is_applied = |step: &Migration| applied.iter().any(|it| it.version == step.version && it.checksum == step.checksum);
    Ok(applied.len() == migrator.iter().count() && migrator.iter().all(is_applied))
}

/// Copies an SQLite file to `<name>.v<schema>-<day>.backup` in the same folder.
async fn back_up(connection: &mut AnyConnection, database: &str, version: i64, now: Timestamp) -> Result<(), StoreError> {
    let mut copy = format!("{database}.v{version}-{}.backup", day(now));
    if Path::new(&copy).exists() {
        copy = format!("{copy}-{}", now.0);
    }
    let copied = sqlx::query("VACUUM INTO $1").bind(copy.clone()).execute(connection).await;
    copied.map_err(|error| failed(database, "copy the database before its schema changes", error))?;
    tracing::info!(%copy, "backed up the database before changing its schema");
    Ok(())
}

fn migration_failed(database: &str, error: MigrateError) -> StoreError {
    if let MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) = error {
        return failed(database, "change the schema", error);
    }
    if let MigrateError::VersionMissing(found) = error {
        return StoreError::Newer { database: database.to_owned(), found, known: ALL.last().map_or(0, |step| step.version) };
    }
    StoreError::Corrupt { database: database.to_owned(), detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use sqlx::{Connection as _, any::AnyConnectOptions};
    use tempfile::TempDir;

    use super::*;
    use crate::samples::MIDNIGHT;

    const LATER: &str = "ALTER TABLE usage ADD COLUMN later BIGINT;";
    const BROKEN: &str = "ALTER TABLE usage ADD COLUMN half BIGINT; ALTER TABLE nowhere ADD COLUMN x BIGINT;";

    fn known() -> Vec<i64> {
        ALL.iter().map(|step| step.version).collect()
    }

    fn newest() -> i64 {
        known().into_iter().max().unwrap()
    }

    fn next(sql: &'static str) -> SchemaStep {
        SchemaStep { version: newest() + 1, name: "later", sqlite: sql, postgres: sql }
    }

    async fn open(database: &str) -> AnyConnection {
        sqlx::any::install_default_drivers();
        AnyConnection::connect_with(&AnyConnectOptions::from_str(&format!("sqlite:{database}?mode=rwc")).unwrap()).await.unwrap()
    }

    fn backups(dir: &TempDir) -> Vec<std::path::PathBuf> {
        let paths = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_string_lossy().contains(".backup")).collect()
    }

    #[tokio::test]
    async fn database_is_backed_up_before_its_schema_changes() {
        let dir = TempDir::new().unwrap();
        let database = dir.path().join("x.db").display().to_string();
        let mut connection = open(&database).await;
        run(&mut connection, Dialect::Sqlite, &database, MIDNIGHT, ALL).await.unwrap();
        run(&mut connection, Dialect::Sqlite, &database, MIDNIGHT, ALL).await.unwrap();
        assert_eq!(backups(&dir).len(), 0, "nothing changed");
        let steps = [ALL, &[next(LATER)]].concat();
        run(&mut connection, Dialect::Sqlite, &database, MIDNIGHT, &steps).await.unwrap();
        assert_eq!(applied(&mut connection, &database).await.unwrap(), [known(), vec![newest() + 1]].concat());
        let copies = backups(&dir);
        assert!(copies.len() == 1 && copies[0].ends_with(format!("x.db.v{}-2026-11-21.backup", newest())), "{copies:?}");
        let mut copy = open(&copies[0].display().to_string()).await;
        assert_eq!(applied(&mut copy, &database).await.unwrap(), known());
        assert!(matches!(
            check(&mut connection, Dialect::Sqlite, &database).await,
            Err(StoreError::Newer { found, known, .. }) if (found, known) == (newest() + 1, newest())
        ));
    }

    #[tokio::test]
    async fn failed_step_leaves_the_schema_unchanged() {
        let dir = TempDir::new().unwrap();
        let database = dir.path().join("x.db").display().to_string();
        let mut connection = open(&database).await;
        run(&mut connection, Dialect::Sqlite, &database, MIDNIGHT, ALL).await.unwrap();
        let steps = [ALL, &[next(BROKEN)]].concat();
        run(&mut connection, Dialect::Sqlite, &database, MIDNIGHT, &steps).await.unwrap_err();
        assert_eq!(applied(&mut connection, &database).await.unwrap(), known());
        let steps = [ALL, &[next(LATER)]].concat();
        run(&mut connection, Dialect::Sqlite, &database, MIDNIGHT, &steps).await.unwrap();
        assert_eq!(backups(&dir).len(), 2, "a backup is never overwritten");
    }

    #[tokio::test]
    async fn step_with_another_text_than_the_applied_one_is_refused() {
        let dir = TempDir::new().unwrap();
        let database = dir.path().join("x.db").display().to_string();
        let mut connection = open(&database).await;
        run(&mut connection, Dialect::Sqlite, &database, MIDNIGHT, ALL).await.unwrap();
        let mut edited = ALL.to_vec();
        edited[0].sqlite = "SELECT 1;";
        let refused = run(&mut connection, Dialect::Sqlite, &database, MIDNIGHT, &edited).await.unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused}");
    }
}
