//! Spending as the database has it.

use tollgate_core::{MemberId, NanoUsd, SpendTotals, Subject, Timestamp};

use crate::LedgerPosition;

/// Spending and balances, consistent at one ledger position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// Totals by subject.
    pub spent: Vec<(Subject, SpendTotals)>,
    /// Balances by member.
    pub balances: Vec<(MemberId, NanoUsd)>,
    /// The ledger position.
    pub ledger: LedgerPosition,
}

/// One page of changes to [`Spending`], consistent at one ledger position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendingChanges {
    /// New totals of keys, members and channels.
    pub spent: Vec<(Subject, SpendTotals)>,
    /// Amounts to add to the totals of groups and the gateway, with the day they count for.
    pub added: Vec<(Subject, Timestamp, NanoUsd)>,
    /// New balances by member.
    pub balances: Vec<(MemberId, NanoUsd)>,
    /// The ledger position that this page covers; there are further pages while it is below `ledger`.
    pub until: LedgerPosition,
    /// The newest ledger position.
    pub ledger: LedgerPosition,
}
