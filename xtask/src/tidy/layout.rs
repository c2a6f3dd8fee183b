//! Rules about files: sizes, module docs, one way to name a module's file, SQL in the store only.

use std::collections::BTreeMap;

use super::{
    rust_text::{code, without_tests},
    source_tree::SourceTree,
};

/// Files above this many lines are printed; above [`MAX_LINES`] they are violations. Tests are exempt.
const LONG: usize = 500;
const MAX_LINES: usize = 800;

/// Largest share of the workspace's lines that a product crate may hold.
const MAX_SHARE: f64 = 0.40;

/// Line counts of files and crates.
pub(crate) fn sizes(tree: &SourceTree) -> Vec<String> {
    let mut violations = Vec::new();
    let mut by_crate: BTreeMap<&str, usize> = BTreeMap::new();
    let mut total = 0;
    for file in tree.rust_files() {
        let lines = file.text.lines().count();
        total += lines;
        if !file.is_test() {
            if lines > MAX_LINES {
                violations.push(format!("{} has {lines} lines (limit {MAX_LINES}): split it", file.path));
            } else if lines > LONG {
                println!("tidy: note: {} has {lines} lines (aim is at most {LONG})", file.path);
            }
        }
        if file.path.starts_with("crates/") && !file.path.starts_with("crates/tollgate-testkit/") {
            *by_crate.entry(file.package()).or_default() += lines;
        }
    }
    for (name, lines) in by_crate {
        #[expect(clippy::cast_precision_loss, reason = "line counts are far below 2^52")]
        let share = lines as f64 / total as f64;
        if share > MAX_SHARE {
            let (share, limit) = (share * 100.0, MAX_SHARE * 100.0);
            violations.push(format!("{name} holds {share:.1} % of the workspace's lines (limit {limit:.0} %)"));
        }
    }
    violations
}

/// Each Rust file begins with a module doc.
pub(crate) fn module_docs(tree: &SourceTree) -> Vec<String> {
    let undocumented = tree.rust_files().filter(|file| !file.text.starts_with("//!") && !file.text.starts_with("#!"));
    undocumented.map(|file| format!("{} does not begin with a module doc (`//!`)", file.path)).collect()
}

/// A module's file is `x.rs`, not `x/mod.rs`. Cargo's folders `tests/` and `benches/` are exempt: there each `x.rs` is a
/// separate program.
pub(crate) fn module_files(tree: &SourceTree) -> Vec<String> {
    let misnamed = tree.rust_files().filter(|file| file.path.contains("/src/") && file.path.ends_with("/mod.rs"));
    misnamed.map(|file| format!("{}: name it {}.rs", file.path, file.path.trim_end_matches("/mod.rs"))).collect()
}

/// Files that may read the monotonic clock: the clock itself, and developers' tools.
const CLOCK_FILES: [&str; 5] = ["crates/tollgate-gateway/src/clock.rs", "crates/tollgate-testkit/", "bench/", "xtask/", "fuzz/"];

/// Product code takes the time from a `Clock`, or as an argument. Clippy bans the clocks of std; tokio's `Instant::now` is as
/// much a clock, and allowed in tests only.
pub(crate) fn one_clock(tree: &SourceTree) -> Vec<String> {
    let mut violations = Vec::new();
    for file in tree.rust_files() {
        if file.is_test() || CLOCK_FILES.iter().any(|allowed| file.path.starts_with(allowed)) {
            continue;
        }
        for (number, line) in without_tests(&code(&file.text)).lines().enumerate() {
            if line.contains("Instant::now") {
                violations.push(format!("{}:{}: take the time from Clock, or as an argument", file.path, number + 1));
            }
        }
    }
    violations
}

/// SQL statements occur only in `tollgate-store`.
pub(crate) fn sql_only_in_store(tree: &SourceTree) -> Vec<String> {
    let statements = ["SELECT ", "INSERT INTO ", "UPDATE usage", "DELETE FROM ", "CREATE TABLE"];
    let mut violations = Vec::new();
    for file in tree.rust_files() {
        if ["crates/tollgate-store", "xtask"].contains(&file.package()) || file.is_test() {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            if !line.trim_start().starts_with("//") && statements.iter().any(|statement| line.contains(statement)) {
                violations.push(format!("{}:{}: SQL outside tollgate-store", file.path, number + 1));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found_but_not_long_tests() {
        let long = "line\n".repeat(MAX_LINES + 1);
        let tree = SourceTree::of(&[("crates/a/src/b.rs", &long), ("crates/a/tests/it/c.rs", &long), ("xtask/src/d.rs", &long)]);
        let found = sizes(&tree);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/b.rs has 801 lines"));
        assert!(found[1].starts_with("xtask/src/d.rs has 801 lines"));
        assert!(found[2].starts_with("crates/a holds 66.7 %"));
    }

    #[test]
    fn files_without_module_doc_are_found() {
        let tree = SourceTree::of(&[("crates/a/src/lib.rs", "//! A.\n"), ("crates/a/src/b.rs", "use std::fmt;\n")]);
        assert_eq!(module_docs(&tree), ["crates/a/src/b.rs does not begin with a module doc (`//!`)"]);
    }

    #[test]
    fn mod_rs_is_found_in_source_folders_only() {
        let tree = SourceTree::of(&[("crates/a/src/b/mod.rs", ""), ("crates/a/tests/support/mod.rs", "")]);
        assert_eq!(module_files(&tree), ["crates/a/src/b/mod.rs: name it crates/a/src/b.rs"]);
    }

    #[test]
    fn clocks_are_found_in_product_code_only() {
        let text = "// Instant::now\nlet now = Instant::now();\n#[cfg(test)]\nmod tests {\n    fn f() { Instant::now(); }\n}\n";
        let tree = SourceTree::of(&[
            ("crates/a/src/b.rs", text),
            ("crates/a/tests/c.rs", text),
            ("crates/tollgate-testkit/src/d.rs", text),
        ]);
        assert_eq!(one_clock(&tree), ["crates/a/src/b.rs:2: take the time from Clock, or as an argument"]);
    }

    #[test]
    fn sql_is_found_outside_the_store() {
        let text = "// SELECT x\nquery(\"SELECT x FROM y\");\n";
        let tree = SourceTree::of(&[("crates/tollgate-store/src/a.rs", text), ("crates/b/src/a.rs", text)]);
        assert_eq!(sql_only_in_store(&tree), ["crates/b/src/a.rs:2: SQL outside tollgate-store"]);
    }
}
