//! Columns of catalog rows, keys and audit events, and their decoding.

use sqlx::{Row as _, any::AnyRow};
use tollgate_core::{Owner, Revision, Timestamp};

use crate::{
    AuditEvent, KeyHash, KeySecret, RowKind, StoreError,
    rows::{CatalogRow, RowSecret, owner_word},
};

/// Columns of catalog rows, in the order of [`catalog_row`].
macro_rules! select_row {
    ($rest:literal) => {
        concat!("SELECT id, kind, parent, name, owner, spec, credential, created_at, removed_at FROM catalog_rows ", $rest)
    };
}

/// Columns of keys, in the order of [`key_row`].
macro_rules! select_key {
    ($rest:literal) => {
        concat!("SELECT id, parent, name, owner, spec, hash, prefix, suffix, created_at, removed_at FROM service_keys ", $rest)
    };
}
pub(super) use {select_key, select_row};

/// The error of a row whose columns cannot be decoded.
fn decode(row: &AnyRow, error: &sqlx::Error) -> StoreError {
    let id = row.try_get::<String, _>(0).unwrap_or_default();
    StoreError::Row { kind: "catalog", row: id, detail: error.to_string() }
}

pub(super) fn catalog_row(row: &AnyRow) -> Result<CatalogRow, StoreError> {
    let read = || -> Result<(CatalogRow, String, String), sqlx::Error> {
        let credential: Option<Vec<u8>> = row.try_get(6)?;
        let read = CatalogRow {
            id: row.try_get(0)?,
            kind: RowKind::Channel,
            parent: row.try_get(2)?,
            name: row.try_get(3)?,
            owner: Owner::Database,
            spec: row.try_get(5)?,
            secret: credential.map_or(RowSecret::None, RowSecret::Sealed),
            created_at: Timestamp(row.try_get(7)?),
            removed_at: row.try_get::<Option<i64>, _>(8)?.map(Timestamp),
        };
        Ok((read, row.try_get(1)?, row.try_get(4)?))
    };
    let (mut read, kind, owner) = read().map_err(|error| decode(row, &error))?;
    read.kind = RowKind::parse(&kind).ok_or_else(|| read.broken("its kind is not known"))?;
    read.owner = parse_owner(&owner).ok_or_else(|| read.broken("its owner is not known"))?;
    Ok(read)
}

pub(super) fn key_row(row: &AnyRow) -> Result<CatalogRow, StoreError> {
    let read = || -> Result<(CatalogRow, String, Vec<u8>, String, String), sqlx::Error> {
        let read = CatalogRow {
            id: row.try_get(0)?,
            kind: RowKind::Key,
            parent: row.try_get(1)?,
            name: row.try_get(2)?,
            owner: Owner::Database,
            spec: row.try_get(4)?,
            secret: RowSecret::None,
            created_at: Timestamp(row.try_get(8)?),
            removed_at: row.try_get::<Option<i64>, _>(9)?.map(Timestamp),
        };
        Ok((read, row.try_get(3)?, row.try_get(5)?, row.try_get(6)?, row.try_get(7)?))
    };
    let (mut read, owner, hash, prefix, suffix) = read().map_err(|error| decode(row, &error))?;
    read.owner = parse_owner(&owner).ok_or_else(|| read.broken("its owner is not known"))?;
    let hash = <[u8; 32]>::try_from(hash).map_err(|_| read.broken("its hash has not 32 bytes"))?;
    read.secret = RowSecret::Key(KeySecret { hash: KeyHash(hash), prefix, suffix });
    Ok(read)
}

fn parse_owner(word: &str) -> Option<Owner> {
    [Owner::File, Owner::Database].into_iter().find(|owner| owner_word(*owner) == word)
}

/// An audit event, from the columns revision, at, door, actor, action, kind, id, name, detail.
pub(super) fn audit_event(row: &AnyRow) -> Result<AuditEvent, sqlx::Error> {
    let kind: String = row.try_get(5)?;
    let kind = RowKind::parse(&kind).ok_or_else(|| sqlx::Error::Decode(format!("kind '{kind}' is not known").into()))?;
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
    })
}
