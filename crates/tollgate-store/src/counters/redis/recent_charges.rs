//! The charges of the latest requests of this node. When Redis has lost its data, they are the spending that the totals of
//! the database lack, because it is not booked yet.

use std::{
    collections::{HashSet, VecDeque},
    sync::Mutex,
};

use tollgate_core::{NanoUsd, RequestId, Subject, Timestamp, UsageRecord};

use super::{super::subjects::lock, deltas::CounterDeltas};

/// Limit of the requests that are kept: those of several seconds on a busy node. Records are booked within a second.
const MAX_RECORDS: usize = 32_768;

/// The charges of one request.
#[derive(Debug)]
struct RequestCharges {
    id: RequestId,
    at: Timestamp,
    charges: Vec<(Subject, NanoUsd)>,
}

/// The latest requests with a price, oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentCharges(Mutex<VecDeque<RequestCharges>>);

impl RecentCharges {
    /// Keeps the charges of a request. Requests without a price are not kept: they have no ledger entry that shows whether they are
    /// booked.
    pub(super) fn add(&self, record: &UsageRecord, charges: &[(Subject, NanoUsd)]) {
        if record.sale.is_none_or(|sale| sale == NanoUsd::ZERO) {
            return;
        }
        let mut recent = lock(&self.0);
        if recent.len() >= MAX_RECORDS {
            recent.pop_front();
        }
        recent.push_back(RequestCharges { id: record.id, at: record.at, charges: charges.to_vec() });
    }

    pub(super) fn ids(&self) -> Vec<RequestId> {
        lock(&self.0).iter().map(|request| request.id).collect()
    }

    /// The charges of all but these requests.
    pub(super) fn except(&self, booked: &HashSet<RequestId>) -> CounterDeltas {
        let mut deltas = CounterDeltas::new();
        for request in lock(&self.0).iter().filter(|request| !booked.contains(&request.id)) {
            let period = (request.at.day(), request.at.month());
            for (subject, amount) in &request.charges {
                let spent = deltas.entry(*subject).or_default().spends.entry(period).or_default();
                *spent = spent.saturating_add(amount.0);
            }
        }
        deltas
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::record;

    #[test]
    fn booked_requests_are_excluded_from_recent_charges() {
        let recent = RecentCharges::default();
        let (one, other) = (record(1), record(2));
        let key = Subject::Key(one.key);
        for record in [&one, &other] {
            recent.add(record, &[(key, NanoUsd(5))]);
        }
        recent.add(&UsageRecord { sale: Some(NanoUsd::ZERO), ..record(3) }, &[(key, NanoUsd(5))]);
        assert_eq!(recent.ids(), [one.id, other.id]);
        let spent = |booked: &[RequestId]| {
            let deltas = recent.except(&booked.iter().copied().collect());
            deltas.get(&key).map_or(0, |delta| delta.spends.values().sum::<i64>())
        };
        assert_eq!((spent(&[]), spent(&[one.id]), spent(&[one.id, other.id])), (10, 5, 0));
    }

    #[test]
    fn oldest_requests_are_evicted_at_the_capacity() {
        let recent = RecentCharges::default();
        for number in 0..=u64::try_from(MAX_RECORDS).unwrap() {
            recent.add(&UsageRecord { sale: Some(NanoUsd(1)), ..record(number) }, &[]);
        }
        assert_eq!((recent.ids().len(), recent.ids()[0]), (MAX_RECORDS, record(1).id));
    }
}
