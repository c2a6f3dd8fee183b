//! The ledger: append-only entries of money and a balance for every member. The prices of requests are entered in the transaction
//! that stores their usage records, one entry for each member and batch; top-ups and adjustments are posted by operators, once per
//! idempotency key.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use async_trait::async_trait;
use tollgate_core::{GroupId, KeyId, MemberId, NanoUsd, RequestId, SpendTotals, Subject, Timestamp};

use crate::{PostingRefused, StoreError, VerifyReport, WorkControl};

/// Stores ledger entries, balances and spending.
#[async_trait]
pub trait LedgerStore: Send + Sync + fmt::Debug {
    /// Posts a top-up or an adjustment. A posting with a known idempotency key changes nothing and returns the existing entry.
    async fn post(&self, posting: &Posting, now: Timestamp) -> Result<PostingReceipt, StoreError>;

    /// Entries, newest first; at most 1,000.
    async fn entries(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError>;

    /// The balance of every member, ordered by name; of removed members only those with ledger entries.
    async fn balances(&self) -> Result<Vec<Balance>, StoreError>;

    /// The balances of these members, of those that [`Self::balances`] lists, in no order.
    async fn balances_of(&self, members: Vec<MemberId>) -> Result<Vec<Balance>, StoreError>;

    /// Top-ups and adjustments after a position, and the position of the ledger's last entry.
    async fn posted_since(&self, position: LedgerPosition) -> Result<(Vec<LedgerEntry>, LedgerPosition), StoreError>;

    /// Everything spent so far: the initial state of counters.
    async fn spending(&self, now: Timestamp) -> Result<Spending, StoreError>;

    /// Cost of this UTC day's hedged attempts that were abandoned, by group: the initial state of the hedging budgets.
    async fn hedge_costs(&self, now: Timestamp) -> Result<Vec<(GroupId, NanoUsd)>, StoreError>;

    /// Changes of spending after a position. Covers a bounded number of entries, up to [`SpendingChanges::until`].
    async fn spending_since(&self, position: LedgerPosition, now: Timestamp) -> Result<SpendingChanges, StoreError>;

    /// The keys that have spent after a position, without their sums, up to the position that is returned. Covers a bounded number of
    /// entries.
    async fn keys_spent_since(&self, position: LedgerPosition) -> Result<(BTreeSet<KeyId>, LedgerPosition), StoreError>;

    /// The position that the ledger had reached when each of these requests was entered; requests without a record are
    /// missing.
    async fn positions(&self, requests: &[RequestId]) -> Result<Vec<(RequestId, LedgerPosition)>, StoreError>;

    /// Checks that ledger, balances, usage records, attempts and roll-ups agree. Reads all of them in one snapshot; `now` bounds
    /// how recent records removed by retention can be. Fails with [`StoreError::Cancelled`] as soon as the work is cancelled; on SQLite
    /// a query that runs then ends by itself, and [`crate::Store::close`] waits for it.
    async fn verify(&self, now: Timestamp, control: &WorkControl) -> Result<VerifyReport, StoreError>;
}

/// A position in the ledger; entries become visible in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LedgerPosition(pub i64);

/// Everything spent so far, read in one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    pub spent: Vec<(Subject, SpendTotals)>,
    pub balances: Vec<(MemberId, NanoUsd)>,
    /// Position of the ledger's last entry in the snapshot.
    pub ledger: LedgerPosition,
}

/// Changes of [`Spending`] after a position, read in one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendingChanges {
    pub spent: Vec<(Subject, SpendTotals)>,
    /// Amounts to add to shared subjects (groups and the gateway), with the day to which they belong.
    pub added: Vec<(Subject, Timestamp, NanoUsd)>,
    pub balances: Vec<(MemberId, NanoUsd)>,
    /// Position up to which the changes are included; less than `ledger` if there are more.
    pub until: LedgerPosition,
    /// Position of the ledger's last entry in the snapshot.
    pub ledger: LedgerPosition,
}

/// One entry. It is never changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    pub position: LedgerPosition,
    pub member: MemberId,
    /// Time of the posting, or arrival of the last request.
    pub at: Timestamp,
    pub kind: LedgerKind,
    pub amount: NanoUsd,
    pub balance: NanoUsd,
    /// The requests of a `settle` entry.
    pub covers: Option<CoveredRequests>,
    pub idempotency_key: Option<String>,
    pub note: String,
    /// The operator who posted it; empty for settled requests.
    pub actor: String,
    /// Address that it was posted from; `None` if that is not known, and for settled requests.
    pub address: Option<String>,
}

/// The requests that a `settle` entry charges: those of its member with a price in one batch. The price of each is in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveredRequests {
    pub count: u64,
    /// Arrival of the first and the last one.
    pub first: Timestamp,
    pub last: Timestamp,
}

/// The origin of a ledger entry: a posting, or the settlement of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LedgerKind {
    TopUp,
    Settle,
    Adjust,
}

impl LedgerKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TopUp => "top_up",
            Self::Settle => "settle",
            Self::Adjust => "adjust",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Self::TopUp, Self::Settle, Self::Adjust].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// A change of a member's balance by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting {
    pub member: MemberId,
    pub kind: PostingKind,
    /// Change of the balance; positive for a top-up, not zero for an adjustment.
    pub amount: NanoUsd,
    /// Makes repetitions of the posting no-ops; 1 to 200 characters.
    pub idempotency_key: Option<String>,
    /// The operator's reason; at most 1,000 characters.
    pub note: String,
    pub actor: String,
    /// Address that it is posted from.
    pub address: Option<IpAddr>,
}

/// The kind of a [`Posting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PostingKind {
    TopUp,
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

/// The result of a posting; `repeated`: the entry existed already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostingReceipt {
    /// The new entry, or the existing one of the same idempotency key.
    pub entry: LedgerEntry,
    pub repeated: bool,
}

/// Selects ledger entries, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFilter {
    pub member: Option<MemberId>,
    pub kind: Option<LedgerKind>,
    pub before: Option<LedgerPosition>,
    /// Only entries at or after this time.
    pub since: Option<Timestamp>,
    /// Only entries before this time.
    pub until: Option<Timestamp>,
    /// Maximum number of entries; 0 means 50; capped at 1,000.
    pub limit: u32,
}

impl LedgerFilter {
    /// Whether a time is within the range.
    pub(crate) fn has_time(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }

    pub(crate) const fn size(&self) -> u32 {
        match self.limit {
            0 => 50,
            limit if limit > 1_000 => 1_000,
            limit => limit,
        }
    }
}

/// The balance of a member, in nano-USD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    pub member: MemberId,
    /// The member's name; empty if no row of the member exists.
    pub name: String,
    pub balance: NanoUsd,
}

impl Posting {
    /// The posting's address in the form that the ledger stores.
    pub(crate) fn address_text(&self) -> Option<String> {
        self.address.map(|address| address.to_canonical().to_string())
    }

    /// Checks the posting by itself, without looking at the ledger.
    pub(crate) fn check(&self) -> Result<(), PostingRefused> {
        match self.kind {
            PostingKind::TopUp if self.amount <= NanoUsd::ZERO => {
                return Err(PostingRefused::Amount("a top-up must be above 0; use adjust to reduce a balance"));
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

    /// The receipt of a repeated posting, if it is the same as the first one.
    pub(crate) fn repeats(&self, entry: LedgerEntry) -> Result<PostingReceipt, PostingRefused> {
        let same = entry.member == self.member && entry.kind == self.kind.into() && entry.amount == self.amount;
        if same {
            Ok(PostingReceipt { entry, repeated: true })
        } else {
            Err(PostingRefused::KeyTaken(entry.idempotency_key.unwrap_or_default()))
        }
    }
}

/// Maximum absolute balance after a posting. Requests add at most 10,000 USD each, so 64 bits cannot overflow.
const MAX_POSTED_BALANCE: u64 = 1_000_000_000_000_000_000;

/// The balance after a posting.
/// Refused when the new balance exceeds the maximum and the old one by absolute value.
pub(crate) fn posted(balance: NanoUsd, amount: NanoUsd) -> Result<NanoUsd, PostingRefused> {
    let after = balance.0.checked_add(amount.0).ok_or(PostingRefused::Overflow)?;
    if after.unsigned_abs() > MAX_POSTED_BALANCE && after.unsigned_abs() >= balance.0.unsigned_abs() {
        return Err(PostingRefused::Overflow);
    }
    Ok(NanoUsd(after))
}

/// The balance after settling an amount, and the amount actually applied. Saturates: an overflow does not occur in practice and
/// must not stop the ledger.
pub(crate) fn settled(balance: NanoUsd, amount: NanoUsd) -> (NanoUsd, NanoUsd) {
    let after = balance.0.saturating_add(amount.0);
    (NanoUsd(after), NanoUsd(after.saturating_sub(balance.0)))
}
