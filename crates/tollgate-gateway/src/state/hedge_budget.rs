//! What second attempts cost, by group and UTC day: what has ended at its cost, what is under way at the most it can come
//! to, so that however many begin at once their cap is kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tollgate_core::{GroupId, NanoUsd};

/// Costs of this process, beginning with what the usage records of the day say.
#[derive(Debug, Default)]
pub(crate) struct HedgeSpending {
    groups: Mutex<HashMap<GroupId, Day>>,
}

/// A group's day.
#[derive(Clone, Copy, Debug, Default)]
struct Day {
    day: i64,
    /// Spent and reserved.
    amount: NanoUsd,
}

/// Money reserved for a second attempt. Dropped without being settled, it is released whole.
#[derive(Debug)]
pub(crate) struct HedgeReservation {
    spending: Arc<HedgeSpending>,
    group: GroupId,
    day: i64,
    amount: NanoUsd,
    /// What it came to.
    cost: NanoUsd,
}

impl HedgeSpending {
    /// Sets money aside if the group's cap for the day still has so much.
    pub(crate) fn take(self: &Arc<Self>, group: GroupId, cap: NanoUsd, amount: NanoUsd, day: i64) -> Option<HedgeReservation> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let today = groups.entry(group).or_default();
        if today.day != day {
            *today = Day { day, amount: NanoUsd::ZERO };
        }
        let after = today.amount.0.saturating_add(amount.0);
        if after > cap.0 {
            return None;
        }
        today.amount = NanoUsd(after);
        Some(HedgeReservation { spending: Arc::clone(self), group, day, amount, cost: NanoUsd::ZERO })
    }

    /// Adds what was spent on that day before.
    pub(crate) fn spent_before(&self, costs: impl IntoIterator<Item = (GroupId, NanoUsd)>, day: i64) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        for (group, cost) in costs {
            let of_group = groups.entry(group).or_default();
            let before = if of_group.day == day { of_group.amount.0 } else { 0 };
            *of_group = Day { day, amount: NanoUsd(before.saturating_add(cost.0)) };
        }
    }
}

impl HedgeReservation {
    /// Settles at this cost; `None` when unknown, which counts the whole reservation.
    pub(crate) fn settle(mut self, cost: Option<NanoUsd>) {
        self.cost = cost.unwrap_or(self.amount);
    }
}

impl Drop for HedgeReservation {
    fn drop(&mut self) {
        let mut groups = self.spending.groups.lock().unwrap_or_else(PoisonError::into_inner);
        // Yesterday's is nothing of today's.
        if let Some(day) = groups.get_mut(&self.group).filter(|day| day.day == self.day) {
            day.amount = NanoUsd(day.amount.0.saturating_add(self.cost.0).saturating_sub(self.amount.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Timestamp;

    use super::*;

    fn group(number: u8) -> GroupId {
        GroupId::from_parts(Timestamp(1), [number; 10])
    }

    #[test]
    fn a_cap_holds_for_the_day_and_counts_what_was_used() {
        let spending = Arc::new(HedgeSpending::default());
        let take = |amount, day| spending.take(group(1), NanoUsd(100), NanoUsd(amount), day);
        let first = take(60, 1).expect("it fits");
        assert!(take(60, 1).is_none(), "what is under way counts at its most");
        first.settle(Some(NanoUsd(10)));
        let second = take(90, 1).expect("the rest was released");
        assert!(take(1, 1).is_none());
        let today = take(100, 2).expect("a new day");
        second.settle(Some(NanoUsd(0)));
        assert!(take(1, 2).is_none(), "yesterday's end is nothing of today's");
        drop(today);
        take(100, 2).expect("what is dropped unsettled goes back whole").settle(None);
        assert!(take(1, 2).is_none(), "what is not known counts at its most");
    }

    #[test]
    fn a_new_process_begins_with_what_the_day_has_cost() {
        let spending = Arc::new(HedgeSpending::default());
        spending.spent_before([(group(1), NanoUsd(70)), (group(2), NanoUsd(500))], 9);
        let fits = |number, amount, day| spending.take(group(number), NanoUsd(100), NanoUsd(amount), day).is_some();
        assert!(fits(1, 30, 9) && !fits(1, 31, 9) && !fits(2, 1, 9));
        assert!(fits(2, 100, 10));
    }
}
