//! Names of the rows whose ids identify the groups of a summary.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tollgate_store::{RowKind, RowName, SummaryBy};

use crate::{
    api::{request_context::RequestContext, row_names::names_by_id},
    api_error::ApiError,
};

/// Name and member by group.
pub(in crate::api::usage) struct GroupNames(HashMap<String, (String, Option<String>)>);

impl GroupNames {
    /// Names for the ids of keys, members, channels and accounts, and the members of keys. Sums by group have names already.
    pub(in crate::api::usage) async fn find<'a>(
        context: &RequestContext,
        by: SummaryBy,
        groups: impl Iterator<Item = &'a str>,
    ) -> Result<Self, ApiError> {
        let (kind, parent) = match by {
            SummaryBy::Key => (RowKind::Key, Some(RowKind::Member)),
            SummaryBy::Account => (RowKind::Account, Some(RowKind::Channel)),
            SummaryBy::Member => (RowKind::Member, None),
            SummaryBy::Channel => (RowKind::Channel, None),
            SummaryBy::Group => return Ok(Self(groups.map(|name| (name.to_owned(), (name.to_owned(), None))).collect())),
            SummaryBy::Nothing
            | SummaryBy::Month
            | SummaryBy::Day
            | SummaryBy::Hour
            | SummaryBy::FiveMinutes
            | SummaryBy::Model
            | SummaryBy::Protocol
            | SummaryBy::Outcome
            | SummaryBy::Reason
            | SummaryBy::Tag(_) => return Ok(Self(HashMap::new())),
        };
        let ids = groups.filter(|id| !id.is_empty()).map(str::to_owned).collect::<HashSet<_>>();
        let rows = names_by_id(context, kind, ids).await?;
        let parents = match parent {
            Some(parent) => names_by_id(context, parent, rows.values().map(|row| row.parent.clone()).collect()).await?,
            None => HashMap::new(),
        };
        let parent = |row: &RowName| parents.get(&row.parent).map(|parent| parent.name.clone());
        let name = |row: &RowName| match by {
            SummaryBy::Key => (row.name.clone(), parent(row)),
            // Names of accounts are unique in their channel only.
            SummaryBy::Account => (parent(row).map_or_else(|| row.name.clone(), |channel| format!("{channel}/{}", row.name)), None),
            SummaryBy::Nothing
            | SummaryBy::Month
            | SummaryBy::Day
            | SummaryBy::Hour
            | SummaryBy::FiveMinutes
            | SummaryBy::Model
            | SummaryBy::Member
            | SummaryBy::Group
            | SummaryBy::Channel
            | SummaryBy::Protocol
            | SummaryBy::Outcome
            | SummaryBy::Reason
            | SummaryBy::Tag(_) => (row.name.clone(), None),
        };
        Ok(Self(rows.iter().map(|(id, row)| (id.clone(), name(row))).collect()))
    }

    /// Name and member of a group.
    pub(in crate::api::usage) fn of(&self, group: &str) -> (Value, Value) {
        match self.0.get(group) {
            Some((name, member)) => (name.as_str().into(), member.as_deref().into()),
            None => (Value::Null, Value::Null),
        }
    }
}
