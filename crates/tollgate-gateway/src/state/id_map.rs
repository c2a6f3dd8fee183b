//! A map from the ids of catalog rows to shared state, read without a lock and replaced as a whole when rows are added or removed.
//!
//! Routing reads accounts in the catalog's order, up to a thousand for one request. Entries are stored in the same order,
//! so the next account is usually the next entry: found without hashing, and already in the processor's cache.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use arc_swap::{ArcSwap, Guard};
use tollgate_core::IdHash;

#[derive(Debug)]
pub(crate) struct IdMap<Id, T> {
    table: ArcSwap<IdTable<Id, T>>,
    /// Serialises replacements of the table.
    replacing: Mutex<()>,
}

#[derive(Debug)]
struct IdTable<Id, T> {
    in_order: Vec<(Id, Arc<T>)>,
    positions: HashMap<Id, usize, IdHash>,
}

impl<Id: Copy + Eq + Hash, T> IdTable<Id, T> {
    fn get(&self, id: Id) -> Option<(usize, &Arc<T>)> {
        let position = *self.positions.get(&id)?;
        Some((position, &self.in_order.get(position)?.1))
    }

    /// The entry at a position, if it belongs to this account.
    fn at(&self, position: usize, id: Id) -> Option<&Arc<T>> {
        self.in_order.get(position).filter(|(known, _)| *known == id).map(|(_, entry)| entry)
    }
}

impl<Id: Copy + Eq + Hash, T> FromIterator<(Id, Arc<T>)> for IdTable<Id, T> {
    /// A repeated id keeps its first entry.
    fn from_iter<I: IntoIterator<Item = (Id, Arc<T>)>>(all: I) -> Self {
        let (mut in_order, mut positions) = (Vec::new(), HashMap::with_hasher(IdHash::default()));
        for (id, entry) in all {
            positions.entry(id).or_insert_with(|| {
                in_order.push((id, entry));
                in_order.len() - 1
            });
        }
        Self { in_order, positions }
    }
}

impl<Id: Copy + Eq + Hash, T> Default for IdMap<Id, T> {
    fn default() -> Self {
        std::iter::empty().collect()
    }
}

impl<Id: Copy + Eq + Hash, T> FromIterator<(Id, Arc<T>)> for IdMap<Id, T> {
    fn from_iter<I: IntoIterator<Item = (Id, Arc<T>)>>(all: I) -> Self {
        Self { table: ArcSwap::from_pointee(all.into_iter().collect()), replacing: Mutex::new(()) }
    }
}

impl<Id: Copy + Eq + Hash, T> IdMap<Id, T> {
    pub(crate) fn get(&self, id: Id) -> Option<Arc<T>> {
        self.table.load().get(id).map(|(_, entry)| Arc::clone(entry))
    }

    /// All entries at this moment, for one routing decision.
    pub(crate) fn snapshot(&self) -> IdMapSnapshot<Id, T> {
        IdMapSnapshot { table: self.table.load(), next: AtomicUsize::new(0) }
    }
}

impl<Id: Copy + Eq + Hash, T: Default> IdMap<Id, T> {
    /// A row's entry, inserted if missing.
    pub(crate) fn get_or_insert(&self, id: Id) -> Arc<T> {
        if let Some(entry) = self.get(id) {
            return entry;
        }
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.table.load();
        if let Some((_, entry)) = current.get(id) {
            return Arc::clone(entry);
        }
        let entry = Arc::<T>::default();
        let all = current.in_order.iter().cloned().chain([(id, Arc::clone(&entry))]);
        self.table.store(Arc::new(all.collect()));
        entry
    }

    /// Replaces the table: entries for these rows, in this order, followed by existing entries for which `needed` is true.
    pub(crate) fn configure(&self, ids: impl IntoIterator<Item = Id>, needed: impl Fn(&T) -> bool) {
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.table.load();
        let entry = |id| (id, current.get(id).map(|(_, entry)| Arc::clone(entry)).unwrap_or_default());
        let others = current.in_order.iter().filter(|(_, entry)| needed(entry)).cloned();
        let all = ids.into_iter().map(entry).chain(others).collect();
        self.table.store(Arc::new(all));
    }
}

/// All entries at one moment, for one routing decision. Not to be stored.
#[derive(Debug)]
pub(crate) struct IdMapSnapshot<Id, T> {
    table: Guard<Arc<IdTable<Id, T>>>,
    /// Position after the entry that was read last.
    next: AtomicUsize,
}

impl<Id: Copy + Eq + Hash, T> IdMapSnapshot<Id, T> {
    #[inline]
    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let next = self.next.load(Ordering::Relaxed);
        if let Some(entry) = self.table.at(next, id) {
            self.next.store(next + 1, Ordering::Relaxed);
            return Some(entry);
        }
        let (position, entry) = self.table.get(id)?;
        self.next.store(position + 1, Ordering::Relaxed);
        Some(entry)
    }

    /// All rows with their entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.table.in_order.iter().map(|(id, entry)| (*id, &**entry))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::{AccountId, Timestamp};

    use super::*;

    fn account(number: u8) -> AccountId {
        AccountId::from_parts(Timestamp(1), [number; 10])
    }

    type Numbers = IdMap<AccountId, Mutex<u32>>;

    #[test]
    fn configure_keeps_entries_of_remaining_and_needed_rows() {
        let numbers = Numbers::default();
        for number in 1..=3 {
            *numbers.get_or_insert(account(number)).lock().unwrap() = number.into();
        }
        numbers.configure([account(2), account(4), account(2)], |number| *number.lock().unwrap() == 3);
        let snapshot = numbers.snapshot();
        let all: Vec<_> = snapshot.iter().map(|(account, number)| (account, *number.lock().unwrap())).collect();
        assert_eq!(all, [(account(2), 2), (account(4), 0), (account(3), 3)]);
        assert!(numbers.get(account(1)).is_none());
    }

    #[test]
    fn concurrent_inserts_create_one_entry() {
        let numbers = Numbers::default();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| (0..100).for_each(|number| *numbers.get_or_insert(account(number)).lock().unwrap() += 1));
            }
        });
        assert!(numbers.snapshot().iter().all(|(_, number)| *number.lock().unwrap() == 4));
        assert_eq!(numbers.snapshot().iter().count(), 100);
    }

    proptest! {
        #[test]
        fn snapshot_finds_entries_in_any_order(requested in prop::collection::vec(0_u8..40, 0..200)) {
            let numbers = Numbers::default();
            numbers.configure((0..30).rev().map(account), |_| false);
            for (number, entry) in (0..).zip(numbers.snapshot().iter()) {
                *entry.1.lock().unwrap() = number;
            }
            let snapshot = numbers.snapshot();
            for number in requested {
                let found = snapshot.get(account(number)).map(|entry| *entry.lock().unwrap());
                prop_assert_eq!(found, (number < 30).then(|| 29 - u32::from(number)));
            }
        }
    }
}
