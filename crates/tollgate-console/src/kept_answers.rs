//! Cached answers of the admin API, shared by the pages of several people for a short time: sums of long periods, which read the
//! most and change the least, and what many pages read, such as the names that fields suggest. Of several concurrent requests for the
//! same answer, one computes it. The admin API itself caches nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use moka::{Expiry, sync::Cache};
use serde_json::Value;
use tokio::{sync::Mutex as Turn, time::timeout};
use tollgate_store::AdminScope;

/// Maximum age of a shared answer if nothing else is said.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(20);
/// Maximum number of cached answers. Those of pages have at most some hundred rows.
const MAX_KEPT: u64 = 128;
/// Longest wait for another request that computes the same answer; after that, the answer is computed again.
const MAX_WAIT: Duration = Duration::from_secs(6);

/// The inputs of an answer besides the data: the route, the scope of the reader, and the query.
pub(crate) type AnswerKey = (&'static str, AdminScope, String);

#[derive(Debug)]
pub(crate) struct KeptAnswers {
    kept: Cache<AnswerKey, KeptAnswer>,
    /// A lock for each answer that is being computed; its holder computes. An entry without holders is stale.
    computed: Mutex<HashMap<AnswerKey, Arc<Turn<()>>>>,
}

#[derive(Clone, Debug)]
struct KeptAnswer {
    answer: Arc<Value>,
    kept_for: Duration,
}

struct KeptFor;

impl Expiry<AnswerKey, KeptAnswer> for KeptFor {
    fn expire_after_create(&self, _: &AnswerKey, kept: &KeptAnswer, _: Instant) -> Option<Duration> {
        Some(kept.kept_for)
    }
}

impl Default for KeptAnswers {
    fn default() -> Self {
        let kept = Cache::builder().max_capacity(MAX_KEPT).expire_after(KeptFor).build();
        Self { kept, computed: Mutex::default() }
    }
}

impl KeptAnswers {
    /// The cached answer, or the one that `compute` returns. Concurrent requests for the same answer wait for it. If it fails or
    /// its request is cancelled, the next of them computes.
    pub(crate) async fn get<E>(
        &self,
        question: AnswerKey,
        kept_for: Duration,
        compute: impl Future<Output = Result<Value, E>>,
    ) -> Result<Arc<Value>, E> {
        if let Some(kept) = self.kept.get(&question) {
            return Ok(kept.answer);
        }
        let turn = self.turn_of(&question);
        let held = timeout(MAX_WAIT, turn.lock()).await;
        if let Some(kept) = self.kept.get(&question) {
            return Ok(kept.answer);
        }
        let answer = Arc::new(compute.await?);
        self.kept.insert(question, KeptAnswer { answer: Arc::clone(&answer), kept_for });
        drop(held);
        Ok(answer)
    }

    fn turn_of(&self, question: &AnswerKey) -> Arc<Turn<()>> {
        let mut computed = self.in_progress();
        // Removes stale entries, so that there are at most as many as requests of pages.
        computed.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(computed.entry(question.clone()).or_default())
    }

    fn in_progress(&self) -> MutexGuard<'_, HashMap<AnswerKey, Arc<Turn<()>>>> {
        self.computed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::{join, join_all};
    use serde_json::json;
    use tokio::time::{Instant, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn question(scope: AdminScope, query: &str) -> AnswerKey {
        ("sum_usage", scope, query.to_owned())
    }

    /// Computes for a second, and counts how often.
    async fn slow(computed: &AtomicUsize, found: Result<Value, &'static str>) -> Result<Value, &'static str> {
        computed.fetch_add(1, Ordering::Relaxed);
        sleep(SECOND).await;
        found
    }

    #[tokio::test(start_paused = true)]
    async fn answer_is_shared_between_equal_queries_of_one_scope() {
        let (answers, computed) = (KeptAnswers::default(), AtomicUsize::new(0));
        let ask = |scope, query, found: i32| answers.get(question(scope, query), KEPT_FOR, slow(&computed, Ok(json!(found))));
        assert_eq!(ask(AdminScope::Admin, "by=key", 1).await.as_deref(), Ok(&json!(1)));
        assert_eq!(ask(AdminScope::Admin, "by=key", 2).await.as_deref(), Ok(&json!(1)), "it is kept");
        assert_eq!(ask(AdminScope::Operator, "by=key", 3).await.as_deref(), Ok(&json!(3)));
        assert_eq!(ask(AdminScope::Admin, "by=model", 4).await.as_deref(), Ok(&json!(4)));
        assert_eq!(computed.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_is_kept_as_long_as_its_request_says() {
        let (answers, computed) = (KeptAnswers::default(), AtomicUsize::new(0));
        for (query, kept_for, expected) in [("by=key", Duration::ZERO, 2), ("by=model", KEPT_FOR, 1)] {
            let first = answers.get(question(AdminScope::Admin, query), kept_for, slow(&computed, Ok(json!(1)))).await;
            let second = answers.get(question(AdminScope::Admin, query), kept_for, slow(&computed, Ok(json!(2)))).await;
            assert_eq!((first.as_deref(), second.as_deref()), (Ok(&json!(1)), Ok(&json!(expected))), "{query}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_equal_queries_are_computed_once() {
        let (answers, computed) = (KeptAnswers::default(), AtomicUsize::new(0));
        let asked = question(AdminScope::Admin, "by=key");
        let all = (0..20).map(|number| answers.get(asked.clone(), KEPT_FOR, slow(&computed, Ok(json!(number)))));
        let began = Instant::now();
        assert!(join_all(all).await.iter().all(|answer| answer.as_deref() == Ok(&json!(0))));
        assert_eq!((computed.load(Ordering::Relaxed), began.elapsed()), (1, SECOND));
        answers.turn_of(&question(AdminScope::Admin, "other"));
        assert_eq!(answers.in_progress().len(), 1, "finished questions are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_or_cancelled_computation_does_not_affect_waiting_requests() {
        let (answers, computed) = (KeptAnswers::default(), AtomicUsize::new(0));
        let asked = || question(AdminScope::Admin, "by=key");
        let first = answers.get(asked(), KEPT_FOR, slow(&computed, Err("busy")));
        let second = answers.get(asked(), KEPT_FOR, slow(&computed, Ok(json!(2))));
        let (first, second) = join(first, second).await;
        assert_eq!((first, second.as_deref()), (Err("busy"), Ok(&json!(2))));

        let asked = || question(AdminScope::Admin, "by=model");
        let cancelled = timeout(SECOND / 2, answers.get(asked(), KEPT_FOR, slow(&computed, Ok(json!(1)))));
        let waiting = answers.get(asked(), KEPT_FOR, slow(&computed, Ok(json!(2))));
        let began = Instant::now();
        let (cancelled, waiting) = join(cancelled, waiting).await;
        assert!(cancelled.is_err());
        assert_eq!((waiting.as_deref(), began.elapsed()), (Ok(&json!(2)), SECOND * 3 / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_another_computation_is_bounded() {
        let answers = KeptAnswers::default();
        let asked = || question(AdminScope::Admin, "by=key");
        let stuck = answers.get(asked(), KEPT_FOR, async {
            sleep(SECOND * 60).await;
            Ok::<_, &str>(json!(1))
        });
        let began = Instant::now();
        let other = async {
            let answer = answers.get(asked(), KEPT_FOR, async { Ok::<_, &str>(json!(2)) }).await;
            (answer.as_deref() == Ok(&json!(2)), began.elapsed())
        };
        let (_, other) = join(stuck, other).await;
        assert_eq!(other, (true, MAX_WAIT));
    }
}
