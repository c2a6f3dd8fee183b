//! One test per kind of exclusion, then combinations.

use super::*;
use crate::AccountSpec;
use crate::ChannelSpec;
use crate::ModelSpec;

/// Checks the exclusion of the only candidate: code, cause, and whether waiting helps.
fn check(case: &Case, code: &str, cause: NoRouteCause, retryable: bool) {
    let no_route = case.fails();
    assert_eq!(case.why().code(), code);
    assert_eq!((no_route.cause(), no_route.retryable()), (cause, retryable), "{code}");
    let trace = no_route.trace();
    assert_eq!((trace.len(), &*trace[0].code), (1, code));
}

#[test]
fn channel_without_accounts_is_none_configured() {
    check(&Case::accounts(0), "no_account", NoRouteCause::NoneConfigured, false);
}

#[test]
fn channel_that_cannot_serve_the_method_has_no_mapping() {
    let anthropic =
        Channel { spec: ChannelSpec { protocol: Protocol::Anthropic, ..channel("c", &["m"]).spec }, ..channel("c", &["m"]) };
    let case = Case {
        model: Model { spec: ModelSpec { embeddings: true, ..model("m").spec }, ..model("m") },
        summary: summary("m", Method::Embeddings),
        translates: true,
        ..Case::over(vec![anthropic])
    };
    check(&case, "no_mapping", NoRouteCause::NoneConfigured, false);
}

#[test]
fn switched_off_rows_are_disabled() {
    let off = Channel { spec: ChannelSpec { on: false, ..channel("c", &["m"]).spec }, ..channel("c", &["m"]) };
    let case = Case::over(vec![off]);
    check(&case, "disabled", NoRouteCause::Disabled, false);
    assert_eq!(case.fails().excluded[0].account, None, "the whole channel");
    let mut row = channel("c", &["m"]);
    row.accounts = vec![Arc::new(Account { spec: AccountSpec { on: false, ..account("c", 0).spec }, ..account("c", 0) })];
    let case = Case::over(vec![row]);
    check(&case, "disabled", NoRouteCause::Disabled, false);
    assert_eq!(case.fails().excluded[0].account, Some(0));
}

#[test]
fn cooling_after_bad_answer_is_cooldown() {
    let mut case = (0..2).fold(Case::accounts(2), |case, n| case.cooling(&format!("c/{n}"), CoolingReason::BadAnswer, 7_000 - n));
    // The other account was tried as the last resort.
    let first = case.run().unwrap().first;
    case.history.record_attempt(&first);
    check(&case, "cooling", NoRouteCause::Cooldown, true);
    assert_eq!(case.fails().earliest_recovery(), Some(NOW.plus_ms(7_000)));
}

#[test]
fn cooling_after_429_is_upstream_rate_limited() {
    check(&Case::accounts(1).cooling("c/0", CoolingReason::RateLimited, 1), "cooling", NoRouteCause::UpstreamRateLimited, true);
}

#[test]
fn exhausted_quota_is_upstream_quota() {
    let state = HealthState::Resting { why: RestingReason::QuotaSpent, since: NOW, until: Some(NOW.plus_ms(9)) };
    let case = Case::accounts(1).state("c/0", state);
    check(&case, "cooling", NoRouteCause::UpstreamQuota, true);
    assert_eq!(case.fails().earliest_recovery(), Some(NOW.plus_ms(9)));
}

#[test]
fn refused_credentials_are_disabled() {
    let state = HealthState::Resting { why: RestingReason::Refused, since: NOW, until: None };
    let case = Case::accounts(1).state("c/0", state);
    check(&case, "cooling", NoRouteCause::Credential, false);
    assert_eq!(case.fails().earliest_recovery(), None);
    assert_eq!(case.fails().trace()[0].detail.as_deref(), Some("refused until a test passes"));
}

#[test]
fn exhausted_channel_budget_is_upstream_quota() {
    let budget = Budget { amount: NanoUsd(1), window: Window::Day, action: BudgetAction::Block };
    let mut case = Case::over(vec![Channel {
        spec: ChannelSpec { budgets: vec![budget], ..channel("c", &["m"]).spec },
        ..channel("c", &["m"])
    }]);
    assert!(case.run().is_ok());
    case.budgets.insert("c".to_owned(), ChannelBudget::Spent { until: Some(NOW.plus_ms(5)) });
    check(&case, "budget", NoRouteCause::UpstreamQuota, true);
    assert_eq!(case.fails().earliest_recovery(), Some(NOW.plus_ms(5)));
}

#[test]
fn busy_accounts_are_concurrency() {
    let case = || Case::over(vec![bounded(channel("c", &["m"]))]);
    check(&case().load("c/0", CapacityLoad::AtConcurrency), "concurrency", NoRouteCause::Concurrency, true);
    let rate = case().load("c/0", CapacityLoad::AtRate { until: NOW.plus_ms(3) });
    check(&rate, "rate", NoRouteCause::Concurrency, true);
    assert_eq!(rate.fails().earliest_recovery(), Some(NOW.plus_ms(3)));
}

#[test]
fn full_channel_excludes_its_accounts_unless_they_have_a_reason_of_their_own() {
    let mut limited = with_accounts(channel("c", &["m"]), 2);
    limited.spec.concurrency = 1;
    let id = limited.id;
    let full = |load| {
        let mut case = Case::over(vec![limited.clone(), channel("d", &["m"])]);
        case.channel_loads.insert(id, load);
        case.cooling("c/1", CoolingReason::Timeout, 5_000).cooling("d/0", CoolingReason::Timeout, 9_000)
    };
    let busy = full(CapacityLoad::AtConcurrency).fails();
    assert_eq!((busy.cause(), busy.retryable()), (NoRouteCause::Concurrency, true));
    let names: Vec<_> = busy.busy_accounts().iter().map(|it| (it.channel.id, it.account.spec.name.clone())).collect();
    assert_eq!(names, [(id, "c/0".to_owned())], "the other account would not become usable");
    let traced: Vec<_> = busy.trace().into_iter().map(|it| (it.account.unwrap(), it.code.into_owned(), it.detail)).collect();
    assert_eq!(traced[0], ("c/0".into(), "concurrency".to_owned(), Some("limit of the channel".to_owned())));
    assert_eq!((traced[1].1.as_str(), traced[2].1.as_str()), ("cooling", "cooling"));
    let until = NOW.plus_ms(3);
    let rate = full(CapacityLoad::AtRate { until });
    assert_eq!(rate.planned().len(), 1, "a rate limit is not waited for: the last resort is tried");
    let rate = Case { channel_loads: [(id, CapacityLoad::AtRate { until })].into(), ..Case::over(vec![limited.clone()]) };
    assert_eq!((rate.fails().earliest_recovery(), rate.fails().excluded[0].why.code()), (Some(until), "rate"));
}

#[test]
fn reason_of_a_channel_that_lasts_longer_comes_before_that_of_its_account() {
    let mut limited = bounded(channel("c", &["m"]));
    limited.spec.rpm = 1;
    let id = limited.id;
    let (soon, late) = (NOW.plus_ms(3_000), NOW.plus_ms(40_000));
    for (own, of_channel, why) in [
        (CapacityLoad::AtConcurrency, soon, Exclusion::ChannelRate { until: soon }),
        (CapacityLoad::AtRate { until: soon }, late, Exclusion::ChannelRate { until: late }),
        (CapacityLoad::AtRate { until: late }, soon, Exclusion::Rate { until: late }),
    ] {
        let mut case = Case::over(vec![limited.clone()]).load("c/0", own);
        case.channel_loads.insert(id, CapacityLoad::AtRate { until: of_channel });
        assert_eq!(case.why(), why);
    }
}

#[test]
fn one_account_stands_for_all_of_a_full_channel() {
    let mut limited = with_accounts(channel("c", &["m"]), 20);
    limited.spec.concurrency = 1;
    let mut case = Case::over(vec![limited.clone(), bounded(channel("d", &["m"]))]).load("d/0", CapacityLoad::AtConcurrency);
    case.channel_loads.insert(limited.id, CapacityLoad::AtConcurrency);
    let no_route = case.fails();
    let busy: Vec<_> = no_route.busy_accounts().iter().map(|it| (it.channel.spec.name.clone(), it.is_channel_full)).collect();
    assert_eq!(busy, [("c".to_owned(), true), ("d".to_owned(), false)], "the other channel is waited for as well");
}

#[test]
fn load_of_unlimited_channels_is_not_queried() {
    let mut case = Case::accounts(1);
    case.channel_loads.insert(case.channels[0].id, CapacityLoad::AtConcurrency);
    assert!(case.run().is_ok());
}

#[test]
fn load_of_unlimited_accounts_is_not_queried() {
    assert!(Case::accounts(1).load("c/0", CapacityLoad::AtConcurrency).run().is_ok());
}

#[test]
fn sale_above_the_limit_is_price_limit_with_figures() {
    let case = Case { request_limit: Some(ceiling(999_999_999, PriceLimitOn::Sale)), ..Case::accounts(1) };
    check(&case, "price_above_limit", NoRouteCause::PriceLimit, false);
    let figures = case.fails().price_figures().unwrap();
    assert_eq!((figures.limit, figures.price, figures.level), (999_999_999, 1_000_000_000, LimitLevel::Request));
    assert!(case.fails().price_alone());
}

#[test]
fn cost_above_the_limit_gives_no_figures() {
    let mut row = channel("c", &["m"]);
    row.spec.serves[0].cost = Some(always(price("2", "2")));
    let limit = Some(ceiling(1_000_000_000, PriceLimitOn::Cost));
    let case = Case { key: Key { price_limit: limit, ..key(&[]) }, ..Case::over(vec![row]) };
    check(&case, "price_above_limit", NoRouteCause::PriceLimit, false);
    assert_eq!(case.fails().price_figures(), None);
    assert!(case.fails().price_alone());
}

#[test]
fn cost_limit_applies_each_accounts_multiplier() {
    let mut row = with_accounts(channel("c", &["m"]), 2);
    row.spec.serves[0].cost = Some(always(price("2", "2")));
    row.accounts[1] =
        Arc::new(Account { spec: AccountSpec { cost_multiplier: Multiplier(500_000), ..account("c", 1).spec }, ..account("c", 1) });
    let limit = Some(ceiling(1_000_000_000, PriceLimitOn::Cost));
    let case = Case { group: Group { price_limit: limit, ..group("default", &["c"]) }, ..Case::over(vec![row]) };
    assert_eq!(case.planned(), ["c/1"]);
}

#[test]
fn missing_required_price_is_unpriced() {
    let limit = PriceLimit { mode: PriceLimitMode::PricedOnly, on: PriceLimitOn::Cost };
    let case = Case { request_limit: Some(limit), ..Case::accounts(1) };
    check(&case, "unpriced", NoRouteCause::NoPrice, false);
}

#[test]
fn missing_price_of_an_option_is_reported_as_the_price_of_the_option() {
    let limit = PriceLimit { mode: PriceLimitMode::PricedOnly, on: PriceLimitOn::Cost };
    let searching = |web_search| {
        let mut row = channel("c", &["m"]);
        row.spec.serves[0].cost = Some(always(Price { web_search, ..price("1", "2") }));
        let extras = tollgate_protocol::RequestExtras { web_search: true, ..tollgate_protocol::RequestExtras::default() };
        let asked = RequestSummary { extras, ..summary("m", Method::Chat) };
        Case { request_limit: Some(limit), summary: asked, ..Case::over(vec![row]) }
    };
    check(&searching(None), "unpriced", NoRouteCause::NoPrice, false);
    let trace = searching(None).fails().trace();
    assert!(trace[0].detail.as_deref().unwrap().starts_with("the channel's cost has no price of a web search"), "{trace:?}");
    assert_eq!(searching(None).fails().missing_price(), Some(MissingPrice::CostOfOption(crate::UnpricedExtra::WebSearch)));
    assert!(searching(Some(1)).run().is_ok());
}

#[test]
fn unpriced_model_is_served_unless_money_is_bounded() {
    let unpriced =
        || Case { model: Model { spec: ModelSpec { price: None, ..model("m").spec }, ..model("m") }, ..Case::accounts(1) };
    assert!(unpriced().run().is_ok());
    let budget = Budget { amount: NanoUsd(1), window: Window::Total, action: BudgetAction::Block };
    let case = Case { key: Key { budgets: vec![budget], ..key(&[]) }, ..unpriced() };
    check(&case, "unpriced", NoRouteCause::NoPrice, false);
    assert!(case.fails().price_alone());
    assert_eq!(case.fails().missing_price(), Some(MissingPrice::SaleForBoundedMoney));
    assert_eq!(case.fails().cause().error_id(), "E42", "no price limit is set");
    let counting = Case { summary: summary("m", Method::CountTokens), ..case };
    assert!(counting.run().is_ok(), "counting costs nothing");
}

#[test]
fn insufficient_margin_is_price_limit() {
    let mut row = channel("c", &["m"]);
    row.spec.serves[0].cost = Some(always(price("0.95", "1")));
    let limit = PriceLimit { mode: PriceLimitMode::MinMargin(100_000), on: PriceLimitOn::Sale };
    let case = Case { group: Group { price_limit: Some(limit), ..group("default", &["c"]) }, ..Case::over(vec![row]) };
    check(&case, "margin", NoRouteCause::PriceLimit, false);
}

#[test]
fn no_route_reports_the_smallest_set_of_unsupported_fields() {
    let mut case = Case { translates: true, ..Case::over(vec![foreign("a"), foreign("b")]) };
    let fields = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    case.untranslatable.insert("a".to_owned(), fields(&["seed", "logit_bias"]));
    case.untranslatable.insert("b".to_owned(), fields(&["logit_bias"]));
    let no_route = case.fails();
    assert_eq!(no_route.fewest_unsupported_fields(), Some(fields(&["logit_bias"])));
    assert!(!no_route.price_alone());
    assert_eq!(no_route.trace()[0].code, "cannot_translate");
    assert_eq!(no_route.trace()[0].detail.as_deref(), Some("seed, logit_bias"));
}

#[test]
fn untranslatable_channel_is_not_the_cause_when_another_reason_exists() {
    let mut case = Case::over(vec![foreign("a"), channel("b", &["m"])]).cooling("b/0", CoolingReason::RateLimited, 4);
    case.translates = true;
    case.untranslatable.insert("a".to_owned(), vec!["seed".to_owned()]);
    assert_eq!(case.fails().fewest_unsupported_fields(), None);
    assert_eq!(case.fails().cause(), NoRouteCause::UpstreamRateLimited);
    case.health.0.clear();
    assert_eq!(case.planned(), ["b/0"]);
}

#[test]
fn learned_unsupported_fields_exclude_like_untranslatable_ones() {
    let mut case = Case::accounts(1);
    case.learned.insert("c".to_owned(), vec!["top_k".to_owned()]);
    assert_eq!(case.why().code(), "capability");
    assert_eq!(case.fails().fewest_unsupported_fields(), Some(vec!["top_k".to_owned()]));
}

#[test]
fn channel_of_another_protocol_is_excluded_unless_translation_is_enabled() {
    let case = Case { from: Protocol::Gemini, summary: summary("m", Method::Generate), ..Case::accounts(1) };
    let no_route = case.fails();
    assert_eq!(case.why(), Exclusion::OtherProtocol(Protocol::OpenAi));
    let methods = no_route.other_protocol_methods().unwrap();
    assert!(methods.contains(&"/v1/chat/completions") && !methods.contains(&"/v1/responses/compact"), "{methods:?}");
    assert_eq!(no_route.fewest_unsupported_fields(), None);
    assert_eq!(no_route.trace()[0].code, "cannot_translate");
    let plan = Case { translates: true, ..case }.run().unwrap();
    assert_eq!(plan.first.protocol, Protocol::OpenAi);
}

#[test]
fn refused_compaction_suggests_the_translated_methods() {
    let case = Case { from: Protocol::Responses, summary: summary("m", Method::Compact), ..Case::accounts(1) };
    let methods = case.fails().other_protocol_methods().unwrap();
    assert!(methods[0] == "/v1/responses" && methods.contains(&"/v1/chat/completions"), "{methods:?}");
    assert!(!methods.contains(&"/v1/responses/compact"), "{methods:?}");
}

#[test]
fn other_protocol_is_not_the_cause_when_another_reason_exists() {
    let mut gemini = Channel { accounts: vec![], ..channel("g", &["m"]) };
    gemini.spec.protocol = Protocol::Gemini;
    let case =
        Case { from: Protocol::Gemini, summary: summary("m", Method::Generate), ..Case::over(vec![gemini, channel("o", &["m"])]) };
    assert_eq!(case.fails().other_protocol_methods(), None);
    assert_eq!(case.fails().cause(), NoRouteCause::NoneConfigured);
}

#[test]
fn first_cause_in_order_is_reported() {
    let causes = [
        NoRouteCause::Concurrency,
        NoRouteCause::Cooldown,
        NoRouteCause::UpstreamRateLimited,
        NoRouteCause::UpstreamQuota,
        NoRouteCause::PriceLimit,
        NoRouteCause::NoPrice,
        NoRouteCause::Credential,
        NoRouteCause::Disabled,
        NoRouteCause::NoneConfigured,
    ];
    let exclusion = |cause| match cause {
        NoRouteCause::Concurrency => Exclusion::Concurrency,
        NoRouteCause::Cooldown => Exclusion::Cooling { until: NOW, why: CoolingReason::Timeout },
        NoRouteCause::UpstreamRateLimited => Exclusion::Cooling { until: NOW, why: CoolingReason::RateLimited },
        NoRouteCause::UpstreamQuota => Exclusion::Budget { until: None },
        NoRouteCause::PriceLimit => Exclusion::Margin,
        NoRouteCause::NoPrice => Exclusion::Unpriced(MissingPrice::SaleForBoundedMoney),
        NoRouteCause::Credential => Exclusion::Resting { until: None, why: RestingReason::Refused },
        NoRouteCause::Disabled => Exclusion::Disabled,
        NoRouteCause::NoneConfigured => Exclusion::NoAccount,
    };
    let channel = channel("c", &["m"]);
    for (at, first) in causes.iter().enumerate() {
        // Reversed, so that the order of candidates cannot decide.
        let excluded = causes[at..].iter().rev().map(|cause| ExcludedCandidate {
            channel: &channel,
            account: None,
            why: exclusion(*cause),
            offer_index: 0,
        });
        let no_route = NoRoute { excluded: excluded.collect(), method: Method::Chat };
        assert_eq!(no_route.cause(), *first);
        assert_eq!(no_route.price_alone(), first.is_price(), "who is off or missing as well does not count");
    }
}

#[test]
fn cause_names_match_the_wire() {
    let words = [
        (NoRouteCause::NoneConfigured, "none_configured"),
        (NoRouteCause::Disabled, "disabled"),
        (NoRouteCause::Cooldown, "cooldown"),
        (NoRouteCause::Concurrency, "concurrency"),
        (NoRouteCause::UpstreamRateLimited, "upstream_rate_limited"),
        (NoRouteCause::UpstreamQuota, "upstream_quota"),
        (NoRouteCause::PriceLimit, "price_limit"),
        (NoRouteCause::NoPrice, "no_price"),
        (NoRouteCause::Credential, "credential"),
    ];
    for (cause, word) in words {
        assert_eq!(cause.as_str(), word);
    }
}

#[test]
fn earliest_recovery_is_the_first_end_of_a_cooldown_or_rest() {
    let case = Case::accounts(3)
        .cooling("c/0", CoolingReason::RateLimited, 9_000)
        .state("c/1", HealthState::Resting { why: RestingReason::QuotaSpent, since: NOW, until: Some(NOW.plus_ms(4_000)) })
        .state("c/2", HealthState::Resting { why: RestingReason::Refused, since: NOW, until: None });
    assert_eq!(case.fails().earliest_recovery(), Some(NOW.plus_ms(4_000)));
}

#[test]
fn trace_is_bounded_and_counts_omitted_entries() {
    let mut case = Case::accounts(100);
    for n in 0..100 {
        case = case.cooling(&format!("c/{n}"), CoolingReason::RateLimited, 1_000);
    }
    let trace = case.fails().trace();
    assert_eq!(trace.len(), 65);
    assert_eq!((&*trace[64].code, trace[64].detail.as_deref()), ("more", Some("36 more candidates are excluded")));
    assert_eq!(trace[0].detail.as_deref(), Some("rate_limited until 2023-11-14T22:13:21Z"));
}

#[test]
fn group_without_channels_gives_outside_group() {
    let catalog = catalog(vec![channel("c", &["m"])], vec![group("default", &[])], vec![]);
    let caller = Caller::of(&catalog, Arc::new(key(&[])));
    let no_route = crate::resolve(&catalog, &caller, &summary("m", Method::Chat), Protocol::OpenAi, NOW);
    assert_eq!(no_route.unwrap_err(), NotOffered::OutsideGroup);
}
