//! The queries of the console and of the usage API: pages, charts, sums by every grouping and of every filter, histograms.

use std::time::{Duration, Instant};

use tollgate_core::{NanoUsd, Outcome, TagName, Timestamp};
use tollgate_store::{
    Grouping, RecordConditions, SortOrder, Store, StoreError, SummaryBy, SummaryFigure, TagCondition, TrafficWidth, UsageCursor,
    UsageFilter,
};

use super::{
    data::{BUSY_EVERY, BUSY_TIMES, HOUR, account, at, channel, group},
    rows::key,
};

/// Runs of each query; the slowest counts.
const RUNS: usize = 5;
/// A query that takes longer is not repeated.
const TOO_LONG: Duration = Duration::from_secs(2);

/// The slowest page.
pub(super) async fn time_pages(store: &Store) -> Result<Duration, StoreError> {
    let deep = UsageFilter { limit: 100, since: None, until: Some(at(40, 12_345_678)), ..UsageFilter::default() };
    let after = store.usage.page(&deep).await?.items.last().map(|record| UsageCursor(record.id));
    let page = UsageFilter { limit: 100, ..UsageFilter::default() };
    let not_completed = vec![Outcome::CallerLeft, Outcome::UpstreamBroke, Outcome::Refused, Outcome::GatewayStopped];
    let pages: [(&str, UsageFilter); 8] = [
        ("newest page", page.clone()),
        ("page in the middle", UsageFilter { after, ..page.clone() }),
        ("oldest page", UsageFilter { order: SortOrder::Oldest, ..page.clone() }),
        ("page of a key", UsageFilter { key: Some(key(7)), ..page.clone() }),
        (
            "page of a group in a day",
            UsageFilter { group: Some(group(3)), since: Some(at(20, 0)), until: Some(at(21, 0)), ..page.clone() },
        ),
        ("page of a model", UsageFilter { model: Some("model-11".to_owned()), ..page.clone() }),
        ("page of what the upstream broke", UsageFilter { outcomes: vec![Outcome::UpstreamBroke], ..page.clone() }),
        ("page of what was not completed", UsageFilter { outcomes: not_completed, ..page }),
    ];
    let mut longest = Duration::ZERO;
    for (what, filter) in pages {
        longest = longest.max(slowest(what, async || Ok(store.usage.page(&filter).await?.items.len())).await?);
    }
    Ok(longest)
}

/// The slowest sum over whole days, or over days and hours.
pub(super) async fn time_charts(store: &Store) -> Result<Duration, StoreError> {
    let all = UsageFilter::default();
    let month = UsageFilter { since: Some(at(45, 1_234_567)), until: Some(at(75, 7_654_321)), ..UsageFilter::default() };
    let charts: [(&str, UsageFilter, SummaryBy); 7] = [
        ("all of it", all.clone(), SummaryBy::Nothing),
        ("all by day", all.clone(), SummaryBy::Day),
        ("all by model", all.clone(), SummaryBy::Model),
        ("all by key", all.clone(), SummaryBy::Key),
        ("all by outcome", all, SummaryBy::Outcome),
        ("thirty days from one minute to another, by group", month.clone(), SummaryBy::Group),
        ("one key's thirty days by day", UsageFilter { key: Some(key(7)), ..month }, SummaryBy::Day),
    ];
    let mut longest = Duration::ZERO;
    for (what, filter, by) in charts {
        longest = longest.max(slowest(what, async || Ok(store.usage.summary(&filter, by.into()).await?.len())).await?);
    }
    Ok(longest)
}

/// The slowest sum over a range that begins and ends within five minutes of a busy hour.
pub(super) async fn time_unaligned(store: &Store) -> Result<Duration, StoreError> {
    let ranges = [
        ("ten minutes but two seconds", noon(15, 1), noon(15, 599)),
        ("an hour but two seconds", noon(15, 1), noon(15, 3_599)),
        ("a busy hour to the next", noon(15, 1), noon(16, 3_599)),
        ("a month from one busy hour to another", noon(15, 1), noon(25, 3_599)),
        ("all of it from one busy hour to another", noon(0, 1), noon(BUSY_TIMES - 1, 3_599)),
    ];
    let any = UsageFilter::default();
    let filters = [
        ("", any.clone(), SummaryBy::Nothing),
        (", by day", any.clone(), SummaryBy::Day),
        (", by model", any.clone(), SummaryBy::Model),
        (", by key", any.clone(), SummaryBy::Key),
        (", by group", any.clone(), SummaryBy::Group),
        (", by outcome", any.clone(), SummaryBy::Outcome),
        (", of a key by day", UsageFilter { key: Some(key(7)), ..any.clone() }, SummaryBy::Day),
        (", of a model by key", UsageFilter { model: Some("model-11".to_owned()), ..any.clone() }, SummaryBy::Key),
        (", of a group by model", UsageFilter { group: Some(group(3)), ..any.clone() }, SummaryBy::Model),
        (", of the completed by day", UsageFilter { outcomes: vec![Outcome::Completed], ..any }, SummaryBy::Day),
    ];
    let mut longest = Duration::ZERO;
    for (range, since, until) in ranges {
        for (what, filter, by) in &filters {
            let filter = UsageFilter { since: Some(since), until: Some(until), ..filter.clone() };
            let what = format!("{range}{what}");
            longest = longest.max(slowest(&what, async || Ok(store.usage.summary(&filter, (*by).into()).await?.len())).await?);
        }
    }
    let filter = UsageFilter { since: Some(noon(15, 1)), until: Some(noon(25, 3_599)), ..UsageFilter::default() };
    let hours = async || Ok(store.usage.summary(&filter, SummaryBy::Hour.into()).await?.len());
    Ok(longest.max(slowest("a month from one busy hour to another, by hour", hours).await?))
}

/// A time in the busy hour of a day.
const fn noon(busy_time: i64, seconds: i64) -> Timestamp {
    at(busy_time * BUSY_EVERY, 12 * HOUR + seconds * 1_000_000)
}

/// The slowest sum by one or two groupings: over everything, over thirty whole days, and over a month that begins and ends in busy hours.
pub(super) async fn time_groupings(store: &Store, has_tags: bool) -> Result<Duration, StoreError> {
    use SummaryBy::{Account, Channel, Day, Group, Hour, Key, Member, Model, Month, Nothing, Outcome, Protocol, Reason, Tag};
    let all = UsageFilter::default();
    let days = UsageFilter { since: Some(at(45, 0)), until: Some(at(75, 0)), ..UsageFilter::default() };
    let month = UsageFilter { since: Some(noon(15, 1)), until: Some(noon(25, 3_599)), ..UsageFilter::default() };
    let dimensions = [Month, Day, Hour, Model, Key, Member, Group, Channel, Account, Protocol, Outcome, Reason];
    let singles = [Nothing].into_iter().chain(dimensions).map(|by| (by, Nothing));
    // Of two groupings by time the narrower one determines the other.
    let is_time = |by: SummaryBy| [Month, Day, Hour].contains(&by);
    let pairs = dimensions.iter().enumerate().flat_map(|(at, first)| dimensions[at + 1..].iter().map(|second| (*first, *second)));
    let pairs = pairs.filter(|(first, second)| !(is_time(*first) && is_time(*second)));
    let (project, session) = (Tag(tag("project")), Tag(tag("session")));
    let of_tags = [(project, Nothing), (project, Day), (project, Model), (project, Key), (project, Member), (session, Nothing)];
    let groupings = singles.chain(pairs).chain(of_tags.into_iter().filter(|_| has_tags));
    let mut longest = Duration::ZERO;
    for (first, second) in groupings {
        let by = Grouping { largest: SummaryFigure::Sale, ..Grouping::pair(first, second) };
        for (range, filter) in [("all", &all), ("thirty days", &days), ("a month from one busy hour to another", &month)] {
            // The API sums up at most a month by hour.
            if range == "all" && (first == Hour || second == Hour) {
                continue;
            }
            let what = format!("{range}, by {first:?} and {second:?}");
            longest = longest.max(slowest(&what, async || Ok(store.usage.summary(filter, by).await?.len())).await?);
        }
    }
    Ok(longest)
}

/// The slowest sum of a filter over a month that begins and ends in busy hours, and the slowest histogram.
pub(super) async fn time_filters(store: &Store, has_tags: bool) -> Result<Duration, StoreError> {
    use SummaryBy::{Account, Day, FiveMinutes, Hour, Key, Model, Nothing, Outcome, Tag};
    let month = UsageFilter { since: Some(noon(15, 1)), until: Some(noon(25, 3_599)), ..UsageFilter::default() };
    let hour = UsageFilter { since: Some(noon(15, 1)), until: Some(noon(15, 3_599)), ..UsageFilter::default() };
    let week = UsageFilter { since: Some(at(50, 0)), until: Some(at(57, 0)), ..UsageFilter::default() };
    let tagged = |filter: &UsageFilter, name: &str, value: &str| UsageFilter {
        tags: vec![TagCondition { name: tag(name), value: value.to_owned() }],
        ..filter.clone()
    };
    let failed = RecordConditions { status: Some((400, 499)), ..RecordConditions::default() };
    let mut filters: Vec<(&str, UsageFilter, Grouping)> = vec![
        ("a month of a channel, by model", UsageFilter { channel: Some(channel(1)), ..month.clone() }, Model.into()),
        ("a month of an account, by model", UsageFilter { account: Some(account(5)), ..month.clone() }, Model.into()),
        ("a month of an error, by account", UsageFilter { reason: Some("E51".to_owned()), ..month.clone() }, Account.into()),
        ("a month of an error, by key", UsageFilter { reason: Some("E51".to_owned()), ..month.clone() }, Key.into()),
        ("a month of a key, by model and day", UsageFilter { key: Some(key(7)), ..month.clone() }, Grouping::pair(Model, Day)),
        ("a month of a key, by account, from its records", UsageFilter { key: Some(key(7)), ..month.clone() }, Account.into()),
        ("an hour with a status, from records", UsageFilter { conditions: failed, ..hour.clone() }, Outcome.into()),
        ("histogram of a week by hour", week, Grouping::pair(Hour, Outcome)),
        ("histogram of a busy hour by five minutes", hour, Grouping::pair(FiveMinutes, Outcome)),
    ];
    if has_tags {
        filters.push(("a month of a tag's value, by day", tagged(&month, "project", "p7"), Day.into()));
        filters.push(("a month of a tag's value, by key", tagged(&month, "project", "p7"), Key.into()));
        let of_key = UsageFilter { key: Some(key(8)), ..month.clone() };
        filters.push(("a month of a key, by tag", of_key, Tag(tag("project")).into()));
        filters.push(("a month of a value that none has", tagged(&month, "project", "none"), Nothing.into()));
    }
    let mut longest = Duration::ZERO;
    for (what, filter, by) in filters {
        longest = longest.max(slowest(what, async || Ok(store.usage.summary(&filter, by).await?.len())).await?);
    }
    Ok(longest)
}

fn tag(name: &str) -> TagName {
    TagName::parse(name).expect("the name is valid")
}

/// The slowest page of a filter that sums do not answer.
pub(super) async fn time_searches(store: &Store) -> Result<Duration, StoreError> {
    let of = |conditions: RecordConditions| UsageFilter { limit: 100, conditions, ..UsageFilter::default() };
    let none = RecordConditions::default;
    let searches = [
        ("page of a channel", UsageFilter { limit: 100, channel: Some(channel(1)), ..UsageFilter::default() }),
        ("page of an account", UsageFilter { limit: 100, account: Some(account(5)), ..UsageFilter::default() }),
        ("page of streams", of(RecordConditions { stream: Some(true), ..none() })),
        ("page of dear requests", of(RecordConditions { min_cost: Some(NanoUsd(1_990)), ..none() })),
        ("page of a status that none has", of(RecordConditions { status: Some((400, 499)), ..none() })),
        ("page of long requests that there are not", of(RecordConditions { min_duration_us: Some(60_000_000), ..none() })),
        ("page of an id that none has", of(RecordConditions { client_request_id: Some("none".to_owned()), ..none() })),
        (
            "page of what failed at a channel",
            of(RecordConditions { tried_channel: Some(channel(1)), tried_failed: true, ..none() }),
        ),
        ("page of an address", of(RecordConditions { address: Some("10.0.0.1".to_owned()), ..none() })),
        ("page of an error", UsageFilter { limit: 100, reason: Some("E51".to_owned()), ..UsageFilter::default() }),
        (
            "page of a tag's value",
            UsageFilter {
                limit: 100,
                tags: vec![TagCondition { name: tag("project"), value: "p7".to_owned() }],
                ..UsageFilter::default()
            },
        ),
    ];
    let mut longest = Duration::ZERO;
    for (what, filter) in searches {
        longest = longest.max(slowest(what, async || Ok(store.usage.page(&filter).await?.items.len())).await?);
    }
    Ok(longest)
}

/// The traffic of the model square: of the last 24 hours and of the last 7 days, together.
pub(super) async fn time_square(store: &Store, end: Timestamp) -> Result<Duration, StoreError> {
    let last = end.plus_ms(-1);
    let (day, week) = (TrafficWidth::Hour.bucket(last, 23), TrafficWidth::Day.bucket(last, 6));
    slowest("traffic of the model square", async || {
        let of_day = store.square.offer_traffic(day, TrafficWidth::Hour).await?.len();
        Ok(of_day + store.square.offer_traffic(week, TrafficWidth::Day).await?.len())
    })
    .await
}

/// Runs a query that returns a number of rows several times, unless it takes seconds, and prints its time.
/// Prints the error of a query that is refused because it would read too many records or has too many groups.
async fn slowest(what: &str, query: impl AsyncFn() -> Result<usize, StoreError>) -> Result<Duration, StoreError> {
    let (mut times, mut rows) = (Vec::new(), 0);
    while times.len() < RUNS && times.last().is_none_or(|last| *last < TOO_LONG) {
        let started = Instant::now();
        rows = match query().await {
            Err(error @ (StoreError::TooManyRecords { .. } | StoreError::TooManyGroups { .. })) => {
                println!("{what}: refused, {error}");
                return Ok(Duration::ZERO);
            }
            answer => answer?,
        };
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!("{what}: {rows} rows, {least:.1?}, {median:.1?}, at most {most:.1?}");
    Ok(most)
}
