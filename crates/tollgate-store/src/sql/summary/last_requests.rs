//! The last requests of keys and of members.
//!
//! Each is a look-up in the index of the log by key. For a list that begins with what was used last, the look-ups of ten thousand keys
//! would take most of the time. Hence the sums show first which of them were used in the last five minutes, in the ten before, and so
//! on, until there are as many as the list shows.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
};

use foldhash::fast::RandomState;
use tollgate_core::{IdHash, KeyId, MemberId, RequestId, Timestamp};

use super::{
    SUMMARY, SummaryQuery,
    key_use::growing_pieces,
    ranges::{SummarySource, TimeRange},
};
use crate::{
    LastUse, StoreError, SummaryBy,
    rollup::{DAY, HOUR, MINUTE, MONTH, bucket, bucket_end},
    sql::{
        cells::{Cells, FromCells, broken},
        dialect::Dialect,
        names::NameKind,
        store::SqlStore,
        sum_tables::KEY_TOTALS,
        usage_filter::RefFilter,
        usage_reader::LookUp,
    },
};

/// Up to this many keys or members are looked up without asking the sums first.
const MAX_LOOKUPS: usize = 500;
/// Records that are read of a time with more keys than that.
const MAX_READ: usize = 2_000;
/// Times without requests after which the search begins with five minutes again.
const MAX_GAPS: usize = 8;

/// Numbers in the dictionary.
type Numbers = HashSet<i64, RandomState>;

/// The last record of a key under one of its names.
struct LastRow {
    number: i64,
    request: RequestId,
    address: Option<String>,
}

impl FromCells for LastRow {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self { number: cells.number()?, request: cells.request()?, address: cells.maybe_text()?.map(str::to_owned) })
    }
}

/// A request of a key or of a member, by the number of one of its names.
struct NumberedRequest(i64, RequestId);

impl FromCells for NumberedRequest {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self(cells.number()?, cells.request()?))
    }
}

/// The keys or members that were used last, by their numbers.
#[derive(Default)]
struct UsedLast {
    /// Those whose last request is not read yet.
    unread: Vec<i64>,
    /// The last requests of the others.
    requests: Vec<NumberedRequest>,
}

/// A member by its number in the dictionary.
struct MemberNumber(i64, MemberId);

impl FromCells for MemberNumber {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self(cells.number()?, member_of(cells.text()?)?))
    }
}

/// A member, and the last request of one of its keys.
struct MemberRequest(MemberId, RequestId);

impl FromCells for MemberRequest {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self(member_of(cells.text()?)?, cells.request()?))
    }
}

fn member_of(id: &str) -> Result<MemberId, sqlx::Error> {
    MemberId::parse(id).ok_or_else(|| broken(format!("'{id}' is not a member's id")))
}

impl SqlStore {
    /// One look-up of the newest request for each name that a key has had.
    pub(in crate::sql) async fn last_use_of_keys(&self, keys: &[KeyId]) -> Result<Vec<(KeyId, LastUse)>, StoreError> {
        let known = self.numbers_of_keys(Some(keys)).await?;
        let newest = newest_of_names(self.dialect, NewestColumns::IdAndAddress);
        let sql = format!("SELECT names.ref, last.id, last.address FROM names {newest} WHERE names.ref");
        let numbers = LookUp::Numbers(known.keys().copied().collect());
        let rows: Vec<LastRow> = self.usage_reader.rows_with(SUMMARY, sql, numbers).await?;
        let mut last: BTreeMap<KeyId, LastUse> = BTreeMap::new();
        for LastRow { number, request, address } in rows {
            let (Some(key), at) = (known.get(&number), request.time()) else { continue };
            if last.get(key).is_none_or(|known| known.at <= at) {
                last.insert(*key, LastUse { at, address });
            }
        }
        Ok(last.into_iter().collect())
    }

    pub(in crate::sql) async fn last_requests_of_keys(
        &self,
        keys: &[KeyId],
        most: usize,
    ) -> Result<Vec<(KeyId, Timestamp)>, StoreError> {
        let known = self.numbers_of_keys(Some(keys)).await?;
        let newest = newest_of_names(self.dialect, NewestColumns::Id);
        let sql = format!("SELECT names.ref, last.id FROM names {newest} WHERE names.ref");
        let UsedLast { unread, mut requests } = self.used_last(SummaryBy::Key, &known, most).await?;
        requests.extend(self.usage_reader.rows_with(SUMMARY, sql, LookUp::Numbers(unread)).await?);
        let mut last: HashMap<KeyId, Timestamp, IdHash> = HashMap::default();
        for NumberedRequest(number, request) in requests {
            let Some(key) = known.get(&number) else { continue };
            let at = last.entry(*key).or_insert_with(|| request.time());
            *at = request.time().max(*at);
        }
        Ok(last.into_iter().collect())
    }

    /// The sums by day show which keys a member used on the last day with requests; the latest of their last requests is the
    /// member's.
    pub(in crate::sql) async fn last_requests_of_members(
        &self,
        members: &[MemberId],
        most: usize,
    ) -> Result<Vec<(MemberId, Timestamp)>, StoreError> {
        let sql = format!("SELECT ref, id FROM names WHERE kind = {} AND id", NameKind::Member.code());
        let ids = LookUp::Texts(members.iter().map(MemberId::to_string).collect());
        let known: HashMap<i64, MemberId, RandomState> = self
            .usage_reader
            .rows_with(SUMMARY, sql, ids)
            .await?
            .into_iter()
            .map(|MemberNumber(number, id)| (number, id))
            .collect();
        let sql = format!(
            "SELECT names.id, last.id FROM names \
             JOIN key_days day ON day.member = names.ref AND day.minute = (SELECT MAX(minute) FROM key_days WHERE member = names.ref) \
             {} WHERE names.ref",
            newest_request(self.dialect, NewestColumns::Id, "day.key", "day.minute"),
        );
        let UsedLast { unread, requests } = self.used_last(SummaryBy::Member, &known, most).await?;
        let read: Vec<MemberRequest> = self.usage_reader.rows_with(SUMMARY, sql, LookUp::Numbers(unread)).await?;
        let found = requests.into_iter().filter_map(|NumberedRequest(number, request)| Some((*known.get(&number)?, request)));
        let mut last: BTreeMap<MemberId, Timestamp> = BTreeMap::new();
        for (member, request) in found.chain(read.into_iter().map(|MemberRequest(member, request)| (member, request))) {
            let known = last.entry(member).or_insert_with(|| request.time());
            *known = request.time().max(*known);
        }
        Ok(last.into_iter().collect())
    }

    /// The keys or members that were used last: at least `most`, if so many were used at all.
    async fn used_last<Id: Eq + Hash, S>(
        &self,
        by: SummaryBy,
        known: &HashMap<i64, Id, S>,
        most: usize,
    ) -> Result<UsedLast, StoreError> {
        if known.len() <= most.max(MAX_LOOKUPS) {
            return Ok(UsedLast { unread: known.keys().copied().collect(), requests: Vec::new() });
        }
        // One that was renamed has several numbers, and all of them may be found.
        let most = most + known.len() - known.values().collect::<HashSet<&Id>>().len();
        let mut numbers: Numbers = known.keys().copied().collect();
        let refs = RefFilter::default();
        let query = SummaryQuery { by: by.into(), ..SummaryQuery::of_keys(self.dialect, &refs) };
        let mut used = UsedLast::default();
        let Some((begin, end)) = self.times_of_sums().await? else { return Ok(used) };
        let (mut pieces, mut gaps) = (pieces_before(begin, end), 0);
        while let Some(piece) = pieces.pop_front() {
            let sums = self.sums_of_range(&query, piece, None).await?;
            if sums.is_empty() && gaps < MAX_GAPS {
                // After a quiet time the pieces begin small again: a large one may have far more keys than are wanted.
                gaps += 1;
                let Some(end) = self.end_of_sums_before(piece.from).await? else { break };
                pieces = pieces_before(begin, end);
                continue;
            }
            let found: Vec<i64> =
                sums.into_iter().map(|((number, _), _)| number).filter(|number| numbers.contains(number)).collect();
            // The newest records of a busy time may be enough, so that not all keys of that time have to be looked up.
            if found.len() > MAX_LOOKUPS && used.unread.len() + found.len() >= most {
                let mut newest = self.newest_requests(by, piece).await?;
                // The first request of each is its last one: none of them has requests after this time.
                let mut unseen = numbers.clone();
                newest.retain(|NumberedRequest(number, _)| unseen.remove(number));
                if used.unread.len() + newest.len() >= most {
                    used.requests = newest;
                    break;
                }
            }
            used.unread.extend(found.into_iter().filter(|number| numbers.remove(number)));
            if used.unread.len() >= most {
                break;
            }
        }
        Ok(used)
    }

    /// The last requests of a time, the newest first, by their keys or members.
    async fn newest_requests(&self, by: SummaryBy, time: TimeRange) -> Result<Vec<NumberedRequest>, StoreError> {
        let column = super::column_of(by);
        let ids = [time.from.unwrap_or(0), time.to.unwrap_or(i64::MAX)].map(|at| RequestId::first_at(Timestamp(at)));
        let sql = format!("SELECT {column}, id FROM usage WHERE id >= $1 AND id < $2 ORDER BY id DESC LIMIT {MAX_READ}");
        self.usage_reader.rows(SUMMARY, sql, ids.to_vec()).await
    }

    /// From when until when there are sums, in microseconds.
    async fn times_of_sums(&self) -> Result<Option<(i64, i64)>, StoreError> {
        let (table, month) = (KEY_TOTALS.name, MONTH / MINUTE);
        let sql = format!("SELECT MIN(minute) FROM {table} WHERE width = {month}");
        let begin = self.minute_of_sums(sql).await?;
        Ok(begin.map(|minute| minute * MINUTE).zip(self.end_of_sums_before(None).await?))
    }

    /// The end of the last hour with sums that begins before a time, in microseconds; without a time, of the very last.
    async fn end_of_sums_before(&self, at: Option<i64>) -> Result<Option<i64>, StoreError> {
        let (table, hour) = (KEY_TOTALS.name, HOUR / MINUTE);
        let before = at.map_or_else(String::new, |at| format!("AND minute < {}", at / MINUTE));
        let sql = format!("SELECT MAX(minute) FROM {table} WHERE width = {hour} {before}");
        let last = self.minute_of_sums(sql).await?;
        let end = last.map(|minute| bucket_end(Timestamp(minute * MINUTE), HOUR));
        Ok(end.map(|end| at.map_or(end, |at| end.min(at))))
    }

    async fn minute_of_sums(&self, sql: String) -> Result<Option<i64>, StoreError> {
        let found: Vec<MaybeMinute> = self.usage_reader.rows(SUMMARY, sql, Vec::new()).await?;
        Ok(found.into_iter().next().and_then(|MaybeMinute(minute)| minute))
    }
}

struct MaybeMinute(Option<i64>);

impl FromCells for MaybeMinute {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self(cells.maybe()?))
    }
}

/// The time from `begin` to `end` in pieces, the last one first: five minutes of the last two hours, hours of the days before, days of the
/// months before, and months.
fn pieces_before(begin: i64, end: i64) -> VecDeque<TimeRange> {
    let mut pieces = VecDeque::new();
    let mut to = end;
    for (source, from) in [
        (SummarySource::FiveMinutes, bucket(Timestamp(end - 2 * HOUR), HOUR)),
        (SummarySource::Hours, bucket(Timestamp(end - 2 * HOUR - DAY), DAY)),
        (SummarySource::Days, bucket(Timestamp(end - 2 * HOUR - DAY - MONTH), MONTH)),
        (SummarySource::Months, begin),
    ] {
        let from = from.max(begin);
        if from < to {
            pieces.extend(growing_pieces(TimeRange { source, from: Some(from), to: Some(to), is_subtracted: false }));
            to = from;
        }
    }
    pieces
}

/// Columns of the newest request of a key. The index by key has the id alone, so that no record is read for it.
#[derive(Clone, Copy)]
enum NewestColumns {
    Id,
    IdAndAddress,
}

/// Joins the newest request of each of the `names` as `last`.
fn newest_of_names(dialect: Dialect, columns: NewestColumns) -> String {
    match dialect {
        Dialect::Sqlite => newest_request(dialect, columns, "names.ref", ""),
        Dialect::Postgres => {
            let day = "CROSS JOIN LATERAL (SELECT MAX(minute) AS minute FROM key_days WHERE key = names.ref) AS day";
            format!("{day} {}", newest_request(dialect, columns, "names.ref", "day.minute"))
        }
    }
}

/// Joins the newest request of a key as `last`. `key` is the expression of the key's number, `minute` that of the first minute of the last
/// day on which it had requests. PostgreSQL looks only at the records of that day, because it has an index by key for each day and would
/// search all of them.
fn newest_request(dialect: Dialect, columns: NewestColumns, key: &str, minute: &str) -> String {
    match dialect {
        Dialect::Sqlite => {
            let table = match columns {
                NewestColumns::Id => format!("last INDEXED BY usage_key ON last.key = {key} AND"),
                NewestColumns::IdAndAddress => "last ON".to_owned(),
            };
            format!("JOIN usage {table} last.id = (SELECT id FROM usage WHERE key = {key} ORDER BY id DESC LIMIT 1)")
        }
        Dialect::Postgres => {
            let columns = match columns {
                NewestColumns::Id => "id",
                NewestColumns::IdAndAddress => "id, address",
            };
            // The first id of a minute: the milliseconds since 1970 in 48 bits.
            let first_id = |minute: &str| format!("DECODE(LPAD(TO_HEX(CAST({minute} AS BIGINT) * 60000), 12, '0'), 'hex')");
            let (from, to) = (first_id(minute), first_id(&format!("{minute} + {}", DAY / MINUTE)));
            format!(
                "CROSS JOIN LATERAL (SELECT {columns} FROM usage WHERE key = {key} AND id >= {from} AND id < {to} \
                 ORDER BY id DESC LIMIT 1) AS last"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_time_backwards_without_gaps() {
        // 2026-01-01 to 2026-11-30T17:00:00Z.
        let (begin, end) = (1_767_225_600_000_000, 1_796_058_000_000_000);
        let pieces = pieces_before(begin, end);
        let mut reached = end;
        for piece in &pieces {
            let (from, to) = (piece.from.unwrap(), piece.to.unwrap());
            assert_eq!(to, reached, "{pieces:?}");
            assert!(from < to && bucket(Timestamp(from), piece.source.width()) == from, "{piece:?}");
            reached = from;
        }
        assert_eq!(reached, begin);
        let count = |source| pieces.iter().filter(|piece| piece.source == source).count();
        assert_eq!(
            [SummarySource::FiveMinutes, SummarySource::Hours, SummarySource::Days, SummarySource::Months].map(count),
            [5, 6, 6, 4]
        );
        assert_eq!(pieces_before(end, end), []);
    }
}
