//! Row ids by name: existing ones, and for other names an id derived from the name.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use tollgate_core::Timestamp;

use crate::{CatalogRows, RowKind, apply::new_id};

/// Ids of rows by kind, parent id and name.
#[derive(Debug, Default)]
pub(crate) struct RowIds(HashMap<(RowKind, String, String), String>);

impl RowIds {
    pub(crate) fn of(current: &CatalogRows) -> Self {
        let mut ids = Self::default();
        for channel in &current.channels {
            ids.insert(RowKind::Channel, "", &channel.spec.name, &channel.id);
            for account in &channel.accounts {
                ids.insert(RowKind::Account, &channel.id, &account.spec.name, &account.id);
            }
        }
        for row in &current.models {
            ids.insert(RowKind::Model, "", &row.spec.name, &row.id);
        }
        for row in &current.groups {
            ids.insert(RowKind::Group, "", &row.spec.name, &row.id);
        }
        for row in &current.members {
            ids.insert(RowKind::Member, "", &row.spec.name, &row.id);
        }
        let members: HashMap<&str, &str> = current.members.iter().map(|row| (row.spec.name.as_str(), row.id.as_str())).collect();
        for key in &current.keys {
            if let Some(member) = members.get(key.spec.member.as_str()) {
                ids.insert(RowKind::Key, member, &key.spec.name, &key.id.to_string());
            }
        }
        ids
    }

    fn insert(&mut self, kind: RowKind, parent: &str, name: &str, id: &str) {
        self.0.insert((kind, parent.to_owned(), name.to_owned()), id.to_owned());
    }

    /// The id of a row: the existing one, or a hash of kind, parent and name.
    pub(crate) fn id(&self, kind: RowKind, parent: &str, name: &str) -> String {
        if let Some(id) = self.0.get(&(kind, parent.to_owned(), name.to_owned())) {
            return id.clone();
        }
        let mut hash = Sha256::new();
        for part in [kind.as_str(), parent, name] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let digest = hash.finalize();
        let mut bytes = [0; 10];
        bytes.copy_from_slice(&digest[..10]);
        new_id(kind, Timestamp::default(), bytes)
    }
}
