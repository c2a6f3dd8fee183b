//! Who is named, with which reason.

use tollgate_core::{
    Account, AccountId, Budget, BudgetAction, Condition, CoolingReason, Learned, Limits, Multiplier, NanoUsd, Owner, Revision,
    Routing, Standing, StreamBreak, TranslationPolicy, Visibility, Window,
};

use super::*;
use crate::{
    Busy, LearnedHere, SpentBudget,
    forward::testing::{account, channel},
    testing::key,
};

const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

/// The first account cools, everybody else is well.
struct FirstCools;

impl HealthView for FirstCools {
    fn of(&self, id: AccountId, _now: Timestamp) -> Condition {
        let standing = Standing::Cooling { until: NOW.plus_ms(5_000), why: CoolingReason::ConnectFailure };
        if id == account(1).id { Condition { standing, ..Condition::WELL } } else { Condition::WELL }
    }
}

/// Five accounts of one channel that serves `m` as `up-m`.
fn catalog() -> Catalog {
    let mut row = channel("http://127.0.0.1:1/v1");
    row.learn_unsupported = true;
    row.budgets = vec![Budget { amount: NanoUsd(1), window: Window::Day, action: BudgetAction::Block }];
    row.accounts = (1..=5).map(|number| Arc::new(Account { concurrency: 1, ..account(number) })).collect();
    let group = tollgate_core::Group {
        id: key().groups.first().copied().unwrap_or_else(|| tollgate_core::GroupId::from_parts(NOW, [1; 10])),
        name: "default".to_owned(),
        owner: Owner::Database,
        visibility: Visibility::Public,
        channels: vec![row.id],
        models: vec![tollgate_core::Glob("*".to_owned())],
        sale_multiplier: Multiplier::ONE,
        translation: TranslationPolicy::Strict,
        signatures_in_ids: true,
        stream_break: StreamBreak::Delivered,
        price_limit: None,
        routing: Routing::Weighted,
        hedge: None,
        trace: false,
        limits: Limits::default(),
        budgets: Vec::new(),
    };
    Catalog::from_parts(Revision(3), vec![row], vec![group], Vec::new())
}

fn asked(model: &str, fields: &[&str], known: &Known) -> Explanation {
    let catalog = catalog();
    let mut key = key();
    key.groups = vec![catalog.groups[0].id];
    let fields = fields.iter().map(|&field| field.to_owned()).collect();
    let question = Question { model: model.to_owned(), from: Protocol::OpenAi, fields, max_price: None };
    let sight = Sight { catalog: &catalog, health: &FirstCools, known, now: NOW };
    explain(&question, Arc::new(key), &sight).unwrap()
}

#[test]
fn everybody_is_named_those_that_would_be_tried_in_order_and_the_others_with_reason_and_remedy() {
    let explained = asked("m", &[], &Known::default());
    let codes: Vec<_> = explained.planned.iter().map(|it| it.code).collect();
    assert_eq!(codes, ["planned", "planned", "planned", "spare"]);
    assert_eq!((explained.group.as_deref(), explained.revision), (Some("default"), Revision(3)));
    assert_eq!(explained.excluded.len(), 1);
    assert_eq!(explained.excluded[0].code, "cooling");
    assert!(explained.excluded[0].detail.as_ref().unwrap().contains("until"), "{:?}", explained.excluded);
    assert!(!explained.excluded[0].remedy.is_empty());
    assert_eq!(asked("nobody", &[], &Known::default()).refusal.unwrap().error, "E13");
}

#[test]
fn what_the_running_gateway_knows_counts() {
    let busy = vec![
        Busy { account: account(2).id, until: None },
        Busy { account: account(3).id, until: Some(NOW.plus_ms(1_000)) },
        Busy { account: account(4).id, until: Some(NOW) },
    ];
    let mut fields = Learned::default();
    let names = ["logit_bias".to_owned()];
    (0..3).for_each(|_| fields.refuse(&names, Protocol::OpenAi, &names, NOW));
    let row = channel("http://127.0.0.1:1/v1");
    let learned = vec![LearnedHere { channel: row.id, upstream_model: row.serves[0].upstream.clone(), fields }];
    let known = Known { at: NOW, learned, busy, ..Known::default() };
    let explained = asked("m", &[], &known);
    let codes: Vec<_> = explained.excluded.iter().map(|it| it.code).collect();
    assert_eq!(codes, ["cooling", "concurrency", "rate"]);
    assert_eq!(explained.planned.len(), 2);
    assert_eq!((explained.learned.len(), explained.learned[0].field.as_str()), (1, "logit_bias"));
    let explained = asked("m", &["logit_bias"], &known);
    assert_eq!(explained.refusal.unwrap().error, "E17");
    assert_eq!(explained.excluded[0].code, "capability");
    let text = serde_json::to_string(&known).unwrap();
    assert_eq!(serde_json::from_str::<Known>(&text).unwrap(), known, "it can be handed on as text");
}

#[test]
fn a_spent_budget_takes_the_whole_channel_out_until_it_renews() {
    let channel = channel("http://127.0.0.1:1/v1").id;
    let spent = |until| Known { at: NOW, spent: vec![SpentBudget { channel, until }], ..Known::default() };
    for until in [None, Some(NOW.plus_ms(1))] {
        let explained = asked("m", &[], &spent(until));
        assert_eq!((explained.excluded.len(), explained.excluded[0].code), (1, "budget"));
        assert_eq!(explained.refusal.unwrap().cause, Some("upstream_quota"));
    }
    assert_eq!(asked("m", &[], &spent(Some(NOW))).refusal, None, "it has renewed");
}
