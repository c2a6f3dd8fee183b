//! A core that is not busy begins requests at once, a busy one in turns.

use std::{future::Future, pin::Pin};

use futures_util::FutureExt as _;
use tokio::time::{Instant, advance};
use tollgate_core::{KeyId, MemberId, Timestamp};

use super::*;
use crate::{
    serving_state::ServingState,
    state::shares::ShareRegistry,
    testing::{self, PausedClock},
};

const WAIT: Duration = Duration::from_millis(1);

/// The wait of a request.
type Wait = Pin<Box<dyn Future<Output = Result<(), NotAdmitted>>>>;

/// The share of a key, whose member has no other.
fn share(number: u8) -> Arc<KeyShare> {
    let mut key = testing::key();
    key.id = KeyId::from_parts(Timestamp(0), [number; 10]);
    key.member.id = MemberId::from_parts(Timestamp(0), [number; 10]);
    ShareRegistry::default().of(&key)
}

fn wait(queue: &Arc<StartQueue>, key: u8) -> Wait {
    wait_for_place(queue, &share(key), None)
}

fn wait_for_place(queue: &Arc<StartQueue>, share: &Arc<KeyShare>, request: Option<&Arc<InFlightRequest>>) -> Wait {
    let (queue, share, request) = (Arc::clone(queue), Arc::clone(share), request.cloned());
    Box::pin(async move { queue.begin_request(&share, request.as_ref()).await })
}

/// Joins the queue with a request of a key.
fn waiting(queue: &Arc<StartQueue>, key: u8) -> Wait {
    let mut wait = wait(queue, key);
    assert!(wait.as_mut().now_or_never().is_none(), "it begins without waiting");
    wait
}

/// A queue whose core is busy.
fn busy() -> Arc<StartQueue> {
    let queue = StartQueue::new(Arc::new(PausedClock::start()), TaskTracker::new(), Gauge::default());
    for _ in 0..BURST {
        assert_eq!(wait(&queue, 9).now_or_never(), Some(Ok(())));
    }
    queue
}

/// How many of the waits have begun. Removes them.
fn begun(waits: &mut Vec<Wait>) -> usize {
    let before = waits.len();
    waits.retain_mut(|wait| wait.as_mut().now_or_never().is_none());
    before - waits.len()
}

#[test]
fn burst_is_admitted_at_once_after_the_core_was_idle() {
    let mut burst = Burst::default();
    let admitted = |burst: &mut Burst, idle_count| (0..2 * BURST).filter(|_| burst.admits(idle_count)).count();
    assert_eq!(admitted(&mut burst, 0), BURST as usize);
    assert_eq!(admitted(&mut burst, 0), 0);
    assert_eq!(admitted(&mut burst, 7), BURST as usize);
}

#[tokio::test(start_paused = true)]
async fn busy_core_admits_a_few_requests_each_pass() {
    let queue = busy();
    let mut requests: Vec<_> = (0..3 * REQUESTS_EACH_PASS).map(|_| waiting(&queue, 1)).collect();
    assert_eq!(queue.waiting_gauge.get(), 24);
    let mut passes = Vec::new();
    while !requests.is_empty() {
        yield_now().await;
        passes.push(begun(&mut requests));
    }
    passes.retain(|count| *count > 0);
    assert_eq!(passes, [REQUESTS_EACH_PASS; 3]);
    assert_eq!(queue.waiting_gauge.get(), 0);
    // The queue is empty.
    tokio::time::sleep(WAIT).await;
    assert_eq!(wait(&queue, 1).now_or_never(), Some(Ok(())));
    assert!(!queue.waiting().is_running);
}

#[tokio::test(start_paused = true)]
async fn single_request_is_not_delayed_by_a_thousand_of_another_key() {
    let queue = busy();
    let mut flood: Vec<_> = (0..1_000).map(|_| waiting(&queue, 1)).collect();
    assert_eq!(waiting(&queue, 2).await, Ok(()));
    assert!(begun(&mut flood) <= REQUESTS_EACH_PASS);
}

#[tokio::test(start_paused = true)]
async fn refusals_do_not_delay_requests() {
    let queue = busy();
    let refusal = || {
        let (queue, share) = (Arc::clone(&queue), share(1));
        let mut wait: Wait = Box::pin(async move {
            queue.send_refusal(&share.holders()).await;
            Ok(())
        });
        assert!(wait.as_mut().now_or_never().is_none());
        wait
    };
    let mut refusals: Vec<_> = (0..1_000).map(|_| refusal()).collect();
    let mut requests: Vec<_> = (0..10 * REQUESTS_EACH_PASS).map(|_| waiting(&queue, 2)).collect();
    while !requests.is_empty() {
        yield_now().await;
        begun(&mut requests);
    }
    assert_eq!(begun(&mut refusals), 10 * REFUSALS_EACH_PASS);
}

#[tokio::test(start_paused = true)]
async fn requests_whose_callers_have_left_take_no_turn() {
    let queue = busy();
    drop((0..100).map(|_| waiting(&queue, 1)).collect::<Vec<_>>());
    assert_eq!(queue.waiting_gauge.get(), 0);
    let mut stays = vec![waiting(&queue, 1)];
    yield_now().await;
    yield_now().await;
    assert_eq!(begun(&mut stays), 1);
}

#[tokio::test(start_paused = true)]
async fn one_key_cannot_fill_the_start_queue() {
    let queue = busy();
    let mut held = Vec::new();
    let refused = loop {
        let mut wait = wait(&queue, 1);
        match wait.as_mut().now_or_never() {
            Some(refused) => break refused,
            None => held.push(wait),
        }
    };
    assert_eq!((refused, held.len()), (Err(NotAdmitted::Full), MAX_WAITING / 4 * 3));
    drop(waiting(&queue, 2));
}

/// A core that never runs a pass: its queue has a request, but no task serves it.
#[tokio::test(start_paused = true)]
async fn queued_request_is_refused_after_the_maximum_wait() {
    let queue = busy();
    queue.waiting().is_running = true;
    let (wait, began) = (waiting(&queue, 1), Instant::now());
    advance(MAX_WAIT / 2).await;
    assert_eq!((wait.await, began.elapsed()), (Err(NotAdmitted::Full), MAX_WAIT));
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_a_place_that_is_about_to_be_released() {
    let (queue, serving) = (busy(), Arc::new(ServingState::default()));
    let enter = || serving.enter(8, 1_000_000);
    let (flood, other) = (share(1), share(2));
    let mut requests: Vec<_> = (0..8).map(|_| Some(enter())).collect();
    let mut waits: Vec<_> = requests.iter().map(|request| wait_for_place(&queue, &flood, request.as_ref())).collect();
    assert_eq!(begun(&mut waits), 0);
    sleep(WAIT).await;
    assert_eq!((begun(&mut waits), serving.requests.used()), (6, 6), "as many as the share of one key");
    // A free place in another key's share is not given to them.
    let single = enter();
    assert_eq!(wait_for_place(&queue, &other, Some(&single)).await, Ok(()));
    assert_eq!((begun(&mut waits), serving.requests.used()), (0, 7));
    // Two of the key's own requests end; beside the other key it may have five.
    requests[..2].fill(None);
    sleep(2 * WAIT).await;
    assert_eq!((begun(&mut waits), serving.requests.used()), (1, 6));
    // No request ends, so the caller is refused.
    let waiting_since = Instant::now();
    assert!(matches!(waits.pop().unwrap().await, Err(NotAdmitted::AboveShare(_))));
    assert!(waiting_since.elapsed() <= MAX_PLACE_WAIT, "{:?}", waiting_since.elapsed());
}
