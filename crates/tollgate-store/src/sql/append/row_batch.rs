//! Rows to insert into a table. Values are stored one after the other and texts share one buffer, so that a row of thirty columns
//! needs no separate allocation.

use std::{
    fmt::{Display, Write as _},
    io::Write as _,
    sync::OnceLock,
};

use crate::sql::columns::{Column, column_list};

#[derive(Debug)]
pub(super) struct TargetTable {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column],
    pub(super) on_conflict: OnConflict,
    pub(super) statements: TableStatements,
}

/// The statements that write to a table, each composed once.
#[derive(Debug)]
pub(super) struct TableStatements {
    /// One row, and several; on SQLite.
    pub(super) row: OnceLock<String>,
    pub(super) rows: OnceLock<String>,
    /// Rows in arrays, on PostgreSQL.
    pub(super) arrays: OnceLock<String>,
}

impl TableStatements {
    pub(super) const fn new() -> Self {
        Self { row: OnceLock::new(), rows: OnceLock::new(), arrays: OnceLock::new() }
    }
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
    /// A statement that begins with `verb`, such as `INSERT`.
    pub(super) fn insert(&self, verb: &str, source: &str) -> String {
        let mut sql = format!("{verb} INTO {} ({}) {source}", self.name, column_list(self.columns));
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

/// A value in 16 bytes; texts and bytes are parts of [`RowBatch::bytes`].
#[derive(Clone, Copy, Debug)]
pub(super) enum CellValue {
    Null,
    Number(i64),
    Text { from: usize, length: u32 },
    Bytes { from: usize, length: u32 },
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
        self.push_bytes(from)
    }

    /// A value of the bytes that a function appends.
    pub(super) fn encoded(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let from = self.bytes.len();
        append(&mut self.bytes);
        self.push_bytes(from)
    }

    /// The text of a value that never contains NUL, such as an id.
    pub(super) fn display(&mut self, value: &impl Display) -> &mut Self {
        let from = self.bytes.len();
        write!(self.bytes, "{value}").expect("writing to a Vec cannot fail");
        self.push_text(from)
    }

    fn push_text(&mut self, from: usize) -> &mut Self {
        self.cells.push(CellValue::Text { from, length: self.length_since(from) });
        self
    }

    fn push_bytes(&mut self, from: usize) -> &mut Self {
        self.cells.push(CellValue::Bytes { from, length: self.length_since(from) });
        self
    }

    fn length_since(&self, from: usize) -> u32 {
        u32::try_from(self.bytes.len() - from).expect("a value is shorter than 4 GiB")
    }

    fn part(&self, from: usize, length: u32) -> &[u8] {
        &self.bytes[from..from + length as usize]
    }

    pub(super) fn value(&self, cell: CellValue) -> Value<'_> {
        match cell {
            CellValue::Null => Value::Null,
            CellValue::Number(number) => Value::Number(number),
            CellValue::Text { from, length } => {
                Value::Text(std::str::from_utf8(self.part(from, length)).expect("only texts are written there"))
            }
            CellValue::Bytes { from, length } => Value::Bytes(self.part(from, length)),
        }
    }

    /// Whether two cells have the same value.
    pub(super) fn is_same(&self, one: CellValue, other: CellValue) -> bool {
        match (one, other) {
            (CellValue::Null, CellValue::Null) => true,
            (CellValue::Number(one), CellValue::Number(other)) => one == other,
            (CellValue::Text { from, length }, CellValue::Text { from: other_from, length: other_length })
            | (CellValue::Bytes { from, length }, CellValue::Bytes { from: other_from, length: other_length }) => {
                self.part(from, length) == self.part(other_from, other_length)
            }
            _ => false,
        }
    }

    /// The cells from row `first` on in groups of `rows` rows, without an incomplete last group.
    pub(super) fn groups(&self, first: usize, rows: usize) -> impl Iterator<Item = &[CellValue]> {
        self.cells[first * self.width..].chunks_exact(rows * self.width)
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

    const COLUMNS: &[Column] = &[int("bucket"), text("of"), big("n"), bytes("bins")];

    fn table(on_conflict: OnConflict) -> TargetTable {
        TargetTable { name: "sums", columns: COLUMNS, on_conflict, statements: TableStatements::new() }
    }

    fn sums() -> TargetTable {
        table(OnConflict::Add { key: 2 })
    }

    #[test]
    fn insert_handles_conflicts_as_the_table_says() {
        assert_eq!(
            sums().insert("INSERT", "VALUES (1)"),
            "INSERT INTO sums (bucket, of, n, bins) VALUES (1) ON CONFLICT (bucket, of) DO UPDATE SET n = sums.n + excluded.n, \
             bins = excluded.bins"
        );
        let replaces = table(OnConflict::Replace { key: 3 });
        assert!(replaces.insert("INSERT", "X").ends_with("X ON CONFLICT (bucket, of, n) DO UPDATE SET bins = excluded.bins"));
        assert!(table(OnConflict::Fail).insert("INSERT", "X").ends_with(") X"));
    }

    #[test]
    fn batch_reads_back_by_row_and_by_column() {
        let mut rows = RowBatch::with_capacity(&sums(), 2);
        rows.number(1).text("a\0b").count(u64::MAX).maybe(None);
        rows.number(2).maybe_text(None).maybe_count(Some(3)).display(&4.5);
        let all: Vec<Vec<Value<'_>>> = rows.rows().map(Iterator::collect).collect();
        let first = [Value::Number(1), Value::Text("a\u{fffd}b"), Value::Number(i64::MAX), Value::Null];
        assert_eq!(all, [first, [Value::Number(2), Value::Null, Value::Number(3), Value::Text("4.5")]]);
        assert_eq!(rows.column(2).collect::<Vec<_>>(), [Value::Number(i64::MAX), Value::Number(3)]);
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn cells_of_several_rows_are_compared_by_value() {
        let mut rows = RowBatch::with_capacity(&sums(), 3);
        rows.number(1).text("same").maybe(None).blob(b"same");
        rows.number(2).text("same").number(0).blob(b"other");
        rows.number(3).text("left").number(0).blob(b"out");
        let groups: Vec<_> = rows.groups(0, 2).collect();
        assert_eq!(groups.len(), 1, "the last row fills no group");
        let (one, other) = groups[0].split_at(4);
        let same: Vec<bool> = one.iter().zip(other).map(|(one, other)| rows.is_same(*one, *other)).collect();
        assert_eq!(same, [false, true, false, false]);
        assert!(!rows.is_same(one[1], one[3]), "a text is not bytes");
        assert_eq!(rows.groups(2, 1).map(|row| rows.value(row[0])).collect::<Vec<_>>(), [Value::Number(3)]);
    }
}
