//! The usage of a key in the last 30 days: figures that link to the usage log, and its requests by outcome over time.

use tollgate_core::Timestamp;

use super::view::KeyObject;
use crate::{
    api_error::ApiError,
    pages::{
        bars::Chart,
        form::FormData,
        log::{Buckets, LogFigures, NOT_COMPLETED, figures, outcome_chart},
        operations,
        period::Period,
        request::{PageRequest, get},
    },
    time::{parse_rfc3339, rfc3339},
};

/// The range of the usage log that has the same requests.
const RANGE: &str = "30d";
/// A chart is about a minute or more.
const SHORTEST_MS: i64 = 60_000;

/// Sums of a key's requests.
#[derive(Debug)]
pub(super) struct KeyFigures {
    pub(super) sums: LogFigures,
    /// The time of the sums, in words.
    pub(super) time: &'static str,
    pub(super) chart: Chart,
    /// The requests in the usage log.
    pub(super) log: String,
    /// Those of them that were not completed.
    pub(super) not_completed: String,
}

impl KeyFigures {
    /// While the database is busy the page is shown without figures.
    pub(super) async fn read(request: &PageRequest, key: &KeyObject) -> Result<Option<Self>, ApiError> {
        let (t, now) = (request.t(), request.state.gateway.now());
        let whole = Period::of(&FormData::of(&[("range", RANGE)]), now);
        let (since, is_whole) = begin(whole.since, &key.created_at, now);
        let since_text = rfc3339(since);
        let (bars, width) = Period::fixed(since.0, now.0).with_bars(Some("day")).bars();
        // A time until now has no end, so that it is read from sums and not from records.
        let asked = get(&[("key", key.id.as_str()), ("since", &since_text), (bars, width)]);
        let buckets: Buckets = match request.read(operations::DRAW_USAGE, asked).await {
            Ok(buckets) => buckets,
            Err(error) if error.code() == "server_overloaded" => return Ok(None),
            Err(error) => return Err(error),
        };
        let log = |query: String| request.url(&format!("/log?{query}"));
        Ok(Some(Self {
            sums: figures(t, &buckets),
            time: if is_whole { t.say("keys.in_month") } else { t.say("keys.since_made") },
            chart: outcome_chart(t, &buckets, |bucket| log(format!("{}&key={}", bucket.query(), key.id))),
            log: log(whole.log_query(&[("key", &key.id)])),
            not_completed: log(whole.log_query(&[("key", &key.id), ("outcome", NOT_COMPLETED)])),
        }))
    }
}

/// The beginning of the sums, and whether it is that of the whole range; the chart of a younger key begins when the key
/// was made.
fn begin(month: Timestamp, created_at: &str, now: Timestamp) -> (Timestamp, bool) {
    match parse_rfc3339(created_at).filter(|made| *made > month) {
        Some(made) => (made.min(now.plus_ms(-SHORTEST_MS)), false),
        None => (month, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 29 November 2026, 12:00 UTC.
    const NOW: Timestamp = Timestamp(1_795_953_600_000_000);

    #[test]
    fn sums_of_a_young_key_begin_when_it_was_made() {
        let month = NOW.plus_ms(-30 * 86_400_000);
        assert_eq!(begin(month, "2020-01-01T00:00:00Z", NOW), (month, true));
        assert_eq!(begin(month, "2026-11-29T11:00:00Z", NOW), (NOW.plus_ms(-3_600_000), false));
        assert_eq!(begin(month, &rfc3339(NOW), NOW), (NOW.plus_ms(-SHORTEST_MS), false), "a time without length is refused");
    }
}
