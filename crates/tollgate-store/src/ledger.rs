//! Money that moves: an append-only ledger with a balance for every member. What requests cost is entered when their
//! records are booked, in the same transaction; the rest is posted by hand, once for each idempotency key.

use std::fmt;

use async_trait::async_trait;
use tollgate_core::{GroupId, MemberId, NanoUsd, RequestId, Timestamp};

use crate::{Spending, SpendingChanges, StoreError, VerifyReport};

/// Remembers money.
#[async_trait]
pub trait LedgerStore: Send + Sync + fmt::Debug {
    /// Posts a top-up or an adjustment. A posting whose idempotency key is there already changes nothing and gives the
    /// entry that is there.
    async fn post(&self, posting: &Posting, now: Timestamp) -> Result<PostingReceipt, StoreError>;

    /// Entries, newest first; at most 1,000.
    async fn entries(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError>;

    /// Every member with a balance, in order of name; removed ones only where the ledger names them.
    async fn balances(&self) -> Result<Vec<Balance>, StoreError>;

    /// What was posted by hand behind a place, and how far the ledger has come.
    async fn posted_since(&self, place: LedgerPosition) -> Result<(Vec<LedgerEntry>, LedgerPosition), StoreError>;

    /// What was spent until now: where counters begin.
    async fn spending(&self, now: Timestamp) -> Result<Spending, StoreError>;

    /// What attempts of this UTC day cost, by group, that ran beside the one that went on: where the caps of second
    /// attempts begin.
    async fn hedged(&self, now: Timestamp) -> Result<Vec<(GroupId, NanoUsd)>, StoreError>;

    /// Of whom what was spent changed behind a place, a bounded number of entries at a time: until [`SpendingChanges::until`].
    async fn spending_since(&self, place: LedgerPosition, now: Timestamp) -> Result<SpendingChanges, StoreError>;

    /// Whether ledger, balances, records, attempts and roll-ups agree. Reads all of them, as of one moment; `now` bounds how far
    /// records can have been removed for their age.
    async fn verify(&self, now: Timestamp) -> Result<VerifyReport, StoreError>;
}

/// A place in the ledger; entries become visible in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LedgerPosition(pub i64);

/// One entry. It is never changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Where it stands.
    pub place: LedgerPosition,
    /// Whose money.
    pub member: MemberId,
    /// When it moved: a posting's time, a request's arrival.
    pub at: Timestamp,
    /// What moved it.
    pub kind: LedgerKind,
    /// How much; negative takes away.
    pub amount: NanoUsd,
    /// The member's balance after it.
    pub balance: NanoUsd,
    /// The request that was settled.
    pub request: Option<RequestId>,
    /// What makes a posting happen once.
    pub idempotency_key: Option<String>,
    /// Why, in the poster's words.
    pub note: String,
    /// Who posted it; empty for settled requests.
    pub actor: String,
}

/// What moves money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LedgerKind {
    /// A member paid in.
    TopUp,
    /// A request was sold.
    Settle,
    /// A correction.
    Adjust,
}

impl LedgerKind {
    /// The word in the database and in listings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TopUp => "top_up",
            Self::Settle => "settle",
            Self::Adjust => "adjust",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::TopUp, Self::Settle, Self::Adjust].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Money moved by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting {
    /// Whose.
    pub member: MemberId,
    /// Top-up or adjustment.
    pub kind: PostingKind,
    /// How much; a top-up is above zero, an adjustment is not zero.
    pub amount: NanoUsd,
    /// Makes it happen once, however often it is repeated; 1 to 200 characters.
    pub idempotency_key: Option<String>,
    /// Why; at most 1,000 characters.
    pub note: String,
    /// Who posts it.
    pub actor: String,
}

/// What can be posted by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PostingKind {
    /// A member paid in.
    TopUp,
    /// A correction.
    Adjust,
}

impl From<PostingKind> for LedgerKind {
    fn from(kind: PostingKind) -> Self {
        match kind {
            PostingKind::TopUp => Self::TopUp,
            PostingKind::Adjust => Self::Adjust,
        }
    }
}

/// What came of a posting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostingReceipt {
    /// The entry.
    pub entry: LedgerEntry,
    /// It was there already.
    pub repeated: bool,
}

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFilter {
    /// Of this member.
    pub member: Option<MemberId>,
    /// Of this kind.
    pub kind: Option<LedgerKind>,
    /// Only those before this place.
    pub before: Option<LedgerPosition>,
    /// At most so many; 0 means 50; never more than 1,000.
    pub limit: u32,
}

impl LedgerFilter {
    /// How many are asked for, within the bounds.
    pub(crate) const fn size(&self) -> u32 {
        match self.limit {
            0 => 50,
            asked if asked > 1_000 => 1_000,
            asked => asked,
        }
    }
}

/// A member's balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Whose.
    pub member: MemberId,
    /// Name; empty for one that is not known any more.
    pub name: String,
    /// How much.
    pub balance: NanoUsd,
}

/// Why money was not moved; nothing was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostingRefused {
    /// No such member.
    #[error("there is no member {0}")]
    NoMember(MemberId),
    /// A top-up takes away or gives nothing, or an adjustment changes nothing.
    #[error("{0}")]
    Amount(&'static str),
    /// Another posting had this idempotency key.
    #[error("the idempotency key '{0}' belongs to another posting; use a new one")]
    KeyTaken(String),
    /// A text that is too long or empty.
    #[error("{0}")]
    Text(&'static str),
    /// A balance that cannot be written down.
    #[error("the balance would pass 1,000,000,000 USD, which no posting may")]
    Overflow,
}

impl Posting {
    /// What is wrong with it in itself.
    pub(crate) fn check(&self) -> Result<(), PostingRefused> {
        match self.kind {
            PostingKind::TopUp if self.amount <= NanoUsd::ZERO => {
                return Err(PostingRefused::Amount("a top-up is more than 0; to take money away, adjust"));
            }
            PostingKind::Adjust if self.amount == NanoUsd::ZERO => {
                return Err(PostingRefused::Amount("an adjustment of 0 changes nothing"));
            }
            PostingKind::TopUp | PostingKind::Adjust => {}
        }
        let key_fits = self.idempotency_key.as_ref().is_none_or(|key| (1..=200).contains(&key.chars().count()));
        if !key_fits || self.idempotency_key.as_ref().is_some_and(|key| key.contains('\0')) {
            return Err(PostingRefused::Text("an idempotency key has 1 to 200 characters"));
        }
        if self.note.chars().count() > 1_000 || self.note.contains('\0') {
            return Err(PostingRefused::Text("a note has at most 1,000 characters"));
        }
        Ok(())
    }

    /// What a repeated posting gets: the entry, when it says the same.
    pub(crate) fn repeats(&self, entry: LedgerEntry) -> Result<PostingReceipt, PostingRefused> {
        let same = entry.member == self.member && entry.kind == self.kind.into() && entry.amount == self.amount;
        if same {
            Ok(PostingReceipt { entry, repeated: true })
        } else {
            Err(PostingRefused::KeyTaken(entry.idempotency_key.unwrap_or_default()))
        }
    }
}

/// Most that a posting may make of a balance, above and below zero. What is sold on top of it comes to at most 10,000 USD a
/// request, so that 64 bits are out of reach.
const MOST_POSTED: u64 = 1_000_000_000_000_000_000;

/// The balance after a posting.
///
/// # Errors
/// When that is out of bounds, and farther out than before.
pub(crate) fn posted(balance: NanoUsd, amount: NanoUsd) -> Result<NanoUsd, PostingRefused> {
    let after = balance.0.checked_add(amount.0).ok_or(PostingRefused::Overflow)?;
    if after.unsigned_abs() > MOST_POSTED && after.unsigned_abs() >= balance.0.unsigned_abs() {
        return Err(PostingRefused::Overflow);
    }
    Ok(NanoUsd(after))
}

/// The sum of a balance and an amount, and what of the amount fits: amounts that a ledger cannot hold do not occur, and
/// must not stop it if they did.
pub(crate) fn settled(balance: NanoUsd, amount: NanoUsd) -> (NanoUsd, NanoUsd) {
    let after = balance.0.saturating_add(amount.0);
    (NanoUsd(after), NanoUsd(after.saturating_sub(balance.0)))
}
