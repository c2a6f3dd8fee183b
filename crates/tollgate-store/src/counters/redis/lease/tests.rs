//! Whatever nodes do with what they have on lease, and in whatever order it is told: bound ≥ spent + held.

use proptest::prelude::*;
use tollgate_core::{BudgetAction, KeyId, Limits, NanoUsd, Window};

use super::*;
use crate::{
    counters::test_callers::{TestCaller, budget},
    samples::NOON,
};

const MINUTE: u64 = 60_000_000;

fn of_money() -> (TestCaller, Subject) {
    let asker = TestCaller::new(|it| it.key.budgets = budget(1_000_000, BudgetAction::Block));
    let key = Subject::Key(asker.key.id);
    (asker, key)
}

fn moment(now: Instant, minute: u64) -> GrantTime {
    GrantTime { now, minute, until: now + Duration::from_secs(30) }
}

fn money(money: i64) -> LeaseGrant {
    LeaseGrant { money, ..LeaseGrant::default() }
}

#[tokio::test]
async fn a_request_takes_from_the_lease_and_what_it_came_to_leaves_it() {
    let ((asker, key), now) = (of_money(), Instant::now());
    let mut pool = LeasePool::new(now);
    let hold = asker.hold(1, 100);
    assert!(!pool.suffices(&hold, key, now), "nothing is here yet");
    let (want, back) = pool.ask(&hold, key, now);
    assert_eq!((want.money, want.money_each, back), (1_600, 100, LeaseReturn::default()));
    assert!(!pool.may_ask(&hold), "one question at a time");
    pool.give(money(250), &hold, key, moment(now, 5));
    assert!(pool.suffices(&hold, key, now));
    pool.reserve(&hold, key, now);
    assert_eq!(pool.money(), 150);
    assert_eq!((pool.end(100, 30), pool.money()), (30, 220));
    pool.reserve(&asker.hold(2, 220), key, now);
    assert_eq!((pool.end(220, 900), pool.money()), (220, 0), "never more than there is");
}

#[tokio::test]
async fn a_lease_serves_its_own_day_and_bounds_only() {
    let ((mut asker, key), now) = (of_money(), Instant::now());
    let mut pool = LeasePool::new(now);
    pool.give(money(1_000), &asker.hold(1, 100), key, moment(now, 5));
    let mut tomorrow = asker.hold(2, 100);
    tomorrow.at = NOON.plus_ms(86_400_000);
    assert!(!pool.suffices(&tomorrow, key, now));
    pool.give(money(500), &tomorrow, key, moment(now, 6));
    assert!(pool.suffices(&tomorrow, key, now) && pool.money() == 1_500, "all of it was looked at for the new day");
    assert!(!pool.suffices(&asker.hold(3, 1), key, now) && !pool.may_ask(&asker.hold(3, 1)), "yesterday's asks by itself");
    asker.key.budgets = budget(999_999, BudgetAction::Block);
    tomorrow.limits = asker.hold(4, 100).limits;
    assert!(!pool.suffices(&tomorrow, key, now), "the bound was changed");
}

#[tokio::test]
async fn requests_and_tokens_serve_until_their_minute_ends_and_what_is_left_goes_back() {
    let now = Instant::now();
    let asker = TestCaller::new(|it| it.key.limits = Limits { rpm: 1_000, tpm: 100_000, concurrency: 50 });
    let (key, hold) = (Subject::Key(asker.key.id), asker.hold(1, 10));
    let mut pool = LeasePool::new(now);
    let given = LeaseGrant { money: 0, requests: 3, tokens: 25, places: 2 };
    assert_eq!(pool.give(given, &hold, key, moment(now, 7)), LeaseReturn::default());
    assert_eq!(pool.reserve(&hold, key, now), Some(7));
    assert_eq!(pool.reserve(&hold, key, now), Some(7));
    assert!(!pool.suffices(&hold, key, now), "two places, and five tokens, are not enough");
    pool.free_place();
    assert!(!pool.suffices(&hold, key, now));
    assert!(pool.suffices(&asker.hold(2, 5), key, now));
    let later = now + Duration::from_secs(30);
    assert!(!pool.suffices(&asker.hold(2, 5), key, later), "the minute is over");
    pool.reserve(&asker.hold(2, 0), key, now);
    pool.free_place();
    assert_eq!(
        pool.give(LeaseGrant { requests: 2, tokens: 4, ..given }, &hold, key, moment(later, 6)).requests,
        Some((6, 2)),
        "too late"
    );
    assert_eq!(pool.sweep(later, None), LeaseReturn { tokens: Some((7, 5)), ..LeaseReturn::default() });
}

#[tokio::test]
async fn what_is_idle_or_much_of_what_is_left_goes_back() {
    let ((asker, key), now) = (of_money(), Instant::now());
    let mut pool = LeasePool::new(now);
    pool.give(money(100), &asker.hold(1, 1), key, moment(now, 5));
    assert_eq!(pool.sweep(now, Some(400)), LeaseReturn::default());
    assert_eq!(pool.sweep(now, Some(399)).money, 100);
    pool.give(money(100), &asker.hold(1, 1), key, moment(now, 5));
    assert_eq!(pool.sweep(now + IDLE, Some(1_000_000)).money, 100);
    assert!(!pool.is_over(now) && pool.is_over(now + IDLE));
}

#[tokio::test]
async fn a_lease_that_lasts_a_moment_is_larger_the_next_time() {
    let ((asker, key), now) = (of_money(), Instant::now());
    let (mut pool, hold) = (LeasePool::new(now), asker.hold(1, 10));
    let mut wanted = Vec::new();
    for number in 0..8_u32 {
        let (want, back) = pool.ask(&hold, key, now + Duration::from_millis(100) * number);
        assert_eq!(back.money, if number == 0 { 0 } else { 7 }, "what was not enough goes back with the question");
        wanted.push(want.money);
        pool.give(money(7), &hold, key, moment(now + Duration::from_millis(100) * number, 5));
    }
    assert_eq!(wanted, [160, 320, 640, 1_280, 2_560, 5_120, 10_240, 10_240]);
}

// === Any interleaving ===

/// Redis' side, as the scripts have it: money alone.
struct Bank {
    bound: i64,
    spent: i64,
    /// By seat; a seat that is gone holds nothing.
    held: Vec<Option<i64>>,
    nodes: i64,
}

impl Bank {
    fn left(&self) -> i64 {
        self.bound - self.spent - self.held.iter().flatten().sum::<i64>()
    }

    /// The script `take`: the hold, and what is given on lease.
    fn reserve(&mut self, seat: usize, amount: i64, want: LeaseRequest, back: LeaseReturn) -> Option<(bool, i64)> {
        let held = self.held[seat]?;
        self.held[seat] = Some(held - back.money);
        if amount > self.left() {
            return Some((false, 0));
        }
        self.add(seat, amount);
        let part = want.money.min(self.left().max(0) / (8 * self.nodes));
        let part = if part < 4 * want.money_each { 0 } else { part };
        self.add(seat, part);
        Some((true, part))
    }

    fn add(&mut self, seat: usize, amount: i64) {
        if let Some(held) = &mut self.held[seat] {
            *held += amount;
        }
    }
}

/// One node.
struct Node {
    seat: usize,
    /// The seat may be gone: nothing is served from leases.
    unsure: bool,
    pool: LeasePool,
    /// Amount, and whether it was taken from the lease.
    open: Vec<(i64, bool)>,
    /// Told with the next message: held, spent.
    pending: (i64, i64),
}

#[derive(Clone, Debug)]
enum Step {
    Request { node: usize, amount: i64, lost: bool },
    End { node: usize, which: usize, part: i64 },
    Tell { node: usize },
    Sweep { node: usize, idle: bool },
    SeatEnds { node: usize },
    Join { node: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = 0..3_usize;
    let step = prop_oneof![
        8 => (node.clone(), 1..60_i64, 0..40_u8).prop_map(|(node, amount, lost)| Step::Request { node, amount, lost: lost == 0 }),
        8 => (node.clone(), any::<usize>(), 0..=100_i64).prop_map(|(node, which, part)| Step::End { node, which, part }),
        4 => node.clone().prop_map(|node| Step::Tell { node }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, idle)| Step::Sweep { node, idle }),
        1 => node.clone().prop_map(|node| Step::SeatEnds { node }),
        2 => node.prop_map(|node| Step::Join { node }),
    ];
    proptest::collection::vec(step, 1..400)
}

/// Three nodes and one bound.
struct World {
    bank: Bank,
    nodes: Vec<Node>,
    asker: TestCaller,
    key: Subject,
    now: Instant,
    /// What requests held, and had spent untold, whose seats ended: it is theirs though nothing holds it any more.
    excused: i64,
    from_lease: usize,
}

impl World {
    fn new(bound: i64) -> Self {
        let (now, asker) = (Instant::now(), TestCaller::new(|it| it.key.budgets = budget(bound, BudgetAction::Block)));
        let node = |seat| Node { seat, unsure: false, pool: LeasePool::new(now), open: Vec::new(), pending: (0, 0) };
        let key = Subject::Key(asker.key.id);
        let bank = Bank { bound, spent: 0, held: vec![Some(0); 3], nodes: 3 };
        Self { bank, nodes: (0..3).map(node).collect(), asker, key, now, excused: 0, from_lease: 0 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Request { node, amount, lost } => self.request(node, amount, lost),
            Step::End { node, which, part } => self.end(node, which, part),
            Step::Tell { node } => self.tell(node),
            Step::Sweep { node, idle } => {
                let (left, it) = (self.bank.left(), &mut self.nodes[node]);
                let back = it.pool.sweep(if idle { self.now + IDLE } else { self.now }, Some(left));
                it.pending.0 -= back.money;
            }
            Step::SeatEnds { node } => self.seat_ends(node),
            Step::Join { node } => self.join(node),
        }
    }

    fn request(&mut self, node: usize, amount: i64, lost: bool) {
        let (hold, it) = (self.asker.hold(1, amount.unsigned_abs()), &mut self.nodes[node]);
        if it.unsure {
            return;
        }
        if it.pool.suffices(&hold, self.key, self.now) {
            it.pool.reserve(&hold, self.key, self.now);
            it.open.push((amount, true));
            self.from_lease += 1;
            return;
        }
        let (want, back) = if it.pool.may_ask(&hold) {
            it.pool.ask(&hold, self.key, self.now)
        } else {
            (LeaseRequest::default(), LeaseReturn::default())
        };
        let answer = self.bank.reserve(it.seat, amount, want, back);
        if lost || answer.is_none() {
            // Nobody knows what became of it: the seat is given up.
            return self.seat_ends(node);
        }
        let Some((yes, given)) = answer else { return };
        if yes {
            it.open.push((amount, false));
        }
        it.pool.give(money(given), &hold, self.key, moment(self.now, 1));
    }

    fn end(&mut self, node: usize, which: usize, part: i64) {
        let it = &mut self.nodes[node];
        if it.open.is_empty() {
            return;
        }
        let (amount, leased) = it.open.swap_remove(which % it.open.len());
        // The hold is the worst it can come to.
        let spent = amount * part / 100;
        it.pending.1 += spent;
        it.pending.0 -= if leased { it.pool.end(amount, spent) } else { amount };
    }

    fn tell(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if it.unsure {
            return;
        }
        let (held, spent) = std::mem::take(&mut it.pending);
        self.bank.spent += spent;
        self.bank.add(it.seat, held);
    }

    /// Leases end before the seat does. What runs goes on.
    fn seat_ends(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if it.unsure {
            return;
        }
        it.unsure = true;
        self.bank.held[it.seat] = None;
        self.excused += it.open.iter().map(|(amount, _)| amount).sum::<i64>() + it.pending.1;
    }

    /// A new seat begins with all that is held, and nothing on lease.
    fn join(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if !it.unsure {
            return;
        }
        it.pool = LeasePool::new(self.now);
        it.open.iter_mut().for_each(|open| open.1 = false);
        let held: i64 = it.open.iter().map(|(amount, _)| amount).sum();
        it.pending.0 = 0;
        self.bank.spent += std::mem::take(&mut it.pending.1);
        self.bank.held.push(Some(held));
        (it.seat, it.unsure) = (self.bank.held.len() - 1, false);
    }

    /// What is certainly spent and what may still be, seen from nowhere in particular.
    fn worst(&self) -> i64 {
        let of = |it: &Node| it.open.iter().map(|(amount, _)| amount).sum::<i64>() + it.pending.1;
        self.bank.spent + self.nodes.iter().map(of).sum::<i64>()
    }
}

proptest! {
    /// Requests, answers that get lost, messages that come late, seats that end and begin: what was spent and is held never
    /// passes the bound but by what ran on a seat that ended, and never at all without such.
    #[test]
    fn spent_and_held_stay_within_the_bound(bound in 0..60_000_i64, steps in steps()) {
        let mut world = World::new(bound);
        for step in &steps {
            world.step(step);
            prop_assert!(world.bank.left() + world.excused >= 0, "{} left after {step:?}", world.bank.left());
            prop_assert!(world.worst() <= bound + world.excused, "{} of {bound} after {step:?}", world.worst());
            prop_assert!(world.nodes.iter().all(|node| node.pool.money() >= 0));
        }
        for node in 0..3 {
            while !world.nodes[node].open.is_empty() {
                world.end(node, 0, 100);
            }
            world.seat_ends(node);
            world.join(node);
        }
        prop_assert!(world.bank.spent <= bound + world.excused);
        prop_assert_eq!(world.bank.held.iter().flatten().sum::<i64>(), 0, "everything went back");
    }
}

#[tokio::test]
async fn most_requests_are_served_from_leases_where_the_bound_is_far() {
    let mut world = World::new(1_000_000_000);
    for number in 0..3_000 {
        let node = number % 3;
        world.step(&Step::Request { node, amount: 50, lost: false });
        world.step(&Step::End { node, which: 0, part: 60 });
        world.step(&Step::Tell { node });
    }
    assert!(world.from_lease > 2_900, "{}", world.from_lease);
    assert_eq!(world.bank.spent, 3_000 * 30);
}

#[test]
fn bounds_are_compared_whole() {
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(100, BudgetAction::Block);
        it.key.budgets.push(tollgate_core::Budget { window: Window::Day, ..it.key.budgets[0] });
        it.group.budgets = budget(70, BudgetAction::Alert);
    });
    let hold = asker.hold(1, 5);
    assert_eq!(rules(&hold, Subject::Key(asker.key.id)).count(), 2);
    assert_eq!(rules(&hold, Subject::Group(asker.group.id)).count(), 0, "what only alerts bounds nothing");
    assert_eq!(rules(&hold, Subject::Key(KeyId::from_parts(NOON, [9; 10]))).count(), 0);
    assert_eq!((hold.amount, MINUTE), (NanoUsd(5), 60_000_000));
}
