//! Metrics of the export of usage records to storage.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tollgate_core::Timestamp;

use super::{Metrics, Registering};

/// Totals of the exports by all nodes, read from the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportFigures {
    pub days: u64,
    pub records: u64,
    pub bytes: u64,
    /// Finished days with records that are not exported.
    pub due: u64,
    pub last_success: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct ExportMetrics {
    days: Gauge,
    records: Gauge,
    bytes: Gauge,
    due: Gauge,
    last_success: Gauge<f64, AtomicU64>,
    failures: Counter,
}

impl ExportMetrics {
    pub(super) fn new(registry: &mut Registering) -> Self {
        Self {
            days: registry.register("export_days", "Days of usage records that were exported", Gauge::default()),
            records: registry.register("export_records", "Usage records that were exported", Gauge::default()),
            bytes: registry.register("export_bytes", "Bytes of the files that usage records were exported to", Gauge::default()),
            due: registry.register("export_days_due", "Finished days with records that are not exported", Gauge::default()),
            last_success: registry.register(
                "export_last_success_timestamp_seconds",
                "When a day was exported last, in seconds since 1970; 0: never",
                Gauge::default(),
            ),
            failures: registry.register("export_failures", "Exports of this node that have failed", Counter::default()),
        }
    }
}

impl Metrics {
    pub fn exports(&self, figures: &ExportFigures) {
        let gauge = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.exports.days, figures.days);
        gauge(&self.exports.records, figures.records);
        gauge(&self.exports.bytes, figures.bytes);
        gauge(&self.exports.due, figures.due);
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact")]
        self.exports.last_success.set(figures.last_success.map_or(0.0, |at| at.seconds() as f64));
    }

    pub fn export_failed(&self) {
        self.exports.failures.inc();
    }
}
