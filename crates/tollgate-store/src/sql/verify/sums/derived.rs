//! Sums that are those of another table with fewer dimensions: the totals of each key, and the sums of tags. As long as there are records
//! each table is compared with them; of removed records the two are compared with each other, by days.

use super::{Difference, SumTable, months, tell};
use crate::{
    StoreError,
    rollup::{DAY, MINUTE, MONTH},
    sql::{
        columns::{Column, column_list},
        shared_snapshot::SnapshotReader,
        verify::VERIFY,
    },
    verify::VerifyReport,
};

/// Compares the days of a table with `K` columns in its key, without the width, and `F` figures with those of the one that it derives from, up to a
/// time.
pub(super) async fn compare<const K: usize, const F: usize>(
    reader: &mut SnapshotReader,
    (from, table): (&SumTable, &SumTable),
    until: i64,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let (key, figures) = (column_list(&table.columns[1..table.key]), &table.columns[table.key..]);
    let numbered = |name: &str, is_zero: bool| {
        let figure = |(at, column): (usize, &Column)| format!("{} AS {name}{at}", if is_zero { "0" } else { column.name });
        figures.iter().enumerate().map(figure).collect::<Vec<_>>().join(", ")
    };
    let sums = (0..figures.len()).map(|at| format!("CAST(SUM(due{at}) AS BIGINT), CAST(SUM(stored{at}) AS BIGINT)"));
    let sums = sums.collect::<Vec<_>>().join(", ");
    let differ = (0..figures.len()).map(|at| format!("SUM(due{at}) <> SUM(stored{at})")).collect::<Vec<_>>().join(" OR ");
    for (begin, end) in months::buckets(reader, from, MONTH).await? {
        let end = end.min(until / MINUTE);
        if begin >= end {
            continue;
        }
        let days = format!("width = {} AND minute >= {begin} AND minute < {end}", DAY / MINUTE);
        let sql = format!(
            "SELECT {key}, {sums} FROM (SELECT {key}, {}, {} FROM {} WHERE {days} UNION ALL SELECT {key}, {}, {} FROM {} WHERE {days}) \
             AS both_tables GROUP BY {key} HAVING {differ} ORDER BY {key}",
            numbered("due", false),
            numbered("stored", true),
            from.name,
            numbered("due", true),
            numbered("stored", false),
            table.name,
        );
        let found: Vec<months::DifferentRow<K, F>> = reader.rows(VERIFY, &sql.into(), Vec::new()).await?;
        let mut differences = Vec::new();
        for row in found {
            for (column, (due, stored)) in figures.iter().zip(row.figures).filter(|(_, (due, stored))| due != stored) {
                differences.push(Difference { key: row.key, figure: column.name, due, stored });
            }
        }
        tell(reader, table, DAY, differences, report).await?;
    }
    Ok(())
}
