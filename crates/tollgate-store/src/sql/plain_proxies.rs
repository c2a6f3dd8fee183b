//! Databases of versions that kept the passwords of proxies in the text of channels: they are sealed once, when such a
//! database is opened, and taken out of the audit log.

use serde_json::Value;
use sqlx::{AnyConnection, Connection as _, Row as _};

use super::{Dialect, connect::failed};
use crate::{StoreError, apply::credential_place, proxy, seal::Sealer};

const OPERATION: &str = "seal the passwords of proxies";
/// Lines of the audit log that are looked at together.
const LINES_AT_ONCE: i64 = 500;
/// Largest file that is written anew at a start; a larger one would hold it up.
const MOST_REWRITTEN: i64 = 1 << 30;

/// Seals them where that is still to do.
pub(super) async fn seal(connection: &mut AnyConnection, dialect: Dialect, place: &str, sealer: &Sealer) -> Result<(), StoreError> {
    let query = |error| failed(place, OPERATION, error);
    let marked = "SELECT COUNT(*) FROM counters WHERE name = 'plain_proxies' AND value = 1";
    let marked: i64 = sqlx::query(marked).fetch_one(&mut *connection).await.and_then(|row| row.try_get(0)).map_err(query)?;
    if marked == 0 {
        return Ok(());
    }
    if dialect == Dialect::Sqlite {
        // What is written over shall not stay in the file.
        sqlx::raw_sql("PRAGMA secure_delete = ON;").execute(&mut *connection).await.map_err(query)?;
    }
    let sealed = seal_all(connection, sealer).await.map_err(query)?;
    if sealed && dialect == Dialect::Sqlite {
        rewrite(connection, place).await;
    }
    Ok(())
}

/// Writes the file anew: what earlier versions wrote over still stands in the slack of its pages.
async fn rewrite(connection: &mut AnyConnection, place: &str) {
    let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    let size: Result<i64, _> = sqlx::query(size).fetch_one(&mut *connection).await.and_then(|row| row.try_get(0));
    let small = size.is_ok_and(|size| size <= MOST_REWRITTEN);
    if !small || sqlx::raw_sql("VACUUM;").execute(&mut *connection).await.is_err() {
        tracing::warn!(
            place,
            "passwords of proxies are sealed now, but what was written over may still stand in the file: stop the gateway and \
             run `sqlite3 FILE VACUUM`, or change the passwords"
        );
    }
    // Where another process reads just now, the log is emptied when that is done.
    let _ = sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE);").execute(connection).await;
}

/// Whether there was anything to seal or to hide.
async fn seal_all(connection: &mut AnyConnection, sealer: &Sealer) -> Result<bool, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    // Writing first keeps other writers from coming between.
    sqlx::query("UPDATE counters SET value = 0 WHERE name = 'plain_proxies'").execute(&mut *transaction).await?;
    let mut found = false;
    let rows = "SELECT id, spec FROM catalog_rows WHERE kind = 'channel' AND credential IS NULL AND spec LIKE '%\"proxy\":\"%@%'";
    for row in sqlx::query(rows).fetch_all(&mut *transaction).await? {
        let (id, text): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        // A row that cannot be read is told of where the catalog is loaded.
        let Ok(mut spec) = serde_json::from_str::<crate::ChannelSpec>(&text) else { continue };
        let proxy::ProxyPassword::Given(whole) = proxy::ProxyPassword::take_from(&mut spec) else { continue };
        let credential = sealer.seal(credential_place(&id), whole.expose().as_bytes());
        let update = sqlx::query("UPDATE catalog_rows SET spec = $1, credential = $2 WHERE id = $3");
        update.bind(crate::rows::spec_text(&spec)).bind(credential).bind(id).execute(&mut *transaction).await?;
        found = true;
    }
    let mut behind = (-1_i64, -1_i64);
    loop {
        let lines = "SELECT revision, position, detail FROM audit WHERE kind = 'channel' AND detail LIKE '%\"proxy\":\"%@%' \
                     AND (revision > $1 OR (revision = $1 AND position > $2)) ORDER BY revision, position LIMIT $3";
        let lines = sqlx::query(lines).bind(behind.0).bind(behind.1).bind(LINES_AT_ONCE).fetch_all(&mut *transaction).await?;
        let Some(last) = lines.last() else { break };
        behind = (last.try_get(0)?, last.try_get(1)?);
        for line in &lines {
            let text: String = line.try_get(2)?;
            let Some(hidden) = hidden(&text) else { continue };
            let update = sqlx::query("UPDATE audit SET detail = $1 WHERE revision = $2 AND position = $3");
            let (revision, position): (i64, i64) = (line.try_get(0)?, line.try_get(1)?);
            update.bind(hidden).bind(revision).bind(position).execute(&mut *transaction).await?;
            found = true;
        }
    }
    transaction.commit().await?;
    Ok(found)
}

/// A line of the audit log without passwords; `None`: it has none.
fn hidden(detail: &str) -> Option<String> {
    let mut detail: Value = serde_json::from_str(detail).ok()?;
    let sides = ["before", "after"].map(|side| detail.get_mut(side).and_then(proxy::hide_in).is_some());
    sides.contains(&true).then(|| detail.to_string())
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use sqlx::{AssertSqlSafe, any::AnyConnectOptions};
    use tempfile::TempDir;

    use super::*;
    use crate::{
        Change, ChangeOrigin, ChannelSpec, StoreUrl,
        conformance::{actor, channel, options, postgres, sqlite},
        open,
        samples::NOON,
    };

    const PLAIN: &str = "http://me:proxy-secret@127.0.0.1:3128";
    const SHOWN: &str = "http://me:***@127.0.0.1:3128";

    /// Makes a database as an older version left it, opens it, and tells what it says then.
    async fn opened_again(url: StoreUrl, dir: &TempDir, address: &str) {
        let store = open(options(url.clone(), dir)).await.unwrap();
        let with_proxy = ChannelSpec { proxy: Some(SHOWN.replace("***", "before-it")), ..channel("main") };
        let changes = [Change::PutChannel(Box::new(with_proxy)), Change::PutChannel(Box::new(channel("plain")))];
        store.catalog.apply(&changes, &actor(ChangeOrigin::Cli), NOON).await.unwrap();
        let before = store.catalog.revision().await.unwrap();
        store.close().await;
        let mut connection = AnyConnection::connect_with(&AnyConnectOptions::from_str(address).unwrap()).await.unwrap();
        // Written twice, the second time shorter: what is left of the first stands in the slack of the page.
        let longer = PLAIN.replace("proxy-secret", &"proxy-secret".repeat(40));
        let older = format!(
            "UPDATE catalog_rows SET spec = REPLACE(spec, '{SHOWN}', '{longer}'), credential = NULL WHERE kind = 'channel'; \
             UPDATE catalog_rows SET spec = REPLACE(spec, '{longer}', '{PLAIN}') WHERE kind = 'channel'; \
             UPDATE audit SET detail = REPLACE(detail, '{SHOWN}', '{PLAIN}'); \
             UPDATE counters SET value = 1 WHERE name = 'plain_proxies';"
        );
        sqlx::raw_sql(AssertSqlSafe(older)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();

        let store = open(options(url, dir)).await.unwrap();
        assert_eq!(
            store.catalog.load().await.unwrap().channel_by_name("main").unwrap().proxy.as_ref().map(tollgate_core::Secret::expose),
            Some(PLAIN)
        );
        assert_eq!(store.catalog.revision().await.unwrap(), before);
        let mut connection = AnyConnection::connect_with(&AnyConnectOptions::from_str(address).unwrap()).await.unwrap();
        let texts = "SELECT spec FROM catalog_rows UNION ALL SELECT detail FROM audit";
        let texts: Vec<String> =
            sqlx::query(texts).fetch_all(&mut connection).await.unwrap().iter().map(|row| row.try_get(0).unwrap()).collect();
        assert!(texts.iter().all(|text| !text.contains("proxy-secret")) && texts.iter().any(|text| text.contains(SHOWN)));
        connection.close().await.unwrap();
        store.close().await;
    }

    #[tokio::test]
    async fn passwords_of_an_older_version_are_sealed_at_the_next_start() {
        let dir = TempDir::new().unwrap();
        let place = dir.path().join("tollgate.db");
        opened_again(sqlite(&dir), &dir, &format!("sqlite:{}?mode=rw", place.display())).await;
        for entry in std::fs::read_dir(dir.path()).unwrap().flatten() {
            let bytes = std::fs::read(entry.path()).unwrap();
            assert!(!bytes.windows(12).any(|part| part == b"proxy-secret"), "{}", entry.path().display());
        }
    }

    #[tokio::test]
    async fn passwords_of_an_older_version_are_sealed_on_postgres() {
        let Some(schema) = postgres("plain_proxies").await else { return };
        let dir = TempDir::new().unwrap();
        let StoreUrl::Postgres(address) = schema.address.clone() else { panic!("an address of PostgreSQL") };
        opened_again(schema.address.clone(), &dir, &address).await;
        schema.drop().await;
    }
}
