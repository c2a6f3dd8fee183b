//! Sums by group while rows and cells are added up. All groups that may still grow are kept, up to a bound; of complete groups only
//! the largest are kept.

use std::{cmp::Reverse, collections::HashMap};

use foldhash::fast::RandomState;

use tollgate_core::Outcome;

use super::codes::Coded;
use crate::StoreError;

/// Number of figures: requests, completed requests, the other figures of sums in their order, and
/// [`SummaryRow::left`](crate::SummaryRow::left).
pub(super) const FIGURES: usize = 14;
/// Index of [`SummaryRow::left`](crate::SummaryRow::left).
pub(super) const LEFT: usize = FIGURES - 1;
pub(super) type GroupFigures = [i64; FIGURES];
/// Sets the figures about outcomes, by the code of the outcome.
pub(super) fn set_requests(figures: &mut GroupFigures, requests: i64, outcome: i64) {
    let is = |wanted: Outcome| outcome == wanted.code();
    let of = |is_one: bool| if is_one { requests } else { 0 };
    figures[0] = requests;
    figures[1] = of(is(Outcome::Completed));
    figures[LEFT] = of(is(Outcome::CallerLeft) || is(Outcome::GatewayStopped));
}

/// Numbers of the groups of a row.
pub(super) type GroupRefs = (i64, i64);

/// Maximum number of groups of one worker that may still grow: some 64 MB. With more, the hash table would be
/// reallocated with twice the size.
pub(super) const MAX_GROUPS: usize = 450_000;

/// Sums by group.
#[derive(Debug)]
pub(super) struct GroupSums {
    sums: HashMap<GroupRefs, GroupFigures, RandomState>,
    largest: LargestGroups,
    is_full: bool,
}

/// The complete groups with the most of a figure.
#[derive(Debug)]
struct LargestGroups {
    rows: Vec<(GroupRefs, GroupFigures)>,
    figure: fn(&GroupFigures) -> i64,
    most: usize,
}

impl LargestGroups {
    fn push(&mut self, groups: GroupRefs, figures: GroupFigures) {
        if figures[0] <= 0 {
            return;
        }
        self.rows.push((groups, figures));
        if self.rows.len() >= 4 * self.most {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        let figure = self.figure;
        if self.rows.len() > self.most {
            let order = |(groups, figures): &(GroupRefs, GroupFigures)| (Reverse(figure(figures)), *groups);
            self.rows.select_nth_unstable_by_key(self.most, order);
            self.rows.truncate(self.most);
        }
    }
}

impl GroupSums {
    /// `figure` determines which groups are the largest; at most `most` are returned.
    pub(super) fn new(figure: fn(&GroupFigures) -> i64, most: usize) -> Self {
        Self { sums: HashMap::default(), largest: LargestGroups { rows: Vec::new(), figure, most }, is_full: false }
    }

    pub(super) fn empty(&self) -> Self {
        Self::new(self.largest.figure, self.largest.most)
    }

    pub(super) fn add(&mut self, groups: GroupRefs, more: &GroupFigures) {
        if let Some(figures) = self.sums.get_mut(&groups) {
            for (figure, more) in figures.iter_mut().zip(more) {
                *figure = figure.saturating_add(*more);
            }
        } else if self.sums.len() < MAX_GROUPS {
            self.sums.insert(groups, *more);
        } else {
            self.is_full = true;
        }
    }

    /// Whether a group was left out for lack of space, so that the sums cannot be used.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) fn check(self) -> Result<Self, StoreError> {
        if self.is_full { Err(StoreError::TooManyGroups { max: MAX_GROUPS }) } else { Ok(self) }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.is_full |= other.is_full;
        for (groups, figures) in other.sums {
            self.add(groups, &figures);
        }
        for (groups, figures) in other.largest.rows {
            self.largest.push(groups, figures);
        }
    }

    /// Marks the groups so far as complete: nothing will be added to them.
    pub(super) fn complete(&mut self) {
        for (groups, figures) in self.sums.drain() {
            self.largest.push(groups, figures);
        }
    }

    /// Removes the groups that may still grow from the sums and returns them.
    pub(super) fn take_open(&mut self) -> OpenGroups {
        OpenGroups(std::mem::take(&mut self.sums))
    }

    /// Completes the current groups, and continues with the groups of `open`.
    pub(super) fn complete_and_restore(&mut self, open: OpenGroups) {
        self.complete();
        self.sums = open.0;
    }

    /// The largest groups, in no order.
    pub(super) fn finish(mut self) -> Vec<(GroupRefs, GroupFigures)> {
        self.complete();
        self.largest.shrink();
        self.largest.rows
    }
}

/// Groups that wait while others are completed.
#[derive(Debug)]
pub(super) struct OpenGroups(HashMap<GroupRefs, GroupFigures, RandomState>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_groups_are_kept() {
        let mut sums = GroupSums::new(|figures| figures[2], 10);
        for number in 0..1_000 {
            let mut figures = [0; FIGURES];
            (figures[0], figures[2]) = (1, number * 7 % 1_000);
            sums.add((number, 0), &figures);
            if number % 100 == 99 {
                sums.complete();
            }
        }
        let mut found: Vec<i64> = sums.finish().into_iter().map(|(_, figures)| figures[2]).collect();
        found.sort_unstable();
        assert_eq!(found, (990..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn groups_beyond_the_maximum_make_the_sums_full() {
        let mut sums = GroupSums::new(|figures| figures[0], 10);
        let add = |sums: &mut GroupSums, numbers: std::ops::Range<usize>| {
            for number in numbers {
                sums.add((i64::try_from(number).unwrap(), 0), &[1; FIGURES]);
            }
        };
        add(&mut sums, 0..MAX_GROUPS);
        let capacity = sums.sums.capacity();
        add(&mut sums, 0..MAX_GROUPS);
        assert!(!sums.is_full(), "known groups find room");
        sums.complete();
        add(&mut sums, MAX_GROUPS..MAX_GROUPS + 7);
        assert!(!sums.is_full(), "so do new ones, when others are complete");
        let mut other = sums.empty();
        add(&mut other, 0..MAX_GROUPS);
        sums.merge(other);
        assert!(sums.is_full());
        assert_eq!(sums.sums.capacity(), capacity, "the table has not grown");
        let refused = sums.check().unwrap_err();
        assert!(matches!(refused, StoreError::TooManyGroups { max: MAX_GROUPS }), "{refused}");
    }
}
