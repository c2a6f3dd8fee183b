//! The part of the usage log that the sender of a request may see. Operators see everything. Members see the records of their own
//! keys, without the channels and accounts that served them and without costs, and cannot find those out by filters, groupings or
//! orders either.

use serde_json::Value;
use tollgate_core::{NanoUsd, UsageRecord};
use tollgate_store::{AdminScope, SummaryBy};

use crate::{
    api::request_context::{InputFields, RequestContext},
    api_error::ApiError,
    shares::Reader,
    usage_columns::ExportView,
    usage_format::caller_view,
};

/// Filters on values that members do not see.
const CLOSED_FILTERS: [&str; 6] = ["channel", "account", "min_cost", "tried_channel", "tried_account", "tried_failed"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageView {
    Operator,
    Member,
}

impl UsageView {
    pub(super) fn of(context: &RequestContext) -> Self {
        if context.is_caller_view() { Self::Member } else { Self::Operator }
    }

    pub(super) const fn reader(self) -> Reader {
        match self {
            Self::Operator => Reader::Operator,
            Self::Member => Reader::Member,
        }
    }

    pub(super) const fn columns(self) -> ExportView {
        match self {
            Self::Operator => ExportView::Operator,
            Self::Member => ExportView::Member,
        }
    }

    fn allow(self, is_closed: bool, parameter: &str, what: &str) -> Result<(), ApiError> {
        let refuse = self == Self::Member && is_closed;
        if refuse { Err(ApiError::forbidden(what, AdminScope::Operator).about(parameter)) } else { Ok(()) }
    }

    /// 403 if a filter selects by a value that members do not see.
    pub(super) fn allow_filters(self, query: &InputFields) -> Result<(), ApiError> {
        CLOSED_FILTERS.iter().try_for_each(|name| self.allow(query.has(name), name, &format!("The filter '{name}'")))
    }

    /// 403 for sums by a value that members do not see.
    pub(super) fn allow_grouping(self, by: SummaryBy, word: &str) -> Result<(), ApiError> {
        self.allow(matches!(by, SummaryBy::Channel | SummaryBy::Account), "by", &format!("The grouping '{word}'"))
    }

    /// 403 for an order by a value that members do not see.
    pub(super) fn allow_order(self, word: &str) -> Result<(), ApiError> {
        self.allow(word == "cost", "sort", &format!("The order '{word}'"))
    }

    pub(super) fn record(self, record: UsageRecord) -> UsageRecord {
        match self {
            Self::Operator => record,
            Self::Member => caller_view(record),
        }
    }

    /// A cost or margin in USD; null for members.
    pub(super) fn cost(self, amount: NanoUsd) -> Value {
        match self {
            Self::Operator => amount.to_usd_string().into(),
            Self::Member => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_cannot_filter_group_or_sort_by_hidden_fields() {
        let query = |name: &str| InputFields([(name.to_owned(), Value::from("x"))].into_iter().collect());
        for name in CLOSED_FILTERS {
            assert!(UsageView::Operator.allow_filters(&query(name)).is_ok());
            let refused = UsageView::Member.allow_filters(&query(name)).unwrap_err();
            assert!(refused.message().contains(&format!("'{name}'")), "{}", refused.message());
        }
        assert!(UsageView::Member.allow_filters(&query("model")).is_ok());
        for (by, is_open) in
            [(SummaryBy::Channel, false), (SummaryBy::Account, false), (SummaryBy::Key, true), (SummaryBy::Day, true)]
        {
            assert!(UsageView::Operator.allow_grouping(by, "x").is_ok());
            assert_eq!(UsageView::Member.allow_grouping(by, "x").is_ok(), is_open, "{by:?}");
        }
        assert!(UsageView::Member.allow_order("sale").is_ok() && UsageView::Member.allow_order("cost").is_err());
        assert_eq!(UsageView::Member.cost(NanoUsd(1)), Value::Null);
    }
}
