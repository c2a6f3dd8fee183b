//! Rows as the admin API shows them: page by page, with id, owner and revision; and admin keys by their hash.

use std::fmt;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tollgate_core::{AdminKeyId, Key, KeyId, Owner, Revision, Timestamp};

use crate::{
    AdminKeySpec, AdminScope, AuditEvent, KeyHash, RowKind, StoreError,
    rows::{Row, RowSecret},
};

/// Shows what is configured, row by row.
#[async_trait]
pub trait ListingStore: Send + Sync + fmt::Debug {
    /// Rows in order of their ids, which is the order in which they were made.
    async fn page(&self, filter: &RowFilter) -> Result<Vec<StoredRow>, StoreError>;

    /// One row by its shown id, removed or not.
    async fn row(&self, kind: RowKind, id: &str) -> Result<Option<StoredRow>, StoreError>;

    /// One service key with its member, whatever its status.
    async fn key(&self, id: KeyId) -> Result<Option<Key>, StoreError>;

    /// Lines of the audit log, newest first.
    async fn audit_page(&self, filter: &AuditFilter) -> Result<Vec<(AuditPosition, AuditEvent)>, StoreError>;

    /// The admin key with this hash, if it works at this time.
    async fn admin_key(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<AdminKey>, StoreError>;
}

/// Which rows. What is absent does not bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFilter {
    /// Of this kind.
    pub kind: RowKind,
    /// Under the row with this id: the channel of accounts, the member of keys.
    pub parent: Option<String>,
    /// Of this name.
    pub name: Option<String>,
    /// Removed and revoked ones too.
    pub removed: bool,
    /// Behind this id.
    pub after: Option<String>,
    /// At most so many; never more than 1,001, which is one more than the largest page.
    pub limit: u32,
}

impl RowFilter {
    /// All live rows of a kind.
    #[must_use]
    pub const fn of(kind: RowKind, limit: u32) -> Self {
        Self { kind, parent: None, name: None, removed: false, after: None, limit }
    }

    pub(crate) const fn size(&self) -> usize {
        if self.limit > 1_001 { 1_001 } else { self.limit as usize }
    }
}

/// Which lines of the audit log. What is absent does not bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// About this kind of row.
    pub kind: Option<RowKind>,
    /// About the row with this id.
    pub id: Option<String>,
    /// Only those before this place.
    pub before: Option<AuditPosition>,
    /// At most so many; never more than 1,001.
    pub limit: u32,
}

/// The place of a line in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditPosition {
    /// With which revision.
    pub revision: Revision,
    /// Its place among the lines of that revision.
    pub position: i64,
}

/// One row, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Id in the shown form.
    pub id: String,
    /// Id of the channel of an account, of the member of a key; empty for others.
    pub parent: String,
    /// Name.
    pub name: String,
    /// Who owns it.
    pub owner: Owner,
    /// First and last characters of a key's secret.
    pub shown: Option<(String, String)>,
    /// Whether a secret is kept with it that goes to others: an account's credential, the password of a channel's proxy.
    pub keeps_secret: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was removed or revoked.
    pub removed_at: Option<Timestamp>,
    /// Its last change.
    pub revision: Revision,
    kind: RowKind,
    spec: String,
}

impl StoredRow {
    /// A row that is not there, as it would be: its id is all zeros, its revision 0.
    #[must_use]
    pub fn draft(kind: RowKind, prefix: &str, name: &str, now: Timestamp) -> Self {
        Self {
            id: format!("{prefix}{}", "0".repeat(26)),
            parent: String::new(),
            name: name.to_owned(),
            owner: Owner::Database,
            shown: None,
            keeps_secret: false,
            created_at: now,
            removed_at: None,
            revision: Revision(0),
            kind,
            spec: String::new(),
        }
    }

    pub(crate) fn of(row: &Row, revision: Revision) -> Self {
        let shown = match &row.secret {
            RowSecret::Key(secret) => Some((secret.prefix.clone(), secret.suffix.clone())),
            RowSecret::None | RowSecret::Sealed(_) => None,
        };
        Self {
            id: row.id.clone(),
            parent: row.parent.clone(),
            name: row.name.clone(),
            owner: row.owner,
            shown,
            keeps_secret: matches!(row.secret, RowSecret::Sealed(_)),
            created_at: row.created_at,
            removed_at: row.removed_at,
            revision,
            kind: row.kind,
            spec: row.spec.clone(),
        }
    }

    /// Its spec, read.
    ///
    /// # Errors
    /// When what is stored cannot be understood.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.spec).map_err(|error| StoreError::Row {
            kind: self.kind.as_str(),
            row: self.id.clone(),
            detail: error.to_string(),
        })
    }
}

/// An admin key that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminKey {
    /// Id.
    pub id: AdminKeyId,
    /// Name.
    pub name: String,
    /// What it may do.
    pub scope: AdminScope,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

impl AdminKey {
    pub(crate) fn of(row: &Row) -> Result<Self, StoreError> {
        let spec: AdminKeySpec = row.read()?;
        let id = AdminKeyId::parse(&row.id).ok_or_else(|| row.broken("its id is not one"))?;
        Ok(Self { id, name: spec.name, scope: spec.scope, expires_at: spec.expires_at })
    }

    pub(crate) fn works(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| end > now)
    }
}
