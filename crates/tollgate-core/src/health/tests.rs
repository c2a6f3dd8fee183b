//! Every threshold of the health rules, and their invariants.

use proptest::prelude::*;

use super::{rules::MAX_RETRY_AFTER_MS, *};

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn after(ms: i64) -> Timestamp {
    NOW.plus_ms(ms)
}

fn after_observation(health: AccountHealth, what: Observation, now: Timestamp) -> AccountHealth {
    observe(&health, &what, CoolingRules::default(), now)
}

/// The remaining wait of an account, in milliseconds.
fn wait_after(health: AccountHealth, now: Timestamp) -> Option<i64> {
    match health.availability(now) {
        Availability::Cooling { until, .. } | Availability::Resting { until: Some(until), .. } => Some(until.ms_since(now)),
        Availability::Usable | Availability::ProbeDue | Availability::Resting { until: None, .. } => None,
    }
}

fn fresh() -> AccountHealth {
    AccountHealth::default()
}

const SUCCESS: Observation = Observation::Success { latency: Some(LatencySample::FirstToken(800)) };

#[test]
fn connect_failure_cools_five_seconds_at_once() {
    let health = after_observation(fresh(), Observation::ConnectFailure, NOW);
    assert_eq!(health.availability(NOW), Availability::Cooling { until: after(5_000), why: CoolingReason::ConnectFailure });
}

#[test]
fn third_consecutive_failure_cools_ten_seconds() {
    for what in [Observation::ServerError, Observation::Timeout, Observation::BadAnswer] {
        let two = after_observation(after_observation(fresh(), what, NOW), what, NOW);
        assert_eq!(two.availability(NOW), Availability::Usable);
        assert_eq!(wait_after(after_observation(two, what, NOW), NOW), Some(10_000), "{what:?}");
    }
}

fn after_rules(health: AccountHealth, what: Observation, rules: CoolingRules) -> AccountHealth {
    observe(&health, &what, rules, NOW)
}

#[test]
fn channel_sets_the_number_of_failures_and_the_first_wait() {
    let rules = CoolingRules { failures: 2, first_wait_ms: 60_000, ..CoolingRules::default() };
    let one = after_rules(fresh(), Observation::ServerError, rules);
    assert_eq!(one.availability(NOW), Availability::Usable);
    assert_eq!(wait_after(after_rules(one, Observation::ServerError, rules), NOW), Some(60_000));
    assert_eq!(wait_after(after_rules(fresh(), Observation::ConnectFailure, rules), NOW), Some(30_000));
    assert_eq!(wait_after(after_rules(fresh(), Observation::RateLimited { until: None }, rules), NOW), Some(60_000));
    let longest = CoolingRules { failures: 1, first_wait_ms: 300_000, ..rules };
    let mut health = after_rules(fresh(), Observation::Timeout, longest);
    for _ in 0..3 {
        assert_eq!(wait_after(health, NOW), Some(300_000), "the wait doubles up to five minutes");
        health = observe(&health, &Observation::Timeout, longest, after(300_000));
        assert_eq!(wait_after(health, after(300_000)), Some(300_000));
        health.state = HealthState::Cooling { until: after(300_000), why: CoolingReason::Timeout, since: NOW };
    }
    let spec = crate::ChannelSpec { failures_to_cool: 0, cool_down_s: 0, ..crate::ChannelSpec::default() };
    assert_eq!((spec.cooling_rules().failures, spec.cooling_rules().first_wait_ms), (1, 1_000), "never none");
}

#[test]
fn pausing_status_cools_at_once() {
    let paused = |until| after_observation(fresh(), Observation::PausingStatus { until }, NOW);
    let cooling = |ms| Availability::Cooling { until: after(ms), why: CoolingReason::PausingStatus };
    assert_eq!(paused(None).availability(NOW), cooling(10_000));
    assert_eq!(paused(Some(after(90_000))).availability(NOW), cooling(90_000));
    assert_eq!(paused(Some(after(-1))).availability(NOW), cooling(10_000));
    assert_eq!(wait_after(paused(Some(after(9 * 3_600_000))), NOW), Some(MAX_RETRY_AFTER_MS));
    let off = CoolingRules { on: false, ..CoolingRules::default() };
    assert_eq!(after_rules(fresh(), Observation::PausingStatus { until: None }, off).availability(NOW), Availability::Usable);
}

#[test]
fn success_resets_consecutive_failures() {
    let mut health = fresh();
    for what in [Observation::ServerError, Observation::ServerError, SUCCESS, Observation::ServerError, Observation::ServerError] {
        health = after_observation(health, what, NOW);
    }
    assert_eq!(health.availability(NOW), Availability::Usable);
}

#[test]
fn half_of_ten_failing_within_thirty_seconds_cools() {
    let mut health = fresh();
    for i in 0..9 {
        let what = if i % 2 == 0 { Observation::ServerError } else { SUCCESS };
        health = after_observation(health, what, after(i * 1_000));
        assert_eq!(health.availability(after(i * 1_000)), Availability::Usable, "after {i}");
    }
    health = after_observation(health, SUCCESS, after(9_500));
    health = after_observation(health, Observation::ServerError, after(9_900));
    assert_eq!(wait_after(health, after(9_900)), Some(10_000));
}

#[test]
fn failures_older_than_thirty_seconds_are_forgotten() {
    let mut health = fresh();
    for i in 0..10 {
        let what = if i % 2 == 0 { Observation::ServerError } else { SUCCESS };
        health = after_observation(health, what, after(i));
    }
    let health = after_observation(health, Observation::ServerError, after(40_000));
    assert_eq!(health.availability(after(40_000)), Availability::Usable);
}

#[test]
fn waits_double_up_to_five_minutes_and_a_success_resets_them() {
    let mut health = fresh();
    let mut now = NOW;
    for expected in [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000] {
        health = after_observation(health, Observation::ConnectFailure, now);
        assert_eq!(wait_after(health, now), Some(expected));
        now = now.plus_ms(expected);
        health = start_probe(&health, now).expect("the cooling is over");
    }
    health = after_observation(health, SUCCESS, now);
    assert_eq!(health.availability(now), Availability::Usable);
    assert_eq!(wait_after(after_observation(health, Observation::ConnectFailure, now), now), Some(5_000));
}

#[test]
fn failures_in_flight_do_not_prolong_cooling() {
    let cooling = after_observation(fresh(), Observation::ConnectFailure, NOW);
    let again =
        after_observation(after_observation(cooling, Observation::ConnectFailure, after(10)), Observation::ServerError, after(20));
    assert_eq!(again.availability(after(20)), Availability::Cooling { until: after(5_000), why: CoolingReason::ConnectFailure });
    assert_eq!(again.coolings, 1);
}

#[test]
fn rate_limit_cools_for_the_requested_time_within_bounds() {
    let check = |until, expected| {
        let health = after_observation(fresh(), Observation::RateLimited { until }, NOW);
        assert_eq!(wait_after(health, NOW), Some(expected));
    };
    check(Some(after(17_000)), 17_000);
    check(Some(after(7_200_000)), 3_600_000);
    check(Some(after(-60_000)), 1_000);
    check(Some(NOW), 1_000);
    check(None, 10_000);
    check(Some(Timestamp(i64::MAX)), 3_600_000);
}

#[test]
fn overload_cools_for_the_requested_time_and_counts_as_failure() {
    let overloaded = |until| after_observation(fresh(), Observation::Overloaded { until }, NOW);
    for (until, wait) in [(after(40_000), Some(40_000)), (after(7_200_000), Some(3_600_000)), (after(-1), None)] {
        let health = overloaded(until);
        assert_eq!((wait_after(health, NOW), health.failures), (wait, 1));
    }
    let why = CoolingReason::ServerError;
    let health = overloaded(after(40_000));
    assert_eq!(health.availability(NOW), Availability::Cooling { until: after(40_000), why }, "a transient failure");
    assert_eq!(after_observation(health, SUCCESS, NOW).availability(NOW), Availability::Usable);
    // It neither shortens a longer wait nor ends a rest.
    assert_eq!(wait_after(after_observation(health, Observation::Overloaded { until: after(5_000) }, NOW), NOW), Some(40_000));
    let spent = after_observation(fresh(), Observation::QuotaSpent { until: Some(after(90_000)) }, NOW);
    let still = after_observation(spent, Observation::Overloaded { until: after(900_000) }, NOW);
    assert_eq!(still.availability(NOW), Availability::Resting { until: Some(after(90_000)), why: RestingReason::QuotaSpent });
}

#[test]
fn rate_limits_without_retry_time_back_off() {
    let first = after_observation(fresh(), Observation::RateLimited { until: None }, NOW);
    let second =
        after_observation(start_probe(&first, after(10_000)).unwrap(), Observation::RateLimited { until: None }, after(10_000));
    assert_eq!(wait_after(second, after(10_000)), Some(20_000));
}

#[test]
fn answer_in_flight_does_not_lift_a_rate_limit() {
    let limited = after_observation(fresh(), Observation::RateLimited { until: Some(after(17_000)) }, NOW);
    assert_eq!(wait_after(after_observation(limited, SUCCESS, after(1)), NOW), Some(17_000));
}

#[test]
fn later_of_two_rate_limits_applies() {
    let long = after_observation(fresh(), Observation::RateLimited { until: Some(after(60_000)) }, NOW);
    assert_eq!(wait_after(after_observation(long, Observation::RateLimited { until: Some(after(5_000)) }, NOW), NOW), Some(60_000));
    let short = after_observation(fresh(), Observation::RateLimited { until: Some(after(5_000)) }, NOW);
    assert_eq!(
        wait_after(after_observation(short, Observation::RateLimited { until: Some(after(60_000)) }, NOW), NOW),
        Some(60_000)
    );
}

#[test]
fn exhausted_quota_rests_until_its_window_ends_or_an_hour() {
    let check = |until, expected| {
        let health = after_observation(fresh(), Observation::QuotaSpent { until }, NOW);
        assert_eq!(
            health.availability(NOW),
            Availability::Resting { until: Some(after(expected)), why: RestingReason::QuotaSpent }
        );
    };
    check(Some(after(86_400_000)), 86_400_000);
    check(Some(after(86_400_001)), 86_400_000);
    check(None, 3_600_000);
    check(Some(after(-1)), 3_600_000);
}

#[test]
fn refused_credentials_rest_until_a_test_passes() {
    let refused = after_observation(fresh(), Observation::Refused, NOW);
    let year = after(31_536_000_000);
    let still = Availability::Resting { until: None, why: RestingReason::Refused };
    assert_eq!(refused.availability(year), still);
    for what in
        [SUCCESS, Observation::ServerError, Observation::RateLimited { until: None }, Observation::QuotaSpent { until: None }]
    {
        assert_eq!(after_observation(refused, what, NOW).availability(year), still, "{what:?}");
    }
    assert_eq!(after_observation(refused, Observation::TestPassed, NOW).availability(NOW), Availability::Usable);
}

#[test]
fn after_cooling_one_request_is_the_probe() {
    let cooling = after_observation(fresh(), Observation::ConnectFailure, NOW);
    assert_eq!(start_probe(&cooling, after(4_999)), None);
    assert_eq!(cooling.availability(after(5_000)), Availability::ProbeDue);
    let probing = start_probe(&cooling, after(5_000)).unwrap();
    assert_eq!(start_probe(&probing, after(5_001)), None, "a second request is not a probe");
    assert!(matches!(probing.availability(after(5_001)), Availability::Cooling { why: CoolingReason::ConnectFailure, .. }));
    assert_eq!(after_observation(probing, SUCCESS, after(5_002)).availability(after(5_002)), Availability::Usable);
}

#[test]
fn failed_probe_cools_again() {
    let mut health = fresh();
    for _ in 0..3 {
        health = after_observation(health, Observation::ServerError, NOW);
    }
    let probing = start_probe(&health, after(10_000)).unwrap();
    assert_eq!(wait_after(after_observation(probing, Observation::ServerError, after(10_000)), after(10_000)), Some(20_000));
}

#[test]
fn lost_probe_is_replaced_after_a_minute() {
    let probing = start_probe(&after_observation(fresh(), Observation::ConnectFailure, NOW), after(5_000)).unwrap();
    assert_eq!(start_probe(&probing, after(64_999)), None);
    assert!(start_probe(&probing, after(65_000)).is_some());
}

#[test]
fn abandoned_probe_is_repeated_by_the_next_request() {
    let probing = start_probe(&after_observation(fresh(), Observation::ConnectFailure, NOW), after(5_000)).unwrap();
    assert_eq!(after_observation(probing, Observation::Abandoned, after(5_100)).availability(after(5_100)), Availability::ProbeDue);
    let rested = after_observation(fresh(), Observation::QuotaSpent { until: Some(after(1_000)) }, NOW);
    let probing = start_probe(&rested, after(1_000)).unwrap();
    assert_eq!(after_observation(probing, Observation::Abandoned, after(1_100)).availability(after(1_100)), Availability::ProbeDue);
}

#[test]
fn refused_request_does_not_count_and_completes_a_probe() {
    let mut health = fresh();
    for _ in 0..50 {
        health = after_observation(health, Observation::RequestRefused, NOW);
    }
    assert_eq!(health, fresh());
    let probing = start_probe(&after_observation(fresh(), Observation::ConnectFailure, NOW), after(5_000)).unwrap();
    assert_eq!(
        after_observation(probing, Observation::RequestRefused, after(5_001)).availability(after(5_001)),
        Availability::Usable
    );
}

#[test]
fn with_cooling_disabled_accounts_stay_usable_and_averages_are_updated() {
    let mut health = fresh();
    for what in [
        Observation::ConnectFailure,
        Observation::ServerError,
        Observation::RateLimited { until: None },
        Observation::QuotaSpent { until: None },
        Observation::Refused,
    ] {
        health = observe(&health, &what, CoolingRules { on: false, ..CoolingRules::default() }, NOW);
        assert_eq!(health.availability(NOW), Availability::Usable, "{what:?}");
    }
    assert!(health.error_average > 0);
}

#[test]
fn timeout_among_server_errors_makes_the_series_non_transient() {
    let mut health = fresh();
    for what in [Observation::ServerError, Observation::Timeout, Observation::ServerError] {
        health = after_observation(health, what, NOW);
    }
    assert!(matches!(health.state, HealthState::Cooling { why: CoolingReason::Timeout, .. }));
}

#[test]
fn averages_follow_observations() {
    let mut health = after_observation(fresh(), SUCCESS, NOW);
    assert_eq!((health.first_token_average_us, health.share()), (800, 1_000));
    health = after_observation(health, Observation::Success { latency: Some(LatencySample::FirstToken(1_600)) }, NOW);
    assert_eq!((health.first_token_average_us, health.whole_answer_average_us), (900, 0));
    for us in [80_000, 160_000] {
        health = after_observation(health, Observation::Success { latency: Some(LatencySample::WholeAnswer(us)) }, NOW);
    }
    assert_eq!((health.first_token_average_us, health.whole_answer_average_us), (900, 90_000), "each kind by itself");
    let tested = after_observation(health, Observation::TestPassed, NOW);
    assert_eq!((tested.first_token_average_us, tested.whole_answer_average_us), (900, 90_000));
    for _ in 0..40 {
        health = after_observation(health, Observation::ServerError, NOW);
    }
    assert_eq!(health.share(), 50);
}

fn observation() -> impl Strategy<Value = Observation> {
    let time = proptest::option::of((-4_000_000_000i64..40_000_000_000).prop_map(|us| Timestamp(NOW.0 + us)));
    prop_oneof![
        proptest::option::of(any::<u64>()).prop_map(|us| Observation::Success {
            latency: us.map(|us| if us % 2 == 0 { LatencySample::FirstToken(us) } else { LatencySample::WholeAnswer(us) })
        }),
        Just(Observation::ConnectFailure),
        Just(Observation::ServerError),
        (-10_000_000i64..10_000_000).prop_map(|ms| Observation::Overloaded { until: after(ms) }),
        Just(Observation::Timeout),
        Just(Observation::BadAnswer),
        time.clone().prop_map(|until| Observation::RateLimited { until }),
        time.prop_map(|until| Observation::QuotaSpent { until }),
        Just(Observation::Refused),
        Just(Observation::RequestRefused),
        Just(Observation::Abandoned),
        Just(Observation::TestPassed),
    ]
}

/// Any history, with clock steps in both directions, and probes where due.
fn history() -> impl Strategy<Value = Vec<(Observation, i64, bool)>> {
    proptest::collection::vec((observation(), -20_000i64..400_000, any::<bool>()), 0..60)
}

proptest! {
    #[test]
    fn waits_are_bounded_and_health_survives_serialisation(history in history()) {
        let mut health = fresh();
        let mut now = NOW;
        for (what, step, probe) in history {
            now = now.plus_ms(step);
            if probe && let Some(probing) = start_probe(&health, now) {
                health = probing;
            }
            health = observe(&health, &what, CoolingRules::default(), now);
            if let Some(wait) = wait_after(health, now) {
                prop_assert!(wait >= 0);
                if matches!(health.availability(now), Availability::Cooling { .. }) {
                    // A clock stepping back can lengthen a wait by the step.
                    prop_assert!(wait <= MAX_RETRY_AFTER_MS + 20_000 * 60);
                }
            }
            let stored = serde_json::to_string(&health).unwrap();
            prop_assert_eq!(serde_json::from_str::<AccountHealth>(&stored).unwrap(), health);
        }
        let well = observe(&health, &Observation::TestPassed, CoolingRules::default(), now);
        prop_assert_eq!(well.availability(now), Availability::Usable);
    }

    #[test]
    fn success_always_resets_failures(failures in 1usize..30) {
        let mut health = fresh();
        let mut now = NOW;
        for _ in 0..failures {
            health = after_observation(health, Observation::ServerError, now);
            now = now.plus_ms(400_000);
        }
        health = after_observation(health, SUCCESS, now);
        prop_assert_eq!((health.failures, health.coolings, health.availability(now)), (0, 0, Availability::Usable));
    }
}
