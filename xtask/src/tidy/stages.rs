//! Rules about the request path of the gateway: stages do not use each other, and their numbers agree in module docs and
//! `ARCHITECTURE.md`.

use super::{
    rust_text::{code, without_tests},
    source_tree::{SourceFile, SourceTree},
};

const FOLDER: &str = "crates/tollgate-gateway/src/path/";
/// The heading above the numbered list of stages.
const HEADING: &str = "## One request, walked through";

/// A stage module: `path/<name>.rs`, whose module doc says `Stage <number> of <count>`.
struct Stage<'a> {
    name: &'a str,
    number: usize,
    count: usize,
}

/// No stage names another stage; code that two stages share is in `path/types` or below both. Modules inside a stage's
/// own folder count as that stage.
pub(crate) fn no_stage_uses_another(tree: &SourceTree) -> Vec<String> {
    let stages = stages(tree);
    let mut violations = Vec::new();
    for file in tree.rust_files().filter(|file| !file.is_test()) {
        let Some(own) = file.path.strip_prefix(FOLDER).and_then(|rest| rest.split(['/', '.']).next()) else { continue };
        if !stages.iter().any(|stage| stage.name == own) {
            continue;
        }
        let others = stages.iter().filter(|other| other.name != own && uses_stage(file, own, other.name));
        violations.extend(others.map(|other| {
            format!("{}: stage `{own}` uses stage `{}`: move what both need into path/types, or pass it in", file.path, other.name)
        }));
    }
    violations
}

/// Shared code of the stages imports only `path/types` of `path`, so that the shared types depend on no stage.
pub(crate) fn types_use_no_stage(tree: &SourceTree) -> Vec<String> {
    let mut violations = Vec::new();
    for file in tree.rust_files().filter(|file| !file.is_test()) {
        let Some(inside) = file.path.strip_prefix(FOLDER).filter(|inside| *inside == "types.rs" || inside.starts_with("types/"))
        else {
            continue;
        };
        // `super` as often as the file is deep leads to `path`.
        let to_path = "super::".repeat(inside.split('/').count());
        let mut others = named_in_path(file, &to_path);
        others.retain(|name| name != "types");
        others.dedup();
        violations.extend(others.iter().map(|name| {
            format!("{}: path/types uses `path::{name}`: move what it needs into path/types, or pass it in", file.path)
        }));
    }
    violations
}

/// The stages are numbered from 1 without gaps, each states the total, and the numbered list in `ARCHITECTURE.md` has the
/// same modules in the same order.
pub(crate) fn numbers_agree(tree: &SourceTree) -> Vec<String> {
    let stages = stages(tree);
    let mut violations = Vec::new();
    if stages.is_empty() {
        return vec![format!("no module doc in {FOLDER} has `Stage n of m`: this rule reads the wrong files")];
    }
    for (index, stage) in stages.iter().enumerate() {
        if stage.number != index + 1 || stage.count != stages.len() {
            let (expected, count) = (index + 1, stages.len());
            violations.push(format!(
                "{FOLDER}{}.rs says `Stage {} of {}`; it is stage {expected} of {count}",
                stage.name, stage.number, stage.count
            ));
        }
    }
    let listed = listed_stages(tree.text("ARCHITECTURE.md"));
    for stage in &stages {
        let file = format!("`path/{}.rs`", stage.name);
        if !listed.iter().any(|(number, text)| *number == stage.number && text.contains(&file)) {
            violations.push(format!("ARCHITECTURE.md: item {} of the stages does not name {file}", stage.number));
        }
    }
    if listed.len() != stages.len() {
        violations.push(format!("ARCHITECTURE.md lists {} stages, the code has {}", listed.len(), stages.len()));
    }
    violations
}

/// The stages by their numbers.
fn stages(tree: &SourceTree) -> Vec<Stage<'_>> {
    let files = tree.rust_files().filter_map(|file| Some((file.path.strip_prefix(FOLDER)?.strip_suffix(".rs")?, file)));
    let mut stages: Vec<Stage<'_>> = files
        .filter(|(name, _)| !name.contains('/'))
        .filter_map(|(name, file)| {
            let docs = file.text.lines().take_while(|line| line.starts_with("//!")).map(|line| line.trim_start_matches("//!"));
            let docs = docs.collect::<String>();
            let mut words = docs.split_once("Stage ")?.1.split_whitespace();
            let number = words.next()?.parse().ok()?;
            let count = words.nth(1)?.trim_end_matches(|character: char| !character.is_ascii_digit()).parse().ok()?;
            Some(Stage { name, number, count })
        })
        .collect();
    stages.sort_by_key(|stage| stage.number);
    stages
}

/// True when a stage's file names another stage's module in a path or an import.
fn uses_stage(file: &SourceFile, own: &str, other: &str) -> bool {
    // In the stage's own file `super` is `path`; in a folder below, `super` is the stage and `super::super` is `path`.
    let to_path = if file.path == format!("{FOLDER}{own}.rs") { "super::" } else { "super::super::" };
    named_in_path(file, to_path).iter().any(|name| name == other)
}

/// The names directly in `path` that a file uses, by `crate::path` or by `to_path`, a chain of `super::`.
fn named_in_path(file: &SourceFile, to_path: &str) -> Vec<String> {
    let code: String = without_tests(&code(&file.text)).split_whitespace().collect::<Vec<_>>().join(" ");
    let mut names = Vec::new();
    for root in ["crate::path::", to_path] {
        for (at, _) in code.match_indices(root) {
            let is_inside_longer_path = root == to_path && code[..at].ends_with("::");
            if !is_inside_longer_path {
                names.extend(first_segments(&code[at + root.len()..]));
            }
        }
    }
    for (at, _) in code.match_indices("crate::{") {
        let group = members(&code[at + "crate::".len()..]);
        names.extend(group.iter().filter_map(|member| member.strip_prefix("path::")).flat_map(first_segments));
    }
    names
}

/// The first segments after a path's root: one name, or those of a group `{a, b::c}`.
fn first_segments(rest: &str) -> Vec<String> {
    let segments = if rest.starts_with('{') { members(rest) } else { vec![rest.to_owned()] };
    let names = segments.iter().map(|segment| {
        segment.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect::<String>()
    });
    names.collect()
}

/// The members of the group that a text begins with, nested groups whole.
fn members(group: &str) -> Vec<String> {
    let mut members = vec![String::new()];
    let mut depth = 0_usize;
    for character in group.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if character == ',' && depth == 1 {
            members.push(String::new());
        } else if !(character == '{' && depth == 1) {
            members.last_mut().expect("it begins with a member").push(character);
        }
    }
    members.iter().map(|member| member.trim().to_owned()).filter(|member| !member.is_empty()).collect()
}

/// The numbered items below [`HEADING`]: number and text.
fn listed_stages(architecture: &str) -> Vec<(usize, String)> {
    let section = architecture.split_once(HEADING).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut items: Vec<(usize, String)> = Vec::new();
    for line in section.lines() {
        let numbered = line.split_once(". ").and_then(|(number, text)| Some((number.parse().ok()?, text)));
        match (numbered, items.last_mut()) {
            (Some((number, text)), _) => items.push((number, text.to_owned())),
            (None, Some((_, item))) => {
                item.push(' ');
                item.push_str(line.trim());
            }
            (None, None) => {}
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(files: &[(&str, &str)]) -> SourceTree {
        let owned: Vec<(String, &str)> = files.iter().map(|(name, text)| (format!("{FOLDER}{name}"), *text)).collect();
        SourceTree::of(&owned.iter().map(|(path, text)| (path.as_str(), *text)).collect::<Vec<_>>())
    }

    const FIRST: &str = "//! Reads it. Stage 1 of 2. In: bytes.\nuse super::types::Kind;\n";

    #[test]
    fn stages_that_use_each_other_are_found() {
        for import in [
            "use crate::path::receive::Body;",
            "use super::receive::Body;",
            "use super::{receive, types::Kind};",
            "use crate::{\n    health,\n    path::{types::Kind, receive::Body},\n};",
            "use crate::path::{types::{Kind, Other}, receive};",
            "fn f() { crate::path::receive::run() }",
        ] {
            let second = format!("//! Admits it.\n//! Stage 2 of 2.\n{import}\n");
            let tree = path(&[("receive.rs", FIRST), ("admit.rs", &second)]);
            let expected = "stage `admit` uses stage `receive`";
            assert!(no_stage_uses_another(&tree).first().is_some_and(|found| found.contains(expected)), "{import}");
        }
    }

    #[test]
    fn stages_may_use_their_own_modules_and_shared_types() {
        for import in [
            "use self::reserve::Reserved;\nuse super::types::Body;",
            "// see crate::path::receive\nuse crate::receive::Limits;",
            "#[cfg(test)]\nmod tests { use crate::path::receive::Body; }",
            "fn receive() { self::receive() }",
        ] {
            let second = format!("//! Stage 2 of 2.\n{import}\n");
            let tree = path(&[("receive.rs", FIRST), ("admit.rs", &second), ("admit/reserve.rs", "use super::receive::X;\n")]);
            assert_eq!(no_stage_uses_another(&tree), Vec::<String>::new(), "{import}");
        }
        let below =
            path(&[("receive.rs", FIRST), ("admit.rs", "//! Stage 2 of 2.\n"), ("admit/a.rs", "use super::super::receive::X;\n")]);
        assert_eq!(no_stage_uses_another(&below).len(), 1);
    }

    #[test]
    fn shared_types_that_name_other_modules_of_the_path_are_found() {
        for (file, import) in [
            ("types/a.rs", "use crate::{path::Worker, refusal::Refusal};"),
            ("types/a.rs", "use super::super::Worker;"),
            ("types/a/b.rs", "use super::super::super::{Worker, types::a};"),
            ("types.rs", "use crate::path::Worker;"),
        ] {
            let expected = format!("{FOLDER}{file}: path/types uses `path::Worker`");
            let found = types_use_no_stage(&path(&[(file, import)]));
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{import}: {found:?}");
        }
        for (file, import) in [
            ("types/a.rs", "use super::worker::Worker;\nuse crate::path::types::b::B;"),
            ("types/a/b.rs", "use super::super::worker::Worker;"),
            ("types/a.rs", "#[cfg(test)]\nmod tests { use crate::path::Worker; }"),
            ("admit.rs", "use super::Worker;"),
        ] {
            assert_eq!(types_use_no_stage(&path(&[(file, import)])), Vec::<String>::new(), "{import}");
        }
    }

    #[test]
    fn disagreeing_stage_numbers_are_found() {
        let docs = format!(
            "{HEADING}\n\n1. **Receive** (`path/receive.rs`). Reads.\n2. **Admit**\n   (`path/admit.rs`). Admits.\n\n## Next\n\n3. no\n"
        );
        let tree = |second: &str, docs: &str| {
            let mut tree = path(&[("admit.rs", second), ("receive.rs", FIRST), ("types.rs", "//! Shared types.\n")]);
            tree.files.push(SourceFile { path: "ARCHITECTURE.md".to_owned(), text: docs.to_owned() });
            numbers_agree(&tree)
        };
        assert_eq!(tree("//! Stage 2 of 2.\n", &docs), Vec::<String>::new());
        assert_eq!(tree("//! Stage 3 of 2.\n", &docs).len(), 2);
        assert_eq!(tree("//! Stage 2 of 3.\n", &docs).len(), 1);
        assert_eq!(tree("//! Stage 2 of 2.\n", &docs.replace("`path/admit.rs`", "`path/other.rs`")).len(), 1);
        assert_eq!(tree("//! Stage 2 of 2.\n", &docs.replace("2. ", "")).len(), 2);
        assert_eq!(numbers_agree(&path(&[("a.rs", "//! A.\n")])).len(), 1);
    }
}
