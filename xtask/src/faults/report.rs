//! The fairness table.

use std::fmt::Write as _;

use serde_json::Value;

/// Least share of the due requests that are answered, and largest factor on the p99.
const GOODPUT: f64 = 0.95;
const P99: f64 = 2.0;

/// Results of the load client for the well-behaved key.
pub(super) struct Measurements {
    pub(super) alone: Value,
    /// While another gateway of the machine is attacked.
    pub(super) elsewhere: Value,
    /// While its own gateway is attacked.
    pub(super) beside: Value,
}

/// Figures of the well-behaved key under one pattern.
pub(super) struct FairnessRow {
    name: &'static str,
    /// Share of the due requests that were answered with 200.
    goodput: f64,
    p99_alone_ms: f64,
    p99_elsewhere_ms: f64,
    p99_beside_ms: f64,
    /// Largest resident memory of the gateway.
    memory_mb: f64,
}

impl FairnessRow {
    /// `measured`: at `rate` requests a second.
    pub(super) fn new(name: &'static str, rate: f64, measured: &Measurements) -> Self {
        let Measurements { alone, elsewhere, beside } = measured;
        let number = |row: &Value, pointer: &str| row.pointer(pointer).and_then(Value::as_f64);
        let p99 = |row: &Value| number(row, "/latency_ms/p99").unwrap_or(f64::INFINITY);
        Self {
            name,
            goodput: number(beside, "/per_second").unwrap_or(0.0) / rate,
            p99_alone_ms: p99(alone),
            p99_elsewhere_ms: p99(elsewhere),
            p99_beside_ms: p99(beside),
            memory_mb: number(beside, "/memory_bytes").unwrap_or(0.0) / 1e6,
        }
    }

    /// What the attack costs when it is aimed at another gateway is the machine's and not this gateway's.
    pub(super) fn is_met(&self) -> bool {
        self.goodput >= GOODPUT && self.p99_beside_ms <= P99 * self.p99_alone_ms.max(self.p99_elsewhere_ms)
    }
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

    #[test]
    fn both_bounds_must_hold() {
        let row = |beside| {
            let measured = Measurements { alone: result(200.0, 1.0), elsewhere: result(200.0, 1.5), beside };
            FairnessRow::new("x", 200.0, &measured)
        };
        assert!(row(result(190.0, 3.0)).is_met());
        assert!(!row(result(189.0, 1.0)).is_met());
        assert!(!row(result(200.0, 3.1)).is_met());
        assert!(!row(json!({"per_second": 0.0, "latency_ms": {"p99": null}})).is_met());
    }
}
