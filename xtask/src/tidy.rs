//! `cargo xtask tidy`: rules of the workspace that the compiler does not check. Also a test of this crate.
//!
//! A rule is a function from the files of the workspace to its violations, so that its tests can show it a made-up tree.

mod dependencies;
mod docs;
mod layout;
mod rust_text;
mod source_tree;
mod stages;
mod type_names;
mod words;

use anyhow::{Result, bail};

use self::source_tree::SourceTree;
use crate::shell;

/// Gives one line per violation, beginning with the place.
type Rule = fn(&SourceTree) -> Vec<String>;

const RULES: [Rule; 16] = [
    layout::sizes,
    layout::module_docs,
    layout::module_files,
    layout::sql_only_in_store,
    layout::one_clock,
    dependencies::layers,
    dependencies::unused,
    stages::no_stage_uses_another,
    stages::types_use_no_stage,
    stages::numbers_agree,
    words::retired_terms,
    words::unfinished,
    type_names::duplicates,
    docs::errors_documented,
    docs::metrics_documented,
    docs::doc_comments_begin_with_text,
];

/// Checks every rule and reports all violations at once.
pub(crate) fn run() -> Result<()> {
    let tree = SourceTree::read(&shell::root())?;
    let violations: Vec<String> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    for violation in &violations {
        println!("tidy: {violation}");
    }
    if !violations.is_empty() {
        bail!("tidy found {} violations", violations.len());
    }
    println!("tidy: {} files, no violations", tree.files.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn workspace_is_tidy() {
        super::run().unwrap();
    }
}
