//! Imports a price list as a job. The command shows the difference and asks first, so it uses the admin API's own route instead.

use serde_json::Value;
use tollgate_console::{ImportFailure, ImportRequest};
use tollgate_store::{StoreError, WorkControl};

use super::with_store;
use crate::{compose, config::Config, failure::Failure};

/// Why nothing was imported.
#[derive(Debug)]
pub(crate) enum ImportError {
    Import(ImportFailure),
    Other(Failure),
}

impl From<Failure> for ImportError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl From<ImportFailure> for ImportError {
    fn from(failure: ImportFailure) -> Self {
        match failure {
            ImportFailure::Store(error) => Self::Other(StoreError::into(error)),
            failure @ (ImportFailure::List { .. } | ImportFailure::Refused(_)) => Self::Import(failure),
        }
    }
}

/// Imports a list into the catalog of these settings, and returns the result of the job.
pub(crate) fn import(config: &Config, request: ImportRequest, control: &WorkControl) -> Result<Value, ImportError> {
    with_store(config, control, async |store| Ok(request.run(store, compose::now, control).await?))
}
