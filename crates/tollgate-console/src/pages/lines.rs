//! Lines over time, drawn by the server, and the small ones beside figures. A time without a figure interrupts its line; the same figures
//! are in a table.

use std::fmt::Write as _;

use super::{
    format::{self, TimeText},
    locale::Locale,
};

/// Size of a drawing in its own units.
const WIDTH: u64 = 1_000;
const HEIGHT: u64 = 1_000;
const SPARK_WIDTH: u64 = 88;
const SPARK_HEIGHT: u64 = 28;
/// Times that are named below the lines.
const NAMED: usize = 5;

/// A line: class of its stroke, its name, and the figure of the whole time.
#[derive(Debug)]
pub(crate) struct LineSeries {
    pub(crate) class: &'static str,
    pub(crate) label: &'static str,
    pub(crate) total: Option<String>,
    /// The figures, one for each time, in microseconds.
    pub(crate) figures: Vec<Option<u64>>,
}

#[derive(Debug)]
pub(crate) struct LineChart {
    pub(crate) label: String,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) lines: Vec<ChartLine>,
    /// Figures beside the lines, the highest first.
    pub(crate) scale: Vec<String>,
    pub(crate) times: Vec<TimeText>,
    pub(crate) rows: Vec<(TimeText, Vec<String>)>,
    /// Times with figures, which are shown where the drawing is pointed at.
    pub(crate) columns: Vec<LineColumn>,
    pub(crate) is_empty: bool,
}

/// The part of the drawing that is nearest to a time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LineColumn {
    pub(crate) x: u64,
    pub(crate) width: u64,
    pub(crate) at: TimeText,
    /// Name and figure of each line.
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct ChartLine {
    pub(crate) class: &'static str,
    pub(crate) label: &'static str,
    pub(crate) total: Option<String>,
    pub(crate) path: String,
}

impl LineChart {
    /// Lines of time spans. `at` are the times in RFC 3339.
    pub(crate) fn of_spans(t: Locale, label: &str, at: &[String], series: Vec<LineSeries>) -> Self {
        let most = series.iter().flat_map(|series| &series.figures).flatten().copied().max().unwrap_or(0);
        let top = super::bars::round_up(most);
        let show = |figure: &Option<u64>| figure.map_or_else(|| "–".to_owned(), |us| format::percentile(t, us));
        let rows = at.iter().enumerate().filter_map(|(index, at)| {
            let figures = series.iter().map(|series| show(series.figures.get(index).unwrap_or(&None)));
            Some((format::time(t, at)?, figures.collect()))
        });
        let rows: Vec<(TimeText, Vec<String>)> = rows.collect();
        let columns = columns(&rows, &series);
        let times = super::bars::evenly(at.len(), NAMED).into_iter().filter_map(|index| format::time(t, &at[index])).collect();
        let lines = series.into_iter().map(|LineSeries { class, label, total, figures }| ChartLine {
            path: path(&figures, top, (WIDTH, HEIGHT)),
            class,
            label,
            total,
        });
        Self {
            label: label.to_owned(),
            width: WIDTH,
            height: HEIGHT,
            lines: lines.collect(),
            scale: [top, top / 2, 0].map(|us| format::micros_short(t, us)).to_vec(),
            times,
            rows,
            columns,
            is_empty: most == 0,
        }
    }
}

/// A column for each row that has a figure. Columns meet halfway between two times.
fn columns(rows: &[(TimeText, Vec<String>)], series: &[LineSeries]) -> Vec<LineColumn> {
    let last = rows.len().saturating_sub(1) as u64;
    let border = |halves: u64| scaled(halves, 2 * last, WIDTH);
    let column = |(index, (at, figures)): (usize, &(TimeText, Vec<String>))| {
        if series.iter().all(|line| line.figures.get(index).copied().flatten().is_none()) {
            return None;
        }
        let texts: Vec<String> = series.iter().zip(figures).map(|(line, figure)| format!("{} {figure}", line.label)).collect();
        let index = index as u64;
        let (left, right) =
            if last == 0 { (0, WIDTH) } else { (border((2 * index).saturating_sub(1)), border((2 * index + 1).min(2 * last))) };
        Some(LineColumn { x: left, width: right - left, at: at.clone(), text: texts.join(" · ") })
    };
    rows.iter().enumerate().filter_map(column).collect()
}

/// The line through figures. A figure without neighbours is a short stroke, so that it is visible.
fn path(figures: &[Option<u64>], top: u64, (width, height): (u64, u64)) -> String {
    let last = figures.len().saturating_sub(1).max(1);
    let mut path = String::new();
    for (index, figure) in figures.iter().enumerate() {
        let Some(figure) = figure else { continue };
        let x = scaled(index as u64, last as u64, width);
        let y = height - scaled(*figure, top, height);
        let continues = index > 0 && figures[index - 1].is_some();
        let is_alone = !continues && figures.get(index + 1).copied().flatten().is_none();
        write!(path, "{}{x} {y}", if continues { "L" } else { "M" }).expect("writing to a String cannot fail");
        if is_alone {
            path.push_str("h6");
        }
    }
    path
}

fn scaled(figure: u64, of: u64, to: u64) -> u64 {
    u64::try_from(u128::from(figure) * u128::from(to) / u128::from(of.max(1))).unwrap_or(to).min(to)
}

/// The small line of a figure over time, and the area below it.
#[derive(Debug)]
pub(crate) struct Spark {
    pub(crate) line: String,
    pub(crate) area: String,
}

impl Spark {
    /// `None` for fewer than two figures. The scale begins at the lowest figure, because the line shows the trend and not the
    /// height.
    pub(crate) fn of(figures: &[u64]) -> Option<Self> {
        let (low, high) = (figures.iter().min()?, figures.iter().max()?);
        if figures.len() < 2 {
            return None;
        }
        let shifted: Vec<Option<u64>> = figures.iter().map(|figure| Some(figure - low)).collect();
        let line = path(&shifted, high - low, (SPARK_WIDTH, SPARK_HEIGHT - 2));
        let area = format!("{line}V{SPARK_HEIGHT}H0z");
        Some(Self { line, area })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_figures_leave_gaps_in_the_line() {
        let figures = [Some(0), Some(50), None, Some(100), None];
        assert_eq!(path(&figures, 100, (1_000, 1_000)), "M0 1000L250 500M750 0h6");
        assert_eq!(path(&[None, None], 100, (1_000, 1_000)), "");
    }

    #[test]
    fn sparklines_are_scaled_to_their_range() {
        let spark = Spark::of(&[100, 102, 101]).unwrap();
        assert_eq!(spark.line, "M0 26L44 0L88 13");
        assert!(spark.area.ends_with("V28H0z"));
        assert_eq!(Spark::of(&[5, 5]).unwrap().line, "M0 26L88 26");
        assert!(Spark::of(&[1]).is_none() && Spark::of(&[]).is_none());
    }

    #[test]
    fn chart_table_contains_the_figures() {
        let at = ["2026-11-23T10:00:00Z", "2026-11-23T11:00:00Z"].map(str::to_owned);
        let series = LineSeries { class: "s1", label: "p50", total: None, figures: vec![Some(412_000), None] };
        let chart = LineChart::of_spans(Locale::EN, "x", &at, vec![series]);
        assert_eq!(chart.rows[0].1, ["410 ms"]);
        assert_eq!(chart.rows[1].1, ["–"]);
        assert_eq!(chart.scale, ["600 ms", "300 ms", "0"]);
    }

    #[test]
    fn columns_have_the_figures_of_every_line_and_meet_halfway_between_times() {
        let at: Vec<String> = (0..5).map(|hour| format!("2026-11-23T1{hour}:00:00Z")).collect();
        let line = |label, figures| LineSeries { class: "s1", label, total: None, figures };
        let of = |count: usize, figures: &[Option<u64>]| {
            let series = vec![line("p50", figures.to_vec()), line("p95", vec![Some(2_000_000)])];
            LineChart::of_spans(Locale::EN, "x", &at[..count], series).columns
        };
        let columns = of(5, &[Some(412_000), Some(412_000), None, None, Some(1_000)]);
        let places: Vec<_> = columns.iter().map(|column| (column.x, column.width)).collect();
        assert_eq!(places, [(0, 125), (125, 250), (875, 125)]);
        assert_eq!((columns[0].text.as_str(), columns[1].text.as_str()), ("p50 410 ms · p95 2.0 s", "p50 410 ms · p95 –"));
        assert_eq!(columns[2].at.machine, "2026-11-23T14:00:00Z");
        assert_eq!(of(1, &[Some(1)]).iter().map(|column| (column.x, column.width)).collect::<Vec<_>>(), [(0, 1_000)]);
    }
}
