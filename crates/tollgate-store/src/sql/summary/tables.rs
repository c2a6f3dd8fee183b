//! The table of sums that answers a summary.

use super::{is_tag, ranges::SummarySource};
use crate::{
    Grouping, SummaryBy, TagCondition,
    sql::{
        sum_tables::{ACCOUNT_SUMS, KEY_SUMS, KEY_TAG_SUMS, KEY_TOTALS, SumTable, TAG_SUMS, USAGE_SUMS},
        usage_filter::RefFilter,
    },
};

/// The tables, those with the fewest sums first.
const TABLES: [&SumTable; 6] = [&USAGE_SUMS, &ACCOUNT_SUMS, &KEY_TOTALS, &KEY_SUMS, &TAG_SUMS, &KEY_TAG_SUMS];

/// The table with the fewest rows that has every column of a filter and a grouping; `None` if only the records have them. `tags`
/// are those of the filter.
pub(super) fn choose(filter: &RefFilter, by: Grouping, tags: &[TagCondition]) -> Option<&'static SumTable> {
    if !filter.conditions.is_empty() || !is_of_one_tag(filter, by, tags) {
        return None;
    }
    let has_tag = !tags.is_empty() || by.has(is_tag);
    let grouped = [by.first, by.second].into_iter().filter(|by| *by != SummaryBy::Nothing && !by.is_time()).map(super::column_of);
    let needed: Vec<&str> = filter.columns().chain(grouped).chain(has_tag.then_some("tag")).collect();
    TABLES.into_iter().find(|table| needed.iter().all(|column| table.has(column)))
}

/// Whether filter and grouping name at most one tag, whose number and value are known. A row of sums has only one tag.
fn is_of_one_tag(filter: &RefFilter, by: Grouping, tags: &[TagCondition]) -> bool {
    let grouped = [by.first, by.second].into_iter().filter(|by| is_tag(*by));
    match (filter.tags.as_slice(), tags) {
        ([], _) => grouped.count() < 2,
        ([only], [named]) => {
            only.tag.is_some() && only.value.is_some() && grouped.into_iter().all(|by| by == SummaryBy::Tag(named.name))
        }
        _ => false,
    }
}

/// The table with the sums of a source: totals have no five minutes.
pub(super) fn of_source(table: &'static SumTable, source: SummarySource) -> &'static SumTable {
    if table.widths.contains(&source.width()) { table } else { &KEY_SUMS }
}

/// The table with the sums of all requests of which another one has those with a tag.
pub(super) fn without_tags(table: &SumTable) -> &'static SumTable {
    if table.name == TAG_SUMS.name { &USAGE_SUMS } else { &KEY_SUMS }
}
