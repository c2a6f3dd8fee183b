//! A bounded queue in which members take turns, and so do the keys of a member. A key and a member have their share of it, and each
//! key's waiters are served in order of arrival.

use std::collections::{HashMap, VecDeque};

use tollgate_core::{KeyId, MemberId, NameHash, Requester};

use super::bounds::{Bound, HolderKind, Share};
use crate::address_block::AddressBlock;

/// The share that a unit counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    Key(KeyId),
    Member(MemberId),
    /// Callers whose key is not known yet.
    Address(AddressBlock),
}

impl Holder {
    /// The holders that units of a caller count against.
    pub(crate) const fn of_caller(by: Requester) -> [Self; 2] {
        [Self::Key(by.key), Self::Member(by.member)]
    }

    const fn kind(self) -> HolderKind {
        match self {
            Self::Key(_) => HolderKind::Key,
            Self::Member(_) => HolderKind::Member,
            Self::Address(_) => HolderKind::Address,
        }
    }

    /// Whether a holder that has `held` may have one more. The first is always permitted.
    pub(super) fn may_add(self, held: usize, share: Share, total: usize, used: usize) -> bool {
        held == 0 || share.of(self.kind()).permits(total, used + 1, held + 1)
    }
}

/// Too many of these holders are waiting already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyWaiting;

/// Waiters `W` by holders: a key and its member, one address, or none.
#[derive(Debug)]
pub(crate) struct FairQueue<W> {
    bound: Bound,
    max: usize,
    members: Rotation<MemberQueue<W>>,
    waiting: usize,
    next_number: u64,
}

/// Waiters of one member.
#[derive(Debug)]
struct MemberQueue<W> {
    keys: Rotation<VecDeque<Numbered<W>>>,
    waiting: usize,
}

#[derive(Debug)]
struct Numbered<W> {
    number: u64,
    waiter: W,
}

/// Queues served in round-robin order. None of them is empty.
#[derive(Debug)]
struct Rotation<Q> {
    /// The next one to be served is first.
    order: VecDeque<Option<Holder>>,
    queues: HashMap<Option<Holder>, Q, NameHash>,
}

impl<W> FairQueue<W> {
    /// A queue of at most `max` waiters. The shares are those of `bound`.
    pub(crate) fn new(bound: Bound, max: usize) -> Self {
        Self { bound, max, members: Rotation::default(), waiting: 0, next_number: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.waiting
    }

    /// Waiters of these holders: of the key, and of the member.
    fn held(&self, holders: &[Holder]) -> [usize; 2] {
        let (key, member) = levels(holders);
        let of_member = self.members.queues.get(&member);
        let of_key = of_member.and_then(|queue| queue.keys.queues.get(&key));
        [of_key.map_or(0, VecDeque::len), of_member.map_or(0, |queue| queue.waiting)]
    }

    /// Adds a waiter and returns its number.
    ///
    /// # Errors
    /// When the queue is full, or the share of one of its holders.
    pub(crate) fn join(&mut self, holders: &[Holder], waiter: W) -> Result<u64, TooManyWaiting> {
        let mut shares = holders.iter().zip(self.held(holders));
        let may_wait = |(holder, held): (&Holder, usize)| holder.may_add(held, self.bound.share(), self.max, self.waiting);
        if self.waiting >= self.max || !shares.all(may_wait) {
            return Err(TooManyWaiting);
        }
        let (key, member) = levels(holders);
        self.next_number += 1;
        self.waiting += 1;
        let queue = self.members.queue(member);
        queue.waiting += 1;
        queue.keys.queue(key).push_back(Numbered { number: self.next_number, waiter });
        Ok(self.next_number)
    }

    /// Removes the next waiter for which `may` is true. Skipped waiters keep their position. Afterwards the member moves behind all
    /// other members, and the key behind the member's other keys.
    pub(crate) fn next(&mut self, mut may: impl FnMut(&W) -> bool) -> Option<W> {
        for at in 0..self.members.order.len() {
            let queue = self.members.at(at)?;
            if let Some(found) = queue.next(&mut may) {
                let is_empty = queue.waiting == 0;
                self.members.end_turn(at, is_empty);
                self.waiting -= 1;
                return Some(found);
            }
        }
        None
    }

    /// Removes the waiter with this number, if it still waits.
    pub(crate) fn leave(&mut self, holders: &[Holder], number: u64) -> Option<W> {
        let (key, member) = levels(holders);
        let queue = self.members.queues.get_mut(&member)?;
        let waiters = queue.keys.queues.get_mut(&key)?;
        let at = waiters.binary_search_by_key(&number, |waiter| waiter.number).ok()?;
        let left = waiters.remove(at)?;
        if waiters.is_empty() {
            queue.keys.remove(key);
        }
        queue.waiting -= 1;
        self.waiting -= 1;
        if queue.waiting == 0 {
            self.members.remove(member);
        }
        Some(left.waiter)
    }
}

/// The key and the member of these holders. An address is both.
const fn levels(holders: &[Holder]) -> (Option<Holder>, Option<Holder>) {
    (holders.first().copied(), holders.last().copied())
}

impl<W> MemberQueue<W> {
    fn next(&mut self, may: &mut impl FnMut(&W) -> bool) -> Option<W> {
        for at in 0..self.keys.order.len() {
            let waiters = self.keys.at(at)?;
            if may(&waiters.front()?.waiter) {
                let found = waiters.pop_front()?;
                let is_empty = waiters.is_empty();
                self.keys.end_turn(at, is_empty);
                self.waiting -= 1;
                return Some(found.waiter);
            }
        }
        None
    }
}

impl<Q: Default> Rotation<Q> {
    /// The queue of a holder. If there is none, it is created at the end of the order.
    fn queue(&mut self, of: Option<Holder>) -> &mut Q {
        self.queues.entry(of).or_insert_with(|| {
            self.order.push_back(of);
            Q::default()
        })
    }
}

impl<Q> Rotation<Q> {
    /// The queue at this position of the order.
    fn at(&mut self, at: usize) -> Option<&mut Q> {
        self.queues.get_mut(self.order.get(at)?)
    }

    /// Moves a queue to the end of the order, or removes it if it is empty.
    fn end_turn(&mut self, at: usize, is_empty: bool) {
        let Some(of) = self.order.remove(at) else { return };
        if is_empty {
            self.queues.remove(&of);
        } else {
            self.order.push_back(of);
        }
    }

    fn remove(&mut self, of: Option<Holder>) {
        self.queues.remove(&of);
        self.order.retain(|other| *other != of);
    }
}

impl<Q> Default for Rotation<Q> {
    fn default() -> Self {
        Self { order: VecDeque::new(), queues: HashMap::default() }
    }
}

impl<W> Default for MemberQueue<W> {
    fn default() -> Self {
        Self { keys: Rotation::default(), waiting: 0 }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Timestamp;

    use super::*;

    fn caller(key: u8, member: u8) -> [Holder; 2] {
        [Holder::Key(KeyId::from_parts(Timestamp(0), [key; 10])), Holder::Member(MemberId::from_parts(Timestamp(0), [member; 10]))]
    }

    #[test]
    fn waiters_can_leave_from_any_position() {
        let mut queue = FairQueue::new(Bound::CapacityQueue, 100);
        let numbers: Vec<_> = [(1, 1), (1, 1), (2, 1), (3, 2)].map(|(key, member)| queue.join(&caller(key, member), key)).into();
        assert_eq!((queue.held(&caller(1, 1)), queue.held(&caller(9, 9))), ([2, 3], [0, 0]));
        assert_eq!(queue.leave(&caller(1, 1), numbers[0].unwrap()), Some(1));
        assert_eq!(queue.leave(&caller(1, 1), numbers[0].unwrap()), None, "it has left");
        assert_eq!(queue.leave(&caller(3, 2), numbers[3].unwrap()), Some(3));
        assert_eq!((queue.held(&caller(1, 1)), queue.len()), ([1, 2], 2));
        assert_eq!((queue.next(|_| true), queue.next(|_| true), queue.next(|_| true)), (Some(1), Some(2), None));
        assert!(queue.members.order.is_empty() && queue.members.queues.is_empty());
    }

    #[test]
    fn skipped_waiters_keep_their_position() {
        let mut queue = FairQueue::new(Bound::CapacityQueue, 100);
        for key in [1, 2, 3, 1, 2, 3] {
            queue.join(&caller(key, key), key).unwrap();
        }
        assert_eq!((queue.next(|key| *key == 2), queue.next(|_| false)), (Some(2), None));
        let served: Vec<_> = std::iter::from_fn(|| queue.next(|_| true)).collect();
        assert_eq!(served, [1, 3, 2, 1, 3], "only the one that was served has had its turn");
    }

    #[test]
    fn members_take_turns_and_so_do_their_keys() {
        let mut queue = FairQueue::new(Bound::CapacityQueue, 100);
        for (key, member) in [(1, 1), (1, 1), (1, 1), (2, 1), (3, 2), (3, 2)] {
            queue.join(&caller(key, member), key).unwrap();
        }
        let served: Vec<_> = std::iter::from_fn(|| queue.next(|_| true)).collect();
        assert_eq!(served, [1, 3, 2, 3, 1, 1]);
    }
}
