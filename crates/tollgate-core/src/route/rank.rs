//! The order of usable candidates: priority tiers, then what the group's routing says: affinity or weighted dice, the
//! lowest cost, or the faster one of two.

use crate::{AccountId, Routing};

/// A candidate that may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Position in the offer's candidates.
    pub(super) candidate: u32,
    /// Position in the channel's accounts.
    pub(super) account: u32,
    /// Lower first.
    pub(super) priority: i64,
    /// Its share within the tier, static: the channel's weight over its accounts.
    pub(super) weight: u64,
    /// What health leaves of it, thousandths.
    pub(super) share: u32,
    /// For rendezvous hashing.
    pub(super) id: AccountId,
    /// What requests of this kind take on average, in microseconds; 0: not measured, or not asked for.
    pub(super) latency_us: u64,
    /// Its channel speaks another protocol than the caller.
    pub(super) foreign: bool,
}

/// What candidates are ordered by.
#[derive(Clone, Copy)]
pub(super) struct RankCriteria<'a> {
    /// The group's choice.
    pub(super) routing: Routing,
    /// What requests of one conversation have in common.
    pub(super) affinity: Option<u64>,
    /// What a candidate costs; the highest value where that is not known.
    pub(super) cost: &'a dyn Fn(&Candidate) -> i128,
}

/// Takes the first `most` candidates out, in order. With an affinity key the order within a tier is that of rendezvous
/// hashing, the same on every node and for every turn of a conversation; without one it is drawn by weight and health.
/// Candidates without weight come last in their tier, cheapest first.
///
/// Routing by cost makes a tier of every cost within the tier. Routing by speed takes the first two of that order and
/// prefers the faster one, so that a conversation stays with two accounts at most.
pub(super) fn pick(
    mut usable: Vec<Candidate>,
    most: usize,
    order: RankCriteria<'_>,
    dice: &mut dyn FnMut() -> u32,
) -> Vec<Candidate> {
    let mut picked = Vec::with_capacity(most.min(usable.len()));
    while picked.len() < most {
        let Some(priority) = usable.iter().map(|it| it.priority).min() else { break };
        let rest = if usable.iter().all(|it| it.priority == priority) {
            Vec::new()
        } else {
            usable.extract_if(.., |it| it.priority != priority).collect()
        };
        let tier = std::mem::replace(&mut usable, rest);
        match order.routing {
            Routing::Weighted | Routing::Fastest => Tier::new(tier, order).take(most, dice, &mut picked),
            Routing::Cheapest => take_cheapest(tier, most, order, dice, &mut picked),
        }
    }
    picked
}

/// Members of equal cost are a tier of their own; those without weight stand behind all others.
fn take_cheapest(
    members: Vec<Candidate>,
    most: usize,
    order: RankCriteria<'_>,
    dice: &mut dyn FnMut() -> u32,
    picked: &mut Vec<Candidate>,
) {
    let mut members: Vec<(bool, i128, Candidate)> = members.into_iter().map(|it| (it.part() == 0, (order.cost)(&it), it)).collect();
    while picked.len() < most {
        let Some(least) = members.iter().map(|(weightless, cost, _)| (*weightless, *cost)).min() else { return };
        let equals = members.extract_if(.., |(weightless, cost, _)| (*weightless, *cost) == least).map(|(_, _, it)| it);
        let equals = equals.collect();
        Tier::new(equals, order).take(most, dice, picked);
    }
}

/// Candidates of one priority.
struct Tier<'a> {
    order: RankCriteria<'a>,
    members: Vec<Candidate>,
    /// Their ranks in rendezvous hashing, in step with `members`; `None` without affinity.
    ranks: Option<Vec<u64>>,
    /// The sides of the die: all parts together.
    total: u64,
}

/// A member that was taken out.
struct DrawnCandidate {
    member: Candidate,
    rank: Option<u64>,
}

impl<'a> Tier<'a> {
    fn new(members: Vec<Candidate>, order: RankCriteria<'a>) -> Self {
        let total = members.iter().map(Candidate::part).sum();
        let ranks = order.affinity.map(|key| ranks(&members, key));
        Self { order, members, ranks, total }
    }

    /// Moves members to `picked` until that has `most`.
    fn take(mut self, most: usize, dice: &mut dyn FnMut() -> u32, picked: &mut Vec<Candidate>) {
        while picked.len() < most {
            let Some(first) = self.next(dice) else { return };
            picked.push(if self.order.routing == Routing::Fastest { self.faster(first, dice) } else { first.member });
        }
    }

    /// The faster one of a member and the next; the other one goes back. Members without weight are behind all others
    /// however fast they are.
    fn faster(&mut self, first: DrawnCandidate, dice: &mut dyn FnMut() -> u32) -> Candidate {
        if self.total == 0 && first.member.part() > 0 {
            return first.member;
        }
        let Some(second) = self.next(dice) else { return first.member };
        let sooner = second.member.latency_us < first.member.latency_us;
        let (chosen, other) = if sooner { (second, first) } else { (first, second) };
        self.total += other.member.part();
        self.members.push(other.member);
        if let (Some(ranks), Some(rank)) = (&mut self.ranks, other.rank) {
            ranks.push(rank);
        }
        chosen.member
    }

    /// Takes the next member out.
    fn next(&mut self, dice: &mut dyn FnMut() -> u32) -> Option<DrawnCandidate> {
        let at = if self.total == 0 {
            (0..self.members.len()).min_by_key(|at| (self.order.cost)(&self.members[*at]))?
        } else if let Some(ranks) = &self.ranks {
            (0..ranks.len()).max_by_key(|at| ranks[*at])?
        } else {
            self.drawn(dice)
        };
        let rank = self.ranks.as_mut().map(|ranks| ranks.swap_remove(at));
        let member = self.members.swap_remove(at);
        self.total -= member.part();
        Some(DrawnCandidate { member, rank })
    }

    /// Where a die of `total` sides falls. The last member stands for what rounding could leave over, which is nothing.
    fn drawn(&self, dice: &mut dyn FnMut() -> u32) -> usize {
        let roll = (u64::from(dice()) << 32) | u64::from(dice());
        let mut left = u64::try_from((u128::from(roll) * u128::from(self.total)) >> 64).unwrap_or(0);
        for (at, it) in self.members.iter().enumerate() {
            if left < it.part() {
                return at;
            }
            left -= it.part();
        }
        self.members.len() - 1
    }
}

impl Candidate {
    /// Its part of the die.
    const fn part(&self) -> u64 {
        self.weight * self.share as u64
    }
}

/// Weighted rendezvous hashing: the higher `weight / −log2(u)`, u drawn by hash, the earlier. Where all
/// weights are the same the hash itself has the same order.
fn ranks(members: &[Candidate], key: u64) -> Vec<u64> {
    if members.windows(2).all(|pair| pair[0].weight == pair[1].weight) {
        return members.iter().map(|it| hash(key, it.id)).collect();
    }
    // Positive floats order as their bits do.
    members.iter().map(|it| score(hash(key, it.id), it.weight).to_bits()).collect()
}

/// `weight / −log2(u)` with u in (0, 1] as the hash says. The logarithm is a cubic through both ends of each octave with
/// the right slopes there, bent to the right value in the middle (off by less than 0.0005): plain IEEE operations, so that every platform's mathematics agrees
/// on the order, which `f64::ln` does not promise.
#[expect(clippy::cast_precision_loss, reason = "52 bits of a hash, and weights far below 2^53")]
fn score(hash: u64, weight: u64) -> f64 {
    const SLOPE: f64 = std::f64::consts::LOG2_E;
    const SQUARE: f64 = 3.0 - 2.5 * SLOPE;
    const CUBE: f64 = 1.5 * SLOPE - 2.0;
    const BEND: f64 = -0.083_295_029;
    let hash = hash | 1;
    let octave = hash.leading_zeros();
    // What follows the leading one, as a fraction of it.
    let fraction = ((hash << octave << 1) >> 12) as f64 / (1u64 << 52) as f64;
    let bow = fraction * (1.0 - fraction);
    let log = fraction * (SLOPE + fraction * (SQUARE + fraction * CUBE)) + BEND * bow * bow;
    weight as f64 / (f64::from(octave + 1) - log).max(f64::EPSILON)
}

/// A hash that is the same on every node and in every version: two rounds of splitmix64's finaliser.
fn hash(key: u64, account: AccountId) -> u64 {
    let (high, low) = account.uuid().as_u64_pair();
    mix(mix(key ^ low) ^ high)
}

const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::channel_index::MAX_WEIGHT;

    #[test]
    fn the_logarithm_is_close_over_the_whole_range() {
        for shift in 0..50u32 {
            for step in 0..64u64 {
                let hash = (u64::MAX / 64 * (step + 1)) >> shift;
                #[expect(clippy::cast_precision_loss, reason = "compared within 0.0005")]
                let exact = -((hash as f64) / 2f64.powi(64)).log2();
                let close = 1.0 / score(hash, 1);
                assert!((close - exact).abs() < 0.0005, "{hash:#x}: {close} is not {exact}");
            }
        }
    }

    #[test]
    fn the_ends_of_the_range_give_scores_that_order() {
        assert!(score(0, 1) > 0.0 && score(0, 1) < score(u64::MAX, 1));
        assert!(score(u64::MAX, u64::from(MAX_WEIGHT) << 20).is_finite());
        assert!(score(5, 0) < score(0, 1));
    }
}
