//! Rows of the catalog, keys and events of the audit log: their selection and decoding.

use sqlx::{
    Any, AssertSqlSafe, Row as _,
    any::{AnyArguments, AnyRow},
};
use tollgate_core::{Owner, Revision, Timestamp};

use crate::{
    AuditEvent, AuditKind, KeyHash, KeySecret, PreviousSecret, RowKind, StoreError,
    rows::{CatalogRow, RowSecret, owner_word},
};

/// A query of a database, through sqlx's `Any` driver.
pub(super) type AnyQuery<'q> = sqlx::query::Query<'q, Any, AnyArguments>;

/// A stored number of rows or bytes, which is never negative.
pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// As [`select`], with the revision of each row's last change in the column `revision`.
pub(super) fn select_with_revision(kind: RowKind, rest: &str) -> AnyQuery<'static> {
    const REVISION: &str = "COALESCE((SELECT MAX(revision) FROM changes WHERE changes.id = t.id), 0) AS revision";
    sqlx::query(AssertSqlSafe(format!("SELECT t.*, {REVISION} FROM ({}) AS t {rest}", columns_of(kind))))
}

/// Selects rows of a kind, in one shape for all kinds; decoded by [`catalog_row`]. The database owns admin keys.
pub(super) fn select(kind: RowKind, rest: &str) -> AnyQuery<'static> {
    sqlx::query(AssertSqlSafe(format!("SELECT * FROM ({}) AS t {rest}", columns_of(kind))))
}

pub(super) const fn columns_of(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Key => {
            "SELECT id, 'key' AS kind, parent, name, owner, spec, created_at, removed_at, hash, prefix, suffix, \
             previous_hash, previous_until FROM service_keys"
        }
        RowKind::AdminKey => {
            "SELECT id, 'admin_key' AS kind, parent, name, 'database' AS owner, spec, created_at, removed_at, hash, prefix, \
             suffix FROM admin_keys"
        }
        RowKind::Channel
        | RowKind::Account
        | RowKind::Model
        | RowKind::Group
        | RowKind::Member
        | RowKind::Setting
        | RowKind::AlertDestination => {
            "SELECT id, kind, parent, name, owner, spec, created_at, removed_at, credential FROM catalog_rows"
        }
    }
}

pub(super) fn catalog_row(row: &AnyRow) -> Result<CatalogRow, StoreError> {
    let decode = |error: sqlx::Error| {
        let id = row.try_get::<String, _>(0).unwrap_or_default();
        StoreError::Row { kind: "catalog", row: id, detail: error.to_string() }
    };
    let text = |at: usize| row.try_get::<String, _>(at).map_err(decode);
    let (kind, owner) = (text(1)?, text(4)?);
    let mut read = CatalogRow {
        id: text(0)?,
        kind: RowKind::Channel,
        parent: text(2)?,
        name: text(3)?,
        owner: Owner::Database,
        spec: text(5)?,
        secret: RowSecret::None,
        created_at: row.try_get(6).map(Timestamp).map_err(decode)?,
        removed_at: row.try_get::<Option<i64>, _>(7).map_err(decode)?.map(Timestamp),
    };
    read.kind = RowKind::parse(&kind).ok_or_else(|| read.broken("its kind is not known"))?;
    let known = [Owner::File, Owner::Database].into_iter().find(|known| owner_word(*known) == owner);
    read.owner = known.ok_or_else(|| read.broken("its owner is not known"))?;
    read.secret = if matches!(read.kind, RowKind::Key | RowKind::AdminKey) {
        let hash = |bytes: Vec<u8>| bytes.try_into().map(KeyHash).map_err(|_| read.broken("its hash does not have 32 bytes"));
        let is_service_key = read.kind == RowKind::Key;
        let previous =
            if is_service_key { (row.try_get(11).map_err(decode)?, row.try_get(12).map_err(decode)?) } else { (None, None) };
        let previous = match previous {
            (Some(bytes), Some(until)) => Some(PreviousSecret { hash: hash(bytes)?, until: Timestamp(until) }),
            (None, _) | (_, None) => None,
        };
        RowSecret::Key(KeySecret { hash: hash(row.try_get(8).map_err(decode)?)?, prefix: text(9)?, suffix: text(10)?, previous })
    } else {
        row.try_get::<Option<Vec<u8>>, _>(8).map_err(decode)?.map_or(RowSecret::None, RowSecret::Sealed)
    };
    Ok(read)
}

/// The columns of an audit event.
pub(super) const AUDIT_COLUMNS: &str = "revision, at, origin, actor, action, kind, id, name, detail, address";

/// An audit event, from the columns [`AUDIT_COLUMNS`].
pub(super) fn audit_event(row: &AnyRow) -> Result<AuditEvent, sqlx::Error> {
    let kind: String = row.try_get(5)?;
    let kind = AuditKind::parse(&kind).ok_or_else(|| sqlx::Error::Decode(format!("kind '{kind}' is not known").into()))?;
    Ok(AuditEvent {
        revision: Revision(row.try_get(0)?),
        at: Timestamp(row.try_get(1)?),
        origin: row.try_get(2)?,
        actor: row.try_get(3)?,
        action: row.try_get(4)?,
        kind,
        id: row.try_get(6)?,
        name: row.try_get(7)?,
        detail: row.try_get(8)?,
        address: row.try_get(9)?,
    })
}
