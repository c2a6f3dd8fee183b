//! The list of channels.

use std::{
    cmp::{Ordering, Reverse},
    collections::HashMap,
    sync::Arc,
};

use askama::Template;
use serde::Deserialize;
use tollgate_store::ViewPage;

use super::{
    drawer::ChannelDrawer,
    filter::{ChannelChoice, ChannelFilter},
    health_columns::{HealthColumns, HealthFigures},
    last_test::LastTest,
    rates::RateUse,
    state::{ChannelState, provider_name, provider_tone, states},
};
use crate::{
    api_error::ApiError,
    pages::{
        control::Pager,
        drawer::OPEN,
        format,
        layout::{Layout, Script},
        list_order::{ListOrder, page_of},
        locale::Locale,
        money::{self, Amount},
        operations,
        overview::sums::{self, AttemptFigures, Figures, SumRow},
        page_cursors::AFTER,
        period::Period,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
        strip::UptimeObject,
        views::SavedViews,
    },
    time::rfc3339,
};

/// Channels on a page.
const PAGE: usize = 50;
/// The orders of the list; that of trouble unless another one is chosen.
const SORTS: [&str; 5] = ["state", "name", "errors", "cost", "margin"];

#[derive(Debug, Template)]
#[template(path = "channels.html")]
struct ChannelsPage {
    layout: Layout,
    t: Locale,
    filter: ChannelFilter,
    views: SavedViews,
    choices: Vec<ChannelChoice>,
    is_filtered: bool,
    order: ListOrder,
    sorts: Vec<(&'static str, &'static str, bool)>,
    /// The address of the same list as a file.
    csv: String,
    /// Actions on the chosen channels: word and label.
    actions: [(&'static str, &'static str); 6],
    rows: Vec<ChannelRow>,
    /// The address of the list, to which actions on chosen channels return.
    here: String,
    pager: Pager,
    refresh: String,
    /// The channel that the address opens beside the list.
    open: Option<ChannelDrawer>,
}

#[derive(Debug)]
pub(super) struct ChannelRow {
    pub(super) id: String,
    pub(super) health: HealthColumns,
    pub(super) initial: String,
    pub(super) tone: &'static str,
    pub(super) provider: &'static str,
    pub(super) tags: Vec<String>,
    pub(super) is_failing: bool,
    pub(super) running: String,
    pub(super) rates: Vec<RateUse>,
    pub(super) cost: Amount,
    pub(super) margin: String,
    pub(super) is_loss: bool,
    pub(super) multiplier: String,
    pub(super) models: String,
    pub(super) test: Option<LastTest>,
    pub(super) groups: String,
    pub(super) order: String,
}

#[derive(Debug, Deserialize)]
struct GroupObject {
    name: String,
    channels: Vec<String>,
}

/// Data of the list besides the states of the channels.
pub(super) struct Sources {
    last_hour: Period,
    pub(super) hour: HashMap<String, Figures>,
    pub(super) attempts: HashMap<String, AttemptFigures>,
    pub(super) day: HashMap<String, Figures>,
    uptimes: Vec<UptimeObject>,
    groups: Vec<GroupObject>,
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), &request.query);
    let (mut states, sources) = tokio::try_join!(states(&request), sources(&request))?;
    let filter = ChannelFilter::of(query);
    let groups: Vec<String> = sources.groups.iter().map(|group| group.name.clone()).collect();
    let choices = filter.choices(t, &states, &groups);
    let opened = query.filled(OPEN).and_then(|name| states.iter().find(|state| state.name == name));
    let open = opened.map(|state| ChannelDrawer::of(&request, state, &sources));
    let (all, order) = (states.len(), ListOrder::of(&request, &SORTS));
    select(&filter, order.chosen().unwrap_or_default(), &mut states, &sources);
    let (found, on) = (states.len(), states.iter().filter(|state| state.is_on()).count());
    let [found_text, all, on] = [found, all, on].map(|count| count.to_string());
    let count = t.say_with("channels.count", &[("shown", &found_text), ("all", &all), ("on", &on)]);
    // The last page may have lost its channels: the list begins again.
    let after = query.filled(AFTER).filter(|after| after.parse().is_ok_and(|begin: usize| begin < found));
    let page = page_of(states, after, PAGE);
    let rows: Vec<ChannelRow> = page.items.iter().map(|state| row(&request, state, &sources)).collect();
    let template = ChannelsPage {
        layout: request
            .layout(t.say("nav.channels"))
            .wide()
            .with(Script::Refresh)
            .with(Script::Tables)
            .with(Script::Choose)
            .with(Script::Drawer),
        t,
        open,
        is_filtered: filter.is_set(),
        views: SavedViews::read(&request, ViewPage::Channels).await?,
        filter,
        choices,
        sorts: order.choices(&labels(t)),
        order,
        actions: [
            ("on", t.say("channels.turn_on")),
            ("off", t.say("channels.turn_off")),
            ("test", t.say("test.run")),
            ("edit", t.say("channels.edit")),
            ("export", t.say("selection.export")),
            ("remove", t.say("channels.remove_short")),
        ],
        rows,
        pager: request.pager("/channels", count, page.next.as_deref()),
        csv: request.at("/channels.csv", &Vec::new()),
        here: request.url(&request.address),
        refresh: request.beside("/channels", None),
    };
    PageReply::ok(&template)
}

/// The orders with their labels.
fn labels(t: Locale) -> [(&'static str, &'static str); 5] {
    [
        ("state", t.say("channels.by_state")),
        ("name", t.say("channels.by_name")),
        ("errors", t.say("channels.by_errors")),
        ("cost", t.say("channels.by_cost")),
        ("margin", t.say("sort.margin")),
    ]
}

/// Keeps the channels of a filter, in this order.
pub(super) fn select(filter: &ChannelFilter, sort: &str, states: &mut Vec<ChannelState>, sources: &Sources) {
    states.retain(|state| filter.selects(state, &groups_of(state, sources)));
    let errors = |state: &ChannelState| {
        let attempts = sources.attempts.get(&state.name);
        attempts.map_or(0, |attempts| attempts.failed)
    };
    let cost = |state: &ChannelState| sources.day.get(&state.name).map_or(0, Figures::cost_nano);
    let sale = |state: &ChannelState| sources.day.get(&state.name).map_or(0, Figures::sale_nano);
    match sort {
        "errors" => states.sort_by_key(|state| Reverse(errors(state))),
        "cost" => states.sort_by_key(|state| Reverse(cost(state))),
        "margin" => states.sort_by(|one, other| by_margin((sale(one), cost(one)), (sale(other), cost(other)))),
        "name" => {}
        _ => states.sort_by(|one, other| (one.severity(), &one.name).cmp(&(other.severity(), &other.name))),
    }
}

/// The lowest margin first: the largest share of the cost in the sale. Channels without sales come last.
fn by_margin((sale, cost): (u64, u64), (other_sale, other_cost): (u64, u64)) -> Ordering {
    let [share, other_share] = [(cost, other_sale), (other_cost, sale)].map(|(cost, sale)| u128::from(cost) * u128::from(sale));
    (sale == 0).cmp(&(other_sale == 0)).then(other_share.cmp(&share))
}

pub(super) async fn sources(request: &PageRequest) -> Result<Sources, ApiError> {
    let now = request.state.gateway.now();
    let (hour, today) = (Period::last_hour(now), Period::today(now));
    let since = rfc3339(hour.since);
    let (of_hour, of_day, attempts, uptimes, groups) = tokio::try_join!(
        sums::rows(request, &hour, &[("by", "channel")]),
        sums::rows(request, &today, &[("by", "channel"), sums::WITHOUT_TIMES]),
        sums::attempts(request, &hour, &[("by", "channel")]),
        request
            .read::<ApiPage<UptimeObject>>(operations::SHOW_UPTIME, get(&[("since", &since), ("cells", "30"), ("limit", "1000")])),
        request.read::<ApiPage<GroupObject>>(operations::LIST_GROUPS, get(&[("limit", "1000")])),
    )?;
    let by_name = |rows: Vec<SumRow>| rows.into_iter().filter_map(|row| Some((row.name?, row.figures))).collect();
    Ok(Sources {
        last_hour: hour,
        hour: by_name(of_hour),
        day: by_name(of_day),
        attempts: attempts.into_iter().filter_map(|row| Some((row.name?, row.attempts))).collect(),
        uptimes: uptimes.items,
        groups: groups.items,
    })
}

/// The groups that offer a channel.
pub(super) fn groups_of<'a>(state: &ChannelState, sources: &'a Sources) -> Vec<&'a str> {
    sources.groups.iter().filter(|group| group.channels.contains(&state.name)).map(|group| group.name.as_str()).collect()
}

pub(super) fn row(request: &PageRequest, state: &ChannelState, sources: &Sources) -> ChannelRow {
    let t = request.t();
    let attempts = sources.attempts.get(&state.name).copied();
    let (sale, cost) = sources.day.get(&state.name).map_or((0, 0), |day| (day.sale_nano(), day.cost_nano()));
    let uptime = sources.uptimes.iter().find(|uptime| uptime.channel == state.name);
    let figures = HealthFigures {
        period: &sources.last_hour,
        requests: sources.hour.get(&state.name),
        attempts,
        last_hour: (uptime, attempts.map_or(0, |it| it.attempts)),
    };
    ChannelRow {
        id: state.channel.id.clone(),
        health: HealthColumns::of(request, state, &figures),
        initial: state.name.chars().next().map(|first| first.to_uppercase().to_string()).unwrap_or_default(),
        tone: provider_tone(&state.channel.provider),
        provider: provider_name(t, &state.channel.provider),
        tags: state.channel.tags.clone(),
        is_failing: attempts.is_some_and(|it| it.failed.saturating_mul(10) > it.attempts),
        running: running_text(state),
        rates: RateUse::shares(t, state.requests_minute(), state.tokens_minute()),
        cost: money::rounded(t, &money::decimal(cost)),
        margin: if sale == 0 { "–".to_owned() } else { margin(sale, cost) },
        is_loss: cost > sale,
        multiplier: state.cost_multiplier().unwrap_or_else(|| "–".to_owned()),
        models: state.channel.serves.len().to_string(),
        test: LastTest::of_channel(t, &state.accounts, request.state.gateway.now()),
        groups: groups_of(state, sources).join(", "),
        order: format!("{} / {}", state.channel.priority, state.channel.weight),
    }
}

/// Requests in progress, with their limit if there is one.
pub(super) fn running_text(state: &ChannelState) -> String {
    match state.running() {
        Some((running, Some(most))) => format!("{} / {}", format::integer(running), format::integer(most)),
        Some((running, None)) => format::integer(running),
        None => "–".to_owned(),
    }
}

/// The margin as a percentage of the sale amount.
pub(super) fn margin(sale: u64, cost: u64) -> String {
    format!("{}{}", if cost > sale { "−" } else { "" }, format::ratio_short(sale.abs_diff(cost), sale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_margin_comes_first_and_channels_without_sales_last() {
        // Sale and cost.
        let mut sums = [(0, 9), (10, 1), (4, 2), (10, 12), (u64::MAX, u64::MAX), (0, 0)];
        sums.sort_by(|one, other| by_margin(*one, *other));
        assert_eq!(sums, [(10, 12), (u64::MAX, u64::MAX), (4, 2), (10, 1), (0, 9), (0, 0)]);
    }

    #[test]
    fn orders_have_labels() {
        assert_eq!(labels(Locale::EN).map(|(word, _)| word), SORTS);
    }
}
