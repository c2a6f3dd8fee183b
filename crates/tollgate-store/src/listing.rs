//! Rows and the audit log page by page, as the admin API lists them, and the look-up of admin keys.

use std::fmt;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tollgate_core::{AdminKeyId, Key, KeyId, Owner, Revision, Timestamp};

use crate::{
    AdminKeySpec, AdminScope, AuditEvent, AuditKind, ImportedPrice, KeyHash, PriceChange, PriceHistoryFilter, PriceHistoryPosition,
    RowKind, StoreError,
    rows::{CatalogRow, RowSecret},
};

#[async_trait]
pub trait ListingStore: Send + Sync + fmt::Debug {
    /// Rows ordered by id, which is the order of their creation.
    async fn page(&self, filter: &RowFilter) -> Result<Vec<StoredRow>, StoreError>;

    /// One row by id, removed or not.
    async fn row(&self, kind: RowKind, id: &str) -> Result<Option<StoredRow>, StoreError>;

    /// One service key with its member, in any status.
    async fn key(&self, id: KeyId) -> Result<Option<Key>, StoreError>;

    /// Events of the audit log, newest first.
    async fn audit_page(&self, filter: &AuditFilter) -> Result<Vec<(AuditPosition, AuditEvent)>, StoreError>;

    /// Changes of the prices of a model, newest first.
    async fn price_history(&self, filter: &PriceHistoryFilter) -> Result<Vec<(PriceHistoryPosition, PriceChange)>, StoreError>;

    /// The prices whose last change was an import, by model and channel.
    async fn imported_prices(&self) -> Result<Vec<ImportedPrice>, StoreError>;

    /// The admin key with this hash, unless it is revoked or expired.
    async fn admin_key(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<AdminKey>, StoreError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFilter {
    pub kind: RowKind,
    /// Only rows under the row with this id: accounts of a channel, keys of a member.
    pub parent: Option<String>,
    pub name: Option<String>,
    pub removed: bool,
    pub after: Option<String>,
    /// Maximum number of rows; capped at 1,001, one more than the largest page.
    pub limit: u32,
}

impl RowFilter {
    pub const fn of(kind: RowKind, limit: u32) -> Self {
        Self { kind, parent: None, name: None, removed: false, after: None, limit }
    }

    pub(crate) const fn size(&self) -> usize {
        if self.limit > 1_001 { 1_001 } else { self.limit as usize }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub kind: Option<AuditKind>,
    pub id: Option<String>,
    /// Only events about rows of this name.
    pub name: Option<String>,
    /// Only changes by this author: the whole text, or an admin key's name without its id.
    pub actor: Option<String>,
    /// Only events at or after this time.
    pub since: Option<Timestamp>,
    /// Only events before this time.
    pub until: Option<Timestamp>,
    pub before: Option<AuditPosition>,
    /// Maximum number of events; capped at 1,001.
    pub limit: u32,
}

impl AuditFilter {
    /// Whether the author is the one that is looked for.
    #[must_use]
    pub fn has_actor(&self, actor: &str) -> bool {
        let is_key = |name: &str| actor.strip_prefix(name).is_some_and(|rest| rest.starts_with(" ("));
        self.actor.as_ref().is_none_or(|wanted| wanted == actor || is_key(wanted))
    }

    /// Whether a time is within the range.
    #[must_use]
    pub fn has_time(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }
}

/// The position of an event in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditPosition {
    pub revision: Revision,
    pub position: i64,
}

/// One row, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Id with its prefix.
    pub id: String,
    /// Id of an account's channel or of a key's member; empty for other kinds.
    pub parent: String,
    pub name: String,
    pub owner: Owner,
    /// First and last characters of a key's secret.
    pub shown: Option<(String, String)>,
    /// Whether a sealed secret is stored with the row: an account's credential, or the password of a channel's proxy.
    pub keeps_secret: bool,
    pub created_at: Timestamp,
    pub removed_at: Option<Timestamp>,
    pub revision: Revision,
    kind: RowKind,
    spec: String,
}

impl StoredRow {
    /// A row that does not exist yet: its id is all zeros, its revision 0.
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

    pub(crate) fn of(row: &CatalogRow, revision: Revision) -> Self {
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

    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.spec).map_err(|error| StoreError::Row {
            kind: self.kind.as_str(),
            row: self.id.clone(),
            detail: error.to_string(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminKey {
    pub id: AdminKeyId,
    pub name: String,
    pub scope: AdminScope,
    pub expires_at: Option<Timestamp>,
}

impl AdminKey {
    pub(crate) fn of(row: &CatalogRow) -> Result<Self, StoreError> {
        let spec: AdminKeySpec = row.read()?;
        let id = AdminKeyId::parse(&row.id).ok_or_else(|| row.broken("its id is malformed"))?;
        Ok(Self { id, name: spec.name, scope: spec.scope, expires_at: spec.expires_at })
    }

    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| end > now)
    }
}
