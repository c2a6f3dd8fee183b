//! The time that a page is about, as its address holds it: until now, this month, or between two fixed times.

use tollgate_core::Timestamp;
use url::form_urlencoded::Serializer;

use super::{form::FormData, locale::Locale};
use crate::{
    api::usage::histogram::Axis,
    time::{parse_rfc3339, rfc3339},
};

const MINUTE_US: i64 = 60_000_000;
/// The times until now that can be chosen, in minutes.
const UNTIL_NOW: [(&str, i64); 5] = [("15m", 15), ("1h", 60), ("24h", 1_440), ("7d", 10_080), ("30d", 43_200)];
const MONTH: &str = "month";
const DEFAULT: &str = "24h";
/// The begin is a multiple of this, so that it is found in sums and not in records.
const GRID_US: i64 = 5 * MINUTE_US;
/// Bars of a chart over the whole time.
const MAX_BARS: i64 = 32;

#[derive(Clone, Debug)]
pub(crate) struct Period {
    /// The word of one that ends now; `None` for fixed times.
    word: Option<&'static str>,
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
}

/// A period that can be chosen.
#[derive(Debug)]
pub(crate) struct PeriodChoice {
    pub(crate) label: &'static str,
    pub(crate) link: String,
    pub(crate) is_chosen: bool,
}

/// What the head of a page shows of its period.
#[derive(Debug)]
pub(crate) struct PeriodPicker {
    pub(crate) choices: Vec<PeriodChoice>,
    /// Where the form of fixed times is sent to, and what else it keeps.
    pub(crate) action: String,
    pub(crate) kept: Vec<(String, String)>,
    /// The fixed times, as fields of times show them.
    pub(crate) since: String,
    pub(crate) until: String,
    pub(crate) is_fixed: bool,
}

impl Period {
    pub(crate) fn of(query: &FormData, now: Timestamp) -> Self {
        if let (Some(since), Some(until)) = (time(query.value("since")), time(query.value("until")))
            && since < until
        {
            return Self { word: None, since, until };
        }
        let word = query.value("range");
        if word == MONTH {
            return Self { word: Some(MONTH), since: Timestamp::of_month(now.month()), until: now };
        }
        let known = |word: &str| UNTIL_NOW.into_iter().find(|(known, _)| *known == word);
        let (word, minutes) = known(word).or_else(|| known(DEFAULT)).unwrap_or(UNTIL_NOW[2]);
        let since = (now.0 - minutes * MINUTE_US).div_euclid(GRID_US) * GRID_US;
        // The grid lies before the exact begin; 15 minutes are not to become 20.
        Self { word: Some(word), since: Timestamp(since + if minutes > 15 { 0 } else { GRID_US }), until: now }
    }

    /// The ends as parameters of the admin API.
    pub(crate) fn ends(&self) -> (String, String) {
        (rfc3339(self.since), rfc3339(self.until))
    }

    /// The parameters of the admin API for its sums. One that ends now has no end: the last five minutes are then read from sums, and
    /// not from their records, of which a busy gateway has millions.
    pub(crate) fn of_sums(&self) -> Vec<(&'static str, String)> {
        let until = (!self.is_until_now()).then(|| ("until", rfc3339(self.until)));
        [("since", rfc3339(self.since))].into_iter().chain(until).collect()
    }

    /// The query that selects it.
    pub(crate) fn query(&self) -> String {
        let mut query = Serializer::new(String::new());
        match self.word {
            Some(word) => query.append_pair("range", word),
            None => query.append_pair("since", &rfc3339(self.since)).append_pair("until", &rfc3339(self.until)),
        };
        query.finish()
    }

    /// Fixed times, in microseconds.
    pub(crate) const fn fixed(since: i64, until: i64) -> Self {
        Self { word: None, since: Timestamp(since), until: Timestamp(until) }
    }

    /// The query of the usage log for it, with what else it filters by. The log knows no month.
    pub(crate) fn log_query(&self, pairs: &[(&str, &str)]) -> String {
        let mut query = Serializer::new(String::new());
        match self.word.filter(|word| *word != MONTH) {
            Some(word) => query.append_pair("range", word),
            None => query.append_pair("since", &rfc3339(self.since)).append_pair("until", &rfc3339(self.until)),
        };
        query.extend_pairs(pairs).finish()
    }

    /// The bars of charts: their beginnings and width.
    pub(crate) fn axis(&self) -> Axis {
        Axis::of(self.since.0, self.until.0, MAX_BARS)
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
        let words = UNTIL_NOW.into_iter().map(|(word, _)| word).chain([MONTH]);
        PeriodPicker {
            choices: words.map(choice).collect(),
            action: address.to_owned(),
            since: field(self.since),
            until: field(self.until),
            is_fixed: self.word.is_none(),
            kept,
        }
    }
}

fn label(t: Locale, word: &str) -> &'static str {
    match word {
        "15m" => t.say("range.15m"),
        "1h" => t.say("range.1h"),
        "24h" => t.say("range.24h"),
        "7d" => t.say("range.7d"),
        "30d" => t.say("range.30d"),
        _ => t.say("range.month"),
    }
}

/// A point in time as an address has it, or as a field of a form sends it: without seconds and in UTC.
fn time(text: &str) -> Option<Timestamp> {
    parse_rfc3339(text).or_else(|| parse_rfc3339(&format!("{text}:00Z")))
}

/// The value of a field of a time, in UTC.
fn field(at: Timestamp) -> String {
    rfc3339(at).chars().take(16).collect()
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
    fn period_is_in_the_address() {
        assert_eq!((of("").word, of("range=7d").word, of("range=2y").word), (Some("24h"), Some("7d"), Some("24h")));
        assert_eq!(of("range=month").ends().0.get(..10), Some("2026-11-01"));
        let fixed = of("since=2026-11-20T10:00&until=2026-11-20T12:30");
        assert_eq!(fixed.ends(), ("2026-11-20T10:00:00Z".to_owned(), "2026-11-20T12:30:00Z".to_owned()));
        assert_eq!(of(&fixed.query()).ends(), fixed.ends());
        assert_eq!(fixed.of_sums(), [("since", fixed.ends().0), ("until", fixed.ends().1)]);
        assert_eq!(of("range=1h").of_sums(), [("since", of("range=1h").ends().0)]);
        assert!(!fixed.is_until_now() && of("range=1h").is_until_now());
        // Times that make no period are those of no request.
        for wrong in ["since=2026-11-20T10:00&until=2026-11-20T10:00", "since=x&until=y", "since=2026-11-20T10:00"] {
            assert_eq!(of(wrong).word, Some("24h"), "{wrong}");
        }
    }

    #[test]
    fn begin_lies_on_the_grid_of_sums() {
        for query in ["range=15m", "range=1h", "range=24h", "range=7d", "range=30d"] {
            assert_eq!(of(query).since.0 % GRID_US, 0, "{query}");
        }
        assert!(NOW.ms_since(of("range=15m").since) <= 15 * 60_000);
    }

    #[test]
    fn picker_keeps_what_else_is_asked_for() {
        let query = FormData::parse(b"split=key&range=7d&since=x");
        let picker = Period::of(&query, NOW).picker(Locale::EN, "/overview", &query);
        assert_eq!(picker.choices[0].link, "/overview?split=key&range=15m");
        assert!(picker.choices.iter().filter(|choice| choice.is_chosen).count() == 1 && picker.choices[3].is_chosen);
        assert_eq!(picker.kept, [("split".to_owned(), "key".to_owned())]);
    }

    #[test]
    fn charts_have_few_bars() {
        for query in ["range=15m", "range=1h", "range=24h", "range=7d", "range=30d", "range=month"] {
            let bars = beginnings(&of(query).axis()).count();
            assert!((3..=32).contains(&bars), "{query}: {bars}");
        }
        assert_eq!(row_time("2026-11-20"), row_time("2026-11-20T00:00:00Z"));
    }
}
