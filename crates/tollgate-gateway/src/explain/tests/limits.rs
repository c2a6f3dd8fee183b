//! Limits of the caller: the remaining amounts, the request's needs, and the limit that refuses.

use tollgate_core::{Billing, Meter, Model, ModelSpec, SpendTotals, Subject};

use super::*;
use crate::state::runtime_state::SubjectUsage;

/// Ten seconds into a minute.
const MICROS: u64 = 70_000_000;

/// A key with limits, and the counters of the key and its member.
struct Case {
    key: Key,
    of_key: Meter,
    of_member: Meter,
    gateway: Vec<Budget>,
    output_tokens: Option<u64>,
}

impl Case {
    fn new(change: impl FnOnce(&mut Self)) -> Self {
        let (of_key, of_member) = (Meter::default(), Meter::default());
        let mut case = Self { key: key(), of_key, of_member, gateway: Vec::new(), output_tokens: None };
        change(&mut case);
        case
    }

    fn counted(&self) -> CallerCounters {
        let counts = |subject, meter| SubjectCounters { subject, meter, by: CounterSource::Gateway, has_rates: true };
        let counts =
            vec![counts(Subject::Key(self.key.id), self.of_key), counts(Subject::Member(self.key.member.id), self.of_member)];
        CallerCounters { counts, micros: MICROS, budgets: self.gateway.clone() }
    }

    fn explained(&self) -> Explanation {
        self.explained_by(&self.counted())
    }

    /// Explains a request for a model sold at 1 USD per million input tokens and 2 per million output tokens.
    fn explained_by(&self, counted: &CallerCounters) -> Explanation {
        let rows = catalog();
        let channels = rows.channels.values().map(|channel| Channel::clone(channel)).collect();
        let groups = rows.groups.values().map(|group| tollgate_core::Group::clone(group)).collect();
        let price = Price { input: Some(1_000_000_000), output: Some(2_000_000_000), ..Price::default() };
        let schedule = PriceSchedule::constant(price);
        let model = Model {
            spec: ModelSpec { name: "m".to_owned(), price: Some(schedule), max_output: Some(1_000), ..ModelSpec::default() },
            ..Model::default()
        };
        let catalog = Catalog::from_parts(Revision(3), channels, groups, vec![model]);
        let mut key = self.key.clone();
        key.groups = vec![catalog.groups[0].id];
        let known = RuntimeState::default();
        let input = ExplainInput {
            catalog: &catalog,
            health: &FirstCools,
            state: &known,
            counters: counted,
            addresses: &AddressLists::default(),
            now: NOW,
        };
        let question = ExplainRequest { output_tokens: self.output_tokens, ..question("m", &[]) };
        explain(&question, Arc::new(key), &input).unwrap()
    }
}

fn budget(usd: &str, window: Window) -> Vec<Budget> {
    vec![Budget { amount: NanoUsd::parse(usd).unwrap(), window, action: BudgetAction::Block }]
}

fn spent(nano: i64) -> Meter {
    let amount = NanoUsd(nano);
    Meter { spent: SpendTotals::loaded(NOW, amount, amount, amount), ..Meter::default() }
}

fn refusal(explained: &Explanation) -> (&'static str, bool, String, String) {
    let refused = explained.refusal.clone().unwrap_or_else(|| panic!("{explained:?}"));
    (refused.error, refused.retryable, refused.text, refused.remedy.unwrap())
}

#[test]
fn key_without_limits_lists_none() {
    let explained = Case::new(|_| {}).explained();
    assert_eq!((explained.limits, explained.refusal, explained.output_limit), (Vec::new(), None, None));
}

#[test]
fn each_limit_shows_what_is_left_and_what_the_request_needs() {
    let explained = Case::new(|it| {
        it.key.limits = Limits { rpm: 5, tpm: 1_500, concurrency: 2 };
        it.key.budgets = budget("1", Window::Month);
        it.key.budgets.push(Budget { action: BudgetAction::Alert, ..it.key.budgets[0] });
        it.of_key = Meter { running: 1, reserved: 100_000_000, ..spent(400_000_000) };
        it.of_key.requests.add(3, MICROS);
        it.gateway = budget("9", Window::Day);
    })
    .explained();
    let shown: Vec<_> = explained.limits.iter().map(|it| (it.of, it.limit, it.amount, it.left, it.needs)).collect();
    let costs = 1_000 * 1_000 + 1_000 * 2_000;
    assert_eq!(
        shown,
        [
            ("key", "budget_month", Some(1_000_000_000), 500_000_000, costs),
            ("gateway", "budget_day", Some(9_000_000_000), 9_000_000_000, costs),
            ("key", "rpm", Some(5), 2, 1),
            ("key", "tpm", Some(1_500), 1_500, 1_500),
            ("key", "concurrency", Some(2), 1, 1),
        ]
    );
    assert_eq!(explained.limits[0].name.as_deref(), Some("first"));
    let json = serde_json::to_value(&explained.limits).unwrap();
    let figures = |of: usize| (json[of]["amount"].clone(), json[of]["left"].clone());
    assert_eq!(figures(0), ("1.00".into(), "0.50".into()), "money is a decimal string in USD");
    assert_eq!(figures(2), (5.into(), 2.into()), "a count is a number");
    assert_eq!((explained.refusal, explained.output_limit), (None, Some(1_000)));
}

#[test]
fn used_up_rate_refuses_and_accounts_are_still_listed() {
    let case = Case::new(|it| {
        it.key.limits.rpm = 2;
        it.of_key.requests.add(2, MICROS);
    });
    let explained = case.explained();
    let (error, retryable, text, remedy) = refusal(&explained);
    assert_eq!((error, retryable), ("E31", true));
    assert!(text.contains("key first has 0 of 2 requests left this minute"), "{text}");
    assert!(remedy.starts_with("wait 80 s") && remedy.contains("the key's rpm"), "{remedy}");
    assert_eq!(explained.planned.len(), 4, "accounts that would serve the request are listed all the same");
}

#[test]
fn token_rate_and_concurrency_refuse_by_request_size() {
    let mut case = Case::new(|it| {
        it.key.limits.tpm = 3_000;
        it.of_key.tokens.add(1_500, MICROS);
    });
    let (error, _, text, remedy) = refusal(&case.explained());
    assert!(error == "E31" && text.contains("1500 of 3000 tokens left") && text.contains("may use 2000"), "{text}");
    assert!(remedy.contains("a smaller output limit"), "{remedy}");
    case.output_tokens = Some(400);
    assert_eq!(case.explained().refusal, None);
    let (error, _, text, _) = refusal(
        &Case::new(|it| {
            it.key.member.limits.concurrency = 1;
            it.of_member.running = 1;
        })
        .explained(),
    );
    assert!(error == "E31" && text == "member owner has 1 of 1 requests in progress", "{text}");
}

#[test]
fn budget_refuses_as_the_path_does_or_lowers_the_output_limit() {
    let with_left = |left: i64, output: Option<u64>| {
        Case::new(|it| {
            it.key.budgets = budget("1", Window::Day);
            it.of_key = spent(1_000_000_000 - left);
            it.output_tokens = output;
        })
        .explained()
    };
    let (error, retryable, text, remedy) = refusal(&with_left(0, None));
    assert_eq!((error, retryable), ("E32", false));
    assert!(text.contains("key first has 0.00 of 1.00 USD left today, the request may cost 0.003"), "{text}");
    assert!(remedy.starts_with("wait until it renews at 20") && remedy.ends_with("raise the key's budget"), "{remedy}");
    let (error, _, _, remedy) = refusal(&with_left(2_000_000, Some(1_000)));
    assert!(error == "E33" && remedy.starts_with("set a smaller output limit"), "{remedy}");
    // A request without an output limit gets one that the remaining money covers.
    let lowered = with_left(2_000_000, None);
    assert_eq!((lowered.refusal, lowered.output_limit), (None, Some(500)));
    assert_eq!(with_left(2_000_000, Some(500)).refusal, None);
}

#[test]
fn insufficient_prepaid_balance_refuses() {
    let mut case = Case::new(|it| {
        it.key.member.billing = Billing::Prepaid;
        it.output_tokens = Some(1_000);
        it.of_member.balance = 3_000_000;
    });
    assert_eq!(case.explained().refusal, None);
    case.of_member.reserved = 1_000_000;
    let explained = case.explained();
    let (error, _, text, remedy) = refusal(&explained);
    assert!(
        error == "E33" && text.contains("0.002 USD left of its balance") && remedy.contains("ledger top-up"),
        "{text}; {remedy}"
    );
    assert_eq!((explained.limits[0].limit, explained.limits[0].amount, explained.limits[0].left), ("balance", None, 2_000_000));
    case.of_member.balance = 0;
    assert_eq!(refusal(&case.explained()).0, "E32");
}

#[test]
fn state_file_takes_precedence_over_the_database() {
    let case = Case::new(|it| {
        it.key.limits.rpm = 1;
        it.key.member.limits.rpm = 1;
    });
    let (of_key, of_member) = (Subject::Key(case.key.id), Subject::Member(case.key.member.id));
    let mut used = Meter::default();
    used.requests.add(1, MICROS);
    let booked = vec![(of_key, Meter::default()), (of_member, Meter::default())];
    let counted = vec![SubjectUsage { subject: of_key, meter: used }];
    let mut known = RuntimeState { at: NOW, counted, counted_micros: MICROS, ..RuntimeState::default() };
    let explained = case.explained_by(&CallerCounters::from_database(booked.clone(), &known, NOW.plus_ms(5_000), Vec::new()));
    assert_eq!(refusal(&explained).0, "E31");
    let by: Vec<_> = explained.limits.iter().map(|it| (it.of, it.left, it.counted_by)).collect();
    assert_eq!(by, [("key", 0, CounterSource::Snapshot), ("member", 1, CounterSource::Database)]);
    // Two minutes later the rate window is empty.
    let later = CallerCounters::from_database(booked.clone(), &known, NOW.plus_ms(120_000), Vec::new());
    assert_eq!(case.explained_by(&later).refusal, None);
    // With a truncated state file, the rates of subjects missing in it are unknown.
    known.counts_more = true;
    let explained = case.explained_by(&CallerCounters::from_database(booked, &known, NOW, Vec::new()));
    assert_eq!(explained.limits.iter().map(|it| it.of).collect::<Vec<_>>(), ["key"]);
}
