//! Whether an offer can be used now, and since when, derived from the standings of the accounts that serve it.

use crate::{HealthState, Timestamp};

/// Whether requests may use an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountStanding {
    /// `since`: the end of its last outage; `None`: it never had one.
    Usable { since: Option<Timestamp> },
    /// The last state has ended, but no request has yet shown whether the account works. `since` is the beginning of the outage.
    Due { since: Timestamp },
    /// `until`: when the next request may try it; `None`: it ends only with an event, such as a passed test.
    Out { since: Timestamp, until: Option<Timestamp> },
    /// Switched off by an operator.
    Off { since: Option<Timestamp> },
}

impl AccountStanding {
    /// The standing of an account in this state, without a recorded history.
    pub fn of(state: &HealthState, now: Timestamp) -> Self {
        let (since, until) = match *state {
            HealthState::Usable => return Self::Usable { since: None },
            HealthState::Probing { since, .. } => (since, Some(since)),
            HealthState::Cooling { since, until, .. } => (since, Some(until)),
            HealthState::Resting { since, until, .. } => (since, until),
        };
        if until.is_some_and(|until| until <= now) { Self::Due { since } } else { Self::Out { since, until } }
    }
}

/// The share of an offer's accounts that can be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OfferCondition {
    /// More than half of the accounts can be used.
    Available,
    /// At most half of them can be used, or all accounts that may be tried have yet to show that they work.
    Degraded,
    /// No account can be used.
    Unavailable,
}

impl OfferCondition {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The state of a model in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferState {
    pub condition: OfferCondition,
    /// `None`: since before the recorded history.
    pub since: Option<Timestamp>,
    /// When the first account of an unavailable offer may be tried again, if that is known.
    pub until: Option<Timestamp>,
}

impl OfferState {
    /// The state of an offer that is served by accounts in these standings. Accounts that are switched off count only if all are.
    pub fn of(standings: &[AccountStanding]) -> Self {
        let is_on = |standing: &&AccountStanding| !matches!(standing, AccountStanding::Off { .. });
        let on = standings.iter().filter(is_on).count();
        let (mut usable, mut due, mut out, mut ends) = (Vec::new(), 0_usize, Vec::new(), Vec::new());
        for standing in standings {
            match *standing {
                AccountStanding::Usable { since } => usable.push(since),
                AccountStanding::Due { since } => {
                    due += 1;
                    out.push(since);
                }
                AccountStanding::Out { since, until } => {
                    out.push(since);
                    ends.extend(until);
                }
                AccountStanding::Off { since } if on == 0 => out.extend(since),
                AccountStanding::Off { .. } => {}
            }
        }
        if usable.len() * 2 > on {
            usable.sort_unstable();
            // The offer became available when the account that completes the majority became usable.
            let since = usable.get(on / 2).copied().flatten();
            return Self { condition: OfferCondition::Available, since, until: None };
        }
        out.sort_unstable();
        if usable.is_empty() && due == 0 {
            let until = ends.into_iter().min();
            return Self { condition: OfferCondition::Unavailable, since: out.last().copied(), until };
        }
        // The offer became degraded when half of the accounts were out.
        let since = out.get(on.div_ceil(2).saturating_sub(1)).copied();
        Self { condition: OfferCondition::Degraded, since, until: None }
    }
}

/// Fewer requests than this do not change the state of an offer.
const MIN_REQUESTS: u64 = 20;
/// Percentages of failed requests from which on an offer is degraded, and unavailable.
const DEGRADED_PERCENT: u64 = 5;
const UNAVAILABLE_PERCENT: u64 = 90;

impl OfferState {
    /// The state corrected by its latest requests, which may fail although accounts can be used. `since` is the start of the period of
    /// these requests. Requests whose caller was at fault are not counted.
    #[must_use]
    pub fn with_requests(self, answered: u64, failed: u64, since: Timestamp) -> Self {
        let all = answered.saturating_add(failed);
        let fails = |percent: u64| u128::from(failed) * 100 >= u128::from(all) * u128::from(percent);
        let condition = match self.condition {
            _ if all < MIN_REQUESTS => return self,
            OfferCondition::Available | OfferCondition::Degraded if fails(UNAVAILABLE_PERCENT) => OfferCondition::Unavailable,
            OfferCondition::Available if fails(DEGRADED_PERCENT) => OfferCondition::Degraded,
            OfferCondition::Available | OfferCondition::Degraded | OfferCondition::Unavailable => return self,
        };
        Self { condition, since: Some(since), until: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::NOW;

    fn at(seconds: i64) -> Timestamp {
        NOW.plus_ms(seconds * 1_000)
    }

    fn usable(since: Option<i64>) -> AccountStanding {
        AccountStanding::Usable { since: since.map(at) }
    }

    fn out(since: i64, until: Option<i64>) -> AccountStanding {
        AccountStanding::Out { since: at(since), until: until.map(at) }
    }

    fn check(standings: &[AccountStanding], condition: OfferCondition, since: Option<i64>, until: Option<i64>) {
        let expected = OfferState { condition, since: since.map(at), until: until.map(at) };
        assert_eq!(OfferState::of(standings), expected, "{standings:?}");
    }

    #[test]
    fn condition_depends_on_how_many_accounts_can_be_used() {
        use OfferCondition::{Available, Degraded, Unavailable};
        let (never, due, off) = (usable(None), AccountStanding::Due { since: at(4) }, AccountStanding::Off { since: Some(at(3)) });
        check(&[never], Available, None, None);
        check(&[never, never, out(5, None)], Available, None, None);
        check(&[never, out(5, Some(9))], Degraded, Some(5), None);
        check(&[never, out(7, None), out(5, None), out(6, None)], Degraded, Some(6), None);
        check(&[out(5, Some(20)), out(7, Some(12)), out(6, None)], Unavailable, Some(7), Some(12));
        check(&[out(5, None)], Unavailable, Some(5), None);
        check(&[due, out(9, None)], Degraded, Some(4), None);
        check(&[due], Degraded, Some(4), None);
        check(&[never, off], Available, None, None);
        check(&[off, AccountStanding::Off { since: Some(at(8)) }], Unavailable, Some(8), None);
        check(&[off, out(9, Some(20))], Unavailable, Some(9), Some(20));
        check(&[], Unavailable, None, None);
    }

    #[test]
    fn failed_requests_degrade_an_available_offer() {
        use OfferCondition::{Available, Degraded, Unavailable};
        let (available, begins) = (OfferState::of(&[usable(Some(3))]), at(60));
        let found = |state: OfferState, answered, failed| state.with_requests(answered, failed, begins);
        assert_eq!(found(available, 0, 19), available, "too few");
        assert_eq!(found(available, 96, 4), available);
        let of = |condition| OfferState { condition, since: Some(begins), until: None };
        assert_eq!(
            [found(available, 95, 5), found(available, 0, 92), found(available, 9, 91)],
            [of(Degraded), of(Unavailable), of(Unavailable)]
        );
        let degraded = OfferState::of(&[usable(None), out(5, Some(9))]);
        assert_eq!((found(degraded, 50, 50), found(degraded, 1, 99)), (degraded, of(Unavailable)));
        let unavailable = OfferState::of(&[out(5, Some(20))]);
        assert_eq!((found(unavailable, 0, 99), found(unavailable, 99, 0).condition), (unavailable, Unavailable));
        assert_eq!(available.condition, Available);
    }

    #[test]
    fn available_since_is_when_more_than_half_of_the_accounts_became_usable() {
        use OfferCondition::Available;
        check(&[usable(Some(3))], Available, Some(3), None);
        check(&[usable(Some(3)), usable(Some(9))], Available, Some(9), None);
        check(&[usable(Some(3)), usable(Some(9)), usable(None)], Available, Some(3), None);
    }
}
