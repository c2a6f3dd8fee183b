//! What is kept for each account, shared by all cores: read without a lock, a place at a time; replaced as a whole when
//! accounts come and go.
//!
//! Choosing asks for the accounts of a catalog in the catalog's order, a thousand of them for one request. They lie here in
//! that order too, so the account that is asked for is most likely the one behind the last: found without hashing, and
//! already in the processor's cache.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use arc_swap::{ArcSwap, Guard};
use tollgate_core::{AccountId, IdHash};

/// A place for each account.
#[derive(Debug)]
pub(crate) struct AccountMap<T> {
    places: ArcSwap<AccountTable<T>>,
    /// Held while they are replaced.
    replacing: Mutex<()>,
}

/// The places at one moment.
#[derive(Debug)]
struct AccountTable<T> {
    in_order: Vec<(AccountId, Arc<T>)>,
    positions: HashMap<AccountId, usize, IdHash>,
}

impl<T> AccountTable<T> {
    fn get(&self, account: AccountId) -> Option<(usize, &Arc<T>)> {
        let position = *self.positions.get(&account)?;
        Some((position, &self.in_order.get(position)?.1))
    }

    /// The place at a position, if it is this account's.
    fn at(&self, position: usize, account: AccountId) -> Option<&Arc<T>> {
        self.in_order.get(position).filter(|(there, _)| *there == account).map(|(_, place)| place)
    }
}

impl<T> FromIterator<(AccountId, Arc<T>)> for AccountTable<T> {
    /// An account inserted twice keeps its first place.
    fn from_iter<I: IntoIterator<Item = (AccountId, Arc<T>)>>(all: I) -> Self {
        let (mut in_order, mut positions) = (Vec::new(), HashMap::with_hasher(IdHash::default()));
        for (account, place) in all {
            positions.entry(account).or_insert_with(|| {
                in_order.push((account, place));
                in_order.len() - 1
            });
        }
        Self { in_order, positions }
    }
}

impl<T> Default for AccountMap<T> {
    fn default() -> Self {
        std::iter::empty().collect()
    }
}

impl<T> FromIterator<(AccountId, Arc<T>)> for AccountMap<T> {
    fn from_iter<I: IntoIterator<Item = (AccountId, Arc<T>)>>(all: I) -> Self {
        Self { places: ArcSwap::from_pointee(all.into_iter().collect()), replacing: Mutex::new(()) }
    }
}

impl<T> AccountMap<T> {
    /// An account's place, if it has one.
    pub(crate) fn get(&self, account: AccountId) -> Option<Arc<T>> {
        self.places.load().get(account).map(|(_, place)| Arc::clone(place))
    }

    /// All places as they are, for one choice.
    pub(crate) fn snapshot(&self) -> AccountSnapshot<T> {
        AccountSnapshot { places: self.places.load(), next: AtomicUsize::new(0) }
    }
}

impl<T: Default> AccountMap<T> {
    /// An account's place; created for an unknown account.
    pub(crate) fn get_or_insert(&self, account: AccountId) -> Arc<T> {
        if let Some(place) = self.get(account) {
            return place;
        }
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.places.load();
        if let Some((_, place)) = known.get(account) {
            return Arc::clone(place);
        }
        let place = Arc::<T>::default();
        let all = known.in_order.iter().cloned().chain([(account, Arc::clone(&place))]);
        self.places.store(Arc::new(all.collect()));
        place
    }

    /// These accounts have a place from now on, in this order, so that no request has to make one; of the others those that
    /// are still needed.
    pub(crate) fn configure(&self, accounts: impl IntoIterator<Item = AccountId>, needed: impl Fn(&T) -> bool) {
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.places.load();
        let place = |account| (account, known.get(account).map(|(_, place)| Arc::clone(place)).unwrap_or_default());
        let others = known.in_order.iter().filter(|(_, place)| needed(place)).cloned();
        let all = accounts.into_iter().map(place).chain(others).collect();
        self.places.store(Arc::new(all));
    }
}

/// All places at one moment: for one choice, not to be kept.
pub(crate) struct AccountSnapshot<T> {
    places: Guard<Arc<AccountTable<T>>>,
    /// Behind the place that was asked for last.
    next: AtomicUsize,
}

impl<T> AccountSnapshot<T> {
    /// An account's place, if it has one.
    #[inline]
    pub(crate) fn get(&self, account: AccountId) -> Option<&T> {
        let next = self.next.load(Ordering::Relaxed);
        if let Some(place) = self.places.at(next, account) {
            self.next.store(next + 1, Ordering::Relaxed);
            return Some(place);
        }
        let (position, place) = self.places.get(account)?;
        self.next.store(position + 1, Ordering::Relaxed);
        Some(place)
    }

    /// Every account and its place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (AccountId, &T)> {
        self.places.in_order.iter().map(|(account, place)| (*account, &**place))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::Timestamp;

    use super::*;

    fn account(number: u8) -> AccountId {
        AccountId::from_parts(Timestamp(1), [number; 10])
    }

    type Numbers = AccountMap<Mutex<u32>>;

    #[test]
    fn who_stays_keeps_its_place_and_who_goes_only_while_it_is_needed() {
        let numbers = Numbers::default();
        for number in 1..=3 {
            *numbers.get_or_insert(account(number)).lock().unwrap() = number.into();
        }
        numbers.configure([account(2), account(4), account(2)], |number| *number.lock().unwrap() == 3);
        let look = numbers.snapshot();
        let all: Vec<_> = look.iter().map(|(account, number)| (account, *number.lock().unwrap())).collect();
        assert_eq!(all, [(account(2), 2), (account(4), 0), (account(3), 3)]);
        assert!(numbers.get(account(1)).is_none());
    }

    #[test]
    fn two_that_make_a_place_at_once_make_one() {
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
        fn a_look_finds_the_same_in_whatever_order_it_is_asked(asked in prop::collection::vec(0_u8..40, 0..200)) {
            let numbers = Numbers::default();
            numbers.configure((0..30).rev().map(account), |_| false);
            for (number, place) in (0..).zip(numbers.snapshot().iter()) {
                *place.1.lock().unwrap() = number;
            }
            let look = numbers.snapshot();
            for number in asked {
                let found = look.get(account(number)).map(|place| *place.lock().unwrap());
                prop_assert_eq!(found, (number < 30).then(|| 29 - u32::from(number)));
            }
        }
    }
}
