//! What the traffic of this process teaches, shared by all cores and forgotten at its end: how much room there is on
//! accounts, and which fields upstreams refuse.

use std::sync::Arc;

use tollgate_core::AccountId;

use crate::{Clock, account_room::AccountRooms, lessons::Lessons};

/// One for the process.
#[derive(Debug)]
pub struct Traffic {
    /// Room on accounts.
    pub(crate) rooms: Arc<AccountRooms>,
    /// Fields that upstreams refused.
    pub(crate) lessons: Lessons,
}

impl Traffic {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { rooms: AccountRooms::new(clock), lessons: Lessons::default() }
    }

    /// Forgets accounts that are no longer configured.
    pub fn retain(&self, configured: impl Fn(AccountId) -> bool) {
        self.rooms.retain(configured);
    }
}
