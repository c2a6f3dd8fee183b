//! Generated parts of pages: the text between a marker that names the command and the line `<!-- end -->`.

use std::fs;

use anyhow::{Context, Result};

use crate::shell;

const END: &str = "<!-- end -->\n";

/// Replaces the part of a page after this marker. Keeps the file untouched where nothing changes.
pub(crate) fn write(file: &str, marker: &str, text: &str) -> Result<()> {
    let path = shell::root().join(file);
    let page = fs::read_to_string(&path).with_context(|| file.to_owned())?;
    let replaced = replaced(&page, marker, text).with_context(|| file.to_owned())?;
    if replaced == page {
        println!("{file} is current");
        return Ok(());
    }
    fs::write(&path, replaced)?;
    println!("{file} written");
    Ok(())
}

/// The page with other text between the marker and the end after it.
pub(crate) fn replaced(page: &str, marker: &str, text: &str) -> Result<String> {
    let (before, rest) = page.split_once(marker).with_context(|| format!("no line `{}`", marker.trim_end()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("no line `{}` after `{}`", END.trim_end(), marker.trim_end()))?;
    Ok(format!("{before}{marker}{text}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_of_the_marker_is_replaced() {
        let page = "a\n<!-- x -->\nold\n<!-- end -->\nb\n<!-- y -->\nkept\n<!-- end -->\n";
        let replaced = replaced(page, "<!-- x -->\n", "new\n").unwrap();
        assert_eq!(replaced, "a\n<!-- x -->\nnew\n<!-- end -->\nb\n<!-- y -->\nkept\n<!-- end -->\n");
    }

    #[test]
    fn page_without_the_marker_or_its_end_is_refused() {
        for (page, missing) in [("a\n", "<!-- x -->"), ("<!-- x -->\nold\n", "<!-- end -->")] {
            let error = replaced(page, "<!-- x -->\n", "new\n").unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }
}
