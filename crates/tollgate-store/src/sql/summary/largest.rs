//! Drops all but the largest groups before their texts are read. With ten thousand keys, reading the texts takes longer than the
//! sums.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use sqlx::{AssertSqlSafe, Row as _};
use tollgate_core::IdHash;

use super::{KeysByNumber, SUMMARY, packed::figure_of};
use crate::{
    Grouping, StoreError, SummaryBy,
    sql::{
        group_sums::{GroupFigures, GroupRefs},
        names::NameKind,
        store::SqlStore,
    },
};

type Sums = Vec<(GroupRefs, GroupFigures)>;

impl SqlStore {
    /// The groups that may be among the requested number of largest ones: those at least as large as the last of them, and those
    /// whose id has several names, because the sums of these are still to be added.
    pub(super) async fn possibly_largest(&self, by: Grouping, sums: Sums) -> Result<Sums, StoreError> {
        let kind = match (by.first, by.second) {
            (SummaryBy::Key, SummaryBy::Nothing) => NameKind::Key,
            (SummaryBy::Member, SummaryBy::Nothing) => NameKind::Member,
            // Other groupings have few groups.
            _ => return Ok(sums),
        };
        let Some(wanted) = by.wanted.and_then(|wanted| usize::try_from(wanted).ok()).filter(|wanted| *wanted < sums.len()) else {
            return Ok(sums);
        };
        let renamed = self.numbers_of_renamed(kind).await?;
        Ok(largest(sums, wanted, figure_of(by.largest), &renamed))
    }

    /// The numbers of names that share their id with others.
    async fn numbers_of_renamed(&self, kind: NameKind) -> Result<HashSet<i64>, StoreError> {
        if kind == NameKind::Key {
            return Ok(with_equal_ids(&*self.numbers_of_all_keys().await?));
        }
        let kind = kind.code();
        let sql = AssertSqlSafe(format!(
            "SELECT ref FROM names WHERE kind = {kind} \
             AND id IN (SELECT id FROM names WHERE kind = {kind} GROUP BY id HAVING COUNT(*) > 1)"
        ));
        Ok(self.fetch_as(SUMMARY, sqlx::query(sql), |row| row.try_get(0)).await?.into_iter().collect())
    }
}

/// The numbers whose id has several.
fn with_equal_ids(keys: &KeysByNumber) -> HashSet<i64> {
    let (mut first, mut found) = (HashMap::with_capacity_and_hasher(keys.len(), IdHash::default()), HashSet::new());
    for (number, key) in keys {
        if let Some(other) = first.insert(key, *number) {
            found.extend([other, *number]);
        }
    }
    found
}

fn largest(mut sums: Sums, wanted: usize, figure: fn(&GroupFigures) -> i64, kept: &HashSet<i64>) -> Sums {
    // A negative figure counts as 0 in the order of rows.
    let size = |figures: &GroupFigures| figure(figures).max(0);
    let mut sizes: Vec<i64> =
        sums.iter().filter(|((first, _), _)| !kept.contains(first)).map(|(_, figures)| size(figures)).collect();
    let least = match wanted.checked_sub(1) {
        Some(last) if last < sizes.len() => *sizes.select_nth_unstable_by_key(last, |size| Reverse(*size)).1,
        Some(_) | None => return sums,
    };
    sums.retain(|((first, _), figures)| size(figures) >= least || kept.contains(first));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::group_sums::FIGURES;

    #[test]
    fn renamed_keys_are_found() {
        let key = |number: u8| tollgate_core::KeyId::from_parts(tollgate_core::Timestamp(0), [number; 10]);
        let keys = [(1, key(1)), (2, key(2)), (3, key(1)), (4, key(3)), (5, key(1))].into_iter().collect();
        assert_eq!(with_equal_ids(&keys), HashSet::from([1, 3, 5]));
    }

    #[test]
    fn groups_equal_to_the_last_of_the_largest_are_kept() {
        let sums: Sums = [9, 5, 5, 5, 3, -1, 1]
            .into_iter()
            .zip(0..)
            .map(|(figure, number)| {
                let mut figures = [0; FIGURES];
                figures[10] = figure;
                ((number, 0), figures)
            })
            .collect();
        let of = |wanted: usize, kept: &[i64]| -> Vec<i64> {
            let found = largest(sums.clone(), wanted, |figures| figures[10], &kept.iter().copied().collect());
            found.into_iter().map(|((number, _), _)| number).collect()
        };
        assert_eq!(of(1, &[]), [0]);
        assert_eq!(of(2, &[]), [0, 1, 2, 3]);
        assert_eq!(of(5, &[]), [0, 1, 2, 3, 4]);
        assert_eq!(of(1, &[0, 6]), [0, 1, 2, 3, 6], "a renamed group does not set the bound, and is kept");
        assert_eq!(of(7, &[]).len(), 7);
    }
}
