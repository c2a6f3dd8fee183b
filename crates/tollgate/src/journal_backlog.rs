//! Usage records in the local journal that may not be in the database yet, for commands that process every record exactly once.
//! The journal may be gigabytes: it is read twice, one segment at a time, and only ids are kept in memory.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use tollgate_core::{RequestId, UsageRecord};
use tollgate_store::{JournalEntries, JournalEntry, Store, StoreError, WorkControl, read_journal};

use crate::{cli::Common, compose, failure::Failure};

/// Ids that are looked up at once.
const IDS_AT_ONCE: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct JournalBacklog {
    folder: PathBuf,
    ids: HashSet<RequestId>,
}

impl JournalBacklog {
    /// Reads the ids. Call this before reading the database, so that records booked in between are seen twice rather than
    /// never. A damaged journal is an error, because records after the damage would be missing silently.
    pub(crate) fn read(common: &Common) -> Result<Self, Failure> {
        Self::read_folder(&compose::settings(common, &[])?.data, &WorkControl::unattended())
    }

    /// Reads the ids of a data folder's journal, as a step of long work.
    pub(crate) fn read_folder(data: &Path, control: &WorkControl) -> Result<Self, Failure> {
        let folder = compose::journal_folder(data);
        let mut ids = HashSet::new();
        for (read, entry) in (0..).zip(entries(&folder)?) {
            checked(control, read)?;
            if let JournalEntry::Ended { record, .. } = entry.map_err(|error| compose::journal_failure(&error))? {
                ids.insert(record.id);
            }
        }
        Ok(Self { folder, ids })
    }

    /// Removes a record that was already processed from the database.
    pub(crate) fn remove(&mut self, id: RequestId) {
        self.ids.remove(&id);
    }

    /// Keeps only this record. Returns whether it is in the backlog.
    pub(crate) fn keep_only(&mut self, id: RequestId) -> bool {
        self.ids.retain(|known| *known == id);
        !self.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Number of the records that are not in the database.
    pub(crate) async fn count_unbooked(&self, store: &Store) -> Result<usize, Failure> {
        let ids: Vec<RequestId> = self.ids.iter().copied().collect();
        let mut unbooked = 0;
        for ids in ids.chunks(IDS_AT_ONCE) {
            unbooked += ids.len() - store.usage.known(ids).await?.len();
        }
        Ok(unbooked)
    }

    /// The UTC days of the records that the database does not have, counted from 1970-01-01.
    pub(crate) async fn unbooked_days(&self, store: &Store) -> Result<Vec<i64>, StoreError> {
        let ids: Vec<RequestId> = self.ids.iter().copied().collect();
        let mut days = Vec::new();
        for ids in ids.chunks(IDS_AT_ONCE) {
            let known = store.usage.known(ids).await?;
            days.extend(ids.iter().filter(|id| !known.contains(id)).map(|id| id.time().day()));
        }
        days.sort_unstable();
        days.dedup();
        Ok(days)
    }

    /// Passes the remaining records to `each` until it returns `false`. Records that have left the journal are read from the
    /// database.
    pub(crate) async fn for_each_remaining(
        mut self,
        store: &Store,
        mut each: impl FnMut(&UsageRecord) -> bool,
    ) -> Result<(), Failure> {
        if self.is_empty() {
            return Ok(());
        }
        for entry in entries(&self.folder)? {
            if let JournalEntry::Ended { record, .. } = entry.map_err(|error| compose::journal_failure(&error))?
                && self.ids.remove(&record.id)
                && !each(&record)
            {
                return Ok(());
            }
        }
        for id in self.ids {
            if let Some(record) = store.usage.find(id).await?
                && !each(&record)
            {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Between two entries of a journal that is read as a step of long work: fails when the work is cancelled, and sometimes reports how
/// many entries were read.
pub(crate) fn checked(control: &WorkControl, read: u64) -> Result<(), Failure> {
    if read.is_multiple_of(1_000) {
        control.report("journal", read, None);
    }
    Ok(control.check()?)
}

pub(crate) fn entries(folder: &Path) -> Result<JournalEntries, Failure> {
    read_journal(folder).map_err(|error| compose::journal_failure(&error))
}
