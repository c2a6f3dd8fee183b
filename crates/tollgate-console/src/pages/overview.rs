//! The operators' overview: figures of a period and of the one before, charts, the health of channels, recent errors with advice, the
//! busiest keys, recent changes, and open alerts. All figures come from sums; records are read only for the list of errors.

pub(super) mod charts;
mod checklist;
pub(super) mod errors;
pub(super) mod events;
mod figures;
mod health;
mod keys;
pub(super) mod sums;

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::Value;
use tollgate_store::AdminScope;

use self::{
    charts::{SpendChart, Split},
    checklist::Checklist,
    errors::{OwnerErrors, RecentError},
    events::Event,
    figures::{Busyness, Tile},
    keys::BusyKey,
    sums::Totals,
};
use super::{
    alert_text,
    bars::Chart,
    channels::health_columns::HealthColumns,
    format::{self, TimeText},
    layout::{Layout, Script},
    lines::LineChart,
    locale::Locale,
    log::{Buckets, NOT_COMPLETED, outcome_chart},
    operations,
    period::{Period, PeriodPicker},
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get},
    route::{PageRoute, SeenBy, page},
};
use crate::{api_error::ApiError, dispatch::ApiCall, time::rfc3339};

pub(super) static ROUTES: &[PageRoute] = &[PageRoute::get("/overview", SeenBy::Role(AdminScope::Operator), page!(show))];

/// Maximum number of open alerts that are shown.
const MAX_ALERTS: usize = 5;
const ALERTS: &str = "1000";
/// Maximum number of models without a price that one alert names.
const NAMED: usize = 5;

#[derive(Debug, Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    layout: Layout,
    t: Locale,
    period: PeriodPicker,
    part: OverviewPart,
}

/// The part that is reloaded while the page is open.
#[derive(Debug, Template)]
#[template(path = "parts/overview.html")]
struct OverviewPart {
    layout: Layout,
    t: Locale,
    /// Its address for reloading; `None` for a period that has ended.
    refresh: Option<String>,
    alerts: Vec<AlertRow>,
    /// Label and target of the link to the alerts that are not shown.
    more_alerts: Option<(String, String)>,
    stores_contents: bool,
    checklist: Option<Checklist>,
    tiles: Vec<Tile>,
    outcomes: Chart,
    owners: OwnerErrors,
    spend: SpendChart,
    first_token: LineChart,
    tokens: Chart,
    channels: Vec<HealthColumns>,
    errors: Vec<RecentError>,
    all_errors: String,
    keys: Vec<BusyKey>,
    events: Vec<Event>,
}

#[derive(Debug)]
struct AlertRow {
    text: String,
    at: Option<TimeText>,
    tone: &'static str,
    icon: &'static str,
    /// Label and target of the link.
    link: Option<(&'static str, String)>,
}

#[derive(Debug, Deserialize)]
struct AlertObject {
    rule: String,
    subject: String,
    raised_at: String,
    text: String,
    detail: Value,
    node: String,
}

/// How busy the gateway is now, as the admin API answers it.
#[derive(Debug, Deserialize)]
struct LoadObject {
    in_flight: u64,
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let period = Period::of(&request.query, request.state.gateway.now());
    let part = load(&request, &period).await?;
    if request.wants_part() {
        return PageReply::ok(&part);
    }
    let template = OverviewPage {
        layout: request.layout(t.say("nav.overview")).with(Script::Refresh),
        t,
        period: period.picker(t, &request.url("/overview"), &request.query),
        part,
    };
    PageReply::ok(&template)
}

async fn load(request: &PageRequest, period: &Period) -> Result<OverviewPart, ApiError> {
    let t = request.t();
    let split = Split::of(request.query.value("split"));
    let (totals, series, outcomes) =
        tokio::try_join!(Totals::read(request, period), sums::series(request, period, &[]), outcome_buckets(request, period))?;
    let (spend, owners, channels) = tokio::try_join!(
        charts::spend(request, period, split, &series),
        errors::owners(request, period),
        health::channels(request, period),
    )?;
    let (recent, (busiest, active), events) =
        tokio::try_join!(errors::recent(request, &outcomes, &[]), keys::used(request, period), events::latest(request, period))?;
    let ((alerts, open), load, checklist) = tokio::try_join!(open_alerts(request), load_now(request), checklist::read(request))?;
    let log = |pairs: &[(&str, &str)]| request.url(&format!("/log?{}", period.log_query(pairs)));
    let address = request.url(&format!("/overview?{}&split={}", period.query(), split.word()));
    Ok(OverviewPart {
        layout: request.layout(t.say("nav.overview")),
        t,
        refresh: period.is_until_now().then_some(address),
        more_alerts: (open > alerts.len()).then(|| {
            let more = (open - alerts.len()).to_string();
            (t.say_with("overview.more_alerts", &[("count", &more)]), request.url("/alerts"))
        }),
        alerts,
        stores_contents: request.state.gateway.stores_contents(),
        checklist,
        tiles: figures::tiles(
            t,
            &totals,
            &series,
            Busyness { in_flight: load.in_flight, keys: active, all_keys: &request.url("/keys") },
            &log(&[]),
        ),
        outcomes: outcome_chart(t, &outcomes, |bucket| request.url(&format!("/log?{}", bucket.query()))),
        owners,
        spend,
        first_token: charts::first_token(t, &series, &totals.now),
        tokens: charts::tokens(request, period, &series),
        channels,
        errors: recent,
        all_errors: log(&[("outcome", NOT_COMPLETED)]),
        keys: busiest,
        events,
    })
}

/// The requests of the period by outcome.
async fn outcome_buckets(request: &PageRequest, period: &Period) -> Result<Buckets, ApiError> {
    sums::read(request, period, operations::DRAW_USAGE, &[period.bars()]).await
}

async fn load_now(request: &PageRequest) -> Result<LoadObject, ApiError> {
    request.read(operations::GET_LOAD, ApiCall::default()).await
}

/// The most urgent open alerts, the newest first of equal urgency, and how many there are. Models without a price are one alert.
async fn open_alerts(request: &PageRequest) -> Result<(Vec<AlertRow>, usize), ApiError> {
    let t = request.t();
    let found: ApiPage<AlertObject> = request.read(operations::LIST_ALERTS, get(&[("state", "open"), ("limit", ALERTS)])).await?;
    let row = |alert: &AlertObject| {
        let (tone, icon) = match alert.rule.as_str() {
            "channel_down" | "error_share" | "journal_growing" => ("bad", "badc"),
            "unpriced_model" | "key_expiring" | "certificate_expiring" => ("info", "info"),
            _ => ("warn", "warn"),
        };
        let link = alert_text::link(t, &alert.rule, &alert.subject, &alert.detail);
        let text = alert_text::sentence(t, &alert.rule, &alert.detail, &alert.node, &alert.text);
        AlertRow {
            at: format::time(t, &alert.raised_at),
            text,
            tone,
            icon,
            link: link.map(|(label, path)| (label, request.url(&path))),
        }
    };
    let (unpriced, others): (Vec<_>, Vec<_>) = found.items.iter().partition(|alert| alert.rule == "unpriced_model");
    let mut rows: Vec<AlertRow> = others.into_iter().map(row).collect();
    match unpriced.as_slice() {
        [] => {}
        [alert] => rows.push(row(alert)),
        [newest, ..] => {
            let models: Vec<&str> = unpriced.iter().filter_map(|alert| alert.detail["model"].as_str()).collect();
            let link = Some((t.say("alert.open_prices"), request.url("/pricing/unpriced")));
            rows.push(AlertRow { text: unpriced_models(t, &models), link, ..row(newest) });
        }
    }
    let open = rows.len();
    rows.sort_by_key(|row| urgency(row.tone));
    rows.truncate(MAX_ALERTS);
    Ok((rows, open))
}

/// The order of alerts by tone.
fn urgency(tone: &str) -> usize {
    ["bad", "warn"].iter().position(|known| *known == tone).unwrap_or(2)
}

/// Several models without a price in one sentence.
fn unpriced_models(t: Locale, models: &[&str]) -> String {
    if let [model] = models {
        return t.say_with("alert.unpriced_model", &[("model", model)]);
    }
    let names = models.iter().take(NAMED).copied().collect::<Vec<_>>().join(t.say("list.separator"));
    let more = models.len().saturating_sub(NAMED);
    let names = if more > 0 { t.say_with("keys.and_more", &[("names", &names), ("count", &more.to_string())]) } else { names };
    t.say_with("alert.unpriced_models", &[("count", &models.len().to_string()), ("models", &names)])
}

/// The beginning of a time until now.
fn minutes_ago(request: &PageRequest, minutes: i64) -> String {
    rfc3339(request.state.gateway.now().plus_ms(-minutes * 60_000))
}

/// The change against the period before: whether it is an increase, and the change in percent. `None` if the earlier figure was 0 or the
/// figure has not changed.
fn change(now: u64, before: u64) -> Option<(bool, String)> {
    if before == 0 || now == before {
        return None;
    }
    let tenths = u128::from(now.abs_diff(before)) * 1_000 / u128::from(before);
    let text = format!("{} {}.{} %", if now > before { "↑" } else { "↓" }, tenths / 10, tenths % 10);
    Some((now > before, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_of_failures_come_before_warnings_and_news() {
        let mut tones = ["info", "bad", "warn", "bad"];
        tones.sort_by_key(|tone| urgency(tone));
        assert_eq!(tones, ["bad", "bad", "warn", "info"]);
    }

    #[test]
    fn change_is_relative_to_the_previous_period() {
        assert_eq!(change(106, 100), Some((true, "↑ 6.0 %".to_owned())));
        assert_eq!(change(999, 1_000), Some((false, "↓ 0.1 %".to_owned())));
        assert_eq!((change(5, 0), change(5, 5)), (None, None));
    }

    #[test]
    fn models_without_a_price_are_listed_in_one_alert() {
        let text = "6 models are served and have no price: a, b, c, d, e and 1 more";
        assert_eq!(unpriced_models(Locale::EN, &["a", "b", "c", "d", "e", "f"]), text);
    }

    #[test]
    fn summary_rows_are_deserialised() {
        let row: sums::SumRow = serde_json::from_value(serde_json::json!({
            "of": "gpt", "name": null, "member": null, "and": "", "and_name": null, "and_member": null,
            "requests": 3, "completed": 2, "tokens_input": 10, "tokens_output": 5, "tokens_cache_read": 4, "sale": "0.5", "cost": "0.25",
            "ttft": {"p50_us": 1, "p95_us": 2, "p99_us": 3}, "duration": null, "overhead": null, "previous": null,
        }))
        .unwrap();
        assert_eq!((row.figures.requests, row.figures.sale_nano(), row.figures.cost_nano()), (3, 500_000_000, 250_000_000));
    }
}
