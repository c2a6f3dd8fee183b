//! Output to stdout and stderr; no other module prints. A closed pipe (`| head`) is not an error.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::{cli::Common, failure::Failure};

/// Rows shown of a table that may be long; JSON output has all of them.
const MAX_ROWS: usize = 40;

/// A number with its noun: `1 balance`, `2 balances`.
pub(crate) fn counted(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    // A count that does not fit is a plural.
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// Writes a line to stdout.
pub(crate) fn line(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Writes bytes to stdout; `false` when the pipe is closed.
pub(crate) fn raw(bytes: &[u8]) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).is_ok()
}

/// Writes a JSON value as a line to stdout.
pub(crate) fn json(value: &Value) {
    line(&value.to_string());
}

/// Writes the result of a command: JSON with `--json`, else the text.
pub(crate) fn result(common: &Common, value: &Value, text: &str) {
    if common.json { json(value) } else { line(text) }
}

/// Writes a remark to stderr.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes the error of a command to stderr.
pub(crate) fn failure(failure: &Failure) {
    let mut out = io::stderr().lock();
    for (number, text) in failure.to_string().lines().enumerate() {
        let _ = writeln!(out, "{}{text}", if number == 0 { "tollgate: " } else { "          " });
    }
}

/// Writes a list: its items with `--json`, else the rows.
pub(crate) fn list(common: &Common, items: &[Value], headings: &[&str], rows: &[Vec<String>]) {
    if common.json {
        json(&json!({"items": items}));
    } else {
        table(headings, rows);
    }
}

/// Writes the first rows of a table, and how many follow.
pub(crate) fn long_table(headings: &[&str], rows: &[Vec<String>]) {
    table(headings, &rows[..rows.len().min(MAX_ROWS)]);
    if rows.len() > MAX_ROWS {
        line(&format!("… {} more; --json has all", rows.len() - MAX_ROWS));
    }
}

/// Writes rows as aligned columns to stdout, below the headings if there are any; `false` when the pipe is closed.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> bool {
    let headings: Vec<String> = headings.iter().map(|&heading| heading.to_owned()).collect();
    let lines = || Some(&headings).filter(|headings| !headings.is_empty()).into_iter().chain(rows);
    let mut widths = vec![0; lines().map(Vec::len).max().unwrap_or(0)];
    for row in lines() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    lines().all(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(io::stdout().lock(), "{}", cells.collect::<Vec<_>>().join("  ").trim_end()).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn count_of_one_is_singular() {
        assert_eq!(counted(1_usize, "balance", "balances"), "1 balance");
        assert_eq!(
            (counted(0_u64, "entry", "entries"), counted(2_i64, "entry", "entries")),
            ("0 entries".into(), "2 entries".into())
        );
    }
}
