//! Rows on their way into a table: values one after the other, texts in one piece of memory, so that a row of thirty
//! columns costs no allocation of its own.

use std::fmt::{Display, Write as _};

/// A table that is booked into.
#[derive(Debug)]
pub(super) struct BookingTable {
    pub(super) name: &'static str,
    pub(super) columns: &'static [BookingColumn],
    pub(super) there: ConflictAction,
}

/// A column and what it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct BookingColumn {
    pub(super) name: &'static str,
    pub(super) kind: BookingColumnType,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BookingColumnType {
    Number,
    Text,
}

/// A column of numbers.
pub(super) const fn number(name: &'static str) -> BookingColumn {
    BookingColumn { name, kind: BookingColumnType::Number }
}

/// A column of texts.
pub(super) const fn text(name: &'static str) -> BookingColumn {
    BookingColumn { name, kind: BookingColumnType::Text }
}

/// What becomes of a row whose key is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConflictAction {
    /// It stays as it is.
    Stays,
    /// That is an error.
    Fails,
    /// The new figures are added to its own; the key is the first so many columns.
    Grows { key: usize },
    /// The new figures take the place of its own; the key is the first so many columns.
    Changes { key: usize },
}

impl BookingTable {
    /// The names of its columns.
    pub(super) fn names(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }

    /// `INSERT` of what `source` gives.
    pub(super) fn insert(&self, source: &str) -> String {
        let mut sql = format!("INSERT INTO {} ({}) {source}", self.name, self.names());
        let (key, grows) = match self.there {
            ConflictAction::Fails => return sql,
            ConflictAction::Stays => return sql + " ON CONFLICT DO NOTHING",
            ConflictAction::Grows { key } => (key, true),
            ConflictAction::Changes { key } => (key, false),
        };
        let (keys, figures) = self.columns.split_at(key);
        sql.push_str(" ON CONFLICT (");
        for (at, column) in keys.iter().enumerate() {
            sql.push_str(if at == 0 { "" } else { ", " });
            sql.push_str(column.name);
        }
        sql.push_str(") DO UPDATE SET ");
        for (at, BookingColumn { name, .. }) in figures.iter().enumerate() {
            sql.push_str(if at == 0 { "" } else { ", " });
            let own = if grows { format!("{}.{name} + ", self.name) } else { String::new() };
            write!(sql, "{name} = {own}excluded.{name}").expect("text does not fail to be written");
        }
        sql
    }
}

/// A value; texts lie in the rows' own memory.
#[derive(Clone, Copy, Debug)]
enum CellValue {
    Nothing,
    Number(i64),
    Text { from: usize, to: usize },
}

/// A value as it is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Nothing,
    Number(i64),
    Text(&'a str),
}

/// Rows of one table.
#[derive(Debug)]
pub(super) struct RowBatch {
    width: usize,
    cells: Vec<CellValue>,
    texts: String,
}

impl RowBatch {
    /// None yet, with room for so many.
    pub(super) fn of(table: &BookingTable, count: usize) -> Self {
        let width = table.columns.len();
        Self { width, cells: Vec::with_capacity(count * width), texts: String::with_capacity(count * width * 8) }
    }

    /// How many.
    pub(super) const fn len(&self) -> usize {
        self.cells.len() / self.width
    }

    pub(super) fn number(&mut self, number: i64) -> &mut Self {
        self.cells.push(CellValue::Number(number));
        self
    }

    /// Counts beyond what a database can hold do not occur; they would be cut, not wrapped.
    pub(super) fn count(&mut self, count: u64) -> &mut Self {
        self.number(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(super) fn maybe(&mut self, number: Option<i64>) -> &mut Self {
        self.cells.push(number.map_or(CellValue::Nothing, CellValue::Number));
        self
    }

    pub(super) fn maybe_count(&mut self, count: Option<u64>) -> &mut Self {
        self.maybe(count.map(|count| i64::try_from(count).unwrap_or(i64::MAX)))
    }

    /// A text. PostgreSQL refuses NUL in it.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        let from = self.texts.len();
        if text.as_bytes().contains(&0) {
            self.texts.push_str(&text.replace('\0', "\u{fffd}"));
        } else {
            self.texts.push_str(text);
        }
        self.told(from)
    }

    pub(super) fn maybe_text(&mut self, text: Option<&str>) -> &mut Self {
        if let Some(text) = text {
            return self.text(text);
        }
        self.cells.push(CellValue::Nothing);
        self
    }

    /// What is shown without NUL: ids.
    pub(super) fn shown(&mut self, what: &impl Display) -> &mut Self {
        let from = self.texts.len();
        write!(self.texts, "{what}").expect("text does not fail to be written");
        self.told(from)
    }

    pub(super) fn maybe_shown(&mut self, what: Option<&impl Display>) -> &mut Self {
        if let Some(what) = what {
            return self.shown(what);
        }
        self.cells.push(CellValue::Nothing);
        self
    }

    fn told(&mut self, from: usize) -> &mut Self {
        self.cells.push(CellValue::Text { from, to: self.texts.len() });
        self
    }

    fn value(&self, cell: CellValue) -> Value<'_> {
        match cell {
            CellValue::Nothing => Value::Nothing,
            CellValue::Number(number) => Value::Number(number),
            CellValue::Text { from, to } => Value::Text(&self.texts[from..to]),
        }
    }

    /// Row by row.
    pub(super) fn rows(&self) -> impl Iterator<Item = impl Iterator<Item = Value<'_>>> {
        self.cells.chunks_exact(self.width).map(|row| row.iter().map(|cell| self.value(*cell)))
    }

    /// One column.
    pub(super) fn column(&self, at: usize) -> impl Iterator<Item = Value<'_>> {
        self.cells.iter().skip(at).step_by(self.width).map(|cell| self.value(*cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMS: BookingTable = BookingTable {
        name: "sums",
        columns: &[number("bucket"), text("of"), number("n"), number("cost")],
        there: ConflictAction::Grows { key: 2 },
    };

    #[test]
    fn what_is_there_grows_changes_or_stays() {
        assert_eq!(
            SUMS.insert("VALUES (1)"),
            "INSERT INTO sums (bucket, of, n, cost) VALUES (1) ON CONFLICT (bucket, of) DO UPDATE SET n = sums.n + excluded.n, \
             cost = sums.cost + excluded.cost"
        );
        let changes = BookingTable { there: ConflictAction::Changes { key: 3 }, ..SUMS };
        assert!(changes.insert("X").ends_with("X ON CONFLICT (bucket, of, n) DO UPDATE SET cost = excluded.cost"));
        assert!(BookingTable { there: ConflictAction::Stays, ..SUMS }.insert("X").ends_with("X ON CONFLICT DO NOTHING"));
        assert!(BookingTable { there: ConflictAction::Fails, ..SUMS }.insert("X").ends_with(") X"));
    }

    #[test]
    fn rows_read_back_by_row_and_by_column() {
        let mut rows = RowBatch::of(&SUMS, 2);
        rows.number(1).text("a\0b").count(u64::MAX).maybe(None);
        rows.number(2).maybe_text(None).maybe_count(Some(3)).shown(&4.5);
        let all: Vec<Vec<Value<'_>>> = rows.rows().map(Iterator::collect).collect();
        let first = [Value::Number(1), Value::Text("a\u{fffd}b"), Value::Number(i64::MAX), Value::Nothing];
        assert_eq!(all, [first, [Value::Number(2), Value::Nothing, Value::Number(3), Value::Text("4.5")]]);
        assert_eq!(rows.column(2).collect::<Vec<_>>(), [Value::Number(i64::MAX), Value::Number(3)]);
        assert_eq!(rows.len(), 2);
    }
}
