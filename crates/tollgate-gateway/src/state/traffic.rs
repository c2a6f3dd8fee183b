//! State derived from this process's traffic: account usage, fields that upstreams refuse, time to first token, hedge
//! spending. Shared by all cores and lost when the process ends.

use std::sync::Arc;

use tollgate_core::{
    Account, AccountId, CandidateView, CapacityLimits, CapacityLoad, Channel, ChannelId, GroupId, ModelMapping, NanoUsd, Requester,
    Timestamp,
};
use tollgate_protocol::{FieldPath, Protocol, RequestSummary};

use crate::{
    clock::Clock,
    state::{
        capacity_limiter::{CapacityLimiters, LimitedId, LimitedRow, LimiterSnapshot, Permit},
        change_signal::ChangeSignal,
        hedge_budget::HedgeSpending,
        latency_estimate::LatencyEstimate,
        learned_parameters::LearnedParameters,
        token_count_rate::TokenCountRate,
    },
    upstream::{client::Trust, media::MediaFetcher},
};

/// Traffic state of the process.
#[derive(Debug)]
pub struct Traffic {
    pub(crate) limiters: Arc<CapacityLimiters>,
    pub(crate) learned_parameters: LearnedParameters,
    /// Fetches media that requests refer to by URL, and caches it.
    pub(crate) media: MediaFetcher,
    pub(crate) latency: LatencyEstimate,
    pub(crate) hedges: Arc<HedgeSpending>,
    pub(crate) token_counts: TokenCountRate,
    /// Notified when the catalog is replaced.
    pub(crate) catalogs: ChangeSignal,
}

impl Traffic {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, trust: Arc<Trust>) -> Self {
        Self {
            limiters: CapacityLimiters::new(Arc::clone(&clock)),
            token_counts: TokenCountRate::new(Arc::clone(&clock)),
            media: MediaFetcher::new(clock, trust),
            learned_parameters: LearnedParameters::default(),
            latency: LatencyEstimate::default(),
            hedges: Arc::default(),
            catalogs: ChangeSignal::default(),
        }
    }

    /// Adds the costs of hedge attempts of UTC day `day` that usage records report.
    pub fn hedged_before(&self, costs: impl IntoIterator<Item = (GroupId, NanoUsd)>, day: i64) {
        self.hedges.add_spent(costs, day);
    }

    /// Creates limiters for the configured channels and their accounts, and drops unused limiters of all others.
    pub fn configure<'a>(&self, channels: impl IntoIterator<Item = &'a Channel>) {
        self.limiters.configure(channels);
    }

    /// Acquires a permit on an account of a channel for a request estimated at `tokens`; `None` when either is at capacity.
    #[must_use]
    pub fn try_acquire(&self, channel: &Channel, account: &Account, tokens: u64) -> Option<Permit> {
        self.limiters.try_acquire(LimitedRow::of_attempt(channel, account), tokens)
    }

    /// The traffic state of the candidates of a request of `by`.
    #[must_use]
    pub fn view<'a>(
        &'a self,
        summary: &'a RequestSummary,
        from: Protocol,
        by: Requester,
        tokens: u64,
        now: Timestamp,
    ) -> TrafficView<'a> {
        let (limiters, learned_parameters) = (self.limiters.snapshot(), &self.learned_parameters);
        TrafficView { limiters, learned_parameters, summary, from, by, tokens, now }
    }
}

/// Traffic state as seen by one routing decision. Not to be stored.
#[derive(Debug)]
pub struct TrafficView<'a> {
    limiters: LimiterSnapshot<'a>,
    learned_parameters: &'a LearnedParameters,
    summary: &'a RequestSummary,
    from: Protocol,
    by: Requester,
    tokens: u64,
    now: Timestamp,
}

impl CandidateView for TrafficView<'_> {
    fn account_load(&self, account: AccountId, limits: CapacityLimits) -> CapacityLoad {
        self.limiters.load(LimitedId::Account(account), limits, self.tokens)
    }

    fn channel_load(&self, channel: ChannelId, limits: CapacityLimits) -> CapacityLoad {
        self.limiters.load(LimitedId::Channel(channel), limits, self.tokens)
    }

    fn has_unsupported_fields(&self) -> bool {
        !self.learned_parameters.is_empty()
    }

    fn unsupported_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        self.learned_parameters.of(channel, &serves.upstream, self.from, &self.summary.fields, self.by, self.now)
    }
}
