//! Catalog files for commands and for the running gateway: reading one with its secrets and planning what it changes. Faults
//! carry `FILE:LINE:COLUMN`.

use std::path::Path;

use tollgate_store::{
    KeyScope, PreviewError, Store,
    catalog_file::{self, ApplyMode, CatalogFile, CatalogPlan, FileError},
};

use crate::{config, failure::Failure};

/// Reads and checks a catalog file; the failure lists every fault.
pub(crate) fn read(path: &Path) -> Result<CatalogFile, Failure> {
    read_with_text(path).map(|(file, _)| file)
}

/// Reads and checks a catalog file, and returns its text as well.
pub(crate) fn read_with_text(path: &Path) -> Result<(CatalogFile, String), Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::invalid(format!("cannot read the catalog file {shown}: {error}; check the path")))?;
    let file = catalog_file::parse(&text, &config::variable, &|file| std::fs::read_to_string(file));
    Ok((file.map_err(|faults| file_faults(path, &faults))?, text))
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
