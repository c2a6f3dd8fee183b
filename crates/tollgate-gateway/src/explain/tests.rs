//! Planned and excluded accounts, with code, detail and remedy.

use tollgate_core::{
    Account, AccountId, AccountSpec, Availability, Budget, BudgetAction, Channel, CoolingReason, HealthStatus, KeyStatus, Limits,
    MemberStatus, NanoUsd, Price, PriceSchedule, Revision, TranslationPolicy, UnsupportedFields, Window,
};

mod limits;

use super::*;
use crate::{
    state::{
        capacity_limiter::CapacityUsage,
        runtime_state::{AccountUsageEntry, ChannelSpending, LearnedFields},
    },
    testing::{account, channel, key},
};

const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

/// The first account is cooling, the others are healthy.
struct FirstCools;

impl HealthView for FirstCools {
    fn status(&self, id: AccountId, _now: Timestamp) -> HealthStatus {
        let availability = Availability::Cooling { until: NOW.plus_ms(5_000), why: CoolingReason::ConnectFailure };
        if id == account(1).id { HealthStatus { availability, ..HealthStatus::HEALTHY } } else { HealthStatus::HEALTHY }
    }
}

/// Five accounts of one channel that serves `m` as `up-m`.
fn catalog() -> Catalog {
    let mut row = channel("http://127.0.0.1:1/v1");
    row.spec.learn_unsupported = true;
    row.spec.budgets = vec![Budget { amount: NanoUsd(1_000_000_000), window: Window::Day, action: BudgetAction::Block }];
    row.accounts = (1..=5)
        .map(|number| Arc::new(Account { spec: AccountSpec { concurrency: 1, rpm: 2, ..account(number).spec }, ..account(number) }))
        .collect();
    let id = key().groups.first().copied().unwrap_or_else(|| tollgate_core::GroupId::from_parts(NOW, [1; 10]));
    let group = tollgate_core::Group::new(id, "default", vec![row.id]);
    Catalog::from_parts(Revision(3), vec![row], vec![group], Vec::new())
}

fn question(model: &str, fields: &[&str]) -> ExplainRequest {
    let fields = fields.iter().map(|&field| field.to_owned()).collect();
    let model = model.to_owned();
    ExplainRequest {
        model,
        from: Protocol::OpenAi,
        fields,
        max_price: None,
        input_tokens: DEFAULT_INPUT_TOKENS,
        output_tokens: None,
    }
}

fn explain_model(model: &str, fields: &[&str], known: &RuntimeState) -> Explanation {
    explain_in(&catalog(), &question(model, fields), known)
}

fn explain_in(catalog: &Catalog, question: &ExplainRequest, known: &RuntimeState) -> Explanation {
    let mut key = key();
    key.groups = vec![catalog.groups[0].id];
    let input = ExplainInput {
        catalog,
        health: &FirstCools,
        state: known,
        counters: &CallerCounters::default(),
        addresses: &AddressLists::default(),
        now: NOW,
    };
    explain(question, Arc::new(key), &input).unwrap()
}

#[test]
fn planned_accounts_are_in_order_and_excluded_ones_have_reason_and_remedy() {
    let explained = explain_model("m", &[], &RuntimeState::default());
    let codes: Vec<_> = explained.planned.iter().map(|it| it.code).collect();
    assert_eq!(codes, ["planned", "planned", "planned", "spare"]);
    assert_eq!((explained.group.as_deref(), explained.revision), (Some("default"), Revision(3)));
    assert_eq!(explained.excluded.len(), 1);
    assert_eq!(explained.excluded[0].code, "cooling");
    assert!(explained.excluded[0].detail.as_ref().unwrap().contains("until"), "{:?}", explained.excluded);
    assert!(!explained.excluded[0].remedy.is_empty());
    let cooling = ExcludedCause { cause: "cooldown", accounts: 1, until: Some(NOW.plus_ms(5_000).to_string()) };
    assert_eq!(explained.causes, [cooling]);
    assert_eq!(explain_model("unknown", &[], &RuntimeState::default()).refusal.unwrap().error, "E13");
}

#[test]
fn runtime_state_is_considered() {
    let used = |account, running, requests: u64| {
        let mut in_use = CapacityUsage { running, ..CapacityUsage::default() };
        in_use.requests.add(requests, 0);
        AccountUsageEntry { account, in_use }
    };
    let accounts = vec![used(account(2).id, 1, 0), used(account(3).id, 0, 2), used(account(4).id, 0, 1)];
    let by = crate::testing::key().requester();
    let mut fields = UnsupportedFields::default();
    let names = ["logit_bias".to_owned()];
    (0..3).for_each(|_| fields.record_refusal(&names, Protocol::OpenAi, &names, by, tollgate_core::Concerned::Key(by), NOW));
    let row = channel("http://127.0.0.1:1/v1");
    let learned = vec![LearnedFields { channel: row.id, upstream_model: row.spec.serves[0].upstream.clone(), fields }];
    let known = RuntimeState { at: NOW, learned, accounts, ..RuntimeState::default() };
    let explained = explain_model("m", &[], &known);
    let codes: Vec<_> = explained.excluded.iter().map(|it| it.code).collect();
    assert_eq!(codes, ["cooling", "concurrency", "rate"]);
    assert_eq!(explained.planned.len(), 2);
    assert_eq!((explained.learned.len(), explained.learned[0].field.as_str()), (1, "logit_bias"));
    let shown = serde_json::to_value(&explained.learned[0]).unwrap();
    assert_eq!(shown["until"], explained.learned[0].until.to_string());
    assert!(shown["until"].as_str().unwrap().ends_with('Z'), "{shown}");
    let explained = explain_model("m", &["logit_bias"], &known);
    assert_eq!(explained.refusal.unwrap().error, "E17");
    assert_eq!(explained.excluded[0].code, "capability");
    let text = serde_json::to_string(&known).unwrap();
    assert_eq!(serde_json::from_str::<RuntimeState>(&text).unwrap(), known, "the state survives serialisation");
}

#[test]
fn spent_budget_excludes_the_whole_channel_until_it_renews() {
    let channel = channel("http://127.0.0.1:1/v1").id;
    let spent = vec![ChannelSpending { channel, window: Window::Day, spent: NanoUsd(1_000_000_000) }];
    let known = RuntimeState { at: NOW, spent, ..RuntimeState::default() };
    let explained = explain_model("m", &[], &known);
    assert_eq!((explained.excluded.len(), explained.excluded[0].code), (1, "budget"));
    assert_eq!(explained.refusal.unwrap().cause, Some("upstream_quota"));
    assert_eq!((explained.causes[0].cause, explained.causes[0].accounts), ("upstream_quota", 5), "all accounts of the channel");
    assert!(explained.causes[0].until.is_some());
    let detail = explained.excluded[0].detail.clone().unwrap();
    assert!(detail.starts_with("0.00 of 1.00 USD left today") && detail.contains("until 2026-"), "{detail}");
}

/// The same catalog with a channel that charges 10 USD per million tokens of output and nothing for input.
fn priced() -> Catalog {
    let catalog = catalog();
    let mut row = Channel::clone(&catalog.channels[0]);
    let price = Price { output: Some(10_000_000_000), ..Price::free() };
    row.spec.serves[0].cost = Some(PriceSchedule::constant(price));
    let group = tollgate_core::Group::clone(&catalog.groups[0]);
    Catalog::from_parts(Revision(3), vec![row], vec![group], Vec::new())
}

#[test]
fn account_sold_below_cost_is_named() {
    let catalog = priced();
    let price = Price { output: Some(2_000_000_000), ..Price::free() };
    let price = Some(PriceSchedule::constant(price));
    let spec = tollgate_core::ModelSpec { name: "m".to_owned(), price, ..tollgate_core::ModelSpec::default() };
    let model = tollgate_core::Model { spec, ..tollgate_core::Model::default() };
    let with = |never_below_cost| {
        let row = Channel::clone(&catalog.channels[0]);
        let group = tollgate_core::Group { never_below_cost, ..tollgate_core::Group::clone(&catalog.groups[0]) };
        let catalog = Catalog::from_parts(Revision(3), vec![row], vec![group], vec![model.clone()]);
        explain_in(&catalog, &question("m", &[]), &RuntimeState { at: NOW, ..RuntimeState::default() })
    };
    let detail = with(false).planned[0].detail.clone().unwrap();
    assert!(detail.ends_with("below cost: output sells for 2.00 and costs 10.00 USD per 1M tokens"), "{detail}");
    let forbidden = with(true);
    assert_eq!((forbidden.planned.len(), forbidden.excluded[0].code), (0, "below_cost"));
    assert_eq!(forbidden.refusal.unwrap().error, "E41");
}

#[test]
fn remaining_budget_is_compared_with_the_request_size() {
    let catalog = priced();
    let channel = catalog.channels[0].id;
    // 0.01 USD is left, which buys a thousand tokens.
    let spent = vec![ChannelSpending { channel, window: Window::Day, spent: NanoUsd(990_000_000) }];
    let known = RuntimeState { at: NOW, spent, ..RuntimeState::default() };
    let sized = |output_tokens| explain_in(&catalog, &ExplainRequest { output_tokens, ..question("m", &[]) }, &known);
    let enough = sized(Some(1_000));
    assert_eq!((enough.refusal.clone(), enough.planned.len()), (None, 4));
    let bound = CapacityBound { bound: "budget_day", limit: 1_000_000_000, left: 10_000_000, needs: Some(10_000_000) };
    assert!(enough.planned[0].bounds.contains(&bound), "{:?}", enough.planned[0]);
    assert_eq!(enough.estimate, Some(Estimate { input_tokens: 1_000, output_tokens: 1_000 }));
    for output_tokens in [Some(1_001), None] {
        let refused = sized(output_tokens);
        assert_eq!(refused.refusal.unwrap().cause, Some("upstream_quota"));
        let excluded = &refused.excluded[0];
        assert_eq!((refused.planned.len(), excluded.code, excluded.account.as_deref()), (0, "budget", None));
        assert!(excluded.detail.as_ref().unwrap().starts_with("0.01 of 1.00 USD left today, the request may cost 0."));
        assert!(excluded.remedy.starts_with("a smaller output limit"), "{}", excluded.remedy);
    }
}

#[test]
fn remaining_token_rate_is_compared_with_the_request_size() {
    let mut row = Channel::clone(&catalog().channels[0]);
    row.accounts = vec![Arc::new(Account { spec: AccountSpec { tpm: 10_000, ..account(2).spec }, ..account(2) })];
    let group = tollgate_core::Group::clone(&catalog().groups[0]);
    let catalog = Catalog::from_parts(Revision(3), vec![row], vec![group], Vec::new());
    let mut in_use = CapacityUsage::default();
    in_use.tokens.add(6_000, 0);
    let known =
        RuntimeState { at: NOW, accounts: vec![AccountUsageEntry { account: account(2).id, in_use }], ..RuntimeState::default() };
    let sized = |output_tokens| explain_in(&catalog, &ExplainRequest { output_tokens, ..question("m", &[]) }, &known);
    assert_eq!(sized(Some(3_000)).refusal, None);
    assert_eq!(
        sized(Some(3_000)).planned[0].detail.as_deref(),
        Some("1.00 of 1.00 USD left today; 4000 of 10000 tokens left this minute, the request may use 4000")
    );
    let refused = sized(Some(3_001));
    assert_eq!((refused.refusal.unwrap().cause, refused.excluded[0].code), (Some("concurrency"), "rate"));
    assert_eq!(refused.excluded[0].bounds, [CapacityBound { bound: "tpm", limit: 10_000, left: 4_000, needs: Some(4_001) }]);
    assert!(refused.excluded[0].remedy.contains("more tpm"), "{:?}", refused.excluded);
}

/// The same catalog with a channel of each protocol.
fn both_protocols() -> Catalog {
    let mut native = Channel::clone(&catalog().channels[0]);
    native.accounts.truncate(2);
    native.accounts.remove(0);
    let mut chat = native.clone();
    (native.spec.name, native.spec.protocol) = ("native".to_owned(), Protocol::Gemini);
    chat.id = tollgate_core::ChannelId::from_parts(NOW, [9; 10]);
    (chat.spec.name, chat.accounts) = ("chat".to_owned(), vec![Arc::new(account(3))]);
    let mut group = tollgate_core::Group::clone(&catalog().groups[0]);
    group.channels = vec![native.id, chat.id];
    Catalog::from_parts(Revision(3), vec![native, chat], vec![group], Vec::new())
}

#[test]
fn untranslatable_fields_exclude_channels_in_both_directions() {
    let catalog = both_protocols();
    let of = |from, field: &str| {
        let explained = explain_in(&catalog, &ExplainRequest { from, ..question("m", &[field]) }, &RuntimeState::default());
        let planned: Vec<_> = explained.planned.iter().map(|it| it.channel.clone()).collect();
        let excluded: Vec<_> = explained.excluded.iter().map(|it| (it.channel.clone(), it.code, it.detail.clone())).collect();
        (planned, excluded)
    };
    let refused = |channel: &str, field: &str| vec![(channel.to_owned(), "cannot_translate", Some(field.to_owned()))];
    assert_eq!(of(Protocol::OpenAi, "logit_bias"), (vec!["chat".to_owned()], refused("native", "logit_bias")));
    let top_k = "generationConfig.topK";
    assert_eq!(of(Protocol::Gemini, top_k), (vec!["native".to_owned()], refused("chat", top_k)));
    assert_eq!(of(Protocol::OpenAi, "temperature").0.len(), 2);
    assert_eq!(of(Protocol::Gemini, "generationConfig.temperature").0.len(), 2);
}

#[test]
fn field_no_channel_can_express_is_refused_unless_the_group_drops_it() {
    let mut row = Channel::clone(&catalog().channels[0]);
    row.spec.protocol = Protocol::Gemini;
    let mut group = tollgate_core::Group::clone(&catalog().groups[0]);
    let of = |group: &tollgate_core::Group| {
        let catalog = Catalog::from_parts(Revision(3), vec![row.clone()], vec![group.clone()], Vec::new());
        explain_in(&catalog, &question("m", &["logit_bias"]), &RuntimeState::default())
    };
    let refused = of(&group);
    assert_eq!(refused.refusal.unwrap().error, "E17");
    assert_eq!((refused.excluded.len(), refused.excluded[0].code), (1, "cannot_translate"));
    group.translation = TranslationPolicy::Lenient;
    assert_eq!(of(&group).refusal, None);
}

#[test]
fn invalid_key_is_reported_first() {
    let catalog = catalog();
    let known = RuntimeState::default();
    let of = |change: &dyn Fn(&mut Key)| {
        let mut key = key();
        change(&mut key);
        let input = ExplainInput {
            catalog: &catalog,
            health: &FirstCools,
            state: &known,
            counters: &CallerCounters::default(),
            addresses: &AddressLists::default(),
            now: NOW,
        };
        let explained = explain(&question("m", &[]), Arc::new(key), &input).unwrap();
        assert!(explained.planned.is_empty());
        explained.refusal.unwrap().error
    };
    assert_eq!(of(&|key| key.expires_at = Some(NOW)), "E3");
    assert_eq!(of(&|key| key.status = KeyStatus::Revoked), "E4");
    assert_eq!(of(&|key| key.status = KeyStatus::Disabled), "E4");
    assert_eq!(of(&|key| key.member.status = MemberStatus::Suspended), "E6");
}
