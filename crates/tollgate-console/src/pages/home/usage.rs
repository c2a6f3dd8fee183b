//! Usage of a member in the last days: figures of today, and bars by day and model.

use serde::Deserialize;
use tollgate_core::{NanoUsd, Timestamp};

use crate::pages::{
    bars::{BarFigures, BarSeries, Chart, Unit},
    format,
    locale::Locale,
    money,
};

/// Days of the chart.
pub(super) const DAYS: i64 = 7;
/// Models that have a series of their own; the rest is one.
const MODELS: usize = 5;
/// Classes of their colours.
const CLASSES: [&str; MODELS] = ["f1", "f2", "f3", "f4", "f5"];

/// Sums of a day and a model, as the admin API answers them.
#[derive(Debug, Deserialize)]
pub(super) struct DaySum {
    /// The day, at least its date.
    of: String,
    and: Option<String>,
    requests: u64,
    completed: u64,
    tokens_input: u64,
    tokens_output: u64,
    tokens_cache_read: u64,
    sale: String,
}

impl DaySum {
    fn model(&self) -> &str {
        self.and.as_deref().filter(|model| !model.is_empty()).unwrap_or("–")
    }

    fn nano_usd(&self) -> u64 {
        NanoUsd::parse(&self.sale).map_or(0, |amount| u64::try_from(amount.0).unwrap_or(0))
    }
}

/// The figure that the bars show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Spend,
    Tokens,
    Requests,
}

impl Measure {
    pub(super) const ALL: [Self; 3] = [Self::Spend, Self::Tokens, Self::Requests];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::Tokens => "tokens",
            Self::Requests => "requests",
        }
    }

    pub(super) fn label(self, t: Locale) -> &'static str {
        match self {
            Self::Spend => t.say("home.spend"),
            Self::Tokens => t.say("log.tokens"),
            Self::Requests => t.say("home.requests"),
        }
    }

    pub(super) fn read(word: &str) -> Self {
        Self::ALL.into_iter().find(|measure| measure.word() == word).unwrap_or(Self::Spend)
    }

    fn of(self, sum: &DaySum) -> u64 {
        match self {
            Self::Spend => sum.nano_usd(),
            Self::Tokens => sum.tokens_input.saturating_add(sum.tokens_output),
            Self::Requests => sum.requests,
        }
    }

    const fn unit(self) -> Unit {
        match self {
            Self::Spend => Unit::Money,
            Self::Tokens | Self::Requests => Unit::Count,
        }
    }
}

/// The UTC day so many days back, such as 2026-11-23.
pub(super) fn day_text(now: Timestamp, back: i64) -> String {
    crate::time::rfc3339(now.plus_ms(-back * 86_400_000)).chars().take(10).collect()
}

/// A figure of today with a line of context, and the days before as a line.
#[derive(Debug)]
pub(super) struct TodayTile {
    pub(super) label: &'static str,
    pub(super) value: String,
    pub(super) exact: String,
    pub(super) context: String,
    /// Points of the line, and of the area below it; empty if there is no line.
    pub(super) line: String,
    pub(super) area: String,
}

/// Height and width of the lines of tiles.
const SPARK: (u64, u64) = (28, 88);

fn spark(figures: &[u64]) -> (String, String) {
    let most = figures.iter().copied().max().unwrap_or(0);
    if most == 0 || figures.len() < 2 {
        return (String::new(), String::new());
    }
    let (height, width) = SPARK;
    let steps = u64::try_from(figures.len() - 1).unwrap_or(1);
    let point = |(index, figure): (u64, &u64)| {
        let y = height - 2 - u64::try_from(u128::from(*figure) * u128::from(height - 4) / u128::from(most)).unwrap_or(0);
        format!("{},{y}", index * width / steps)
    };
    let line = (0..).zip(figures).map(point).collect::<Vec<_>>().join(" ");
    let area = format!("0,{height} {line} {width},{height}");
    (line, area)
}

/// Totals of a day.
#[derive(Default)]
struct Day {
    requests: u64,
    completed: u64,
    input: u64,
    output: u64,
    cached: u64,
    spent: u64,
}

fn totals(sums: &[DaySum], day: &str) -> Day {
    let mut total = Day::default();
    for sum in sums.iter().filter(|sum| sum.of.starts_with(day)) {
        total.requests = total.requests.saturating_add(sum.requests);
        total.completed = total.completed.saturating_add(sum.completed);
        total.input = total.input.saturating_add(sum.tokens_input);
        total.output = total.output.saturating_add(sum.tokens_output);
        total.cached = total.cached.saturating_add(sum.tokens_cache_read);
        total.spent = total.spent.saturating_add(sum.nano_usd());
    }
    total
}

/// The tiles of requests, spend and tokens.
pub(super) fn tiles(t: Locale, sums: &[DaySum], now: Timestamp) -> Vec<TodayTile> {
    let days: Vec<Day> = (0..DAYS).rev().map(|back| totals(sums, &day_text(now, back))).collect();
    let course = |figure: fn(&Day) -> u64| spark(&days.iter().map(figure).collect::<Vec<_>>());
    let [.., yesterday, today] = days.as_slice() else { return Vec::new() };
    let tokens = today.input.saturating_add(today.output);
    let (requests, spend, all_tokens) =
        (course(|day| day.requests), course(|day| day.spent), course(|day| day.input.saturating_add(day.output)));
    let short = |amount: u64| money::short(t, &money::decimal(amount)).text;
    let completed = if today.requests == 0 {
        t.say("home.none_today").to_owned()
    } else {
        t.say_with("home.completed", &[("share", &format::ratio(today.completed, today.requests))])
    };
    let parts = [("input", today.input), ("output", today.output), ("cached", today.cached)]
        .map(|(name, count)| (name, format::compact(t, count)));
    let parts = parts.each_ref().map(|(name, count)| (*name, count.as_str()));
    vec![
        TodayTile {
            label: t.say("home.requests_today"),
            value: format::integer(today.requests),
            exact: String::new(),
            context: completed,
            line: requests.0,
            area: requests.1,
        },
        TodayTile {
            label: t.say("home.spent_today"),
            value: short(today.spent),
            exact: format::usd(&money::decimal(today.spent)),
            context: t.say_with("home.yesterday", &[("amount", &short(yesterday.spent))]),
            line: spend.0,
            area: spend.1,
        },
        TodayTile {
            label: t.say("home.tokens_today"),
            value: format::compact(t, tokens),
            exact: format::integer(tokens),
            context: t.say_with("home.token_parts", &parts),
            line: all_tokens.0,
            area: all_tokens.1,
        },
    ]
}

/// Models by how much they were used, the most used first, without unused ones.
pub(super) fn models(sums: &[DaySum], measure: Measure) -> Vec<String> {
    let mut used: Vec<(String, u64)> = Vec::new();
    for sum in sums {
        match used.iter_mut().find(|(model, _)| model == sum.model()) {
            Some((_, total)) => *total = total.saturating_add(measure.of(sum)),
            None => used.push((sum.model().to_owned(), measure.of(sum))),
        }
    }
    used.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    used.into_iter().filter(|(_, total)| *total > 0).map(|(model, _)| model).collect()
}

/// The bars of the last days. `link` makes the address of a day's records.
pub(super) fn chart(t: Locale, sums: &[DaySum], measure: Measure, now: Timestamp, link: impl Fn(&str, &str) -> String) -> Chart {
    let all = models(sums, measure);
    let named = &all[..all.len().min(MODELS)];
    let place = |model: &str| named.iter().position(|known| known == model).unwrap_or(named.len());
    let has_rest = all.len() > MODELS;
    let count = named.len() + usize::from(has_rest);
    let mut totals = vec![0_u64; count];
    let mut bars = Vec::new();
    for back in (0..DAYS).rev() {
        let day = day_text(now, back);
        let mut figures = vec![0_u64; count];
        for sum in sums.iter().filter(|sum| sum.of.starts_with(&day) && measure.of(sum) > 0) {
            let at = place(sum.model());
            figures[at] = figures[at].saturating_add(measure.of(sum));
            totals[at] = totals[at].saturating_add(measure.of(sum));
        }
        let at = format!("{day}T00:00:00Z");
        bars.push(BarFigures { link: link(&at, &format!("{}T00:00:00Z", day_text(now, back - 1))), at, figures });
    }
    let series = totals.iter().enumerate().map(|(index, total)| BarSeries {
        class: CLASSES.get(index).filter(|_| index < named.len()).copied().unwrap_or("fo"),
        label: named.get(index).cloned().unwrap_or_else(|| t.say("home.other_models").to_owned()),
        total: measure.unit().show(t, *total),
        filter: named.get(index).map(|model| ("model", model.clone())),
    });
    let series = series.collect();
    Chart::in_unit(t, measure.unit(), t.say("home.week"), (series, bars))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_219_200_000_000);

    fn sum(day: &str, model: &str, sale: &str) -> DaySum {
        serde_json::from_value(json!({
            "of": day, "and": model, "requests": 2, "completed": 1, "tokens_input": 30, "tokens_output": 12, "tokens_cache_read": 10,
            "sale": sale,
        }))
        .unwrap()
    }

    #[test]
    fn days_are_utc_dates() {
        assert_eq!(day_text(NOW, 0), "2026-11-21");
        assert_eq!(day_text(NOW, 6), "2026-11-15");
    }

    #[test]
    fn models_beyond_the_largest_five_are_one_series() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let sums: Vec<DaySum> =
            names.iter().enumerate().map(|(index, name)| sum("2026-11-21", name, &format!("0.0{}", 9 - index))).collect();
        let chart = chart(Locale::EN, &sums, Measure::Spend, NOW, |since, until| format!("{since}/{until}"));
        assert_eq!(chart.series.iter().map(|series| series.class).collect::<Vec<_>>(), ["f1", "f2", "f3", "f4", "f5", "fo"]);
        assert_eq!((chart.series[0].total.text.as_str(), chart.series[5].total.text.as_str()), ("$0.09", "$0.07"));
        assert_eq!((chart.bars.len(), chart.bars[6].link.as_str()), (7, "2026-11-21T00:00:00Z/2026-11-22T00:00:00Z"));
        assert_eq!(chart.bars[6].total, "$0.42");
        assert_eq!(chart.bars[0].total, "$0.00");
    }

    #[test]
    fn models_without_usage_have_no_series() {
        let sums = [sum("2026-11-21", "a", "1"), sum("2026-11-21", "", "0")];
        let chart = chart(Locale::EN, &sums, Measure::Spend, NOW, |_, _| String::new());
        assert_eq!(chart.series.iter().map(|series| series.label.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(chart.bars[6].total, "$1.00");
    }

    #[test]
    fn tiles_compare_today_with_yesterday() {
        let tiles = tiles(Locale::EN, &[sum("2026-11-21", "a", "1.5"), sum("2026-11-20", "a", "2")], NOW);
        assert_eq!((tiles[0].value.as_str(), tiles[1].value.as_str(), tiles[2].value.as_str()), ("2", "$1.50", "42"));
        assert!(tiles[0].context.contains("50.00 %") && tiles[1].context.contains("$2.00"), "{tiles:?}");
        assert_eq!(spark(&[0, 0]), (String::new(), String::new()));
        assert_eq!(spark(&[0, 4]).0, "0,26 88,2");
    }
}
