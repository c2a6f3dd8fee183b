//! The contract of the last requests of many keys and members, of which only those that were used last are asked for.

use std::{cmp::Reverse, collections::BTreeMap};

use tollgate_core::{KeyId, MemberId, Timestamp, UsageRecord};

use crate::{
    Store,
    rollup::{DAY, HOUR},
    samples::{arrived, at, record},
};

/// More than are looked up one by one.
const KEYS: u16 = 700;

fn random(number: u16) -> [u8; 10] {
    let [high, low] = number.to_be_bytes();
    [high, low, 1, 1, 1, 1, 1, 1, 1, 1]
}

fn key(number: u16) -> KeyId {
    KeyId::from_parts(at(0), random(number))
}

fn member(number: u16) -> MemberId {
    MemberId::from_parts(at(0), random(number))
}

/// A request of each key at the time that `before` says, in microseconds before `now`. `first` is the number of the first record.
fn requests(first: u64, now: Timestamp, before: impl Fn(i64) -> i64) -> Vec<UsageRecord> {
    let request = |number: u16| {
        let made = UsageRecord { key: key(number), member: member(number), ..record(first + u64::from(number)) };
        arrived(made, Timestamp(now.0 - before(number.into())))
    };
    (0..KEYS).map(request).collect()
}

/// Asks for the last requests of all, and checks that the `most` latest are among the answers and that all answers are right.
async fn check(store: &Store, records: &[UsageRecord]) {
    let (mut of_keys, mut of_members) = (BTreeMap::new(), BTreeMap::new());
    for record in records {
        let at = record.id.time();
        let last = of_keys.entry(record.key).or_insert(at);
        *last = at.max(*last);
        let last = of_members.entry(record.member).or_insert(at);
        *last = at.max(*last);
    }
    let unused = KEYS;
    for most in [1, 7, 60, 350, 699, usize::MAX] {
        let found = store.usage.last_requests((0..=unused).map(key).collect(), most).await.unwrap();
        assert_latest(&of_keys, &found.into_iter().collect(), most);
        let found = store.usage.last_use_of_members((0..=unused).map(member).collect(), most).await.unwrap();
        assert_latest(&of_members, &found.into_iter().collect(), most);
    }
}

fn assert_latest<Id: Copy + Ord + std::fmt::Debug>(all: &BTreeMap<Id, Timestamp>, found: &BTreeMap<Id, Timestamp>, most: usize) {
    let mut latest: Vec<_> = all.iter().collect();
    latest.sort_by_key(|(_, at)| Reverse(**at));
    for (id, at) in latest.into_iter().take(most) {
        assert_eq!(found.get(id), Some(at), "{id:?}, one of the {most} latest");
    }
    for (id, at) in found {
        assert_eq!(all.get(id), Some(at), "{id:?}");
    }
}

pub(super) async fn keys_that_were_used_last_are_found_first(store: &Store) {
    let now = Timestamp(at(0).0 + 8 * HOUR + 13);
    // Every key once long ago and once later: some in the last minutes, most in the last hours and days.
    let mut records = requests(0, now, |number| 100 * DAY + number * 1_000);
    records.extend(requests(1_000, now, |number| number * number * 1_000_000));
    for batch in records.chunks(500) {
        store.usage.append(batch).await.unwrap();
    }
    check(store, &records).await;
    // All keys within seconds.
    let busy = requests(2_000, Timestamp(now.0 + 2 * HOUR), |number| number * 7_000);
    store.usage.append(&busy).await.unwrap();
    records.extend(busy);
    check(store, &records).await;
}
