//! `/key`: the models and the remaining budgets of a key, for holders of a key without an account. The key is in the body of the form; it
//! is neither kept nor sent back.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use tollgate_store::KeyUse;

use super::view::{Allowance, BudgetRow, Expiry, limit_lines};
use crate::{
    api_error::ApiError,
    caller,
    pages::{
        control::Control,
        form::FormState,
        format::{self, TimeText},
        layout::Layout,
        locale::Locale,
        mark::{self, Mark},
        money::{self, Amount},
        problem,
        reply::{PageFailure, PageReply},
        request::PageRequest,
    },
};

#[derive(Debug, Template)]
#[template(path = "key_check.html")]
struct KeyCheckPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    key: Control,
    found: Option<CheckedKey>,
}

/// Information about a key for its holder.
#[derive(Debug)]
struct CheckedKey {
    name: String,
    /// Its first and last characters.
    shown: String,
    groups: String,
    models: Vec<String>,
    protocols: String,
    price_limit: Vec<String>,
    tags: String,
    contents_stored: bool,
    limits: Vec<String>,
    member_limits: Vec<String>,
    group_limits: Vec<(String, Vec<String>)>,
    gateway_renewals: Vec<Option<TimeText>>,
    expires: Option<Expiry>,
    balance: Option<Amount>,
    budgets: Vec<BudgetRow>,
    /// Requests and charges of this month and of today.
    used: String,
    calls: Vec<CallRow>,
}

/// One of the last requests.
#[derive(Debug)]
struct CallRow {
    at: Option<TimeText>,
    mark: Mark,
    model: String,
    amount: Amount,
    total: String,
}

#[derive(Debug, Deserialize)]
struct HeldKey {
    name: String,
    prefix: String,
    suffix: String,
    expires_at: Option<String>,
    #[serde(flatten)]
    allowance: Allowance,
}

#[derive(Debug, Deserialize)]
struct Calls {
    data: Vec<Call>,
}

#[derive(Debug, Deserialize)]
struct Call {
    at: String,
    model: Option<String>,
    status: u16,
    outcome: String,
    amount: Option<String>,
    duration_us: u64,
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    page(&request, &FormState::default(), None)
}

fn page(request: &PageRequest, state: &FormState, found: Option<CheckedKey>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let template = KeyCheckPage {
        // A key that was put into the address by mistake is not repeated.
        layout: request.layout(t.say("nav.key_check")).returns_to("/key"),
        t,
        banner: state.banner(),
        key: state.secret("key", t.say("key_check.key")).autocomplete("off").hint(t.say("key_check.hint")).required().focus(),
        found,
    };
    PageReply::page(state.status(), &template)
}

pub(super) async fn check(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let held = match request.form.filled("key") {
        Some(key) => caller::check_key(&request.state, &request.meta, key).await,
        None => Err(ApiError::no_service_key()),
    };
    let checked = match held {
        Ok(held) => held,
        Err(error) => {
            let state = FormState::faulty(&error, "key", problem::say_of_service_key(t, &error));
            return page(&request, &state, None);
        }
    };
    let unread = |fault: serde_json::Error| {
        tracing::error!(%fault, "what a key may use cannot be read");
        ApiError::internal()
    };
    let key: HeldKey = serde_json::from_value(checked.allowance).map_err(unread)?;
    let calls: Calls = serde_json::from_value(checked.records).map_err(unread)?;
    let HeldKey { name, prefix, suffix, expires_at, allowance } = key;
    let found = CheckedKey {
        name,
        shown: format!("{prefix}••••{suffix}"),
        groups: allowance.groups.join(t.say("list.separator")),
        protocols: allowance.restrictions().protocols(t),
        price_limit: allowance.restrictions().price_limit(t),
        tags: allowance.restrictions().tags(t),
        contents_stored: allowance.contents_stored,
        limits: limit_lines(t, allowance.limits()),
        member_limits: limit_lines(t, allowance.member_limits()),
        group_limits: allowance.group_limits(t),
        gateway_renewals: allowance.gateway_renewals(t),
        expires: Expiry::of(t, expires_at.as_deref(), request.state.gateway.now()),
        balance: allowance.balance().map(|balance| money::rounded(t, balance)),
        budgets: allowance.budgets.iter().map(|budget| BudgetRow::of(t, budget, request.is_operator())).collect(),
        used: used(t, checked.month, checked.today),
        calls: calls.data.iter().map(|call| CallRow::of(t, call)).collect(),
        models: allowance.models,
    };
    page(&request, &FormState::default(), Some(found))
}

fn used(t: Locale, month: KeyUse, today: KeyUse) -> String {
    let requests = |used: KeyUse| t.say_count("keys.sum_request", "keys.sum_requests", used.requests);
    let amount = |used: KeyUse| money::short(t, &used.sale.to_usd_string()).text;
    t.say_with(
        "key_check.used",
        &[
            ("month_requests", &requests(month)),
            ("month", &amount(month)),
            ("today_requests", &requests(today)),
            ("today", &amount(today)),
        ],
    )
}

impl CallRow {
    fn of(t: Locale, call: &Call) -> Self {
        let mark = mark::of_outcome(t, &call.outcome);
        let word = if call.outcome == "completed" { call.status.to_string() } else { format!("{} {}", call.status, mark.word) };
        Self {
            at: format::time(t, &call.at),
            mark: Mark { word, ..mark },
            model: call.model.clone().unwrap_or_else(|| "–".to_owned()),
            amount: call.amount.as_deref().map_or_else(Amount::none, |amount| money::short(t, amount)),
            total: format::micros(t, call.duration_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::NanoUsd;

    use super::*;

    #[test]
    fn use_of_a_key_names_requests_and_charges_of_month_and_day() {
        let of = |requests: u64, nano: i64| KeyUse { requests, sale: NanoUsd(nano) };
        let said = used(Locale::EN, of(1_234, 12_500_000_000), of(1, 244_020));
        assert_eq!(said, "1,234 requests for $12.50 this month (UTC), 1 request for $0.00024402 today");
    }
}
