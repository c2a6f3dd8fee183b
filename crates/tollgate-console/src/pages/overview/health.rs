//! The channels with their last hour.

use std::collections::HashMap;

use super::{
    minutes_ago,
    sums::{self, AttemptFigures},
};
use crate::{
    api_error::ApiError,
    pages::{
        channels::state::{ChannelState, states},
        format::{self, TimeText},
        mark::Mark,
        operations,
        period::Period,
        request::{ApiPage, PageRequest, get},
        strip::{Strip, UptimeObject},
    },
};

/// Channels that are shown; those with trouble come first.
const MAX_SHOWN: usize = 12;

#[derive(Debug)]
pub(super) struct ChannelHealth {
    pub(super) name: String,
    pub(super) link: String,
    pub(super) mark: Mark,
    pub(super) detail: Option<String>,
    pub(super) until: Option<TimeText>,
    pub(super) strip: Option<Strip>,
    pub(super) errors: String,
    pub(super) errors_title: String,
    /// The requests that failed here.
    pub(super) errors_link: Option<String>,
    pub(super) first_token: String,
}

pub(super) async fn channels(request: &PageRequest, period: &Period) -> Result<Vec<ChannelHealth>, ApiError> {
    let t = request.t();
    let since = minutes_ago(request, 60);
    let pairs = [("since", since.as_str()), ("cells", "60"), ("limit", "200")];
    let hour = Period::last_hour(request.state.gateway.now());
    let (states, uptimes, sums, attempts, of_hour) = tokio::try_join!(
        states(request),
        request.read::<ApiPage<UptimeObject>>(operations::SHOW_UPTIME, get(&pairs)),
        sums::rows(request, period, &[("by", "channel")]),
        sums::attempts(request, period, &[("by", "channel")]),
        sums::attempts(request, &hour, &[("by", "channel")]),
    )?;
    let sent = |name: &str| of_hour.iter().find(|row| row.name.as_deref() == Some(name)).map_or(0, |row| row.attempts.attempts);
    let attempts: HashMap<&str, AttemptFigures> =
        attempts.iter().map(|row| (row.name.as_deref().unwrap_or_default(), row.attempts)).collect();
    let sums: HashMap<&str, &sums::SumRow> = sums.iter().map(|row| (row.name.as_deref().unwrap_or_default(), row)).collect();
    let uptimes: HashMap<&str, &UptimeObject> = uptimes.items.iter().map(|uptime| (uptime.channel.as_str(), uptime)).collect();
    let mut states = states;
    states.sort_by(|one, other| (one.severity(), &one.name).cmp(&(other.severity(), &other.name)));
    let row = |state: &ChannelState| {
        let sums = sums.get(state.name.as_str()).map(|row| &row.figures);
        let attempts = attempts.get(state.name.as_str()).copied();
        ChannelHealth {
            name: state.name.clone(),
            link: request.url(&state.path()),
            mark: state.mark(t),
            detail: state.detail(t),
            until: state.until(t),
            strip: uptimes.get(state.name.as_str()).map(|uptime| Strip::of_hour(t, uptime, sent(&state.name))),
            errors: attempts.map_or_else(|| "–".to_owned(), AttemptFigures::share),
            errors_title: attempts.map_or_else(String::new, |attempts| attempts.title(t)),
            errors_link: attempts.and_then(|attempts| attempts.log(request, period, &state.name, &[])),
            first_token: sums
                .and_then(|sums| sums.ttft)
                .filter(|times| times.p99 > 0)
                .map_or_else(|| "–".to_owned(), |times| format::percentile(t, times.p50)),
        }
    };
    Ok(states.iter().take(MAX_SHOWN).map(row).collect())
}
