//! Usage of service keys: requests, amounts and the last request.

use tollgate_core::{MemberId, NanoUsd, Timestamp};

/// Selects the requests to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUseFilter {
    /// Only requests charged to this member.
    pub member: Option<MemberId>,
    pub since: Timestamp,
}

/// Requests of a key and their sale amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUse {
    pub requests: u64,
    /// Amount charged to its member.
    pub sale: NanoUsd,
}

/// The last request of a key that is in the usage log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastUse {
    /// To the millisecond.
    pub at: Timestamp,
    /// Address of the caller, if it is known.
    pub address: Option<String>,
}

impl KeyUse {
    pub(crate) fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.sale = NanoUsd(self.sale.0.saturating_add(other.sale.0));
    }
}
