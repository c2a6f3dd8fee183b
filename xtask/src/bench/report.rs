//! Figures: medians of rounds, tables, and bounds.

use serde_json::{Value, json};

use super::{Scenario, targets::BenchTarget};

/// Medians of the rounds of one target.
pub(super) fn medians(rows: &[Value]) -> Value {
    let median = |pointer: &str| {
        let mut values: Vec<f64> = rows.iter().filter_map(|row| row.pointer(pointer)?.as_f64()).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    json!({
        "per_second": median("/per_second"), "cpu_us_per_request": median("/cpu_us_per_request"), "cpu_us_per_chunk": median("/cpu_us_per_chunk"),
        "p50_ms": median("/latency_ms/p50"), "p99_ms": median("/latency_ms/p99"), "first_p50_ms": median("/first_ms/p50"), "first_p99_ms": median("/first_ms/p99"),
        "chunk_p50_ms": median("/chunk_ms/p50"), "chunk_p99_ms": median("/chunk_ms/p99"), "memory_mb": median("/memory_bytes").map(|bytes| bytes / 1e6),
        "errors": rows.iter().filter_map(|row| row["errors"].as_u64()).sum::<u64>(),
    })
}

/// A number of a row of the load client; not a number where it has none.
pub(super) fn number(row: &Value, pointer: &str) -> f64 {
    row.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// Prints the rows, with ratios to the row `base`.
pub(super) fn print_table(run: &Scenario<'_>, targets: &[BenchTarget], rows: &[Value], base: usize) {
    println!("\n{}: {}", run.name, run.description);
    let (base, base_row) = (&targets[base], &rows[base]);
    let streams = run.load[0] == "stream";
    let (cpu, unit) = if streams { ("cpu_us_per_chunk", "CPU µs/chunk") } else { ("cpu_us_per_request", "CPU µs/req") };
    let (middle, late) = if streams { ("first_p50_ms", "chunk_p99_ms") } else { ("p50_ms", "p99_ms") };
    println!(
        "{:<32}{:>12}{:>14}{:>10}{:>10}{:>10}{:>14}{:>10}",
        "",
        "per second",
        unit,
        format!("× {}", base.name.split(' ').next().unwrap_or_default()),
        "rate ×",
        middle.trim_end_matches("_ms"),
        late,
        "MB"
    );
    for (target, row) in targets.iter().zip(rows) {
        let show = |name: &str, digits: usize| row[name].as_f64().map_or("–".to_owned(), |value| format!("{value:.digits$}"));
        let ratio = |name: &str| match (row[name].as_f64(), base_row[name].as_f64()) {
            (Some(own), Some(base)) if base > 0.0 => format!("{:.2}", own / base),
            _ => "–".to_owned(),
        };
        println!(
            "{:<32}{:>12}{:>14}{:>10}{:>10}{:>10}{:>14}{:>10}",
            target.name,
            show("per_second", 0),
            show(cpu, 1),
            ratio(cpu),
            ratio("per_second"),
            show(middle, 2),
            show(late, 2),
            show("memory_mb", 0)
        );
    }
}

/// How a figure is computed from two values of a report.
enum Derivation {
    /// The first value.
    Plain,
    /// The first minus the second.
    Minus(&'static str),
    /// The first divided by the second.
    Ratio(&'static str),
}

/// A figure and its bound.
struct Threshold {
    description: &'static str,
    /// JSON pointer into the report.
    figure: &'static str,
    derivation: Derivation,
    limit: f64,
    /// The limit is a lower bound, not an upper one.
    is_lower: bool,
}

const fn at_most(description: &'static str, figure: &'static str, derivation: Derivation, limit: f64) -> Threshold {
    Threshold { description, figure, derivation, limit, is_lower: false }
}

const fn at_least(description: &'static str, figure: &'static str, derivation: Derivation, limit: f64) -> Threshold {
    Threshold { description, figure, derivation, limit, is_lower: true }
}

const THRESHOLDS: &[Threshold] = &[
    at_most(
        "max: CPU a request, × nginx",
        "/max/tollgate/cpu_us_per_request",
        Derivation::Ratio("/max/nginx/cpu_us_per_request"),
        1.6,
    ),
    at_most(
        "native: CPU a request, × nginx",
        "/native/tollgate/cpu_us_per_request",
        Derivation::Ratio("/native/nginx/cpu_us_per_request"),
        1.7,
    ),
    at_least("max: requests a second, × nginx", "/max/tollgate/per_second", Derivation::Ratio("/max/nginx/per_second"), 0.6),
    at_most("rate: added to direct, p50 in ms", "/rate/tollgate/p50_ms", Derivation::Minus("/rate/direct/p50_ms"), 0.2),
    at_most("rate: added to direct, p99 in ms", "/rate/tollgate/p99_ms", Derivation::Minus("/rate/direct/p99_ms"), 0.6),
    at_most(
        "stream: first chunk over direct, ms",
        "/stream/tollgate/first_p50_ms",
        Derivation::Minus("/stream/direct/first_p50_ms"),
        0.25,
    ),
    at_most("slow: CPU a chunk, µs", "/slow/tollgate/cpu_us_per_chunk", Derivation::Plain, 14.0),
    at_most("slow: lateness of chunks, p99 in ms", "/slow/tollgate/chunk_p99_ms", Derivation::Plain, 10.0),
    at_most("slow: memory, MB", "/slow/tollgate/memory_mb", Derivation::Plain, 64.0),
    at_most(
        "translated: CPU, × same protocol",
        "/translated/translated/cpu_us_per_request",
        Derivation::Ratio("/translated/same protocol/cpu_us_per_request"),
        1.4,
    ),
    at_least(
        "bounded: requests a second, accounting on × off",
        "/bounded/accounting on/per_second",
        Derivation::Ratio("/bounded/accounting off/per_second"),
        0.9,
    ),
    at_least("usage: records a second into SQLite", "/usage/SQLite/per_second", Derivation::Plain, 40_000.0),
    at_most("usage: bytes of SQLite a record", "/usage/SQLite/record_bytes", Derivation::Plain, 250.0),
    at_most("usage: slowest page, ms", "/usage/SQLite/page_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest sums, ms", "/usage/SQLite/chart_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest unaligned sums, ms", "/usage/SQLite/unaligned_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest sums by two groups, ms", "/usage/SQLite/grouped_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest sums of a filter, ms", "/usage/SQLite/filtered_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest answer of the admin API, ms", "/usage/SQLite/api_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest page of the console, ms", "/usage/SQLite/console_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest first paint of a page, ms", "/usage/SQLite/paint_ms", Derivation::Plain, 300.0),
    at_least("usage: requests a second beside 20 users, × alone", "/usage/SQLite/beside_users", Derivation::Plain, 0.95),
    at_least("usage: records exported a second", "/usage/SQLite/exported_per_second", Derivation::Plain, 50_000.0),
    at_most("usage: verification of 10 million, s", "/usage/SQLite/verify_10_million_s", Derivation::Plain, 60.0),
    at_least("usage: records a second into PostgreSQL", "/usage/PostgreSQL/per_second", Derivation::Plain, 40_000.0),
    at_most("usage: slowest page, ms", "/usage/PostgreSQL/page_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest sums, ms", "/usage/PostgreSQL/chart_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest unaligned sums, ms", "/usage/PostgreSQL/unaligned_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest sums by two groups, ms", "/usage/PostgreSQL/grouped_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest sums of a filter, ms", "/usage/PostgreSQL/filtered_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest answer of the admin API, ms", "/usage/PostgreSQL/api_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest page of the console, ms", "/usage/PostgreSQL/console_ms", Derivation::Plain, 300.0),
    at_most("usage: slowest first paint of a page, ms", "/usage/PostgreSQL/paint_ms", Derivation::Plain, 300.0),
    at_least("usage: requests a second beside 20 users, × alone", "/usage/PostgreSQL/beside_users", Derivation::Plain, 0.95),
    at_least("usage: records exported a second", "/usage/PostgreSQL/exported_per_second", Derivation::Plain, 50_000.0),
    at_most("usage: verification of 10 million, s", "/usage/PostgreSQL/verify_10_million_s", Derivation::Plain, 60.0),
    at_least("overload: goodput, × peak", "/overload/goodput", Derivation::Plain, 0.9),
    at_most("overload: refusals, p99 in ms", "/overload/refusal_p99_ms", Derivation::Plain, 20.0),
    at_most("overload: another key's p99 in ms", "/overload/other_p99_ms", Derivation::Plain, 50.0),
    at_most("overload: slowest /healthz, ms", "/overload/health_max_ms", Derivation::Plain, 100.0),
    at_most("overload: memory, MB", "/overload/memory_mb", Derivation::Plain, 128.0),
    at_most("instructions a request", "/instructions/per_request", Derivation::Plain, 80_000.0),
    at_most("instructions of messages to those of chat", "/instructions/to_chat/messages", Derivation::Plain, 1.15),
    at_most("instructions of responses to those of chat", "/instructions/to_chat/responses", Derivation::Plain, 1.15),
    at_most("allocations a request, on the cores", "/instructions/allocations", Derivation::Plain, 40.0),
    at_most("idle memory, MB", "/idle_mb", Derivation::Plain, 40.0),
    at_most("start to first answer, s", "/start_s", Derivation::Plain, 0.5),
    at_most("size of the program, MB", "/program_mb", Derivation::Plain, 40.0),
];

/// Prints each measured figure with its bound, met or missed.
pub(super) fn print_bounds(report: &Value) {
    println!("\n{:<48}{:>10}   bound", "", "measured");
    for line in THRESHOLDS.iter().filter_map(|threshold| threshold.line(report)) {
        println!("{line}");
    }
}

impl Threshold {
    /// The figure beside its bound; `None` when the report lacks it.
    fn line(&self, report: &Value) -> Option<String> {
        let at = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64);
        let own = at(self.figure)?;
        let figure = match self.derivation {
            Derivation::Plain => own,
            Derivation::Minus(other) => own - at(other)?,
            Derivation::Ratio(other) => own / at(other).filter(|other| *other > 0.0)?,
        };
        let is_met = if self.is_lower { figure >= self.limit } else { figure <= self.limit };
        let (sign, verdict) = (if self.is_lower { '≥' } else { '≤' }, if is_met { "met" } else { "MISSED" });
        Some(format!("{:<48}{figure:>10.2}   {sign} {:<9}{verdict}", self.description, self.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(description: &str, report: &Value) -> Option<String> {
        let found = THRESHOLDS.iter().find(|threshold| threshold.description == description);
        let line = found.expect("a threshold of this description").line(report)?;
        Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn figure_is_printed_with_its_bound_and_whether_it_is_met() {
        let ratio = |own: f64| json!({"max": {"tollgate": {"cpu_us_per_request": own}, "nginx": {"cpu_us_per_request": 10.0}}});
        let description = "max: CPU a request, × nginx";
        assert_eq!(line(description, &ratio(16.0)).unwrap(), format!("{description} 1.60 ≤ 1.6 met"));
        assert_eq!(line(description, &ratio(16.1)).unwrap(), format!("{description} 1.61 ≤ 1.6 MISSED"));
        let booked = |rate: f64| json!({"usage": {"SQLite": {"per_second": rate}}});
        let description = "usage: records a second into SQLite";
        assert_eq!(line(description, &booked(40_000.0)).unwrap(), format!("{description} 40000.00 ≥ 40000 met"));
        assert_eq!(line(description, &booked(39_999.0)).unwrap(), format!("{description} 39999.00 ≥ 40000 MISSED"));
    }

    #[test]
    fn bound_without_its_figures_is_not_printed() {
        assert_eq!(line("max: CPU a request, × nginx", &json!({"max": {"tollgate": {"cpu_us_per_request": 1.0}}})), None);
        assert_eq!(line("idle memory, MB", &json!({})), None);
    }
}
