//! Conditions on the usage log's tables. They are made of fixed fragments and numbers; ids of requests are bound.

use std::fmt::Write as _;

use sqlx::Row as _;
use tollgate_core::{RequestId, Timestamp};

use super::{codes::Coded, names::NameKind, rows::AnyQuery, store::SqlStore};
use crate::{StoreError, UsageFilter};

/// A filter with the numbers of its texts: one for each name that a row had. Its columns have the same names in all tables.
#[derive(Clone, Debug, Default)]
pub(super) struct RefFilter {
    pub(super) keys: Option<Vec<i64>>,
    pub(super) members: Option<Vec<i64>>,
    pub(super) groups: Option<Vec<i64>>,
    pub(super) models: Option<Vec<i64>>,
    pub(super) outcome: Option<i64>,
}

impl RefFilter {
    /// True if the usage log has no text that the filter asks for.
    pub(super) fn selects_nothing(&self) -> bool {
        [&self.keys, &self.members, &self.groups, &self.models].into_iter().flatten().any(Vec::is_empty)
    }

    /// Whether only the sums of each key can be narrowed by it.
    pub(super) const fn is_of_keys(&self) -> bool {
        self.keys.is_some() || self.members.is_some()
    }

    /// Conditions, each beginning with ` AND `.
    pub(super) fn sql(&self) -> String {
        let mut sql = String::new();
        let lists = [("key", &self.keys), ("member", &self.members), ("grp", &self.groups), ("model", &self.models)];
        for (column, numbers) in lists {
            match numbers.as_deref() {
                None => {}
                Some([number]) => write!(sql, " AND {column} = {number}").expect("writing to a String cannot fail"),
                Some(numbers) => write!(sql, " AND {column} IN ({})", list(numbers)).expect("writing to a String cannot fail"),
            }
        }
        if let Some(outcome) = self.outcome {
            // Repeats the condition of the partial index `usage_failed`, so that the databases use it.
            let failed = if outcome == 0 { "" } else { " AND outcome <> 0" };
            write!(sql, "{failed} AND outcome = {outcome}").expect("writing to a String cannot fail");
        }
        sql
    }
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

impl SqlStore {
    pub(super) async fn ref_filter(&self, operation: &'static str, filter: &UsageFilter) -> Result<RefFilter, StoreError> {
        let id = async |kind: NameKind, id: Option<String>| match id {
            Some(id) => self.refs_of(operation, kind, "id", &id).await.map(Some),
            None => Ok(None),
        };
        Ok(RefFilter {
            keys: id(NameKind::Key, filter.key.map(|id| id.to_string())).await?,
            members: id(NameKind::Member, filter.member.map(|id| id.to_string())).await?,
            groups: id(NameKind::Group, filter.group.map(|id| id.to_string())).await?,
            models: match &filter.model {
                Some(model) => Some(self.refs_of(operation, NameKind::Model, "id = '' AND name", model).await?),
                None => None,
            },
            outcome: filter.outcome.map(Coded::code),
        })
    }

    async fn refs_of(
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
    fn ends_within_a_millisecond_are_compared_by_microseconds() {
        let at = |ms: i64, us: i64| Some(ms * 1_000 + us);
        let id = |ms: i64| RequestId::first_at(Timestamp(ms * 1_000));
        let whole = ArrivalRange { from: at(5, 0), to: at(7, 0) };
        assert_eq!(whole.sql(1), (" AND id >= $1 AND id < $2".to_owned(), vec![id(5), id(7)]));
        let within = ArrivalRange { from: at(5, 3), to: at(7, 4) };
        let sql = " AND id >= $2 AND (at_us >= 3 OR id >= $3) AND id < $4 AND (at_us < 4 OR id < $5)";
        assert_eq!(within.sql(2), (sql.to_owned(), vec![id(5), id(6), id(8), id(7)]));
    }
}
