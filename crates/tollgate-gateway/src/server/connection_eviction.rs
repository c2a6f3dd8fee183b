//! Chooses the connections to close when a limit on connections is nearly reached, and the addresses that get the last
//! ones.
//!
//! Connections at rest are closed: those that carry no request. The address with the most of them loses first, and of an address
//! those that have been at rest for the longest time. The last eighth of a limit is reserved for addresses that hold few
//! connections, so that an address whose connections all carry requests does not take it.

use std::{cmp::Reverse, time::Duration};

use tokio::time::Instant;

use crate::state::shares::{Bound, HolderKind};

/// Connections that have been at rest for less time are kept: a TLS handshake and the first request take round trips.
pub(super) const MIN_REST: Duration = Duration::from_millis(500);

/// The part of a limit that is free before connections are closed.
const fn reserve(limit: usize) -> usize {
    limit / 8
}

/// How many of `open` connections should close. More than those above the reserve, so that the next few connections need no eviction.
pub(super) const fn excess(limit: usize, open: usize) -> usize {
    let high = limit - reserve(limit);
    if open <= high { 0 } else { open - high + limit / 16 }
}

/// Connections that are open before one more of an address is accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) all: usize,
    pub(super) of_address: usize,
    /// Connections of the address that are about to close.
    pub(super) evicted_of_address: usize,
}

/// Whether an address may have one more connection. Half of the reserve is open to an address that has connections to replace.
pub(super) const fn admits(limit: usize, open: Open) -> bool {
    let (all, of_address) = (open.all + 1, open.of_address + 1);
    all <= limit - reserve(limit)
        || all <= limit && (of_address == 1 || Bound::Connections.share().of(HolderKind::Address).permits(limit, all, of_address))
        || all <= limit - reserve(limit) / 2 && open.evicted_of_address > 0
}

/// A connection at rest.
#[derive(Debug)]
pub(super) struct RestingConnection<K> {
    pub(super) connection: K,
    pub(super) since: Instant,
}

/// The connections to close, at most `count`, of those at rest of each address.
pub(super) fn select<K>(addresses: impl IntoIterator<Item = Vec<RestingConnection<K>>>, count: usize) -> Vec<K> {
    let mut ranked = Vec::new();
    for mut resting in addresses {
        resting.sort_unstable_by_key(|one| Reverse(one.since));
        // The rank is the number of connections that the address keeps when this one closes. Closing the highest ranks first
        // reduces the address with the most connections until others have as many.
        ranked.extend(resting.into_iter().enumerate().map(|(rank, one)| (Reverse(rank), one.since, one.connection)));
    }
    if count < ranked.len() {
        ranked.select_nth_unstable_by_key(count, |(rank, since, _)| (*rank, *since));
        ranked.truncate(count);
    }
    ranked.into_iter().map(|(.., connection)| connection).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections of an address, at rest since these seconds.
    fn address(name: &'static str, start: Instant, since: &[u64]) -> Vec<RestingConnection<(&'static str, u64)>> {
        let resting = |&secs| RestingConnection { connection: (name, secs), since: start + Duration::from_secs(secs) };
        since.iter().map(resting).collect()
    }

    fn selected(since: &[(&'static str, &[u64])], count: usize) -> Vec<(&'static str, u64)> {
        let start = Instant::now();
        let mut selected = select(since.iter().map(|(name, since)| address(name, start, since)), count);
        selected.sort_unstable();
        selected
    }

    #[tokio::test(start_paused = true)]
    async fn longest_idle_connections_of_the_address_with_the_most_are_evicted() {
        let all: &[(_, &[u64])] = &[("few", &[1, 2]), ("many", &[14, 13, 12, 11, 10])];
        assert_eq!(selected(all, 0), []);
        assert_eq!(selected(all, 2), [("many", 10), ("many", 11)]);
        assert_eq!(selected(all, 3), [("many", 10), ("many", 11), ("many", 12)]);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_with_equally_many_connections_are_evicted_from_evenly() {
        let all: &[(_, &[u64])] = &[("one", &[1, 2, 3]), ("other", &[4, 5, 6])];
        assert_eq!(selected(all, 2), [("one", 1), ("other", 4)]);
        assert_eq!(selected(all, 3), [("one", 1), ("one", 2), ("other", 4)], "the longest at rest of those with as many");
        assert_eq!(selected(all, 9).len(), 6);
        assert_eq!(selected(&[("a", &[3]), ("b", &[1]), ("c", &[2])], 2), [("b", 1), ("c", 2)], "each has one");
    }

    #[test]
    fn eviction_begins_at_seven_eighths_of_the_limit() {
        assert_eq!([0, 140, 141, 160].map(|open| excess(160, open)), [0, 0, 11, 30]);
        assert_eq!([2, 3].map(|open| excess(2, open)), [0, 1], "a small limit has no reserve");
        assert_eq!(excess(usize::MAX, 1_000_000), 0);
    }

    #[test]
    fn last_eighth_is_reserved_for_addresses_with_few_connections() {
        let admits = |all, of_address, evicted| admits(160, Open { all, of_address, evicted_of_address: evicted });
        assert!(admits(139, 139, 0), "an address that is alone has seven eighths");
        assert!(!admits(140, 140, 0) && !admits(140, 58, 0));
        assert!(admits(140, 56, 0), "three times what is free");
        assert!(admits(159, 0, 0), "the first connection of an address");
        assert!(!admits(160, 0, 0) && !admits(160, 0, 1), "the limit holds");
        assert!(admits(140, 140, 1) && admits(149, 149, 1), "connections that close are replaced");
        assert!(!admits(150, 150, 1), "half of the reserve is left when they do not close");
    }
}
