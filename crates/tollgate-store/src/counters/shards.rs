//! Sharding of maps by subject and by request.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{RequestId, Subject};

pub(super) const SHARDS: usize = 64;

/// The shard of a subject, by the last byte of its id: that byte of a version 7 UUID is random.
pub(super) fn shard_of(subject: Subject) -> usize {
    let uuid = match subject {
        Subject::Key(id) => id.uuid(),
        Subject::Member(id) => id.uuid(),
        Subject::Group(id) => id.uuid(),
        Subject::Channel(id) => id.uuid(),
        Subject::Gateway => return 0,
    };
    usize::from(uuid.as_bytes()[15]) % SHARDS
}

pub(super) fn shard_of_request(id: RequestId) -> usize {
    usize::from(id.uuid().as_bytes()[15]) % SHARDS
}

/// The shards of these subjects, sorted and without duplicates. Locking several shards in this order cannot deadlock.
pub(super) fn lock_order(subjects: impl Iterator<Item = Subject>) -> Vec<usize> {
    let mut shards: Vec<usize> = subjects.map(shard_of).collect();
    shards.sort_unstable();
    shards.dedup();
    shards
}

/// Locks a mutex. Poisoning is ignored: counting goes on after a panic in another thread.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
