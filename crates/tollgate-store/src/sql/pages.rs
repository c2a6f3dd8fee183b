//! Pages of the usage log. Pages of all records, of one key, of failures and of a member with few keys are read along an index. For
//! other filters, the roll-ups first show which times have matches, and only the records of these times are read. A time is a whole
//! day if it has few records, else one of its hours, else five minutes, else an equal part of these.
//!
//! Bounds: a page reads the records of at most [`MAX_SEARCHES`] times and about [`MAX_READ`] records. Then it ends early and states
//! the time up to which it searched.

use std::{collections::HashMap, fmt::Write as _};

use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{RequestId, Timestamp};

use super::{
    packed_sums::CellTimes,
    store::SqlStore,
    usage_filter::{ArrivalRange, RefFilter, list},
    usage_rows::stored::{UsageRow, usage_columns},
};
use crate::{
    Page, SortOrder, StoreError, UsageCursor, UsageFilter,
    rollup::{DAY, FIVE_MINUTES, HOUR, MINUTE, bucket, next_bucket},
};

const PAGE: &str = "read a page of the usage log";
/// Records that a page reads before it ends early.
const MAX_READ: i64 = 200_000;
/// Number of times whose records a page searches before it ends early.
const MAX_SEARCHES: usize = 200;
/// Records of a time that are read at once, if the time is longer than five minutes.
const READ_AT_ONCE: i64 = 20_000;
/// Approximate records of a part of five minutes. The roll-ups do not show which parts have matches, so parts are larger.
const READ_OF_PART: i64 = if cfg!(test) { 4 } else { 50_000 };
const MILLISECOND: i64 = 1_000;
/// Keys of a member whose records are read key by key.
const MAX_KEYS: usize = 40;

/// A search for a page in progress.
struct PageSearch<'a> {
    filter: &'a RefFilter,
    order: SortOrder,
    range: ArrivalRange,
    after: Option<UsageCursor>,
    /// One more than the size of a page, to detect a further page.
    wanted: usize,
    found: Vec<UsageRow>,
    read: i64,
    searches: usize,
}

/// A time with matches: its begin and its width in microseconds, and the number of records that reading it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MatchingTime {
    begin: i64,
    width: i64,
    records: i64,
}

impl MatchingTime {
    /// Cuts five minutes with many records into parts, in the order of time. All parts are assumed to be equally busy. They begin with
    /// a millisecond, as ids do, by which a page continues.
    fn cut(self) -> impl DoubleEndedIterator<Item = Self> {
        let length = self.width / MILLISECOND;
        let count = (self.records / READ_OF_PART).clamp(1, length);
        let begin = move |part: i64| self.begin + length * part / count * MILLISECOND;
        let records = self.records / count;
        (0..count).map(move |part| Self { begin: begin(part), width: begin(part + 1) - begin(part), records })
    }
}

impl PageSearch<'_> {
    fn is_full(&self) -> bool {
        self.found.len() >= self.wanted
    }

    /// The times in microseconds between which records are still to be read: [from, to).
    fn open_times(&self) -> (Option<i64>, Option<i64>) {
        let after = self.after.map(|UsageCursor(id)| id.time().0);
        match self.order {
            SortOrder::Newest => (self.range.from, [self.range.to, after.map(|at| at + 1_000)].into_iter().flatten().min()),
            SortOrder::Oldest => ([self.range.from, after].into_iter().flatten().max(), self.range.to),
        }
    }

    /// The part of the range on the day of the cursor. In a busy log the next records are there.
    fn day_of_cursor(&self) -> Option<ArrivalRange> {
        let ArrivalRange { from, to } = self.range;
        let UsageCursor(after) = self.after?;
        let begin = bucket(after.time(), DAY);
        Some(match self.order {
            SortOrder::Newest => ArrivalRange { from: from.max(Some(begin)), to },
            SortOrder::Oldest => ArrivalRange { from, to: Some(to.map_or(begin + DAY, |to| to.min(begin + DAY))) },
        })
    }

    /// The query for records along an index, and the ids to bind.
    fn query(&self, conditions: &str, range: ArrivalRange) -> (String, Vec<RequestId>) {
        let (mut sql, mut ids) = range.sql(1);
        if let Some(UsageCursor(after)) = self.after {
            ids.push(after);
            let than = if self.order == SortOrder::Newest { '<' } else { '>' };
            write!(sql, " AND id {than} ${}", ids.len()).expect("writing to a String cannot fail");
        }
        let direction = if self.order == SortOrder::Newest { " DESC" } else { "" };
        let limit = self.wanted - self.found.len();
        let columns = usage_columns();
        (format!("SELECT {columns} FROM usage WHERE 1 = 1{conditions}{sql} ORDER BY id{direction} LIMIT {limit}"), ids)
    }

    fn sort(&mut self) {
        match self.order {
            SortOrder::Newest => self.found.sort_by_key(|row| std::cmp::Reverse(row.id)),
            SortOrder::Oldest => self.found.sort_by_key(|row| row.id),
        }
    }

    /// For a page that ended before `time`: the cursor to continue from, and the time up to which it has searched.
    fn stopped_before(&self, time: MatchingTime) -> (UsageCursor, Timestamp) {
        let time = match self.order {
            SortOrder::Newest => Timestamp(time.begin + time.width),
            SortOrder::Oldest => Timestamp(time.begin),
        };
        (UsageCursor(RequestId::first_at(time)), time)
    }
}

impl SqlStore {
    /// A page of rows.
    pub(super) async fn usage_page(&self, filter: &UsageFilter) -> Result<Page<UsageRow>, StoreError> {
        let size = filter.page_size() as usize;
        let refs = self.ref_filter(PAGE, filter).await?;
        if refs.selects_nothing() {
            return Ok(Page::cut(Vec::new(), size, |row: &UsageRow| UsageCursor(row.id)));
        }
        let mut search = PageSearch {
            filter: &refs,
            order: filter.order,
            range: ArrivalRange { from: filter.since.map(|at| at.0), to: filter.until.map(|at| at.0) },
            after: filter.after,
            wanted: size + 1,
            found: Vec::new(),
            read: 0,
            searches: 0,
        };
        let stopped = match self.indexed_conditions(&refs).await? {
            Some(conditions) => {
                self.read_along_indexes(&mut search, &conditions).await?;
                None
            }
            None => self.search_times(&mut search).await?,
        };
        let mut page = Page::cut(search.found, size, |row| UsageCursor(row.id));
        if let (None, Some((next, time))) = (page.next, stopped) {
            (page.next, page.searched_until) = (Some(next), Some(time));
        }
        Ok(page)
    }

    /// The conditions of each index range that together have exactly the filtered records in order; `None` if there are none or too
    /// many.
    async fn indexed_conditions(&self, refs: &RefFilter) -> Result<Option<Vec<String>>, StoreError> {
        let of_keys = |keys: &[i64]| keys.iter().map(|key| format!(" AND key = {key}")).collect::<Vec<_>>();
        if !refs.is_of_callers_and_outcomes() {
            return Ok(None);
        }
        Ok(match (&refs.keys, &refs.members, &refs.outcomes) {
            (None, None, None) => Some(vec![String::new()]),
            (Some(keys), None, None) => Some(of_keys(keys)),
            // The index has the records of each outcome in order.
            (None, None, Some(_)) => refs.indexed_outcomes().map(|outcomes| outcomes.iter().copied().map(of_outcome).collect()),
            (None, Some(members), None) => {
                let sql = AssertSqlSafe(format!(
                    "SELECT DISTINCT key FROM key_days WHERE member IN ({}) LIMIT {}",
                    list(members),
                    MAX_KEYS + 1
                ));
                let keys: Vec<i64> = self.fetch_as(PAGE, sqlx::query(sql), |row| row.try_get(0)).await?;
                // A key may have belonged to another member.
                let of_member = |condition: String| format!("{condition} AND member IN ({})", list(members));
                (keys.len() <= MAX_KEYS).then(|| of_keys(&keys).into_iter().map(of_member).collect())
            }
            _ => None,
        })
    }

    async fn read_along_indexes(&self, search: &mut PageSearch<'_>, conditions: &[String]) -> Result<(), StoreError> {
        let is_of_all = conditions.iter().all(String::is_empty);
        if let Some(day) = search.day_of_cursor().filter(|_| is_of_all) {
            // PostgreSQL opens every partition that a range may touch.
            let (sql, ids) = search.query("", day);
            search.found = self.usage_reader.rows(PAGE, sql, ids).await?;
            search.after = search.found.last().map(|row| UsageCursor(row.id)).or(search.after);
            if search.is_full() {
                return Ok(());
            }
        }
        let mut found = Vec::new();
        for conditions in conditions {
            let (sql, ids) = search.query(conditions, search.range);
            found.extend(self.usage_reader.rows(PAGE, sql, ids).await?);
        }
        search.found.append(&mut found);
        search.sort();
        search.found.truncate(search.wanted);
        Ok(())
    }

    /// Reads the records of times that have matches. Returns where it stopped, if it did before the end.
    async fn search_times(&self, search: &mut PageSearch<'_>) -> Result<Option<(UsageCursor, Timestamp)>, StoreError> {
        // Removed records have sums by days and hours too.
        let pruned_until = self.pruned_until().await?;
        let (from, to) = search.open_times();
        let from = from.map_or(pruned_until, |from| from.max(pruned_until));
        let mut open: Vec<MatchingTime> = self.matching_times(search, DAY, days_between(from, to)).await?;
        // The next time is the last of the list.
        open.reverse();
        while let Some(time) = open.pop() {
            let narrower = if time.width == DAY { HOUR } else { FIVE_MINUTES };
            if time.records > READ_AT_ONCE && time.width > FIVE_MINUTES {
                let times = self.matching_times(search, narrower, parts(time, narrower, from, to)).await?;
                open.extend(times.into_iter().rev());
                continue;
            }
            if time.records >= 2 * READ_OF_PART && time.width == FIVE_MINUTES {
                // The next one is the last.
                match search.order {
                    SortOrder::Newest => open.extend(time.cut()),
                    SortOrder::Oldest => open.extend(time.cut().rev()),
                }
                continue;
            }
            if search.read > MAX_READ || search.searches >= MAX_SEARCHES {
                return Ok(Some(search.stopped_before(time)));
            }
            self.read_time(search, time).await?;
            if search.is_full() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The times of a width that have matches, in the order of the search.
    async fn matching_times(
        &self,
        search: &PageSearch<'_>,
        width: i64,
        (from, to): Minutes,
    ) -> Result<Vec<MatchingTime>, StoreError> {
        let until = to.map(|to| format!(" AND minute < {to}")).unwrap_or_default();
        let direction = if search.order == SortOrder::Newest { " DESC" } else { "" };
        let sums = |table: &str, conditions: &str| {
            AssertSqlSafe(format!(
                "SELECT minute, CAST(SUM(requests) AS BIGINT) FROM {table} WHERE width = {} AND minute >= {from}{until}{conditions} \
                 GROUP BY minute ORDER BY minute{direction}",
                width / MINUTE
            ))
        };
        let read = |row: &AnyRow| Ok((row.try_get(0)?, row.try_get(1)?));
        let table = search.filter.times_table();
        let found = if table.is_packed() {
            let times = CellTimes { width, from: Some(from), to };
            let mut found = self.cells_by_time(PAGE, table, times, search.filter).await?;
            if search.order == SortOrder::Newest {
                found.reverse();
            }
            found
        } else {
            let sql = sums(table.name, &search.filter.sql_of_times(table));
            self.fetch_as(PAGE, sqlx::query(sql), read).await?
        };
        let time = |(minute, records)| MatchingTime { begin: minute * MINUTE, width, records };
        let mut found: Vec<_> = found.into_iter().map(time).collect();
        // The records of a key have an index, those of other filters are found among all of their time.
        if search.filter.keys.is_none() {
            let all = self.fetch_as(PAGE, sqlx::query(sums("usage_sums", "")), read).await?;
            let all: HashMap<i64, i64> = all.into_iter().collect();
            for time in &mut found {
                time.records = all.get(&(time.begin / MINUTE)).copied().unwrap_or(time.records);
            }
        }
        Ok(found)
    }

    /// Reads the records of a time.
    async fn read_time(&self, search: &mut PageSearch<'_>, time: MatchingTime) -> Result<(), StoreError> {
        let (begin, end) = (time.begin, time.begin + time.width);
        let range = ArrivalRange {
            from: Some(search.range.from.map_or(begin, |from| from.max(begin))),
            to: Some(search.range.to.map_or(end, |to| to.min(end))),
        };
        let (sql, ids) = search.query(&search.filter.sql(), range);
        let found = self.usage_reader.rows(PAGE, sql, ids).await?;
        search.searches += 1;
        // A page that becomes full has read only a part of the time; it ends there.
        search.read += time.records;
        search.found.extend(found);
        Ok(())
    }
}

/// The condition of an outcome's part of the index `usage_failed`, whose own condition it repeats, so that the databases use it.
fn of_outcome(outcome: i64) -> String {
    format!(" AND outcome <> 0 AND outcome = {outcome}")
}

/// Minutes between which times are looked up in the roll-ups: [from, to).
type Minutes = (i64, Option<i64>);

fn days_between(from: i64, to: Option<i64>) -> Minutes {
    (bucket(Timestamp(from), DAY) / MINUTE, to.map(|to| to.div_euclid(MINUTE) + 1))
}

/// The narrower times of a wider one that have a part in [from, to).
fn parts(of: MatchingTime, narrow: i64, from: i64, to: Option<i64>) -> Minutes {
    let (first, end) = (of.begin / MINUTE, (of.begin + of.width) / MINUTE);
    let begin = bucket(Timestamp(from), narrow) / MINUTE;
    (begin.max(first), Some(to.map_or(end, |to| end.min(next_bucket(to, narrow) / MINUTE))))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tollgate_core::UsageRecord;

    use super::*;
    use crate::{
        conformance::{options, sqlite},
        open,
        samples::{MIDNIGHT, arrived, record},
    };

    #[tokio::test]
    async fn page_ends_early_after_too_many_searches_and_returns_its_position() {
        let dir = TempDir::new().unwrap();
        let store = open(options(sqlite(&dir), &dir)).await.unwrap();
        let count = MAX_SEARCHES + 50;
        let at = |number: usize| Timestamp(MIDNIGHT.0 + i64::try_from(number).unwrap() * DAY + 7);
        let records: Vec<UsageRecord> = (0..count).map(|number| arrived(record(number as u64 * 4), at(number))).collect();
        store.usage.append(&records).await.unwrap();
        for (order, searched) in [(SortOrder::Newest, at(50)), (SortOrder::Oldest, at(MAX_SEARCHES))] {
            let filter = UsageFilter { model: record(0).model.map(Into::into), order, limit: 1_000, ..UsageFilter::default() };
            let first = store.usage.page(&filter).await.unwrap();
            assert_eq!((first.items.len(), first.searched_until), (MAX_SEARCHES, Some(Timestamp(searched.0 - 7))));
            assert!(first.next.is_some());
            let second = store.usage.page(&UsageFilter { after: first.next, ..filter }).await.unwrap();
            assert_eq!((second.next, second.searched_until), (None, None));
            let mut found = [first.items, second.items].concat();
            if order == SortOrder::Newest {
                found.reverse();
            }
            assert_eq!(found, records);
        }
        store.close().await;
    }

    #[tokio::test]
    async fn pages_within_busy_five_minutes_have_no_gap_or_overlap() {
        let dir = TempDir::new().unwrap();
        let store = open(options(sqlite(&dir), &dir)).await.unwrap();
        // Several in a millisecond.
        let at = |number: u64| Timestamp(MIDNIGHT.0 + i64::try_from(number).unwrap() * 333);
        let records: Vec<UsageRecord> = (0..100).map(|number| arrived(record(number), at(number))).collect();
        store.usage.append(&records).await.unwrap();
        let model = record(0).model;
        let mut expected: Vec<UsageRecord> = records.into_iter().filter(|record| record.model == model).collect();
        assert!((20..100).contains(&expected.len()), "some match: {}", expected.len());
        for order in [SortOrder::Oldest, SortOrder::Newest] {
            let mut filter = UsageFilter { model: model.clone().map(Into::into), order, limit: 3, ..UsageFilter::default() };
            let mut found = Vec::new();
            loop {
                let page = store.usage.page(&filter).await.unwrap();
                found.extend(page.items);
                filter.after = page.next;
                if filter.after.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{order:?}");
            expected.reverse();
        }
        store.close().await;
    }

    #[test]
    fn records_of_each_failed_outcome_are_read_in_the_order_of_an_index() {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        database.execute_batch(include_str!("../../migrations/0001_usage.sqlite.sql")).unwrap();
        let refs = RefFilter { outcomes: Some(vec![1, 3]), ..RefFilter::default() };
        assert!(refs.is_of_callers_and_outcomes());
        for outcome in refs.indexed_outcomes().unwrap() {
            let search = PageSearch {
                filter: &refs,
                order: SortOrder::Newest,
                range: ArrivalRange { from: Some(MIDNIGHT.0), to: None },
                after: None,
                wanted: 51,
                found: Vec::new(),
                read: 0,
                searches: 0,
            };
            let (sql, _) = search.query(&of_outcome(*outcome), search.range);
            let mut statement = database.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let mut rows = statement.raw_query();
            let mut steps = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                steps.push(row.get::<_, String>(3).unwrap());
            }
            // Without a sort.
            assert!(steps.len() == 1 && steps[0].contains("INDEX usage_failed (outcome=? AND id>?)"), "{steps:?}");
        }
    }

    #[test]
    fn search_is_limited_to_times_within_the_range() {
        let hour = MatchingTime { begin: 600 * MINUTE, width: HOUR, records: 1 };
        assert_eq!(parts(hour, FIVE_MINUTES, 0, None), (600, Some(660)));
        assert_eq!(parts(hour, FIVE_MINUTES, 611 * MINUTE, Some(620 * MINUTE)), (610, Some(620)));
        assert_eq!(parts(hour, FIVE_MINUTES, 611 * MINUTE, Some(620 * MINUTE + 1)), (610, Some(625)));
        assert_eq!(days_between(DAY + 5, Some(3 * DAY)), (1_440, Some(3 * 1_440 + 1)));
    }

    #[test]
    fn busy_five_minutes_are_split_at_whole_milliseconds() {
        let busy = MatchingTime { begin: 7 * FIVE_MINUTES, width: FIVE_MINUTES, records: 7 * READ_OF_PART + 3 };
        let parts: Vec<_> = busy.cut().collect();
        assert_eq!((parts.len(), parts[0].begin, parts[0].records), (7, busy.begin, READ_OF_PART));
        for (one, next) in parts.iter().zip(&parts[1..]) {
            assert_eq!((one.begin + one.width, next.begin % MILLISECOND), (next.begin, 0));
        }
        assert_eq!(parts.last().map(|last| last.begin + last.width), Some(busy.begin + FIVE_MINUTES));
        let busiest = MatchingTime { records: i64::MAX, ..busy };
        assert!(busiest.cut().all(|part| part.width == MILLISECOND));
    }
}
