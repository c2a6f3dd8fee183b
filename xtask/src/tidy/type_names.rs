//! Unique type names: a crate has no two types of the same name that other modules can see.

use std::collections::BTreeMap;

use super::{
    rust_text::{code, is_identifier, without_tests},
    source_tree::SourceTree,
};

/// Each name of a visible type (`pub` in any form; struct, enum, trait, union, type alias) is declared once in its crate.
/// Indented aliases are skipped, because they are associated types.
pub(crate) fn duplicates(tree: &SourceTree) -> Vec<String> {
    let mut places: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for file in tree.rust_files().filter(|file| file.path.contains("/src/") && !file.path.contains("/src/bin/") && !file.is_test())
    {
        let code = without_tests(&code(&file.text));
        for (number, line) in code.lines().enumerate() {
            if let Some(name) = visible_type(line) {
                let place = format!("{}:{}", file.path, number + 1);
                places.entry((file.package(), name.to_owned())).or_default().push(place);
            }
        }
    }
    let doubled = places.into_iter().filter(|(_, places)| places.len() > 1);
    doubled
        .map(|((package, name), places)| format!("{package}: `{name}` names {} types: {}", places.len(), places.join(", ")))
        .collect()
}

/// The type that a line declares for other modules.
fn visible_type(line: &str) -> Option<&str> {
    let declaration = line.trim_start().strip_prefix("pub")?;
    let declaration = match declaration.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => declaration,
    };
    let (kind, rest) = declaration.strip_prefix(' ')?.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "union"].contains(&kind) || kind == "type" && line.starts_with("pub");
    let name = &rest[..rest.find(|character| !is_identifier(character)).unwrap_or(rest.len())];
    is_type.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_one_name_are_found() {
        let tree = SourceTree::of(&[
            ("crates/a/src/b.rs", "pub struct Reply<T>(T);\npub(crate) enum Kind {}\nstruct Private;\n"),
            ("crates/a/src/c.rs", "pub(super) trait Reply {}\n// pub struct Kind;\npub(crate) struct Private;\n"),
            ("crates/a/src/c/tests.rs", "pub(crate) struct Kind;\n"),
            ("crates/a/src/d.rs", "#[cfg(test)]\nmod tests {\n    pub struct Kind;\n}\n"),
            ("crates/other/src/lib.rs", "pub struct Kind;\nimpl Codec for A {\n    type Reply = B;\n}\n"),
        ]);
        assert_eq!(duplicates(&tree), ["crates/a: `Reply` names 2 types: crates/a/src/b.rs:1, crates/a/src/c.rs:1"]);
    }
}
