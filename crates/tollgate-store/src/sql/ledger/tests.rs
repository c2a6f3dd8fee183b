//! Plans of the queries, as SQLite makes them.

use super::*;

/// The steps of a query.
fn steps(database: &rusqlite::Connection, sql: &str) -> Vec<String> {
    let mut statement = database.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get::<_, String>(3).unwrap());
    }
    steps
}

#[test]
fn entries_of_a_period_are_read_between_the_positions_of_its_index() {
    let database = rusqlite::Connection::open_in_memory().unwrap();
    database.execute_batch(include_str!("../../../migrations/0001_schema.sql")).unwrap();
    let filter = LedgerFilter { since: Some(Timestamp(5)), until: Some(Timestamp(9)), ..LedgerFilter::default() };
    let positions = steps(&database, &positions_sql(&filter));
    assert!(positions.len() == 1 && positions[0].contains("USING COVERING INDEX ledger_at (at>? AND at<?)"), "{positions:?}");
    let entries = steps(&database, &entries_sql(&filter, Some(3)));
    assert!(entries.len() == 1 && entries[0].ends_with("(seq>? AND seq<?)"), "{entries:?}");
}

#[test]
fn manual_postings_are_found_by_their_index() {
    let database = rusqlite::Connection::open_in_memory().unwrap();
    database.execute_batch(include_str!("../../../migrations/0001_schema.sql")).unwrap();
    let of_kind = |kind| entries_sql(&LedgerFilter { kind, ..LedgerFilter::default() }, None);
    for sql in [of_kind(Some(LedgerKind::TopUp)), of_kind(Some(LedgerKind::Adjust)), posted_since_sql()] {
        let steps = steps(&database, &sql);
        let [step] = steps.as_slice() else { panic!("{sql}: {steps:?}") };
        assert!(step.starts_with("SEARCH ") && step.contains("INDEX ledger_posted"), "{sql}: {step}");
    }
}
