//! The keys whose requests' failures determine an account's state. A request can provoke a timeout, an error or an unreadable
//! answer, by asking a slow model for a long answer, for instance. A failure counts for its own key only, until a second key has
//! had one too.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use tollgate_core::{HealthState, KeyId, Observation};

/// The keys that saw an account fail since it last answered.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    seen_by: Mutex<SeenBy>,
    /// The digest of the only key that the state concerns; 0: it concerns every key. Read by routing without a lock.
    only: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SeenBy {
    #[default]
    None,
    One(KeyId),
    Several,
}

impl Evidence {
    /// Records what an attempt of a request of `key` observed, and the account's state after it. True when the state concerns more
    /// keys than before.
    pub(super) fn record(&self, what: &Observation, key: Option<KeyId>, state: &HealthState) -> bool {
        let mut seen_by = self.seen_by.lock().unwrap_or_else(PoisonError::into_inner);
        *seen_by = match (what, key, *seen_by) {
            (Observation::Timeout | Observation::BadAnswer | Observation::ServerError, Some(key), SeenBy::None) => SeenBy::One(key),
            (Observation::Timeout | Observation::BadAnswer | Observation::ServerError, Some(key), SeenBy::One(one))
                if one == key =>
            {
                SeenBy::One(one)
            }
            (Observation::Success { .. } | Observation::TestPassed, ..) if *state == HealthState::Usable => SeenBy::None,
            (Observation::Success { .. } | Observation::Abandoned | Observation::RequestRefused, _, before) => before,
            _ => SeenBy::Several,
        };
        let only = match *seen_by {
            SeenBy::One(key) if *state != HealthState::Usable => digest(key),
            SeenBy::One(_) | SeenBy::None | SeenBy::Several => 0,
        };
        let before = self.only.swap(only, Ordering::Relaxed);
        before != 0 && only == 0 && *state != HealthState::Usable
    }

    /// The state has another origin and applies to every key.
    pub(super) fn concern_all(&self) {
        *self.seen_by.lock().unwrap_or_else(PoisonError::into_inner) = SeenBy::Several;
        self.only.store(0, Ordering::Relaxed);
    }

    /// Whether the state concerns requests of `key`; `None`: of any key.
    pub(super) fn concerns(&self, key: Option<KeyId>) -> bool {
        let only = self.only.load(Ordering::Relaxed);
        only == 0 || key.is_none_or(|key| digest(key) == only)
    }

    pub(super) fn is_of_one_key(&self) -> bool {
        self.only.load(Ordering::Relaxed) != 0
    }
}

/// The random half of a key's id, never 0.
#[expect(clippy::cast_possible_truncation, reason = "half of the id")]
fn digest(key: KeyId) -> u64 {
    (key.uuid().as_u128() as u64).max(1)
}
