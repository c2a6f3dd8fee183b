//! The SQL databases the store supports, and statements with a variable number of placeholders. Their text consists of fixed
//! fragments and numbers only; values are bound.
//!
//! SQLite gets plain `?` placeholders: it looks numbered ones up in a list, which takes longer than inserting the rows when there
//! are hundreds.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};

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

    /// The minute since 1970 in which the request with the id of the row arrived: the id begins with the millisecond, in 48 bits.
    pub(super) fn arrival_minute(self) -> String {
        match self {
            Self::Sqlite => {
                let digit = |place: usize| {
                    format!("((instr('0123456789ABCDEF', substr(hex(id), {}, 1)) - 1) << {})", place + 1, 44 - 4 * place)
                };
                format!("(({}) / 60000)", (0..12).map(digit).collect::<Vec<_>>().join(" + "))
            }
            Self::Postgres => {
                "(CAST(CAST('x' || encode(substring(id FROM 1 FOR 6), 'hex') AS BIT(48)) AS BIGINT) / 60000)".to_owned()
            }
        }
    }

    /// A text as an expression of hexadecimal digits, which need no escaping.
    pub(super) fn text(self, text: &str) -> String {
        let digits = hex::encode(text);
        match self {
            Self::Sqlite => format!("CAST(X'{digits}' AS TEXT)"),
            Self::Postgres => format!("convert_from(decode('{digits}', 'hex'), 'UTF8')"),
        }
    }

    /// Whether a column has a text in it; a condition.
    pub(super) fn contains(self, column: &str, text: &str) -> String {
        let text = self.text(text);
        match self {
            Self::Sqlite => format!("instr({column}, {text}) > 0"),
            Self::Postgres => format!("strpos({column}, {text}) > 0"),
        }
    }

    /// The number behind a text in a column that has it, up to the end of the line.
    pub(super) fn number_behind(self, column: &str, text: &str) -> String {
        let (quoted, length) = (self.text(text), text.chars().count());
        match self {
            // Reads digits as far as there are any.
            Self::Sqlite => format!("CAST(substr({column}, instr({column}, {quoted}) + {length}, 20) AS INTEGER)"),
            Self::Postgres => format!("CAST(split_part(split_part({column}, {quoted}, 2), chr(10), 1) AS BIGINT)"),
        }
    }

    /// Expressions that are numbers, never NULL, as one text, separated by commas.
    pub(super) fn joined_numbers(self, expressions: &[&str]) -> String {
        let list = expressions.join(", ");
        match self {
            Self::Sqlite => format!("printf('{}', {list})", vec!["%d"; expressions.len()].join(",")),
            Self::Postgres => format!("concat_ws(',', {list})"),
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

/// Reads the text of [`Dialect::joined_numbers`] in the first column of a row: each call returns the next number.
pub(super) fn read_joined_numbers(row: &AnyRow) -> Result<impl FnMut() -> Result<i64, sqlx::Error>, sqlx::Error> {
    let text: &str = row.try_get(0)?;
    let mut numbers = text.split(',').map(str::parse::<i64>);
    Ok(move || match numbers.next() {
        Some(Ok(number)) => Ok(number),
        Some(Err(error)) => Err(sqlx::Error::Decode(error.into())),
        None => Err(sqlx::Error::Decode("the sums have too few numbers".into())),
    })
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
