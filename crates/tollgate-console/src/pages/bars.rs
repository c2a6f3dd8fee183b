//! Stacked bars over time, drawn by the server: they need no script, and follow the theme. Each bar links to the records of its time;
//! the same figures are in a table.

use super::{
    format::{self, TimeText},
    locale::Locale,
    money::{self, Amount},
};

/// Height of the drawing in its own units.
const HEIGHT: u64 = 1_000;
/// Width of a bar with the gaps beside it.
const STEP: usize = 20;
const BAR: usize = 16;
/// The same where there are few.
const FEW: usize = 12;
const BAR_OF_FEW: usize = 6;
/// Maximum number of times named below the bars. A week has one for each bar.
const FEW_NAMED: usize = 7;
const NAMED: usize = 6;

/// Unit of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    /// Nano-USD.
    Money,
}

impl Unit {
    /// A figure with the digits it needs.
    pub(crate) fn show(self, t: Locale, figure: u64) -> Amount {
        match self {
            Self::Count => Amount::plain(format::integer(figure)),
            Self::Money => money::short(t, &money::decimal(figure)),
        }
    }

    /// A figure in the unit of the scale: money in billionths of the display currency, so that the scale has round figures.
    fn drawn(self, t: Locale, figure: u64) -> u64 {
        match self {
            Self::Count => figure,
            Self::Money => money::converted_nano(t, figure),
        }
    }

    /// A drawn figure beside the lines.
    fn beside(self, t: Locale, drawn: u64) -> String {
        match self {
            Self::Count => format::compact(t, drawn),
            Self::Money => money::of_scale(t, drawn),
        }
    }
}

/// A series of the bars: class of its colour, and its name.
#[derive(Clone, Debug)]
pub(crate) struct BarSeries {
    pub(crate) class: &'static str,
    pub(crate) label: String,
    pub(crate) total: Amount,
    /// The parameter of the log that selects it: name and value.
    pub(crate) filter: Option<(&'static str, String)>,
}

impl BarSeries {
    /// Query that is added to the link of a bar, for the records of this series.
    fn query(&self) -> String {
        let Some((name, value)) = &self.filter else { return String::new() };
        format!("&{}", url::form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish())
    }
}

/// The figures of a bar, one for each series.
#[derive(Debug)]
pub(crate) struct BarFigures {
    /// Beginning of its time in RFC 3339.
    pub(crate) at: String,
    pub(crate) figures: Vec<u64>,
    /// Target of its link.
    pub(crate) link: String,
}

/// `named` indices of `times` items, evenly from the first to the last; all if there are no more.
pub(super) fn evenly(times: usize, named: usize) -> Vec<usize> {
    if times > named { (0..named).map(|index| index * (times - 1) / (named - 1)).collect() } else { (0..times).collect() }
}

#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) label: String,
    pub(crate) width: usize,
    pub(crate) height: u64,
    pub(crate) bar_width: usize,
    pub(crate) series: Vec<BarSeries>,
    pub(crate) bars: Vec<Bar>,
    /// Figures beside the lines, the highest first.
    pub(crate) scale: Vec<String>,
    /// Times below the bars: evenly from the first to the last.
    pub(crate) times: Vec<TimeText>,
    pub(crate) is_empty: bool,
    /// Whether each bar is a UTC day, which is shown without a time of day in every zone.
    pub(crate) is_daily: bool,
}

#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) at: TimeText,
    pub(crate) x: usize,
    pub(crate) link: String,
    pub(crate) total: String,
    pub(crate) parts: Vec<Part>,
    /// The figures as text, one for each series.
    pub(crate) figures: Vec<Amount>,
}

/// A rectangle of a bar.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) class: &'static str,
    /// Query that is added to the link of its bar.
    pub(crate) query: String,
    /// Name and figure of its series.
    pub(crate) text: String,
    pub(crate) y: u64,
    pub(crate) height: u64,
}

impl Chart {
    pub(crate) fn of(t: Locale, label: &str, series: Vec<BarSeries>, figures: Vec<BarFigures>) -> Self {
        Self::in_unit(t, Unit::Count, label, (series, figures))
    }

    pub(crate) fn in_unit(t: Locale, unit: Unit, label: &str, (series, figures): (Vec<BarSeries>, Vec<BarFigures>)) -> Self {
        let total = |figures: &[u64]| figures.iter().fold(0_u64, |sum, figure| sum.saturating_add(*figure));
        let drawn = |figures: &[u64]| figures.iter().map(|figure| unit.drawn(t, *figure)).collect::<Vec<u64>>();
        let most = figures.iter().map(|bar| total(&drawn(&bar.figures))).max().unwrap_or(0);
        let top = round_up(most);
        let is_daily = figures.len() > 1 && figures.iter().all(|bar| bar.at.ends_with("T00:00:00Z"));
        let time = |index: usize| {
            let at = &figures[index].at;
            let text = format::time(t, at)?;
            Some(if is_daily { TimeText { text: format::day(t, &at[..at.len() - 10]), ..text } } else { text })
        };
        let of_bar = |at: &str| if is_daily { format::date(t, at) } else { format::time(t, at) };
        let named = if figures.len() > FEW_NAMED { NAMED } else { FEW_NAMED };
        let times = evenly(figures.len(), named).into_iter().filter_map(time).collect();
        let width = figures.len() * STEP;
        let bar_width = if figures.len() <= FEW { BAR_OF_FEW } else { BAR };
        let bars = figures.into_iter().enumerate().filter_map(|(index, bar)| {
            let shown: Vec<Amount> = bar.figures.iter().map(|figure| unit.show(t, *figure)).collect();
            Some(Bar {
                at: of_bar(&bar.at)?,
                x: index * STEP + (STEP - bar_width) / 2,
                link: bar.link,
                total: unit.show(t, total(&bar.figures)).with_title(),
                parts: parts(&series, (&drawn(&bar.figures), &shown), top),
                figures: shown,
            })
        });
        let bars = bars.collect();
        let scale = [top, top / 2, 0].map(|drawn| unit.beside(t, drawn)).to_vec();
        Self {
            label: label.to_owned(),
            width,
            height: HEIGHT,
            bar_width,
            series,
            bars,
            scale,
            times,
            is_empty: most == 0,
            is_daily,
        }
    }
}

/// The rectangles of a bar from the bottom up. A figure above zero is always visible.
fn parts(series: &[BarSeries], (figures, shown): (&[u64], &[Amount]), top: u64) -> Vec<Part> {
    let mut bottom = HEIGHT;
    let mut parts = Vec::new();
    for ((series, figure), shown) in series.iter().zip(figures).zip(shown) {
        if *figure == 0 {
            continue;
        }
        let height = u64::try_from(u128::from(*figure) * u128::from(HEIGHT) / u128::from(top.max(1))).unwrap_or(HEIGHT);
        let height = height.clamp(12, HEIGHT).min(bottom);
        bottom -= height;
        let text = format!("{} {}", series.label, shown.with_title());
        parts.push(Part { class: series.class, query: series.query(), text, y: bottom, height });
    }
    parts
}

/// The smallest of the numbers 2, 4, 6, 8, 10, 12 and 16, each times a power of ten, that is not below `most`.
pub(super) fn round_up(most: u64) -> u64 {
    let mut unit = 1_u64;
    loop {
        for step in [2, 4, 6, 8, 10, 12, 16] {
            let bound = unit.saturating_mul(step);
            if bound >= most {
                return bound;
            }
        }
        unit = match unit.checked_mul(10) {
            Some(unit) => unit,
            None => return u64::MAX,
        };
    }
}

#[cfg(test)]
mod tests {
    use askama::Template;

    use super::*;

    #[test]
    fn scale_ends_above_the_highest_bar() {
        for (most, top) in [
            (0, 2),
            (1, 2),
            (3, 4),
            (9, 10),
            (11, 12),
            (13, 16),
            (17, 20),
            (99, 100),
            (110, 120),
            (150, 160),
            (161, 200),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(round_up(most), top, "{most}");
        }
    }

    #[test]
    fn bar_parts_are_stacked_and_have_a_minimum_height() {
        let series = ["completed", "broke"].map(|class| BarSeries {
            class,
            label: class.to_uppercase(),
            total: Amount::none(),
            filter: (class == "broke").then(|| ("outcome", "up stream".to_owned())),
        });
        let parts = |figures: [u64; 2]| {
            let shown = figures.map(|figure| Unit::Count.show(Locale::EN, figure));
            super::parts(&series, (&figures, &shown), 100)
        };
        let text = str::to_owned;
        let found = parts([50, 1]);
        assert_eq!(
            found,
            [
                Part { class: "completed", query: String::new(), text: text("COMPLETED 50"), y: 500, height: 500 },
                Part { class: "broke", query: text("&outcome=up+stream"), text: text("BROKE 1"), y: 488, height: 12 },
            ]
        );
        assert!(parts([0, 0]).is_empty());
        let full = parts([100, 5]);
        assert_eq!((full[0].height, full[1].y, full[1].height), (1_000, 0, 0));
    }

    #[test]
    fn money_figures_are_formatted_in_the_display_currency() {
        assert_eq!(Unit::Money.show(Locale::EN, 1_500_000_000).text, "$1.50");
        let yuan = Locale::EN.with_currency(crate::currency::DisplayCurrency::of("CNY", "7.1"));
        let figures = vec![BarFigures { at: "2026-11-23T10:00:00Z".to_owned(), figures: vec![1_500_000_000], link: String::new() }];
        let series = vec![BarSeries { class: "completed", label: String::new(), total: Amount::none(), filter: None }];
        let chart = Chart::in_unit(yuan, Unit::Money, "", (series, figures));
        // The scale has round figures of the currency, the bar its exact figure in USD.
        assert_eq!(chart.scale, ["CN¥12", "CN¥6", "CN¥0.00"]);
        assert_eq!((chart.bars[0].total.as_str(), chart.bars[0].parts[0].height), ("CN¥10.65 ($1.50)", 887));
    }

    /// The bars as a page has them.
    #[derive(Debug, Template)]
    #[template(path = "parts/bars.html")]
    struct BarsPart {
        t: Locale,
        chart: Chart,
    }

    #[test]
    fn every_part_of_a_bar_has_its_time_name_and_figure_as_title() {
        let drawn = |at: &[&str], figures: &[u64]| {
            let series = ["Completed", "<Refused>"].map(|label| BarSeries {
                class: "completed",
                label: label.to_owned(),
                total: Amount::none(),
                filter: None,
            });
            let bar = |at: &&str| BarFigures { at: (*at).to_owned(), figures: figures.to_vec(), link: "/log".to_owned() };
            let chart = Chart::of(Locale::EN, "", series.to_vec(), at.iter().map(bar).collect());
            BarsPart { t: Locale::EN, chart }.render().unwrap()
        };
        let html = drawn(&["2026-11-23T10:00:00Z"], &[1_200, 3]);
        let time = "<title><time datetime=\"2026-11-23T10:00:00Z\" data-local>23 Nov 2026, 10:00 UTC</time>: ";
        for text in ["1,203", "Completed 1,200", "&#60;Refused&#62; 3"] {
            assert!(html.contains(&format!("{time}{text}</title>")), "{text}: {html}");
        }
        // Days are those of UTC in every zone.
        let html = drawn(&["2026-11-23T00:00:00Z", "2026-11-24T00:00:00Z"], &[1, 0]);
        assert!(html.contains("<title><time datetime=\"2026-11-24\">24 Nov 2026 UTC</time>: Completed 1</title>"), "{html}");
        assert!(!drawn(&["2026-11-23T10:00:00Z"], &[0, 0]).contains("<title>"), "an empty chart has no bars");
    }

    #[test]
    fn long_charts_label_only_a_few_times() {
        let figures = (0..60_u64).map(|minute| BarFigures {
            at: format!("2026-11-23T10:{minute:02}:00Z"),
            figures: vec![minute],
            link: String::new(),
        });
        let series = vec![BarSeries { class: "completed", label: String::new(), total: Amount::none(), filter: None }];
        let chart = Chart::of(Locale::EN, "", series, figures.collect());
        assert_eq!((chart.times.len(), chart.bars.len(), chart.width), (6, 60, 1_200));
        assert!(chart.times[5].machine.contains("10:59") && !chart.is_daily);
        let day = |day: u64| BarFigures { at: format!("2026-11-2{day}T00:00:00Z"), figures: vec![day], link: String::new() };
        let week = Chart::of(Locale::EN, "", Vec::new(), (0..7).map(day).collect());
        assert_eq!((week.times.len(), week.times[3].text.as_str(), week.is_daily), (7, "Mon 23 Nov", true));
    }
}
