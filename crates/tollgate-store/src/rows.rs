//! Stored rows, the same for every backend: what a change reads and writes within its transaction.

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use tollgate_core::{Owner, Revision, Timestamp};

use crate::{AuditEvent, ChangedRow, KeyHash, KeySecret, RowKind, StoreError};

/// One row of the catalog, or one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Shown form of its id.
    pub(crate) id: String,
    pub(crate) kind: RowKind,
    /// Id of the channel of an account, of the member of a key; empty for others.
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) owner: Owner,
    /// JSON of its spec.
    pub(crate) spec: String,
    pub(crate) secret: RowSecret,
    pub(crate) created_at: Timestamp,
    pub(crate) removed_at: Option<Timestamp>,
}

/// The secret part of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowSecret {
    /// It has none.
    None,
    /// A sealed credential.
    Sealed(Vec<u8>),
    /// A hashed key.
    Key(KeySecret),
}

impl Row {
    /// Its spec, read.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.spec).map_err(|error| StoreError::Row {
            kind: self.kind.as_str(),
            row: self.id.clone(),
            detail: error.to_string(),
        })
    }

    /// Writes its spec.
    pub(crate) fn write(&mut self, spec: &impl Serialize) {
        self.spec = spec_text(spec);
    }

    /// A stored value that cannot be understood.
    pub(crate) fn broken(&self, detail: &str) -> StoreError {
        StoreError::Row { kind: self.kind.as_str(), row: self.id.clone(), detail: detail.to_owned() }
    }
}

/// A spec as it is stored; equal specs have equal texts.
pub(crate) fn spec_text(spec: &impl Serialize) -> String {
    serde_json::to_string(spec).expect("specs have string keys only")
}

/// The word of an owner in the database.
pub(crate) const fn owner_word(owner: Owner) -> &'static str {
    match owner {
        Owner::File => "file",
        Owner::Database => "database",
    }
}

/// A batch that happened under an idempotency key, and the row it wrote first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdempotentBatch {
    pub(crate) key: String,
    pub(crate) fingerprint: [u8; 32],
    pub(crate) at: Timestamp,
    pub(crate) kind: RowKind,
    pub(crate) id: String,
}

impl IdempotentBatch {
    /// How long a repetition is known: 24 hours, in milliseconds.
    pub(crate) const LIFE_MS: i64 = 86_400_000;
}

/// What a batch of changes needs of a backend, inside one transaction. Rows are live unless said otherwise.
#[async_trait]
pub(crate) trait ChangeTransaction: Send {
    /// The id that a new row of this name gets; `None`: any that nobody has.
    fn id_for(&self, kind: RowKind, parent: &str, name: &str) -> Option<String> {
        let _ = (kind, parent, name);
        None
    }

    /// The row of this name under this parent.
    async fn by_name(&mut self, kind: RowKind, parent: &str, name: &str) -> Result<Option<Row>, StoreError>;

    /// The row of this id, removed or not.
    async fn by_id(&mut self, kind: RowKind, id: &str) -> Result<Option<Row>, StoreError>;

    /// The key with this hash.
    async fn by_hash(&mut self, hash: &KeyHash) -> Result<Option<Row>, StoreError>;

    /// All rows of a kind under a parent (`None`: under any), in order of name.
    async fn list(&mut self, kind: RowKind, parent: Option<&str>) -> Result<Vec<Row>, StoreError>;

    /// All rows of a kind that the catalog file owns.
    async fn of_file(&mut self, kind: RowKind) -> Result<Vec<Row>, StoreError>;

    /// The last change of a row; 0 when there was none.
    async fn row_revision(&mut self, id: &str) -> Result<Revision, StoreError>;

    /// What happened under an idempotency key.
    async fn once(&mut self, key: &str) -> Result<Option<IdempotentBatch>, StoreError>;

    /// Notes what happened, and forgets what is a day older.
    async fn remember_once(&mut self, once: &IdempotentBatch) -> Result<(), StoreError>;

    /// Writes a row by id.
    async fn put(&mut self, row: &Row) -> Result<(), StoreError>;

    /// The revision so far.
    async fn revision(&mut self) -> Result<Revision, StoreError>;

    /// Writes the new revision with what changed.
    async fn record(&mut self, revision: Revision, changed: &[ChangedRow], audit: &[AuditEvent]) -> Result<(), StoreError>;
}
