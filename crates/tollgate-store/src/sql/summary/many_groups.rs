//! Sums with more groups than the bound for one pass, on both databases.

use tempfile::TempDir;

use super::*;
use crate::{
    StoreUrl,
    conformance::{options, postgres, sqlite},
    rollup::{CellWriter, DAY, UsageSums, keys_of_parts},
    sql::{
        self,
        address::SqlAddress,
        group_sums::MAX_GROUPS,
        sum_tables::{KEY_SUMS, KEY_TOTALS},
    },
};

const PARTS: i64 = 20;
const MODELS: i64 = 800;

/// Number of requests of a key for a model, which grows with both numbers.
const fn requests(key: i64, model: i64) -> i64 {
    key * MODELS + model + 1
}

/// Stores the sums of a month, one for each key and model. Every key belongs to a different member.
async fn store_sums(store: &SqlStore) {
    let minute = bucket(Timestamp(400 * DAY), MONTH) / MINUTE;
    let insert = async |table: &SumTable, part: i64, packed: CellWriter| {
        let sql = format!("INSERT INTO {} (width, minute, part, sums) VALUES ($1, $2, $3, $4)", table.name);
        let query = sqlx::query(AssertSqlSafe(sql)).bind(MONTH / MINUTE).bind(minute).bind(part).bind(packed.finish());
        query.execute(store.pools.writer()).await.unwrap();
    };
    for part in 0..PARTS {
        let (mut of_models, mut totals) = (CellWriter::default(), CellWriter::default());
        for key in keys_of_parts(&(part..part + 1)) {
            let member = 1_000_000 + key;
            for model in 0..MODELS {
                let mut sums = UsageSums::default();
                sums.0[0] = requests(key, model);
                of_models.push(&[key, member, 1, model, 1, 1, 0, 0, 0], &sums);
            }
            totals.push(&[key, member, 0], &UsageSums::default());
        }
        insert(&KEY_SUMS, part, of_models).await;
        insert(&KEY_TOTALS, part, totals).await;
    }
}

async fn sums(store: &SqlStore, filter: &RefFilter, by: Grouping) -> Result<Vec<(GroupRefs, GroupFigures)>, StoreError> {
    let table = tables::choose(filter, by, &[]);
    let (since, until) = (None, Some(Timestamp(1_000 * DAY + 7)));
    let most = MAX_ROWS;
    let query = SummaryQuery { dialect: store.dialect, filter, by, table, tags: [0; 2], since, until, matching: Vec::new(), most };
    store.sums(&query).await
}

async fn check(store: &SqlStore) {
    store_sums(store).await;
    let (keys, all) = (PARTS * 32, RefFilter::default());
    assert!(usize::try_from(keys * MODELS).unwrap() > MAX_GROUPS);

    let mut found = sums(store, &all, Grouping::pair(SummaryBy::Key, SummaryBy::Model)).await.unwrap();
    found.sort_unstable();
    let smallest = keys * MODELS - i64::try_from(MAX_ROWS).unwrap();
    let expected = (smallest..keys * MODELS).map(|number| (number / MODELS, number % MODELS));
    assert!(found.iter().map(|(groups, _)| *groups).eq(expected), "the largest of all keys");
    assert!(found.iter().all(|((key, model), figures)| figures[0] == requests(*key, *model)));

    let refused = sums(store, &all, Grouping::pair(SummaryBy::Member, SummaryBy::Model)).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooManyGroups { max: MAX_GROUPS }), "{refused}");
    let of_model = RefFilter { models: Some(vec![7]), ..RefFilter::default() };
    let found = sums(store, &of_model, Grouping::pair(SummaryBy::Member, SummaryBy::Model)).await.unwrap();
    assert_eq!(found.len(), usize::try_from(keys).unwrap(), "with a filter there is room");
}

#[tokio::test]
async fn too_many_groups_are_read_in_parts_or_refused() {
    let dir = TempDir::new().unwrap();
    let StoreUrl::Sqlite(path) = sqlite(&dir) else { unreachable!("the address is one of SQLite") };
    let store = sql::open(SqlAddress::Sqlite(path), &options(sqlite(&dir), &dir)).await.unwrap();
    check(&store).await;
    store.close().await;
}

#[tokio::test]
async fn too_many_groups_are_read_in_parts_or_refused_on_postgresql() {
    let Some(schema) = postgres("many_groups").await else { return };
    let dir = TempDir::new().unwrap();
    let StoreUrl::Postgres(url) = schema.address.clone() else { unreachable!("the schema is on PostgreSQL") };
    let address = SqlAddress::Postgres { url, shown: "many groups".to_owned() };
    let store = sql::open(address, &options(schema.address.clone(), &dir)).await.unwrap();
    check(&store).await;
    store.close().await;
    schema.drop().await;
}
