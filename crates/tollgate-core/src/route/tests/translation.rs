//! When channels of another protocol are checked for translatability, and the effect.

use super::*;

/// A chat model on channels, some of another protocol.
fn case(channels: Vec<Channel>) -> Case {
    Case { translates: true, ..Case::over(channels) }
}

fn at(mut channel: Channel, priority: i32) -> Channel {
    channel.spec.priority = priority;
    channel
}

fn make_untranslatable(case: &mut Case, channel: &str) {
    case.untranslatable.insert(channel.to_owned(), vec!["logit_bias".to_owned()]);
}

#[test]
fn plan_starting_with_the_callers_protocol_checks_no_channel() {
    let mut case =
        case(vec![at(channel("a", &["m"]), 0), at(foreign("b"), 1), at(channel("c", &["m"]), 2), at(channel("d", &["m"]), 3)]);
    make_untranslatable(&mut case, "b");
    assert_eq!((case.planned(), case.translation_checks.get()), (vec!["a/0".to_owned(), "b/0".to_owned(), "c/0".to_owned()], 0));
    case.history.record_attempt(&case.run().unwrap().first);
    assert_eq!(
        (case.planned(), case.translation_checks.get()),
        (vec!["c/0".to_owned(), "d/0".to_owned()], 1),
        "checked when a plan reaches it"
    );
}

#[test]
fn plan_starting_with_another_protocol_checks_and_skips_its_channels() {
    let mut case =
        case(vec![at(foreign("a"), 0), at(foreign("b"), 1), at(channel("c", &["m"]), 2), at(foreign("d"), 3), at(foreign("e"), 4)]);
    assert_eq!((case.planned(), case.translation_checks.get()), (vec!["a/0".to_owned(), "b/0".to_owned(), "c/0".to_owned()], 2));
    make_untranslatable(&mut case, "b");
    case.translation_checks.set(0);
    assert_eq!((case.planned(), case.translation_checks.get()), (vec!["a/0".to_owned(), "c/0".to_owned(), "d/0".to_owned()], 3));
    make_untranslatable(&mut case, "a");
    let plan = case.run().unwrap();
    assert_eq!(plan.first.channel.spec.name, "c");
    let codes: Vec<_> = plan.excluded.iter().map(|it| (it.channel.spec.name.as_str(), it.why.code())).collect();
    assert_eq!(codes, [("a", "cannot_translate"), ("b", "cannot_translate")]);
}

#[test]
fn untranslatable_channel_excludes_all_its_accounts() {
    let mut case = case(vec![with_accounts(foreign("a"), 5), at(channel("b", &["m"]), 1)]);
    make_untranslatable(&mut case, "a");
    assert_eq!((case.planned(), case.translation_checks.get()), (vec!["b/0".to_owned()], 1));
}

#[test]
fn untranslatable_takes_precedence_over_busy_and_cooling() {
    let mut bounded = foreign("a");
    Arc::make_mut(&mut bounded.accounts[0]).spec.concurrency = 1;
    let mut case = case(vec![bounded]).load("a/0", CapacityLoad::AtConcurrency);
    assert_eq!(case.fails().busy_accounts().len(), 1, "worth waiting for");
    make_untranslatable(&mut case, "a");
    let no = case.fails();
    assert_eq!((no.busy_accounts().len(), no.fewest_unsupported_fields()), (0, Some(vec!["logit_bias".to_owned()])));
    let mut case = super::translation::case(vec![foreign("a")]).cooling("a/0", CoolingReason::RateLimited, 4);
    assert_eq!(case.fails().cause(), NoRouteCause::UpstreamRateLimited);
    make_untranslatable(&mut case, "a");
    assert_eq!(case.fails().fewest_unsupported_fields(), Some(vec!["logit_bias".to_owned()]));
}

#[test]
fn untranslatable_channels_do_not_change_other_shares() {
    let mut case = case(vec![foreign("a"), foreign("b"), channel("c", &["m"])]);
    make_untranslatable(&mut case, "a");
    let mut firsts = HashMap::<String, u32>::new();
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(seed >> 32).unwrap()
    };
    for _ in 0..2_000 {
        *firsts.entry(case.run_with(&mut random).unwrap().first.channel.spec.name.clone()).or_default() += 1;
    }
    let (b, c) = (firsts["b"], firsts["c"]);
    assert!(firsts.len() == 2 && b.abs_diff(c) < 200, "{firsts:?}");
}
