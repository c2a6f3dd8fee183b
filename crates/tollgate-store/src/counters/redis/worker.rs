//! The work behind counting in Redis: joining, telling what ended, signs of life, and what the database knows better.
//!
//! Bounds: 200 subjects a message; a message at once, the next when it is answered; 2 s for an answer; a new try after
//! 0.5 s; a look at what was asked for lately every second; what changed in the database every 30 s, in pages.

mod ledger_sync;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::{Client, aio::MultiplexedConnection};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tollgate_core::{BudgetAlert, LimitRule, NanoUsd, SpendTotals, Subject};

use super::{
    Epoch, Inner, OutageShare, State,
    lease::LeasePool,
    link,
    reservations::CounterDelta,
    script::{HeartbeatKind, NodeSeat, ScriptError, ScriptReply, ask},
};
use crate::{LedgerPosition, LedgerStore, RandomSource, Spending, StoreError};

pub(super) const ANSWER: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(500);
/// Longest time to join, the database's word included.
const JOIN: Duration = Duration::from_mins(1);
/// A start waits for its first seat this long.
const FIRST: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const BEAT_EVERY: Duration = Duration::from_secs(10);
const SEAT_LIFE_MS: u64 = 60_000;
/// How long leases may be used after a sign of life was sent: well before the seat ends in Redis, whatever its clock does.
const LEASES_LAST: Duration = Duration::from_secs(40);
const RECONCILE_EVERY: Duration = Duration::from_secs(30);
/// How long the database's word is one node's to bring.
const TURN_MS: u64 = 60_000;
const SUBJECTS: usize = 200;

/// Has to run for as long as the counters are used.
#[derive(Debug)]
pub struct RedisWorker {
    shared: Arc<Inner>,
    client: Client,
    ledger: Arc<dyn LedgerStore>,
    /// Names this process where what was spent is counted once.
    process: String,
    number: u64,
    /// A message that was not answered.
    sent: Option<Vec<(Subject, CounterDelta)>>,
    node: String,
    generation: String,
    /// What the database said at the start, until it is told.
    first: Option<Spending>,
    /// What it said of groups and the gateway, to which it only says what is added.
    shared_by_many: HashMap<Subject, SpendTotals>,
    /// How far the ledger was read.
    place: LedgerPosition,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Disconnect {
    #[error("{0}")]
    Away(#[from] redis::RedisError),
    #[error("it did not answer in time")]
    Late,
    #[error("this node's seat was given up")]
    SeatLost,
    #[error("a request saw it fail")]
    Seen,
    #[error("it holds nothing, and the database cannot say what was spent: {0}")]
    Empty(StoreError),
}

impl From<ScriptError> for Disconnect {
    fn from(fault: ScriptError) -> Self {
        match fault {
            ScriptError::Away(error) => Self::Away(error),
            ScriptError::SeatLost => Self::SeatLost,
        }
    }
}

fn draw(random: &RandomSource) -> String {
    let bytes: [u8; 12] = random.bytes();
    hex::encode(bytes)
}

impl RedisWorker {
    pub(super) async fn begin(shared: Arc<Inner>, ledger: Arc<dyn LedgerStore>, spending: Spending) -> Result<Self, StoreError> {
        let client = link::client(&shared.options.place)?;
        let process = draw(&shared.options.random);
        let mut work = Self {
            shared,
            client,
            ledger,
            process,
            number: 0,
            sent: None,
            node: String::new(),
            generation: String::new(),
            first: None,
            shared_by_many: HashMap::new(),
            place: LedgerPosition::default(),
        };
        work.know(&spending);
        work.first = Some(spending);
        match timeout(FIRST, work.join()).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => tracing::warn!("Redis is away, this node starts with its share: {why}"),
            Err(_) => tracing::warn!("Redis did not answer in time, this node starts with its share"),
        }
        Ok(work)
    }

    /// Runs until it is told to stop; then the last is told and the seat given up.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let seated = match &*self.shared.epoch() {
                Epoch { number, state: State::Up { link, seat } } => Some((*number, link.clone(), seat.clone())),
                Epoch { state: State::Joining { .. } | State::Down { .. }, .. } => None,
            };
            if let Some((number, link, seat)) = seated {
                let ended = tokio::select! {
                    () = stop.cancelled() => break,
                    ended = self.serve(number, link, seat) => ended,
                };
                self.shared.lost(number, &ended.to_string());
                continue;
            }
            let joined = tokio::select! {
                () = stop.cancelled() => break,
                joined = timeout(JOIN, self.join()) => joined,
            };
            match joined {
                Ok(Ok(nodes)) => tracing::info!(nodes, "counting in Redis"),
                Ok(Err(why)) => tracing::debug!("Redis cannot be joined: {why}"),
                Err(_) => tracing::debug!("Redis cannot be joined in time"),
            }
            if !matches!(self.shared.epoch().state, State::Up { .. }) {
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = sleep(RETRY) => {}
                }
            }
        }
        self.leave().await;
    }

    /// Tells the last, and gives the seat up.
    async fn leave(&mut self) {
        let seated = match &self.shared.epoch().state {
            State::Up { link, seat } => Some((link.clone(), seat.clone())),
            State::Joining { .. } | State::Down { .. } => None,
        };
        let Some((mut link, seat)) = seated else { return };
        self.shared.tell(|deltas| self.shared.leases.give_all_back(deltas));
        if let Err(why) = self.flush(&mut link, &seat).await {
            tracing::warn!("the last requests were not counted in Redis, the database has them: {why}");
        }
        let mut command = redis::cmd("ZREM");
        command.arg(self.shared.scripts.name("nodes")).arg(&seat.node);
        // A seat that is not given up lapses.
        let _ = timeout(ANSWER, ask::<i64>(&mut link, &mut command)).await;
    }

    // === joining ===

    /// Takes a new seat: nodes there are.
    async fn join(&mut self) -> Result<u64, Disconnect> {
        let mut link = link::connect(&self.client).await?;
        let node = draw(&self.shared.options.random);
        let replaced = std::mem::replace(&mut self.node, node.clone());
        let mut begun = Instant::now();
        let mut beat = self.shared.scripts.beat(&mut link, &node, SEAT_LIFE_MS, HeartbeatKind::New, &replaced).await?;
        while beat.generation.is_empty() {
            self.found(&mut link, &node).await?;
            begun = Instant::now();
            beat = self.shared.scripts.beat(&mut link, &node, SEAT_LIFE_MS, HeartbeatKind::New, "").await?;
        }
        let same = self.generation == beat.generation;
        self.generation.clone_from(&beat.generation);
        self.shared.nodes.store(beat.nodes.max(1), Ordering::Relaxed);
        let seat = NodeSeat { node, generation: beat.generation };
        let number = self.begin_again(same);
        self.flush(&mut link, &seat).await?;
        let mut epoch = self.shared.epoch_mut();
        if epoch.number != number {
            return Err(Disconnect::Seen);
        }
        epoch.state = State::Up { link, seat };
        self.shared.seated().until = Some(begun + LEASES_LAST);
        drop(epoch);
        // What was told between the last message and now.
        self.shared.wake.notify_one();
        self.shared.stale.notify_one();
        Ok(beat.nodes)
    }

    /// From here on everything is told for the new seat; it begins with all that is held. What was spent is kept if Redis
    /// has the rest of it; else the database says it.
    fn begin_again(&mut self, same: bool) -> u64 {
        let mut epoch = self.shared.epoch_mut();
        let share = match &epoch.state {
            State::Joining { share } | State::Down { share } => Arc::clone(share),
            State::Up { .. } => {
                let kept = self.shared.leases.drain();
                Arc::new(OutageShare::new(self.shared.nodes.load(Ordering::Relaxed), self.shared.options.life, kept))
            }
        };
        epoch.number += 1;
        epoch.state = State::Joining { share };
        let mut pending = self.shared.pending();
        if same {
            for delta in pending.values_mut().chain(self.sent.iter_mut().flatten().map(|(_, delta)| delta)) {
                (delta.held, delta.running) = (0, 0);
            }
        } else {
            pending.clear();
            self.sent = None;
        }
        for (subject, held) in self.shared.book.snapshot() {
            let delta = pending.entry(subject).or_default();
            delta.held = delta.held.saturating_add(held.held);
            delta.running = delta.running.saturating_add(held.running);
        }
        epoch.number
    }

    /// Redis holds nothing: one node brings what the database knows, the others wait for it.
    async fn found(&mut self, link: &mut MultiplexedConnection, node: &str) -> Result<(), Disconnect> {
        let turn = self.shared.scripts.name("founding");
        let mut command = redis::cmd("SET");
        command.arg(&turn).arg(node).arg("NX").arg("PX").arg(TURN_MS);
        if ask::<Option<String>>(link, &mut command).await?.is_none() {
            sleep(Duration::from_millis(100)).await;
            return Ok(());
        }
        let founded = self.found_now(link).await;
        let _ = ask::<i64>(link, redis::cmd("DEL").arg(&turn)).await;
        founded
    }

    async fn found_now(&mut self, link: &mut MultiplexedConnection) -> Result<(), Disconnect> {
        let now = (self.shared.options.clock)();
        let spending = self.ledger.spending(now).await.map_err(Disconnect::Empty)?;
        self.know(&spending);
        self.first = None;
        self.bring(link, &spending.spent, &spending.balances, spending.ledger, now).await?;
        let generation = draw(&self.shared.options.random);
        let mut command = redis::cmd("SET");
        command.arg(self.shared.scripts.name("generation")).arg(generation).arg("NX");
        ask::<Option<String>>(link, &mut command).await?;
        tracing::info!(
            subjects = spending.spent.len(),
            "Redis held nothing of this gateway; it has from the database what was spent"
        );
        Ok(())
    }

    // === serving ===

    async fn serve(&mut self, number: u64, link: MultiplexedConnection, seat: NodeSeat) -> Disconnect {
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beaten = Instant::now();
        let mut reconciled: Option<Instant> = None;
        let shared = Arc::clone(&self.shared);
        let mut own = link.clone();
        loop {
            let due = reconciled.map_or_else(Instant::now, |at| at + RECONCILE_EVERY);
            let done = tokio::select! {
                biased;
                () = shared.wake.notified() => self.flush(&mut own, &seat).await,
                _ = look.tick() => {
                    let looked = self.look(&mut own, &seat).await;
                    if looked.is_ok() && beaten.elapsed() >= BEAT_EVERY {
                        beaten = Instant::now();
                        self.beat(&mut own, &seat).await
                    } else {
                        looked
                    }
                }
                () = shared.stale.notified() => self.reconcile(&mut own, &seat, true).await,
                () = tokio::time::sleep_until(due) => {
                    reconciled = Some(Instant::now());
                    self.reconcile(&mut own, &seat, false).await
                }
            };
            if let Err(ended) = done {
                return ended;
            }
            if shared.epoch().number != number || !matches!(shared.epoch().state, State::Up { .. }) {
                return Disconnect::Seen;
            }
        }
    }

    /// Tells what is to be told, until there is nothing more.
    async fn flush(&mut self, link: &mut MultiplexedConnection, seat: &NodeSeat) -> Result<(), Disconnect> {
        loop {
            if self.sent.is_none() {
                let batch = self.next_batch();
                self.shared.telling.store(!batch.is_empty(), Ordering::Release);
                if batch.is_empty() {
                    return Ok(());
                }
                self.number += 1;
                self.sent = Some(batch);
            }
            let Some(batch) = &self.sent else { return Ok(()) };
            let now = (self.shared.options.clock)();
            let told = self.shared.scripts.settle(link, seat, &self.process, self.number, batch, now);
            let answer = timeout(ANSWER, told).await.map_err(|_| Disconnect::Late)??;
            let batch = self.sent.take().unwrap_or_default();
            self.note(&answer, &batch, false);
        }
    }

    fn next_batch(&self) -> Vec<(Subject, CounterDelta)> {
        let mut pending = self.shared.pending();
        let subjects: Vec<Subject> = pending.keys().copied().take(SUBJECTS).collect();
        let mut batch: Vec<(Subject, CounterDelta)> =
            subjects.into_iter().filter_map(|subject| pending.remove(&subject).map(|delta| (subject, delta))).collect();
        batch.retain(|(_, delta)| *delta != CounterDelta::default());
        batch
    }

    fn note(&self, answer: &ScriptReply, batch: &[(Subject, CounterDelta)], asked: bool) {
        self.shared.nodes.store(answer.nodes.max(1), Ordering::Relaxed);
        self.shared.views.note(&answer.meters, asked);
        let crossed = answer.crossed.iter().filter_map(|(meter, watch, spent)| {
            let (subject, delta) = batch.get(*meter)?;
            let watch = delta.watches.get(*watch)?;
            let (spender, spent) = watch.crossed_by(spent.0, delta.told(watch.budget.window, watch.at))?;
            Some((BudgetAlert { subject: *subject, budget: watch.budget, spent: NanoUsd(spent) }, spender.clone()))
        });
        let mut kept = self.shared.crossed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.extend(crossed);
        // Nobody takes them: they are lines of a log.
        let most = kept.len().min(1_000);
        kept.truncate(most);
    }

    /// Holds that lived for too long go back; what was asked for lately is looked at again, so that this node's share is of
    /// what is left now.
    async fn look(&mut self, link: &mut MultiplexedConnection, seat: &NodeSeat) -> Result<(), Disconnect> {
        let over = self.shared.book.over(Instant::now());
        if !over.is_empty() {
            self.shared.let_go(&over, &self.shared.epoch());
        }
        self.sweep_leases();
        self.flush(link, seat).await?;
        let mut touched = self.shared.views.take_touched();
        for of in self.shared.leases.subjects(SUBJECTS) {
            if !touched.contains(&of) {
                touched.push(of);
            }
        }
        for subjects in touched.chunks(SUBJECTS) {
            let nothing: Vec<(Subject, CounterDelta)> = subjects.iter().map(|of| (*of, CounterDelta::default())).collect();
            let now = (self.shared.options.clock)();
            // The number of the last message: nothing counts again.
            let looked = self.shared.scripts.settle(link, seat, &self.process, self.number, &nothing, now);
            let answer = timeout(ANSWER, looked).await.map_err(|_| Disconnect::Late)??;
            self.note(&answer, &nothing, false);
        }
        Ok(())
    }

    /// What is on lease and not used goes back, and so does what is much of what is left.
    fn sweep_leases(&self) {
        let at = (self.shared.options.clock)();
        let _epoch = self.shared.epoch();
        let left = |of: Subject, pool: &LeasePool| {
            let meter = self.shared.views.of(of);
            let left = pool.rules().iter().filter_map(|rule| match rule {
                LimitRule::Budget(budget) => Some(budget.amount.0 - meter.spent.within(budget.window, at).0 - meter.reserved),
                LimitRule::Balance => Some(meter.balance - meter.reserved),
                LimitRule::Requests(_) | LimitRule::Tokens(_) | LimitRule::Concurrency(_) => None,
            });
            left.min()
        };
        let mut pending = self.shared.pending();
        self.shared.leases.sweep(Instant::now(), left, &mut pending);
    }

    async fn beat(&mut self, link: &mut MultiplexedConnection, seat: &NodeSeat) -> Result<(), Disconnect> {
        let sent = Instant::now();
        let beat = self.shared.scripts.beat(link, &seat.node, SEAT_LIFE_MS, HeartbeatKind::Keep, "");
        let beat = timeout(ANSWER, beat).await.map_err(|_| Disconnect::Late)??;
        self.shared.nodes.store(beat.nodes.max(1), Ordering::Relaxed);
        if !beat.lives || beat.generation != seat.generation {
            return Err(Disconnect::SeatLost);
        }
        let epoch = self.shared.epoch();
        if matches!(&epoch.state, State::Up { seat: now, .. } if now == seat) {
            self.shared.seated().until = Some(sent + LEASES_LAST);
        }
        Ok(())
    }
}
