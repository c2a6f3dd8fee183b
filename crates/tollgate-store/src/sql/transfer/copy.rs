//! Copies the rows of a table from SQLite to PostgreSQL, in the text format of `COPY`.

use std::fmt::Write as _;

use futures_util::{Stream, TryStreamExt as _};
use sqlx::{AssertSqlSafe, PgConnection, Row as _, SqliteConnection, sqlite::SqliteRow};

const ROWS_AT_ONCE: u64 = 2_000;

#[derive(Debug)]
pub(super) enum CopyError {
    Read(sqlx::Error),
    Write(sqlx::Error),
}

/// Type of a column. The schema uses no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnType {
    Number,
    Text,
    Bytes,
}

#[derive(Clone, Debug)]
pub(super) struct TransferColumn {
    name: String,
    kind: ColumnType,
}

/// The order in which rows are copied, which determines where the next pass continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyOrder {
    /// By SQLite's row number.
    RowNumber,
    /// By the first column of the primary key, a request id.
    RequestId(&'static str),
    /// In no order: always the whole table.
    None,
}

/// The last row that was copied; rows behind it are new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CopiedUntil {
    Nothing,
    Row(i64),
    Request(Vec<u8>),
}

pub(super) struct TransferTable<'a> {
    pub(super) name: &'a str,
    pub(super) columns: &'a [TransferColumn],
    pub(super) order: CopyOrder,
}

/// The gateway's tables, ordered by name, without those of SQLite and of the migrations.
pub(super) async fn tables(source: &mut SqliteConnection) -> Result<Vec<String>, sqlx::Error> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '\\_%' ESCAPE '\\' \
               ORDER BY name";
    let rows = sqlx::query(sql).fetch_all(source).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

pub(super) async fn columns(source: &mut SqliteConnection, table: &str) -> Result<Vec<TransferColumn>, sqlx::Error> {
    let rows = sqlx::query("SELECT name, type FROM pragma_table_info($1)").bind(table).fetch_all(source).await?;
    rows.iter()
        .map(|row| {
            let (name, kind): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let kind = match kind.to_ascii_uppercase().as_str() {
                "BIGINT" | "INTEGER" => ColumnType::Number,
                "TEXT" => ColumnType::Text,
                "BYTEA" | "BLOB" => ColumnType::Bytes,
                other => return Err(sqlx::Error::Decode(format!("column {name} of {table} is of the kind '{other}'").into())),
            };
            Ok(TransferColumn { name, kind })
        })
        .collect()
}

impl TransferTable<'_> {
    fn names(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The column or row number that orders the rows.
    const fn ordered_by(&self) -> &'static str {
        match self.order {
            CopyOrder::RowNumber => "rowid",
            CopyOrder::RequestId(column) => column,
            CopyOrder::None => "0",
        }
    }

    /// Number of rows after a position, or up to it.
    pub(super) async fn count(
        &self,
        source: &mut SqliteConnection,
        position: &CopiedUntil,
        behind: bool,
    ) -> Result<u64, sqlx::Error> {
        let than = if behind { ">" } else { "<=" };
        let condition =
            if *position == CopiedUntil::Nothing { String::new() } else { format!(" WHERE {} {than} $1", self.ordered_by()) };
        let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {}{condition}", self.name));
        let query = sqlx::query(sql);
        let query = match position {
            CopiedUntil::Nothing => query,
            CopiedUntil::Row(row) => query.bind(*row),
            CopiedUntil::Request(id) => query.bind(id.clone()),
        };
        let row = query.fetch_one(source).await?;
        row.try_get::<i64, _>(0).map(|count| u64::try_from(count).unwrap_or(0))
    }

    /// The query for rows after a position, with the position in the first column. A table without an order, or with several rows
    /// for a position, is read by one query, row by row.
    fn select(&self, after: &CopiedUntil) -> String {
        let (ordered_by, names, name) = (self.ordered_by(), self.names(), self.name);
        let condition = if *after == CopiedUntil::Nothing { String::new() } else { format!(" WHERE {ordered_by} > $1") };
        let order = if self.order == CopyOrder::None { String::new() } else { format!(" ORDER BY {ordered_by}") };
        format!("SELECT {ordered_by}, {names} FROM {name}{condition}{order}")
    }
}

/// Copies the rows after a position. Returns their number and the last position.
pub(super) async fn copy_rows(
    source: &mut SqliteConnection,
    target: &mut PgConnection,
    table: &TransferTable<'_>,
    mut after: CopiedUntil,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(u64, CopiedUntil), CopyError> {
    let select = table.select(&after);
    let copy = format!("COPY {} ({}) FROM STDIN", table.name, table.names());
    let mut copied = 0;
    let mut writer = target.copy_in_raw(&copy).await.map_err(CopyError::Write)?;
    let query = sqlx::query(AssertSqlSafe(select));
    let mut rows = match &after {
        CopiedUntil::Nothing => query,
        CopiedUntil::Row(row) => query.bind(*row),
        CopiedUntil::Request(id) => query.bind(id.clone()),
    }
    .fetch(source);
    loop {
        let mut text = String::new();
        let read = read_rows(&mut rows, table, &mut text, &mut after).await;
        let count = match read {
            Ok(count) => count,
            Err(error) => {
                // The transaction is rolled back in any case.
                let _ = writer.abort("the source could not be read").await;
                return Err(CopyError::Read(error));
            }
        };
        if count == 0 {
            break;
        }
        writer.send(text.into_bytes()).await.map_err(CopyError::Write)?;
        copied += count;
        progress(copied);
    }
    drop(rows);
    writer.finish().await.map_err(CopyError::Write)?;
    Ok((copied, after))
}

/// Appends the lines of the next rows. Returns how many.
async fn read_rows(
    rows: &mut (impl Stream<Item = Result<SqliteRow, sqlx::Error>> + Unpin),
    table: &TransferTable<'_>,
    text: &mut String,
    after: &mut CopiedUntil,
) -> Result<u64, sqlx::Error> {
    let mut count = 0;
    while count < ROWS_AT_ONCE {
        let Some(row) = rows.try_next().await? else { break };
        match table.order {
            CopyOrder::RowNumber => *after = CopiedUntil::Row(row.try_get(0)?),
            CopyOrder::RequestId(_) => *after = CopiedUntil::Request(row.try_get(0)?),
            CopyOrder::None => {}
        }
        write_row(text, &row, table.columns)?;
        count += 1;
    }
    Ok(count)
}

/// Appends one line: values separated by tabs, `\N` for NULL.
fn write_row(text: &mut String, row: &SqliteRow, columns: &[TransferColumn]) -> Result<(), sqlx::Error> {
    const NULL: &str = "\\N";
    for (at, column) in (1..).zip(columns) {
        if at > 1 {
            text.push('\t');
        }
        match column.kind {
            ColumnType::Number => match row.try_get::<Option<i64>, _>(at)? {
                Some(number) => write!(text, "{number}").expect("writing to a String cannot fail"),
                None => text.push_str(NULL),
            },
            ColumnType::Text => match row.try_get::<Option<&str>, _>(at)? {
                Some(value) => escape(text, value),
                None => text.push_str(NULL),
            },
            ColumnType::Bytes => match row.try_get::<Option<&[u8]>, _>(at)? {
                Some(value) => {
                    text.push_str("\\\\x");
                    text.push_str(&hex::encode(value));
                }
                None => text.push_str(NULL),
            },
        }
    }
    text.push('\n');
    Ok(())
}

/// Escapes the special characters of the format. NUL, which PostgreSQL does not accept, becomes the replacement character.
fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\0' => text.push('\u{fffd}'),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        let mut text = String::new();
        escape(&mut text, "a\tb\\N\nc\rd\0é");
        assert_eq!(text, "a\\tb\\\\N\\nc\\rd\u{fffd}é");
    }
}
