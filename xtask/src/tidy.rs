//! `cargo xtask tidy`: the house rules that no compiler knows. Also a test of this crate.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::shell;

/// Files above this many lines are worth a look; above [`TOO_LONG`] they fail.
const LONG: usize = 500;
const TOO_LONG: usize = 800;

/// No product crate may hold more than this share of the workspace's lines.
const LARGEST_SHARE: f64 = 0.40;

/// Checks every rule and reports every fault at once.
pub(crate) fn run() -> Result<()> {
    let root = shell::root();
    let mut faults = Vec::new();
    let files = sources(&root)?;
    sizes(&root, &files, &mut faults);
    module_docs(&root, &files, &mut faults);
    sql_only_in_store(&root, &files, &mut faults);
    layers(&mut faults)?;
    words(&root, &mut faults);
    error_rows_documented(&root, &mut faults);
    metrics_documented(&root, &mut faults);
    if faults.is_empty() {
        println!("tidy: {} source files, no faults", files.len());
        return Ok(());
    }
    for fault in &faults {
        println!("tidy: {fault}");
    }
    bail!("tidy found {} faults", faults.len())
}

/// Every Rust file of the workspace, the fuzz targets beside it included.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in ["crates", "xtask", "bench", "fuzz"] {
        collect(&root.join(folder), &mut found)?;
    }
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("target") && !path.ends_with("fixtures") {
                collect(&path, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether a file holds tests only; those may be longer.
fn is_test(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.contains("/tests/") || text.ends_with("/tests.rs") || text.contains("/benches/") || text.contains("/conformance/")
}

fn sizes(root: &Path, files: &[PathBuf], faults: &mut Vec<String>) {
    let mut by_crate: BTreeMap<String, usize> = BTreeMap::new();
    let mut total = 0;
    for path in files {
        let lines = fs::read_to_string(path).map_or(0, |text| text.lines().count());
        total += lines;
        let shown = path.strip_prefix(root).unwrap_or(path).display();
        if !is_test(path) {
            if lines > TOO_LONG {
                faults.push(format!("{shown} has {lines} lines (limit {TOO_LONG}): split the room"));
            } else if lines > LONG {
                println!("tidy: note: {shown} has {lines} lines (aim is at most {LONG})");
            }
        }
        let relative = path.strip_prefix(root.join("crates")).ok();
        if let Some(name) = relative.and_then(|path| path.iter().next())
            && name != "tollgate-testkit"
        {
            *by_crate.entry(name.to_string_lossy().into_owned()).or_default() += lines;
        }
    }
    for (name, lines) in by_crate {
        #[expect(clippy::cast_precision_loss, reason = "a share needs no exact lines")]
        let share = lines as f64 / total as f64;
        if share > LARGEST_SHARE {
            faults.push(format!(
                "{name} holds {:.1} % of the workspace's lines (limit {:.0} %)",
                share * 100.0,
                LARGEST_SHARE * 100.0
            ));
        }
    }
}

/// Each file says in its first lines what it is.
fn module_docs(root: &Path, files: &[PathBuf], faults: &mut Vec<String>) {
    for path in files {
        let first = fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        if !first.starts_with("//!") && !first.starts_with("#!") {
            faults.push(format!("{} does not begin with a module doc (`//!`)", path.strip_prefix(root).unwrap_or(path).display()));
        }
    }
}

/// Invariant 3: SQL appears only in the store.
fn sql_only_in_store(root: &Path, files: &[PathBuf], faults: &mut Vec<String>) {
    let statements = ["SELECT ", "INSERT INTO ", "UPDATE usage", "DELETE FROM ", "CREATE TABLE"];
    for path in files {
        let shown = path.strip_prefix(root).unwrap_or(path);
        if shown.starts_with("crates/tollgate-store") || shown.starts_with("xtask") || is_test(path) {
            continue;
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            if !line.trim_start().starts_with("//") && statements.iter().any(|statement| line.contains(statement)) {
                faults.push(format!("{}:{}: SQL outside the store", shown.display(), number + 1));
            }
        }
    }
}

/// Invariants 1 and 2: what each crate may depend on.
fn layers(faults: &mut Vec<String>) -> Result<()> {
    let metadata = shell::output(&mut shell::cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let impure =
        ["tokio", "hyper", "sqlx", "redis", "getrandom", "jiff", "async-trait", "tracing", "socket2", "axum", "futures-util"];
    let ours_allowed: &[(&str, &[&str])] = &[
        ("tollgate-protocol", &[]),
        ("tollgate-core", &["tollgate-protocol"]),
        ("tollgate-store", &["tollgate-protocol", "tollgate-core"]),
        ("tollgate-gateway", &["tollgate-protocol", "tollgate-core", "tollgate-store"]),
        ("tollgate-console", &["tollgate-protocol", "tollgate-core", "tollgate-store"]),
    ];
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ours_allowed.iter().find(|(known, _)| *known == name) else { continue };
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        for dependency in dependencies.iter().filter(|dependency| dependency["kind"].is_null()) {
            let on = dependency["name"].as_str().unwrap_or_default();
            if on.starts_with("tollgate") && !allowed.contains(&on) {
                faults.push(format!("{name} depends on {on}: the layers are a straight line"));
            }
            if ["tollgate-protocol", "tollgate-core"].contains(&name) && impure.contains(&on) {
                faults.push(format!("{name} depends on {on}: protocol and core are pure"));
            }
        }
    }
    Ok(())
}

/// Words that must not stand in the product: paths of one machine, unfinished work.
fn words(root: &Path, faults: &mut Vec<String>) {
    let unfinished = ["to", "do!("].concat();
    let fix = ["FIX", "ME"].concat();
    let homes = ["root", "home"].map(|folder| format!("/{folder}/"));
    let listed = shell::output(Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(root));
    let Ok(listed) = listed else { return };
    for name in listed.lines().filter(|name| {
        let path = Path::new(name);
        path.extension().is_some_and(|extension| ["rs", "md", "toml", "py", "mjs", "sh"].iter().any(|wanted| extension == *wanted))
    }) {
        let text = fs::read_to_string(root.join(name)).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            if line.contains(&unfinished) || line.contains(&fix) {
                faults.push(format!("{name}:{}: unfinished work", number + 1));
            }
            if homes.iter().any(|home| line.contains(home)) {
                faults.push(format!("{name}:{}: a path of one machine", number + 1));
            }
        }
    }
}

/// Each error id the gateway can answer is explained in `docs/errors.md`.
fn error_rows_documented(root: &Path, faults: &mut Vec<String>) {
    let docs = fs::read_to_string(root.join("docs/errors.md")).unwrap_or_default();
    let gateway = root.join("crates/tollgate-gateway/src");
    let mut files = Vec::new();
    if collect(&gateway, &mut files).is_err() {
        return;
    }
    let mut missing: Vec<String> = files
        .iter()
        .filter(|path| path.to_string_lossy().contains("refusal"))
        .flat_map(|path| error_ids(&fs::read_to_string(path).unwrap_or_default()))
        .filter(|id| !docs.contains(&format!("| {id} ")))
        .collect();
    missing.sort();
    missing.dedup();
    for id in missing {
        faults.push(format!("docs/errors.md does not explain {id}"));
    }
}

/// Each metric stands in the operating manual.
fn metrics_documented(root: &Path, faults: &mut Vec<String>) {
    let source = fs::read_to_string(root.join("crates/tollgate-gateway/src/metrics.rs")).unwrap_or_default();
    let docs = fs::read_to_string(root.join("docs/operating.md")).unwrap_or_default();
    let names = first_literals(&source, "registry.register(");
    if names.is_empty() {
        faults
            .push("no metric is registered in crates/tollgate-gateway/src/metrics.rs: this check looks in the wrong place".into());
    }
    for name in names {
        // Counters and infos get an ending when they are written, so the name itself may not end there.
        if !["`", "_total`", "_info`"].iter().any(|end| docs.contains(&format!("`tollgate_{name}{end}"))) {
            faults.push(format!("docs/operating.md does not explain the metric tollgate_{name}"));
        }
    }
}

/// The first string literal behind each occurrence of `call`, where it is the first argument.
fn first_literals<'a>(text: &'a str, call: &str) -> Vec<&'a str> {
    let arguments = text.split(call).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    arguments.filter_map(|rest| rest.split('"').next()).collect()
}

/// String literals of the form `"E40"`.
fn error_ids(text: &str) -> Vec<String> {
    text.split('"')
        .filter(|piece| piece.len() == 3 || piece.len() == 2)
        .filter(|piece| piece.starts_with('E') && piece[1..].bytes().all(|byte| byte.is_ascii_digit()))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_house_is_tidy() {
        super::run().expect("tidy");
    }

    #[test]
    fn first_arguments_are_found_in_source_text() {
        let text = "fn f(a) { f(\"a\", 1); f(\n    \"b.c\",\n); f(name) }";
        assert_eq!(super::first_literals(text, "f("), ["a", "b.c"]);
    }

    #[test]
    fn error_ids_are_found_in_source_text() {
        assert_eq!(super::error_ids(r#"Self::KeyMissing => "E1", Self::X => "E40", "Ex""#), ["E1", "E40"]);
    }
}
