//! Whether an offer can be used now, and since when: from the standings of the accounts that serve it.

use crate::{HealthState, Timestamp};

/// Whether requests may use an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountStanding {
    /// `since`: the end of its last outage; `None`: it never had one.
    Usable { since: Option<Timestamp> },
    /// Its last state has ended by itself, and no request has shown yet whether it works again. `since`: the beginning of the outage.
    Due { since: Timestamp },
    /// `until`: when the next request may try it; `None`: something has to happen first.
    Out { since: Timestamp, until: Option<Timestamp> },
    /// Switched off by an operator.
    Off { since: Option<Timestamp> },
}

impl AccountStanding {
    /// The standing of an account in this state, of which no history is known.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OfferCondition {
    /// More than half of the accounts can be used.
    Available,
    /// At most half of them can be used, or none has shown yet that it works again.
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
    /// `None`: for as long as is known.
    pub since: Option<Timestamp>,
    /// Of an unavailable offer: when the first account may be tried again, if that is known.
    pub until: Option<Timestamp>,
}

impl OfferState {
    /// The state of an offer that accounts in these standings serve. Accounts that are switched off count only if all are.
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
            // So many accounts had to be usable for more than half to be.
            let since = usable.get(on / 2).copied().flatten();
            return Self { condition: OfferCondition::Available, since, until: None };
        }
        out.sort_unstable();
        if usable.is_empty() && due == 0 {
            let until = ends.into_iter().min();
            return Self { condition: OfferCondition::Unavailable, since: out.last().copied(), until };
        }
        // Half of the accounts had to go for it.
        let since = out.get(on.div_ceil(2).saturating_sub(1)).copied();
        Self { condition: OfferCondition::Degraded, since, until: None }
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
    fn available_again_since_more_than_half_of_the_accounts_were() {
        use OfferCondition::Available;
        check(&[usable(Some(3))], Available, Some(3), None);
        check(&[usable(Some(3)), usable(Some(9))], Available, Some(9), None);
        check(&[usable(Some(3)), usable(Some(9)), usable(None)], Available, Some(3), None);
    }
}
