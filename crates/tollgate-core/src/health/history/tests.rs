//! Transitions follow the conditions of accounts, one row each.

use std::sync::Arc;

use super::*;
use crate::{
    AccountSpec, ChannelSpec,
    samples::{NOW, account, channel},
};

fn at(seconds: i64) -> Timestamp {
    NOW.plus_ms(seconds * 1_000)
}

fn cooling(since: i64, until: i64) -> HealthState {
    HealthState::Cooling { since: at(since), until: at(until), why: CoolingReason::RateLimited }
}

/// A channel with two accounts and its history.
struct Recorded {
    channel: Channel,
    history: HealthHistory,
}

impl Recorded {
    fn new() -> Self {
        let accounts = (0..2).map(|n| Arc::new(account("c", n))).collect();
        Self { channel: Channel { accounts, ..channel("c", &["m"]) }, history: HealthHistory::default() }
    }

    fn set(&mut self, n: usize, health: HealthState, now: i64) -> Vec<HealthTransition> {
        let account = Arc::clone(&self.channel.accounts[n]);
        let condition = account_condition(&self.channel, &account, &health, at(now));
        self.history.record(&self.channel, &account, condition, TransitionCause::Request, at(now))
    }

    fn channel(&mut self, now: i64) -> Vec<HealthTransition> {
        self.history.record_channel(&self.channel, ChannelBudget::Left, TransitionCause::Request, at(now))
    }

    fn standing(&self, n: usize, now: i64) -> AccountStanding {
        self.history.standing(self.channel.id, self.channel.accounts[n].id, at(now))
    }
}

/// State, beginning, end by itself and end, in seconds.
fn shown(rows: &[HealthTransition]) -> Vec<(&'static str, i64, Option<i64>, Option<i64>)> {
    let seconds = |time: Timestamp| time.ms_since(NOW) / 1_000;
    let show = |row: &HealthTransition| {
        let Impairment { state, since, until, .. } = row.impairment;
        (state.as_str(), seconds(since), until.map(seconds), row.ended_at.map(seconds))
    };
    rows.iter().map(show).collect()
}

#[test]
fn state_of_an_account_has_one_row_that_is_closed_when_it_ends() {
    let mut recorded = Recorded::new();
    assert_eq!(shown(&recorded.set(0, HealthState::Usable, 0)), []);
    assert_eq!(shown(&recorded.set(0, cooling(1, 11), 1)), [("cooling", 1, Some(11), None)]);
    assert_eq!(shown(&recorded.set(0, cooling(1, 11), 2)), [], "nothing changed");
    assert_eq!(shown(&recorded.set(0, cooling(3, 20), 3)), [("cooling", 1, Some(20), None)], "it cools for longer");
    assert_eq!(shown(&recorded.set(0, HealthState::Probing { since: at(21), why: None }, 21)), []);
    assert_eq!(shown(&recorded.set(0, HealthState::Usable, 22)), [("cooling", 1, Some(20), Some(22))]);
    assert_eq!(recorded.standing(0, 30), AccountStanding::Usable { since: Some(at(22)) });
    assert_eq!(recorded.standing(1, 30), AccountStanding::Usable { since: None });
}

#[test]
fn consecutive_outage_states_share_one_beginning() {
    let mut recorded = Recorded::new();
    recorded.set(0, cooling(1, 11), 1);
    assert_eq!(recorded.standing(0, 5), AccountStanding::Out { since: at(1), until: Some(at(11)) });
    assert_eq!(recorded.standing(0, 12), AccountStanding::Due { since: at(1) });
    let rows = recorded.set(0, cooling(30, 50), 30);
    assert_eq!(shown(&rows), [("cooling", 1, Some(11), Some(30)), ("cooling", 30, Some(50), None)], "its probe failed");
    let refused = HealthState::Resting { why: RestingReason::Refused, since: at(40), until: None };
    let rows = recorded.set(0, refused, 40);
    assert_eq!(shown(&rows), [("cooling", 30, Some(50), Some(40)), ("resting", 40, None, None)]);
    assert_eq!(recorded.standing(0, 60), AccountStanding::Out { since: at(1), until: None });
    // Restored from the rows, as after a restart.
    let restored = HealthHistory::restore(rows);
    let standing = restored.standing(recorded.channel.id, recorded.channel.accounts[0].id, at(60));
    assert_eq!(standing, AccountStanding::Out { since: at(40), until: None });
}

#[test]
fn transitions_at_the_same_moment_get_separate_rows() {
    let mut recorded = Recorded::new();
    recorded.set(0, cooling(1, 11), 1);
    let refused = HealthState::Resting { why: RestingReason::Refused, since: at(0), until: None };
    let rows = recorded.set(0, refused, 1);
    assert!(rows[1].impairment.since > rows[0].impairment.since && rows[0].ended_at >= Some(rows[0].impairment.since), "{rows:?}");
}

#[test]
fn channel_state_is_derived_from_its_accounts() {
    let mut recorded = Recorded::new();
    assert_eq!(shown(&recorded.channel(0)), []);
    recorded.set(0, cooling(1, 11), 1);
    assert_eq!(shown(&recorded.channel(1)), [("degraded", 1, Some(11), None)]);
    recorded.set(1, cooling(2, 22), 2);
    assert_eq!(shown(&recorded.channel(2)), [("degraded", 1, Some(11), Some(2)), ("unavailable", 2, Some(11), None)]);
    recorded.set(0, HealthState::Usable, 12);
    assert_eq!(shown(&recorded.channel(12)), [("unavailable", 2, Some(11), Some(12)), ("degraded", 12, Some(22), None)]);
    recorded.set(1, HealthState::Usable, 23);
    assert_eq!(shown(&recorded.channel(23)), [("degraded", 12, Some(22), Some(23))]);
    let budget = ChannelBudget::Spent { until: Some(at(60)) };
    let spent = recorded.history.record_channel(&recorded.channel, budget, TransitionCause::Operator, at(24));
    assert_eq!(shown(&spent), [("unavailable", 24, Some(60), None)]);
    assert_eq!(recorded.standing(0, 25), AccountStanding::Out { since: at(24), until: Some(at(60)) });
}

#[test]
fn channel_recovers_when_the_rests_of_its_accounts_are_over_without_a_request() {
    let mut recorded = Recorded::new();
    recorded.set(0, cooling(1, 11), 1);
    recorded.set(1, cooling(1, 21), 1);
    assert_eq!(shown(&recorded.channel(1)), [("unavailable", 1, Some(11), None)]);
    assert_eq!(shown(&recorded.channel(12)), [("unavailable", 1, Some(11), Some(12)), ("degraded", 12, Some(21), None)]);
    assert_eq!(shown(&recorded.channel(21)), [("degraded", 12, Some(21), Some(21))]);
    for second in 22..25 {
        assert_eq!(shown(&recorded.channel(second)), [], "nothing changes any more");
    }
}

#[test]
fn accounts_that_are_switched_off_do_not_impair_their_channel() {
    let mut recorded = Recorded::new();
    let off = AccountSpec { on: false, ..recorded.channel.accounts[0].spec.clone() };
    recorded.channel.accounts[0] = Arc::new(Account { spec: off, ..account("c", 0) });
    assert_eq!(shown(&recorded.set(0, cooling(1, 11), 1)), [("off", 1, None, None)]);
    assert_eq!(shown(&recorded.channel(1)), []);
    assert_eq!(recorded.standing(0, 2), AccountStanding::Off { since: Some(at(1)) });
    recorded.set(1, cooling(2, 12), 2);
    assert_eq!(shown(&recorded.channel(2)), [("unavailable", 2, Some(12), None)]);
    let gone = recorded.history.retain(|_, account| account.is_none(), at(5));
    assert_eq!(gone.len(), 2, "removed accounts end their transitions");
    assert!(gone.iter().all(|row| row.ended_at == Some(at(5))));
}

#[test]
fn channel_that_ignores_health_is_usable() {
    let mut recorded = Recorded::new();
    recorded.channel.spec = ChannelSpec { cooling: false, ..recorded.channel.spec };
    assert_eq!(shown(&recorded.set(0, cooling(1, 11), 1)), []);
}

#[test]
fn reason_state_and_cause_names_round_trip() {
    for reason in HealthReason::ALL {
        assert_eq!(HealthReason::parse(reason.as_str()), Some(reason));
    }
    for state in ImpairedState::ALL {
        assert_eq!(ImpairedState::parse(state.as_str()), Some(state));
    }
    for cause in TransitionCause::ALL {
        assert_eq!(TransitionCause::parse(cause.as_str()), Some(cause));
    }
    assert_eq!(HealthReason::parse("none"), None);
}
