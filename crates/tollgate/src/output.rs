//! Output to stdout and stderr; no other module prints. A closed pipe (`| head`) is not an error.

use std::io::{self, Write};

use crate::failure::Failure;

/// A number with its noun: `1 balance`, `2 balances`.
pub(crate) fn counted(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    // What does not fit is more than one.
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
pub(crate) fn json(value: &serde_json::Value) {
    line(&value.to_string());
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

/// Writes rows as aligned columns to stdout; `false` when the pipe is closed.
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

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_of_a_thing_is_singular() {
        assert_eq!(counted(1_usize, "balance", "balances"), "1 balance");
        assert_eq!(
            (counted(0_u64, "entry", "entries"), counted(2_i64, "entry", "entries")),
            ("0 entries".into(), "2 entries".into())
        );
    }
}
