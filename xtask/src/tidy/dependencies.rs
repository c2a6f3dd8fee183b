//! Rules about manifests: which crate may depend on which, and no unused dependencies.

use toml::{Table, Value};

use super::{
    rust_text::{code, is_identifier, without_tests},
    source_tree::{SourceFile, SourceTree},
};

/// The workspace crates that each crate may depend on: the layers of `ARCHITECTURE.md`.
const LAYERS: [(&str, &[&str]); 5] = [
    ("tollgate-protocol", &[]),
    ("tollgate-core", &["tollgate-protocol"]),
    ("tollgate-store", &["tollgate-protocol", "tollgate-core"]),
    ("tollgate-gateway", &["tollgate-protocol", "tollgate-core", "tollgate-store"]),
    ("tollgate-console", &["tollgate-protocol", "tollgate-core", "tollgate-store"]),
];
/// Crates without I/O, clock and randomness.
const PURE: [&str; 2] = ["tollgate-protocol", "tollgate-core"];
/// Dependencies that a pure crate must not have.
const IMPURE: [&str; 11] =
    ["tokio", "hyper", "sqlx", "redis", "getrandom", "jiff", "async-trait", "tracing", "socket2", "axum", "futures-util"];

/// Dependencies follow the layers, and pure crates stay pure. Development dependencies are free.
pub(crate) fn layers(tree: &SourceTree) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, allowed) in LAYERS {
        let Some(manifest) = tree.file(&format!("crates/{name}/Cargo.toml")) else { continue };
        for dependency in names(&parsed(manifest), "dependencies") {
            if dependency.starts_with("tollgate") && !allowed.contains(&dependency.as_str()) {
                violations.push(format!("{name} depends on {dependency}: dependencies follow the layers of ARCHITECTURE.md"));
            }
            if PURE.contains(&name) && IMPURE.contains(&dependency.as_str()) {
                violations.push(format!("{name} depends on {dependency}: protocol and core do no I/O"));
            }
        }
    }
    violations
}

/// Each dependency is named in the sources of its package, and each workspace dependency in a package's manifest.
/// A plain dependency that only tests name belongs to the development dependencies.
pub(crate) fn unused(tree: &SourceTree) -> Vec<String> {
    let mut violations = Vec::new();
    let mut inherited = Vec::new();
    for manifest in tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        let package = manifest.package();
        let sources = || tree.rust_files().filter(move |file| file.package() == package);
        let everything: String = sources().map(|file| code(&file.text)).collect();
        let product: String = sources().filter(|file| !file.is_test()).map(|file| without_tests(&code(&file.text))).collect();
        let table = parsed(manifest);
        let plain = names(&table, "dependencies").into_iter().map(|name| (name, &product, "outside of tests"));
        let of_tests = ["dev-dependencies", "build-dependencies"].iter().flat_map(|section| names(&table, section));
        for (name, text, place) in plain.chain(of_tests.map(|name| (name, &everything, "at all"))) {
            if !is_used(text, &name.replace('-', "_")) {
                violations.push(format!("{}: nothing uses `{name}` {place}", manifest.path));
            }
            inherited.push(name);
        }
    }
    if let Some(root) = tree.file("Cargo.toml") {
        let shared = parsed(root).get("workspace").and_then(Value::as_table).map(|table| names(table, "dependencies"));
        let unused = shared.into_iter().flatten().filter(|name| !inherited.contains(name));
        violations.extend(unused.map(|name| format!("Cargo.toml: no package uses the workspace dependency `{name}`")));
    }
    violations
}

/// A manifest as a table; empty when it is not TOML, which cargo reports.
fn parsed(manifest: &SourceFile) -> Table {
    manifest.text.parse().unwrap_or_default()
}

fn names(table: &Table, section: &str) -> Vec<String> {
    table.get(section).and_then(Value::as_table).map(|section| section.keys().cloned().collect()).unwrap_or_default()
}

/// True when code names a crate: in a path (`a::b`), in a `use`, or as a macro.
fn is_used(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let inside_word = before.ends_with(is_identifier) || after.starts_with(is_identifier);
        let inside_path = before.ends_with("::") && !before.trim_end_matches("::").ends_with([' ', '(', '<', '&', '\n']);
        let imported = before.trim_end().ends_with("use") && after.starts_with([';', ' ']);
        !inside_word && !inside_path && (imported || after.starts_with("::"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_against_the_layers_is_found() {
        let core = "[dependencies]\ntollgate-store = { path = \"x\" }\ntokio.workspace = true\n[dev-dependencies]\ntollgate-gateway = \"1\"\n";
        let tree = SourceTree::of(&[("crates/tollgate-core/Cargo.toml", core)]);
        let expected = [
            "tollgate-core depends on tollgate-store: dependencies follow the layers of ARCHITECTURE.md",
            "tollgate-core depends on tokio: protocol and core do no I/O",
        ];
        let mut found = layers(&tree);
        found.sort_by_key(|violation| !violation.contains("store"));
        assert_eq!(found, expected);
    }

    #[test]
    fn unused_dependency_is_found() {
        let root = "[workspace.dependencies]\nhttp-body = \"1\"\ntower = \"1\"\nmoka = \"1\"\n";
        let manifest = "[dependencies]\nhttp-body.workspace = true\ntower.workspace = true\nurl = \"2\"\nhex = \"1\"\n\
                        [dev-dependencies]\nproptest = \"1\"\ntempfile = \"1\"\n";
        let source = "use http_body::Body;\n// tower::Service\nfn f(url: crate::url::Url, hex: u8) { tower(url) }\n\
                      #[cfg(test)]\nmod tests { fn g() { hex::encode(1) } }\n";
        let test = "fn f() { proptest::proptest!(); }\n";
        let tree = SourceTree::of(&[
            ("Cargo.toml", root),
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/src/lib.rs", source),
            ("crates/a/tests/it.rs", test),
        ]);
        let mut found = unused(&tree);
        found.sort();
        let expected = [
            "Cargo.toml: no package uses the workspace dependency `moka`",
            "crates/a/Cargo.toml: nothing uses `hex` outside of tests",
            "crates/a/Cargo.toml: nothing uses `tempfile` at all",
            "crates/a/Cargo.toml: nothing uses `tower` outside of tests",
            "crates/a/Cargo.toml: nothing uses `url` outside of tests",
        ];
        assert_eq!(found, expected);
    }
}
