//! Counting in Redis (or Valkey), for several nodes: the same checks as in memory, as scripts that do all of a step or
//! nothing. A hold that is bounded asks Redis once; what it came to is told afterwards, in batches, and counts once.
//!
//! Each node has a seat, renewed every 10 s and gone after 60 s without a sign of life; what it holds counts while it has
//! one, so that a dead node's holds lapse. A connection that fails gives the seat up: the next one begins with all the node
//! holds, and what the old one may still do counts for nothing.
//!
//! While Redis is away each node goes on with its [`share`]. What was spent meanwhile is told when it is back. What Redis
//! lost altogether it gets from the database again ([`work`]).

mod book;
mod health;
mod script;
mod share;
mod views;
mod work;

use std::{
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
    Busy, Crossed, Exhausted, Hold, MemberId, NanoUsd, Rated, RequestId, Rooms, Subject, Timestamp, UsageRecord, Window,
};

use super::{
    Counters, Spending,
    memory::{alerts, check, rooms},
};
use crate::{LedgerStore, Random, StoreError};

use book::{Book, Deltas, Open};
use script::{Answer, Fault, Scripts, Seat};
use share::Share;
use views::Views;

pub use health::SharedHealth;
pub use work::RedisWork;

/// Longest wait for a hold; then the node goes on with its share.
const TAKE: Duration = Duration::from_millis(300);
/// Microseconds of a minute.
const MINUTE: u64 = 60_000_000;

/// What counting in Redis needs.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://…` or `rediss://…`, its password included.
    pub url: String,
    /// Tells gateways apart that use one Redis; the same for all nodes of one.
    pub namespace: String,
    /// How long a hold lives without a sign of life.
    pub life: Duration,
    /// How many nodes are assumed where Redis was never reached.
    pub nodes: u64,
    /// Draws names of nodes and generations.
    pub random: Random,
    /// The time it is.
    pub clock: fn() -> Timestamp,
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions").field("namespace", &self.namespace).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

/// Counters in Redis, and the work behind them, which has to run. Waits a moment for the first connection. `spending` is
/// what the database says; it counts where Redis does not know better.
///
/// # Errors
/// When the address cannot be read.
pub async fn counters_in_redis(
    options: RedisOptions,
    spending: &Spending,
    ledger: Arc<dyn LedgerStore>,
) -> Result<(Arc<dyn Counters>, RedisWork), StoreError> {
    let shared = Arc::new(Inner::new(options, spending));
    let work = RedisWork::begin(Arc::clone(&shared), ledger).await?;
    Ok((Arc::new(RedisCounters(shared)), work))
}

/// Whether somebody answers at an address.
///
/// # Errors
/// When nobody does, or the address cannot be read.
pub async fn check_redis(url: &str) -> Result<(), StoreError> {
    work::check(url).await
}

/// The counters.
#[derive(Debug)]
struct RedisCounters(Arc<Inner>);

/// What requests and the work share.
pub(super) struct Inner {
    options: RedisOptions,
    scripts: Scripts,
    book: Book,
    views: Views,
    /// What Redis is to be told.
    pending: Mutex<Deltas>,
    epoch: RwLock<Epoch>,
    crossed: Mutex<Vec<Crossed>>,
    /// There is something to tell, or the connection was lost.
    wake: Notify,
    /// The database knows something that Redis should.
    stale: Notify,
    nodes: AtomicU64,
    /// A message is under way.
    telling: AtomicBool,
    tracker: TaskTracker,
}

/// From one connection to the next.
struct Epoch {
    number: u64,
    state: State,
}

enum State {
    /// Redis answers.
    Up { link: MultiplexedConnection, seat: Seat },
    /// It answers, and does not know yet all that this node holds.
    Joining { share: Arc<Share> },
    /// It is away.
    Down { share: Arc<Share> },
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCounters").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Inner {
    fn new(options: RedisOptions, spending: &Spending) -> Self {
        let share = Arc::new(Share::new(options.nodes, options.life));
        Self {
            scripts: Scripts::new(&options.namespace),
            book: Book::new(options.life),
            views: Views::new(spending),
            pending: Mutex::default(),
            epoch: RwLock::new(Epoch { number: 0, state: State::Down { share } }),
            crossed: Mutex::default(),
            wake: Notify::new(),
            stale: Notify::new(),
            nodes: AtomicU64::new(options.nodes.max(1)),
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

    fn pending(&self) -> std::sync::MutexGuard<'_, Deltas> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of an epoch failed.
    fn lost(&self, number: u64, why: &str) {
        let mut epoch = self.epoch_mut();
        if epoch.number != number || matches!(epoch.state, State::Down { .. }) {
            return;
        }
        let nodes = self.nodes.load(Ordering::Relaxed);
        tracing::warn!(nodes, "Redis is away, this node goes on with its share: {why}");
        epoch.state = State::Down { share: Arc::new(Share::new(nodes, self.options.life)) };
        drop(epoch);
        self.wake.notify_one();
    }

    /// Out of this node's share. `asked`: Redis was asked before and did not answer.
    fn take_share(&self, hold: &Hold, now: Instant, asked: bool) -> Result<Rooms, Exhausted> {
        let epoch = self.epoch();
        let share = match &epoch.state {
            State::Joining { share } | State::Down { share } => Arc::clone(share),
            // It is back already: what was left of the share is still this node's to decide about.
            State::Up { .. } => Arc::new(Share::new(self.nodes.load(Ordering::Relaxed), self.options.life)),
        };
        let decided = share.take(hold, now, |subject| (self.views.of(subject), self.book.running(subject)));
        let open = decided.is_ok().then(|| Open::new(hold, None, self.book.until(now)));
        let kept = match (&open, asked) {
            (open, true) => self.book.answered(hold.id, open.clone()),
            (Some(open), false) => {
                self.book.add(hold.id, open.clone());
                true
            }
            (None, false) => true,
        };
        match open {
            Some(_) if !kept => share.let_go(hold, now),
            Some(open) if !matches!(epoch.state, State::Down { .. }) => self.tell(|deltas| book::hold(deltas, &open, 1)),
            Some(_) | None => {}
        }
        decided
    }

    fn tell(&self, what: impl FnOnce(&mut Deltas)) {
        what(&mut self.pending());
        self.wake.notify_one();
    }

    /// Asks Redis. Runs to its end even if nobody waits for it any more.
    async fn take_asked(
        &self,
        hold: Hold,
        now: Instant,
        number: u64,
        mut link: MultiplexedConnection,
        seat: Seat,
    ) -> Result<Rooms, Exhausted> {
        let why = match timeout(TAKE, self.scripts.take(&mut link, &seat, &hold)).await {
            Ok(Ok(answer)) => return self.taken(&hold, now, number, &answer),
            Ok(Err(Fault::Away(error))) => error.to_string(),
            Ok(Err(Fault::Unseated)) => "this node's seat was given up".to_owned(),
            Err(_) => "it did not answer in time".to_owned(),
        };
        self.lost(number, &why);
        self.take_share(&hold, now, true)
    }

    fn taken(&self, hold: &Hold, now: Instant, number: u64, answer: &Answer) -> Result<Rooms, Exhausted> {
        self.views.note(&answer.meters, true);
        self.nodes.store(answer.nodes.max(1), Ordering::Relaxed);
        let meter =
            |subject: Subject| answer.meters.iter().find(|(of, _)| *of == subject).map(|(_, meter)| *meter).unwrap_or_default();
        if !answer.yes {
            self.book.answered(hold.id, None);
            // The script says no where rounding here says yes: then it is a matter of an instant.
            let rooms = rooms(&hold.limits, answer.micros, meter);
            let busy = Busy { subject: hold.limits[0].subject, rated: Rated::Requests, limit: 0, used: 0, wait_ms: 1_000, rooms };
            return Err(check(hold, answer.micros, meter).err().unwrap_or(Exhausted::Rate(busy)));
        }
        let open = Open::new(hold, Some(answer.micros / MINUTE), self.book.until(now));
        let epoch = self.epoch();
        let kept = self.book.answered(hold.id, Some(open.clone()));
        let same = epoch.number == number && !matches!(epoch.state, State::Down { .. });
        match (same, kept) {
            (true, false) => self.tell(|deltas| book::hold(deltas, &open, -1)),
            // It was taken for a seat that is gone; the new one has to know of it.
            (false, true) if !matches!(epoch.state, State::Down { .. }) => self.tell(|deltas| book::hold(deltas, &open, 1)),
            (true, true) | (false, _) => {}
        }
        Ok(rooms(&hold.limits, answer.micros, meter))
    }
}

#[async_trait]
impl Counters for RedisCounters {
    async fn take(&self, hold: &Hold, now: Instant) -> Result<Result<Rooms, Exhausted>, StoreError> {
        let seated = match &*self.0.epoch() {
            Epoch { number, state: State::Up { link, seat } } => Some((*number, link.clone(), seat.clone())),
            Epoch { state: State::Joining { .. } | State::Down { .. }, .. } => None,
        };
        let Some((number, link, seat)) = seated else { return Ok(self.0.take_share(hold, now, false)) };
        self.0.book.asking(hold.id);
        let (shared, asked) = (Arc::clone(&self.0), hold.clone());
        let asking = self.0.tracker.spawn(async move { shared.take_asked(asked, now, number, link, seat).await });
        // A task that ends without an answer has panicked, or its core goes down.
        Ok(asking.await.unwrap_or_else(|_| self.0.take_share(hold, now, true)))
    }

    fn renew(&self, id: RequestId, now: Instant) {
        self.0.book.renew(id, now);
    }

    fn give_back(&self, record: &UsageRecord, now: Instant) -> Vec<Crossed> {
        let shared = &self.0;
        let epoch = shared.epoch();
        let held = shared.book.remove(record.id);
        let tokens = record.tokens.prompt().saturating_add(record.tokens.completion());
        if let State::Joining { share } | State::Down { share } = &epoch.state
            && held.iter().any(|open| open.by_share)
        {
            share.give_back(record, now);
        }
        let away = matches!(epoch.state, State::Down { .. });
        let mut spends = Vec::new();
        shared.tell(|deltas| {
            for open in &held {
                // To a Redis that comes back all that is held by then is told.
                if !away {
                    book::hold(deltas, open, -1);
                }
                book::correct(deltas, open, tokens);
            }
            for (subject, budget) in alerts(held.iter().flat_map(|open| &open.limits)) {
                deltas.entry(subject).or_default().watches.push((budget, record.at));
            }
            spends = book::spend(deltas, record);
        });
        drop(epoch);
        for (subject, amount) in spends {
            shared.views.spent(subject, amount, record.at);
        }
        Vec::new()
    }

    fn spent(&self, subject: Subject, window: Window, at: Timestamp) -> NanoUsd {
        let meter = self.0.views.of(subject);
        NanoUsd(meter.spent.within(window, at).0.saturating_add(meter.held))
    }

    /// Every node hears of it; what was posted is read from the database, as of one place in the ledger.
    fn posted(&self, member: MemberId, amount: NanoUsd) {
        self.0.views.posted(member, amount);
        self.0.stale.notify_one();
    }

    fn open(&self) -> usize {
        self.0.book.open()
    }

    fn crossed(&self) -> Vec<Crossed> {
        std::mem::take(&mut *self.0.crossed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
