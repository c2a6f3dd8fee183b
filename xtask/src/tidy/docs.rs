//! Rules about documentation: lists of error ids and metrics that the code defines, and the form of doc comments.

use super::source_tree::SourceTree;

/// `docs/errors.md` has a row for each error id of the gateway's refusals.
pub(crate) fn errors_documented(tree: &SourceTree) -> Vec<String> {
    let docs = tree.text("docs/errors.md");
    let refusals = tree.rust_files().filter(|file| file.package() == "crates/tollgate-gateway" && file.path.contains("refusal"));
    let mut ids: Vec<&str> = refusals.flat_map(|file| error_ids(&file.text)).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return vec![
            "no error id was found in crates/tollgate-gateway/src/**/refusal*: this rule reads the wrong files".to_owned(),
        ];
    }
    let missing = ids.into_iter().filter(|id| !docs.contains(&format!("| {id} ")));
    missing.map(|id| format!("docs/errors.md does not explain {id}")).collect()
}

/// `docs/operating.md` explains each metric.
pub(crate) fn metrics_documented(tree: &SourceTree) -> Vec<String> {
    let docs = tree.text("docs/operating.md");
    let gateway = tree.rust_files().filter(|file| file.package() == "crates/tollgate-gateway");
    let names: Vec<&str> = gateway.flat_map(|file| first_literals(&file.text, "registry.register(")).collect();
    if names.is_empty() {
        return vec!["no metric is registered in crates/tollgate-gateway: this rule reads the wrong files".to_owned()];
    }
    // Counters and infos get a suffix when they are written.
    let explained = |name: &str| ["`", "_total`", "_info`"].iter().any(|end| docs.contains(&format!("`tollgate_{name}{end}")));
    let missing = names.into_iter().filter(|name| !explained(name));
    missing.map(|name| format!("docs/operating.md does not explain the metric tollgate_{name}")).collect()
}

/// No doc comment begins with an empty line.
pub(crate) fn doc_comments_begin_with_text(tree: &SourceTree) -> Vec<String> {
    tree.rust_files()
        .flat_map(|file| {
            empty_first_lines(&file.text)
                .map(move |line| format!("{}:{line}: the doc comment begins with an empty line", file.path))
        })
        .collect()
}

/// Numbers of the lines that are an empty doc line without a doc line before it.
fn empty_first_lines(text: &str) -> impl Iterator<Item = usize> {
    let before = std::iter::once("").chain(text.lines());
    let pairs = before.zip(text.lines()).map(|(before, line)| (before.trim(), line.trim())).enumerate();
    let first = pairs.filter(|(_, (before, line))| ["///", "//!"].contains(line) && !before.starts_with(line));
    first.map(|(index, _)| index + 1)
}

/// The first argument of each call of `call`, where it is a string literal.
fn first_literals<'a>(text: &'a str, call: &str) -> Vec<&'a str> {
    let arguments = text.split(call).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    arguments.filter_map(|rest| rest.split('"').next()).collect()
}

/// String literals such as `"E40"`.
fn error_ids(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').filter(|piece| {
        let digits = piece.strip_prefix('E').unwrap_or_default();
        (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undocumented_error_is_found() {
        let source = r#"Self::KeyMissing => "E1", Self::X => "E40", "Ex" "E123""#;
        let tree =
            SourceTree::of(&[("crates/tollgate-gateway/src/refusal.rs", source), ("docs/errors.md", "| E1 | key missing |")]);
        assert_eq!(errors_documented(&tree), ["docs/errors.md does not explain E40"]);
        assert_eq!(errors_documented(&SourceTree::of(&[])).len(), 1);
    }

    #[test]
    fn doc_comment_that_begins_with_an_empty_line_is_found() {
        let text = "//! A module.\n//!\n//! More.\n\nstruct A;\n    ///\n    /// Text.\n    fn a() {}\n";
        let tree = SourceTree::of(&[("a.rs", text), ("b.rs", "//!\n//! Text.\n/// A.\n///\n/// B.\n"), ("a.md", "///\n")]);
        let violation = "the doc comment begins with an empty line";
        assert_eq!(doc_comments_begin_with_text(&tree), [format!("a.rs:6: {violation}"), format!("b.rs:1: {violation}")]);
    }

    #[test]
    fn undocumented_metric_is_found() {
        let source = "registry.register(\"requests\", a);\nregistry.register(\n    \"queue.depth\",\n);\nregister(name)";
        let tree = SourceTree::of(&[
            ("crates/tollgate-gateway/src/metrics.rs", source),
            ("docs/operating.md", "`tollgate_requests_total`"),
        ]);
        assert_eq!(metrics_documented(&tree), ["docs/operating.md does not explain the metric tollgate_queue.depth"]);
        assert_eq!(metrics_documented(&SourceTree::of(&[])).len(), 1);
    }
}
