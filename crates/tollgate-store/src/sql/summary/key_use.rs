//! Requests and amounts of keys, without the texts of their groups.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use foldhash::fast::RandomState;
use sqlx::{AssertSqlSafe, Row as _};
use tollgate_core::{IdHash, KeyId, NanoUsd, Timestamp};

use super::{
    SUMMARY, SummaryQuery,
    packed::figure_of,
    ranges::{EndParts, SummarySource, TimeRange, split_range, widen_to_pruned_hours},
};
use crate::{
    KeyUse, KeyUseFilter, StoreError, SummaryBy,
    rollup::{MINUTE, MONTH, bucket, bucket_end, part_of},
    sql::{
        cells::{Cells, FromCells, broken},
        dialect::Dialect,
        group_sums::{GroupFigures, GroupRefs, GroupSums},
        names::NameKind,
        store::SqlStore,
        sum_tables::KEY_TOTALS,
        usage_filter::RefFilter,
        usage_reader::LookUp,
    },
};

/// Maximum number of keys whose numbers are looked up one by one; for more, all keys are read.
const MAX_LOOKUPS: usize = 500;
/// Maximum number of keys whose numbers are kept in memory, 32 bytes each.
const MAX_KNOWN_KEYS: usize = 100_000;
/// Maximum number of keys that a query names; for more, all records of the time are read.
const MAX_NAMED: usize = 500;
/// Maximum number of parts that a query names; for more, all parts are read.
const MAX_PARTS: usize = 1_000;
/// More groups than there are.
const ALL: usize = usize::MAX / 4;

/// Keys by their numbers in the dictionary, of which a key that was renamed has several.
pub(in crate::sql) type KeysByNumber = HashMap<i64, KeyId, RandomState>;

struct KeyNumber(i64, KeyId);

impl FromCells for KeyNumber {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let number = cells.number()?;
        let id = cells.text()?;
        Ok(Self(number, KeyId::parse(id).ok_or_else(|| broken(format!("'{id}' is not a key's id")))?))
    }
}

impl SqlStore {
    pub(in crate::sql) async fn use_of_keys(
        &self,
        filter: KeyUseFilter,
        keys: Option<Vec<KeyId>>,
    ) -> Result<Vec<(KeyId, KeyUse)>, StoreError> {
        let known = self.numbers_of_keys(keys.as_deref()).await?;
        let mut refs = self.members_only(filter).await?;
        refs.keys = (keys.is_some() && known.len() <= MAX_NAMED).then(|| known.keys().copied().collect());
        if refs.selects_nothing() {
            return Ok(Vec::new());
        }
        let (since, until) = widen_to_pruned_hours(Some(filter.since), None, self.pruned_until().await?);
        let query = SummaryQuery { since, until, ..SummaryQuery::of_keys(self.dialect, &refs) };
        let mut used: BTreeMap<KeyId, KeyUse> = BTreeMap::new();
        for ((number, _), figures) in self.sums_of_cells(&query).await? {
            let Some(key) = known.get(&number) else { continue };
            let (requests, sale) = (u64::try_from(figures[0]).unwrap_or(0), NanoUsd(figures[10]));
            used.entry(*key).or_default().add(KeyUse { requests, sale });
        }
        Ok(used.into_iter().collect())
    }

    /// The latest and widest sums are read first, and the search for a key ends at the first sum with requests. Most keys are used all
    /// the time and need only the sums of a month.
    pub(in crate::sql) async fn keys_without_use(
        &self,
        filter: KeyUseFilter,
        mut keys: Vec<KeyId>,
    ) -> Result<Vec<KeyId>, StoreError> {
        let mut open = self.numbers_of_keys(Some(&keys)).await?;
        let mut refs = self.members_only(filter).await?;
        if refs.selects_nothing() {
            return Ok(keys);
        }
        let (since, _) = widen_to_pruned_hours(Some(filter.since), None, self.pruned_until().await?);
        let Some(end) = self.end_of_months().await? else { return Ok(keys) };
        let mut used: HashSet<KeyId, IdHash> = HashSet::default();
        let ranges = split_range(since, None, SummarySource::BY_MONTH, EndParts::Added);
        let bounded = ranges.into_iter().map(|range| TimeRange { to: range.to.or(Some(end)), ..range });
        for range in bounded.rev().flat_map(growing_pieces) {
            if open.is_empty() {
                break;
            }
            refs.keys = (open.len() <= MAX_NAMED).then(|| open.keys().copied().collect());
            let parts: BTreeSet<i64> = open.keys().map(|number| part_of(*number)).collect();
            let parts: Option<Vec<i64>> = (parts.len() <= MAX_PARTS).then(|| parts.into_iter().collect());
            let query = SummaryQuery::of_keys(self.dialect, &refs);
            for ((number, _), _) in self.sums_of_range(&query, range, parts).await? {
                used.extend(open.remove(&number));
            }
            // A key that was renamed has other numbers too.
            open.retain(|_, key| !used.contains(key));
        }
        keys.retain(|key| !used.contains(key));
        Ok(keys)
    }

    /// The sums of a range by key.
    pub(super) async fn sums_of_range(
        &self,
        query: &SummaryQuery<'_>,
        range: TimeRange,
        parts: Option<Vec<i64>>,
    ) -> Result<Vec<(GroupRefs, GroupFigures)>, StoreError> {
        let sums = GroupSums::new(figure_of(query.by.largest), query.most);
        let sums = match range.source {
            SummarySource::Records => self.sums_of_records(query, &[range], None, sums).await?,
            SummarySource::FiveMinutes | SummarySource::Hours | SummarySource::Days | SummarySource::Months => {
                self.add_up_cells(SUMMARY, query.cells(range, parts.as_deref()), sums).await?
            }
        };
        Ok(sums.finish())
    }

    /// The end of the last month with sums, in microseconds.
    async fn end_of_months(&self) -> Result<Option<i64>, StoreError> {
        let (table, width) = (KEY_TOTALS.name, MONTH / MINUTE);
        let sql = AssertSqlSafe(format!("SELECT CAST(MAX(minute) AS BIGINT) FROM {table} WHERE width = {width}"));
        let last: Vec<Option<i64>> = self.fetch_as(SUMMARY, sqlx::query(sql), |row| row.try_get(0)).await?;
        Ok(last.first().copied().flatten().map(|minute| bucket_end(Timestamp(minute * MINUTE), MONTH)))
    }

    /// The numbers of these keys, or of all.
    pub(super) async fn numbers_of_keys(&self, keys: Option<&[KeyId]>) -> Result<KeysByNumber, StoreError> {
        match keys {
            Some(keys) if keys.len() <= MAX_LOOKUPS => {
                let ids = keys.iter().map(KeyId::to_string).collect();
                let sql = format!("SELECT ref, id FROM names WHERE kind = {} AND id", NameKind::Key.code());
                let numbers: Vec<KeyNumber> = self.usage_reader.rows_with(SUMMARY, sql, LookUp::Texts(ids)).await?;
                Ok(numbers.into_iter().map(|KeyNumber(number, key)| (number, key)).collect())
            }
            Some(keys) => {
                let wanted: HashSet<KeyId, IdHash> = keys.iter().copied().collect();
                let numbers = self.numbers_of_all_keys().await?;
                Ok(numbers.iter().filter(|(_, key)| wanted.contains(key)).map(|(number, key)| (*number, *key)).collect())
            }
            None => Ok((*self.numbers_of_all_keys().await?).clone()),
        }
    }

    /// The dictionary's keys, of which only those are read that were added since the last call: the dictionary only grows, and numbers
    /// are assigned in the order in which they become visible.
    pub(super) async fn numbers_of_all_keys(&self) -> Result<Arc<KeysByNumber>, StoreError> {
        let known = self.key_numbers.load_full();
        let last = known.keys().max().copied().unwrap_or(0);
        // With the plus sign SQLite looks the numbers up instead of the kind.
        let sql = format!("SELECT ref, id FROM names WHERE ref > {last} AND +kind = {}", NameKind::Key.code());
        let new: Vec<KeyNumber> = self.usage_reader.rows(SUMMARY, sql, Vec::new()).await?;
        if new.is_empty() {
            return Ok(known);
        }
        let mut all = (*known).clone();
        all.extend(new.into_iter().map(|KeyNumber(number, key)| (number, key)));
        let all = Arc::new(all);
        if all.len() <= MAX_KNOWN_KEYS {
            self.key_numbers.store(Arc::clone(&all));
        }
        Ok(all)
    }

    /// The filter without keys.
    async fn members_only(&self, filter: KeyUseFilter) -> Result<RefFilter, StoreError> {
        let members = match filter.member {
            Some(member) => Some(self.refs_of(SUMMARY, NameKind::Member, "id", &member.to_string()).await?),
            None => None,
        };
        Ok(RefFilter { members, ..RefFilter::default() })
    }
}

impl<'a> SummaryQuery<'a> {
    /// Totals of all keys of a filter.
    pub(super) fn of_keys(dialect: Dialect, filter: &'a RefFilter) -> Self {
        let by = SummaryBy::Key.into();
        let table = Some(&KEY_TOTALS);
        SummaryQuery { dialect, filter, by, table, tags: [0; 2], since: None, until: None, matching: Vec::new(), most: ALL }
    }
}

/// A range in pieces of one bucket, of two before it, of four, and so on.
pub(super) fn growing_pieces(range: TimeRange) -> Vec<TimeRange> {
    let (Some(from), Some(mut end)) = (range.from, range.to) else { return vec![range] };
    if range.source == SummarySource::Records {
        return vec![range];
    }
    let (mut pieces, mut count) = (Vec::new(), 1);
    while end > from {
        let before = |begin: i64| bucket(Timestamp(begin - 1), range.source.width());
        let begin = (0..count).fold(end, |begin, _| if begin > from { before(begin) } else { begin });
        pieces.push(TimeRange { from: Some(begin), to: Some(end), ..range });
        (end, count) = (begin, count * 2);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollup::{DAY, HOUR};

    #[test]
    fn range_is_read_backwards_in_growing_pieces() {
        let range = |source, from, to| TimeRange { source, from: Some(from), to: Some(to), is_subtracted: false };
        let days = |from: i64, to: i64| range(SummarySource::Days, from * DAY, to * DAY);
        assert_eq!(growing_pieces(days(0, 9)), [days(8, 9), days(6, 8), days(2, 6), days(0, 2)]);
        assert_eq!(growing_pieces(days(3, 3)), []);
        let months = range(SummarySource::Months, 0, 59 * DAY);
        let pieces: Vec<_> = growing_pieces(months).iter().map(|piece| piece.from.unwrap() / DAY).collect();
        assert_eq!(pieces, [31, 0], "January and February of 1970");
        let records = range(SummarySource::Records, 7, HOUR);
        assert_eq!(growing_pieces(records), [records]);
    }
}
