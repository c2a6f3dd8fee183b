//! Words for people on stdout and stderr; the only place that prints. A reader that goes away (`| head`) is no error.

use std::io::{self, Write};

use crate::failure::Failure;

/// A line on stdout.
pub(crate) fn line(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Text on stdout as it is; `false` when nobody reads any more.
pub(crate) fn raw(bytes: &[u8]) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).is_ok()
}

/// A JSON value on stdout.
pub(crate) fn json(value: &serde_json::Value) {
    line(&value.to_string());
}

/// A remark on stderr.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Why the command failed, on stderr.
pub(crate) fn failure(failure: &Failure) {
    let mut out = io::stderr().lock();
    for (number, text) in failure.to_string().lines().enumerate() {
        let _ = writeln!(out, "{}{text}", if number == 0 { "tollgate: " } else { "          " });
    }
}

/// Rows in columns, the first row being the heading. Columns are as wide as their widest cell. `false` when nobody reads any
/// more.
pub(crate) fn table(rows: &[Vec<String>]) -> bool {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    rows.iter().all(|row| {
        let mut text = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        writeln!(io::stdout().lock(), "{}", text.trim_end()).is_ok()
    })
}
