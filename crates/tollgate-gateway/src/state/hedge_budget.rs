//! Spending on hedge attempts by group and UTC day. A finished attempt counts at its cost and a running one at its maximum
//! cost, so concurrent hedges cannot exceed the cap.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tollgate_core::{GroupId, NanoUsd};

/// Spending of this process, initialised from the day's usage records.
#[derive(Debug, Default)]
pub(crate) struct HedgeSpending {
    groups: Mutex<HashMap<GroupId, Day>>,
}

/// One group's spending on one UTC day.
#[derive(Clone, Copy, Debug, Default)]
struct Day {
    day: i64,
    /// Spent plus reserved.
    amount: NanoUsd,
}

/// Money reserved for a hedge attempt. Dropping it unsettled releases the whole amount.
#[derive(Debug)]
pub(crate) struct HedgeReservation {
    spending: Arc<HedgeSpending>,
    group: GroupId,
    day: i64,
    amount: NanoUsd,
    /// The attempt's final cost.
    cost: NanoUsd,
}

impl HedgeSpending {
    /// Reserves `amount` if the group's daily `cap` allows it.
    pub(crate) fn reserve(self: &Arc<Self>, group: GroupId, cap: NanoUsd, amount: NanoUsd, day: i64) -> Option<HedgeReservation> {
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

    /// Adds costs that were spent on `day` before this process started.
    pub(crate) fn add_spent(&self, costs: impl IntoIterator<Item = (GroupId, NanoUsd)>, day: i64) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        for (group, cost) in costs {
            let of_group = groups.entry(group).or_default();
            let before = if of_group.day == day { of_group.amount.0 } else { 0 };
            *of_group = Day { day, amount: NanoUsd(before.saturating_add(cost.0)) };
        }
    }
}

impl HedgeReservation {
    /// Replaces the reservation by the actual cost; `None` when it is unknown, which counts the whole reserved amount.
    pub(crate) fn settle(mut self, cost: Option<NanoUsd>) {
        self.cost = cost.unwrap_or(self.amount);
    }
}

impl Drop for HedgeReservation {
    fn drop(&mut self) {
        let mut groups = self.spending.groups.lock().unwrap_or_else(PoisonError::into_inner);
        // A reservation of an earlier day does not affect the current day.
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
    fn cap_is_per_day_and_counts_settled_costs() {
        let spending = Arc::new(HedgeSpending::default());
        let reserve = |amount, day| spending.reserve(group(1), NanoUsd(100), NanoUsd(amount), day);
        let first = reserve(60, 1).expect("it fits");
        assert!(reserve(60, 1).is_none(), "a running attempt counts at its maximum cost");
        first.settle(Some(NanoUsd(10)));
        let second = reserve(90, 1).expect("the unused amount was released");
        assert!(reserve(1, 1).is_none());
        let today = reserve(100, 2).expect("a new day");
        second.settle(Some(NanoUsd(0)));
        assert!(reserve(1, 2).is_none(), "settling an earlier day does not affect the current one");
        drop(today);
        reserve(100, 2).expect("dropping an unsettled reservation releases it").settle(None);
        assert!(reserve(1, 2).is_none(), "an unknown cost counts at the reserved amount");
    }

    #[test]
    fn spending_before_the_start_counts_against_the_cap() {
        let spending = Arc::new(HedgeSpending::default());
        spending.add_spent([(group(1), NanoUsd(70)), (group(2), NanoUsd(500))], 9);
        let fits = |number, amount, day| spending.reserve(group(number), NanoUsd(100), NanoUsd(amount), day).is_some();
        assert!(fits(1, 30, 9) && !fits(1, 31, 9) && !fits(2, 1, 9));
        assert!(fits(2, 100, 10));
    }
}
