//! The keys that were charged the most.

use super::sums::{self, SumRow};
use crate::{
    api_error::ApiError,
    pages::{
        money::{self, Amount},
        period::Period,
        request::PageRequest,
    },
};

/// Keys that are shown.
const SHOWN: &str = "5";

#[derive(Debug)]
pub(super) struct BusyKey {
    pub(super) name: String,
    pub(super) member: String,
    pub(super) amount: Amount,
    pub(super) link: String,
    /// Of the first.
    pub(super) percent: u64,
}

pub(super) async fn busiest(request: &PageRequest, period: &Period) -> Result<Vec<BusyKey>, ApiError> {
    let rows = sums::rows(request, period, &[("by", "key"), ("sort", "sale"), ("rows", SHOWN), sums::WITHOUT_TIMES]).await?;
    let most = rows.first().map_or(0, |row| row.figures.sale_nano()).max(1);
    let key = |row: &SumRow| BusyKey {
        name: row.name.clone().unwrap_or_else(|| row.of.clone()),
        member: row.member.clone().unwrap_or_default(),
        amount: money::short(request.t(), &money::decimal(row.figures.sale_nano())),
        link: request.url(&format!("/keys/{}", row.of)),
        percent: u64::try_from(u128::from(row.figures.sale_nano()) * 100 / u128::from(most)).unwrap_or(100),
    };
    Ok(rows.iter().filter(|row| !row.of.is_empty()).map(key).collect())
}
