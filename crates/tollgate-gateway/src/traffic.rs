//! What the traffic of this process teaches, shared by all cores and forgotten at its end: how much room there is on
//! accounts, which fields upstreams refuse, how soon first tokens come.

use std::sync::Arc;

use tollgate_core::{AccountId, GroupId, NanoUsd};

use crate::{Clock, account_room::AccountRooms, hedge_spending::HedgeSpending, lessons::Lessons, media::MediaFetcher, pace::Pace};

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
        }
    }

    /// What second attempts of a UTC day have cost already, as far as usage records say.
    pub fn hedged_before(&self, costs: impl IntoIterator<Item = (GroupId, NanoUsd)>, day: i64) {
        self.hedges.spent_before(costs, day);
    }

    /// Forgets accounts that are no longer configured.
    pub fn retain(&self, configured: impl Fn(AccountId) -> bool) {
        self.rooms.retain(configured);
    }
}
