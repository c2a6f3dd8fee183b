//! Copies the rows of a table from SQLite to PostgreSQL, in the text format of `COPY`.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, PgConnection, Row as _, SqliteConnection, sqlite::SqliteRow};

const ROWS_AT_ONCE: i64 = 2_000;

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

pub(super) struct TransferTable<'a> {
    pub(super) name: &'a str,
    pub(super) columns: &'a [TransferColumn],
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

    /// Number of rows with row numbers in (`after`, `to`].
    pub(super) async fn count(&self, source: &mut SqliteConnection, after: i64, to: i64) -> Result<u64, sqlx::Error> {
        let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {} WHERE rowid > $1 AND rowid <= $2", self.name));
        let row = sqlx::query(sql).bind(after).bind(to).fetch_one(source).await?;
        row.try_get::<i64, _>(0).map(|count| u64::try_from(count).unwrap_or(0))
    }
}

/// Copies the rows after a row number. Returns how many, and the last row number.
pub(super) async fn copy_rows(
    source: &mut SqliteConnection,
    target: &mut PgConnection,
    table: &TransferTable<'_>,
    mut after: i64,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(u64, i64), CopyError> {
    let names = table.names();
    let select = format!("SELECT rowid, {names} FROM {} WHERE rowid > $1 ORDER BY rowid LIMIT {ROWS_AT_ONCE}", table.name);
    let copy = format!("COPY {} ({names}) FROM STDIN", table.name);
    let mut copied = 0;
    let mut writer = target.copy_in_raw(&copy).await.map_err(CopyError::Write)?;
    loop {
        let rows = sqlx::query(AssertSqlSafe(select.clone())).bind(after).fetch_all(&mut *source).await;
        let mut text = String::new();
        let read = rows.and_then(|rows| {
            for row in &rows {
                after = row.try_get(0)?;
                write_row(&mut text, row, table.columns)?;
            }
            Ok(rows.len())
        });
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
        copied += count as u64;
        progress(copied);
    }
    writer.finish().await.map_err(CopyError::Write)?;
    Ok((copied, after))
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
