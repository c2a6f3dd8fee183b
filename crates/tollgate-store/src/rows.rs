//! Stored rows, the same for every backend, and the transaction through which a batch of changes reads and writes them.

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use tollgate_core::{Owner, Revision, Timestamp};

use crate::{
    AuditEvent, ChangedRow, KeyHash, KeySecret, OfferChange, PriceChange, RowKind, StoreError, identity_rows::IdentityTransaction,
};

/// One row of the catalog, or one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogRow {
    /// Id with its prefix.
    pub(crate) id: String,
    pub(crate) kind: RowKind,
    /// Id of an account's channel, or of the member of a key or admin key; empty if there is none.
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) owner: Owner,
    /// The spec as JSON.
    pub(crate) spec: String,
    pub(crate) secret: RowSecret,
    pub(crate) created_at: Timestamp,
    pub(crate) removed_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowSecret {
    None,
    Sealed(Vec<u8>),
    Key(KeySecret),
}

impl CatalogRow {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.spec).map_err(|error| StoreError::Row {
            kind: self.kind.as_str(),
            row: self.id.clone(),
            detail: error.to_string(),
        })
    }

    pub(crate) fn write(&mut self, spec: &impl Serialize) {
        self.spec = spec_text(spec);
    }

    /// The error of a row with an invalid value.
    pub(crate) fn broken(&self, detail: &str) -> StoreError {
        StoreError::Row { kind: self.kind.as_str(), row: self.id.clone(), detail: detail.to_owned() }
    }
}

/// The stored text of a spec; equal specs have equal texts.
pub(crate) fn spec_text(spec: &impl Serialize) -> String {
    serde_json::to_string(spec).expect("specs have string keys only")
}

pub(crate) const fn owner_word(owner: Owner) -> &'static str {
    match owner {
        Owner::File => "file",
        Owner::Database => "database",
    }
}

/// A batch applied under an idempotency key, and the first row it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdempotentBatch {
    pub(crate) key: String,
    pub(crate) fingerprint: [u8; 32],
    pub(crate) at: Timestamp,
    pub(crate) kind: RowKind,
    pub(crate) id: String,
}

impl IdempotentBatch {
    /// How long a batch is kept, in milliseconds: 24 hours.
    pub(crate) const LIFE_MS: i64 = 86_400_000;
}

/// The records that a batch of changes writes besides the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRecord<'a> {
    pub(crate) changed: &'a [ChangedRow],
    pub(crate) audit: &'a [AuditEvent],
    pub(crate) prices: &'a [PriceChange],
    pub(crate) offers: &'a [OfferChange],
}

/// The operations a backend provides to a batch of changes, all in one transaction. Rows are live unless stated otherwise.
#[async_trait]
pub(crate) trait ChangeTransaction: IdentityTransaction {
    /// The id for a new row of this name; `None`: a random one.
    fn id_for(&self, kind: RowKind, parent: &str, name: &str) -> Option<String> {
        let _ = (kind, parent, name);
        None
    }

    async fn by_name(&mut self, kind: RowKind, parent: &str, name: &str) -> Result<Option<CatalogRow>, StoreError>;

    /// The row with this id, removed or not.
    async fn by_id(&mut self, kind: RowKind, id: &str) -> Result<Option<CatalogRow>, StoreError>;

    async fn by_hash(&mut self, hash: &KeyHash) -> Result<Option<CatalogRow>, StoreError>;

    /// All rows of a kind, ordered by name; with `parent`, only those under it.
    async fn list(&mut self, kind: RowKind, parent: Option<&str>) -> Result<Vec<CatalogRow>, StoreError>;

    /// All rows of a kind owned by the catalog file.
    async fn of_file(&mut self, kind: RowKind) -> Result<Vec<CatalogRow>, StoreError>;

    /// The revision of a row's last change; 0 if it never changed.
    async fn row_revision(&mut self, id: &str) -> Result<Revision, StoreError>;

    async fn idempotent_batch(&mut self, key: &str) -> Result<Option<IdempotentBatch>, StoreError>;

    /// Stores an applied batch, and deletes those that are older by [`IdempotentBatch::LIFE_MS`].
    async fn put_idempotent_batch(&mut self, batch: &IdempotentBatch) -> Result<(), StoreError>;

    async fn put(&mut self, row: &CatalogRow) -> Result<(), StoreError>;

    async fn revision(&mut self) -> Result<Revision, StoreError>;

    /// The list that the current price was imported from; `None` if it was set by hand, or if there is none. With `channel`: of the cost
    /// on that channel.
    async fn imported_from(&mut self, model: &str, channel: Option<&str>) -> Result<Option<String>, StoreError>;

    /// Writes the new revision and the record of its batch.
    async fn record(&mut self, revision: Revision, batch: &BatchRecord<'_>) -> Result<(), StoreError>;
}
