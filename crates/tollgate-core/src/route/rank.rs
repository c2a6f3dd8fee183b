//! Orders the usable candidates: by priority, then by the group's routing (affinity or weighted random, lowest cost, or lower
//! latency of two).

use crate::{AccountId, Routing};

/// A candidate that may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) offer_index: u32,
    pub(super) account: u32,
    /// Lower values first.
    pub(super) priority: i64,
    /// Configured weight within its priority: the channel's weight divided by its accounts.
    pub(super) weight: u64,
    /// Share of the weight left by health, in thousandths.
    pub(super) share: u32,
    /// Account id, for rendezvous hashing.
    pub(super) id: AccountId,
    /// Average latency of requests of this kind, in microseconds; 0: unknown or not used.
    pub(super) latency_us: u64,
    /// True when its channel speaks another protocol than the caller.
    pub(super) needs_translation: bool,
}

#[derive(Clone, Copy)]
pub(super) struct RankCriteria<'a> {
    pub(super) routing: Routing,
    /// Hash shared by the requests of one conversation.
    pub(super) affinity: Option<u64>,
    /// Cost of a candidate; `i128::MAX` when unknown.
    pub(super) cost: &'a dyn Fn(&Candidate) -> i128,
}

/// Picks the first `max_picks` candidates, in order. With an affinity hash the order within a priority is that of rendezvous
/// hashing: the same on every node and for every turn of a conversation. Without one it is random, weighted by weight and health.
/// Candidates without weight come last, cheapest first.
///
/// Routing by cost subdivides a priority by cost. Routing by latency takes the first two of that order and prefers the faster
/// one, so that a conversation uses at most two accounts.
pub(super) fn pick(
    mut eligible: Vec<Candidate>,
    max_picks: usize,
    criteria: RankCriteria<'_>,
    random: &mut dyn FnMut() -> u32,
) -> Vec<Candidate> {
    // One candidate needs no order.
    if eligible.len() == 1 && max_picks > 0 {
        return eligible;
    }
    let mut picked = Vec::with_capacity(max_picks.min(eligible.len()));
    while picked.len() < max_picks {
        let Some(priority) = eligible.iter().map(|it| it.priority).min() else { break };
        let rest = if eligible.iter().all(|it| it.priority == priority) {
            Vec::new()
        } else {
            eligible.extract_if(.., |it| it.priority != priority).collect()
        };
        let tier = std::mem::replace(&mut eligible, rest);
        match criteria.routing {
            Routing::Weighted | Routing::Fastest => Tier::new(tier, criteria).take(max_picks, random, &mut picked),
            Routing::Cheapest => take_cheapest(tier, max_picks, criteria, random, &mut picked),
        }
    }
    picked
}

/// Picks from candidates grouped by cost; those without weight come after all others.
fn take_cheapest(
    members: Vec<Candidate>,
    max_picks: usize,
    criteria: RankCriteria<'_>,
    random: &mut dyn FnMut() -> u32,
    picked: &mut Vec<Candidate>,
) {
    let mut members: Vec<(bool, i128, Candidate)> =
        members.into_iter().map(|it| (it.effective_weight() == 0, (criteria.cost)(&it), it)).collect();
    while picked.len() < max_picks {
        let Some(lowest) = members.iter().map(|(weightless, cost, _)| (*weightless, *cost)).min() else { return };
        let equals = members.extract_if(.., |(weightless, cost, _)| (*weightless, *cost) == lowest).map(|(_, _, it)| it);
        let equals = equals.collect();
        Tier::new(equals, criteria).take(max_picks, random, picked);
    }
}

/// Candidates of one priority.
struct Tier<'a> {
    criteria: RankCriteria<'a>,
    members: Vec<Candidate>,
    /// Their rendezvous ranks, parallel to `members`; `None` without affinity.
    ranks: Option<Vec<u64>>,
    /// Sum of the effective weights.
    total: u64,
}

/// A member removed from the tier.
struct DrawnCandidate {
    member: Candidate,
    rank: Option<u64>,
}

impl<'a> Tier<'a> {
    fn new(members: Vec<Candidate>, criteria: RankCriteria<'a>) -> Self {
        let total = members.iter().map(Candidate::effective_weight).sum();
        let ranks = criteria.affinity.map(|key| ranks(&members, key));
        Self { criteria, members, ranks, total }
    }

    /// Moves members to `picked` until it has `max_picks`.
    fn take(mut self, max_picks: usize, random: &mut dyn FnMut() -> u32, picked: &mut Vec<Candidate>) {
        while picked.len() < max_picks {
            let Some(first) = self.next(random) else { return };
            picked.push(if self.criteria.routing == Routing::Fastest { self.faster(first, random) } else { first.member });
        }
    }

    /// The faster of a member and the next one; the other is put back. Members without weight come after all others, however
    /// fast.
    fn faster(&mut self, first: DrawnCandidate, random: &mut dyn FnMut() -> u32) -> Candidate {
        if self.total == 0 && first.member.effective_weight() > 0 {
            return first.member;
        }
        let Some(second) = self.next(random) else { return first.member };
        let second_is_faster = second.member.latency_us < first.member.latency_us;
        let (chosen, other) = if second_is_faster { (second, first) } else { (first, second) };
        self.total += other.member.effective_weight();
        self.members.push(other.member);
        if let (Some(ranks), Some(rank)) = (&mut self.ranks, other.rank) {
            ranks.push(rank);
        }
        chosen.member
    }

    fn next(&mut self, random: &mut dyn FnMut() -> u32) -> Option<DrawnCandidate> {
        let at = if self.total == 0 {
            (0..self.members.len()).min_by_key(|at| (self.criteria.cost)(&self.members[*at]))?
        } else if let Some(ranks) = &self.ranks {
            (0..ranks.len()).max_by_key(|at| ranks[*at])?
        } else {
            self.weighted_index(random)
        };
        let rank = self.ranks.as_mut().map(|ranks| ranks.swap_remove(at));
        let member = self.members.swap_remove(at);
        self.total -= member.effective_weight();
        Some(DrawnCandidate { member, rank })
    }

    /// Index of a random member, drawn by effective weight. The last one is the fallback for rounding, which cannot occur.
    fn weighted_index(&self, random: &mut dyn FnMut() -> u32) -> usize {
        let roll = (u64::from(random()) << 32) | u64::from(random());
        let mut left = u64::try_from((u128::from(roll) * u128::from(self.total)) >> 64).unwrap_or(0);
        for (at, it) in self.members.iter().enumerate() {
            if left < it.effective_weight() {
                return at;
            }
            left -= it.effective_weight();
        }
        self.members.len() - 1
    }
}

impl Candidate {
    /// Effective weight: weight times health share.
    const fn effective_weight(&self) -> u64 {
        self.weight * self.share as u64
    }
}

/// Weighted rendezvous hashing: higher `weight / −log2(u)` first, with u derived from the hash. With equal weights the hash
/// itself gives the same order.
fn ranks(members: &[Candidate], key: u64) -> Vec<u64> {
    if members.windows(2).all(|pair| pair[0].weight == pair[1].weight) {
        return members.iter().map(|it| hash(key, it.id)).collect();
    }
    // Positive floats order like their bits.
    members.iter().map(|it| score(hash(key, it.id), it.weight).to_bits()).collect()
}

/// `weight / −log2(u)`, with u in (0, 1] taken from the hash. The logarithm is approximated per octave by a cubic with exact ends
/// and slopes, corrected in the middle (error below 0.0005). It uses only basic IEEE operations, so every platform computes the
/// same order; `f64::ln` does not guarantee that.
#[expect(clippy::cast_precision_loss, reason = "52 bits of a hash, and weights far below 2^53")]
fn score(hash: u64, weight: u64) -> f64 {
    const SLOPE: f64 = std::f64::consts::LOG2_E;
    const SQUARE: f64 = 3.0 - 2.5 * SLOPE;
    const CUBE: f64 = 1.5 * SLOPE - 2.0;
    const BEND: f64 = -0.083_295_029;
    let hash = hash | 1;
    let octave = hash.leading_zeros();
    // The bits after the leading one, as a fraction.
    let fraction = ((hash << octave << 1) >> 12) as f64 / (1u64 << 52) as f64;
    let bow = fraction * (1.0 - fraction);
    let log = fraction * (SLOPE + fraction * (SQUARE + fraction * CUBE)) + BEND * bow * bow;
    weight as f64 / (f64::from(octave + 1) - log).max(f64::EPSILON)
}

/// A hash that is stable across nodes and versions: two rounds of the splitmix64 finaliser.
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
    fn logarithm_is_accurate_over_the_whole_range() {
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
    fn scores_at_the_ends_of_the_range_are_ordered() {
        assert!(score(0, 1) > 0.0 && score(0, 1) < score(u64::MAX, 1));
        assert!(score(u64::MAX, u64::from(MAX_WEIGHT) << 20).is_finite());
        assert!(score(5, 0) < score(0, 1));
    }
}
