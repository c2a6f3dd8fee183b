//! Uses up every bound, as one key and as one member with many keys, and checks that others still get some.
//! Retries, the journal and refused fields are also taken by requests, in the tests of the request path.

use std::{net::IpAddr, pin::Pin, sync::Arc, task::Poll};

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::task::TaskTracker;
use tollgate_core::{
    Account, AccountSpec, Availability, BusyAccount, CoolingRules, HealthView as _, Key, KeyId, Member, MemberId, Observation,
    Timestamp, UnsupportedFields,
};
use tollgate_protocol::Protocol;

use super::{bounds::Part, *};
use crate::{
    address_block::AddressBlock,
    clock::Clock as _,
    server::{
        connection_limiter::{ConnectionLimiter, ConnectionLimits, ServedTargets},
        connection_timers::ConnectionTimers,
    },
    state::{
        address_rate::AddressRate,
        authenticator::{LOOKUPS, WAITING_LOOKUPS},
        capacity_limiter::{AcquireOutcome, CapacityLimiters, LimitedRow},
        content_queue::QUEUE_BYTES,
        health_registry::HealthRegistry,
        retry_budget::RetryBudget,
        trace_queue::QUEUE_CAPACITY,
    },
    testing::{self, PausedClock},
    upstream::{
        client::connection_permits::{MAX_DIALS, MAX_HTTP2, MAX_WAITING as MAX_UPSTREAM_WAITING, USUAL_STREAMS},
        media::{MAX_AT_ONCE, MAX_WAITING},
    },
};

/// More than any caller can get.
const ENOUGH: usize = 100_000;
const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

/// A holder in the tests: a key and its member, and the address of both.
#[derive(Clone)]
struct Taker {
    key: Key,
    share: Arc<KeyShare>,
    address: IpAddr,
}

/// Key `number` of member `member`, which uses one address.
fn taker(registry: &ShareRegistry, number: u8, member: u8) -> Taker {
    let key = testing::key();
    let id = MemberId::from_parts(Timestamp(0), [100 + member; 10]);
    let key = Key { id: KeyId::from_parts(Timestamp(0), [number; 10]), member: Member { id, ..key.member.clone() }, ..key };
    Taker { share: registry.of(&key), key, address: IpAddr::from([203, 0, 113, member]) }
}

/// The holders that a taker's permits count against.
type Holders = fn(&Taker) -> Vec<Holder>;

/// Takes one unit and keeps it; `false` when the taker gets none.
type Take = Box<dyn FnMut(&Taker) -> bool>;

/// Takes a unit of a bound through the code that requests use.
fn take_of(bound: Bound) -> Take {
    match bound {
        Bound::Connections => connections(),
        Bound::WrongKeys | Bound::SquareRequests => address_rate(bound),
        Bound::KeyLookups => permits(FairSemaphore::new(bound, LOOKUPS, WAITING_LOOKUPS), address_of),
        Bound::Media => permits(FairSemaphore::new(bound, MAX_AT_ONCE, MAX_WAITING), callers_of),
        Bound::UpstreamDials => permits(FairSemaphore::new(bound, MAX_DIALS, MAX_UPSTREAM_WAITING), callers_of),
        Bound::UpstreamStreams => permits(FairSemaphore::new(bound, MAX_HTTP2 * USUAL_STREAMS, MAX_UPSTREAM_WAITING), callers_of),
        Bound::RequestsInProgress => requests(1_000, usize::MAX, 0),
        Bound::Starts => starts(),
        Bound::BodyMemory => requests(usize::MAX, 1 << 30, 1 << 20),
        Bound::RecordedRefusals => refusals(),
        Bound::Retries => retries(),
        Bound::CapacityQueue => capacity_queue(),
        Bound::AccountHealth => account_health(),
        Bound::RefusedFields => refused_fields(),
        Bound::Journal => journal(),
        Bound::Traces => traces(),
        Bound::Contents => contents(),
    }
}

/// Connections that may request everything. One address may have all of them, as far as its own limit goes.
fn connections() -> Take {
    let (limiter, mut held, now) = (Arc::<ConnectionLimiter>::default(), Vec::new(), PausedClock::start().instant());
    let limits = ConnectionLimits { all: 1_000, of_address: 1_000 };
    Box::new(move |taker| {
        let entered = limiter.enter(taker.address, limits, &Arc::new(ConnectionTimers::new(now)), now);
        let served = entered.permit.filter(|permit| permit.targets == ServedTargets::Everything);
        served.map(|permit| held.push(permit)).is_some()
    })
}

fn address_rate(bound: Bound) -> Take {
    let now = PausedClock::start().instant();
    let rate = AddressRate::new(bound, 600, now);
    Box::new(move |taker| rate.count(Some(taker.address), now).is_ok())
}

fn address_of(taker: &Taker) -> Vec<Holder> {
    vec![Holder::Address(AddressBlock::of(taker.address))]
}

fn callers_of(taker: &Taker) -> Vec<Holder> {
    taker.share.holders().to_vec()
}

/// Takes permits that are free immediately. Joining the queue does not count as getting one.
fn permits(semaphore: Arc<FairSemaphore>, holders: Holders) -> Take {
    let mut held = Vec::new();
    Box::new(move |taker| {
        let holders = holders(taker);
        let acquired = futures_util::FutureExt::now_or_never(semaphore.acquire(&holders));
        acquired.and_then(Result::ok).map(|permit| held.push(permit)).is_some()
    })
}

/// Requests in progress with bodies of `bytes`.
fn requests(max: usize, max_bytes: usize, bytes: usize) -> Take {
    let (serving, mut held) = (Arc::new(ServingState::default()), Vec::new());
    Box::new(move |taker| {
        let request = serving.enter(max, max_bytes);
        let fits = request.claim(&taker.share).is_ok() && request.reserve_bytes(bytes).is_ok();
        if fits {
            held.push(request);
        }
        fits
    })
}

/// Requests that wait for a busy core.
fn starts() -> Take {
    let (queue, mut waiting) = (StartQueue::new(Arc::new(PausedClock::start()), TaskTracker::new(), Gauge::default()), Vec::new());
    Box::new(move |taker| {
        let (queue, share) = (Arc::clone(&queue), Arc::clone(&taker.share));
        let mut wait = Box::pin(async move { queue.begin_request(&share, None).await });
        let result = futures_util::FutureExt::now_or_never(&mut wait);
        waiting.push(wait);
        result != Some(Err(NotAdmitted::Full))
    })
}

fn refusals() -> Take {
    let now = PausedClock::start().instant();
    Box::new(move |taker| matches!(taker.share.count_refusal("E31", None, now), RefusalRecord::Own))
}

fn retries() -> Take {
    let now = PausedClock::start().instant();
    let budget = RetryBudget::new(now);
    (0..1_000).for_each(|_| _ = budget.request(now));
    Box::new(move |taker| taker.share.try_retry(budget.retries_left(now)) && budget.try_acquire(now))
}

fn capacity_queue() -> Take {
    let limiters = CapacityLimiters::new(Arc::new(PausedClock::start()));
    let account = testing::account(1);
    let account = Account { spec: AccountSpec { concurrency: 1, ..account.spec.clone() }, ..account };
    let channel = testing::channel("http://127.0.0.1:1/v1");
    let (running, mut waiting) = (limiters.try_acquire(LimitedRow::of_attempt(&channel, &account), 0), Vec::new());
    Box::new(move |taker| {
        assert!(running.is_some());
        match limiters.enqueue(
            &[BusyAccount { channel: &channel, account: &account, is_channel_full: false }],
            taker.key.requester(),
            0,
        ) {
            AcquireOutcome::Queued(queued) => waiting.push(queued),
            AcquireOutcome::Permit(_) | AcquireOutcome::QueueFull => return false,
        }
        true
    })
}

/// Uses the account, and makes it fail and refuse.
fn account_health() -> Take {
    let (registry, account) = (HealthRegistry::default(), testing::account(1));
    Box::new(move |taker| {
        let by = taker.key.requester();
        let usable = registry.snapshot_for(by).status(account.id, NOW).availability == Availability::Usable;
        for what in [Observation::Timeout, Observation::Refused, Observation::RateLimited { until: None }] {
            (0..3).for_each(|_| registry.observe_request(&account, &what, CoolingRules::default(), NOW, NOW, Some(by)));
        }
        usable
    })
}

/// A take succeeds if the common field still works for the taker, or if one more field of the taker is learned as unsupported.
fn refused_fields() -> Take {
    let (mut fields, mut number) = (UnsupportedFields::default(), 0);
    Box::new(move |taker| {
        let by = taker.key.requester();
        number += 1;
        let (common, further) = (vec!["seed".to_owned()], vec![format!("field_{number}")]);
        let usable = fields.unsupported_in(Protocol::OpenAi, &common, by, NOW).is_empty();
        for field in [&common, &common, &common, &further, &further, &further] {
            fields.record_refusal(field, Protocol::OpenAi, field, by, Bound::RefusedFields.share().concerned(by), NOW);
        }
        let remembered = !fields.unsupported_in(Protocol::OpenAi, &further, by, NOW).is_empty();
        usable || remembered
    })
}

/// Requests that are recorded in memory while the journal is full.
fn journal() -> Take {
    let serving = ServingState::default();
    serving.set_in_memory_only(1);
    Box::new(move |taker| {
        let held = serving.in_memory_only();
        let may = held <= recent::HELD_REQUESTS && taker.share.may_record(&serving);
        if may {
            serving.set_in_memory_only(held + 1);
        }
        may
    })
}

/// Requests whose spans wait for a collector that takes none.
fn traces() -> Take {
    let (capacity, mut held) = (QueueCapacity::of_traces(QUEUE_CAPACITY), Vec::new());
    Box::new(move |taker| capacity.take(&taker.share, 1).map(|charge| held.push(charge)).is_some())
}

/// Contents for a database that takes none.
fn contents() -> Take {
    const EACH: usize = 64 << 10;
    let (capacity, mut held) = (QueueCapacity::of_contents(QUEUE_BYTES), Vec::new());
    Box::new(move |taker| capacity.take(&taker.share, EACH).map(|charge| held.push(charge)).is_some())
}

type Waiting = Pin<Box<dyn Future<Output = Result<FairPermit, TooManyWaiting>>>>;

/// Permits and queue entries of a caller that tries to take a whole semaphore.
#[derive(Default)]
struct Wanted {
    held: Vec<FairPermit>,
    waiting: Vec<Waiting>,
}

impl Wanted {
    /// Takes permits and then waits for more, until no more may wait.
    async fn add(&mut self, semaphore: &Arc<FairSemaphore>, holders: Vec<Holder>) {
        loop {
            assert!(self.held.len() + self.waiting.len() < ENOUGH, "there is no bound");
            let (semaphore, holders) = (Arc::clone(semaphore), holders.clone());
            let mut permit: Waiting = Box::pin(async move { semaphore.acquire(&holders).await });
            match futures_util::poll!(permit.as_mut()) {
                Poll::Ready(Ok(permit)) => self.held.push(permit),
                Poll::Ready(Err(TooManyWaiting)) => return,
                Poll::Pending => self.waiting.push(permit),
            }
        }
    }
}

/// Units that these takers get, each as many as it can, until none of them gets more.
fn take_all(take: &mut Take, takers: &[Taker]) -> usize {
    let mut taken = 0;
    loop {
        let before = taken;
        for taker in takers {
            while take(taker) {
                taken += 1;
                assert!(taken < ENOUGH, "there is no bound");
            }
        }
        if taken == before {
            return taken;
        }
    }
}

/// True if a holder may have this many in a minute. Counts per minute take nothing from others, so only this check shows that they are
/// bounded.
fn is_within_minute(bound: Bound, kind: HolderKind, taken: usize) -> bool {
    !matches!(bound.share().of(kind), Part::EachMinute(max) if taken > max as usize)
}

#[tokio::test(start_paused = true)]
async fn one_key_cannot_take_all_of_a_bound() {
    for bound in Bound::ALL {
        let registry = ShareRegistry::default();
        let mut take = take_of(*bound);
        let taken = take_all(&mut take, &[taker(&registry, 1, 1)]);
        assert!(taken > 0, "{bound:?}");
        assert!(is_within_minute(*bound, HolderKind::Key, taken), "{bound:?}: a key gets {taken} a minute");
        assert!(take(&taker(&registry, 2, 2)), "{bound:?}: another key gets nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn one_member_cannot_take_all_of_a_bound_with_many_keys() {
    for bound in Bound::ALL {
        let registry = ShareRegistry::default();
        let mut take = take_of(*bound);
        let keys: Vec<_> = (1..=200).map(|number| taker(&registry, number, 1)).collect();
        let taken = take_all(&mut take, &keys);
        assert!(taken > 0, "{bound:?}");
        assert!(is_within_minute(*bound, HolderKind::Member, taken), "{bound:?}: a member gets {taken} a minute");
        let other = taker(&registry, 201, 2);
        assert!(take(&other), "{bound:?}: another member gets nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn one_caller_cannot_fill_a_wait_queue() {
    let semaphores: [(_, _, _, Holders); 4] = [
        (Bound::KeyLookups, LOOKUPS, WAITING_LOOKUPS, address_of),
        (Bound::Media, MAX_AT_ONCE, MAX_WAITING, callers_of),
        (Bound::UpstreamDials, MAX_DIALS, MAX_UPSTREAM_WAITING, callers_of),
        (Bound::UpstreamStreams, MAX_HTTP2 * USUAL_STREAMS, MAX_UPSTREAM_WAITING, callers_of),
    ];
    for (bound, total, max_waiting, holders) in semaphores {
        for keys in [1, 20] {
            let (registry, semaphore) = (ShareRegistry::default(), FairSemaphore::new(bound, total, max_waiting));
            let (mut hostile, mut other) = (Wanted::default(), Wanted::default());
            for number in 1..=keys {
                hostile.add(&semaphore, holders(&taker(&registry, number, 1))).await;
            }
            assert!(!hostile.waiting.is_empty(), "{bound:?}");
            other.add(&semaphore, holders(&taker(&registry, 100, 2))).await;
            assert!(!other.held.is_empty() && !other.waiting.is_empty(), "{bound:?}: others may not wait");
        }
    }
}
