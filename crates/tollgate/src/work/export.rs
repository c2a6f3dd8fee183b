//! Exports days of usage records: each as Parquet files in a folder named after the day, with the columns of
//! `usage export --format parquet`.
//!
//! A day is exported once it is finished, and again when records of it were booked afterwards. The names of its files follow from the
//! day, so that repeating an interrupted export overwrites its files.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde::{Deserialize, Serialize};
use tollgate_console::{
    ExportRequest, UsageFiles, day_text,
    export_days::{self, UnexportedDay},
};
use tollgate_core::Timestamp;
use tollgate_store::{ExportedDay, Page, Store, StoreError, UsageFilter, WorkControl};

use super::with_store;
use crate::{
    compose,
    config::Config,
    export::{
        ExportTarget,
        storage::{Storage, StorageFault},
    },
    failure::Failure,
    journal_backlog::JournalBacklog,
};

/// A file ends with the row group (32,768 records) that makes it at least this large. It is kept in memory until it is uploaded.
const MAX_FILE_BYTES: usize = 32 << 20;
/// A node whose claim to export is older has stopped: a node renews its claim before each file, which takes at most 11
/// minutes.
const LEASE_MS: i64 = 20 * 60_000;
/// How long a day with records in the journal of this node waits for them. Records that are booked later are added by another export
/// of the day.
const JOURNAL_WAIT_MS: i64 = 24 * 3_600_000;

/// Output of `usage upload`.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExportOutcome {
    /// Bucket and prefix, such as `s3://records/usage`.
    pub(crate) target: String,
    pub(crate) exported: Vec<DayFiles>,
    pub(crate) left_out: Vec<LeftOutDay>,
}

/// A day that was exported.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DayFiles {
    pub(crate) day: String,
    pub(crate) records: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// A day that was not exported.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeftOutDay {
    pub(crate) day: String,
    pub(crate) reason: String,
}

/// Exports the days that are due, or those of the request.
pub(crate) fn export(config: &Config, request: ExportRequest, control: &WorkControl) -> Result<ExportOutcome, Failure> {
    let target = ExportTarget::required(config)?;
    let holder = tollgate_store::node_identity(&config.data)?;
    with_store(config, control, async |store| {
        let run = ExportRun { config, store, control, storage: Storage::new(&target, config, control), holder: &holder };
        if !run.claim().await? {
            if request == ExportRequest::Due {
                return Ok(ExportOutcome { target: target.shown(), ..ExportOutcome::default() });
            }
            let text = "another node exports usage records at the moment; try again when it is done";
            return Err(Failure::Machine(text.to_owned()));
        }
        let done = run.days(request).await;
        let released = store.exports.release_export(&holder).await;
        let outcome = done?;
        released?;
        Ok(outcome)
    })
}

struct ExportRun<'a> {
    config: &'a Config,
    store: &'a Store,
    control: &'a WorkControl,
    storage: Storage<'a>,
    /// Name of this node.
    holder: &'a str,
}

/// Outcome for a day.
enum DayEnd {
    Exported(ExportedDay),
    LeftOut(&'static str),
}

impl ExportRun<'_> {
    async fn claim(&self) -> Result<bool, StoreError> {
        self.store.exports.claim_export(self.holder, compose::now(), LEASE_MS).await
    }

    async fn days(&self, request: ExportRequest) -> Result<ExportOutcome, Failure> {
        let mut outcome = ExportOutcome { target: self.storage.target.shown(), ..ExportOutcome::default() };
        let wanted = self.wanted(request, &mut outcome).await?;
        let total: u64 = wanted.iter().map(|day| day.booked).sum();
        let read = Arc::new(AtomicU64::new(0));
        for day in wanted {
            self.control.check()?;
            match self.export_day(&day, &read, total).await {
                Ok(DayEnd::Exported(ExportedDay { day, records, files, bytes, .. })) => {
                    outcome.exported.push(DayFiles { day: day_text(day), records, files, bytes });
                }
                Ok(DayEnd::LeftOut(reason)) => {
                    outcome.left_out.push(LeftOutDay { day: day_text(day.day), reason: reason.to_owned() });
                }
                Err(failure) => {
                    if !self.control.is_cancelled() {
                        let noted = self.store.exports.put_export_failure(day.day, &failure.to_string(), compose::now()).await;
                        if let Err(fault) = noted {
                            tracing::debug!(%fault, "why an export failed is not noted");
                        }
                    }
                    return Err(failure);
                }
            }
        }
        Ok(outcome)
    }

    /// The days to export, in order. Due days that have to wait are recorded.
    async fn wanted(&self, request: ExportRequest, outcome: &mut ExportOutcome) -> Result<Vec<UnexportedDay>, Failure> {
        let now = compose::now();
        let (first, last) = match request {
            ExportRequest::Days { first, last } => (first, last),
            ExportRequest::Due => {
                let until = export_days::first_unfinished(now, self.config.number("export.delay_minutes"));
                let mut due = export_days::unexported(self.store, until).await?;
                let waiting = self.days_in_journal().await?.unwrap_or_default();
                due.retain(|day| {
                    let has_ended_long_ago = now.ms_since(Timestamp::of_day(day.day + 1)) >= JOURNAL_WAIT_MS;
                    let is_booked = has_ended_long_ago || !waiting.contains(&day.day);
                    if !is_booked {
                        let reason = "records of it are in the journal and not booked yet";
                        outcome.left_out.push(LeftOutDay { day: day_text(day.day), reason: reason.to_owned() });
                    }
                    is_booked && !day.waits(now)
                });
                return Ok(due);
            }
        };
        if last >= now.day() {
            return Err(Failure::invalid(format!("{} has not ended yet: days are UTC", day_text(last))));
        }
        Ok(export_days::of(self.store, first, last + 1).await?)
    }

    /// The days of records in the journal of this node that the database does not have. `None` if the journal is not readable, which
    /// `doctor` reports. Records that are booked from it later are added by another export of their day.
    async fn days_in_journal(&self) -> Result<Option<Vec<i64>>, Failure> {
        match JournalBacklog::read_folder(&self.config.data, self.control) {
            Ok(backlog) => Ok(Some(backlog.unbooked_days(self.store).await?)),
            Err(failure) if self.control.is_cancelled() => Err(failure),
            Err(_) => Ok(None),
        }
    }

    async fn export_day(&self, day: &UnexportedDay, read: &Arc<AtomicU64>, total: u64) -> Result<DayEnd, Failure> {
        if let Some(before) = day.exported
            && self.count(day.day).await? < before.records
        {
            // Files with all records must not be replaced by files with fewer. Late records of the day are removed with it.
            let known = ExportedDay { records: before.records.max(day.booked), ..before };
            self.store.exports.put_exported_day(&known).await?;
            return Ok(DayEnd::LeftOut("records of it were removed since it was exported; its files stay as they are"));
        }
        let page = |filter: UsageFilter| {
            let (usage, read, control) = (Arc::clone(&self.store.usage), Arc::clone(read), self.control.clone());
            async move {
                control.check()?;
                let page = usage.page(&filter).await?;
                let done = read.fetch_add(page.items.len() as u64, Ordering::Relaxed) + page.items.len() as u64;
                control.report("records", done, Some(total.max(done)));
                Ok::<Page<_>, StoreError>(page)
            }
        };
        let mut written = ExportedDay { day: day.day, records: 0, files: 0, bytes: 0, at: compose::now() };
        let mut files = UsageFiles::new(of_day(day.day), MAX_FILE_BYTES, page);
        while let Some(file) = files.next_file().await? {
            if !self.claim().await? {
                return Err(Failure::Machine("another node has begun to export usage records".to_owned()));
            }
            written.records += file.records;
            written.bytes += file.bytes.len() as u64;
            self.storage.put_file(day.day, written.files, file.bytes.into()).await.map_err(|fault| failed(&fault))?;
            written.files += 1;
        }
        if written.files == 0 {
            return Ok(DayEnd::LeftOut("its records were removed"));
        }
        for file in written.files..day.exported.map_or(0, |before| before.files) {
            self.storage.remove_file(day.day, file).await.map_err(|fault| failed(&fault))?;
        }
        written.at = compose::now();
        self.store.exports.put_exported_day(&written).await?;
        tracing::info!(
            day = day_text(day.day),
            records = written.records,
            files = written.files,
            "a day of usage records was exported"
        );
        Ok(DayEnd::Exported(written))
    }

    /// Records of a day that are in the log.
    async fn count(&self, day: i64) -> Result<u64, Failure> {
        let (mut filter, mut records) = (UsageFilter { limit: 1_000, ..of_day(day) }, 0);
        loop {
            self.control.check()?;
            let page = self.store.usage.page(&filter).await?;
            records += page.items.len() as u64;
            if page.next.is_none() {
                return Ok(records);
            }
            filter.after = page.next;
        }
    }
}

fn of_day(day: i64) -> UsageFilter {
    let (since, until) = (Timestamp::of_day(day), Timestamp::of_day(day + 1));
    UsageFilter { since: Some(since), until: Some(until), ..UsageFilter::default() }
}

fn failed(fault: &StorageFault) -> Failure {
    match fault {
        StorageFault::Unreachable(_) => Failure::Unreachable(fault.to_string()),
        StorageFault::Cancelled | StorageFault::Refused(_) => Failure::Machine(fault.to_string()),
    }
}
