//! The charts of the overview.

use std::collections::HashMap;

use tollgate_store::SummaryBy;

use super::sums::{self, Figures, SumRow, SumsOverTime, step};
use crate::{
    api::usage::histogram::Axis,
    api_error::ApiError,
    pages::{
        bars::{BarFigures, BarSeries, Chart, Unit},
        format,
        lines::{LineChart, LineSeries},
        locale::Locale,
        money::Amount,
        period::{Period, beginnings, row_time},
        reasons,
        request::PageRequest,
    },
    time::rfc3339,
};

/// Classes of the colours of the largest parts of a split, and of the rest.
const CLASSES: [&str; 8] = ["f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8"];
const REST: &str = "fo";

/// The dimension by which spending is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pages) enum Split {
    Model,
    Key,
    Member,
    Group,
    Channel,
}

impl Split {
    const ALL: [Self; 5] = [Self::Model, Self::Key, Self::Member, Self::Group, Self::Channel];

    pub(in crate::pages) fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|split| split.word() == word).unwrap_or(Self::Model)
    }

    pub(in crate::pages) const fn word(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Key => "key",
            Self::Member => "member",
            Self::Group => "group",
            Self::Channel => "channel",
        }
    }

    fn label(self, t: Locale) -> &'static str {
        match self {
            Self::Model => t.say("log.model"),
            Self::Key => t.say("log.key"),
            Self::Member => t.say("keys.member"),
            Self::Group => t.say("overview.group"),
            Self::Channel => t.say("log.channel"),
        }
    }

    /// True if there may be too many parts, so that sums over time are read only for the largest.
    const fn is_of_many(self) -> bool {
        matches!(self, Self::Key | Self::Member)
    }
}

/// An amount over time: how it is split, and for which channel.
#[derive(Clone, Copy)]
struct Spending<'a> {
    split: Split,
    amount: fn(&Figures) -> u64,
    /// The amount's word in the admin API.
    sort: &'static str,
    channel: Option<&'a str>,
}

impl Spending<'_> {
    /// What callers are charged.
    const CHARGED: Self = Self { split: Split::Model, amount: Figures::sale_nano, sort: "sale", channel: None };

    /// The parameters of the admin API and of the usage log that select its records.
    fn filter(&self) -> Vec<(&'static str, &str)> {
        self.channel.map(|channel| ("channel", channel)).into_iter().collect()
    }
}

#[derive(Debug)]
pub(in crate::pages) struct SpendChart {
    pub(in crate::pages) choices: Vec<(&'static str, String, bool)>,
    pub(in crate::pages) chart: Chart,
}

/// One of the largest parts: its name, and the charges in each bar.
struct Part {
    id: String,
    name: String,
    bars: Vec<u64>,
}

/// Class of the colour, name, and figure of a kind of token.
type TokenKind = (&'static str, &'static str, fn(&Figures) -> u64);

/// Charges over time, split by the largest and the rest.
pub(in crate::pages) async fn spend(
    request: &PageRequest,
    period: &Period,
    split: Split,
    series: &SumsOverTime,
) -> Result<SpendChart, ApiError> {
    let (t, axis) = (request.t(), period.axis());
    let spending = Spending { split, ..Spending::CHARGED };
    let parts = if split.is_of_many() {
        largest(request, period, split, &axis).await?
    } else {
        all(request, period, &spending, &axis).await?
    };
    let choices = Split::ALL.map(|choice| {
        let link = request.url(&format!("/overview?{}&split={}#spend", period.query(), choice.word()));
        (choice.label(t), link, choice == split)
    });
    let chart = chart_of(request, &axis, (t.say("overview.spend"), &spending), parts, series);
    Ok(SpendChart { choices: choices.to_vec(), chart })
}

/// Costs of a channel over time by model.
pub(in crate::pages) async fn cost(
    request: &PageRequest,
    period: &Period,
    channel: &str,
    series: &SumsOverTime,
) -> Result<Chart, ApiError> {
    let spending = Spending { split: Split::Model, amount: Figures::cost_nano, sort: "cost", channel: Some(channel) };
    let axis = period.axis();
    let parts = all(request, period, &spending, &axis).await?;
    Ok(chart_of(request, &axis, (request.t().say("channels.cost_chart"), &spending), parts, series))
}

/// Failed attempts on a channel over time, by the name of their error.
pub(in crate::pages) async fn errors(request: &PageRequest, period: &Period, channel: &str) -> Result<Chart, ApiError> {
    let t = request.t();
    // Attempts are summed by hours and days.
    let axis = Some(period.axis()).filter(|axis| axis.grouping() != SummaryBy::FiveMinutes);
    let of_hours = || Axis::of_width(period.since.0, period.until.0, "hour");
    let axis = axis.or_else(of_hours).unwrap_or_else(|| period.axis());
    let by = if axis.grouping() == SummaryBy::Day { "day,error" } else { "hour,error" };
    let rows = sums::attempts(request, period, &[("by", by), ("channel", channel)]).await?;
    let parts = error_parts(t, &axis, &rows);
    let total = |bars: &[u64]| Unit::Count.show(t, bars.iter().fold(0_u64, |sum, bar| sum.saturating_add(*bar)));
    let kinds = parts.iter().zip(CLASSES.into_iter().chain([REST])).map(|(part, class)| BarSeries {
        class,
        label: part.name.clone(),
        total: total(&part.bars),
        filter: None,
    });
    let bars = beginnings(&axis).enumerate().map(|(bar, at)| BarFigures {
        at: rfc3339(at),
        figures: parts.iter().map(|part| part.bars[bar]).collect(),
        link: request.url(&sums::failed_at(&Period::fixed(at.0, at.0 + axis.width), channel, &[])),
    });
    Ok(Chart::of(t, t.say("channels.errors_chart"), kinds.collect(), bars.collect()))
}

/// Failed attempts by the name of their error, the most frequent first; the last part is the rest, if there are more names than colours.
fn error_parts(t: Locale, axis: &Axis, rows: &[sums::AttemptSum]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for row in rows.iter().filter(|row| row.attempts.failed > 0) {
        let Some(at) = row_time(&row.of) else { continue };
        let name = reasons::name(t, &row.and).unwrap_or_else(|| t.say("record.failed"));
        let bars = folded(axis, std::iter::once((at.0, row.attempts.failed)));
        match parts.iter_mut().find(|part| part.name == name) {
            Some(part) => add(&mut part.bars, &bars),
            None => parts.push(Part { id: String::new(), name: name.to_owned(), bars }),
        }
    }
    parts.sort_by_key(|part| {
        (std::cmp::Reverse(part.bars.iter().fold(0_u64, |sum, bar| sum.saturating_add(*bar))), part.name.clone())
    });
    let others = parts.split_off(parts.len().min(CLASSES.len()));
    if !others.is_empty() {
        let name = t.say_with("overview.others", &[("count", &others.len().to_string())]);
        let mut rest = Part { id: String::new(), name, bars: vec![0; beginnings(axis).count()] };
        for part in &others {
            add(&mut rest.bars, &part.bars);
        }
        parts.push(rest);
    }
    parts
}

fn add(bars: &mut [u64], more: &[u64]) {
    for (bar, more) in bars.iter_mut().zip(more) {
        *bar = bar.saturating_add(*more);
    }
}

/// The largest parts of an amount over time, and the rest.
fn chart_of(
    request: &PageRequest,
    axis: &Axis,
    (title, spending): (&str, &Spending<'_>),
    mut parts: Vec<Part>,
    series: &SumsOverTime,
) -> Chart {
    let t = request.t();
    let others = parts.split_off(parts.len().min(CLASSES.len())).len();
    let whole = folded(axis, series.at.iter().copied().zip(series.of(spending.amount)));
    let rest: Vec<u64> = whole
        .iter()
        .enumerate()
        .map(|(bar, whole)| parts.iter().fold(*whole, |rest, part| rest.saturating_sub(part.bars[bar])))
        .collect();
    let has_rest = rest.iter().any(|amount| *amount > 0);
    let total = |bars: &[u64]| Unit::Money.show(t, bars.iter().fold(0_u64, |sum, bar| sum.saturating_add(*bar)));
    let mut kinds: Vec<BarSeries> = parts
        .iter()
        .zip(CLASSES)
        .map(|(part, class)| BarSeries {
            class,
            label: part.name.clone(),
            total: total(&part.bars),
            filter: Some((spending.split.word(), part.id.clone())),
        })
        .collect();
    if has_rest {
        let label = if others > 0 {
            t.say_with("overview.others", &[("count", &others.to_string())])
        } else {
            t.say("overview.rest").to_owned()
        };
        kinds.push(BarSeries { class: REST, label, total: total(&rest), filter: None });
    }
    let filter = spending.filter();
    let bars = beginnings(axis).enumerate().map(|(bar, at)| BarFigures {
        at: rfc3339(at),
        figures: parts.iter().map(|part| part.bars[bar]).chain(has_rest.then(|| rest[bar])).collect(),
        link: bar_link(request, axis, at.0, &filter),
    });
    Chart::in_unit(t, Unit::Money, title, (kinds, bars.collect()))
}

/// The records of a bar.
fn bar_link(request: &PageRequest, axis: &Axis, at: i64, filter: &[(&str, &str)]) -> String {
    let query = Period::fixed(at, at + axis.width).log_query(filter);
    request.url(&format!("/log?{query}"))
}

/// Figures of steps as figures of bars.
fn folded(axis: &Axis, steps: impl Iterator<Item = (i64, u64)>) -> Vec<u64> {
    let mut bars = vec![0_u64; beginnings(axis).count()];
    for (at, figure) in steps {
        let bar = usize::try_from((at - axis.begin).div_euclid(axis.width)).ok();
        if let Some(bar) = bar.and_then(|bar| bars.get_mut(bar)) {
            *bar = bar.saturating_add(figure);
        }
    }
    bars
}

/// Every group over time, the largest first.
async fn all(request: &PageRequest, period: &Period, spending: &Spending<'_>, axis: &Axis) -> Result<Vec<Part>, ApiError> {
    let by = format!("{},{}", step(period).0, spending.split.word());
    let mut pairs = vec![("by", by.as_str()), ("sort", spending.sort), sums::WITHOUT_TIMES];
    pairs.extend(spending.filter());
    let rows = sums::rows(request, period, &pairs).await?;
    let mut parts: HashMap<String, Part> = HashMap::new();
    for row in &rows {
        let (Some(id), Some(at)) = (row.and.clone(), row_time(&row.of)) else { continue };
        let name = row.and_name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| id.clone());
        let bars = beginnings(axis).count();
        let part = parts.entry(id.clone()).or_insert_with(|| Part { id, name, bars: vec![0; bars] });
        add(&mut part.bars, &folded(axis, std::iter::once((at.0, (spending.amount)(&row.figures)))));
    }
    let mut parts: Vec<Part> = parts.into_values().filter(|part| part.bars.iter().any(|bar| *bar > 0)).collect();
    parts.sort_by_key(|part| {
        (std::cmp::Reverse(part.bars.iter().fold(0_u64, |sum, bar| sum.saturating_add(*bar))), part.id.clone())
    });
    Ok(parts)
}

/// The largest parts over time. The sums by time are read for each separately.
async fn largest(request: &PageRequest, period: &Period, split: Split, axis: &Axis) -> Result<Vec<Part>, ApiError> {
    let found = sums::rows(request, period, &[("by", split.word()), ("sort", "sale"), ("rows", "8"), sums::WITHOUT_TIMES]).await?;
    let mut parts = Vec::new();
    for SumRow { of: id, name, .. } in found.into_iter().filter(|row| row.figures.sale_nano() > 0 && !row.of.is_empty()) {
        let rows = sums::rows(request, period, &[("by", step(period).0), (split.word(), &id), sums::WITHOUT_TIMES]).await?;
        let steps = rows.iter().filter_map(|row| Some((row_time(&row.of)?.0, row.figures.sale_nano())));
        parts.push(Part { bars: folded(axis, steps), name: name.unwrap_or_else(|| id.clone()), id });
    }
    Ok(parts)
}

/// Times to the first content.
pub(in crate::pages) fn first_token(t: Locale, series: &SumsOverTime, whole: &Figures) -> LineChart {
    let known = |figures: &Figures| figures.ttft.filter(|times| times.p99 > 0);
    let line = |class, label, of: fn(&sums::Times) -> u64| LineSeries {
        class,
        label,
        total: known(whole).map(|times| format::percentile(t, of(&times))),
        figures: series.figures.iter().map(|figures| known(figures).map(|times| of(&times))).collect(),
    };
    let lines = vec![
        line("s1", "p50", |times| times.p50),
        line("s2 d2", "p95", |times| times.p95),
        line("s3 d3", "p99", |times| times.p99),
    ];
    LineChart::of_spans(t, t.say("overview.first_token_chart"), &series.times(), lines)
}

/// Tokens over time by kind.
pub(in crate::pages) fn tokens(request: &PageRequest, period: &Period, series: &SumsOverTime) -> Chart {
    let (t, axis) = (request.t(), period.axis());
    let kinds: [TokenKind; 3] = [
        ("f6", t.say("overview.cached"), |figures| figures.tokens_cache_read),
        ("f1", t.say("overview.input"), |figures| figures.tokens_input.saturating_sub(figures.tokens_cache_read)),
        ("f2", t.say("overview.output"), |figures| figures.tokens_output),
    ];
    let columns = kinds.map(|(_, _, of)| folded(&axis, series.at.iter().copied().zip(series.of(of))));
    let shown = kinds.iter().zip(&columns).map(|((class, label, _), column)| BarSeries {
        class,
        label: (*label).to_owned(),
        total: Amount::plain(format::compact(t, column.iter().fold(0_u64, |sum, figure| sum.saturating_add(*figure)))),
        filter: None,
    });
    let bars = beginnings(&axis).enumerate().map(|(bar, at)| BarFigures {
        at: rfc3339(at),
        figures: columns.iter().map(|column| column[bar]).collect(),
        link: bar_link(request, &axis, at.0, &[]),
    });
    Chart::of(t, t.say("log.tokens"), shown.collect(), bars.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failed_attempts_are_split_by_the_name_of_their_error() {
        let hour = 3_600_000_000;
        let axis = Axis { begin: 0, end: 2 * hour, width: hour };
        let row = |of: &str, and: &str, failed: u64| -> sums::AttemptSum {
            serde_json::from_value(json!({"of": of, "name": null, "and": and, "attempts": 9, "failed": failed})).unwrap()
        };
        let (first, second) = ("1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z");
        let rows = [row(first, "E54", 2), row(second, "E55", 3), row(second, "E56", 1), row(first, "", 5), row(first, "E52", 0)];
        let parts = error_parts(Locale::EN, &axis, &rows);
        let parts: Vec<_> = parts.iter().map(|part| (part.name.as_str(), part.bars.as_slice())).collect();
        let (upstream, limited) = (Locale::EN.say("reason.upstream_error"), Locale::EN.say("reason.upstream_rate"));
        assert_eq!(parts, [("failed", &[5, 0][..]), (upstream, &[0, 4]), (limited, &[2, 0])]);
    }

    #[test]
    fn histogram_steps_are_summed_into_bars() {
        let axis = Axis { begin: 0, end: 30, width: 10 };
        assert_eq!(folded(&axis, [(0, 1), (9, 2), (10, 4), (29, 8), (30, 16)].into_iter()), [3, 4, 8]);
    }

    #[test]
    fn unknown_split_falls_back_to_the_model() {
        assert_eq!(Split::of("key"), Split::Key);
        assert_eq!(Split::of("<script>"), Split::Model);
    }
}
