//! Fair shares of the resources that all callers use, so that one caller cannot use up what the others need.

use serde::{Deserialize, Serialize};

use crate::{KeyId, MemberId};

/// A holder may have at most this many times the free capacity.
const TIMES_FREE: usize = 3;

/// Units one holder may have while `used` of `total` are in use.
pub const fn share_of(total: usize, used: usize) -> usize {
    TIMES_FREE.saturating_mul(total.saturating_sub(used))
}

/// True if a holder may have `held` of `total` while `used` are in use, both including the new unit.
pub const fn is_within_share(total: usize, used: usize, held: usize) -> bool {
    held <= share_of(total, used)
}

/// The key of a request, and the member that the key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Requester {
    pub key: KeyId,
    pub member: MemberId,
}

/// The callers that a fault provoked by requests concerns. It concerns the key that saw it first; all keys of the member once another of
/// them saw it; everyone once a key of another member did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Concerned {
    Key(Requester),
    Member(MemberId),
    #[default]
    Everyone,
}

impl Concerned {
    /// The scope after `by` saw it too.
    #[must_use]
    pub fn seen_by(self, by: Requester) -> Self {
        match self {
            Self::Key(one) if one == by => self,
            Self::Key(Requester { member, .. }) | Self::Member(member) if member == by.member => Self::Member(member),
            Self::Key(_) | Self::Member(_) | Self::Everyone => Self::Everyone,
        }
    }

    pub fn concerns(self, requester: Requester) -> bool {
        match self {
            Self::Key(one) => one == requester,
            Self::Member(member) => member == requester.member,
            Self::Everyone => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observation_concerns_its_key_then_its_member_and_everyone_from_a_second_member() {
        let requester = |key: u128, member: u128| Requester {
            key: KeyId::from_uuid(uuid::Uuid::from_u128(key)),
            member: MemberId::from_uuid(uuid::Uuid::from_u128(member)),
        };
        let (one, sibling, other) = (requester(1, 1), requester(2, 1), requester(3, 2));
        let concerned = |of: Concerned| [one, sibling, other].map(|by| of.concerns(by));
        let alone = Concerned::Key(one).seen_by(one);
        assert_eq!(concerned(alone), [true, false, false]);
        let member = alone.seen_by(sibling).seen_by(one);
        assert_eq!(concerned(member), [true, true, false]);
        assert_eq!(concerned(member.seen_by(other)), [true, true, true]);
        assert_eq!(alone.seen_by(other), Concerned::Everyone);
        assert_eq!(Concerned::Everyone.seen_by(one), Concerned::Everyone);
    }
}
