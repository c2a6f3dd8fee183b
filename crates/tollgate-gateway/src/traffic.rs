//! What the traffic of this process teaches, shared by all cores and forgotten at its end: how much room there is on
//! accounts, which fields upstreams refuse, how soon first tokens come.

use std::{fmt, sync::Arc};

use tollgate_core::{Account, AccountBounds, AccountId, AccountLoad, CandidateView, Channel, GroupId, NanoUsd, Serves, Timestamp};
use tollgate_protocol::{FieldPath, Outline, Protocol};

use crate::{
    Clock,
    account_room::{AccountRooms, RoomsLook, Slot},
    hedge_spending::HedgeSpending,
    lessons::Lessons,
    media::MediaFetcher,
    news::News,
    pace::Pace,
};

/// One for the process.
#[derive(Debug)]
pub struct Traffic {
    /// Room on accounts.
    pub(crate) rooms: Arc<AccountRooms>,
    /// Fields that upstreams refused.
    pub(crate) lessons: Lessons,
    /// What was fetched for callers who gave addresses.
    pub(crate) media: MediaFetcher,
    /// How soon first tokens come.
    pub(crate) pace: Pace,
    /// What second attempts cost.
    pub(crate) hedges: Arc<HedgeSpending>,
    /// That another catalog is in force.
    pub(crate) catalogs: News,
}

impl Traffic {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            rooms: AccountRooms::new(Arc::clone(&clock)),
            media: MediaFetcher::new(clock),
            lessons: Lessons::default(),
            pace: Pace::default(),
            hedges: Arc::default(),
            catalogs: News::default(),
        }
    }

    /// What second attempts of a UTC day have cost already, as far as usage records say.
    pub fn hedged_before(&self, costs: impl IntoIterator<Item = (GroupId, NanoUsd)>, day: i64) {
        self.hedges.spent_before(costs, day);
    }

    /// These accounts are configured now: makes room for them, and forgets all others.
    pub fn configure<'a>(&self, accounts: impl IntoIterator<Item = &'a Account>) {
        self.rooms.configure(accounts);
    }

    /// Sets room aside on an account for a request that is estimated at `tokens`; `None`: there is none.
    #[must_use]
    pub fn take(&self, account: &Account, tokens: u64) -> Option<Slot> {
        self.rooms.take(account, tokens)
    }

    /// What it knows of a request's candidates.
    #[must_use]
    pub fn view<'a>(&'a self, outline: &'a Outline, from: Protocol, tokens: u64, now: Timestamp) -> TrafficView<'a> {
        TrafficView { rooms: self.rooms.look(), lessons: &self.lessons, outline, from, tokens, now }
    }
}

/// Candidates as one request meets them, as far as this process's traffic tells: for one choice, not to be kept.
pub struct TrafficView<'a> {
    rooms: RoomsLook<'a>,
    lessons: &'a Lessons,
    outline: &'a Outline,
    from: Protocol,
    tokens: u64,
    now: Timestamp,
}

impl CandidateView for TrafficView<'_> {
    fn account_load(&self, account: AccountId, bounds: AccountBounds) -> AccountLoad {
        self.rooms.load(account, bounds, self.tokens)
    }

    fn has_learned(&self) -> bool {
        !self.lessons.is_empty()
    }

    fn learned(&self, channel: &Channel, serves: &Serves) -> Vec<FieldPath> {
        self.lessons.of(channel, &serves.upstream, self.from, &self.outline.fields, self.now)
    }
}

impl fmt::Debug for TrafficView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficView").finish_non_exhaustive()
    }
}
