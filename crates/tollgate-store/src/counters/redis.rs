//! Counting in Redis (or Valkey), for several nodes: the same checks as in memory, as scripts that do all of a step or
//! nothing. What a request came to is told afterwards, in batches, and counts once.
//!
//! A request asks Redis at most once. Where its bounds are far nobody is asked: what it needs is on lease here ([`lease`]).
//! Where they are not, one script decides about all of it: the hold, lowered to what is left where that will do, what
//! attempts may need on their channels' budgets, and what is given on lease with it.
//!
//! Each node has a seat, renewed every 10 s and gone after 60 s without a sign of life; what it holds counts while it has
//! one, so that a dead node's holds lapse. A connection that fails gives the seat up: the next one begins with all the node
//! holds, and what the old one may still do counts for nothing.
//!
//! While Redis is away each node goes on with its [`share`]. What was spent meanwhile is told when it is back. What Redis
//! lost altogether it gets from the database again ([`work`]).

mod health;
mod lease;
mod leases;
mod link;
mod meter_cache;
mod options;
mod outage_share;
mod reservations;
mod script;
mod worker;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_util::task::TaskTracker;
use tollgate_core::{
    BudgetAlert, FundsStatus, LimitExceeded, LimitRule, MemberId, Meter, NanoUsd, RateExceeded, RateKind, RateStatuses, RequestId,
    Reservation, ReservationReceipt, Subject, Timestamp, UsageRecord, Window, rate_statuses,
};

use super::{CounterSnapshot, Counters, Spender, Spending, memory::money_subjects};
use crate::{LedgerStore, StoreError};

use lease::GrantTime;
use leases::{Leases, binding, subjects_of, told};
use meter_cache::MeterCache;
use outage_share::OutageShare;
use reservations::{AheadClaim, CounterDeltas, OpenReservation, ReservationSource, ReservationTable};
use script::{NodeSeat, ReservationGrant, ReservationRequest, ScriptError, Scripts};

pub use health::SharedHealth;
pub use link::RedisAddress;
pub use options::RedisOptions;
pub use worker::RedisWorker;

/// Longest wait for a hold; then the node goes on with its share.
const TAKE: Duration = Duration::from_millis(300);
/// Microseconds of a minute.
const MINUTE: u64 = 60_000_000;

/// Counters in Redis, and the work behind them, which has to run. Waits a moment for the first connection. `spending` is
/// what the database says; it counts where Redis does not know better.
///
/// # Errors
/// When the address cannot be read.
pub async fn counters_in_redis(
    options: RedisOptions,
    spending: &Spending,
    ledger: Arc<dyn LedgerStore>,
) -> Result<(Arc<dyn Counters>, RedisWorker), StoreError> {
    let shared = Arc::new(Inner::new(options, spending));
    let work = RedisWorker::begin(Arc::clone(&shared), ledger, spending.clone()).await?;
    Ok((Arc::new(RedisCounters(shared)), work))
}

/// Whether somebody answers at an address.
///
/// # Errors
/// When nobody does, or the address cannot be read.
pub async fn check_redis(place: &RedisAddress) -> Result<(), StoreError> {
    link::check(place).await
}

/// The counters.
#[derive(Debug)]
struct RedisCounters(Arc<Inner>);

/// What requests and the work share.
pub(super) struct Inner {
    options: RedisOptions,
    scripts: Scripts,
    book: ReservationTable,
    leases: Leases,
    /// Until when this node's seat is surely its own, and Redis' clock at a moment: what leases may be used by.
    seated: Mutex<SeatState>,
    views: MeterCache,
    /// What Redis is to be told.
    pending: Mutex<CounterDeltas>,
    epoch: RwLock<Epoch>,
    crossed: Mutex<Vec<(BudgetAlert, Spender)>>,
    /// There is something to tell, or the connection was lost.
    wake: Notify,
    /// The database knows something that Redis should.
    stale: Notify,
    nodes: AtomicU64,
    /// How often Redis was asked for a hold.
    asked: AtomicU64,
    /// A message is under way.
    telling: AtomicBool,
    tracker: TaskTracker,
}

/// What is known of the seat and of Redis' clock.
#[derive(Clone, Copy, Debug, Default)]
struct SeatState {
    until: Option<Instant>,
    clock: Option<(Instant, u64)>,
}

/// From one connection to the next.
struct Epoch {
    number: u64,
    state: State,
}

enum State {
    /// Redis answers.
    Up { link: MultiplexedConnection, seat: NodeSeat },
    /// It answers, and does not know yet all that this node holds.
    Joining { share: Arc<OutageShare> },
    /// It is away.
    Down { share: Arc<OutageShare> },
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCounters").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Inner {
    fn new(options: RedisOptions, spending: &Spending) -> Self {
        let share = Arc::new(OutageShare::new(options.nodes, options.life, HashMap::new()));
        Self {
            scripts: Scripts::new(&options.namespace),
            book: ReservationTable::new(options.life),
            leases: Leases::new(),
            seated: Mutex::default(),
            views: MeterCache::new(spending),
            pending: Mutex::default(),
            epoch: RwLock::new(Epoch { number: 0, state: State::Down { share } }),
            crossed: Mutex::default(),
            wake: Notify::new(),
            stale: Notify::new(),
            nodes: AtomicU64::new(options.nodes.max(1)),
            asked: AtomicU64::new(0),
            telling: AtomicBool::new(false),
            tracker: TaskTracker::new(),
            options,
        }
    }

    fn epoch(&self) -> std::sync::RwLockReadGuard<'_, Epoch> {
        self.epoch.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn epoch_mut(&self) -> std::sync::RwLockWriteGuard<'_, Epoch> {
        self.epoch.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, CounterDeltas> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seated(&self) -> std::sync::MutexGuard<'_, SeatState> {
        self.seated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a subject stands, without what only this node has and nobody uses.
    fn meter(&self, of: Subject, micros: u64) -> Meter {
        self.leases.without(of, self.views.of(of), micros)
    }

    /// Redis' clock at a moment, as far as it is known.
    fn micros_at(&self, now: Instant) -> u64 {
        micros_by(self.seated().clock, now)
    }

    /// The connection of an epoch failed.
    fn lost(&self, number: u64, why: &str) {
        let mut epoch = self.epoch_mut();
        if epoch.number != number || matches!(epoch.state, State::Down { .. }) {
            return;
        }
        let nodes = self.nodes.load(Ordering::Relaxed);
        tracing::warn!(nodes, "Redis is away, this node goes on with its share: {why}");
        *self.seated() = SeatState::default();
        let share = OutageShare::new(nodes, self.options.life, self.leases.drain());
        epoch.state = State::Down { share: Arc::new(share) };
        drop(epoch);
        self.wake.notify_one();
    }

    /// Out of this node's share. `asked`: Redis was asked before and did not answer.
    fn take_share(&self, hold: &Reservation, now: Instant, asked: bool) -> Result<ReservationReceipt, LimitExceeded> {
        let epoch = self.epoch();
        let share = match &epoch.state {
            State::Joining { share } | State::Down { share } => Arc::clone(share),
            // It is back already: what was left of the share is still this node's to decide about.
            State::Up { .. } => Arc::new(OutageShare::new(self.nodes.load(Ordering::Relaxed), self.options.life, HashMap::new())),
        };
        let decided = share.reserve(hold, now, |subject| (self.views.of(subject), self.book.running(subject)));
        let open = decided
            .as_ref()
            .ok()
            .map(|(_, as_taken)| OpenReservation::new(as_taken, ReservationSource::OutageShare, None, self.book.until(now)));
        let opens = open.as_slice();
        let kept = if asked { self.book.answered(hold.id, opens, Vec::new()) } else { self.book.add(hold.id, opens) };
        match &open {
            Some(_) if !kept => share.let_go(hold, now),
            Some(open) if !matches!(epoch.state, State::Down { .. }) => self.tell(|deltas| reservations::hold(deltas, open, 1)),
            Some(_) | None => {}
        }
        decided.map(|(taken, _)| taken)
    }

    /// Out of what is on lease here; `None`: it does not suffice, or nobody can be sure of it any more.
    fn take_lease(&self, hold: &Reservation, now: Instant) -> Option<ReservationReceipt> {
        let epoch = self.epoch();
        let State::Up { .. } = epoch.state else { return None };
        let SeatState { until, clock } = *self.seated();
        if until.is_none_or(|until| now >= until) {
            return None;
        }
        let minute = self.leases.reserve(hold, now)?.minute;
        self.book.add(hold.id, &[OpenReservation::new(hold, ReservationSource::Lease(epoch.number), minute, self.book.until(now))]);
        drop(epoch);
        let micros = micros_by(clock, now);
        Some(ReservationReceipt {
            rate_statuses: rate_statuses(&hold.limits, micros, |of| self.meter(of, micros)),
            output: hold.output,
        })
    }

    /// What was set aside for an attempt when its request was admitted.
    fn take_ahead(&self, hold: &Reservation, now: Instant) -> Option<Result<ReservationReceipt, LimitExceeded>> {
        // From here to where it is told nobody may begin a new epoch with what is held.
        let epoch = self.epoch();
        match self.book.claim(hold) {
            AheadClaim::None => None,
            AheadClaim::Taken { amount, surplus } => {
                for of in money_subjects(&hold.limits) {
                    self.leases.ahead(of, -amount, now);
                    if surplus > 0 && !matches!(epoch.state, State::Down { .. }) {
                        self.tell(|deltas| deltas.entry(of).or_default().held -= surplus);
                    }
                }
                Some(Ok(ReservationReceipt { rate_statuses: RateStatuses::default(), output: hold.output }))
            }
            AheadClaim::Refused => Some(Err(self.too_little(hold))),
        }
    }

    /// As a subject stood when it was asked.
    fn too_little(&self, hold: &Reservation) -> LimitExceeded {
        if let Err(exhausted) = hold.fit_to_limits(0, |of| self.views.of(of)) {
            return exhausted;
        }
        let limit = hold.limits.iter().find(|limit| limit.bounds_money());
        let budget = limit.and_then(|limit| if let LimitRule::Budget(budget) = limit.rule { Some(budget) } else { None });
        let subject = limit.map_or(Subject::Gateway, |limit| limit.subject);
        LimitExceeded::Money(FundsStatus { subject, budget, spent: NanoUsd::ZERO, left: NanoUsd::ZERO })
    }

    fn tell(&self, what: impl FnOnce(&mut CounterDeltas)) {
        what(&mut self.pending());
        self.wake.notify_one();
    }

    /// Asks Redis. Runs to its end even if nobody waits for it any more.
    async fn take_asked(
        &self,
        hold: Reservation,
        ahead: Vec<Reservation>,
        now: Instant,
        number: u64,
        mut link: MultiplexedConnection,
        seat: NodeSeat,
    ) -> Result<ReservationReceipt, LimitExceeded> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let holds: Vec<&Reservation> = std::iter::once(&hold).chain(&ahead).collect();
        let leases = self.leases.ask(&holds, now);
        let asking = ReservationRequest { hold, ahead, leases };
        let why = match timeout(TAKE, self.scripts.reserve(&mut link, &seat, &asking)).await {
            Ok(Ok(grant)) => return self.taken(&asking, now, number, &grant),
            Ok(Err(ScriptError::Away(error))) => error.to_string(),
            Ok(Err(ScriptError::SeatLost)) => "this node's seat was given up".to_owned(),
            Err(_) => "it did not answer in time".to_owned(),
        };
        self.leases.not_given(asking.leases.keys().copied());
        self.lost(number, &why);
        self.take_share(&asking.hold, now, true)
    }

    fn taken(
        &self,
        asking: &ReservationRequest,
        now: Instant,
        number: u64,
        grant: &ReservationGrant,
    ) -> Result<ReservationReceipt, LimitExceeded> {
        let ReservationGrant { answer, amount, .. } = grant;
        self.views.note(&answer.meters, true);
        self.nodes.store(answer.nodes.max(1), Ordering::Relaxed);
        let meter =
            |subject: Subject| answer.meters.iter().find(|(of, _)| *of == subject).map(|(_, meter)| *meter).unwrap_or_default();
        if !answer.yes {
            self.leases.not_given(asking.leases.keys().copied());
            let hold = &asking.hold;
            self.book.answered(hold.id, &[], Vec::new());
            // The script says no where rounding here says yes: then it is a matter of an instant.
            let rate_statuses = rate_statuses(&hold.limits, answer.micros, meter);
            let busy = RateExceeded {
                subject: hold.limits[0].subject,
                kind: RateKind::Requests,
                limit: 0,
                used: 0,
                wait_ms: 1_000,
                rate_statuses,
            };
            return Err(hold.fit_to_limits(answer.micros, meter).err().unwrap_or(LimitExceeded::Rate(busy)));
        }
        let until = self.book.until(now);
        let lower = if *amount < asking.hold.amount.0 { asking.hold.lowered_to(NanoUsd(*amount)) } else { None };
        let hold = lower.as_ref().unwrap_or(&asking.hold);
        let mut opens = vec![OpenReservation::new(hold, ReservationSource::Redis, Some(answer.micros / MINUTE), until)];
        opens.extend(
            asking.ahead.iter().zip(&grant.ahead).filter(|(_, taken)| **taken).map(|(hold, _)| OpenReservation::ahead(hold, until)),
        );
        let refused = asking.ahead.iter().zip(&grant.ahead).enumerate().filter(|(number, (hold, taken))| {
            // A further one was asked for only where much is left; it may be asked for again.
            !**taken && !asking.ahead[..*number].iter().any(|before| before.limits == hold.limits)
        });
        let refused: Vec<Subject> = refused.flat_map(|(_, (hold, _))| subjects_of(hold)).collect();
        let epoch = self.epoch();
        let kept = self.book.answered(hold.id, &opens, refused);
        let same = epoch.number == number && !matches!(epoch.state, State::Down { .. });
        let joined = !same && !matches!(epoch.state, State::Down { .. });
        if kept {
            for open in opens.iter().filter(|open| open.ahead) {
                open.lent().for_each(|(of, money, _)| self.leases.ahead(of, money, now));
            }
        }
        self.tell(|deltas| {
            for open in &opens {
                match (same, kept) {
                    (true, false) => reservations::hold(deltas, open, -1),
                    // It was taken for a seat that is gone; the new one has to know of it.
                    (false, true) if joined => reservations::hold(deltas, open, 1),
                    (true, true) | (false, _) => {}
                }
            }
            if same {
                // What is left is taken whole, and given back as far as it is no whole token.
                let rest = amount - hold.amount.0;
                for of in money_subjects(&hold.limits).into_iter().filter(|_| rest > 0) {
                    deltas.entry(of).or_default().held -= rest;
                }
                self.leased(asking, grant, now, deltas);
            }
        });
        drop(epoch);
        let without = |of: Subject| self.leases.without(of, meter(of), answer.micros);
        Ok(ReservationReceipt { rate_statuses: rate_statuses(&hold.limits, answer.micros, without), output: hold.output })
    }

    /// Holds go back: to the lease they were taken from, less what their request came to, or to Redis.
    fn release(
        &self,
        held: &[OpenReservation],
        spends: &[(Subject, NanoUsd)],
        epoch: &Epoch,
        now: Instant,
        deltas: &mut CounterDeltas,
    ) {
        // To a Redis that comes back all that is held by then is told.
        let away = matches!(epoch.state, State::Down { .. });
        let mut lent: BTreeMap<Subject, (i64, u64)> = BTreeMap::new();
        for open in held {
            if open.ahead {
                open.lent().for_each(|(of, money, _)| self.leases.ahead(of, -money, now));
            }
            if open.source == ReservationSource::Lease(epoch.number) && !away {
                for (of, money, places) in open.lent() {
                    let of = lent.entry(of).or_default();
                    *of = (of.0.saturating_add(money), of.1 + places);
                }
            } else if !away {
                reservations::hold(deltas, open, -1);
            }
        }
        for (of, (money, places)) in lent {
            let spent = spends.iter().filter(|(subject, _)| *subject == of).map(|(_, amount)| amount.0).sum();
            let used_up = self.leases.end(of, money, spent, places, now);
            if used_up != 0 {
                deltas.entry(of).or_default().held -= used_up;
            }
        }
    }

    /// Holds go back, and nothing came of them.
    fn let_go(&self, held: &[OpenReservation], epoch: &Epoch) {
        self.tell(|deltas| self.release(held, &[], epoch, Instant::now(), deltas));
    }

    /// What was given on lease.
    fn leased(&self, asking: &ReservationRequest, grant: &ReservationGrant, now: Instant, deltas: &mut CounterDeltas) {
        let micros = grant.answer.micros;
        // Asked for after `now`, so that the minute lasts at least so long.
        let until = now + Duration::from_micros(MINUTE - micros % MINUTE);
        let at = GrantTime { now, minute: micros / MINUTE, until };
        let mut seated = self.seated();
        if seated.clock.is_none_or(|(_, known)| known < micros) {
            seated.clock = Some((now, micros));
        }
        drop(seated);
        let holds = || std::iter::once(&asking.hold).chain(&asking.ahead);
        for (of, given) in &grant.given {
            let Some(hold) = holds().find(|hold| subjects_of(hold).contains(of)) else { continue };
            told(deltas, *of, self.leases.give(*given, hold, *of, at));
        }
    }
}

/// Redis' clock at a moment, by what it said at another; 0: it never said.
fn micros_by(clock: Option<(Instant, u64)>, now: Instant) -> u64 {
    clock.map_or(0, |(at, micros)| micros + micros_of(now.saturating_duration_since(at)))
}

/// In whole microseconds.
fn micros_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Counters for RedisCounters {
    async fn reserve(
        &self,
        hold: &Reservation,
        ahead: &[Reservation],
        now: Instant,
    ) -> Result<Result<ReservationReceipt, LimitExceeded>, StoreError> {
        let shared = &self.0;
        if let Some(taken) = shared.take_ahead(hold, now) {
            return Ok(taken);
        }
        if binding(hold).next().is_none() {
            shared.book.add(hold.id, &[OpenReservation::new(hold, ReservationSource::Redis, None, shared.book.until(now))]);
            return Ok(Ok(ReservationReceipt { rate_statuses: RateStatuses::default(), output: hold.output }));
        }
        if let Some(taken) = shared.take_lease(hold, now) {
            return Ok(Ok(taken));
        }
        let seated = match &*shared.epoch() {
            Epoch { number, state: State::Up { link, seat } } => Some((*number, link.clone(), seat.clone())),
            Epoch { state: State::Joining { .. } | State::Down { .. }, .. } => None,
        };
        let Some((number, link, seat)) = seated else { return Ok(shared.take_share(hold, now, false)) };
        shared.book.asking(hold.id);
        let (asker, asked) = (Arc::clone(shared), hold.clone());
        let ahead = ahead.iter().filter(|hold| hold.amount > NanoUsd::ZERO).cloned().collect();
        let asking = shared.tracker.spawn(async move { asker.take_asked(asked, ahead, now, number, link, seat).await });
        // A task that ends without an answer has panicked, or its core goes down.
        Ok(asking.await.unwrap_or_else(|_| shared.take_share(hold, now, true)))
    }

    fn answering(&self, id: RequestId) {
        let epoch = self.0.epoch();
        let ahead = self.0.book.without_ahead(id);
        if !ahead.is_empty() {
            self.0.let_go(&ahead, &epoch);
        }
    }

    fn renew(&self, id: RequestId, now: Instant) {
        self.0.book.renew(id, now);
    }

    fn settle(&self, record: &UsageRecord, now: Instant) -> Vec<BudgetAlert> {
        let shared = &self.0;
        let epoch = shared.epoch();
        let held = shared.book.remove(record.id);
        let tokens = record.tokens.prompt().saturating_add(record.tokens.completion());
        if let State::Joining { share } | State::Down { share } = &epoch.state
            && held.iter().any(|open| open.source == ReservationSource::OutageShare)
        {
            share.settle(record, now);
        }
        let mut spends = Vec::new();
        shared.tell(|deltas| {
            spends = reservations::spend(deltas, record);
            shared.release(&held, &spends, &epoch, now, deltas);
            for open in &held {
                reservations::correct(deltas, open, tokens);
            }
            reservations::watch(deltas, &held, &spends, record);
        });
        drop(epoch);
        for (subject, amount) in spends {
            shared.views.spent(subject, amount, record.at);
        }
        Vec::new()
    }

    fn spent(&self, subject: Subject, window: Window, at: Timestamp) -> NanoUsd {
        let meter = self.0.meter(subject, 0);
        NanoUsd(meter.spent.within(window, at).0.saturating_add(meter.reserved))
    }

    fn look(&self, subjects: &[Subject], now: Instant) -> CounterSnapshot {
        let micros = self.0.micros_at(now);
        let meters = subjects.iter().map(|of| (*of, self.0.meter(*of, micros)));
        CounterSnapshot { micros, meters: meters.collect(), is_all: true }
    }

    fn in_use(&self, most: usize, now: Instant) -> CounterSnapshot {
        let micros = self.0.micros_at(now);
        let (meters, is_all) = self.0.views.lately(|of| {
            let meter = self.0.meter(of, micros);
            meter.in_use(micros).then_some(meter)
        });
        let look = CounterSnapshot { micros, meters, is_all: true }.at_most(most);
        CounterSnapshot { is_all: look.is_all && is_all, ..look }
    }

    fn is_shared(&self) -> bool {
        true
    }

    /// Every node hears of it; what was posted is read from the database, as of one place in the ledger.
    fn posted(&self, member: MemberId, amount: NanoUsd) {
        self.0.views.posted(member, amount);
        self.0.stale.notify_one();
    }

    fn open(&self) -> usize {
        self.0.book.open()
    }

    fn crossed(&self) -> Vec<(BudgetAlert, Spender)> {
        std::mem::take(&mut *self.0.crossed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
