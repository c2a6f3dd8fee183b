//! The SQL databases the store supports.

/// The database behind sqlx's `Any` driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}
