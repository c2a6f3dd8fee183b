//! Counts the members and service keys of groups while their rows are read.

use std::collections::HashMap;

use serde::Deserialize;

use crate::{GroupUsers, RowKind, StoreError};

/// The default group of members who have no other.
const DEFAULT_GROUP: &str = "default";

/// The parts of a member's or a key's row that name groups.
#[derive(Clone, Debug)]
pub(crate) struct GroupUserRow {
    pub(crate) id: String,
    /// The member of a key.
    pub(crate) parent: String,
    pub(crate) spec: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedGroups {
    groups: Vec<String>,
    default_group: Option<String>,
}

/// The counts so far. All members come before the keys.
#[derive(Debug, Default)]
pub(crate) struct GroupCount {
    users: HashMap<String, GroupUsers>,
    /// Default groups by member id. Members without one are left out.
    defaults: HashMap<String, String>,
}

impl GroupCount {
    pub(crate) fn add_member(&mut self, row: GroupUserRow) -> Result<(), StoreError> {
        let NamedGroups { groups, default_group } = named(RowKind::Member, &row)?;
        if let Some(default) = &default_group
            && !groups.contains(default)
        {
            self.of(default).members += 1;
        }
        for group in &groups {
            self.of(group).members += 1;
        }
        self.defaults.extend(default_group.map(|default| (row.id, default)));
        Ok(())
    }

    pub(crate) fn add_key(&mut self, row: &GroupUserRow) -> Result<(), StoreError> {
        let groups = named(RowKind::Key, row)?.groups;
        for group in &groups {
            self.of(group).keys += 1;
        }
        if groups.is_empty() {
            let default = self.defaults.get(&row.parent).cloned().unwrap_or_else(|| DEFAULT_GROUP.to_owned());
            self.of(&default).default_keys += 1;
        }
        Ok(())
    }

    fn of(&mut self, group: &str) -> &mut GroupUsers {
        self.users.entry(group.to_owned()).or_default()
    }

    pub(crate) fn finish(self) -> HashMap<String, GroupUsers> {
        self.users
    }
}

fn named(kind: RowKind, row: &GroupUserRow) -> Result<NamedGroups, StoreError> {
    serde_json::from_str(&row.spec).map_err(|error| StoreError::Row {
        kind: kind.as_str(),
        row: row.id.clone(),
        detail: error.to_string(),
    })
}
