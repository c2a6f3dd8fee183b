//! Invariant for any use of leases and any order of the messages to Redis: limit ≥ spent + reserved.

use proptest::prelude::*;
use tollgate_core::{BudgetAction, KeyId, Limits, NanoUsd, Window};

use super::*;
use crate::{
    counters::test_callers::{TestCaller, budget, now},
    samples::MIDNIGHT,
};

const MINUTE: u64 = 60_000_000;

fn caller_with_budget() -> (TestCaller, Subject) {
    let caller = TestCaller::new(|it| it.key.budgets = budget(1_000_000, BudgetAction::Block));
    let key = Subject::Key(caller.key.id);
    (caller, key)
}

fn granted_at(now: Instant, minute: u64) -> GrantTime {
    GrantTime { now, minute, expires: now + Duration::from_secs(30) }
}

fn grant_of(money: i64) -> LeaseGrant {
    LeaseGrant { money, ..LeaseGrant::default() }
}

#[tokio::test]
async fn lease_is_reduced_by_what_requests_spend() {
    let ((caller, key), now) = (caller_with_budget(), now());
    let mut pool = LeasePool::new(now);
    let reservation = caller.reservation(1, 100);
    assert!(!pool.covers(&reservation, key, now), "the pool is empty");
    let (wanted, returned) = pool.request(&reservation, key, now);
    assert_eq!((wanted.money, wanted.money_each, returned), (1_600, 100, LeaseReturn::default()));
    assert!(!pool.may_request(&reservation), "one request at a time");
    pool.grant(grant_of(250), &reservation, key, granted_at(now, 5));
    assert!(pool.covers(&reservation, key, now));
    pool.reserve(&reservation, key, now);
    assert_eq!(pool.money, 150);
    assert_eq!((pool.settle(100, 30), pool.money), (30, 220));
    pool.reserve(&caller.reservation(2, 220), key, now);
    assert_eq!((pool.settle(220, 900), pool.money), (220, 0), "at most the contents of the pool");
}

#[tokio::test]
async fn lease_covers_only_its_own_day_and_limits() {
    let ((mut caller, key), now) = (caller_with_budget(), now());
    let mut pool = LeasePool::new(now);
    pool.grant(grant_of(1_000), &caller.reservation(1, 100), key, granted_at(now, 5));
    let mut tomorrow = caller.reservation(2, 100);
    tomorrow.at = MIDNIGHT.plus_ms(86_400_000);
    assert!(!pool.covers(&tomorrow, key, now));
    pool.grant(grant_of(500), &tomorrow, key, granted_at(now, 6));
    assert!(pool.covers(&tomorrow, key, now) && pool.money == 1_500, "all of it was checked for the new day");
    assert!(
        !pool.covers(&caller.reservation(3, 1), key, now) && !pool.may_request(&caller.reservation(3, 1)),
        "requests of the past day go to Redis"
    );
    caller.key.budgets = budget(999_999, BudgetAction::Block);
    tomorrow.limits = caller.reservation(4, 100).limits;
    assert!(!pool.covers(&tomorrow, key, now), "the limit has changed");
}

#[tokio::test]
async fn rate_leases_expire_with_their_minute_and_are_returned() {
    let now = now();
    let caller = TestCaller::new(|it| it.key.limits = Limits { rpm: 1_000, tpm: 100_000, concurrency: 50 });
    let (key, reservation) = (Subject::Key(caller.key.id), caller.reservation(1, 10));
    let mut pool = LeasePool::new(now);
    let granted = LeaseGrant { money: 0, requests: 3, tokens: 25, permits: 2 };
    assert_eq!(pool.grant(granted, &reservation, key, granted_at(now, 7)), LeaseReturn::default());
    assert_eq!(pool.reserve(&reservation, key, now), Some(7));
    assert_eq!(pool.reserve(&reservation, key, now), Some(7));
    assert!(!pool.covers(&reservation, key, now), "no permit, and only five tokens");
    pool.release_permit();
    assert!(!pool.covers(&reservation, key, now));
    assert!(pool.covers(&caller.reservation(2, 5), key, now));
    let later = now + Duration::from_secs(30);
    assert!(!pool.covers(&caller.reservation(2, 5), key, later), "the minute has ended");
    pool.reserve(&caller.reservation(2, 0), key, now);
    pool.release_permit();
    assert_eq!(
        pool.grant(LeaseGrant { requests: 2, tokens: 4, ..granted }, &reservation, key, granted_at(later, 6)).requests,
        Some((6, 2)),
        "of a past minute"
    );
    assert_eq!(pool.sweep(later, None), LeaseReturn { tokens: Some((7, 5)), ..LeaseReturn::default() });
}

#[tokio::test]
async fn idle_or_large_lease_is_returned() {
    let ((caller, key), now) = (caller_with_budget(), now());
    let mut pool = LeasePool::new(now);
    pool.grant(grant_of(100), &caller.reservation(1, 1), key, granted_at(now, 5));
    assert_eq!(pool.sweep(now, Some(400)), LeaseReturn::default());
    assert_eq!(pool.sweep(now, Some(399)).money, 100);
    pool.grant(grant_of(100), &caller.reservation(1, 1), key, granted_at(now, 5));
    assert_eq!(pool.sweep(now + IDLE, Some(1_000_000)).money, 100);
    assert!(!pool.is_disused(now) && pool.is_disused(now + IDLE));
}

#[tokio::test]
async fn quickly_used_lease_doubles() {
    let ((caller, key), now) = (caller_with_budget(), now());
    let (mut pool, reservation) = (LeasePool::new(now), caller.reservation(1, 10));
    let mut amounts = Vec::new();
    for number in 0..8_u32 {
        let (wanted, returned) = pool.request(&reservation, key, now + Duration::from_millis(100) * number);
        assert_eq!(returned.money, if number == 0 { 0 } else { 7 }, "the rest goes back with the request");
        amounts.push(wanted.money);
        pool.grant(grant_of(7), &reservation, key, granted_at(now + Duration::from_millis(100) * number, 5));
    }
    assert_eq!(amounts, [160, 320, 640, 1_280, 2_560, 5_120, 10_240, 10_240]);
}

// === Any interleaving ===

/// A model of the scripts, for money alone.
struct RedisModel {
    limit: i64,
    spent: i64,
    /// Money by registration; `None` once it has expired.
    reserved: Vec<Option<i64>>,
    nodes: i64,
}

impl RedisModel {
    fn left(&self) -> i64 {
        self.limit - self.spent - self.reserved.iter().flatten().sum::<i64>()
    }

    /// The reserve script. Returns whether the reservation was made, and the lease granted.
    fn reserve(&mut self, node: usize, amount: i64, wanted: LeaseRequest, returned: LeaseReturn) -> Option<(bool, i64)> {
        let reserved = self.reserved[node]?;
        self.reserved[node] = Some(reserved - returned.money);
        if amount > self.left() {
            return Some((false, 0));
        }
        self.add(node, amount);
        let part = wanted.money.min(self.left().max(0) / (8 * self.nodes));
        let part = if part < 4 * wanted.money_each { 0 } else { part };
        self.add(node, part);
        Some((true, part))
    }

    fn add(&mut self, node: usize, amount: i64) {
        if let Some(reserved) = &mut self.reserved[node] {
            *reserved += amount;
        }
    }
}

/// One node.
struct Node {
    registration: usize,
    /// The registration may have expired: nothing is served from leases.
    is_unsure: bool,
    pool: LeasePool,
    /// Open reservations: amount, and whether it was taken from the lease.
    open: Vec<(i64, bool)>,
    /// Changes for the next message: reserved, spent.
    pending: (i64, i64),
}

#[derive(Clone, Debug)]
enum Step {
    Request { node: usize, amount: i64, lost: bool },
    End { node: usize, which: usize, part: i64 },
    Send { node: usize },
    Sweep { node: usize, idle: bool },
    Expire { node: usize },
    Join { node: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = 0..3_usize;
    let step = prop_oneof![
        8 => (node.clone(), 1..60_i64, 0..40_u8).prop_map(|(node, amount, lost)| Step::Request { node, amount, lost: lost == 0 }),
        8 => (node.clone(), any::<usize>(), 0..=100_i64).prop_map(|(node, which, part)| Step::End { node, which, part }),
        4 => node.clone().prop_map(|node| Step::Send { node }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, idle)| Step::Sweep { node, idle }),
        1 => node.clone().prop_map(|node| Step::Expire { node }),
        2 => node.prop_map(|node| Step::Join { node }),
    ];
    proptest::collection::vec(step, 1..400)
}

/// Three nodes and one limit.
struct World {
    redis: RedisModel,
    nodes: Vec<Node>,
    caller: TestCaller,
    key: Subject,
    now: Instant,
    /// Reservations and unsent spending of expired registrations. They may exceed the limit.
    excused: i64,
    from_lease: usize,
}

impl World {
    fn new(limit: i64) -> Self {
        let (now, caller) = (now(), TestCaller::new(|it| it.key.budgets = budget(limit, BudgetAction::Block)));
        let node =
            |registration| Node { registration, is_unsure: false, pool: LeasePool::new(now), open: Vec::new(), pending: (0, 0) };
        let key = Subject::Key(caller.key.id);
        let redis = RedisModel { limit, spent: 0, reserved: vec![Some(0); 3], nodes: 3 };
        Self { redis, nodes: (0..3).map(node).collect(), caller, key, now, excused: 0, from_lease: 0 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Request { node, amount, lost } => self.request(node, amount, lost),
            Step::End { node, which, part } => self.end(node, which, part),
            Step::Send { node } => self.send(node),
            Step::Sweep { node, idle } => {
                let (left, it) = (self.redis.left(), &mut self.nodes[node]);
                let returned = it.pool.sweep(if idle { self.now + IDLE } else { self.now }, Some(left));
                it.pending.0 -= returned.money;
            }
            Step::Expire { node } => self.expire(node),
            Step::Join { node } => self.join(node),
        }
    }

    fn request(&mut self, node: usize, amount: i64, lost: bool) {
        let (reservation, it) = (self.caller.reservation(1, amount.unsigned_abs()), &mut self.nodes[node]);
        if it.is_unsure {
            return;
        }
        if it.pool.covers(&reservation, self.key, self.now) {
            it.pool.reserve(&reservation, self.key, self.now);
            it.open.push((amount, true));
            self.from_lease += 1;
            return;
        }
        let (wanted, returned) = if it.pool.may_request(&reservation) {
            it.pool.request(&reservation, self.key, self.now)
        } else {
            (LeaseRequest::default(), LeaseReturn::default())
        };
        let reply = self.redis.reserve(it.registration, amount, wanted, returned);
        if lost || reply.is_none() {
            // The outcome is unknown: the registration ends.
            return self.expire(node);
        }
        let Some((is_granted, granted)) = reply else { return };
        if is_granted {
            it.open.push((amount, false));
        }
        it.pool.grant(grant_of(granted), &reservation, self.key, granted_at(self.now, 1));
    }

    fn end(&mut self, node: usize, which: usize, part: i64) {
        let it = &mut self.nodes[node];
        if it.open.is_empty() {
            return;
        }
        let (amount, leased) = it.open.swap_remove(which % it.open.len());
        // A reservation covers the highest possible cost.
        let spent = amount * part / 100;
        it.pending.1 += spent;
        it.pending.0 -= if leased { it.pool.settle(amount, spent) } else { amount };
    }

    fn send(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if it.is_unsure {
            return;
        }
        let (reserved, spent) = std::mem::take(&mut it.pending);
        self.redis.spent += spent;
        self.redis.add(it.registration, reserved);
    }

    /// The registration of a node expires. Its leases have expired before; its requests continue.
    fn expire(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if it.is_unsure {
            return;
        }
        it.is_unsure = true;
        self.redis.reserved[it.registration] = None;
        self.excused += it.open.iter().map(|(amount, _)| amount).sum::<i64>() + it.pending.1;
    }

    /// A new registration begins with all open reservations and no leases.
    fn join(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if !it.is_unsure {
            return;
        }
        it.pool = LeasePool::new(self.now);
        it.open.iter_mut().for_each(|open| open.1 = false);
        let reserved: i64 = it.open.iter().map(|(amount, _)| amount).sum();
        it.pending.0 = 0;
        self.redis.spent += std::mem::take(&mut it.pending.1);
        self.redis.reserved.push(Some(reserved));
        (it.registration, it.is_unsure) = (self.redis.reserved.len() - 1, false);
    }

    /// The most that can be spent by the end.
    fn worst(&self) -> i64 {
        let of = |it: &Node| it.open.iter().map(|(amount, _)| amount).sum::<i64>() + it.pending.1;
        self.redis.spent + self.nodes.iter().map(of).sum::<i64>()
    }
}

proptest! {
    /// With lost replies, late messages, and registrations that expire and begin, spending and reservations exceed the limit at
    /// most by the requests of expired registrations.
    #[test]
    fn spending_and_reservations_stay_within_the_limit(limit in 0..60_000_i64, steps in steps()) {
        let mut world = World::new(limit);
        for step in &steps {
            world.step(step);
            prop_assert!(world.redis.left() + world.excused >= 0, "{} left after {step:?}", world.redis.left());
            prop_assert!(world.worst() <= limit + world.excused, "{} of {limit} after {step:?}", world.worst());
            prop_assert!(world.nodes.iter().all(|node| node.pool.money >= 0));
        }
        for node in 0..3 {
            while !world.nodes[node].open.is_empty() {
                world.end(node, 0, 100);
            }
            world.expire(node);
            world.join(node);
        }
        prop_assert!(world.redis.spent <= limit + world.excused);
        prop_assert_eq!(world.redis.reserved.iter().flatten().sum::<i64>(), 0, "everything was released");
    }
}

#[tokio::test]
async fn most_requests_are_served_from_leases_far_from_the_limit() {
    let mut world = World::new(1_000_000_000);
    for number in 0..3_000 {
        let node = number % 3;
        world.step(&Step::Request { node, amount: 50, lost: false });
        world.step(&Step::End { node, which: 0, part: 60 });
        world.step(&Step::Send { node });
    }
    assert!(world.from_lease > 2_900, "{}", world.from_lease);
    assert_eq!(world.redis.spent, 3_000 * 30);
}

#[test]
fn lease_rules_are_the_blocking_money_limits() {
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(100, BudgetAction::Block);
        it.key.budgets.push(tollgate_core::Budget { window: Window::Day, ..it.key.budgets[0] });
        it.group.budgets = budget(70, BudgetAction::Alert);
    });
    let reservation = caller.reservation(1, 5);
    assert_eq!(rules(&reservation, Subject::Key(caller.key.id)).count(), 2);
    assert_eq!(rules(&reservation, Subject::Group(caller.group.id)).count(), 0, "an alerting budget does not limit");
    assert_eq!(rules(&reservation, Subject::Key(KeyId::from_parts(MIDNIGHT, [9; 10]))).count(), 0);
    assert_eq!((reservation.amount, MINUTE), (NanoUsd(5), 60_000_000));
}
