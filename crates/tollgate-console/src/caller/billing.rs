//! The paths that existing clients read a balance from: OpenAI's old dashboard API, as one-api has it too
//! (<https://github.com/songquanpeng/one-api>), new-api's account and token paths (<https://github.com/QuantumNous/new-api>), and
//! `/user/balance` of `DeepSeek` (<https://api-docs.deepseek.com/api/get-user-balance>), which CC Switch calls by default
//! (<https://github.com/farion1231/cc-switch>). All return what the key has spent since it was created, and what it may still
//! spend.

use serde_json::{Value, json};
use tollgate_core::{Caller, NanoUsd, Timestamp};
use tollgate_store::{
    Grouping, UsageFilter,
    fields::{FieldShape, Kind},
};

use super::{CallerRequest, key};
use crate::{api::schema::both, api_error::ApiError};

/// The amount that clients take for "unlimited": 100,000,000 USD.
const UNLIMITED: NanoUsd = NanoUsd(100_000_000_000_000_000);
const DATE: Kind = Kind::Text { min: 1, max: 40 };
/// Dates are accepted and ignored, as in one-api. The amounts are totals, so that limit minus usage is the remaining amount.
pub(super) const USAGE: &[FieldShape] = &[both("start_date", DATE, "Not considered."), both("end_date", DATE, "Not considered.")];

/// new-api's unit of amounts: 1/500,000 USD.
const NANO_USD_PER_QUOTA: i64 = 2_000;
const NANO_USD_PER_CENT: i64 = 10_000_000;

/// Spending and number of requests of the key.
async fn used(request: &CallerRequest) -> Result<(NanoUsd, u64), ApiError> {
    let filter = UsageFilter { key: Some(request.key.id), ..UsageFilter::default() };
    let sums = request.read(request.state.store.usage.summary(&filter, Grouping::default().without_times())).await?;
    Ok(sums.first().map_or((NanoUsd::ZERO, 0), |sum| (sum.sale, sum.requests)))
}

/// The smallest remainder of the balance and the blocking budgets; `None` without any. 0 if a budget of the gateway is spent.
/// With several groups, the group with the largest remainder decides, because it serves requests while the others refuse them.
async fn left(request: &CallerRequest, caller: &Caller) -> Result<Option<NanoUsd>, ApiError> {
    let budgets = key::budgets(request, caller).await?;
    let own = budgets.iter().filter(|budget| !budget.is_of_group()).filter_map(key::BudgetState::bound);
    let of_group = |name: &str| budgets.iter().filter(|budget| budget.is_of(name)).filter_map(key::BudgetState::bound).min();
    let groups: Option<Vec<NanoUsd>> = caller.groups.iter().map(|group| of_group(&group.name)).collect();
    let most_of_groups = groups.and_then(|left| left.into_iter().max());
    let balance = key::balance(request).await?.map(|left| left.max(NanoUsd::ZERO));
    let of_gateway = key::spent_budgets_of_gateway(request).await?.first().map(|_| NanoUsd::ZERO);
    Ok(own.chain(most_of_groups).chain(balance).chain(of_gateway).min())
}

/// The remaining amount, the spent amount, and the number of requests.
struct Spending {
    /// `None`: without a limit.
    left: Option<NanoUsd>,
    used: NanoUsd,
    requests: u64,
    /// The first group of the key.
    group: String,
}

async fn spending(request: &CallerRequest) -> Result<Spending, ApiError> {
    let (_, caller) = key::caller(request).await?;
    let left = left(request, &caller).await?;
    let (used, requests) = used(request).await?;
    let group = caller.groups.first().map(|group| group.name.clone()).unwrap_or_default();
    Ok(Spending { left, used, requests, group })
}

/// The answer of `DeepSeek`, with the further members that CC Switch reads.
pub(super) async fn balance(request: &CallerRequest) -> Result<Value, ApiError> {
    let Spending { left, used, .. } = spending(request).await?;
    let left = left.unwrap_or(UNLIMITED);
    let total = whole_cents(left);
    Ok(json!({
        "is_active": true, "balance": usd(left), "used": usd(used), "currency": "USD", "is_available": left > NanoUsd::ZERO,
        "balance_infos": [
            {"currency": "USD", "total_balance": total, "granted_balance": "0.00", "topped_up_balance": total},
        ],
    }))
}

/// new-api's account of the caller, here of the key.
pub(super) async fn account(request: &CallerRequest) -> Result<Value, ApiError> {
    let Spending { left, used, requests, group } = spending(request).await?;
    let key = &request.key;
    Ok(json!({
        "success": true, "message": "",
        "data": {
            "id": key.member.id, "username": key.member.name, "display_name": key.member.name, "group": group,
            "quota": quota(left.unwrap_or(UNLIMITED)), "used_quota": quota(used), "request_count": requests,
        },
    }))
}

/// new-api's usage of a token.
pub(super) async fn token_usage(request: &CallerRequest) -> Result<Value, ApiError> {
    let Spending { left, used, .. } = spending(request).await?;
    let available = quota(left.unwrap_or(UNLIMITED));
    Ok(json!({
        "code": true, "message": "ok",
        "data": {
            "object": "token_usage", "name": request.key.name, "total_granted": available.saturating_add(quota(used)),
            "total_used": quota(used), "total_available": available, "unlimited_quota": left.is_none(),
            "model_limits": {}, "model_limits_enabled": false,
            "expires_at": request.key.expires_at.map_or(0, Timestamp::seconds),
        },
    }))
}

/// An amount in new-api's unit, rounded down, so that it never exceeds the remaining amount.
const fn quota(amount: NanoUsd) -> i64 {
    amount.0.div_euclid(NANO_USD_PER_QUOTA)
}

/// An amount in USD with two decimal places, rounded down, so that it never exceeds the remaining amount; never negative.
fn whole_cents(left: NanoUsd) -> String {
    let cents = left.0.max(0) / NANO_USD_PER_CENT;
    format!("{}.{:02}", cents / 100, cents % 100)
}

pub(super) async fn subscription(request: &CallerRequest) -> Result<Value, ApiError> {
    let Spending { left, used, .. } = spending(request).await?;
    let limit = usd(left.map_or(UNLIMITED, |left| NanoUsd(left.0.saturating_add(used.0))));
    Ok(json!({
        "object": "billing_subscription", "has_payment_method": true, "soft_limit_usd": limit, "hard_limit_usd": limit,
        "system_hard_limit_usd": limit, "access_until": request.key.expires_at.map_or(0, Timestamp::seconds),
    }))
}

/// In cents.
pub(super) async fn total_usage(request: &CallerRequest) -> Result<Value, ApiError> {
    Ok(json!({"object": "list", "total_usage": usd(used(request).await?.0) * 100.0}))
}

/// An amount as clients read it, a floating-point number.
fn usd(amount: NanoUsd) -> f64 {
    amount.to_usd_string().parse().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_down_to_cents_and_units() {
        for (nano_usd, cents, units) in [
            (0, "0.00", 0),
            (9_999_999, "0.00", 4_999),
            (4_999_999_999, "4.99", 2_499_999),
            (5_000_000_000, "5.00", 2_500_000),
            (12_345_678_901, "12.34", 6_172_839),
            (UNLIMITED.0, "100000000.00", 50_000_000_000_000),
        ] {
            assert_eq!((whole_cents(NanoUsd(nano_usd)).as_str(), quota(NanoUsd(nano_usd))), (cents, units), "{nano_usd}");
        }
    }
}
