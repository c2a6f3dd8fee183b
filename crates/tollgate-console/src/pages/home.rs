//! The first page of those who have signed in: where to send requests, what is left of budgets, and what was used.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use tollgate_core::Timestamp;
use tollgate_store::AdminScope;

use super::{
    format::{self, TimeText},
    layout::{Layout, Script},
    locale::Locale,
    mark::{self, Mark},
    operations,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get, path_of},
    route::{PageRoute, SeenBy, page},
};
use crate::{api_error::ApiError, dispatch::ApiCall};

/// Keys that are listed, and of these those whose budgets are.
const MAX_KEYS: usize = 20;
const MAX_ALLOWANCES: usize = 3;
/// Days of the chart.
const DAYS: i64 = 7;

pub(super) static ROUTES: &[PageRoute] =
    &[PageRoute::get("/", SeenBy::Anyone, page!(enter)), PageRoute::get("/console", SeenBy::Role(AdminScope::Member), page!(show))];

#[derive(Debug, Template)]
#[template(path = "home.html")]
struct HomePage {
    layout: Layout,
    t: Locale,
    base_url: String,
    keys: Vec<KeyEntry>,
    balance: Option<String>,
    budgets: Vec<BudgetEntry>,
    today: UsageFigures,
    week: UsageFigures,
    days: Vec<DayEntry>,
    may_make_keys: bool,
}

#[derive(Debug, Deserialize)]
struct KeyView {
    id: String,
    name: String,
    prefix: String,
    suffix: String,
    state: String,
}

#[derive(Debug)]
struct KeyEntry {
    id: String,
    name: String,
    /// Its first and last characters.
    shown: String,
    mark: Mark,
}

#[derive(Debug, Deserialize)]
struct AllowanceView {
    name: String,
    budgets: Vec<BudgetView>,
    balance: Option<String>,
}

#[derive(Debug, Deserialize)]
struct BudgetView {
    of: String,
    amount: String,
    window: String,
    spent: String,
    left: String,
    renews_at: Option<String>,
}

#[derive(Debug)]
struct BudgetEntry {
    label: String,
    left: String,
    amount: String,
    spent: String,
    window: &'static str,
    renews_at: Option<TimeText>,
    /// Percent that is spent, for the meter.
    percent: u32,
}

#[derive(Debug, Deserialize)]
struct SumView {
    of: String,
    requests: u64,
    tokens_input: u64,
    tokens_output: u64,
    sale: String,
}

#[derive(Debug, Default)]
struct UsageFigures {
    requests: String,
    tokens: String,
    tokens_exact: String,
    amount: String,
    amount_exact: String,
}

#[derive(Debug)]
struct DayEntry {
    day: String,
    machine: String,
    requests: u64,
    requests_text: String,
    amount: String,
    amount_exact: String,
}

/// `/`: the page that fits the reader.
async fn enter(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let to = match (&request.signed_in, request.state.gateway.is_square_public()) {
        (Some(_), _) => "/console",
        (None, true) => "/models",
        (None, false) => "/sign-in",
    };
    Ok(PageReply::redirect(&request.url(to)))
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let keys = own_keys(&request).await?;
    let (balance, budgets) = budgets(&request, &keys).await?;
    let sums = usage(&request).await?;
    let now = request.state.gateway.now();
    let days: Vec<DayEntry> = (0..DAYS).rev().map(|back| day_entry(t, &sums, day_text(now, back))).collect();
    let today = day_text(now, 0);
    let template = HomePage {
        layout: request.layout(t.say("nav.home")).with(Script::Chart),
        t,
        base_url: model_url(&request),
        keys: keys.iter().map(|key| key_entry(t, key)).collect(),
        balance: balance.map(|balance| format::usd(&balance)),
        budgets,
        today: figures(t, sums.iter().filter(|sum| sum.of.starts_with(&today))),
        week: figures(t, sums.iter()),
        days,
        may_make_keys: request.is_operator(),
    };
    PageReply::ok(&template)
}

/// Where callers send requests: the console's address, or that of model requests if the console has its own.
pub(super) fn model_url(request: &PageRequest) -> String {
    let settings = request.state.gateway.settings();
    let value = |name: &str| settings.iter().find(|setting| setting.name == name).and_then(|setting| setting.value.clone());
    match (value("console.listen").filter(|address| !address.is_empty()), value("server.listen")) {
        (Some(_), Some(listen)) => format!("http://{listen}"),
        _ => request.state.identity.settings.url.as_str().trim_end_matches('/').to_owned(),
    }
}

fn of_member(request: &PageRequest, pairs: &[(&str, &str)]) -> Result<ApiCall, ApiError> {
    let signed_in = request.signed_in.as_ref().ok_or_else(ApiError::no_session)?;
    let member = signed_in.member.id.to_string();
    let mut filter = vec![("member", member.as_str())];
    filter.extend(pairs);
    Ok(get(&filter))
}

async fn own_keys(request: &PageRequest) -> Result<Vec<KeyView>, ApiError> {
    let call = of_member(request, &[("limit", &MAX_KEYS.to_string())])?;
    Ok(request.read::<ApiPage<KeyView>>(operations::LIST_KEYS, call).await?.items)
}

fn key_entry(t: Locale, key: &KeyView) -> KeyEntry {
    KeyEntry {
        id: key.id.clone(),
        name: key.name.clone(),
        shown: format!("{}••••{}", key.prefix, key.suffix),
        mark: mark::of_key(t, &key.state),
    }
}

/// The balance, and the budgets of the member and of the first active keys.
async fn budgets(request: &PageRequest, keys: &[KeyView]) -> Result<(Option<String>, Vec<BudgetEntry>), ApiError> {
    let (t, mut balance, mut entries) = (request.t(), None, Vec::new());
    let active = keys.iter().filter(|key| key.state == "active").take(MAX_ALLOWANCES);
    for (index, key) in active.enumerate() {
        let call = ApiCall { path: path_of(&[("key", &key.id)]), ..ApiCall::default() };
        let allowance: AllowanceView = request.read(operations::GET_KEY_ALLOWANCE, call).await?;
        balance = balance.or(allowance.balance);
        // The member's budgets are the same for every key.
        let budgets = allowance.budgets.iter().filter(|budget| index == 0 || budget.of == "key");
        entries.extend(budgets.map(|budget| budget_entry(t, budget, &allowance.name)));
    }
    Ok((balance, entries))
}

fn budget_entry(t: Locale, budget: &BudgetView, key: &str) -> BudgetEntry {
    let label = match budget.of.as_str() {
        "key" => t.say_with("home.budget_of_key", &[("key", key)]),
        _ => t.say("home.budget_of_member").to_owned(),
    };
    BudgetEntry {
        label,
        left: format::usd_short(&budget.left),
        amount: format::usd(&budget.amount),
        spent: format::usd(&budget.spent),
        window: match budget.window.as_str() {
            "day" => t.say("window.day"),
            "month" => t.say("window.month"),
            _ => t.say("window.total"),
        },
        renews_at: budget.renews_at.as_deref().and_then(|at| format::time(t, at)),
        percent: format::share_of(&budget.spent, &budget.amount),
    }
}

/// The UTC day so many days back, such as 2026-11-23.
fn day_text(now: Timestamp, back: i64) -> String {
    crate::time::rfc3339(now.plus_ms(-back * 86_400_000)).chars().take(10).collect()
}

async fn usage(request: &PageRequest) -> Result<Vec<SumView>, ApiError> {
    let since = format!("{}T00:00:00Z", day_text(request.state.gateway.now(), DAYS - 1));
    let call = of_member(request, &[("by", "day"), ("since", &since)])?;
    Ok(request.read::<ApiPage<SumView>>(operations::SUM_USAGE, call).await?.items)
}

fn figures<'a>(t: Locale, sums: impl Iterator<Item = &'a SumView>) -> UsageFigures {
    let (mut requests, mut tokens, mut amount) = (0_u64, 0_u64, tollgate_core::NanoUsd::ZERO);
    for sum in sums {
        requests = requests.saturating_add(sum.requests);
        tokens = tokens.saturating_add(sum.tokens_input).saturating_add(sum.tokens_output);
        let sale = tollgate_core::NanoUsd::parse(&sum.sale).unwrap_or(tollgate_core::NanoUsd::ZERO);
        amount = tollgate_core::NanoUsd(amount.0.saturating_add(sale.0));
    }
    let amount = amount.to_usd_string();
    UsageFigures {
        requests: format::integer(requests),
        tokens: format::compact(t, tokens),
        tokens_exact: format::integer(tokens),
        amount: format::usd_short(&amount),
        amount_exact: format::usd(&amount),
    }
}

fn day_entry(t: Locale, sums: &[SumView], day: String) -> DayEntry {
    let sum = sums.iter().find(|sum| sum.of.starts_with(&day));
    let (requests, sale) = sum.map_or((0, "0"), |sum| (sum.requests, sum.sale.as_str()));
    DayEntry {
        day: format::day(t, &day),
        machine: day,
        requests,
        requests_text: format::integer(requests),
        amount: format::usd_short(sale),
        amount_exact: format::usd(sale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_utc() {
        let now = Timestamp(1_795_219_200_000_000);
        assert_eq!(day_text(now, 0), "2026-11-21");
        assert_eq!(day_text(now, 6), "2026-11-15");
    }
}
