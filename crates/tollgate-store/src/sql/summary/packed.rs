//! Sums of keys, which are packed. The records at the ends of a range are read one by one and added.

use super::{
    SUMMARY, SummaryQuery, is_tag,
    ranges::{SummarySource, TimeRange, width_of},
    tables,
};
use crate::{
    StoreError, SummaryBy, SummaryFigure,
    rollup::{MINUTE, PartSpan},
    sql::{
        group_sums::{GroupFigures, GroupRefs, GroupSums, LEFT},
        packed_sums::{CellGroup, CellRange},
        store::SqlStore,
        sum_tables::SumTable,
    },
};

/// The ranges that a query adds up.
struct SummedRanges {
    records: Vec<TimeRange>,
    cells: Vec<CellRange>,
}

impl SqlStore {
    /// The largest groups of a query that packed sums can answer, in no order.
    pub(super) async fn sums_of_cells(&self, query: &SummaryQuery<'_>) -> Result<Vec<(GroupRefs, GroupFigures)>, StoreError> {
        let parts = self.parts_of(SUMMARY, query.filter).await?;
        let (records, cells): (Vec<TimeRange>, Vec<TimeRange>) =
            query.ranges().into_iter().partition(|range| range.source == SummarySource::Records);
        let cells = cells.into_iter().flat_map(|range| query.cells(range, parts.as_deref())).collect();
        let ranges = SummedRanges { records, cells };
        let sums = match self.sums_of_span(query, &ranges, None).await {
            // The groups of some parts are complete without the others.
            Err(StoreError::TooManyGroups { .. }) if query.by.has(|by| by == SummaryBy::Key) => {
                self.sums_by_span(query, &ranges).await?
            }
            sums => sums?,
        };
        Ok(sums.finish())
    }

    /// The sums of a query by key. Each pass reads as many parts as stay within the bound on groups.
    async fn sums_by_span(&self, query: &SummaryQuery<'_>, ranges: &SummedRanges) -> Result<GroupSums, StoreError> {
        let end = self.end_of_parts(SUMMARY).await?;
        let (mut begin, mut length) = (0, (end / 2).max(1));
        let mut sums = GroupSums::new(figure_of(query.by.largest), query.most);
        while begin < end {
            match self.sums_of_span(query, ranges, Some(begin..begin + length)).await {
                Err(StoreError::TooManyGroups { .. }) if length > 1 => length /= 2,
                of_span => {
                    sums.merge(of_span?);
                    sums.complete();
                    begin += length;
                }
            }
        }
        Ok(sums)
    }

    /// The sums of a query, of all keys or those of some parts.
    async fn sums_of_span(
        &self,
        query: &SummaryQuery<'_>,
        ranges: &SummedRanges,
        span: Option<PartSpan>,
    ) -> Result<GroupSums, StoreError> {
        let mut sums = GroupSums::new(figure_of(query.by.largest), query.most);
        let cells = ranges.cells.iter().map(|range| CellRange { span: span.clone(), ..range.clone() }).collect();
        let records = self.sums_of_records(query, &ranges.records, span.as_ref(), sums.empty());
        let (records, added) = tokio::try_join!(records, self.add_up_cells(SUMMARY, cells, sums.empty()))?;
        sums.merge(records);
        sums.merge(added);
        sums.check()
    }
}

impl SqlStore {
    /// The sums of ranges whose cells meet the filter's columns and more conditions, in one group.
    pub(super) async fn sums_that_meet(
        &self,
        query: &SummaryQuery<'_>,
        ranges: Vec<TimeRange>,
        conditions: &[(&str, Vec<i64>)],
    ) -> Result<Vec<(GroupRefs, GroupFigures)>, StoreError> {
        let Some(table) = query.table else { return Ok(Vec::new()) };
        let parts = self.parts_of(SUMMARY, query.filter).await?;
        let more = || conditions.iter().filter_map(|(column, numbers)| Some((table.dimension_index(column)?, numbers.clone())));
        let cells = |range: TimeRange| CellRange {
            table,
            width: range.source.width(),
            from: range.from.map(|from| from / MINUTE),
            to: range.to.map(|to| to / MINUTE),
            conditions: query.filter.conditions_on_cells(table).into_iter().chain(more()).collect(),
            parts: parts.clone(),
            span: None,
            groups: [CellGroup::Constant(0); 2],
            is_subtracted: false,
            is_complete: false,
        };
        let sums = GroupSums::new(|figures| figures[0], 1);
        Ok(self.add_up_cells(SUMMARY, ranges.into_iter().map(cells).collect(), sums).await?.finish())
    }
}

pub(super) fn figure_of(figure: SummaryFigure) -> fn(&GroupFigures) -> i64 {
    match figure {
        SummaryFigure::Requests => |figures| figures[0],
        SummaryFigure::Errors => |figures| figures[0] - figures[1] - figures[LEFT],
        SummaryFigure::Tokens => |figures| figures[2].saturating_add(figures[3]),
        SummaryFigure::Sale => |figures| figures[10],
        SummaryFigure::Cost => |figures| figures[11],
    }
}

impl SummaryQuery<'_> {
    /// The cells that hold the sums of a range.
    pub(super) fn cells(&self, range: TimeRange, parts: Option<&[i64]>) -> Vec<CellRange> {
        let Some(table) = self.table else { return Vec::new() };
        let of = |table: &'static SumTable, is_untagged: bool, is_subtracted: bool| {
            let mut conditions = self.filter.conditions_on_cells(table);
            for (column, number) in self.tag_conditions(table) {
                conditions.extend(table.dimension_index(column).map(|index| (index, vec![number])));
            }
            let widest = |width: i64| width == range.source.width() && !self.by.has(is_tag);
            CellRange {
                table,
                width: range.source.width(),
                from: range.from.map(|from| from / MINUTE),
                to: range.to.map(|to| to / MINUTE),
                conditions,
                parts: parts.map(<[i64]>::to_vec),
                span: None,
                groups: [self.by.first, self.by.second].map(|by| cell_group(table, by, is_untagged)),
                is_subtracted,
                is_complete: [self.by.first, self.by.second].into_iter().filter_map(width_of).any(widest),
            }
        };
        if !self.by.has(is_tag) {
            return vec![of(tables::of_source(table, range.source), false, range.is_subtracted)];
        }
        let tagged = of(table, false, range.is_subtracted);
        if !self.filter.tags.is_empty() {
            return vec![tagged];
        }
        // Requests without the tag are all requests minus those with it.
        let (all, with_it) = (tables::without_tags(table), !range.is_subtracted);
        vec![tagged, of(all, true, range.is_subtracted), of(table, true, with_it)]
    }

    /// The numbers of the tag that is grouped by, and of the one that is filtered by.
    fn tag_conditions(&self, table: &SumTable) -> Vec<(&'static str, i64)> {
        if !table.has("tag") {
            return Vec::new();
        }
        let of_filter = self.filter.tags.iter().flat_map(|tag| [("tag", tag.tag.unwrap_or(0)), ("value", tag.value.unwrap_or(0))]);
        let grouped = self.by.has(is_tag).then(|| ("tag", self.tags[0].max(self.tags[1])));
        of_filter.chain(grouped).collect()
    }
}

/// The group of a cell. `is_untagged`: of requests without the tag.
fn cell_group(table: &SumTable, by: SummaryBy, is_untagged: bool) -> CellGroup {
    match width_of(by) {
        Some(width) => CellGroup::Time(width),
        None if by == SummaryBy::Nothing || (is_tag(by) && is_untagged) => CellGroup::Constant(0),
        None => table.dimension_index(super::column_of(by)).map_or(CellGroup::Constant(0), CellGroup::Column),
    }
}
