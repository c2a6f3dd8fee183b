//! The limiter of attempts to sign in: by address and by the name that is tried. Every attempt counts until it succeeds, so that
//! attempts made at the same time are bounded too. Counts are of this process and end with it.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

use tollgate_core::Timestamp;

/// Length of the period in which attempts are counted.
const PERIOD_MS: i64 = 300_000;
/// Attempts with one name in a period.
const PER_NAME: u32 = 10;
/// Attempts from one address in a period; more, because many people may share one.
const PER_ADDRESS: u32 = 50;
/// Maximum number of names and addresses that are remembered. At the bound the oldest periods are dropped first.
const MAX_COUNTED: usize = 20_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    /// IPv6 addresses count by their /64.
    Address(IpAddr),
    Name(String),
}

#[derive(Clone, Copy, Debug)]
struct Attempts {
    since: Timestamp,
    count: u32,
}

#[derive(Debug, Default)]
pub(crate) struct SignInLimiter {
    attempts: HashMap<Subject, Attempts>,
}

impl SignInLimiter {
    /// Counts an attempt. The error is the number of seconds to wait; then it does not count.
    pub(crate) fn begin(&mut self, address: Option<IpAddr>, name: Option<&str>, now: Timestamp) -> Result<(), u32> {
        let by_name = name.map(|name| (Subject::Name(name.to_lowercase()), PER_NAME));
        let by_address = address.map(|address| (Subject::Address(network(address)), PER_ADDRESS));
        let subjects: Vec<_> = [by_name, by_address].into_iter().flatten().collect();
        let waits = subjects.iter().filter_map(|(subject, max)| self.wait(subject, *max, now));
        if let Some(wait) = waits.max() {
            return Err(wait);
        }
        self.evict_old(now);
        for (subject, _) in subjects {
            let attempts = self.attempts.entry(subject).or_insert(Attempts { since: now, count: 0 });
            if now.ms_since(attempts.since) >= PERIOD_MS {
                *attempts = Attempts { since: now, count: 0 };
            }
            attempts.count += 1;
        }
        Ok(())
    }

    /// Forgets the attempts with a name, and the last one of the address.
    pub(crate) fn succeeded(&mut self, address: Option<IpAddr>, name: Option<&str>) {
        if let Some(name) = name {
            self.attempts.remove(&Subject::Name(name.to_lowercase()));
        }
        if let Some(attempts) = address.and_then(|address| self.attempts.get_mut(&Subject::Address(network(address)))) {
            attempts.count = attempts.count.saturating_sub(1);
        }
    }

    /// Seconds until the period of a subject ends, if it has used its attempts up.
    fn wait(&self, subject: &Subject, max: u32, now: Timestamp) -> Option<u32> {
        let attempts = self.attempts.get(subject)?;
        let left_ms = PERIOD_MS - now.ms_since(attempts.since);
        (attempts.count >= max && left_ms > 0).then(|| u32::try_from(left_ms.div_euclid(1_000) + 1).unwrap_or(u32::MAX))
    }

    fn evict_old(&mut self, now: Timestamp) {
        if self.attempts.len() + 2 <= MAX_COUNTED {
            return;
        }
        self.attempts.retain(|_, attempts| now.ms_since(attempts.since) < PERIOD_MS);
        if self.attempts.len() + 2 > MAX_COUNTED {
            let mut times: Vec<Timestamp> = self.attempts.values().map(|attempts| attempts.since).collect();
            times.sort_unstable();
            let median = times[times.len() / 2];
            self.attempts.retain(|_, attempts| attempts.since > median);
        }
    }
}

/// The network that counts as one address.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            v6.to_ipv4_mapped().map_or(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)), IpAddr::V4)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp(0).plus_ms(ms)
    }

    #[test]
    fn name_is_limited_from_all_addresses_together() {
        let mut limiter = SignInLimiter::default();
        for n in 0..PER_NAME {
            assert_eq!(limiter.begin(address(&format!("192.0.2.{n}")), Some("Ann"), at(0)), Ok(()));
        }
        assert_eq!(limiter.begin(address("198.51.100.1"), Some("ann"), at(60_000)), Err(241));
        assert_eq!(limiter.begin(address("198.51.100.1"), Some("bob"), at(60_000)), Ok(()));
        assert_eq!(limiter.begin(address("198.51.100.1"), Some("ann"), at(PERIOD_MS)), Ok(()), "the period is over");
    }

    #[test]
    fn address_is_limited_over_all_names() {
        let mut limiter = SignInLimiter::default();
        for n in 0..PER_ADDRESS {
            assert_eq!(limiter.begin(address(&format!("2001:db8:0:1::{n:x}")), Some(&format!("name {n}")), at(0)), Ok(()));
        }
        assert!(limiter.begin(address("2001:db8:0:1:ffff::1"), Some("another"), at(0)).is_err(), "of the same /64");
        assert_eq!(limiter.begin(address("2001:db8:0:2::1"), Some("another"), at(0)), Ok(()));
        assert_eq!(limiter.begin(None, Some("unknown address"), at(0)), Ok(()));
    }

    #[test]
    fn successful_sign_in_resets_the_attempts() {
        let mut limiter = SignInLimiter::default();
        for _ in 0..10 * PER_ADDRESS {
            assert_eq!(limiter.begin(address("192.0.2.1"), Some("ann"), at(0)), Ok(()));
            limiter.succeeded(address("192.0.2.1"), Some("ann"));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut limiter = SignInLimiter::default();
        for n in 0..MAX_COUNTED * 2 {
            limiter.begin(None, Some(&n.to_string()), at(i64::try_from(n).unwrap() / 1_000)).unwrap();
            assert!(limiter.attempts.len() <= MAX_COUNTED);
        }
    }
}
