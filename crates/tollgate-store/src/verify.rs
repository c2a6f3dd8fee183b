//! Whether the books agree: what was looked at, and every difference that was found.

use std::fmt;

use tollgate_core::{NanoUsd, Timestamp};

/// Most differences that are listed; the rest is counted.
pub(crate) const MOST_DIFFERENCES: usize = 100;

/// What verifying found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Members with a balance.
    pub members: u64,
    /// Ledger entries.
    pub entries: u64,
    /// Usage records.
    pub records: u64,
    /// Attempts.
    pub attempts: u64,
    /// Records that arrived before were removed for their age; `None`: none was.
    pub removed_before: Option<Timestamp>,
    /// What does not agree; at most 100.
    pub differences: Vec<Mismatch>,
    /// How many more there are.
    pub more: u64,
}

impl VerifyReport {
    /// Whether everything agrees.
    #[must_use]
    pub const fn agrees(&self) -> bool {
        self.differences.is_empty()
    }

    pub(crate) fn differs(&mut self, rule: ConsistencyRule, what: String, expected: i64, found: i64) {
        if self.differences.len() < MOST_DIFFERENCES {
            self.differences.push(Mismatch { rule, what, expected, found });
        } else {
            self.more += 1;
        }
    }
}

/// One thing that does not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Which rule it breaks.
    pub rule: ConsistencyRule,
    /// Id or place of what breaks it.
    pub what: String,
    /// What should be there: nano-USD, or a count.
    pub expected: i64,
    /// What is there.
    pub found: i64,
}

/// What has to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsistencyRule {
    /// A member's balance is the sum of the ledger's entries.
    Balance,
    /// Each entry's balance is the one before it and its amount.
    Running,
    /// Each record's sale is one entry of its member.
    Settled,
    /// Each settling entry has its record.
    Settles,
    /// Entries of requests settle them, and no other entry does.
    RowKind,
    /// The ledger's places are numbered without a gap up to the last one given.
    Places,
    /// A record's cost is the sum of its attempts' costs.
    Cost,
    /// Attempts are numbered without a gap and have their record.
    Attempts,
    /// The roll-ups are the sums of the records.
    Rollup,
    /// The roll-ups of attempts are the sums of the attempts.
    AttemptRollup,
    /// Records are removed for their age by whole days, and those of the last day never are.
    Removed,
    /// Of days whose records were removed the ledger has what the roll-ups say was sold to each member, and no more records are
    /// left than the roll-ups count.
    RemovedDays,
    /// What the journal still holds of a booked request is what was booked.
    Journal,
}

impl ConsistencyRule {
    /// Every rule, in the order in which they are checked.
    pub const ALL: [Self; 13] = [
        Self::Balance,
        Self::Running,
        Self::Settled,
        Self::Settles,
        Self::RowKind,
        Self::Places,
        Self::Cost,
        Self::Attempts,
        Self::Rollup,
        Self::AttemptRollup,
        Self::Removed,
        Self::RemovedDays,
        Self::Journal,
    ];

    /// The word in listings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Balance => "balance",
            Self::Running => "running_balance",
            Self::Settled => "settled",
            Self::Settles => "settles",
            Self::RowKind => "kind",
            Self::Places => "places",
            Self::Cost => "cost",
            Self::Attempts => "attempts",
            Self::Rollup => "rollup",
            Self::AttemptRollup => "attempt_rollup",
            Self::Removed => "removed",
            Self::RemovedDays => "removed_days",
            Self::Journal => "journal",
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, what, expected, found } = self;
        let (usd, is) = (NanoUsd(*expected).to_usd_string(), NanoUsd(*found).to_usd_string());
        match rule {
            ConsistencyRule::Balance => write!(f, "member {what}: the ledger sums up to {usd} USD, the balance is {is} USD"),
            ConsistencyRule::Running => write!(f, "ledger entry {what}: the balance after it should be {usd} USD and is {is} USD"),
            ConsistencyRule::Settled => write!(f, "record {what}: the ledger should have {usd} USD of its member and has {is} USD"),
            ConsistencyRule::Settles => write!(f, "ledger entry {what} settles {is} USD for a request that has no record"),
            ConsistencyRule::RowKind => {
                write!(f, "ledger entry {what} of {is} USD: entries of requests settle them, and no others do")
            }
            ConsistencyRule::Places => write!(f, "the ledger has given {expected} places and holds {found} entries"),
            ConsistencyRule::Cost => write!(f, "record {what}: its attempts cost {usd} USD, the record says {is} USD"),
            ConsistencyRule::Attempts => write!(f, "request {what}: {expected} attempts are expected and {found} are there"),
            ConsistencyRule::Rollup => write!(f, "roll-up {what}: the records come to {expected}, the roll-up says {found}"),
            ConsistencyRule::AttemptRollup => {
                write!(f, "roll-up {what}: the attempts come to {expected}, the roll-up says {found}")
            }
            ConsistencyRule::Removed => write!(
                f,
                "records before {} are said to have been removed for their age; it can have been those before {} at most, whole days",
                Timestamp(*found),
                Timestamp(*expected)
            ),
            ConsistencyRule::RemovedDays => write!(f, "removed records of {what}: the roll-up says {expected}, there is {found}"),
            ConsistencyRule::Journal => write!(f, "request {what}: the journal says {usd} USD, the database {is} USD"),
        }
    }
}
