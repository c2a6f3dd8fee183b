//! The keys that were used: how many, and those that were charged the most.

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
    groups: Option<u64>,
    previous_groups: Option<u64>,
}

pub(super) async fn used(request: &PageRequest, period: &Period) -> Result<(Vec<BusyKey>, ActiveKeys), ApiError> {
    let pairs = [("by", "key"), ("sort", "sale"), ("rows", SHOWN), ("previous", "true"), sums::WITHOUT_TIMES];
    let KeySums { items: rows, groups, previous_groups } = request.read(operations::SUM_USAGE, sums::call(period, &pairs)).await?;
    let active = ActiveKeys { now: groups.unwrap_or_default(), before: previous_groups.unwrap_or_default() };
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
