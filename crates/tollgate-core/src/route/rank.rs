//! The order of usable candidates: priority tiers, then affinity or weighted dice.

use crate::AccountId;

/// Most that a channel's weight counts, so that sums cannot overflow.
const MOST_WEIGHT: u32 = 1_000_000;

/// A candidate that may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usable {
    /// Position in the offer's candidates.
    pub(super) candidate: u32,
    /// Position in the channel's accounts.
    pub(super) account: u32,
    /// Lower first.
    pub(super) priority: i32,
    /// Its share within the tier, static: the channel's weight over its accounts.
    pub(super) weight: u64,
    /// What health leaves of it, thousandths.
    pub(super) share: u32,
    /// For rendezvous hashing.
    pub(super) id: AccountId,
}

/// An account's part of its channel's weight, so that a channel's share does not depend on how many accounts it has.
pub(super) fn weight_of(channel_weight: u32, accounts: usize) -> u64 {
    (u64::from(channel_weight.min(MOST_WEIGHT)) << 20) / (accounts.max(1) as u64)
}

/// Takes the first `most` candidates out, in order. With an affinity key the order within a tier is that of rendezvous
/// hashing, the same on every node and for every turn of a conversation; without one it is drawn by weight and health.
/// Candidates without weight come last in their tier, cheapest first as `cost` says.
pub(super) fn pick(
    usable: &mut Vec<Usable>,
    most: usize,
    affinity: Option<u64>,
    dice: &mut dyn FnMut() -> u32,
    cost: &dyn Fn(&Usable) -> i128,
) -> Vec<Usable> {
    let mut picked = Vec::with_capacity(most.min(usable.len()));
    while picked.len() < most {
        let Some(tier) = usable.iter().map(|it| it.priority).min() else { break };
        let in_tier = || usable.iter().enumerate().filter(|(_, it)| it.priority == tier);
        let total: u64 = in_tier().map(|(_, it)| it.weight * u64::from(it.share)).sum();
        let chosen = if total == 0 {
            in_tier().min_by_key(|(_, it)| cost(it)).map(|(at, _)| at)
        } else if let Some(key) = affinity {
            nearest(in_tier(), key)
        } else {
            drawn(in_tier(), total, dice)
        };
        let Some(chosen) = chosen else { break };
        picked.push(usable.swap_remove(chosen));
    }
    picked
}

/// The position at which a die of `total` sides falls.
fn drawn<'a>(tier: impl Iterator<Item = (usize, &'a Usable)>, total: u64, dice: &mut dyn FnMut() -> u32) -> Option<usize> {
    let roll = (u64::from(dice()) << 32) | u64::from(dice());
    let mut left = u64::try_from((u128::from(roll) * u128::from(total)) >> 64).unwrap_or(0);
    for (at, it) in tier {
        let part = it.weight * u64::from(it.share);
        if left < part {
            return Some(at);
        }
        left -= part;
    }
    None
}

/// Weighted rendezvous hashing: the highest of `weight / −ln(u)`, u drawn by hash. Where all weights are the same the
/// hash itself has the same order.
fn nearest<'a>(tier: impl Iterator<Item = (usize, &'a Usable)> + Clone, key: u64) -> Option<usize> {
    let mut weights = tier.clone().map(|(_, it)| it.weight);
    let first = weights.next()?;
    if weights.all(|weight| weight == first) {
        return tier.max_by_key(|(_, it)| hash(key, it.id)).map(|(at, _)| at);
    }
    // Positive floats order as their bits do.
    tier.max_by_key(|(_, it)| score(hash(key, it.id), it.weight).to_bits()).map(|(at, _)| at)
}

#[expect(clippy::cast_precision_loss, reason = "53 bits of a hash, and weights far below 2^53")]
fn score(hash: u64, weight: u64) -> f64 {
    let drawn = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    weight as f64 / -drawn.ln()
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
