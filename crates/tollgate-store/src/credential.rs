//! Sealed secrets of rows: credentials of accounts, and proxy addresses with a password.

use tollgate_core::Secret;

use crate::{
    StoreError,
    rows::{CatalogRow, RowSecret},
    seal::{SealContext, Sealer},
};

/// Message for a credential that [`can_be_sent`] refuses.
pub(crate) const CANNOT_BE_SENT: &str =
    "must be ASCII without control characters or surrounding spaces; check for a pasted dash or quote";

/// Whether a credential is a valid header value.
pub(crate) fn can_be_sent(credential: &str) -> bool {
    !credential.is_empty() && credential.trim() == credential && credential.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// The seal context of a row's secret.
pub(crate) const fn context(row: &str) -> SealContext<'_> {
    SealContext { table: "catalog_rows", column: "credential", row }
}

pub(crate) fn open(row: &CatalogRow, sealer: &Sealer) -> Result<Option<Secret>, StoreError> {
    let RowSecret::Sealed(sealed) = &row.secret else { return Ok(None) };
    let opened = sealer.open(context(&row.id), sealed)?;
    let text = std::str::from_utf8(&opened).map_err(|_| row.broken("its credential is not text"))?;
    Ok(Some(Secret::new(text.to_owned())))
}
