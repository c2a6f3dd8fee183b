//! `apply` and `pull`: the catalog as a file, both ways.

use std::{
    io::{IsTerminal, Write},
    path::Path,
};

use serde_json::json;
use tollgate_store::{
    Actor, Change, Door, KeyScope, Store,
    catalog_file::{self, CatalogFile, CatalogPlan, FileError, Mode},
};

use crate::{
    cli::{Apply, Common},
    command::effects,
    compose, config,
    failure::Failure,
    say,
};

/// Reads and checks a catalog file; every fault at once.
pub(crate) fn read(path: &Path) -> Result<CatalogFile, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::written(format!("cannot read the catalog file {shown}: {error}; check the path")))?;
    catalog_file::parse(&text, &config::variable, &|file| std::fs::read_to_string(file)).map_err(|faults| in_file(path, &faults))
}

/// What a file would change.
pub(crate) async fn plan(store: &Store, path: &Path, file: &CatalogFile, mode: Mode) -> Result<CatalogPlan, Failure> {
    let current = store.catalog.current(&scope(file, mode)).await?;
    catalog_file::plan(file, &current, mode).map_err(|faults| in_file(path, &faults))
}

/// Which keys a file must be compared with.
fn scope(file: &CatalogFile, mode: Mode) -> KeyScope {
    match mode {
        Mode::Apply { prune: true } => KeyScope::All,
        Mode::Apply { prune: false } | Mode::Served => KeyScope::FileAnd(file.key_names()),
    }
}

pub(crate) fn in_file(path: &Path, faults: &[FileError]) -> Failure {
    Failure::Written(
        faults.iter().map(|fault| format!("{}:{}:{}: {}", path.display(), fault.line, fault.column, fault.message)).collect(),
    )
}

/// How many rows of each kind a file names.
pub(crate) fn counts(file: &CatalogFile) -> String {
    file.counts()
        .iter()
        .map(|(kind, count)| format!("{count} {kind}{}", if *count == 1 { "" } else { "s" }))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Plans, asks, applies.
pub(crate) fn apply(common: &Common, arguments: &Apply) -> Result<(), Failure> {
    let file = read(&arguments.file)?;
    compose::block_on(async {
        let store = compose::open_or_make(common).await?;
        let mode = Mode::Apply { prune: arguments.prune };
        let current = store.catalog.current(&scope(&file, mode)).await?;
        let plan = catalog_file::plan(&file, &current, mode).map_err(|faults| in_file(&arguments.file, &faults))?;
        if plan.is_empty() {
            if common.json {
                say::json(&json!({"changes": 0, "lines": []}));
            } else {
                say::line("nothing to change");
            }
            return Ok(());
        }
        let effects = effects::of(&current, &arguments.file, &file, mode).await?;
        let count = plan.changes.iter().filter(|change| !matches!(change, Change::Expect(_))).count();
        let lines: Vec<String> = plan.lines.iter().map(ToString::to_string).collect();
        let mut told = json!({"changes": count, "lines": lines, "excluded_by_price": effects::json(&effects)});
        if !common.json {
            for line in &lines {
                say::line(line);
            }
            effects::print(&effects);
        }
        if arguments.dry_run {
            if common.json {
                say::json(&told);
            }
            return Ok(());
        }
        if !arguments.yes && !confirmed(plan.lines.len())? {
            return Ok(());
        }
        let actor = Actor { door: Door::Cli, name: arguments.file.display().to_string() };
        let revision = store.catalog.apply(&plan.changes, &actor, compose::now()).await?;
        if common.json {
            told["revision"] = json!(revision);
            say::json(&told);
        } else {
            say::line(&format!("applied; the catalog is at revision {}", revision.0));
        }
        Ok(())
    })
}

/// Asks on a terminal; without one `--yes` is needed.
fn confirmed(lines: usize) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("there is no terminal to confirm on; look at the plan and repeat with --yes".to_owned()));
    }
    say::raw(format!("apply these {lines} changes? [y/N] ").as_bytes());
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Prints the current catalog.
pub(crate) fn pull(common: &Common) -> Result<(), Failure> {
    let text = compose::block_on(async {
        let store = compose::open(common).await?;
        Ok(catalog_file::render(&store.catalog.current(&KeyScope::All).await?))
    })?;
    if common.json {
        say::json(&json!({"catalog": text}));
    } else {
        say::raw(text.as_bytes());
    }
    Ok(())
}
