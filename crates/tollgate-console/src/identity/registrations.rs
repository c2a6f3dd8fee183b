//! The limiter of registrations: by address, and of all together. Every attempt counts, refused ones too, so that callers cannot probe
//! which names and addresses are taken. Counts are of this process and end with it.

use std::{collections::HashMap, net::IpAddr};

use tollgate_core::Timestamp;

use super::limiter::network;

/// Length of the period in which registrations are counted.
const HOUR_MS: i64 = 3_600_000;
/// Registrations from one address in an hour.
const PER_ADDRESS_AND_HOUR: u32 = 5;

/// The registrations of the current hour. Addresses are at most as many as registrations, whose number the settings bound.
#[derive(Debug, Default)]
pub(crate) struct RegistrationLimiter {
    since: Option<Timestamp>,
    count: u32,
    by_address: HashMap<IpAddr, u32>,
}

impl RegistrationLimiter {
    /// Counts a registration. The error is the number of seconds to wait; then it does not count.
    pub(crate) fn begin(&mut self, address: Option<IpAddr>, per_hour: u32, now: Timestamp) -> Result<(), u32> {
        if self.since.is_none_or(|since| now.ms_since(since) >= HOUR_MS) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        let of_address = address.map(network).map(|address| (address, self.by_address.get(&address).copied().unwrap_or(0)));
        if self.count >= per_hour || of_address.is_some_and(|(_, count)| count >= PER_ADDRESS_AND_HOUR) {
            let left_ms = HOUR_MS - self.since.map_or(0, |since| now.ms_since(since));
            return Err(u32::try_from(left_ms.div_euclid(1_000) + 1).unwrap_or(u32::MAX));
        }
        self.count += 1;
        if let Some((address, count)) = of_address {
            self.by_address.insert(address, count + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp(0).plus_ms(ms)
    }

    #[test]
    fn registrations_are_limited_by_address_and_in_total() {
        let mut limiter = RegistrationLimiter::default();
        let address = |text: &str| text.parse().ok();
        for n in 0..PER_ADDRESS_AND_HOUR {
            assert_eq!(limiter.begin(address(&format!("2001:db8:0:1::{n:x}")), 8, at(0)), Ok(()));
        }
        assert_eq!(limiter.begin(address("2001:db8:0:1:ffff::1"), 8, at(60_000)), Err(3_541), "of the same /64");
        for n in 1..=3 {
            assert_eq!(limiter.begin(address(&format!("192.0.2.{n}")), 8, at(60_000)), Ok(()));
        }
        assert!(limiter.begin(address("192.0.2.4"), 8, at(60_000)).is_err(), "of all addresses together");
        assert!(limiter.begin(None, 8, at(60_000)).is_err());
        assert_eq!(limiter.begin(address("192.0.2.4"), 9, at(60_000)), Ok(()), "the setting was raised");
        assert_eq!(limiter.begin(address("2001:db8:0:1::1"), 8, at(HOUR_MS)), Ok(()), "the hour is over");
        assert_eq!((limiter.count, limiter.by_address.len()), (1, 1));
    }
}
