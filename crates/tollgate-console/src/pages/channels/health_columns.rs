//! The health columns of a channel's row, in the list of channels and on the overview: state, last hour, errors, and the time to the first
//! content.

use super::state::ChannelState;
use crate::pages::{
    format::{self, TimeText},
    mark::Mark,
    overview::sums::{AttemptFigures, Figures},
    period::Period,
    request::PageRequest,
    strip::{Strip, UptimeObject},
};

#[derive(Debug)]
pub(in crate::pages) struct HealthColumns {
    pub(in crate::pages) name: String,
    pub(in crate::pages) link: String,
    pub(in crate::pages) mark: Mark,
    pub(in crate::pages) detail: Option<String>,
    pub(in crate::pages) until: Option<TimeText>,
    pub(in crate::pages) strip: Option<Strip>,
    pub(in crate::pages) errors: String,
    pub(in crate::pages) errors_title: String,
    /// The requests that failed here.
    pub(in crate::pages) errors_link: Option<String>,
    pub(in crate::pages) first_token: String,
}

/// The figures of a channel that the columns show.
#[derive(Clone, Copy, Debug)]
pub(in crate::pages) struct HealthFigures<'a> {
    /// The time of the requests and attempts.
    pub(in crate::pages) period: &'a Period,
    pub(in crate::pages) requests: Option<&'a Figures>,
    pub(in crate::pages) attempts: Option<AttemptFigures>,
    /// The strip of the last hour, with the number of attempts in it.
    pub(in crate::pages) last_hour: (Option<&'a UptimeObject>, u64),
}

impl HealthColumns {
    pub(in crate::pages) fn of(request: &PageRequest, state: &ChannelState, figures: &HealthFigures<'_>) -> Self {
        let t = request.t();
        let HealthFigures { period, requests, attempts, last_hour: (uptime, sent) } = *figures;
        Self {
            name: state.name.clone(),
            link: request.url(&state.path()),
            mark: state.mark(t),
            detail: state.detail(t),
            until: state.until(t),
            strip: uptime.map(|uptime| Strip::of_hour(t, uptime, sent)),
            errors: attempts.map_or_else(|| "–".to_owned(), AttemptFigures::share),
            errors_title: attempts.map_or_else(String::new, |attempts| attempts.title(t)),
            errors_link: attempts.and_then(|attempts| attempts.log(request, period, &state.name, &[])),
            first_token: requests
                .and_then(|requests| requests.ttft)
                .filter(|times| times.p99 > 0)
                .map_or_else(|| "–".to_owned(), |times| format::percentile(t, times.p50)),
        }
    }
}
