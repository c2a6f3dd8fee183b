//! The prices of the records of each batch and member, which are one entry of the ledger. Records are added in order of arrival,
//! and the ledger is read up to the same time: an entry has the arrival time of its last record, so that sums of batches are kept
//! only until then.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tollgate_core::NanoUsd;

use super::{VERIFY, texts::texts};
use crate::{
    StoreError,
    sql::{
        cells::{Cells, FromCells},
        names::NameKind,
        shared_snapshot::SnapshotReader,
    },
    verify::{ConsistencyRule, MAX_DIFFERENCES, VerifyReport},
};

/// Entries read at once; few in tests, which have few entries.
const ENTRIES_AT_ONCE: usize = if cfg!(test) { 2 } else { 4_096 };

/// A batch, as the ledger's last position after it, and the number of a member.
type BatchMember = (i64, i64);

/// The prices of records and how many have one, by batch and member.
#[derive(Debug, Default)]
pub(super) struct Sales(HashMap<BatchMember, Sold, RandomState>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sold {
    price: i64,
    count: i64,
}

impl Sales {
    /// Adds a record. The ledger has no entry for prices of zero.
    pub(super) fn add(&mut self, batch: i64, member: i64, sale: NanoUsd) {
        if sale != NanoUsd::ZERO {
            self.merge((batch, member), Sold { price: sale.0, count: 1 });
        }
    }

    fn merge(&mut self, of: BatchMember, more: Sold) {
        let sold = self.0.entry(of).or_default();
        sold.price = sold.price.saturating_add(more.price);
        sold.count += more.count;
    }
}

/// An entry of the ledger for a batch.
#[derive(Debug)]
struct Entry {
    seq: i64,
    batch: i64,
    /// The number of the member in the usage log; `None` if no record has it.
    member: Option<i64>,
    member_id: String,
    sold: Sold,
    first_at: i64,
    last_at: i64,
}

impl FromCells for Entry {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self {
            seq: c.number()?,
            batch: c.maybe()?.unwrap_or(0),
            member: c.maybe()?,
            member_id: c.text()?.to_owned(),
            sold: Sold { price: c.number()?.saturating_neg(), count: c.maybe()?.unwrap_or(0) },
            first_at: c.maybe()?.unwrap_or(-1),
            last_at: c.maybe()?.unwrap_or(i64::MAX),
        })
    }
}

/// A batch and member whose ledger entry does not match the records.
#[derive(Debug)]
struct Difference {
    of: BatchMember,
    member_id: Option<String>,
    due: Sold,
    stored: Sold,
}

pub(super) struct SettledCheck {
    pruned_until: i64,
    /// Sums of the records added so far, without those that were already compared.
    sales: Sales,
    /// All records that arrived before this time were added.
    added_until: i64,
    /// Entries whose last records were not added yet.
    waiting: Vec<Entry>,
    /// The position of the last entry read, and whether there may be more.
    position: i64,
    has_more: bool,
    /// Earliest time at which one of the entries read last was complete.
    reached: i64,
    report: VerifyReport,
}

impl SettledCheck {
    pub(super) fn new(pruned_until: i64) -> Self {
        Self {
            pruned_until,
            sales: Sales::default(),
            added_until: i64::MIN,
            waiting: Vec::new(),
            position: i64::MIN,
            has_more: true,
            reached: i64::MIN,
            report: VerifyReport::default(),
        }
    }

    /// Compares the entries whose records were all added, and adds the further records that arrived before a time.
    pub(super) async fn add(&mut self, reader: &mut SnapshotReader, sales: Sales, until: i64) -> Result<(), StoreError> {
        let differences = self.compare_entries(reader, Some(self.added_until)).await?;
        self.report_differences(reader, differences).await?;
        for (of, sold) in sales.0 {
            self.sales.merge(of, sold);
        }
        self.added_until = until;
        Ok(())
    }

    /// Compares the remaining sums after all records were added.
    pub(super) async fn finish(mut self, reader: &mut SnapshotReader) -> Result<VerifyReport, StoreError> {
        let mut differences = self.compare_entries(reader, None).await?;
        let without_entry = std::mem::take(&mut self.sales.0).into_iter();
        differences.extend(without_entry.map(|(of, due)| Difference { of, member_id: None, due, stored: Sold::default() }));
        self.report_differences(reader, differences).await?;
        Ok(self.report)
    }

    /// Compares entries that are complete at a time, or all. Entries are in the order of their batches, and so nearly in that of
    /// arrival: the ledger is read until none of many is complete.
    async fn compare_entries(&mut self, reader: &mut SnapshotReader, until: Option<i64>) -> Result<Vec<Difference>, StoreError> {
        let is_complete = |last_at: i64| until.is_none_or(|until| last_at < until);
        let mut differences = Vec::new();
        let mut entries = std::mem::take(&mut self.waiting);
        loop {
            for entry in entries {
                if is_complete(entry.last_at) {
                    differences.extend(self.compare(entry));
                } else {
                    self.waiting.push(entry);
                }
            }
            if !self.has_more || !is_complete(self.reached) {
                return Ok(differences);
            }
            entries = self.read_entries(reader).await?;
        }
    }

    async fn read_entries(&mut self, reader: &mut SnapshotReader) -> Result<Vec<Entry>, StoreError> {
        let sql = format!(
            "SELECT l.seq, l.batch, n.ref, l.member_id, l.amount, l.requests, l.first_at, l.last_at FROM ledger l \
             LEFT JOIN names n ON n.kind = {} AND n.id = l.member_id AND n.name = '' \
             WHERE l.kind = 'settle' AND l.seq > {} ORDER BY l.seq LIMIT {ENTRIES_AT_ONCE}",
            NameKind::Member.code(),
            self.position
        );
        let entries: Vec<Entry> = reader.rows(VERIFY, &sql.into(), Vec::new()).await?;
        self.position = entries.last().map_or(self.position, |entry| entry.seq);
        self.has_more = entries.len() == ENTRIES_AT_ONCE;
        self.reached = entries.iter().map(|entry| entry.last_at).min().unwrap_or(i64::MAX);
        Ok(entries)
    }

    fn compare(&mut self, entry: Entry) -> Option<Difference> {
        let of = (entry.batch, entry.member.unwrap_or(0));
        let (due, stored) = (self.sales.0.remove(&of).unwrap_or_default(), entry.sold);
        // Records of the entry may have been removed.
        let may_lack_records = (0..self.pruned_until).contains(&entry.first_at) && due.count <= stored.count;
        let member_id = Some(entry.member_id);
        (due != stored && !may_lack_records).then_some(Difference { of, member_id, due, stored })
    }

    async fn report_differences(
        &mut self,
        reader: &mut SnapshotReader,
        mut differences: Vec<Difference>,
    ) -> Result<(), StoreError> {
        differences.sort_by_key(|difference| difference.of);
        let unnamed = differences.iter().filter(|difference| difference.member_id.is_none()).map(|difference| difference.of.1);
        let texts = texts(reader, unnamed.take(MAX_DIFFERENCES).collect()).await?;
        for Difference { of: (batch, member), member_id, due, stored } in differences {
            let member = member_id.or_else(|| texts.get(&member).map(|(id, _)| id.clone())).unwrap_or_else(|| member.to_string());
            let what = format!("{batch} of {member}");
            match (due.count, due.price == stored.price) {
                (0, _) => self.report.differs(ConsistencyRule::Settles, what, 0, -stored.price),
                (_, false) => self.report.differs(ConsistencyRule::Settled, what, -due.price, -stored.price),
                (_, true) => self.report.differs(ConsistencyRule::SettledCount, what, due.count, stored.count),
            }
        }
        Ok(())
    }
}
