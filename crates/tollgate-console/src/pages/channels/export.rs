//! The list of channels as a file: all channels of the filter, in its order, without credentials. Queries of base URLs are left out,
//! because they may contain keys.

use std::sync::Arc;

use super::{
    filter::{ChannelFilter, state_word},
    list::{Sources, groups_of, select, sources},
    state::{ChannelState, states},
};
use crate::pages::{
    csv_file::{CsvLine, number, text, texts, whole},
    money,
    reply::{PageFailure, PageReply},
    request::PageRequest,
};

const HEAD: &[&str] = &[
    "id",
    "name",
    "provider",
    "status",
    "state",
    "base_url",
    "tags",
    "priority",
    "weight",
    "accounts",
    "models",
    "groups",
    "attempts_hour",
    "failed_hour",
    "ttft_p50_us_hour",
    "running",
    "requests_today",
    "usd_today",
    "cost_usd_today",
];

pub(super) async fn csv(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let query = &request.query;
    let (mut states, sources) = tokio::try_join!(states(&request), sources(&request))?;
    select(&ChannelFilter::of(query), query.value("sort"), &mut states, &sources);
    let lines: Vec<CsvLine> = states.iter().map(|state| line(state, &sources)).collect();
    Ok(whole("channels.csv", HEAD, &lines))
}

fn line(state: &ChannelState, sources: &Sources) -> CsvLine {
    let (hour, day) = (sources.hour.get(&state.name), sources.day.get(&state.name));
    let attempts = sources.attempts.get(&state.name).copied().unwrap_or_default();
    let (sale, cost) = day.map_or((0, 0), |day| (day.sale_nano(), day.cost_nano()));
    let channel = &state.channel;
    let models: Vec<String> = channel.serves.iter().map(|served| served.model.clone()).collect();
    let first_content = hour.and_then(|hour| hour.ttft).map(|times| times.p50).filter(|time| *time > 0);
    vec![
        channel.id.clone(),
        text(&channel.name),
        channel.provider.clone(),
        channel.status.clone(),
        state_word(state.severity()).to_owned(),
        text(channel.base_url.split('?').next().unwrap_or_default()),
        texts(&channel.tags),
        channel.priority.to_string(),
        channel.weight.to_string(),
        state.accounts.len().to_string(),
        texts(&models),
        text(&groups_of(state, sources).join(" ")),
        attempts.attempts.to_string(),
        attempts.failed.to_string(),
        number(first_content),
        number(state.running().map(|(running, _)| running)),
        number(Some(day.map_or(0, |day| day.requests))),
        money::decimal(sale),
        money::decimal(cost),
    ]
}
