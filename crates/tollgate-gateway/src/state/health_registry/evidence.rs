//! The callers whose requests' failures determine an account's state. A request can provoke a timeout, an error or an unreadable
//! answer, by asking a slow model for a long answer, for instance. A failure counts for its own key only, until a second key has
//! had one too, and for the keys of its member only, until a key of another member has. Answers against an account that a request
//! can provoke are kept apart, in [`super::suspicion`], because one of them takes effect.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use tollgate_core::{Concerned, HealthState, Observation, Requester};

use crate::state::shares::Bound;

/// The callers whose requests saw an account fail since it last answered.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// `None`: no caller's request did.
    seen_by: Mutex<Option<Concerned>>,
    /// The digest of the only key or member that the state concerns; 0: it concerns everyone. Read by routing without a lock.
    only: AtomicU64,
}

impl Evidence {
    /// Records what an attempt of a request of `by` observed, and the account's state after it. True when the state concerns more
    /// callers than before.
    pub(super) fn record(&self, what: &Observation, by: Option<Requester>, state: &HealthState) -> bool {
        let mut seen_by = self.seen_by.lock().unwrap_or_else(PoisonError::into_inner);
        *seen_by = match (what, by, *seen_by) {
            (
                Observation::Timeout | Observation::BadAnswer | Observation::ServerError | Observation::PausingStatus { .. },
                Some(by),
                before,
            ) => Some(before.map_or_else(|| Bound::AccountHealth.share().concerned(by), |concerned| concerned.seen_by(by))),
            (Observation::Success { .. } | Observation::TestPassed, ..) if *state == HealthState::Usable => None,
            (Observation::Success { .. } | Observation::Abandoned | Observation::RequestRefused, _, before) => before,
            _ => Some(Concerned::Everyone),
        };
        let only = seen_by.filter(|_| *state != HealthState::Usable).map_or(0, digest);
        let before = self.only.swap(only, Ordering::Relaxed);
        before != 0 && only != before && *state != HealthState::Usable
    }

    /// Makes the state apply to everyone, because requests are not its origin.
    pub(super) fn concern_all(&self) {
        *self.seen_by.lock().unwrap_or_else(PoisonError::into_inner) = Some(Concerned::Everyone);
        self.only.store(0, Ordering::Relaxed);
    }

    /// True if the state applies to requests of `by`; with `None`, to those of any caller.
    pub(super) fn concerns(&self, by: Option<Requester>) -> bool {
        let only = self.only.load(Ordering::Relaxed);
        only == 0 || by.is_none_or(|by| [Concerned::Key(by), Concerned::Member(by.member)].map(digest).contains(&only))
    }

    /// True if the state applies to one key or member only.
    pub(super) fn is_of_some(&self) -> bool {
        self.only.load(Ordering::Relaxed) != 0
    }
}

/// The random half of the id, never 0; 0 for everyone.
#[expect(clippy::cast_possible_truncation, reason = "half of the id")]
pub(super) fn digest(of: Concerned) -> u64 {
    match of {
        Concerned::Key(by) => (by.key.uuid().as_u128() as u64).max(1),
        Concerned::Member(member) => (member.uuid().as_u128() as u64).max(1),
        Concerned::Everyone => 0,
    }
}
