//! What the traffic of this process teaches, shared by all cores and forgotten at its end: how much room there is on
//! accounts, which fields upstreams refuse, how soon first tokens come.

use std::sync::Arc;

use tollgate_core::{AccountId, AccountLoad, Catalog, Timestamp};

use crate::{
    Busy, Clock, Known,
    account_room::AccountRooms,
    known::MOST_BUSY,
    lessons::Lessons,
    media::MediaFetcher,
    pace::{HedgeSpending, Pace},
};

/// Models with refused fields that are told of.
const MOST_TOLD: usize = 1_000;

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

    /// What somebody beside the process may want to know, such as `explain`.
    pub fn known(&self, catalog: &Catalog, now: Timestamp) -> Known {
        let accounts = catalog.channels.values().flat_map(|channel| &channel.accounts);
        let busy = accounts.filter_map(|account| {
            let until = match self.rooms.load(account, 1) {
                AccountLoad::Free => return None,
                AccountLoad::AtConcurrency => None,
                AccountLoad::AtRate { until } => Some(until),
            };
            Some(Busy { account: account.id, until })
        });
        let busy = busy.take(MOST_BUSY).collect();
        Known { at: now, learned: Known::of_lessons(self.lessons.all(MOST_TOLD, now)), busy }
    }

    /// Forgets accounts that are no longer configured.
    pub fn retain(&self, configured: impl Fn(AccountId) -> bool) {
        self.rooms.retain(configured);
    }
}
