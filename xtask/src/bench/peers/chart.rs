//! The chart of the figures: bars on linear scales, as an SVG that follows the reader's light or dark scheme.

use std::fmt::Write as _;

use super::figures::{Figures, TargetFigures, grouped, short};

/// Coordinates. The chart is shown at 640 pixels where there is space, and fits a phone.
const WIDTH: f64 = 560.0;
const MARGIN: f64 = 24.0;
const BAR_X: f64 = 114.0;
const BAR_WIDTH: f64 = 326.0;
const BAR_HEIGHT: f64 = 18.0;
const ROW: f64 = 31.0;

const STYLE: &str = "\
svg { --card:#ffffff; --edge:#d8dfe6; --ink:#1f2933; --quiet:#5f6b7a; --own:#2f6fde; --peer:#a9b6c4; --plain:#d5dce4; font-family:ui-sans-serif,system-ui,\"Segoe UI\",Helvetica,Arial,sans-serif; }
@media (prefers-color-scheme: dark) { svg { --card:#171d24; --edge:#2c3641; --ink:#e6ebf1; --quiet:#9fabb9; --own:#7aa7ff; --peer:#64748a; --plain:#3d4956; } }
.card { fill:var(--card); stroke:var(--edge); }
.title { fill:var(--ink); font-size:18px; font-weight:700; }
.hint { fill:var(--quiet); font-size:14px; font-weight:400; }
.name { fill:var(--quiet); font-size:16px; }
.value { fill:var(--ink); font-size:16px; font-variant-numeric:tabular-nums; }
.own .name, .own .value { fill:var(--own); font-weight:700; }
.bar { fill:var(--peer); }
.own .bar { fill:var(--own); }
.plain .bar { fill:var(--plain); }
.foot { fill:var(--quiet); font-size:13px; }
";

/// One group of bars.
struct Panel {
    title: &'static str,
    hint: String,
    figure: fn(&TargetFigures) -> f64,
    shown: fn(f64) -> String,
}

/// The whole chart.
pub(super) fn draw(figures: &Figures) -> String {
    let panels = [
        Panel {
            title: "Requests a second",
            hint: "64 connections · more is better".to_owned(),
            figure: |target| target.per_second,
            shown: grouped,
        },
        Panel {
            title: "Added latency",
            hint: format!("median at {} requests a second · less is better", figures.rate),
            figure: |target| target.added_p50_ms,
            shown: |value| format!("{} ms", short(value)),
        },
        Panel {
            title: "Memory",
            hint: "64 connections · less is better".to_owned(),
            figure: |target| target.memory_mb,
            shown: |value| format!("{} MB", grouped(value)),
        },
    ];
    let (mut body, mut y) = (String::new(), MARGIN + 16.0);
    for panel in &panels {
        y = draw_panel(&mut body, panel, &figures.targets, y);
    }
    let versions: Vec<String> =
        figures.targets.iter().map(|target| format!("{} {}", target.name, number_of(&target.version))).collect();
    for line in [format!("{} · {}", figures.date, figures.machine.description()), versions.join(" · ")] {
        let _ = writeln!(body, "<text class=\"foot\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(&line));
        y += 20.0;
    }
    frame(&body, y, &description(figures))
}

fn frame(body: &str, height: f64, description: &str) -> String {
    let (shown_width, shown_height) = (640.0, (height * 640.0 / WIDTH).round());
    let (card_width, card_height) = (WIDTH - 1.0, height - 1.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{shown_width}\" height=\"{shown_height}\" role=\"img\" aria-labelledby=\"t d\">\n\
         <title id=\"t\">tollgate beside other gateways</title>\n<desc id=\"d\">{}</desc>\n<style>\n{STYLE}</style>\n\
         <rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{card_width}\" height=\"{card_height}\" rx=\"12\"/>\n{body}</svg>\n",
        escaped(description)
    )
}

/// Draws a panel from `top` and returns where the next begins.
fn draw_panel(body: &mut String, panel: &Panel, targets: &[TargetFigures], top: f64) -> f64 {
    let _ = writeln!(
        body,
        "<text class=\"title\" x=\"{MARGIN}\" y=\"{top}\">{}<tspan class=\"hint\" dx=\"10\">{}</tspan></text>",
        panel.title, panel.hint
    );
    let largest = targets.iter().map(panel.figure).fold(f64::MIN_POSITIVE, f64::max);
    let mut y = top + 18.0;
    for target in targets {
        let value = (panel.figure)(target);
        // A small value remains visible as a sliver, and a value slightly below zero because of the clock's resolution is not drawn as a
        // bar to the left.
        let width = (value.max(0.0) / largest * BAR_WIDTH).max(2.0);
        let class = match target.name.as_str() {
            "tollgate" => "own",
            "nginx" => "plain",
            _ => "peer",
        };
        let (text_y, radius, value_x) = (y + 14.0, (width / 2.0).min(4.0), BAR_X + width + 8.0);
        let _ = writeln!(
            body,
            "<g class=\"{class}\"><text class=\"name\" x=\"{MARGIN}\" y=\"{text_y}\">{}</text>\
             <rect class=\"bar\" x=\"{BAR_X}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" rx=\"{radius:.1}\"/>\
             <text class=\"value\" x=\"{value_x:.1}\" y=\"{text_y}\">{}</text></g>",
            escaped(&target.name),
            (panel.shown)(value)
        );
        y += ROW;
    }
    y + 36.0
}

/// The figures as a sentence, for readers who do not see the chart.
fn description(figures: &Figures) -> String {
    let targets = figures.targets.iter().map(|target| {
        format!(
            "{}: {} requests a second, {} ms added, {} MB",
            target.name,
            grouped(target.per_second),
            short(target.added_p50_ms),
            grouped(target.memory_mb)
        )
    });
    format!("{}.", targets.collect::<Vec<_>>().join("; "))
}

/// The version without that of the runtime.
fn number_of(version: &str) -> &str {
    version.split(',').next().unwrap_or_default()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
