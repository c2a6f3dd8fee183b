//! The result of a consistency check of usage records, ledger and sums.

use std::fmt;

use tollgate_core::{NanoUsd, Timestamp};

/// Maximum number of mismatches listed in a report; further ones are only counted.
pub(crate) const MAX_DIFFERENCES: usize = 100;

/// The result of a consistency check, with the number of rows that were checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub members: u64,
    pub entries: u64,
    pub records: u64,
    pub attempts: u64,
    /// Records that arrived before this time were removed by retention.
    pub removed_before: Option<Timestamp>,
    /// Mismatches; at most 100.
    pub differences: Vec<Mismatch>,
    pub more: u64,
}

impl VerifyReport {
    pub const fn agrees(&self) -> bool {
        self.differences.is_empty()
    }

    pub(crate) fn differs(&mut self, rule: ConsistencyRule, what: String, expected: i64, found: i64) {
        if self.differences.len() < MAX_DIFFERENCES {
            self.differences.push(Mismatch { rule, what, expected, found });
        } else {
            self.more += 1;
        }
    }

    /// Adds the counts and mismatches of another part.
    pub(crate) fn append(&mut self, part: Self) {
        let Self { members, entries, records, attempts, removed_before, differences, more } = part;
        self.members += members;
        self.entries += entries;
        self.records += records;
        self.attempts += attempts;
        self.removed_before = self.removed_before.max(removed_before);
        for Mismatch { rule, what, expected, found } in differences {
            self.differs(rule, what, expected, found);
        }
        self.more += more;
    }
}

/// A violation of a [`ConsistencyRule`]; `what` names the member, entry or record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub rule: ConsistencyRule,
    pub what: String,
    /// Expected value: nano-USD or a count.
    pub expected: i64,
    pub found: i64,
}

/// A rule that usage records, sums and ledger must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsistencyRule {
    /// A member's balance is the sum of the member's ledger entries.
    Balance,
    /// Each entry's balance is the member's previous balance plus the amount.
    Running,
    /// The sales of the records of each batch and member are one ledger entry.
    Settled,
    /// Such an entry states the number of those records.
    SettledCount,
    /// Each `settle` entry has usage records.
    Settles,
    /// Entries of batches, and no others, are of the kind `settle`.
    EntryKind,
    /// The ledger's positions are numbered without gaps up to the last one taken.
    Positions,
    /// A record's cost is the sum of its attempts' costs.
    Cost,
    /// Attempts are numbered without gaps and have a record.
    Attempts,
    /// The roll-ups are the sums of the records.
    Rollup,
    /// The roll-ups of attempts are the sums of the attempts.
    AttemptRollup,
    /// Retention removes records by whole days and never those of the last day.
    Removed,
    /// When records were removed: the sales in the ledger and in the roll-ups are equal per member, and no more records of removed
    /// days exist than the roll-ups count.
    RemovedDays,
    /// The rows of each link of the ledger's and the audit log's chain have the link's MAC.
    Chain,
    /// A chain ends with the link that its head names.
    ChainEnd,
    /// A stored request in the journal equals its stored record.
    Journal,
    /// The database has every record that its journal marks as booked.
    Journals,
    /// If a gateway did not stop cleanly, its journal still exists.
    JournalMissing,
}

impl ConsistencyRule {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Balance => "balance",
            Self::Running => "running_balance",
            Self::Settled => "settled",
            Self::SettledCount => "settled_count",
            Self::Settles => "settles",
            Self::EntryKind => "kind",
            Self::Positions => "positions",
            Self::Cost => "cost",
            Self::Attempts => "attempts",
            Self::Rollup => "rollup",
            Self::AttemptRollup => "attempt_rollup",
            Self::Removed => "removed",
            Self::RemovedDays => "removed_days",
            Self::Chain => "chain",
            Self::ChainEnd => "chain_end",
            Self::Journal => "journal",
            Self::Journals => "journals",
            Self::JournalMissing => "journal_missing",
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, what, expected, found } = self;
        let (usd, is) = (NanoUsd(*expected).to_usd_string(), NanoUsd(*found).to_usd_string());
        match rule {
            ConsistencyRule::Balance => write!(f, "member {what}: ledger sum {usd} USD, balance {is} USD"),
            ConsistencyRule::Running => write!(f, "ledger entry {what}: the balance after it should be {usd} USD and is {is} USD"),
            ConsistencyRule::Settled => {
                write!(f, "batch {what}: the ledger should have {usd} USD for its records and has {is} USD")
            }
            ConsistencyRule::SettledCount => write!(f, "batch {what}: {expected} records with a price, the ledger counts {found}"),
            ConsistencyRule::Settles => write!(f, "batch {what}: the ledger settles {is} USD for requests that have no record"),
            ConsistencyRule::EntryKind => {
                write!(f, "ledger entry {what} of {is} USD: entries of batches settle requests, and no others do")
            }
            ConsistencyRule::Positions => write!(f, "ledger positions: {expected} assigned, {found} entries"),
            ConsistencyRule::Cost => write!(f, "record {what}: its attempts cost {usd} USD, the record says {is} USD"),
            ConsistencyRule::Attempts => write!(f, "request {what}: {expected} attempts are expected and {found} are there"),
            ConsistencyRule::Rollup => write!(f, "roll-up {what}: records sum to {expected}, roll-up has {found}"),
            ConsistencyRule::AttemptRollup => {
                write!(f, "roll-up {what}: attempts sum to {expected}, roll-up has {found}")
            }
            ConsistencyRule::Removed => write!(
                f,
                "records before {} are marked as removed, but at most those before {} can be",
                Timestamp(*found),
                Timestamp(*expected)
            ),
            ConsistencyRule::RemovedDays => write!(f, "removed records of {what}: the roll-up says {expected}, there is {found}"),
            ConsistencyRule::Chain => write!(f, "{what}: they were changed, removed or added by something other than tollgate"),
            ConsistencyRule::ChainEnd => {
                write!(f, "the newest {what} were removed or changed: the chain should end at {expected} and ends at {found}")
            }
            ConsistencyRule::Journals => write!(
                f,
                "journal and database do not belong together: {expected} records were booked from journal {what}, the database \
                 has {found}; it is older than the journal, or a copy without tollgate.db-wal"
            ),
            ConsistencyRule::JournalMissing => write!(
                f,
                "journal and database do not belong together: a gateway that books from journal {what} was running when this \
                 database was copied, and that journal is not here; its last records are missing (use `tollgate backup`)"
            ),
            ConsistencyRule::Journal => write!(f, "request {what}: the journal says {usd} USD, the database {is} USD"),
        }
    }
}
