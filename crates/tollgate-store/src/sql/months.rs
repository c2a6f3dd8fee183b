//! PostgreSQL: usage records by month of their arrival. Months are made ahead of time; a record of a month that has no
//! partition is kept all the same and moves when the month gets one.

use sqlx::{AnyConnection, Row as _};
use tollgate_core::Timestamp;

use super::{Dialect, SqlStore};
use crate::StoreError;

const MAKE: &str = "make room for the coming months";
/// Months that are made ahead, this one not counted.
const AHEAD: i64 = 2;

/// Makes a month: its name in the schema, where it begins, where the next one does.
pub(super) const MAKE_MONTH: &str = "SELECT tollgate_usage_month($1, $2, $3)";

/// A month's name in the schema, where it begins and where the next one does; counted as [`Timestamp::month`] does.
pub(super) fn bounds(month: i64) -> (String, i64, i64) {
    let name = format!("{:04}_{:02}", month.div_euclid(12), month.rem_euclid(12) + 1);
    (name, Timestamp::of_month(month).0, Timestamp::of_month(month + 1).0)
}

impl SqlStore {
    /// Makes this month and the coming ones, where the database keeps months apart. How many were new.
    pub(super) async fn make_months(&self, now: Timestamp) -> Result<u64, StoreError> {
        if self.dialect == Dialect::Sqlite {
            return Ok(0);
        }
        let mut transaction = self.begin(MAKE).await?;
        let mut made = 0;
        for month in now.month()..=now.month() + AHEAD {
            made += self.make_month(&mut transaction, month).await?;
        }
        self.commit(MAKE, transaction).await?;
        Ok(made)
    }

    async fn make_month(&self, connection: &mut AnyConnection, month: i64) -> Result<u64, StoreError> {
        let failed = |error| self.failed(MAKE, error);
        let (name, first, next) = bounds(month);
        let row = sqlx::query(MAKE_MONTH).bind(name).bind(first).bind(next).fetch_one(connection).await.map_err(failed)?;
        let made: i64 = row.try_get(0).map_err(failed)?;
        Ok(u64::try_from(made).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::NOON;

    #[test]
    fn a_month_ends_where_the_next_begins() {
        let (name, first, next) = bounds(NOON.month() + 1);
        assert_eq!((name.as_str(), Timestamp(first).to_string().as_str()), ("2026_12", "2026-12-01T00:00:00Z"));
        assert_eq!(bounds(NOON.month() + 2), ("2027_01".to_owned(), next, Timestamp::of_month(NOON.month() + 3).0));
    }
}
