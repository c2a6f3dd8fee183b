//! The SQL databases the store supports, and statements with a variable number of placeholders. Their text consists of fixed
//! fragments and numbers only; values are bound.
//!
//! SQLite gets plain `?` placeholders: it looks numbered ones up in a list, which takes longer than inserting the rows when there
//! are hundreds.

use std::fmt::Write as _;

use sqlx::AssertSqlSafe;

/// The database behind sqlx's `Any` driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    fn placeholder(self, sql: &mut String, number: usize) {
        match self {
            Self::Sqlite => sql.push('?'),
            Self::Postgres => write!(sql, "${number}").expect("writing to a String cannot fail"),
        }
    }

    /// An aggregate: the bytes of a column in hexadecimal digits, row after row, separated by commas.
    pub(super) fn hex_list(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("group_concat(hex({column}))"),
            Self::Postgres => format!("string_agg(encode({column}, 'hex'), ',')"),
        }
    }

    /// `head`, `count` placeholders separated by commas, and `tail`.
    pub(super) fn list(self, head: &str, count: usize, tail: &str) -> AssertSqlSafe<String> {
        let mut sql = head.to_owned();
        for number in 1..=count {
            sql.push_str(if number == 1 { "" } else { ", " });
            self.placeholder(&mut sql, number);
        }
        sql.push_str(tail);
        AssertSqlSafe(sql)
    }

    /// `head`, `rows` parenthesised lists of `columns` placeholders each, and `tail`.
    pub(super) fn values(self, head: &str, rows: usize, columns: usize, tail: &'static str) -> AssertSqlSafe<String> {
        let mut sql = String::with_capacity(head.len() + rows * (columns * 8 + 4) + tail.len());
        sql.push_str(head);
        for row in 0..rows {
            sql.push_str(if row == 0 { " (" } else { ", (" });
            for column in 1..=columns {
                sql.push_str(if column == 1 { "" } else { ", " });
                self.placeholder(&mut sql, row * columns + column);
            }
            sql.push(')');
        }
        sql.push_str(tail);
        AssertSqlSafe(sql)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_numbered_on_postgres_only() {
        assert_eq!(Dialect::Postgres.list("IN (", 3, ")").0, "IN ($1, $2, $3)");
        assert_eq!(Dialect::Sqlite.list("IN (", 2, ")").0, "IN (?, ?)");
        assert_eq!(Dialect::Postgres.values("VALUES", 2, 2, " END").0, "VALUES ($1, $2), ($3, $4) END");
        assert_eq!(Dialect::Sqlite.values("VALUES", 2, 1, "").0, "VALUES (?), (?)");
    }
}
