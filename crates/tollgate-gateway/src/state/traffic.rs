//! What the traffic of this process teaches, shared by all cores and forgotten at its end: how much room there is on
//! accounts, which fields upstreams refuse, how soon first tokens come.

use std::{fmt, sync::Arc};

use tollgate_core::{
    Account, AccountId, AccountLimits, AccountLoad, CandidateView, Channel, GroupId, ModelMapping, NanoUsd, Timestamp,
};
use tollgate_protocol::{FieldPath, Protocol, RequestSummary};

use crate::{
    clock::Clock,
    state::{
        account_limiter::{AccountLimiters, LimiterSnapshot, Permit},
        change_signal::ChangeSignal,
        hedge_budget::HedgeSpending,
        latency_estimate::LatencyEstimate,
        learned_parameters::LearnedParameters,
    },
    upstream::media::MediaFetcher,
};

/// One for the process.
#[derive(Debug)]
pub struct Traffic {
    /// Room on accounts.
    pub(crate) limiters: Arc<AccountLimiters>,
    /// Fields that upstreams refused.
    pub(crate) learned_parameters: LearnedParameters,
    /// What was fetched for callers who gave addresses.
    pub(crate) media: MediaFetcher,
    /// How soon first tokens come.
    pub(crate) latency: LatencyEstimate,
    /// What second attempts cost.
    pub(crate) hedges: Arc<HedgeSpending>,
    /// That another catalog is in force.
    pub(crate) catalogs: ChangeSignal,
}

impl Traffic {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            limiters: AccountLimiters::new(Arc::clone(&clock)),
            media: MediaFetcher::new(clock),
            learned_parameters: LearnedParameters::default(),
            latency: LatencyEstimate::default(),
            hedges: Arc::default(),
            catalogs: ChangeSignal::default(),
        }
    }

    /// What second attempts of a UTC day have cost already, as far as usage records say.
    pub fn hedged_before(&self, costs: impl IntoIterator<Item = (GroupId, NanoUsd)>, day: i64) {
        self.hedges.spent_before(costs, day);
    }

    /// These accounts are configured now: makes room for them, and forgets all others.
    pub fn configure<'a>(&self, accounts: impl IntoIterator<Item = &'a Account>) {
        self.limiters.configure(accounts);
    }

    /// Sets room aside on an account for a request that is estimated at `tokens`; `None`: there is none.
    #[must_use]
    pub fn take(&self, account: &Account, tokens: u64) -> Option<Permit> {
        self.limiters.try_acquire(account, tokens)
    }

    /// What it knows of a request's candidates.
    #[must_use]
    pub fn view<'a>(&'a self, summary: &'a RequestSummary, from: Protocol, tokens: u64, now: Timestamp) -> TrafficView<'a> {
        TrafficView { limiters: self.limiters.snapshot(), learned_parameters: &self.learned_parameters, summary, from, tokens, now }
    }
}

/// Candidates as one request meets them, as far as this process's traffic tells: for one choice, not to be kept.
pub struct TrafficView<'a> {
    limiters: LimiterSnapshot<'a>,
    learned_parameters: &'a LearnedParameters,
    summary: &'a RequestSummary,
    from: Protocol,
    tokens: u64,
    now: Timestamp,
}

impl CandidateView for TrafficView<'_> {
    fn account_load(&self, account: AccountId, bounds: AccountLimits) -> AccountLoad {
        self.limiters.load(account, bounds, self.tokens)
    }

    fn has_unsupported_fields(&self) -> bool {
        !self.learned_parameters.is_empty()
    }

    fn unsupported_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        self.learned_parameters.of(channel, &serves.upstream, self.from, &self.summary.fields, self.now)
    }
}

impl fmt::Debug for TrafficView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficView").finish_non_exhaustive()
    }
}
