//! The contract of [`crate::LedgerStore`].

use std::collections::HashMap;

use futures_util::future::join_all;
use tollgate_core::{KeyId, MemberId, NanoUsd, SpendTotals, Subject, Timestamp, UsageRecord, Window};

use crate::{
    Balance, LedgerEntry, LedgerFilter, LedgerKind, LedgerPosition, Posting, PostingKind, PostingRefused, Spending, Store,
    StoreError, WorkControl,
    samples::{MIDNIGHT, arrived, at, record},
};

/// The member of every new database.
async fn owner(store: &Store) -> MemberId {
    let balances = store.ledger.balances().await.unwrap();
    balances.into_iter().find(|balance| balance.name == "owner").unwrap().member
}

fn top_up(member: MemberId, amount: i64, key: Option<&str>) -> Posting {
    Posting {
        member,
        kind: PostingKind::TopUp,
        amount: NanoUsd(amount),
        idempotency_key: key.map(str::to_owned),
        note: "paid by transfer".to_owned(),
        actor: "tester".to_owned(),
        address: Some("203.0.113.9".parse().unwrap()),
    }
}

/// Consistent records of a member.
fn sold(owner: MemberId, numbers: std::ops::Range<u64>) -> Vec<UsageRecord> {
    numbers.map(|number| UsageRecord { member: owner, ..consistent(number) }).collect()
}

/// A record whose cost is the sum of its attempts' costs.
fn consistent(number: u64) -> UsageRecord {
    UsageRecord { cost: Some(NanoUsd(14)), ..record(number) }
}

async fn entries(store: &Store, filter: &LedgerFilter) -> Vec<LedgerEntry> {
    store.ledger.entries(filter).await.unwrap()
}

async fn balance(store: &Store, member: MemberId) -> NanoUsd {
    let balances = store.ledger.balances().await.unwrap();
    balances.iter().find(|balance| balance.member == member).map_or(NanoUsd::ZERO, |balance| balance.balance)
}

async fn agrees(store: &Store) {
    let verified = store.ledger.verify(MIDNIGHT, &WorkControl::unattended()).await.unwrap();
    assert!(verified.agrees(), "{:#?}", verified.differences);
}

pub(super) async fn each_request_is_settled_once(store: &Store) {
    let owner = owner(store).await;
    let records = sold(owner, 0..50);
    store.usage.append(&records[..30]).await.unwrap();
    store.usage.append(&records[10..]).await.unwrap();
    store.usage.append(&records).await.unwrap();
    let priced: Vec<&UsageRecord> = records.iter().filter(|record| record.sale.is_some()).collect();
    let found = entries(store, &LedgerFilter { limit: 1_000, ..LedgerFilter::default() }).await;
    // One entry for the member and each batch; the last batch had nothing new.
    assert_eq!(found.len(), 2);
    let counts = found.iter().map(|entry| entry.covers.unwrap().count);
    assert_eq!(counts.clone().sum::<u64>(), priced.len() as u64, "records without a price are not counted");
    let amounts = found.iter().map(|entry| entry.amount.0);
    assert!(
        found.iter().all(|entry| entry.kind == LedgerKind::Settle) && amounts.eq(counts.map(|count| -2_000 * count.cast_signed()))
    );
    assert_eq!(found[0].covers.map(|covers| (covers.first, covers.last)), Some((records[30].at, records[48].at)));
    let ids: Vec<_> = records.iter().map(|record| record.id).collect();
    let mut positions = store.ledger.positions(&ids).await.unwrap();
    positions.sort_unstable();
    let batch = |at: usize| if at < 30 { found[1].position } else { found[0].position };
    let expected: Vec<_> = ids.iter().enumerate().map(|(at, id)| (*id, batch(at))).collect();
    assert_eq!(positions, expected);
    assert_eq!(found[0].balance.0, -2_000 * i64::try_from(priced.len()).unwrap());
    assert_eq!(balance(store, owner).await, found[0].balance);
    agrees(store).await;
}

pub(super) async fn duplicate_record_in_a_batch_is_settled_once(store: &Store) {
    let owner = owner(store).await;
    let first = sold(owner, 1..2).remove(0);
    let mut second = first.clone();
    second.sale = Some(NanoUsd(9_999));
    second.attempts.push(second.attempts[0].clone());
    assert_eq!(store.usage.append(&[first.clone(), second]).await.unwrap(), 1);
    assert_eq!(balance(store, owner).await, NanoUsd(-2_000));
    assert_eq!(store.usage.find(first.id).await.unwrap().unwrap().attempts.len(), 2);
    agrees(store).await;
}

pub(super) async fn posting_is_idempotent_by_its_key(store: &Store) {
    let owner = owner(store).await;
    let first = store.ledger.post(&top_up(owner, 5_000, Some("invoice 7")), MIDNIGHT).await.unwrap();
    assert!(!first.repeated);
    assert_eq!((first.entry.balance, first.entry.amount, first.entry.at), (NanoUsd(5_000), NanoUsd(5_000), MIDNIGHT));
    let again = store.ledger.post(&top_up(owner, 5_000, Some("invoice 7")), at(9)).await.unwrap();
    assert!(again.repeated);
    assert_eq!(again.entry, first.entry);
    let other = store.ledger.post(&top_up(owner, 6_000, Some("invoice 7")), MIDNIGHT).await;
    assert!(matches!(other, Err(StoreError::Posting(PostingRefused::KeyTaken(_)))), "{other:?}");
    for expected in [10_000, 15_000] {
        let posted = store.ledger.post(&top_up(owner, 5_000, None), MIDNIGHT).await.unwrap();
        assert_eq!(posted.entry.balance, NanoUsd(expected), "without a key every posting counts");
    }
    let adjust = Posting { kind: PostingKind::Adjust, amount: NanoUsd(-20_000), ..top_up(owner, 0, Some("fix")) };
    assert_eq!(store.ledger.post(&adjust, MIDNIGHT).await.unwrap().entry.balance, NanoUsd(-5_000));
    agrees(store).await;
}

pub(super) async fn invalid_postings_are_refused(store: &Store) {
    let owner = owner(store).await;
    let unknown = MemberId::from_parts(MIDNIGHT, [9; 10]);
    let refused = [
        top_up(unknown, 5, None),
        top_up(owner, 0, None),
        top_up(owner, -5, None),
        top_up(owner, 5, Some("")),
        top_up(owner, 5, Some(&"x".repeat(201))),
        Posting { note: "n".repeat(1_001), ..top_up(owner, 5, None) },
        Posting { kind: PostingKind::Adjust, ..top_up(owner, 0, None) },
    ];
    for posting in refused {
        let answer = store.ledger.post(&posting, MIDNIGHT).await;
        assert!(matches!(answer, Err(StoreError::Posting(_))), "{posting:?}: {answer:?}");
    }
    // One billion USD.
    const MAX: i64 = 1_000_000_000_000_000_000;
    let adjust = |amount| Posting { kind: PostingKind::Adjust, ..top_up(owner, amount, None) };
    let out_of_bounds = async |posting: Posting| {
        let answer = store.ledger.post(&posting, MIDNIGHT).await;
        assert!(matches!(answer, Err(StoreError::Posting(PostingRefused::Overflow))), "{posting:?}: {answer:?}");
    };
    out_of_bounds(top_up(owner, i64::MAX, None)).await;
    out_of_bounds(adjust(i64::MIN)).await;
    store.ledger.post(&top_up(owner, MAX, None), MIDNIGHT).await.unwrap();
    out_of_bounds(top_up(owner, 1, None)).await;
    store.ledger.post(&adjust(-2 * MAX), MIDNIGHT).await.unwrap();
    out_of_bounds(adjust(-1)).await;
    assert_eq!(entries(store, &LedgerFilter::default()).await.len(), 2);
}

pub(super) async fn entries_are_ordered_and_filtered(store: &Store) {
    let owner = owner(store).await;
    for record in sold(owner, 0..20) {
        store.usage.append(&[record]).await.unwrap();
    }
    store.ledger.post(&top_up(owner, 5_000, None), MIDNIGHT).await.unwrap();
    store.usage.append(&[consistent(100)]).await.unwrap();
    let all = entries(store, &LedgerFilter { limit: 1_000, ..LedgerFilter::default() }).await;
    assert!(all.is_sorted_by(|a, b| a.position > b.position));
    let other = record(100).member;
    assert_eq!(entries(store, &LedgerFilter { member: Some(other), ..LedgerFilter::default() }).await.len(), 1);
    let top_ups = entries(store, &LedgerFilter { kind: Some(LedgerKind::TopUp), ..LedgerFilter::default() }).await;
    assert_eq!((top_ups.len(), top_ups[0].note.as_str(), top_ups[0].actor.as_str()), (1, "paid by transfer", "tester"));
    let (since, until) = (all[15].at, all[5].at);
    assert!(since < until, "{all:?}");
    for (since, until) in [(Some(since), Some(until)), (Some(since), None), (None, Some(until)), (Some(until), Some(since))] {
        let of_time = LedgerFilter { since, until, limit: 1_000, ..LedgerFilter::default() };
        let wanted =
            |entry: &&LedgerEntry| since.is_none_or(|since| entry.at >= since) && until.is_none_or(|until| entry.at < until);
        let expected: Vec<LedgerEntry> = all.iter().filter(wanted).cloned().collect();
        assert_eq!(entries(store, &of_time).await, expected, "{of_time:?}");
    }
    let mut seen = Vec::new();
    let mut filter = LedgerFilter { limit: 7, ..LedgerFilter::default() };
    loop {
        let page = entries(store, &filter).await;
        let Some(last) = page.last() else { break };
        filter.before = Some(last.position);
        seen.extend(page);
    }
    assert_eq!(seen, all);
}

pub(super) async fn balances_list_every_member(store: &Store) {
    let owner = owner(store).await;
    let unknown = record(0).member;
    store.usage.append(&[consistent(1), consistent(2)]).await.unwrap();
    let balances = store.ledger.balances().await.unwrap();
    assert!(balances.contains(&Balance { member: owner, name: "owner".to_owned(), balance: NanoUsd::ZERO }));
    assert!(balances.contains(&Balance { member: unknown, name: String::new(), balance: NanoUsd(-2_000) }));
    for balance in &balances {
        assert_eq!(store.ledger.balances_of(vec![balance.member]).await.unwrap(), std::slice::from_ref(balance));
    }
    let mut found = store.ledger.balances_of(balances.iter().map(|balance| balance.member).collect()).await.unwrap();
    found.sort_by(|one, other| (&one.name, one.member).cmp(&(&other.name, other.member)));
    assert_eq!(found, balances);
    let none = [vec![], vec![MemberId::from_parts(at(0), [0xaa; 10])]].map(|members| store.ledger.balances_of(members));
    for found in none {
        assert_eq!(found.await.unwrap(), []);
    }
}

pub(super) async fn postings_are_found_after_a_position(store: &Store) {
    let owner = owner(store).await;
    let (none, start) = store.ledger.posted_since(LedgerPosition::default()).await.unwrap();
    assert_eq!((none, start), (Vec::new(), LedgerPosition(0)));
    store.usage.append(&sold(owner, 0..10)).await.unwrap();
    let first = store.ledger.post(&top_up(owner, 5_000, None), MIDNIGHT).await.unwrap().entry;
    store.usage.append(&sold(owner, 10..15)).await.unwrap();
    let (posted, position) = store.ledger.posted_since(start).await.unwrap();
    assert_eq!(posted, std::slice::from_ref(&first));
    assert!(position > first.position);
    assert_eq!(store.ledger.posted_since(position).await.unwrap(), (Vec::new(), position));
}

pub(super) async fn spending_is_summed_by_subject_and_period(store: &Store) {
    let (day, month) = (Timestamp::of_day(MIDNIGHT.day()), Timestamp::of_month(MIDNIGHT.month()));
    let dated = |number: u64, at: Timestamp| arrived(UsageRecord { sale: Some(NanoUsd(1_000)), ..consistent(number) }, at);
    let records = [
        dated(0, day),
        dated(3, MIDNIGHT),
        dated(6, Timestamp(day.0 - 1)),
        dated(9, month),
        dated(12, Timestamp(month.0 - 1)),
        // Refused before a group was chosen.
        UsageRecord { group: None, group_name: None, sale: Some(NanoUsd(0)), ..dated(15, MIDNIGHT) },
    ];
    store.usage.append(&records).await.unwrap();
    let spending = store.ledger.spending(MIDNIGHT).await.unwrap();
    let spent = |subject: Subject| {
        let found: Vec<&SpendTotals> = spending.spent.iter().filter(|(of, _)| *of == subject).map(|(_, spent)| spent).collect();
        assert!(found.len() <= 1, "{subject} occurs once");
        found.first().map_or([0; 3], |spent| [Window::Day, Window::Month, Window::Total].map(|it| spent.within(it, MIDNIGHT).0))
    };
    let key: KeyId = records[0].key;
    assert_eq!(spent(Subject::Key(key)), [2_000, 4_000, 5_000]);
    assert_eq!(spent(Subject::Gateway), [2_000, 4_000, 5_000]);
    assert_eq!(spent(Subject::Group(records[0].group.unwrap())), [2_000, 4_000, 5_000]);
    assert_eq!(spent(Subject::Member(records[0].member)), [1_000, 2_000, 3_000]);
    assert_eq!(spent(Subject::Channel(records[0].attempts[0].channel)), [3 * 14, 5 * 14, 6 * 14]);
    assert_eq!(spending.balances.iter().map(|(_, balance)| balance.0).sum::<i64>(), -5_000);
    assert_eq!(spending.ledger, store.ledger.posted_since(LedgerPosition(0)).await.unwrap().1);
    agrees(store).await;
}

pub(super) async fn hedge_costs_of_today_are_summed_by_group(store: &Store) {
    let yesterday = Timestamp(Timestamp::of_day(MIDNIGHT.day()).0 - 1);
    let hedged = |number: u64, at: Timestamp| {
        let mut record = arrived(consistent(number), at);
        for attempt in &mut record.attempts {
            (attempt.at, attempt.hedged) = (at, false);
        }
        record.attempts[0].hedged = true;
        record
    };
    let mut unknown = hedged(2, MIDNIGHT);
    unknown.attempts[0].cost = None;
    unknown.cost = None;
    let without_group = UsageRecord { group: None, group_name: None, ..hedged(3, MIDNIGHT) };
    let records = [hedged(0, MIDNIGHT), hedged(1, Timestamp::of_day(MIDNIGHT.day())), unknown, without_group, hedged(4, yesterday)];
    store.usage.append(&records).await.unwrap();
    let cost = records[0].attempts[0].cost.unwrap().0;
    assert_eq!(store.ledger.hedge_costs(MIDNIGHT).await.unwrap(), [(records[0].group.unwrap(), NanoUsd(2 * cost))]);
    assert_eq!(store.usage.find(records[0].id).await.unwrap().unwrap().attempts, records[0].attempts);
}

pub(super) async fn spending_changes_lead_to_current_spending(store: &Store) {
    let owner = owner(store).await;
    let known = async |spending: &Spending| {
        let mut spent: HashMap<Subject, SpendTotals> = spending.spent.iter().copied().collect();
        let mut balances: HashMap<MemberId, NanoUsd> = spending.balances.iter().copied().collect();
        let changed = store.ledger.spending_since(spending.ledger, MIDNIGHT).await.unwrap();
        assert_eq!(changed.until, changed.ledger, "so few entries are one page");
        spent.extend(changed.spent.iter().copied());
        balances.extend(changed.balances.iter().copied());
        for (of, at, amount) in &changed.added {
            spent.entry(*of).or_default().add(*amount, *at);
        }
        (spent, balances, changed)
    };
    store.usage.append(&sold(owner, 0..40)).await.unwrap();
    let before = store.ledger.spending(MIDNIGHT).await.unwrap();
    let (_, _, nothing) = known(&before).await;
    assert_eq!((nothing.added.len(), nothing.until), (0, before.ledger));
    let mut late = sold(owner, 40..60);
    late[0] = arrived(late[0].clone(), Timestamp(Timestamp::of_month(MIDNIGHT.month()).0 - 1));
    store.usage.append(&late).await.unwrap();
    store.ledger.post(&top_up(owner, 70_000, None), MIDNIGHT).await.unwrap();
    let (spent, balances, changed) = known(&before).await;
    let now = store.ledger.spending(MIDNIGHT).await.unwrap();
    for (of, is) in &now.spent {
        for window in [Window::Day, Window::Month, Window::Total] {
            assert_eq!(spent[of].within(window, MIDNIGHT), is.within(window, MIDNIGHT), "{of} {window:?}");
        }
    }
    assert_eq!(balances, now.balances.iter().copied().collect());
    assert_eq!(changed.ledger, now.ledger);
    let (keys, until) = store.ledger.keys_spent_since(before.ledger).await.unwrap();
    assert!(late.iter().all(|record| keys.contains(&record.key)));
    assert_eq!(until, now.ledger);
}

pub(super) async fn ledger_is_consistent_after_concurrent_writes(store: &Store) {
    let owner = owner(store).await;
    let bookings = (0..12u64).map(|turn| async move {
        // Each batch overlaps with its neighbours.
        let records = sold(owner, turn * 20..turn * 20 + 35);
        store.usage.append(&records).await.unwrap();
    });
    let postings = (0..12i64).map(|turn| async move {
        let key = format!("posting {}", turn / 2);
        store.ledger.post(&top_up(owner, 10_000 + turn / 2, Some(&key)), MIDNIGHT).await.unwrap();
    });
    tokio::join!(join_all(bookings), join_all(postings));
    let records = sold(owner, 0..255);
    let sale: i64 = records.iter().filter_map(|record| record.sale).map(|sale| sale.0).sum();
    let paid: i64 = (0..6).map(|turn| 10_000 + turn).sum();
    assert_eq!(balance(store, owner).await, NanoUsd(paid - sale));
    agrees(store).await;
}
