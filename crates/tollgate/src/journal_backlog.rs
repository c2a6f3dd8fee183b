//! What stands in this machine's journal and perhaps not in the database yet, for commands that show or count every record
//! once. The journal may be gigabytes: it is read twice, a segment at a time, and only ids are remembered.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use tollgate_core::{RequestId, UsageRecord};
use tollgate_store::{JournalEntries, JournalEntry, Store, read_journal};

use crate::{cli::Common, compose, failure::Failure};

/// The requests that had their end in the journal when it was looked at.
#[derive(Debug, Default)]
pub(crate) struct JournalBacklog {
    folder: PathBuf,
    ids: HashSet<RequestId>,
}

impl JournalBacklog {
    /// Looks at the journal; to be done before the database is read, so that what is booked in between is in both.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged: what stands behind the damage would be missing without a word.
    pub(crate) fn read(common: &Common) -> Result<Self, Failure> {
        let folder = compose::journal_folder(&compose::settings(common, &[])?.data);
        let mut ids = HashSet::new();
        for entry in entries(&folder)? {
            if let JournalEntry::Ended { record, .. } = entry.map_err(|error| compose::journal_failure(&error))? {
                ids.insert(record.id);
            }
        }
        Ok(Self { folder, ids })
    }

    /// This one is in the database, and was shown from there.
    pub(crate) fn shown(&mut self, id: RequestId) {
        self.ids.remove(&id);
    }

    /// Whether all were shown.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Gives those that were not shown, until `each` says that it is enough: from the journal, and from the database what
    /// was booked behind the place that was just being read.
    pub(crate) async fn rest(mut self, store: &Store, mut each: impl FnMut(&UsageRecord) -> bool) -> Result<(), Failure> {
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

/// What stands in a journal.
pub(crate) fn entries(folder: &Path) -> Result<JournalEntries, Failure> {
    read_journal(folder).map_err(|error| compose::journal_failure(&error))
}
