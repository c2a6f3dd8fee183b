//! Changes while a request waits or an attempt runs: an account that becomes usable is used, even if only a newer catalog has it.

use tollgate_core::{
    Account, AccountId, AccountSpec, AttemptResult, Budget, BudgetAction, CoolingRules, NanoUsd, Observation, Window,
};

use super::*;

const HALF: Duration = Duration::from_millis(500);

fn id(number: u8) -> AccountId {
    account(number).id
}

fn late_reply(seconds: u32) -> Vec<Piece> {
    vec![Piece::Wait(SECOND * seconds), REPLY.into()]
}

const JSON_HEAD: &[(&str, &str)] = &[("content-type", "application/json")];

impl Rig {
    /// Account 1 takes one request at a time and answers the first one after five seconds, later ones at once.
    fn occupied() -> Self {
        let script = Script::new().answers(200, JSON_HEAD, late_reply(5)).replies(REPLY).replies(REPLY);
        Self::with(script, 1, |channel| {
            channel.accounts[0] = Arc::new(Account { spec: AccountSpec { concurrency: 1, ..account(1).spec }, ..account(1) });
        })
    }

    /// Replaces the catalog by a changed one and notifies waiting requests.
    fn replace(&self, change: impl FnOnce(&mut Vec<Channel>, &mut Vec<Group>, &mut Vec<Model>)) {
        let now = self.core.shared.catalog.load_full();
        let mut channels = now.channels.values().map(|row| Channel::clone(row)).collect();
        let mut groups = now.groups.values().map(|row| Group::clone(row)).collect();
        let mut models = now.models.values().map(|row| Model::clone(row)).collect();
        change(&mut channels, &mut groups, &mut models);
        let next = Catalog::from_parts(Revision(now.revision.0 + 1), channels, groups, models);
        self.core.shared.replace_catalog(Arc::new(next));
    }

    /// Sends a request while account 1 is busy for five seconds, and runs `change` after half a second. Returns the answer and its
    /// duration.
    async fn ask_during(&self, change: impl FnOnce(&Self)) -> (Got, Duration) {
        let began = tokio::time::Instant::now();
        let waits = async {
            let got = self.ask(CHAT).await;
            (got, began.elapsed())
        };
        let later = async {
            tokio::time::sleep(HALF).await;
            change(self);
        };
        let (first, waited, ()) = tokio::join!(biased; self.ask(CHAT), waits, later);
        assert_eq!(first.status, 200);
        waited
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_request_uses_another_account_when_its_cooling_ends() {
    let mut rig = Rig::occupied();
    rig.add_channel(|_| {});
    let until = Some(rig.clock.now().plus_ms(1_000));
    rig.registry.observe(id(99), &Observation::RateLimited { until }, CoolingRules::default(), rig.clock.now());
    let (got, waited) = rig.ask_during(|_| {}).await;
    assert_eq!((got.status, rig.script.seen()[1].account), (200, id(99)));
    assert!((SECOND..SECOND + HALF / 5).contains(&waited), "{waited:?}");
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn waiting_request_uses_an_account_that_recovers() {
    let mut rig = Rig::occupied();
    rig.add_channel(|_| {});
    rig.registry.observe(id(99), &Observation::Refused, CoolingRules::default(), rig.clock.now());
    let passes = |rig: &Rig| rig.registry.observe(id(99), &Observation::TestPassed, CoolingRules::default(), rig.clock.now());
    let (got, waited) = rig.ask_during(passes).await;
    assert_eq!((got.status, rig.script.seen()[1].account, waited), (200, id(99), HALF));
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn waiting_request_uses_an_enabled_channel_at_the_new_catalogs_prices() {
    let mut rig = Rig::occupied();
    rig.add_channel(|channel| channel.spec.on = false);
    let switch_on = |rig: &Rig| {
        rig.replace(|channels, _, models| {
            channels[1].spec.on = true;
            models[0].spec.price = Some(price(3_000_000_000, 4_000_000_000));
        });
    };
    let (got, waited) = rig.ask_during(switch_on).await;
    assert_eq!((got.status, rig.script.seen()[1].account, waited), (200, id(99), HALF));
    let records = rig.records();
    let by = |account| records.iter().find(|record| record.attempts[0].account == account).unwrap();
    assert_eq!((by(id(1)).price_version, by(id(1)).sale), (Revision(8), Some(NanoUsd(5_000))), "it keeps its catalog");
    assert_eq!((by(id(99)).price_version, by(id(99)).sale), (Revision(9), Some(NanoUsd(13_000))));
}

#[tokio::test(start_paused = true)]
async fn waiting_request_is_served_when_the_concurrency_limit_is_raised() {
    let mut rig = Rig::occupied();
    let raise = |rig: &Rig| {
        rig.replace(|channels, _, _| {
            channels[0].accounts[0] = Arc::new(Account { spec: AccountSpec { concurrency: 2, ..account(1).spec }, ..account(1) });
        });
    };
    let (got, waited) = rig.ask_during(raise).await;
    assert_eq!((got.status, waited), (200, HALF));
    assert_eq!(rig.core.shared.traffic.limiters.running(id(1)), 0);
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn request_selects_again_before_it_is_refused() {
    let mut rig = Rig::occupied();
    rig.add_channel(|channel| channel.spec.on = false);
    let without_notification = |rig: &Rig| rig.change(|channels, _, _| channels[1].spec.on = true);
    let (got, waited) = rig.ask_during(without_notification).await;
    assert_eq!((got.status, waited), (200, SECOND * 2), "no notification was sent");
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn unrelated_changes_keep_positions_in_the_wait_queue() {
    let script = Script::new().answers(200, JSON_HEAD, late_reply(1)).replies(REPLY).replies(REPLY);
    let mut rig = Rig::with(script, 1, |channel| {
        channel.accounts[0] = Arc::new(Account { spec: AccountSpec { concurrency: 1, ..account(1).spec }, ..account(1) });
    });
    let says = |what: &str| CHAT.replace("hello there", what);
    let changes = async {
        for number in 50..60 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            rig.registry.observe(id(number), &Observation::Refused, CoolingRules::default(), rig.clock.now());
            rig.registry.observe(id(number), &Observation::TestPassed, CoolingRules::default(), rig.clock.now());
        }
    };
    let (second, third) = (says("second"), says("third"));
    let (_, one, other, ()) = tokio::join!(biased; rig.ask(CHAT), rig.ask(&second), rig.ask(&third), changes);
    assert_eq!((one.status, other.status), (200, 200));
    let seen = rig.script.seen();
    assert!(seen[1].body.contains("second") && seen[2].body.contains("third"), "{seen:?}");
    assert_eq!((rig.core.shared.traffic.limiters.waiting(id(1)), rig.records().len()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn retry_uses_the_channel_enabled_during_the_first_attempt() {
    let failing = Script::new().answers(500, &[], vec![Piece::Wait(SECOND), "{}".into()]).replies(REPLY);
    let mut rig = Rig::new(failing, 1);
    rig.add_channel(|channel| channel.spec.on = false);
    let swap = async {
        tokio::time::sleep(HALF).await;
        rig.replace(|channels, _, models| {
            (channels[0].spec.on, channels[1].spec.on) = (false, true);
            models[0].spec.price = Some(price(3_000_000_000, 4_000_000_000));
        });
    };
    let (got, ()) = tokio::join!(rig.ask(CHAT), swap);
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some("2")), "{}", got.body);
    let record = rig.record();
    let results: Vec<_> = record.attempts.iter().map(|it| (it.account, it.result)).collect();
    assert_eq!(results, [(id(1), AttemptResult::Refused), (id(99), AttemptResult::Answered)]);
    assert_eq!((record.price_version, record.sale), (Revision(9), Some(NanoUsd(13_000))));
}

#[tokio::test(start_paused = true)]
async fn readmission_applies_budgets_and_leaks_no_reservation() {
    // At 1 and 2 USD per million both requests fit; at a thousand times as much the second one does not.
    for (times, status) in [(2, 200), (1_000_000, 503)] {
        let script = Script::new().answers(200, JSON_HEAD, late_reply(5)).replies(REPLY);
        let mut rig = Rig::keyed(script, |key| {
            key.budgets = vec![Budget { amount: NanoUsd(2_000_000_000), window: Window::Total, action: BudgetAction::Block }];
            key.limits.concurrency = 2;
        });
        rig.replace(|channels, _, _| {
            channels[0].accounts[0] = Arc::new(Account { spec: AccountSpec { concurrency: 1, ..account(1).spec }, ..account(1) });
        });
        rig.add_channel(|channel| channel.spec.on = false);
        let change = |rig: &Rig| {
            rig.replace(|channels, _, models| {
                channels[1].spec.on = true;
                models[0].spec.price = Some(price(1_000_000_000 * times, 2_000_000_000 * times));
            });
        };
        let (got, _) = rig.ask_during(change).await;
        assert_eq!((times, got.status), (times, status), "{}", got.body);
        assert_eq!(rig.records().len(), 2, "every reservation is released");
    }
}

#[tokio::test(start_paused = true)]
async fn request_keeps_its_catalog_if_the_newer_one_lacks_the_model() {
    let script = Script::new().answers(200, JSON_HEAD, late_reply(1)).replies(REPLY);
    let mut rig = Rig::with(script, 1, |channel| {
        channel.accounts[0] = Arc::new(Account { spec: AccountSpec { concurrency: 1, ..account(1).spec }, ..account(1) });
    });
    let (got, waited) = rig.ask_during(|rig| rig.replace(|_, groups, _| groups[0].channels.clear())).await;
    assert_eq!((got.status, waited), (200, SECOND));
    assert!(rig.records().iter().all(|record| record.price_version == Revision(7)));
}
