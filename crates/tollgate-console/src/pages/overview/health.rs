//! The channels with their last hour.

use std::collections::HashMap;

use super::{
    minutes_ago,
    sums::{self, AttemptFigures},
};
use crate::{
    api_error::ApiError,
    pages::{
        channels::{
            health_columns::{HealthColumns, HealthFigures},
            state::{ChannelState, states},
        },
        operations,
        period::Period,
        request::{ApiPage, PageRequest, get},
        strip::UptimeObject,
    },
};

/// Channels that are shown; those with trouble come first.
const MAX_SHOWN: usize = 12;

pub(super) async fn channels(request: &PageRequest, period: &Period) -> Result<Vec<HealthColumns>, ApiError> {
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
        let name = state.name.as_str();
        let figures = HealthFigures {
            period,
            requests: sums.get(name).map(|row| &row.figures),
            attempts: attempts.get(name).copied(),
            last_hour: (uptimes.get(name).copied(), sent(name)),
        };
        HealthColumns::of(request, state, &figures)
    };
    Ok(states.iter().take(MAX_SHOWN).map(row).collect())
}
