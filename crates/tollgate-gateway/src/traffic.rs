//! What the traffic of this process teaches, shared by all cores and forgotten at its end: how much room there is on
//! accounts, which fields upstreams refuse, how soon first tokens come.

use std::sync::Arc;

use tollgate_core::AccountId;

use crate::{
    Clock,
    account_room::AccountRooms,
    lessons::Lessons,
    media::MediaFetcher,
    pace::{HedgeSpending, Pace},
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
    pub(crate) hedges: HedgeSpending,
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
            hedges: HedgeSpending::default(),
        }
    }

    /// Forgets accounts that are no longer configured.
    pub fn retain(&self, configured: impl Fn(AccountId) -> bool) {
        self.rooms.retain(configured);
    }
}
