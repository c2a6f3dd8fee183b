//! Statements whose number of placeholders varies. Only fixed fragments and numbers go into the text; values are
//! always bound.

use std::fmt::Write as _;

use sqlx::AssertSqlSafe;

/// `head`, then `$1, $2, …`, then `tail`.
pub(super) fn list(head: &'static str, count: usize, tail: &'static str) -> AssertSqlSafe<String> {
    let mut sql = head.to_owned();
    for number in 1..=count {
        let comma = if number == 1 { "" } else { ", " };
        write!(sql, "{comma}${number}").expect("text does not fail to be written");
    }
    sql.push_str(tail);
    AssertSqlSafe(sql)
}

/// `head`, then `rows` times `($1, …)` of `columns` placeholders each, then `tail`.
pub(super) fn values(head: &str, rows: usize, columns: usize, tail: &'static str) -> AssertSqlSafe<String> {
    let mut sql = head.to_owned();
    for row in 0..rows {
        sql.push_str(if row == 0 { " (" } else { ", (" });
        for column in 1..=columns {
            let comma = if column == 1 { "" } else { ", " };
            write!(sql, "{comma}${}", row * columns + column).expect("text does not fail to be written");
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
    fn placeholders_are_numbered_through() {
        assert_eq!(list("IN (", 3, ")").0, "IN ($1, $2, $3)");
        assert_eq!(values("VALUES", 2, 2, " END").0, "VALUES ($1, $2), ($3, $4) END");
    }
}
