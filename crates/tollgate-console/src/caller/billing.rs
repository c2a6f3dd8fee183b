//! The billing paths that clients of OpenAI's old dashboard API and of one-api read: an amount that may be spent at most, and what is
//! spent of it. What is left is the difference.

use serde_json::{Value, json};
use tollgate_core::{NanoUsd, Timestamp};
use tollgate_store::{
    SummaryBy, UsageFilter,
    fields::{FieldShape, Kind},
};

use super::{CallerRequest, key};
use crate::{api::schema::both, api_error::ApiError};

/// What clients take for unlimited, in USD.
const UNLIMITED_USD: f64 = 100_000_000.0;
const DATE: Kind = Kind::Text { min: 1, max: 40 };
/// Dates are accepted and not considered, as in one-api: the amounts are those of all time, so that their difference is what is left.
pub(super) const USAGE: &[FieldShape] = &[both("start_date", DATE, "Not considered."), both("end_date", DATE, "Not considered.")];

/// What the key has spent.
async fn used(request: &CallerRequest) -> Result<NanoUsd, ApiError> {
    let filter = UsageFilter { key: Some(request.key.id), ..UsageFilter::default() };
    let sums = request.read(request.state.store.usage.summary(&filter, SummaryBy::Nothing.into())).await?;
    Ok(sums.first().map_or(NanoUsd::ZERO, |sum| sum.sale))
}

/// The least of what budgets and balance leave; `None` without any.
async fn left(request: &CallerRequest) -> Result<Option<NanoUsd>, ApiError> {
    let budgets = key::budgets(request).await?;
    let left = budgets.iter().map(key::BudgetState::left).chain(key::balance(request).await?.map(|left| left.max(NanoUsd::ZERO)));
    Ok(left.min())
}

pub(super) async fn subscription(request: &CallerRequest) -> Result<Value, ApiError> {
    let limit = match left(request).await? {
        None => UNLIMITED_USD,
        Some(left) => usd(NanoUsd(left.0.saturating_add(used(request).await?.0))),
    };
    Ok(json!({
        "object": "billing_subscription", "has_payment_method": true, "soft_limit_usd": limit, "hard_limit_usd": limit,
        "system_hard_limit_usd": limit, "access_until": request.key.expires_at.map_or(0, Timestamp::seconds),
    }))
}

/// In cents.
pub(super) async fn total_usage(request: &CallerRequest) -> Result<Value, ApiError> {
    Ok(json!({"object": "list", "total_usage": usd(used(request).await?) * 100.0}))
}

/// An amount as clients read it, a floating-point number.
fn usd(amount: NanoUsd) -> f64 {
    amount.to_usd_string().parse().unwrap_or(0.0)
}
