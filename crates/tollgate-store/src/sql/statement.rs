//! Statements whose number of placeholders varies. Only fixed fragments and numbers go into the text; values are
//! always bound, in order.
//!
//! SQLite gets plain `?`: it looks numbered placeholders up one by one in a list of all, which for some hundreds of
//! them takes longer than inserting the rows.

use std::fmt::Write as _;

use sqlx::AssertSqlSafe;

use super::Dialect;

impl Dialect {
    fn placeholder(self, sql: &mut String, number: usize) {
        match self {
            Self::Sqlite => sql.push('?'),
            Self::Postgres => write!(sql, "${number}").expect("text does not fail to be written"),
        }
    }
}

/// `head`, then `count` placeholders, then `tail`.
pub(super) fn list(dialect: Dialect, head: &'static str, count: usize, tail: &'static str) -> AssertSqlSafe<String> {
    let mut sql = head.to_owned();
    for number in 1..=count {
        sql.push_str(if number == 1 { "" } else { ", " });
        dialect.placeholder(&mut sql, number);
    }
    sql.push_str(tail);
    AssertSqlSafe(sql)
}

/// `head`, then `rows` times `(…)` of `columns` placeholders each, then `tail`.
pub(super) fn values(dialect: Dialect, head: &str, rows: usize, columns: usize, tail: &'static str) -> AssertSqlSafe<String> {
    let mut sql = String::with_capacity(head.len() + rows * (columns * 8 + 4) + tail.len());
    sql.push_str(head);
    for row in 0..rows {
        sql.push_str(if row == 0 { " (" } else { ", (" });
        for column in 1..=columns {
            sql.push_str(if column == 1 { "" } else { ", " });
            dialect.placeholder(&mut sql, row * columns + column);
        }
        sql.push(')');
    }
    sql.push_str(tail);
    AssertSqlSafe(sql)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_in_order_and_numbered_where_they_must_be() {
        assert_eq!(list(Dialect::Postgres, "IN (", 3, ")").0, "IN ($1, $2, $3)");
        assert_eq!(list(Dialect::Sqlite, "IN (", 2, ")").0, "IN (?, ?)");
        assert_eq!(values(Dialect::Postgres, "VALUES", 2, 2, " END").0, "VALUES ($1, $2), ($3, $4) END");
        assert_eq!(values(Dialect::Sqlite, "VALUES", 2, 1, "").0, "VALUES (?), (?)");
    }
}
