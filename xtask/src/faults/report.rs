//! The fairness table.

use std::fmt::Write as _;

use serde_json::Value;

/// Least share of the due requests that are answered, and largest factor on the p99.
const GOODPUT: f64 = 0.95;
const P99: f64 = 2.0;

/// Results of the load client for the well-behaved key in one round.
pub(super) struct Round {
    pub(super) alone: Value,
    /// While another gateway of the machine is attacked.
    pub(super) elsewhere: Value,
    /// While its own gateway is attacked.
    pub(super) beside: Value,
}

/// Figures of the well-behaved key under one pattern. Latencies are medians of the rounds.
pub(super) struct FairnessRow {
    name: &'static str,
    /// Share of the due requests that were answered with 200, in the worst round.
    goodput: f64,
    p99_alone_ms: f64,
    p99_elsewhere_ms: f64,
    p99_beside_ms: f64,
    /// Largest resident memory of the gateway.
    memory_mb: f64,
}

impl FairnessRow {
    /// `rounds`: each at `rate` requests a second.
    pub(super) fn new(name: &'static str, rate: f64, rounds: &[Round]) -> Self {
        let number = |row: &Value, pointer: &str| row.pointer(pointer).and_then(Value::as_f64);
        let p99 = |of: fn(&Round) -> &Value| {
            median(rounds.iter().map(|round| number(of(round), "/latency_ms/p99").unwrap_or(f64::INFINITY)).collect())
        };
        let beside = |pointer: &'static str| rounds.iter().map(move |round| number(&round.beside, pointer).unwrap_or(0.0));
        Self {
            name,
            goodput: beside("/per_second").fold(f64::INFINITY, f64::min) / rate,
            p99_alone_ms: p99(|round| &round.alone),
            p99_elsewhere_ms: p99(|round| &round.elsewhere),
            p99_beside_ms: p99(|round| &round.beside),
            memory_mb: beside("/memory_bytes").fold(0.0, f64::max) / 1e6,
        }
    }

    /// The slowdown by an attack on another gateway is due to the machine and not to this gateway.
    pub(super) fn is_met(&self) -> bool {
        self.goodput >= GOODPUT && self.p99_beside_ms <= P99 * self.p99_alone_ms.max(self.p99_elsewhere_ms)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::INFINITY)
}

/// The rows as a Markdown table.
pub(super) fn table(rows: &[FairnessRow]) -> String {
    let mut text = String::from(
        "| the hostile key | goodput of the other | its p99 alone | attack on another gateway | attack on its own | memory of the gateway | |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let FairnessRow { name, goodput, p99_alone_ms, p99_elsewhere_ms, p99_beside_ms, memory_mb } = row;
        let verdict = if row.is_met() { "met" } else { "missed" };
        let percent = 100.0 * goodput;
        let _ = writeln!(
            text,
            "| {name} | {percent:.1} % | {p99_alone_ms:.1} ms | {p99_elsewhere_ms:.1} ms | {p99_beside_ms:.1} ms | {memory_mb:.0} MB \
             | {verdict} |"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(per_second: f64, p99: f64) -> Value {
        json!({"per_second": per_second, "latency_ms": {"p99": p99}, "memory_bytes": 50e6})
    }

    fn round(beside: Value) -> Round {
        Round { alone: result(200.0, 1.0), elsewhere: result(200.0, 1.5), beside }
    }

    #[test]
    fn both_bounds_must_hold() {
        let row = |beside| FairnessRow::new("x", 200.0, &[round(beside)]);
        assert!(row(result(190.0, 3.0)).is_met());
        assert!(!row(result(189.0, 1.0)).is_met());
        assert!(!row(result(200.0, 3.1)).is_met());
        assert!(!row(json!({"per_second": 0.0, "latency_ms": {"p99": null}})).is_met());
    }

    #[test]
    fn latency_is_the_median_of_the_rounds_and_goodput_the_worst() {
        let row = |besides: [Value; 3]| FairnessRow::new("x", 200.0, &besides.map(round));
        assert!(row([result(200.0, 9.0), result(200.0, 2.0), result(200.0, 2.5)]).is_met());
        assert!(!row([result(200.0, 9.0), result(200.0, 2.0), result(200.0, 3.1)]).is_met());
        assert!(!row([result(200.0, 2.0), result(200.0, 2.0), result(180.0, 2.0)]).is_met());
    }
}
