//! What changes while a request waits or is tried: an account that becomes usable meanwhile is used, also one of a newer catalog.

use tollgate_core::{Account, AccountId, AttemptResult, Budget, BudgetAction, NanoUsd, Observation, Window};

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
    /// Account 1 takes one request at once and answers the first one after five seconds; everybody else at once.
    fn occupied() -> Self {
        let script = Script::new().answers(200, JSON_HEAD, late_reply(5)).replies(REPLY).replies(REPLY);
        Self::with(script, 1, |channel| {
            channel.accounts[0] = Arc::new(Account { concurrency: 1, ..account(1) });
        })
    }

    /// The catalog with something changed about it, in force as the watch puts it there.
    fn replace(&self, change: impl FnOnce(&mut Vec<Channel>, &mut Vec<Group>, &mut Vec<Model>)) {
        let now = self.core.shared.catalog.load_full();
        let mut channels = now.channels.values().map(|row| Channel::clone(row)).collect();
        let mut groups = now.groups.values().map(|row| Group::clone(row)).collect();
        let mut models = now.models.values().map(|row| Model::clone(row)).collect();
        change(&mut channels, &mut groups, &mut models);
        let next = Catalog::from_parts(Revision(now.revision.0 + 1), channels, groups, models);
        self.core.shared.replace_catalog(Arc::new(next));
    }

    /// Asks while account 1 is busy for five seconds, and has something happen after half a second. The answer, and how
    /// long it took.
    async fn ask_meanwhile(&self, happens: impl FnOnce(&Self)) -> (Got, Duration) {
        let began = tokio::time::Instant::now();
        let waits = async {
            let got = self.ask(CHAT).await;
            (got, began.elapsed())
        };
        let later = async {
            tokio::time::sleep(HALF).await;
            happens(self);
        };
        let (first, waited, ()) = tokio::join!(biased; self.ask(CHAT), waits, later);
        assert_eq!(first.status, 200);
        waited
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_busy_account_is_served_by_another_one_as_soon_as_its_cooling_ends() {
    let mut rig = Rig::occupied();
    rig.add_channel(|_| {});
    let until = Some(rig.clock.now().plus_ms(1_000));
    rig.registry.observe(id(99), &Observation::RateLimited { until }, true, rig.clock.now());
    let (got, waited) = rig.ask_meanwhile(|_| {}).await;
    assert_eq!((got.status, rig.script.seen()[1].account), (200, id(99)));
    assert!((SECOND..SECOND + HALF / 5).contains(&waited), "{waited:?}");
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_waits_hears_of_an_account_that_is_well_again() {
    let mut rig = Rig::occupied();
    rig.add_channel(|_| {});
    rig.registry.observe(id(99), &Observation::Refused, true, rig.clock.now());
    let passes = |rig: &Rig| rig.registry.observe(id(99), &Observation::TestPassed, true, rig.clock.now());
    let (got, waited) = rig.ask_meanwhile(passes).await;
    assert_eq!((got.status, rig.script.seen()[1].account, waited), (200, id(99), HALF));
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_served_by_a_channel_that_is_switched_on_at_the_prices_of_that_catalog() {
    let mut rig = Rig::occupied();
    rig.add_channel(|channel| channel.on = false);
    let switch_on = |rig: &Rig| {
        rig.replace(|channels, _, models| {
            channels[1].on = true;
            models[0].price = Some(price(3_000_000_000, 4_000_000_000));
        });
    };
    let (got, waited) = rig.ask_meanwhile(switch_on).await;
    assert_eq!((got.status, rig.script.seen()[1].account, waited), (200, id(99), HALF));
    let records = rig.records();
    let by = |account| records.iter().find(|record| record.attempts[0].account == account).unwrap();
    assert_eq!((by(id(1)).price_version, by(id(1)).sale), (Revision(8), Some(NanoUsd(5_000))), "it keeps what it began with");
    assert_eq!((by(id(99)).price_version, by(id(99)).sale), (Revision(9), Some(NanoUsd(13_000))));
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_served_when_its_account_may_take_more_at_once() {
    let mut rig = Rig::occupied();
    let raise = |rig: &Rig| {
        rig.replace(|channels, _, _| channels[0].accounts[0] = Arc::new(Account { concurrency: 2, ..account(1) }));
    };
    let (got, waited) = rig.ask_meanwhile(raise).await;
    assert_eq!((got.status, waited), (200, HALF));
    assert_eq!(rig.core.shared.traffic.limiters.running(id(1)), 0);
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn before_it_is_refused_a_request_looks_once_more() {
    let mut rig = Rig::occupied();
    rig.add_channel(|channel| channel.on = false);
    let silently = |rig: &Rig| rig.change(|channels, _, _| channels[1].on = true);
    let (got, waited) = rig.ask_meanwhile(silently).await;
    assert_eq!((got.status, waited), (200, SECOND * 2), "no signal was sent");
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn changes_elsewhere_keep_places_in_the_wait_queue() {
    let script = Script::new().answers(200, JSON_HEAD, late_reply(1)).replies(REPLY).replies(REPLY);
    let mut rig = Rig::with(script, 1, |channel| {
        channel.accounts[0] = Arc::new(Account { concurrency: 1, ..account(1) });
    });
    let says = |what: &str| CHAT.replace("hello there", what);
    let news = async {
        for number in 50..60 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            rig.registry.observe(id(number), &Observation::Refused, true, rig.clock.now());
            rig.registry.observe(id(number), &Observation::TestPassed, true, rig.clock.now());
        }
    };
    let (second, third) = (says("second"), says("third"));
    let (_, one, other, ()) = tokio::join!(biased; rig.ask(CHAT), rig.ask(&second), rig.ask(&third), news);
    assert_eq!((one.status, other.status), (200, 200));
    let seen = rig.script.seen();
    assert!(seen[1].body.contains("second") && seen[2].body.contains("third"), "{seen:?}");
    assert_eq!((rig.core.shared.traffic.limiters.waiting(id(1)), rig.records().len()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_began_before_two_channels_were_swapped_is_served_by_the_one_that_is_on_now() {
    let failing = Script::new().answers(500, &[], vec![Piece::Wait(SECOND), "{}".into()]).replies(REPLY);
    let mut rig = Rig::new(failing, 1);
    rig.add_channel(|channel| channel.on = false);
    let swap = async {
        tokio::time::sleep(HALF).await;
        rig.replace(|channels, _, models| {
            (channels[0].on, channels[1].on) = (false, true);
            models[0].price = Some(price(3_000_000_000, 4_000_000_000));
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
        rig.replace(|channels, _, _| channels[0].accounts[0] = Arc::new(Account { concurrency: 1, ..account(1) }));
        rig.add_channel(|channel| channel.on = false);
        let change = |rig: &Rig| {
            rig.replace(|channels, _, models| {
                channels[1].on = true;
                models[0].price = Some(price(1_000_000_000 * times, 2_000_000_000 * times));
            });
        };
        let (got, _) = rig.ask_meanwhile(change).await;
        assert_eq!((times, got.status), (times, status), "{}", got.body);
        assert_eq!(rig.records().len(), 2, "and nothing is held any more");
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_newer_catalog_does_not_offer_the_model_the_request_keeps_what_it_began_with() {
    let script = Script::new().answers(200, JSON_HEAD, late_reply(1)).replies(REPLY);
    let mut rig = Rig::with(script, 1, |channel| {
        channel.accounts[0] = Arc::new(Account { concurrency: 1, ..account(1) });
    });
    let (got, waited) = rig.ask_meanwhile(|rig| rig.replace(|_, groups, _| groups[0].channels.clear())).await;
    assert_eq!((got.status, waited), (200, SECOND));
    assert!(rig.records().iter().all(|record| record.price_version == Revision(7)));
}
