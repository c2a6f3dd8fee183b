//! The worker of one core, with the parts of the gateway that the stages need.

use std::sync::Arc;

use crate::{
    clock::CoreRng,
    state::{shared::Shared, shares::StartQueue, usage_recorder::UsageRecorder},
    upstream::call::Upstream,
};

/// Serves the model requests of one core.
#[derive(Debug)]
pub struct Worker {
    pub shared: Arc<Shared>,
    /// Journal and usage queue of this core.
    pub recorder: Arc<UsageRecorder>,
    pub upstream: Arc<dyn Upstream>,
    pub rng: CoreRng,
    /// Requests of this core that are about to begin.
    pub(crate) starts: Arc<StartQueue>,
}

impl Worker {
    pub fn new(recorder: UsageRecorder, upstream: Arc<dyn Upstream>) -> Result<Self, getrandom::Error> {
        let shared = Arc::clone(&recorder.shared);
        let starts = StartQueue::new(Arc::clone(&shared.clock), shared.tracker.clone(), shared.metrics.waiting_requests());
        Ok(Self { shared, recorder: Arc::new(recorder), upstream, rng: CoreRng::from_os()?, starts })
    }
}
