//! Plans of the queries, as SQLite makes them.

use super::*;

#[test]
fn manual_postings_are_found_by_their_index() {
    let database = rusqlite::Connection::open_in_memory().unwrap();
    database.execute_batch(include_str!("../../../migrations/0001_schema.sql")).unwrap();
    let of_kind = |kind| entries_sql(&LedgerFilter { kind, ..LedgerFilter::default() });
    for sql in [of_kind(Some(LedgerKind::TopUp)), of_kind(Some(LedgerKind::Adjust)), posted_since_sql()] {
        let mut statement = database.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = statement.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            steps.push(row.get::<_, String>(3).unwrap());
        }
        let [step] = steps.as_slice() else { panic!("{sql}: {steps:?}") };
        assert!(step.starts_with("SEARCH ") && step.contains("INDEX ledger_posted"), "{sql}: {step}");
    }
}
