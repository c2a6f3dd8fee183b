//! PostgreSQL: partitions of the usage table, one per UTC month of arrival. Partitions are created ahead of time. A record of a
//! month without one goes to the default partition and moves when the month's partition is created.

use sqlx::{AnyConnection, Row as _};
use tollgate_core::Timestamp;

use super::{dialect::Dialect, store::SqlStore};
use crate::StoreError;

const CREATE: &str = "create partitions for the coming months";
/// Months that get a partition in advance, not counting the current one.
const MONTHS_AHEAD: i64 = 2;

/// Creates a partition. Binds: the values of [`bounds`].
pub(super) const CREATE_PARTITION: &str = "SELECT tollgate_usage_month($1, $2, $3)";

/// The suffix of a month's partition and the bounds `[first, next)` in microseconds. Months count as in [`Timestamp::month`].
pub(super) fn bounds(month: i64) -> (String, i64, i64) {
    let name = format!("{:04}_{:02}", month.div_euclid(12), month.rem_euclid(12) + 1);
    (name, Timestamp::of_month(month).0, Timestamp::of_month(month + 1).0)
}

impl SqlStore {
    /// Creates the partitions of this month and the coming ones. Returns how many are new; 0 on SQLite.
    pub(super) async fn create_month_partitions(&self, now: Timestamp) -> Result<u64, StoreError> {
        if self.dialect == Dialect::Sqlite {
            return Ok(0);
        }
        let mut transaction = self.begin(CREATE).await?;
        let mut created = 0;
        for month in now.month()..=now.month() + MONTHS_AHEAD {
            created += self.create_partition(&mut transaction, month).await?;
        }
        self.commit(CREATE, transaction).await?;
        Ok(created)
    }

    async fn create_partition(&self, connection: &mut AnyConnection, month: i64) -> Result<u64, StoreError> {
        let failed = |error| self.failed(CREATE, error);
        let (name, first, next) = bounds(month);
        let query = sqlx::query(CREATE_PARTITION).bind(name).bind(first).bind(next);
        let row = query.fetch_one(connection).await.map_err(failed)?;
        let created: i64 = row.try_get(0).map_err(failed)?;
        Ok(u64::try_from(created).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::NOON;

    #[test]
    fn month_ends_where_the_next_one_begins() {
        let (name, first, next) = bounds(NOON.month() + 1);
        assert_eq!((name.as_str(), Timestamp(first).to_string().as_str()), ("2026_12", "2026-12-01T00:00:00Z"));
        assert_eq!(bounds(NOON.month() + 2), ("2027_01".to_owned(), next, Timestamp::of_month(NOON.month() + 3).0));
    }
}
