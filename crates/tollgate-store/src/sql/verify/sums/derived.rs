//! Sums that equal those of another table with fewer dimensions: the totals of each key, and the sums of tags. As long as there are
//! records each table is compared with them; of removed records the two are compared with each other, by days.

use std::collections::BTreeMap;

use super::{SumTable, compare_table, months, packed};
use crate::{
    StoreError,
    rollup::{DAY, MINUTE, Sums as _, UsageSums},
    sql::shared_snapshot::SnapshotReader,
    verify::VerifyReport,
};

/// Compares the days of a table with `K` columns in its key, without the width, with those of the packed one with `N` that it derives
/// from, up to a time.
pub(super) async fn compare<const N: usize, const K: usize>(
    reader: &mut SnapshotReader,
    (from, table): (&SumTable, &SumTable),
    until: i64,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let index = |name: &str| from.columns[1..from.key].iter().position(|column| column.name == name);
    let indexes: Vec<usize> = table.columns[1..table.key].iter().filter_map(|column| index(column.name)).collect();
    for (begin, end) in months::buckets(reader, from).await? {
        let day = DAY / MINUTE;
        for begin in (begin..end.min(until / MINUTE)).step_by(usize::try_from(day).unwrap_or(1)) {
            let minutes = (begin, begin + day);
            let mut due: BTreeMap<[i64; K], UsageSums> = BTreeMap::new();
            for (key, sums) in packed::rows::<N>(reader, from, (DAY, minutes), report).await? {
                let mut fewer = [0; K];
                fewer.iter_mut().zip(&indexes).for_each(|(column, index)| *column = key[*index]);
                due.entry(fewer).or_default().merge(&sums);
            }
            compare_table(reader, table, DAY, minutes, &due, report).await?;
        }
    }
    Ok(())
}
