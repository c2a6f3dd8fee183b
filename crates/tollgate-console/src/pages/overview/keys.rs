//! Used keys: their number, and those that were charged the most.

use serde::Deserialize;

use super::sums::{self, SumRow};
use crate::{
    api_error::ApiError,
    pages::{
        money::{self, Amount},
        operations,
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

/// How many keys were used in the period, and in the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ActiveKeys {
    pub(super) now: u64,
    pub(super) before: u64,
}

/// The sums of keys as the admin API answers them.
#[derive(Debug, Deserialize)]
struct KeySums {
    items: Vec<SumRow>,
    groups: u64,
}

pub(super) async fn used(request: &PageRequest, period: &Period) -> Result<(Vec<BusyKey>, ActiveKeys), ApiError> {
    // Only the texts of the largest are read, of ten thousand keys.
    let largest = async |period: &Period, rows: &'static str| {
        let pairs = [("by", "key"), ("sort", "sale"), ("rows", rows), sums::WITHOUT_TIMES];
        sums::read::<KeySums>(request, period, operations::SUM_USAGE, &pairs).await
    };
    let before = period.before();
    let (now, before) = tokio::try_join!(largest(period, SHOWN), largest(&before, "1"))?;
    let (rows, active) = (now.items, ActiveKeys { now: now.groups, before: before.groups });
    let most = rows.first().map_or(0, |row| row.figures.sale_nano()).max(1);
    let key = |row: &SumRow| BusyKey {
        name: row.name.clone().unwrap_or_else(|| row.of.clone()),
        member: row.member.clone().unwrap_or_default(),
        amount: money::short(request.t(), &money::decimal(row.figures.sale_nano())),
        link: request.url(&format!("/keys/{}", row.of)),
        percent: u64::try_from(u128::from(row.figures.sale_nano()) * 100 / u128::from(most)).unwrap_or(100),
    };
    let shown = rows.iter().filter(|row| !row.of.is_empty() && row.figures.requests > 0).map(key).collect();
    Ok((shown, active))
}
