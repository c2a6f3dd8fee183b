//! State that the counters of one process pass on to its successor: reservations of requests that still run, and the
//! rates of the last minutes. Spending is not passed on; it is in the database.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tollgate_core::{Limit, Meter, NanoUsd, RequestId, Subject};

use super::{MemoryCounters, MemoryReservation, lock};

/// The state of counters in memory that is not in the database.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CounterHandOver {
    /// The time of the sliding windows, in microseconds.
    micros: u64,
    /// Rates and reserved amounts; spending and balance are not used.
    meters: Vec<(Subject, Meter)>,
    reservations: Vec<(RequestId, Vec<OpenReservation>)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct OpenReservation {
    limits: Vec<Limit>,
    tokens: u64,
    amount: NanoUsd,
    buckets: Vec<u64>,
}

impl MemoryCounters {
    /// Call this after the last reservation. A request that ends meanwhile may be counted as running.
    pub(super) fn export(&self, now: Instant) -> CounterHandOver {
        let mut handed = CounterHandOver { micros: self.micros(now), ..CounterHandOver::default() };
        for shard in &self.reservations {
            for (id, open) in &lock(shard).open {
                let open = open.iter().map(|open| OpenReservation {
                    limits: open.limits.clone(),
                    tokens: open.tokens,
                    amount: open.amount,
                    buckets: open.buckets.clone(),
                });
                handed.reservations.push((*id, open.collect()));
            }
        }
        for shard in &self.meters {
            let mut shard = lock(shard);
            shard.visit_active(handed.micros, |subject, meter| handed.meters.push((subject, meter)));
        }
        handed
    }

    /// Continues with the output of [`Self::export`]. Call this before the first reservation.
    pub(super) fn import(&self, handed: CounterHandOver, now: Instant) {
        let age = std::time::Duration::from_micros(handed.micros);
        let _ = self.epoch.set(now.checked_sub(age).unwrap_or(now));
        for (subject, rates) in handed.meters {
            let mut shard = self.shard(subject);
            let meter = shard.meter(subject);
            (meter.requests, meter.tokens) = (rates.requests, rates.tokens);
        }
        for (id, open) in handed.reservations {
            for OpenReservation { limits, tokens, amount, buckets } in open {
                let expires = self.reservation_ttl.expiry(now);
                let open = MemoryReservation { limits, tokens, amount, buckets, expires, is_elsewhere: true };
                self.hold(&open);
                self.reservations(id).open.entry(id).or_default().push(open);
            }
        }
    }
}
