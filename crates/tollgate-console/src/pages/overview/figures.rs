//! The figures at the top, each with its change against the previous period and its trend.

use super::{
    change,
    keys::ActiveKeys,
    sums::{Figures, SumsOverTime, Times, Totals},
};
use crate::pages::{format, lines::Spark, locale::Locale, money};

#[derive(Debug)]
pub(super) struct Tile {
    pub(super) label: &'static str,
    pub(super) value: String,
    /// The value with all its digits.
    pub(super) exact: String,
    /// Notes below the figure, each with the class of its colour.
    pub(super) notes: Vec<(&'static str, String)>,
    pub(super) spark: Option<Spark>,
    pub(super) link: Option<String>,
}

/// Colours of an improvement and of a deterioration.
const fn tone(is_better: bool) -> &'static str {
    if is_better { "ok" } else { "warn" }
}

/// Parts of a million.
fn millionths(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 1_000_000 / u128::from(whole.max(1))).unwrap_or(1_000_000)
}

/// Figures that are not read from sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busyness<'a> {
    pub(super) in_flight: u64,
    pub(super) keys: ActiveKeys,
    /// The list of keys.
    pub(super) all_keys: &'a str,
}

pub(super) fn tiles(t: Locale, totals: &Totals, series: &SumsOverTime, busyness: Busyness<'_>, log: &str) -> Vec<Tile> {
    let (now, before) = (&totals.now, &totals.before);
    let link = || Some(log.to_owned());
    let requests = Tile {
        label: t.say("home.requests"),
        value: format::integer(now.requests),
        exact: String::new(),
        notes: compared(
            t,
            before,
            change(now.requests, before.requests).map(|(is_more, text)| (if is_more { "ok" } else { "" }, text)),
        ),
        spark: Spark::of(&series.of(|figures| figures.requests)),
        link: link(),
    };
    let tokens = Tile {
        label: t.say("log.tokens"),
        value: format::compact(t, now.tokens()),
        exact: format::integer(now.tokens()),
        notes: with_change(
            change(now.tokens(), before.tokens()),
            vec![(
                "",
                t.say_with(
                    "overview.tokens_parts",
                    &[
                        ("input", &format::compact(t, now.tokens_input)),
                        ("output", &format::compact(t, now.tokens_output)),
                        ("cached", &format::ratio_short(now.tokens_cache_read, now.tokens_input)),
                    ],
                ),
            )],
        ),
        spark: Spark::of(&series.of(Figures::tokens)),
        link: link(),
    };
    let in_flight = Tile {
        label: t.say("overview.in_flight"),
        value: format::integer(busyness.in_flight),
        exact: String::new(),
        notes: vec![("live", t.say("overview.in_flight_of").to_owned())],
        spark: None,
        link: None,
    };
    let [first, added] = spans(t, totals, series, log);
    let keys = active_keys(t, busyness);
    vec![requests, completed(t, totals, series, log), spend(t, totals, series, log), tokens, first, added, keys, in_flight]
}

/// How many keys were used.
fn active_keys(t: Locale, Busyness { keys, all_keys, .. }: Busyness<'_>) -> Tile {
    let change = change(keys.now, keys.before).map(|(_, text)| text);
    let notes = match change {
        Some(text) => vec![("", text), ("", t.say("overview.before").to_owned())],
        None if keys.before == 0 => vec![("", t.say("overview.nothing_before").to_owned())],
        None => vec![("", t.say("overview.same").to_owned())],
    };
    Tile {
        label: t.say("overview.active_keys"),
        value: format::integer(keys.now),
        exact: String::new(),
        notes,
        spark: None,
        link: Some(all_keys.to_owned()),
    }
}

/// A change to the period before.
fn compared(t: Locale, before: &Figures, change: Option<(&'static str, String)>) -> Vec<(&'static str, String)> {
    match change {
        Some((tone, text)) => vec![(tone, text), ("", t.say("overview.before").to_owned())],
        None if before.requests == 0 => vec![("", t.say("overview.nothing_before").to_owned())],
        None => vec![("", t.say("overview.same").to_owned())],
    }
}

/// A change that is neither good nor bad, in front of other notes.
fn with_change(change: Option<(bool, String)>, notes: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    change.map(|(_, text)| ("", text)).into_iter().chain(notes).collect()
}

fn completed(t: Locale, Totals { now, before }: &Totals, series: &SumsOverTime, log: &str) -> Tile {
    let share = |figures: &Figures| millionths(figures.completed, figures.requests);
    let (is, was) = (share(now), share(before));
    // Hundredths of a percentage point.
    let points = is.abs_diff(was) / 100;
    let is_known = now.requests > 0 && before.requests > 0 && points > 0;
    let change = is_known.then(|| {
        let arrow = if is > was { "↑" } else { "↓" };
        (
            tone(is > was),
            t.say_with("overview.points", &[("arrow", arrow), ("points", &format!("{}.{:02}", points / 100, points % 100))]),
        )
    });
    Tile {
        label: t.say("outcome.completed"),
        value: format::ratio(now.completed, now.requests),
        exact: format::integer(now.completed),
        notes: compared(t, before, change),
        spark: Spark::of(&series.figures.iter().filter(|step| step.requests > 0).map(share).collect::<Vec<_>>()),
        link: Some(log.to_owned()),
    }
}

fn spend(t: Locale, Totals { now, before }: &Totals, series: &SumsOverTime, log: &str) -> Tile {
    let (sale, cost) = (now.sale_nano(), now.cost_nano());
    let mut notes = vec![("", t.say_with("overview.cost", &[("cost", &money::rounded(t, &money::decimal(cost)).text)]))];
    if sale > 0 {
        let margin = format!("{}{}", if cost > sale { "−" } else { "" }, format::ratio_short(sale.abs_diff(cost), sale));
        notes.push((tone(cost <= sale), t.say_with("overview.margin", &[("margin", &margin)])));
    }
    Tile {
        label: t.say("overview.charged"),
        value: money::rounded(t, &money::decimal(sale)).text,
        exact: format::usd(&money::decimal(sale)),
        notes: with_change(change(sale, before.sale_nano()), notes),
        spark: Spark::of(&series.of(Figures::sale_nano)),
        link: Some(log.to_owned()),
    }
}

/// Tiles of the time to the first content, with the time to the end as a note, and of the gateway's own time.
fn spans(t: Locale, Totals { now, before }: &Totals, series: &SumsOverTime, log: &str) -> [Tile; 2] {
    let known = |times: Option<Times>| times.filter(|times| times.p99 > 0);
    let tile = |label, times: fn(&Figures) -> Option<Times>, shown: fn(&Times) -> u64, other: (&'static str, fn(&Times) -> u64)| {
        let (is, was) = (known(times(now)), known(times(before)));
        let mut notes: Vec<(&str, String)> =
            is.map(|is| ("", format!("{} {}", other.0, format::percentile(t, (other.1)(&is))))).into_iter().collect();
        if let (Some(is), Some(was)) = (&is, &was) {
            let (is, was) = (shown(is), shown(was));
            // A change below a twentieth is not shown, because percentiles are known only up to an eighth.
            if is.abs_diff(was).saturating_mul(20) > was {
                let arrow = if is > was { "↑" } else { "↓" };
                notes.push((tone(is < was), format!("{arrow} {}", format::percentile(t, is.abs_diff(was)))));
            }
        }
        let course: Vec<u64> =
            series.figures.iter().filter_map(|figures| known(times(figures))).map(|times| shown(&times)).collect();
        Tile {
            label,
            value: is.map_or_else(|| "–".to_owned(), |times| format::percentile(t, shown(&times))),
            exact: String::new(),
            notes,
            spark: Spark::of(&course),
            link: Some(log.to_owned()),
        }
    };
    let mut first = tile(t.say("overview.first_token"), |figures| figures.ttft, |times| times.p50, ("p95", |times| times.p95));
    let whole = known(now.duration).map(|times| t.say_with("overview.whole", &[("time", &format::percentile(t, times.p50))]));
    first.notes.extend(whole.map(|text| ("", text)));
    let added = tile(t.say("overview.added"), |figures| figures.overhead, |times| times.p95, ("p50", |times| times.p50));
    [first, added]
}
