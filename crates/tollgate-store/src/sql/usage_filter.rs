//! Conditions on the usage log's tables. They are made of fixed fragments and numbers; ids of requests are bound, and texts are
//! hexadecimal digits.

use std::fmt::{self, Write as _};

use sqlx::Row as _;
use tollgate_core::{AttemptResult, MemberId, Outcome, RequestId, Timestamp};
use tollgate_protocol::Method;

use super::{
    cells::{Cells, FromCells},
    codes::Coded,
    names::NameKind,
    rows::AnyQuery,
    store::SqlStore,
    sum_tables::{ACCOUNT_SUMS, KEY_SUMS, SumTable, TAG_SUMS, USAGE_SUMS},
    tags::{self, OTHER_VALUES},
    usage_reader::LookUp,
    usage_rows,
};
use crate::{RecordConditions, StoreError, TagCondition, UsageFilter, attempts::REJECTED, usage::FAILED_OUTCOMES};

/// A filter with the numbers of its texts: one for each name that a row had. Its columns have the same names in all tables.
#[derive(Clone, Debug, Default)]
pub(super) struct RefFilter {
    pub(super) keys: Option<Vec<i64>>,
    pub(super) members: Option<Vec<i64>>,
    pub(super) groups: Option<Vec<i64>>,
    pub(super) models: Option<Vec<i64>>,
    pub(super) channels: Option<Vec<i64>>,
    pub(super) accounts: Option<Vec<i64>>,
    pub(super) reasons: Option<Vec<i64>>,
    pub(super) protocol: Option<i64>,
    /// The outcomes in the order of their numbers; never all of them.
    pub(super) outcomes: Option<Vec<i64>>,
    pub(super) tags: Vec<TagFilter>,
    pub(super) conditions: RecordConditions,
    /// The conditions on texts of records, each beginning with ` AND `.
    pub(super) texts: String,
}

/// A tag that records must have, with the numbers of its name and its value in the dictionary, if it has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct TagFilter {
    pub(super) tag: Option<i64>,
    pub(super) value: Option<i64>,
}

impl TagFilter {
    /// Selects the sums of requests that may have the tag: sums of its value, of values without separate sums, and of names without sums.
    fn sql_of_times(self) -> String {
        let Some(tag) = self.tag else { return " AND tag = 0".to_owned() };
        let values: Vec<i64> = self.value.into_iter().chain([OTHER_VALUES]).collect();
        format!(" AND (tag = 0 OR (tag = {tag} AND value IN ({})))", list(&values))
    }
}

impl RefFilter {
    /// True if the usage log lacks a text of the filter, so that no record can match.
    pub(super) fn selects_nothing(&self) -> bool {
        self.lists().iter().any(|(_, numbers)| numbers.is_some_and(<[i64]>::is_empty))
    }

    /// The columns that are compared with several numbers: of the dictionary, and of outcomes.
    fn lists(&self) -> [(&'static str, Option<&[i64]>); 8] {
        [
            ("key", self.keys.as_deref()),
            ("member", self.members.as_deref()),
            ("grp", self.groups.as_deref()),
            ("model", self.models.as_deref()),
            ("channel", self.channels.as_deref()),
            ("account", self.accounts.as_deref()),
            ("reason", self.reasons.as_deref()),
            ("outcome", self.outcomes.as_deref()),
        ]
    }

    /// The columns that it compares, besides tags.
    pub(super) fn columns(&self) -> impl Iterator<Item = &'static str> {
        let protocol = self.protocol.map(|_| "protocol_in");
        self.lists().into_iter().filter(|(_, numbers)| numbers.is_some()).map(|(column, _)| column).chain(protocol)
    }

    /// Whether the filter names keys or members.
    pub(super) const fn is_of_keys(&self) -> bool {
        self.keys.is_some() || self.members.is_some()
    }

    /// Whether the filter names only keys, members and outcomes.
    pub(super) fn is_of_callers_and_outcomes(&self) -> bool {
        let is_known = |column: &str| ["key", "member", "outcome"].contains(&column);
        self.columns().all(is_known) && self.tags.is_empty() && self.conditions.is_empty()
    }

    /// The table of sums that shows the times with matches: all of them, and others if it lacks a column of the filter.
    pub(super) fn times_table(&self) -> &'static SumTable {
        match (self.is_of_keys(), self.tags.is_empty()) {
            (true, _) => &KEY_SUMS,
            (false, _) if self.accounts.is_some() => &ACCOUNT_SUMS,
            (false, false) => &TAG_SUMS,
            (false, true) => &USAGE_SUMS,
        }
    }

    /// Conditions on a table of sums for the times that may have matches, each beginning with ` AND `.
    pub(super) fn sql_of_times(&self, table: &SumTable) -> String {
        let tag = self.tags.first().filter(|_| table.has("tag")).map(|tag| tag.sql_of_times());
        self.sql_of_columns(table) + &tag.unwrap_or_default()
    }

    /// The indexes of the packed table's dimensions that the filter compares, each with the permitted numbers. Tags are left out.
    pub(super) fn conditions_on_cells(&self, table: &SumTable) -> Vec<(usize, Vec<i64>)> {
        let protocol = self.protocol.map(|protocol| ("protocol_in", vec![protocol]));
        let lists = self.lists().into_iter().filter_map(|(column, numbers)| Some((column, numbers?.to_vec())));
        lists.chain(protocol).filter_map(|(column, numbers)| Some((table.dimension_index(column)?, numbers))).collect()
    }

    /// The condition of the only tag on a table of sums, beginning with ` AND `.
    pub(super) fn sql_of_tag(&self, table: &SumTable) -> String {
        match self.tags.as_slice() {
            [TagFilter { tag: Some(tag), value: Some(value) }] if table.has("tag") => {
                format!(" AND tag = {tag} AND value = {value}")
            }
            _ => String::new(),
        }
    }

    /// Conditions on the columns of a table of sums, besides tags, each beginning with ` AND `.
    pub(super) fn sql_of_columns(&self, table: &SumTable) -> String {
        let mut sql = String::new();
        for (column, numbers) in self.lists().into_iter().filter(|(column, _)| table.has(column)) {
            push_list(&mut sql, column, numbers);
        }
        self.push_protocol(&mut sql, |column| table.has(column));
        sql
    }

    /// Conditions on records, each beginning with ` AND `.
    pub(super) fn sql(&self) -> String {
        let mut sql = String::new();
        for (column, numbers) in self.lists() {
            push_list(&mut sql, column, numbers);
        }
        if self.indexed_outcomes().is_some() {
            // Repeats the condition of the partial index `usage_failed`, so that the databases use it.
            push(&mut sql, format_args!(" AND outcome <> {COMPLETED}"));
        }
        self.push_protocol(&mut sql, |_| true);
        let RecordConditions { status, stream, min_sale, min_cost, min_tokens, min_ttft_us, min_duration_us, .. } =
            &self.conditions;
        let least = [
            ("sale", min_sale.map(|sale| sale.0)),
            ("cost", min_cost.map(|cost| cost.0)),
            (ALL_TOKENS, min_tokens.map(saturated)),
            ("ttft_us", min_ttft_us.map(saturated)),
            ("duration_us", min_duration_us.map(saturated)),
            ("status", status.map(|(first, _)| i64::from(first))),
        ];
        for (value, least) in least {
            if let Some(least) = least {
                push(&mut sql, format_args!(" AND {value} >= {least}"));
            }
        }
        if let Some((_, last)) = status {
            push(&mut sql, format_args!(" AND status <= {last}"));
        }
        if let Some(stream) = stream {
            push(&mut sql, format_args!(" AND stream = {}", i64::from(*stream)));
        }
        if let Some(finish) = self.conditions.finish {
            push(&mut sql, format_args!(" AND finish = {}", finish.code()));
        }
        if let Some(failed_over) = self.conditions.failed_over {
            push(&mut sql, format_args!(" AND attempts {} 1", if failed_over { ">" } else { "<=" }));
        }
        if let Some(empty) = self.conditions.empty {
            push(&mut sql, format_args!(" AND {}({})", if empty { "" } else { "NOT " }, empty_answer()));
        }
        sql.push_str(&self.texts);
        sql
    }

    /// The outcomes, if each has its records in an index: all but completed ones.
    pub(super) fn indexed_outcomes(&self) -> Option<&[i64]> {
        self.outcomes.as_deref().filter(|outcomes| !outcomes.contains(&COMPLETED))
    }

    fn push_protocol(&self, sql: &mut String, has: impl Fn(&str) -> bool) {
        if let Some(protocol) = self.protocol.filter(|_| has("protocol_in")) {
            push(sql, format_args!(" AND protocol_in = {protocol}"));
        }
    }
}

/// The number of completed requests, which are not in the index `usage_failed`.
const COMPLETED: i64 = 0;
/// The tokens of all kinds of a record.
const ALL_TOKENS: &str = "(tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio + tokens_output + \
     tokens_thinking)";

/// The condition of [`tollgate_core::UsageRecord::is_empty_answer`] in SQL.
fn empty_answer() -> String {
    let methods = list(&[Method::Chat, Method::Generate, Method::StreamGenerate].map(Coded::code));
    format!(
        "outcome = {} AND method IN ({methods}) AND tokens_output = 0 AND tokens_image = 0 AND tokens_audio = 0",
        Outcome::Completed.code()
    )
}

/// The numbers of outcomes, each once; `None` if any will do.
fn outcomes(wanted: &[Outcome]) -> Option<Vec<i64>> {
    let numbers: Vec<i64> = Outcome::ALL.iter().filter(|outcome| wanted.contains(outcome)).map(|outcome| outcome.code()).collect();
    Some(numbers).filter(|numbers| !numbers.is_empty() && numbers.len() < Outcome::ALL.len())
}

fn saturated(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn push_list(sql: &mut String, column: &str, numbers: Option<&[i64]>) {
    match numbers {
        None => {}
        Some([number]) => push(sql, format_args!(" AND {column} = {number}")),
        Some(numbers) => push(sql, format_args!(" AND {column} IN ({})", list(numbers))),
    }
}

pub(super) fn push(sql: &mut String, more: fmt::Arguments<'_>) {
    sql.write_fmt(more).expect("writing to a String cannot fail");
}

pub(super) fn list(numbers: &[i64]) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

/// A range of arrival times, as ids: `[from, to)` in microseconds, both optional.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ArrivalRange {
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
}

impl ArrivalRange {
    /// Conditions, each beginning with ` AND `, and the ids to bind from `$first` on.
    pub(super) fn sql(self, first: usize) -> (String, Vec<RequestId>) {
        let (mut sql, mut ids) = (String::new(), Vec::new());
        let mut bound = |at: i64| {
            ids.push(RequestId::first_at(Timestamp(at)));
            first + ids.len() - 1
        };
        if let Some(from) = self.from {
            write!(sql, " AND id >= ${}", bound(from)).expect("writing to a String cannot fail");
            let within = from.rem_euclid(1_000);
            if within > 0 {
                write!(sql, " AND (at_us >= {within} OR id >= ${})", bound(from + 1_000)).expect("writing to a String cannot fail");
            }
        }
        if let Some(to) = self.to {
            let within = to.rem_euclid(1_000);
            if within == 0 {
                write!(sql, " AND id < ${}", bound(to)).expect("writing to a String cannot fail");
            } else {
                write!(sql, " AND id < ${} AND (at_us < {within} OR id < ${})", bound(to + 1_000), bound(to))
                    .expect("writing to a String cannot fail");
            }
        }
        (sql, ids)
    }
}

pub(super) fn bind_ids<'q>(query: AnyQuery<'q>, ids: &[RequestId]) -> AnyQuery<'q> {
    ids.iter().fold(query, |query, id| query.bind(id.uuid().as_bytes().to_vec()))
}

/// The number of a text in the dictionary.
struct NameNumber(i64);

impl FromCells for NameNumber {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        cells.number().map(Self)
    }
}

impl SqlStore {
    pub(super) async fn ref_filter(&self, operation: &'static str, filter: &UsageFilter) -> Result<RefFilter, StoreError> {
        let id = async |kind: NameKind, id: Option<String>| match id {
            Some(id) => self.refs_of(operation, kind, "id", &id).await.map(Some),
            None => Ok(None),
        };
        let name = async |kind: NameKind, name: Option<&String>| match name {
            Some(name) => self.refs_of(operation, kind, "id = '' AND name", name).await.map(Some),
            None => Ok(None),
        };
        let mut tags = Vec::new();
        let mut texts = self.text_conditions(&filter.conditions);
        self.push_tried(operation, &filter.conditions, &mut texts).await?;
        for TagCondition { name, value } in &filter.tags {
            let tag = self.refs_of(operation, NameKind::TagName, "id = '' AND name", name.as_str()).await?.first().copied();
            let number = self.refs_of(operation, NameKind::TagValue, "id = '' AND name", value).await?.first().copied();
            let lines = tags::lines((name.as_str(), value), tag, number);
            let has_line = lines.iter().map(|line| self.dialect.contains("tags", line)).collect::<Vec<_>>().join(" OR ");
            push(&mut texts, format_args!(" AND ({has_line})"));
            tags.push(TagFilter { tag, value: number });
        }
        Ok(RefFilter {
            keys: id(NameKind::Key, filter.key.map(|id| id.to_string())).await?,
            members: self.refs_of_members(operation, filter).await?,
            groups: id(NameKind::Group, filter.group.map(|id| id.to_string())).await?,
            models: name(NameKind::Model, filter.model.as_ref()).await?,
            channels: id(NameKind::Channel, filter.channel.map(|id| id.to_string())).await?,
            accounts: id(NameKind::Account, filter.account.map(|id| id.to_string())).await?,
            reasons: name(NameKind::Code, filter.reason.as_ref()).await?,
            protocol: filter.protocol.map(Coded::code),
            outcomes: outcomes(&filter.outcomes),
            tags,
            conditions: filter.conditions.clone(),
            texts,
        })
    }

    /// The numbers of the filter's `member`, and of its `members`.
    async fn refs_of_members(&self, operation: &'static str, filter: &UsageFilter) -> Result<Option<Vec<i64>>, StoreError> {
        let ids: Vec<String> = match filter.member {
            Some(member) if filter.members.is_empty() || filter.members.contains(&member) => vec![member.to_string()],
            Some(_) => Vec::new(),
            None if filter.members.is_empty() => return Ok(None),
            None => filter.members.iter().map(MemberId::to_string).collect(),
        };
        let sql = format!("SELECT ref FROM names WHERE kind = {} AND id", NameKind::Member.code());
        let numbers: Vec<NameNumber> = self.usage_reader.rows_with(operation, sql, LookUp::Texts(ids)).await?;
        Ok(Some(numbers.into_iter().map(|NameNumber(number)| number).collect()))
    }

    fn text_conditions(&self, conditions: &RecordConditions) -> String {
        let texts = [("client_request_id", &conditions.client_request_id), ("address", &conditions.address)];
        let condition = |(column, text): (&str, &Option<String>)| {
            text.as_ref().map(|text| format!(" AND {column} = {}", self.dialect.text(&text.replace('\0', "\u{fffd}"))))
        };
        let mut sql: String = texts.into_iter().filter_map(condition).collect();
        if let Some(model) = &conditions.unknown_model {
            let begin = usage_rows::begin_of_extra(model);
            push(&mut sql, format_args!(" AND model IS NULL AND {}", self.dialect.contains("extra", &begin)));
        }
        sql
    }

    /// The conditions that a request tried a channel or an account. The row of a request names one attempt. Further attempts have
    /// separate rows, which are searched only for requests with several attempts.
    async fn push_tried(&self, operation: &'static str, conditions: &RecordConditions, sql: &mut String) -> Result<(), StoreError> {
        let RecordConditions { tried_channel, tried_account, tried_failed, .. } = conditions;
        let (mut of_record, mut of_other) = (String::new(), String::new());
        if *tried_failed {
            let results = [AttemptResult::Answered, AttemptResult::Cancelled].map(Coded::code);
            push(&mut of_record, format_args!(" AND outcome IN ({})", list(&FAILED_OUTCOMES.map(Coded::code))));
            push(&mut of_other, format_args!(" AND tried.result NOT IN ({})", list(&results)));
            let rejected = self.refs_of(operation, NameKind::Code, "id = '' AND name", REJECTED).await?;
            if !rejected.is_empty() {
                push(&mut of_record, format_args!(" AND COALESCE(reason, 0) NOT IN ({})", list(&rejected)));
                push(&mut of_other, format_args!(" AND COALESCE(tried.error, 0) NOT IN ({})", list(&rejected)));
            }
        }
        let tried = [
            ("channel", NameKind::Channel, tried_channel.map(|id| id.to_string())),
            ("account", NameKind::Account, tried_account.map(|id| id.to_string())),
        ];
        for (column, kind, id) in tried {
            let Some(id) = id else { continue };
            let refs = self.refs_of(operation, kind, "id", &id).await?;
            let refs = if refs.is_empty() { "NULL".to_owned() } else { list(&refs) };
            push(
                sql,
                format_args!(
                    " AND (({column} IN ({refs}){of_record}) OR (attempts > 1 AND EXISTS (SELECT 1 FROM attempts AS tried \
                     WHERE tried.request = usage.id AND tried.{column} IN ({refs}){of_other})))"
                ),
            );
        }
        Ok(())
    }

    pub(super) async fn refs_of(
        &self,
        operation: &'static str,
        kind: NameKind,
        column: &'static str,
        value: &str,
    ) -> Result<Vec<i64>, StoreError> {
        let sql = format!("SELECT ref FROM names WHERE kind = {} AND {column} = $1", kind.code());
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(value.replace('\0', "\u{fffd}"));
        self.fetch_as(operation, query, |row| row.try_get(0)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_compared_once_each_and_all_of_them_add_no_condition() {
        let sql = |wanted: &[Outcome]| RefFilter { outcomes: outcomes(wanted), ..RefFilter::default() }.sql();
        assert_eq!(sql(&[Outcome::Completed]), " AND outcome = 0");
        assert_eq!(sql(&[Outcome::Refused, Outcome::CallerLeft, Outcome::Refused]), " AND outcome IN (1, 3) AND outcome <> 0");
        assert_eq!(sql(&[Outcome::Refused, Outcome::Completed]), " AND outcome IN (0, 3)");
        assert_eq!((sql(&[]), sql(Outcome::ALL)), (String::new(), String::new()));
        let indexed = |wanted: &[Outcome]| {
            RefFilter { outcomes: outcomes(wanted), ..RefFilter::default() }.indexed_outcomes().map(<[i64]>::to_vec)
        };
        assert_eq!(indexed(&[Outcome::GatewayStopped, Outcome::CallerLeft]), Some(vec![1, 4]));
        assert_eq!((indexed(&[]), indexed(&[Outcome::Refused, Outcome::Completed])), (None, None));
    }

    #[test]
    fn range_ends_within_a_millisecond_are_compared_in_microseconds() {
        let at = |ms: i64, us: i64| Some(ms * 1_000 + us);
        let id = |ms: i64| RequestId::first_at(Timestamp(ms * 1_000));
        let whole = ArrivalRange { from: at(5, 0), to: at(7, 0) };
        assert_eq!(whole.sql(1), (" AND id >= $1 AND id < $2".to_owned(), vec![id(5), id(7)]));
        let within = ArrivalRange { from: at(5, 3), to: at(7, 4) };
        let sql = " AND id >= $2 AND (at_us >= 3 OR id >= $3) AND id < $4 AND (at_us < 4 OR id < $5)";
        assert_eq!(within.sql(2), (sql.to_owned(), vec![id(5), id(6), id(8), id(7)]));
    }
}
