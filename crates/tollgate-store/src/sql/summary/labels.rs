//! The texts of a summary's groups.

use std::collections::{BTreeSet, HashMap};

use sqlx::Row as _;
use tollgate_core::{Outcome, Timestamp};
use tollgate_protocol::Protocol;

use super::SUMMARY;
use crate::{
    StoreError, SummaryBy,
    rollup::MINUTE,
    sql::{codes::Coded, store::SqlStore, tags::OTHER_VALUES, usage::IDS_AT_ONCE},
    usage::{OTHER_VALUES_LABEL, day, five_minutes, hour, month},
};

/// Texts by the number of the group.
pub(in crate::sql) type Labels = HashMap<i64, String>;

impl SqlStore {
    pub(in crate::sql) async fn labels(&self, by: SummaryBy, groups: BTreeSet<i64>) -> Result<Labels, StoreError> {
        let computed = |label: &dyn Fn(i64) -> String| groups.iter().map(|group| (*group, label(*group))).collect();
        let time = |label: fn(Timestamp) -> String| computed(&|minute| label(Timestamp(minute.saturating_mul(MINUTE))));
        match by {
            SummaryBy::Nothing => return Ok(Labels::new()),
            SummaryBy::Month => return Ok(time(month)),
            SummaryBy::Day => return Ok(time(day)),
            SummaryBy::Hour => return Ok(time(hour)),
            SummaryBy::FiveMinutes => return Ok(time(five_minutes)),
            SummaryBy::Outcome => return Ok(computed(&|code| word(code, Outcome::as_str))),
            SummaryBy::Protocol => return Ok(computed(&|code| word(code, Protocol::as_str))),
            SummaryBy::Model | SummaryBy::Reason | SummaryBy::Group | SummaryBy::Tag(_) => {}
            SummaryBy::Key | SummaryBy::Member | SummaryBy::Channel | SummaryBy::Account => {
                return Ok(self.names(SUMMARY, &groups).await?.into_iter().map(|(number, (id, _))| (number, id)).collect());
            }
        }
        let names = self.names(SUMMARY, &groups).await?;
        if by != SummaryBy::Group {
            let mut labels: Labels = names.into_iter().map(|(number, (_, name))| (number, name)).collect();
            if matches!(by, SummaryBy::Tag(_)) {
                labels.insert(OTHER_VALUES, OTHER_VALUES_LABEL.to_owned());
            }
            return Ok(labels);
        }
        let current = self.group_names(names.values().map(|(id, _)| id.clone()).collect()).await?;
        let name = |(id, name): (String, String)| current.get(&id).cloned().unwrap_or(name);
        Ok(names.into_iter().map(|(number, text)| (number, name(text))).collect())
    }

    /// The names of groups, including removed ones, by id.
    async fn group_names(&self, ids: BTreeSet<String>) -> Result<HashMap<String, String>, StoreError> {
        let ids: Vec<String> = ids.into_iter().collect();
        let mut names = HashMap::new();
        for ids in ids.chunks(IDS_AT_ONCE) {
            let sql = self.dialect.list("SELECT id, name FROM catalog_rows WHERE id IN (", ids.len(), ")");
            let query = ids.iter().fold(sqlx::query(sql), |query, id| query.bind(id.clone()));
            names.extend(self.fetch_as(SUMMARY, query, |row| Ok((row.try_get(0)?, row.try_get(1)?))).await?);
        }
        Ok(names)
    }
}

fn word<T: Coded>(code: i64, text: fn(T) -> &'static str) -> String {
    T::of_code(code).map_or_else(String::new, |word| text(word).to_owned())
}
