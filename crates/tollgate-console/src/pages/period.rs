//! The period of a page, from its address: until now, this month, or between two fixed times.

use std::time::Duration;

use tollgate_core::Timestamp;
use url::form_urlencoded::Serializer;

use super::{form::FormData, locale::Locale};
use crate::{
    api::usage::{histogram::Axis, summary::previous},
    kept_answers::KEPT_FOR,
    time::{begin_of_sums, parse_rfc3339, rfc3339},
};

const MINUTE_US: i64 = 60_000_000;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;
/// The times until now that can be chosen, in minutes.
const UNTIL_NOW: [(&str, i64); 5] = [("15m", 15), ("1h", 60), ("24h", 1_440), ("7d", 10_080), ("30d", 43_200)];
const MONTH: &str = "month";
const TODAY: &str = "today";
const DEFAULT: &str = "24h";
/// Bars of a chart over the whole time, at most, as the admin API takes it.
const MAX_BARS: i64 = 32;
const MAX_BARS_TEXT: &str = "32";
/// Selectable widths of bars, and the maximum number of bars with a selected width.
const WIDTHS: [&str; 2] = ["hour", "day"];
const MAX_CHOSEN_BARS: i64 = 200;

#[derive(Clone, Debug)]
pub(crate) struct Period {
    /// The word of a period that ends now; `None` for fixed times.
    word: Option<&'static str>,
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
    /// The requested width of bars; `None`: the narrowest width that gives few enough bars.
    bars: Option<&'static str>,
}

/// A period that can be chosen.
#[derive(Debug)]
pub(crate) struct PeriodChoice {
    pub(crate) label: &'static str,
    pub(crate) link: String,
    pub(crate) is_chosen: bool,
}

/// The period selector in the head of a page.
#[derive(Debug)]
pub(crate) struct PeriodPicker {
    pub(crate) choices: Vec<PeriodChoice>,
    /// Target of the form for fixed times, and its hidden fields.
    pub(crate) action: String,
    pub(crate) kept: Vec<(String, String)>,
    /// The fixed times, as fields of times show them.
    pub(crate) since: String,
    pub(crate) until: String,
    pub(crate) is_fixed: bool,
    /// Widths of bars; empty if only one is possible.
    pub(crate) widths: Vec<PeriodChoice>,
}

impl Period {
    pub(crate) fn of(query: &FormData, now: Timestamp) -> Self {
        Self { bars: chosen_width(query), ..Self::time_of(query, now) }
    }

    /// The same time with bars of this width.
    pub(crate) fn with_bars(self, bars: Option<&'static str>) -> Self {
        Self { bars, ..self }
    }

    fn time_of(query: &FormData, now: Timestamp) -> Self {
        if let (Some(since), Some(until)) = (time(query.value("since")), time(query.value("until")))
            && since < until
        {
            return Self { word: None, since, until, bars: None };
        }
        let word = query.value("range");
        if word == TODAY {
            return Self::today(now);
        }
        let word = words().find(|known| *known == word).unwrap_or(DEFAULT);
        Self { word: Some(word), since: begin_of(word, now), until: now, bars: None }
    }

    /// The last hour until now.
    pub(crate) fn last_hour(now: Timestamp) -> Self {
        let (word, minutes) = UNTIL_NOW[1];
        Self { word: Some(word), since: begin_of_last(minutes, now), until: now, bars: None }
    }

    /// The day in UTC until now.
    pub(crate) const fn today(now: Timestamp) -> Self {
        let begin = Timestamp(now.0 - now.0.rem_euclid(86_400_000_000));
        Self { word: Some(TODAY), since: begin, until: now, bars: None }
    }

    /// The ends as parameters of the admin API.
    pub(crate) fn ends(&self) -> (String, String) {
        (rfc3339(self.since), rfc3339(self.until))
    }

    /// The parameters of the admin API for its sums. A period that ends now is sent without an end. The last five minutes are then
    /// read from sums rather than from records, of which a busy gateway has millions.
    pub(crate) fn of_sums(&self) -> Vec<(&'static str, String)> {
        let until = (!self.is_until_now()).then(|| ("until", rfc3339(self.until)));
        [("since", rfc3339(self.since))].into_iter().chain(until).collect()
    }

    /// The period before, as the admin API's `previous` has it.
    pub(crate) fn before(&self) -> Self {
        let until = (!self.is_until_now()).then_some(self.until);
        Self::fixed(self.since.0.saturating_sub(previous::length(self.since, until, self.until)), self.since.0)
    }

    /// The query that selects it.
    pub(crate) fn query(&self) -> String {
        let mut query = Serializer::new(String::new());
        query.extend_pairs(self.pairs());
        query.extend_pairs(self.bars.map(|bars| ("bars", bars)));
        query.finish()
    }

    /// The parameters that select the time.
    fn pairs(&self) -> Vec<(&'static str, String)> {
        match self.word {
            Some(word) => vec![("range", word.to_owned())],
            None => vec![("since", rfc3339(self.since)), ("until", rfc3339(self.until))],
        }
    }

    /// Fixed times, in microseconds.
    pub(crate) const fn fixed(since: i64, until: i64) -> Self {
        Self { word: None, since: Timestamp(since), until: Timestamp(until), bars: None }
    }

    /// The usage log's query for this period, with further filters. The log has no range for today.
    pub(crate) fn log_query(&self, pairs: &[(&str, &str)]) -> String {
        let mut query = Serializer::new(String::new());
        match self.word.filter(|word| *word != TODAY) {
            Some(word) => query.append_pair("range", word),
            None => query.append_pair("since", &rfc3339(self.since)).append_pair("until", &rfc3339(self.until)),
        };
        query.extend_pairs(pairs).finish()
    }

    /// The same with the whole hours at its ends, as sums over attempts have them. For one of several days they make no difference.
    pub(crate) fn in_whole_hours(&self) -> Self {
        if self.has_days() {
            return self.clone();
        }
        let until = self.until.0;
        let until = if self.is_until_now() { until } else { until + (-until).rem_euclid(HOUR_US) };
        Self::fixed(self.since.0 - self.since.0.rem_euclid(HOUR_US), until)
    }

    /// The bars of charts: their beginnings and width.
    pub(crate) fn axis(&self) -> Axis {
        let chosen = self.bars.and_then(|bars| self.axis_of(bars));
        chosen.unwrap_or_else(|| Axis::of(self.since.0, self.until.0, MAX_BARS))
    }

    /// The bars of a width, if they are more than two and not too many.
    fn axis_of(&self, width: &str) -> Option<Axis> {
        Axis::of_width(self.since.0, self.until.0, width).filter(|axis| (3..=MAX_CHOSEN_BARS).contains(&axis.count()))
    }

    /// The requested width of bars, if it is possible for the period.
    fn width(&self) -> Option<&'static str> {
        self.bars.filter(|bars| self.axis_of(bars).is_some())
    }

    /// The parameter of the admin API for the same bars.
    pub(crate) fn bars(&self) -> (&'static str, &'static str) {
        self.bars_or(MAX_BARS_TEXT)
    }

    /// The same for a chart with another number of bars if no width is requested.
    pub(crate) fn bars_or(&self, most: &'static str) -> (&'static str, &'static str) {
        self.width().map_or(("buckets", most), |width| ("width", width))
    }

    /// Widths of bars to choose from; empty if only one is possible. `link` makes the address of a choice.
    pub(crate) fn widths(&self, t: Locale, link: impl Fn(Option<&'static str>) -> String) -> Vec<PeriodChoice> {
        let chosen = self.width();
        let choice = |label, width| PeriodChoice { label, link: link(width), is_chosen: width == chosen };
        let label = |width| if width == "hour" { t.say("period.bars_hour") } else { t.say("period.bars_day") };
        let possible = WIDTHS.into_iter().filter(|width| self.axis_of(width).is_some());
        let mut widths: Vec<PeriodChoice> = possible.map(|width| choice(label(width), Some(width))).collect();
        if !widths.is_empty() {
            widths.insert(0, choice(t.say("period.bars_auto"), None));
        }
        widths
    }

    /// Whether the period is longer than two days.
    pub(crate) const fn has_days(&self) -> bool {
        self.until.0 - self.since.0 > 2 * DAY_US
    }

    /// For how long operators share the sums of the period; `None`: not at all.
    pub(crate) fn sums_kept_for(&self, now: Timestamp) -> Option<Duration> {
        if !self.has_days() {
            None
        } else if now.0 - self.until.0 > DAY_US {
            // Nothing but records that another node books late is still added.
            Some(Duration::from_mins(10))
        } else if self.until.0 - self.since.0 >= 7 * DAY_US {
            Some(Duration::from_mins(1))
        } else {
            Some(KEPT_FOR)
        }
    }

    pub(crate) fn is_until_now(&self) -> bool {
        self.word.is_some()
    }

    /// The picker of a page at this address, which keeps the other parameters of its query.
    pub(crate) fn picker(&self, t: Locale, address: &str, query: &FormData) -> PeriodPicker {
        let kept: Vec<(String, String)> = query
            .pairs()
            .filter(|(name, _)| !matches!(*name, "range" | "since" | "until"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let choice = |word: &'static str| PeriodChoice {
            label: label(t, word),
            link: format!("{address}?{}", Serializer::new(String::new()).extend_pairs(&kept).append_pair("range", word).finish()),
            is_chosen: self.word == Some(word),
        };
        let widths = self.widths(t, |width| {
            let mut text = Serializer::new(String::new());
            text.extend_pairs(kept.iter().filter(|(name, _)| name != "bars")).extend_pairs(self.pairs());
            format!("{address}?{}", text.extend_pairs(width.map(|width| ("bars", width))).finish())
        });
        PeriodPicker {
            widths,
            choices: words().map(choice).collect(),
            action: address.to_owned(),
            since: field(self.since),
            until: field(self.until),
            is_fixed: self.word.is_none(),
            kept,
        }
    }
}

/// The width of bars that an address asks for.
pub(crate) fn chosen_width(query: &FormData) -> Option<&'static str> {
    WIDTHS.into_iter().find(|width| *width == query.value("bars"))
}

/// The words of the selectable periods that end now.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    UNTIL_NOW.into_iter().map(|(word, _)| word).chain([MONTH])
}

/// The beginning of one of them.
pub(crate) fn begin_of(word: &str, now: Timestamp) -> Timestamp {
    match UNTIL_NOW.into_iter().find(|(known, _)| *known == word) {
        Some((_, minutes)) => begin_of_last(minutes, now),
        None => Timestamp::of_month(now.month()),
    }
}

pub(crate) fn label(t: Locale, word: &str) -> &'static str {
    match word {
        "15m" => t.say("range.15m"),
        "1h" => t.say("range.1h"),
        "24h" => t.say("range.24h"),
        "7d" => t.say("range.7d"),
        "30d" => t.say("range.30d"),
        _ => t.say("range.month"),
    }
}

/// A point in time from an address, or from a field of a form, which has no seconds and is in UTC.
fn time(text: &str) -> Option<Timestamp> {
    parse_rfc3339(text).or_else(|| parse_rfc3339(&format!("{text}:00Z")))
}

/// The value of a time for a form's field, in UTC.
fn field(at: Timestamp) -> String {
    rfc3339(at).chars().take(16).collect()
}

/// Beginning of the last minutes, rounded to the five-minute buckets of sums: up to five minutes earlier, except that 15 minutes do not
/// become 20.
const fn begin_of_last(minutes: i64, now: Timestamp) -> Timestamp {
    let back = if minutes > 15 { minutes } else { minutes - 5 };
    begin_of_sums(Timestamp(now.0 - back * MINUTE_US))
}

/// The beginnings of an axis' bars.
pub(crate) fn beginnings(axis: &Axis) -> impl Iterator<Item = Timestamp> {
    let (begin, width) = (axis.begin, axis.width);
    (0..(axis.end - axis.begin) / axis.width).map(move |step| Timestamp(begin + step * width))
}

/// The time of a row of a summary by time.
pub(crate) fn row_time(of: &str) -> Option<Timestamp> {
    if of.len() == 10 { parse_rfc3339(&format!("{of}T00:00:00Z")) } else { parse_rfc3339(of) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_219_230_000_000);

    fn of(query: &str) -> Period {
        Period::of(&FormData::parse(query.as_bytes()), NOW)
    }

    #[test]
    fn period_is_parsed_from_the_address() {
        assert_eq!((of("").word, of("range=7d").word, of("range=2y").word), (Some("24h"), Some("7d"), Some("24h")));
        assert_eq!(of("range=month").ends().0.get(..10), Some("2026-11-01"));
        let fixed = of("since=2026-11-20T10:00&until=2026-11-20T12:30");
        assert_eq!(fixed.ends(), ("2026-11-20T10:00:00Z".to_owned(), "2026-11-20T12:30:00Z".to_owned()));
        assert_eq!(of(&fixed.query()).ends(), fixed.ends());
        assert_eq!(fixed.of_sums(), [("since", fixed.ends().0), ("until", fixed.ends().1)]);
        assert_eq!(of("range=1h").of_sums(), [("since", of("range=1h").ends().0)]);
        assert!(!fixed.is_until_now() && of("range=1h").is_until_now());
        assert_eq!(fixed.in_whole_hours().ends().1, "2026-11-20T13:00:00Z");
        assert_eq!(of("range=1h").in_whole_hours().ends(), ("2026-11-20T23:00:00Z".to_owned(), of("range=1h").ends().1));
        assert_eq!(of("range=7d").in_whole_hours().word, Some("7d"));
        // Invalid times fall back to the default period.
        for wrong in ["since=2026-11-20T10:00&until=2026-11-20T10:00", "since=x&until=y", "since=2026-11-20T10:00"] {
            assert_eq!(of(wrong).word, Some("24h"), "{wrong}");
        }
    }

    #[test]
    fn sums_of_long_and_of_ended_periods_are_kept_longer() {
        let kept_for = |query: &str| of(query).sums_kept_for(NOW).map_or(0, |time| time.as_secs());
        for (query, seconds) in [
            ("range=24h", 0),
            ("since=2026-11-01T00:00&until=2026-11-02T00:00", 0),
            ("since=2026-11-18T00:00&until=2026-11-21T00:00", 20),
            ("range=7d", 60),
            ("range=30d", 60),
            ("since=2026-11-01T00:00&until=2026-11-19T00:00", 600),
        ] {
            assert_eq!(kept_for(query), seconds, "{query}");
        }
    }

    #[test]
    fn period_start_is_aligned_to_the_rollups() {
        for query in ["range=15m", "range=1h", "range=24h", "range=7d", "range=30d"] {
            assert_eq!(of(query).since, begin_of_sums(of(query).since), "{query}");
        }
        assert_eq!((of("range=1h").since, of("range=today").since), (Period::last_hour(NOW).since, Period::today(NOW).since));
        assert_eq!(of("range=today").ends().0, "2026-11-21T00:00:00Z");
        assert_eq!(Period::today(NOW).of_sums().len(), 1, "the last five minutes are read from sums");
        assert!(NOW.ms_since(of("range=15m").since) <= 15 * 60_000);
    }

    #[test]
    fn picker_links_keep_the_other_parameters() {
        let query = FormData::parse(b"split=key&range=7d&since=x");
        let picker = Period::of(&query, NOW).picker(Locale::EN, "/overview", &query);
        assert_eq!(picker.choices[0].link, "/overview?split=key&range=15m");
        assert!(picker.choices.iter().filter(|choice| choice.is_chosen).count() == 1 && picker.choices[3].is_chosen);
        assert_eq!(picker.kept, [("split".to_owned(), "key".to_owned())]);
    }

    #[test]
    fn bar_width_applies_where_it_gives_a_reasonable_number_of_bars() {
        let bars = |query: &str| (of(query).axis().count(), of(query).bars());
        assert_eq!(bars("range=7d&bars=hour"), (169, ("width", "hour")));
        assert_eq!(bars("range=7d&bars=day"), (8, ("width", "day")));
        assert_eq!(bars("range=30d&bars=hour").1, ("buckets", "32"), "720 bars are too many");
        assert_eq!(bars("range=1h&bars=day").1, ("buckets", "32"), "two bars are not a chart");
        assert_eq!(bars("range=24h&bars=week").1, ("buckets", "32"));
        assert_eq!(of(&of("range=7d&bars=hour").query()).bars(), ("width", "hour"));
        let query = FormData::parse(b"split=key&range=7d&bars=day");
        let picker = Period::of(&query, NOW).picker(Locale::EN, "/overview", &query);
        let links: Vec<(&str, bool)> = picker.widths.iter().map(|width| (width.link.as_str(), width.is_chosen)).collect();
        assert_eq!(
            links,
            [
                ("/overview?split=key&range=7d", false),
                ("/overview?split=key&range=7d&bars=hour", false),
                ("/overview?split=key&range=7d&bars=day", true),
            ]
        );
        assert_eq!(picker.choices[2].link, "/overview?split=key&bars=day&range=24h", "a new time keeps the width");
    }

    #[test]
    fn charts_have_at_most_32_bars() {
        for query in ["range=15m", "range=1h", "range=24h", "range=7d", "range=30d", "range=month"] {
            let bars = beginnings(&of(query).axis()).count();
            assert!((3..=32).contains(&bars), "{query}: {bars}");
        }
        assert_eq!(row_time("2026-11-20"), row_time("2026-11-20T00:00:00Z"));
    }
}
