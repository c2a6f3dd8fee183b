//! Disabled keys and suspended members: those that other nodes have reported and this one has not read from the database yet, and
//! those whose running streams end.
//!
//! Bound: 100,000 of each; further ones are left to the database.

use std::{
    collections::HashMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use tollgate_core::{Revision, Subject};

const MAX_BLOCKED: usize = 100_000;

/// Blocked subjects, each with the catalog revision at which it was blocked.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    since: RwLock<HashMap<Subject, Revision>>,
    /// False while nothing is blocked, so that no lock is taken.
    any: AtomicBool,
}

impl Blocked {
    /// Adds a subject; false if it was blocked already.
    pub(super) fn add(&self, subject: Subject, revision: Revision) -> bool {
        let mut since = self.since.write().unwrap_or_else(PoisonError::into_inner);
        if since.len() >= MAX_BLOCKED && !since.contains_key(&subject) {
            return false;
        }
        let was = since.get(&subject).copied();
        since.insert(subject, was.map_or(revision, |was| was.max(revision)));
        self.any.store(true, Ordering::Release);
        was.is_none()
    }

    /// Removes the subjects for which `ends` is true; returns whether there were any.
    pub(super) fn remove(&self, ends: impl Fn(Subject, Revision) -> bool) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut since = self.since.write().unwrap_or_else(PoisonError::into_inner);
        let before = since.len();
        since.retain(|subject, revision| !ends(*subject, *revision));
        self.any.store(!since.is_empty(), Ordering::Release);
        since.len() < before
    }

    pub(super) fn contains(&self, subject: Subject) -> bool {
        self.any.load(Ordering::Acquire) && self.since.read().unwrap_or_else(PoisonError::into_inner).contains_key(&subject)
    }
}
