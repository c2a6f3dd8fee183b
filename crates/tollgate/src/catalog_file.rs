//! Catalog files for commands and for the running gateway: reading one with its secrets and planning its changes. Faults
//! carry `FILE:LINE:COLUMN`.

use std::path::Path;

use tollgate_store::{
    KeyScope, PreviewError, Store,
    catalog_file::{self, ApplyMode, CatalogFile, CatalogPlan, FileError, UnreadableFile},
};

use crate::{config, failure::Failure};

/// Reads and checks a catalog file; the failure lists every fault.
pub(crate) fn read(path: &Path) -> Result<CatalogFile, Failure> {
    read_with_text(path).map(|(file, _)| file)
}

/// Reads and checks a catalog file, and returns its text as well.
pub(crate) fn read_with_text(path: &Path) -> Result<(CatalogFile, String), Failure> {
    let text = read_text(path)?;
    Ok((parse(&text).map_err(|unreadable| file_faults(path, &unreadable.faults))?, text))
}

/// Reads and checks a catalog file to serve it from this store, and returns its text as well. The failure lists every fault,
/// including those found only by comparison with the store's catalog.
pub(crate) async fn read_to_serve(store: &Store, path: &Path) -> Result<(CatalogFile, String), Failure> {
    let text = read_text(path)?;
    let unreadable = match parse(&text) {
        Ok(file) => return Ok((file, text)),
        Err(unreadable) => unreadable,
    };
    let faults = match store.catalog.live_rows(&KeyScope::FileAnd(unreadable.key_names())).await {
        Ok(current) => unreadable.faults_beside(&current, ApplyMode::Served),
        Err(_) => unreadable.faults,
    };
    Err(file_faults(path, &faults))
}

pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::invalid(format!("cannot read the catalog file {}: {error}; check the path", path.display())))
}

/// Reads the text of a catalog file, with the secrets it refers to on this machine.
pub(crate) fn parse(text: &str) -> Result<CatalogFile, Box<UnreadableFile>> {
    catalog_file::parse(text, &config::variable, &|file| std::fs::read_to_string(file))
}

/// The changes that serving this file makes to the database.
pub(crate) async fn plan_served(store: &Store, path: &Path, file: &CatalogFile) -> Result<CatalogPlan, Failure> {
    let current = store.catalog.live_rows(&KeyScope::FileAnd(file.key_names())).await?;
    catalog_file::plan(file, &current, ApplyMode::Served).map_err(|faults| file_faults(path, &faults))
}

/// The failure of a preview of this file.
pub(crate) fn preview_failure(path: &Path, error: PreviewError) -> Failure {
    match error {
        PreviewError::File(faults) => file_faults(path, &faults),
        PreviewError::Store(error) => error.into(),
    }
}

/// Number of rows of each kind, such as `2 channels, 1 group`.
pub(crate) fn row_counts(file: &CatalogFile) -> String {
    file.counts()
        .iter()
        .map(|(kind, count)| format!("{count} {kind}{}", if *count == 1 { "" } else { "s" }))
        .collect::<Vec<_>>()
        .join(", ")
}

pub(crate) fn file_faults(path: &Path, faults: &[FileError]) -> Failure {
    Failure::Invalid(
        faults.iter().map(|fault| format!("{}:{}:{}: {}", path.display(), fault.line, fault.column, fault.message)).collect(),
    )
}
