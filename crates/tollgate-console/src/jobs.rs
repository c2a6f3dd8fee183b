//! Jobs: long work that a running gateway does for an admin, each on a thread of its own. They are kept in memory: a job ends with
//! its process, and the next process does not list it.

pub(crate) mod job;
mod schedule;
mod table;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_core::{JobId, Timestamp};
use tollgate_store::{AdminScope, BackupFolder, BackupOrigin, RandomSource, UsageFilter, WorkControl, catalog_file::CatalogFile};

use crate::{api_error::ApiError, price_import::ImportRequest};
use job::{Job, JobEnd};
use table::JobTable;

pub use schedule::ScheduledBackups;
pub(crate) use table::Admission;

/// Jobs that run at once; others are queued.
const MAX_RUNNING: usize = 2;
/// Longest time a job may run.
const TIME_LIMIT: Duration = Duration::from_hours(6);
/// Largest result, as JSON.
pub(crate) const MAX_RESULT_BYTES: usize = 1 << 20;
/// How long a stopping gateway waits for the threads of its jobs.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Event streams that are open at once.
const MAX_EVENT_STREAMS: usize = 16;
/// Backups that are downloaded at once.
const MAX_DOWNLOADS: usize = 2;

/// The kinds of jobs; each is the work of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    Doctor,
    Verify,
    Replay,
    Backup,
    BackupCheck,
    Import,
    Export,
}

impl JobKind {
    pub(crate) const ALL: [Self; 7] =
        [Self::Doctor, Self::Verify, Self::Replay, Self::Backup, Self::BackupCheck, Self::Import, Self::Export];
    pub(crate) const WORDS: &[&str] = &[
        Self::Doctor.as_str(),
        Self::Verify.as_str(),
        Self::Replay.as_str(),
        Self::Backup.as_str(),
        Self::BackupCheck.as_str(),
        Self::Import.as_str(),
        Self::Export.as_str(),
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Doctor => "doctor",
            Self::Verify => "verify",
            Self::Replay => "replay",
            Self::Backup => "backup",
            Self::BackupCheck => "backup_check",
            Self::Import => "import",
            Self::Export => "export",
        }
    }

    /// The smallest scope that may start, read and cancel such a job. A backup holds all data, and a catalog file holds secrets. An import
    /// needs what its route needs.
    pub(crate) const fn needs(self) -> AdminScope {
        match self {
            Self::Doctor | Self::Verify | Self::Import | Self::Export => AdminScope::Operator,
            Self::Replay | Self::Backup | Self::BackupCheck => AdminScope::Admin,
        }
    }
}

/// A job to run.
#[derive(Debug)]
pub enum JobRequest {
    Doctor,
    Verify,
    Replay(Box<ReplayRequest>),
    Backup(BackupOrigin),
    /// The backup with this name is checked.
    BackupCheck(String),
    Import(Box<ImportRequest>),
    Export(ExportRequest),
}

/// Outcome of a job that the gateway itself started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduledEnd {
    Done,
    /// With the reason.
    Failed(String),
    /// It was cancelled, or not started because other jobs run.
    NotRun,
}

/// The days of usage records to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportRequest {
    /// Those that are finished and not exported, oldest first.
    Due,
    /// The days from `first` to `last`, counted from 1970-01-01, whether or not they are exported already.
    Days { first: i64, last: i64 },
}

impl JobRequest {
    pub(crate) const fn kind(&self) -> JobKind {
        match self {
            Self::Doctor => JobKind::Doctor,
            Self::Verify => JobKind::Verify,
            Self::Replay(_) => JobKind::Replay,
            Self::Backup(_) => JobKind::Backup,
            Self::BackupCheck(_) => JobKind::BackupCheck,
            Self::Import(_) => JobKind::Import,
            Self::Export(_) => JobKind::Export,
        }
    }
}

/// The catalog file to replay under, and the records to replay.
#[derive(Debug)]
pub struct ReplayRequest {
    pub file: CatalogFile,
    pub records: RecordSelection,
}

/// A selection of usage records. Ids and names are not resolved yet.
#[derive(Clone, Debug, Default)]
pub struct RecordSelection {
    pub key: Option<String>,
    pub member: Option<String>,
    pub group: Option<String>,
    /// Model, outcome and time.
    pub filter: UsageFilter,
}

/// Result of a job: the object that its command prints with `--json`, and the command's exit code.
#[derive(Clone, Debug)]
pub struct JobOutput {
    pub result: Value,
    pub exit_code: u8,
}

/// Why a job has no result.
#[derive(Clone, Debug)]
pub enum JobFailure {
    Cancelled,
    Failed(JobError),
}

/// Why a job failed.
#[derive(Clone, Debug)]
pub struct JobError {
    /// Exit code of the command that fails like this.
    pub exit_code: u8,
    pub message: String,
    /// Faults of a catalog file or a price list.
    pub faults: Vec<tollgate_store::catalog_file::FileError>,
}

impl JobFailure {
    fn internal(message: &str) -> Self {
        Self::Failed(JobError { exit_code: 1, message: message.to_owned(), faults: Vec::new() })
    }
}

/// The work of the jobs.
pub trait JobRunner: Send + Sync + fmt::Debug {
    fn now(&self) -> Timestamp;

    /// Does the work of one job and consumes its request. Blocks its thread, which does no other work, and returns soon after the
    /// job is cancelled.
    fn run(&self, request: JobRequest, control: &WorkControl) -> Result<JobOutput, JobFailure>;
}

/// The jobs of a running gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Jobs(Arc<JobsState>);

#[derive(Debug)]
struct JobsState {
    runner: Arc<dyn JobRunner>,
    backups: BackupFolder,
    scheduled: ScheduledBackups,
    table: Mutex<JobTable>,
    running: Arc<Semaphore>,
    event_streams: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Jobs {
    /// `stop` cancels all jobs; `tasks` has ended when all have.
    pub fn new(
        runner: Arc<dyn JobRunner>,
        (backups, scheduled): (BackupFolder, ScheduledBackups),
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self(Arc::new(JobsState {
            runner,
            backups,
            scheduled,
            table: Mutex::default(),
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
            event_streams: Arc::new(Semaphore::new(MAX_EVENT_STREAMS)),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
            tasks,
            stop,
        }))
    }

    /// Returns when the gateway begins to stop, or has handed over to a new process.
    pub(crate) async fn stopping(&self) {
        self.0.stop.cancelled().await;
    }

    pub fn backups(&self) -> &BackupFolder {
        &self.0.backups
    }

    pub fn scheduled_backups(&self) -> &ScheduledBackups {
        &self.0.scheduled
    }

    fn table(&self) -> MutexGuard<'_, JobTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new job that is queued, or the one that this idempotency key started.
    pub(crate) fn admit(&self, kind: JobKind, by: String, idempotency: Option<(String, [u8; 32])>) -> Result<Admission, ApiError> {
        if self.0.stop.is_cancelled() {
            return Err(ApiError::overloaded("The gateway is stopping."));
        }
        let now = self.0.runner.now();
        let id = JobId::from_parts(now, RandomSource::system().bytes());
        let job = Job::new(id, kind, by, now, idempotency, self.0.stop.child_token());
        Ok(self.table().admit(job)?)
    }

    /// Removes a job that could not be started.
    pub(crate) fn withdraw(&self, id: JobId) {
        self.table().remove(id);
    }

    pub(crate) fn start(&self, job: &Arc<Job>, request: JobRequest) {
        let (state, job) = (Arc::clone(&self.0), Arc::clone(job));
        self.0.tasks.spawn(async move {
            let permit = tokio::select! {
                biased;
                () = job.cancel.cancelled() => None,
                permit = Arc::clone(&state.running).acquire_owned() => permit.ok(),
            };
            let ended = match permit {
                Some(_permit) => state.run(&job, request).await,
                None => Err(JobFailure::Cancelled),
            };
            job.end(JobEnd::of(ended, state.stop.is_cancelled()), state.runner.now());
        });
    }

    /// Runs a job that the gateway itself starts, and waits for its end.
    pub async fn run_scheduled(&self, request: JobRequest) -> ScheduledEnd {
        let admitted = self.admit(request.kind(), "schedule".to_owned(), None);
        let Ok(Admission::New(job)) = admitted else { return ScheduledEnd::NotRun };
        self.start(&job, request);
        let mut status = job.status();
        match status.wait_for(|status| status.state.has_ended()).await {
            Ok(status) => status.scheduled_end(),
            Err(_) => ScheduledEnd::NotRun,
        }
    }

    pub(crate) fn find(&self, id: JobId) -> Option<Arc<Job>> {
        self.table().find(id)
    }

    /// Jobs before `after` of the kinds that `may_know` accepts, newest first.
    pub(crate) fn page(&self, after: Option<JobId>, limit: usize, may_know: impl Fn(JobKind) -> bool) -> Vec<Arc<Job>> {
        self.table().page(after, limit, may_know)
    }

    pub(crate) fn event_stream_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.0.event_streams).try_acquire_owned();
        permit.map_err(|_| ApiError::overloaded("Too many event streams of jobs are open."))
    }

    pub(crate) fn download_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.0.downloads).try_acquire_owned();
        permit.map_err(|_| ApiError::overloaded("Too many backups are downloaded already."))
    }
}

impl JobsState {
    /// Runs a job on a thread of its own and waits for it.
    async fn run(&self, job: &Arc<Job>, request: JobRequest) -> Result<JobOutput, JobFailure> {
        job.begin(self.runner.now());
        let (sender, mut receiver) = oneshot::channel();
        let (runner, reported) = (Arc::clone(&self.runner), Arc::clone(job));
        let control = WorkControl::new(job.cancel.clone(), move |progress| reported.progress(progress));
        let work = move || drop(sender.send(runner.run(request, &control)));
        if let Err(error) = thread::Builder::new().name("job".to_owned()).spawn(work) {
            return Err(JobFailure::internal(&format!("cannot start a thread: {error}")));
        }
        let late = async {
            self.stop.cancelled().await;
            sleep(STOP_TIMEOUT).await;
        };
        tokio::pin!(late);
        let limit = sleep(TIME_LIMIT);
        tokio::pin!(limit);
        let mut timed_out = false;
        let ended = loop {
            tokio::select! {
                // The thread panicked if it sent nothing.
                ended = &mut receiver => {
                    break ended.unwrap_or_else(|_| Err(JobFailure::internal("internal error; the log of the gateway has details")));
                }
                () = &mut limit, if !timed_out => {
                    timed_out = true;
                    job.cancel.cancel();
                }
                () = &mut late => break Err(JobFailure::Cancelled),
            }
        };
        match ended {
            Err(JobFailure::Cancelled) if timed_out => {
                Err(JobFailure::internal(&format!("it took longer than {} h", TIME_LIMIT.as_secs() / 3_600)))
            }
            Ok(output) => bounded(output),
            ended => ended,
        }
    }
}

/// Refuses a result that is too large to be kept.
fn bounded(output: JobOutput) -> Result<JobOutput, JobFailure> {
    let bytes = output.result.to_string().len();
    if bytes <= MAX_RESULT_BYTES {
        return Ok(output);
    }
    let message = format!(
        "the result has {bytes} bytes, and at most {MAX_RESULT_BYTES} are kept; select fewer records, or run the command on the \
         gateway's machine"
    );
    Err(JobFailure::internal(&message))
}

#[cfg(test)]
mod tests;
