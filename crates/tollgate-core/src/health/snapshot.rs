//! An account's health packed into two words, which can be published and read without a lock. The words are independent, so a
//! reader may see one from before and one from after a change.

use super::{AccountHealth, CoolingReason, HealthState, HealthStatus, RestingReason};
use crate::Timestamp;

/// The part of an [`AccountHealth`] that routing reads, packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthSnapshot {
    /// State: 8 bits of kind and reason, 56 bits of microseconds since 1970. 0: usable.
    pub state: u64,
    /// 10 bits of missing weight share in thousandths, then 27 bits each of the time to the first content and to a complete
    /// answer, in units of 16 µs. 0: full share, times unknown.
    pub latency: u64,
}

/// Widths of the lower parts: time below kind and reason, both latencies below the share, one latency.
const STATE_BITS: u32 = 56;
const LATENCY_BITS: u32 = 54;
const TIME_BITS: u32 = 27;
/// Microseconds per latency unit; 27 bits cover more than half an hour.
const LATENCY_UNIT_US: u64 = 16;
const NO_END: u64 = low_bits(u64::MAX, STATE_BITS);

const USABLE: u8 = 0;
const COOLING: u8 = 1 << 4;
const RESTING: u8 = 2 << 4;
const PROBING: u8 = 3 << 4;

const fn low_bits(value: u64, bits: u32) -> u64 {
    value & ((1 << bits) - 1)
}

/// Converts to units, rounded up so that a known latency stays non-zero.
fn latency_units(us: u64) -> u64 {
    us.div_ceil(LATENCY_UNIT_US).min(low_bits(u64::MAX, TIME_BITS))
}

impl HealthSnapshot {
    pub fn of(health: &AccountHealth) -> Self {
        let micros = |time: Timestamp| low_bits(u64::try_from(time.0).unwrap_or(0), STATE_BITS);
        let (kind, time) = match health.state {
            HealthState::Usable => (USABLE, 0),
            HealthState::Cooling { until, why, .. } => (COOLING | cooling_bits(why), micros(until)),
            HealthState::Resting { until, why, .. } => (RESTING | resting_bits(why), until.map_or(NO_END, micros)),
            HealthState::Probing { since, why } => (PROBING | why.map_or(0, cooling_bits), micros(since)),
        };
        let missing = u64::from(1_000_u32.saturating_sub(health.share()));
        Self {
            state: u64::from(kind) << STATE_BITS | time,
            latency: missing << LATENCY_BITS
                | latency_units(health.first_token_average_us) << TIME_BITS
                | latency_units(health.whole_answer_average_us),
        }
    }

    pub fn status(self, now: Timestamp) -> HealthStatus {
        if self == Self::default() {
            return HealthStatus::HEALTHY;
        }
        let missing = u32::try_from(self.latency >> LATENCY_BITS).unwrap_or(0);
        HealthStatus {
            availability: self.state().availability(now),
            share: 1_000_u32.saturating_sub(missing),
            first_token_us: low_bits(self.latency >> TIME_BITS, TIME_BITS) * LATENCY_UNIT_US,
            whole_answer_us: low_bits(self.latency, TIME_BITS) * LATENCY_UNIT_US,
        }
    }

    /// The state; its start is not kept.
    fn state(self) -> HealthState {
        let time = low_bits(self.state, STATE_BITS);
        let at = Timestamp(i64::try_from(time).unwrap_or(i64::MAX));
        let since = Timestamp(0);
        let bits = (self.state >> STATE_BITS) & 0xf;
        match (self.state >> (STATE_BITS + 4)) << 4 {
            kind if kind == u64::from(COOLING) => {
                HealthState::Cooling { until: at, why: cooling_of(bits).unwrap_or(CoolingReason::ServerError), since }
            }
            kind if kind == u64::from(RESTING) => {
                HealthState::Resting { until: (time != NO_END).then_some(at), why: resting_of(bits), since }
            }
            kind if kind == u64::from(PROBING) => HealthState::Probing { since: at, why: cooling_of(bits) },
            _ => HealthState::Usable,
        }
    }
}

const fn cooling_bits(why: CoolingReason) -> u8 {
    match why {
        CoolingReason::ConnectFailure => 1,
        CoolingReason::ServerError => 2,
        CoolingReason::Timeout => 3,
        CoolingReason::BadAnswer => 4,
        CoolingReason::RateLimited => 5,
        CoolingReason::PausingStatus => 6,
    }
}

const fn cooling_of(bits: u64) -> Option<CoolingReason> {
    match bits {
        1 => Some(CoolingReason::ConnectFailure),
        2 => Some(CoolingReason::ServerError),
        3 => Some(CoolingReason::Timeout),
        4 => Some(CoolingReason::BadAnswer),
        5 => Some(CoolingReason::RateLimited),
        6 => Some(CoolingReason::PausingStatus),
        _ => None,
    }
}

const fn resting_bits(why: RestingReason) -> u8 {
    match why {
        RestingReason::QuotaSpent => 1,
        RestingReason::Refused => 2,
    }
}

const fn resting_of(bits: u64) -> RestingReason {
    if bits == resting_bits(RestingReason::QuotaSpent) as u64 { RestingReason::QuotaSpent } else { RestingReason::Refused }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    fn states() -> impl Strategy<Value = HealthState> {
        let time = (-2_000_000_i64..2_000_000).prop_map(|ms| NOW.plus_ms(ms));
        let cooling = (1_u64..6).prop_map(|bits| cooling_of(bits).unwrap());
        let resting = (1_u64..3).prop_map(resting_of);
        prop_oneof![
            Just(HealthState::Usable),
            (time.clone(), cooling.clone()).prop_map(|(until, why)| HealthState::Cooling { until, why, since: NOW }),
            (proptest::option::of(time.clone()), resting).prop_map(|(until, why)| HealthState::Resting { until, why, since: NOW }),
            (time, proptest::option::of(cooling)).prop_map(|(since, why)| HealthState::Probing { since, why }),
        ]
    }

    proptest! {
        #[test]
        fn packed_health_has_the_same_status(
            state in states(),
            error_average in 0_u32..=1_000_000,
            first_token_units in 0_u64..60_000_000,
            whole_answer_units in 0_u64..120_000_000,
            later in 0_i64..2_000_000,
        ) {
            let (first_token_average_us, whole_answer_average_us) = (first_token_units * LATENCY_UNIT_US, whole_answer_units * LATENCY_UNIT_US);
            let health =
                AccountHealth { state, error_average, first_token_average_us, whole_answer_average_us, ..AccountHealth::default() };
            let now = NOW.plus_ms(later);
            prop_assert_eq!(HealthSnapshot::of(&health).status(now), health.status(now));
        }
    }

    #[test]
    fn small_latencies_are_not_rounded_to_unknown_and_large_ones_saturate() {
        let health = AccountHealth { first_token_average_us: 1, whole_answer_average_us: u64::MAX, ..AccountHealth::default() };
        let status = HealthSnapshot::of(&health).status(NOW);
        assert_eq!((status.first_token_us, status.share), (LATENCY_UNIT_US, 1_000));
        assert!(status.whole_answer_us > 1_800_000_000, "{status:?}");
    }

    #[test]
    fn unknown_health_is_healthy() {
        assert_eq!(HealthSnapshot::of(&AccountHealth::default()), HealthSnapshot::default());
        assert_eq!(HealthSnapshot::default().status(NOW), HealthStatus::HEALTHY);
        assert_eq!(AccountHealth::default().status(NOW), HealthStatus::HEALTHY);
    }
}
