//! Migrations: embedded, forward only, one text for both databases (a file of a dialect's own where it must be). A
//! database of a newer version is refused; an SQLite file is copied before its schema changes.

use std::path::Path;

use sqlx::{
    AnyConnection, Row as _, SqlSafeStr as _,
    migrate::{Migrate as _, MigrateError, Migration, MigrationType, Migrator},
};
use tollgate_core::Timestamp;

use super::{Dialect, connect::failed};
use crate::{StoreError, usage::day};

/// One step of the schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaStep {
    pub(super) version: i64,
    pub(super) name: &'static str,
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

const FIRST: &str = include_str!("../../migrations/0001_first.sql");
const MONEY: &str = include_str!("../../migrations/0002_money.sql");
const ADMIN: &str = include_str!("../../migrations/0003_admin.sql");
const MONTHS_SQLITE: &str = include_str!("../../migrations/0004_months.sqlite.sql");
const MONTHS_POSTGRES: &str = include_str!("../../migrations/0004_months.postgres.sql");
const OUTCOMES: &str = include_str!("../../migrations/0005_outcomes.sql");
const BESIDE: &str = include_str!("../../migrations/0006_beside.sql");
const SPENDING: &str = include_str!("../../migrations/0007_spending.sql");
const TESTS: &str = include_str!("../../migrations/0008_tests.sql");
const PROXIES: &str = include_str!("../../migrations/0009_proxies.sql");
const PRICE_LIMITED: &str = include_str!("../../migrations/0010_price_limited.sql");

/// Every step there has been, oldest first.
pub(super) const ALL: &[SchemaStep] = &[
    SchemaStep { version: 1, name: "first", sqlite: FIRST, postgres: FIRST },
    SchemaStep { version: 2, name: "money", sqlite: MONEY, postgres: MONEY },
    SchemaStep { version: 3, name: "admin", sqlite: ADMIN, postgres: ADMIN },
    SchemaStep { version: 4, name: "months", sqlite: MONTHS_SQLITE, postgres: MONTHS_POSTGRES },
    SchemaStep { version: 5, name: "outcomes", sqlite: OUTCOMES, postgres: OUTCOMES },
    SchemaStep { version: 6, name: "beside", sqlite: BESIDE, postgres: BESIDE },
    SchemaStep { version: 7, name: "spending", sqlite: SPENDING, postgres: SPENDING },
    SchemaStep { version: 8, name: "tests", sqlite: TESTS, postgres: TESTS },
    SchemaStep { version: 9, name: "proxies", sqlite: PROXIES, postgres: PROXIES },
    SchemaStep { version: 10, name: "price_limited", sqlite: PRICE_LIMITED, postgres: PRICE_LIMITED },
];

const TABLE: &str = "_sqlx_migrations";

/// Whether a table exists.
pub(super) async fn has_table(
    connection: &mut AnyConnection,
    dialect: Dialect,
    place: &str,
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
    count.map(|count| count > 0).map_err(|error| failed(place, "read the schema", error))
}

/// Refuses a damaged database, a foreign one and one of a newer version, before anything is written.
pub(super) async fn check(connection: &mut AnyConnection, dialect: Dialect, place: &str) -> Result<(), StoreError> {
    if dialect == Dialect::Sqlite {
        quick_check(connection, place).await?;
    }
    if has_table(connection, dialect, place, TABLE).await? {
        let known = ALL.last().map_or(0, |step| step.version);
        let found = applied(connection, place).await?;
        return match found.into_iter().max() {
            Some(found) if found > known => Err(StoreError::Newer { place: place.to_owned(), found, known }),
            Some(_) | None => Ok(()),
        };
    }
    if dialect == Dialect::Sqlite {
        let row = sqlx::query("SELECT COUNT(*) FROM sqlite_master").fetch_one(connection).await;
        let tables: i64 = row.and_then(|row| row.try_get(0)).map_err(|error| failed(place, "read the schema", error))?;
        if tables > 0 {
            return Err(StoreError::Corrupt { place: place.to_owned(), detail: "it belongs to another program".to_owned() });
        }
    }
    Ok(())
}

/// Looks through a file of moderate size for damage; damage in a larger one shows when it is read.
async fn quick_check(connection: &mut AnyConnection, place: &str) -> Result<(), StoreError> {
    const LARGEST: i64 = 256 << 20;
    let query = |error| failed(place, "check the database", error);
    let size = sqlx::query("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()");
    let size: i64 = size.fetch_one(&mut *connection).await.and_then(|row| row.try_get(0)).map_err(query)?;
    if size > LARGEST {
        return Ok(());
    }
    let rows = sqlx::query("PRAGMA quick_check(1)").fetch_all(connection).await.map_err(query)?;
    let found: String = rows.first().map_or(Ok(String::new()), |row| row.try_get(0)).map_err(query)?;
    if found == "ok" { Ok(()) } else { Err(StoreError::Corrupt { place: place.to_owned(), detail: found }) }
}

async fn applied(connection: &mut AnyConnection, place: &str) -> Result<Vec<i64>, StoreError> {
    let found = connection.list_applied_migrations(TABLE).await.map_err(|error| migration_failed(place, error))?;
    Ok(found.into_iter().map(|step| step.version).collect())
}

/// Brings the schema up to date. An SQLite file that has one already is copied first.
pub(super) async fn run(
    connection: &mut AnyConnection,
    dialect: Dialect,
    place: &str,
    now: Timestamp,
    steps: &[SchemaStep],
) -> Result<(), StoreError> {
    if has_table(connection, dialect, place, TABLE).await? {
        let there = applied(connection, place).await?;
        let pending = steps.iter().any(|step| !there.contains(&step.version));
        if let (true, Dialect::Sqlite, Some(version)) = (pending, dialect, there.iter().max()) {
            back_up(connection, place, *version, now).await?;
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
    // Nothing is written where nothing is due: a database that takes no writes for now can be read.
    if is_up_to_date(connection, dialect, place, &migrator).await? {
        return Ok(());
    }
    migrator.run_direct(None, connection, false).await.map_err(|error| migration_failed(place, error))
}

/// Whether each step was taken, as it is here, to its end.
async fn is_up_to_date(
    connection: &mut AnyConnection,
    dialect: Dialect,
    place: &str,
    migrator: &Migrator,
) -> Result<bool, StoreError> {
    if !has_table(connection, dialect, place, TABLE).await? {
        return Ok(false);
    }
    let wrong = |error| migration_failed(place, error);
    if connection.dirty_version(TABLE).await.map_err(wrong)?.is_some() {
        return Ok(false);
    }
    let taken = connection.list_applied_migrations(TABLE).await.map_err(wrong)?;
    let is_taken = |step: &Migration| taken.iter().any(|it| it.version == step.version && it.checksum == step.checksum);
    Ok(taken.len() == migrator.iter().count() && migrator.iter().all(is_taken))
}

/// Copies an SQLite file beside itself: `<name>.v<schema>-<day>.backup`.
async fn back_up(connection: &mut AnyConnection, place: &str, version: i64, now: Timestamp) -> Result<(), StoreError> {
    let mut copy = format!("{place}.v{version}-{}.backup", day(now));
    if Path::new(&copy).exists() {
        copy = format!("{copy}-{}", now.0);
    }
    let copied = sqlx::query("VACUUM INTO $1").bind(copy.clone()).execute(connection).await;
    copied.map_err(|error| failed(place, "copy the database before its schema changes", error))?;
    tracing::info!(%copy, "the database was copied before its schema changes");
    Ok(())
}

fn migration_failed(place: &str, error: MigrateError) -> StoreError {
    if let MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) = error {
        return failed(place, "change the schema", error);
    }
    if let MigrateError::VersionMissing(found) = error {
        return StoreError::Newer { place: place.to_owned(), found, known: ALL.last().map_or(0, |step| step.version) };
    }
    StoreError::Corrupt { place: place.to_owned(), detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use sqlx::{Connection as _, any::AnyConnectOptions};
    use tempfile::TempDir;

    use super::*;
    use crate::{
        conformance::{options, sqlite},
        samples::{NOON, record},
    };

    const LATER: &str = "ALTER TABLE usage ADD COLUMN later BIGINT;";
    const BROKEN: &str = "ALTER TABLE usage ADD COLUMN half BIGINT; ALTER TABLE nowhere ADD COLUMN x BIGINT;";

    /// The versions there are.
    fn known() -> Vec<i64> {
        ALL.iter().map(|step| step.version).collect()
    }

    fn newest() -> i64 {
        known().into_iter().max().unwrap()
    }

    /// A step that comes after all there are.
    fn next(sql: &'static str) -> SchemaStep {
        SchemaStep { version: newest() + 1, name: "later", sqlite: sql, postgres: sql }
    }

    async fn open(place: &str) -> AnyConnection {
        sqlx::any::install_default_drivers();
        AnyConnection::connect_with(&AnyConnectOptions::from_str(&format!("sqlite:{place}?mode=rwc")).unwrap()).await.unwrap()
    }

    /// Takes the schema of a database back to what it was before there was a ledger.
    const WITHOUT_MONEY: &str = "DROP TABLE ledger; DROP TABLE balances; DROP TABLE usage_hours; DROP TABLE usage_days; \
         DROP TABLE attempt_hours; DROP TABLE attempt_days; DELETE FROM counters WHERE name = 'ledger'; \
         DROP TABLE admin_keys; DROP TABLE once; DROP INDEX usage_group; DROP INDEX usage_failed; \
         DROP INDEX attempts_beside; ALTER TABLE attempts DROP COLUMN beside; ALTER TABLE account_health DROP COLUMN passed_at; \
         DELETE FROM counters WHERE name = 'pruned_until'; \
         DROP INDEX changes_id; DROP INDEX service_keys_limited; DELETE FROM _sqlx_migrations WHERE version > 1;";

    #[tokio::test]
    async fn what_was_recorded_before_there_was_a_ledger_is_entered() {
        let dir = TempDir::new().unwrap();
        let open_store = || crate::open(options(sqlite(&dir), &dir));
        let store = open_store().await.unwrap();
        let mut records: Vec<_> = (0..60).map(record).collect();
        for record in &mut records {
            record.cost = Some(tollgate_core::NanoUsd(14));
        }
        (records[7].group, records[7].model) = (None, Some("no such model".to_owned()));
        store.usage.append(&records).await.unwrap();
        let (balances, spending) = (store.ledger.balances().await.unwrap(), store.ledger.spending(NOON).await.unwrap());
        store.close().await;

        let place = dir.path().join("tollgate.db").display().to_string();
        let mut connection = open(&place).await;
        sqlx::raw_sql(WITHOUT_MONEY).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();

        let store = open_store().await.unwrap();
        assert_eq!(store.ledger.balances().await.unwrap(), balances);
        assert_eq!(store.ledger.spending(NOON).await.unwrap(), spending);
        let verified = store.ledger.verify(NOON).await.unwrap();
        assert!(verified.agrees() && verified.records == 60, "{verified:#?}");
        store.usage.append(&[record(100)]).await.unwrap();
        assert_eq!(backups(&dir).len(), 1);
    }

    fn backups(dir: &TempDir) -> Vec<std::path::PathBuf> {
        let paths = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_string_lossy().contains(".backup")).collect()
    }

    #[tokio::test]
    async fn a_schema_that_changes_is_copied_first_and_changes_once() {
        let dir = TempDir::new().unwrap();
        let place = dir.path().join("x.db").display().to_string();
        let mut connection = open(&place).await;
        run(&mut connection, Dialect::Sqlite, &place, NOON, ALL).await.unwrap();
        run(&mut connection, Dialect::Sqlite, &place, NOON, ALL).await.unwrap();
        assert_eq!(backups(&dir).len(), 0, "nothing changed");
        let steps = [ALL, &[next(LATER)]].concat();
        run(&mut connection, Dialect::Sqlite, &place, NOON, &steps).await.unwrap();
        assert_eq!(applied(&mut connection, &place).await.unwrap(), [known(), vec![newest() + 1]].concat());
        let copies = backups(&dir);
        assert!(copies.len() == 1 && copies[0].ends_with(format!("x.db.v{}-2026-11-21.backup", newest())), "{copies:?}");
        let mut copy = open(&copies[0].display().to_string()).await;
        assert_eq!(applied(&mut copy, &place).await.unwrap(), known());
        assert!(matches!(
            check(&mut connection, Dialect::Sqlite, &place).await,
            Err(StoreError::Newer { found, known, .. }) if (found, known) == (newest() + 1, newest())
        ));
    }

    #[tokio::test]
    async fn a_step_that_fails_leaves_the_schema_as_it_was() {
        let dir = TempDir::new().unwrap();
        let place = dir.path().join("x.db").display().to_string();
        let mut connection = open(&place).await;
        run(&mut connection, Dialect::Sqlite, &place, NOON, ALL).await.unwrap();
        let steps = [ALL, &[next(BROKEN)]].concat();
        run(&mut connection, Dialect::Sqlite, &place, NOON, &steps).await.unwrap_err();
        assert_eq!(applied(&mut connection, &place).await.unwrap(), known());
        let steps = [ALL, &[next(LATER)]].concat();
        run(&mut connection, Dialect::Sqlite, &place, NOON, &steps).await.unwrap();
        assert_eq!(backups(&dir).len(), 2, "a copy is never written over");
    }
}
