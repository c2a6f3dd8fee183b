//! Rows to insert into a table. Values are stored one after the other and texts share one buffer, so that a row of thirty columns
//! needs no allocation of its own.

use std::{
    fmt::{Display, Write as _},
    io::Write as _,
};

use crate::sql::columns::{Column, column_list};

#[derive(Debug)]
pub(super) struct TargetTable {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column],
    pub(super) on_conflict: OnConflict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnConflict {
    /// The statement fails.
    Fail,
    /// The new numbers are added to the existing ones; bytes are replaced. The first `key` columns are the key.
    Add { key: usize },
    /// The new values replace the existing ones. The first `key` columns are the key.
    Replace { key: usize },
}

impl TargetTable {
    pub(super) fn insert(&self, source: &str) -> String {
        let mut sql = format!("INSERT INTO {} ({}) {source}", self.name, column_list(self.columns));
        let (key, adds) = match self.on_conflict {
            OnConflict::Fail => return sql,
            OnConflict::Add { key } => (key, true),
            OnConflict::Replace { key } => (key, false),
        };
        let keys = column_list(&self.columns[..key]);
        write!(sql, " ON CONFLICT ({keys}) DO UPDATE SET ").expect("writing to a String cannot fail");
        for (at, Column { name, kind }) in self.columns[key..].iter().enumerate() {
            sql.push_str(if at == 0 { "" } else { ", " });
            let existing = if adds && kind.is_number() { format!("{}.{name} + ", self.name) } else { String::new() };
            write!(sql, "{name} = {existing}excluded.{name}").expect("writing to a String cannot fail");
        }
        sql
    }
}

/// A value; texts and bytes are ranges of [`RowBatch::bytes`].
#[derive(Clone, Copy, Debug)]
enum CellValue {
    Null,
    Number(i64),
    Text { from: usize, to: usize },
    Bytes { from: usize, to: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Null,
    Number(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

#[derive(Debug)]
pub(super) struct RowBatch {
    width: usize,
    cells: Vec<CellValue>,
    bytes: Vec<u8>,
}

impl RowBatch {
    /// An empty batch with capacity for `count` rows.
    pub(super) fn with_capacity(table: &TargetTable, count: usize) -> Self {
        let width = table.columns.len();
        Self { width, cells: Vec::with_capacity(count * width), bytes: Vec::with_capacity(count * 64) }
    }

    pub(super) const fn len(&self) -> usize {
        self.cells.len() / self.width
    }

    pub(super) fn number(&mut self, number: i64) -> &mut Self {
        self.cells.push(CellValue::Number(number));
        self
    }

    /// Saturates at `i64::MAX`; such counts do not occur.
    pub(super) fn count(&mut self, count: u64) -> &mut Self {
        self.number(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(super) fn maybe(&mut self, number: Option<i64>) -> &mut Self {
        self.cells.push(number.map_or(CellValue::Null, CellValue::Number));
        self
    }

    pub(super) fn maybe_count(&mut self, count: Option<u64>) -> &mut Self {
        self.maybe(count.map(|count| i64::try_from(count).unwrap_or(i64::MAX)))
    }

    /// A text. NUL, which PostgreSQL does not accept, becomes the replacement character.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        let from = self.bytes.len();
        if text.as_bytes().contains(&0) {
            self.bytes.extend_from_slice(text.replace('\0', "\u{fffd}").as_bytes());
        } else {
            self.bytes.extend_from_slice(text.as_bytes());
        }
        self.push_text(from)
    }

    pub(super) fn maybe_text(&mut self, text: Option<&str>) -> &mut Self {
        if let Some(text) = text {
            return self.text(text);
        }
        self.cells.push(CellValue::Null);
        self
    }

    pub(super) fn blob(&mut self, bytes: &[u8]) -> &mut Self {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.cells.push(CellValue::Bytes { from, to: self.bytes.len() });
        self
    }

    /// The text of a value that never contains NUL, such as an id.
    pub(super) fn display(&mut self, value: &impl Display) -> &mut Self {
        let from = self.bytes.len();
        write!(self.bytes, "{value}").expect("writing to a Vec cannot fail");
        self.push_text(from)
    }

    fn push_text(&mut self, from: usize) -> &mut Self {
        self.cells.push(CellValue::Text { from, to: self.bytes.len() });
        self
    }

    fn value(&self, cell: CellValue) -> Value<'_> {
        match cell {
            CellValue::Null => Value::Null,
            CellValue::Number(number) => Value::Number(number),
            CellValue::Text { from, to } => {
                Value::Text(std::str::from_utf8(&self.bytes[from..to]).expect("only texts are written there"))
            }
            CellValue::Bytes { from, to } => Value::Bytes(&self.bytes[from..to]),
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = impl Iterator<Item = Value<'_>>> {
        self.cells.chunks_exact(self.width).map(|row| row.iter().map(|cell| self.value(*cell)))
    }

    pub(super) fn column(&self, at: usize) -> impl Iterator<Item = Value<'_>> {
        self.cells.iter().skip(at).step_by(self.width).map(|cell| self.value(*cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::columns::{big, bytes, int, text};

    const SUMS: TargetTable = TargetTable {
        name: "sums",
        columns: &[int("bucket"), text("of"), big("n"), bytes("bins")],
        on_conflict: OnConflict::Add { key: 2 },
    };

    #[test]
    fn insert_handles_conflicts_as_the_table_says() {
        assert_eq!(
            SUMS.insert("VALUES (1)"),
            "INSERT INTO sums (bucket, of, n, bins) VALUES (1) ON CONFLICT (bucket, of) DO UPDATE SET n = sums.n + excluded.n, \
             bins = excluded.bins"
        );
        let replaces = TargetTable { on_conflict: OnConflict::Replace { key: 3 }, ..SUMS };
        assert!(replaces.insert("X").ends_with("X ON CONFLICT (bucket, of, n) DO UPDATE SET bins = excluded.bins"));
        assert!(TargetTable { on_conflict: OnConflict::Fail, ..SUMS }.insert("X").ends_with(") X"));
    }

    #[test]
    fn batch_reads_back_by_row_and_by_column() {
        let mut rows = RowBatch::with_capacity(&SUMS, 2);
        rows.number(1).text("a\0b").count(u64::MAX).maybe(None);
        rows.number(2).maybe_text(None).maybe_count(Some(3)).display(&4.5);
        let all: Vec<Vec<Value<'_>>> = rows.rows().map(Iterator::collect).collect();
        let first = [Value::Number(1), Value::Text("a\u{fffd}b"), Value::Number(i64::MAX), Value::Null];
        assert_eq!(all, [first, [Value::Number(2), Value::Null, Value::Number(3), Value::Text("4.5")]]);
        assert_eq!(rows.column(2).collect::<Vec<_>>(), [Value::Number(i64::MAX), Value::Number(3)]);
        assert_eq!(rows.len(), 2);
    }
}
