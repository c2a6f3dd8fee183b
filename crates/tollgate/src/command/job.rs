//! Long work of commands: done in this process on the data folder, or as a job of a running gateway (`--url`). Both show progress
//! after a few seconds, and Ctrl-C cancels them.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_store::WorkControl;

use crate::{
    admin::{self, Admin, AdminError, AdminRefusal, AdminRequest, ApiPath},
    cli::Common,
    compose,
    failure::Failure,
    output,
};

/// Progress is shown this often.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Attempts in a row to follow a job whose events break off.
const MAX_ATTEMPTS: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Whether the command uses a running gateway.
pub(crate) fn is_remote(common: &Common) -> bool {
    admin::is_remote(common)
}

/// Does the work in this process, or as the job that `request` describes.
pub(crate) fn run<T: DeserializeOwned>(
    common: &Common,
    request: &Value,
    work: impl FnOnce(&WorkControl) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if is_remote(common) { Ok(remote(common, request)?) } else { here(common, work) }
}

/// Does the work in this process.
pub(crate) fn here<T>(common: &Common, work: impl FnOnce(&WorkControl) -> Result<T, Failure>) -> Result<T, Failure> {
    let (cancel, reporter) = (CancellationToken::new(), ProgressReporter::new(common));
    let control = WorkControl::new(cancel.clone(), move |progress| reporter.report(progress.step, progress.done, progress.total));
    let runtime = compose::runtime()?;
    let interrupts = {
        let _entered = runtime.enter();
        interrupts()?
    };
    TaskTracker::new().spawn_on(cancel_on(interrupts, cancel), runtime.handle());
    match work(&control) {
        Err(_) if control.is_cancelled() => Err(cancelled()),
        done => done,
    }
}

/// Cancels the work on the first signal, and ends the process on the second.
async fn cancel_on(mut interrupts: Signal, cancel: CancellationToken) {
    interrupts.recv().await;
    cancel.cancel();
    interrupts.recv().await;
    std::process::exit(1);
}

fn interrupts() -> Result<Signal, Failure> {
    signal(SignalKind::interrupt()).map_err(|error| Failure::Machine(format!("cannot wait for signals: {error}")))
}

fn cancelled() -> Failure {
    Failure::Machine("cancelled".to_owned())
}

/// Prints progress to stderr, at intervals.
struct ProgressReporter {
    quiet: bool,
    next: Mutex<Instant>,
}

impl ProgressReporter {
    fn new(common: &Common) -> Self {
        Self { quiet: common.quiet || common.json, next: Mutex::new(compose::instant() + PROGRESS_INTERVAL) }
    }

    fn report(&self, step: &str, done: u64, total: Option<u64>) {
        if !self.quiet && self.is_due(compose::instant()) {
            output::remark(&progress_text(step, done, total));
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = now >= *next;
        if is_due {
            *next = now + PROGRESS_INTERVAL;
        }
        is_due
    }
}

fn progress_text(step: &str, done: u64, total: Option<u64>) -> String {
    total.map_or_else(|| format!("{step}: {done}"), |total| format!("{step}: {done} of {total}"))
}

/// Why a job gave no result.
#[derive(Debug)]
pub(crate) struct RemoteFailure {
    failure: Failure,
    /// Faults of a catalog file: line, column, message.
    faults: Vec<(u64, u64, String)>,
}

impl From<Failure> for RemoteFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, faults: Vec::new() }
    }
}

impl From<AdminError> for RemoteFailure {
    fn from(error: AdminError) -> Self {
        let faults = match &error {
            AdminError::Refused(refusal) => refusal.faults.clone(),
            AdminError::Failed(_) => Vec::new(),
        };
        Self { failure: error.into(), faults }
    }
}

impl From<RemoteFailure> for Failure {
    fn from(failure: RemoteFailure) -> Self {
        failure.failure
    }
}

impl RemoteFailure {
    /// The failure with the faults of this file as `FILE:LINE:COLUMN`.
    pub(crate) fn in_file(self, path: &Path) -> Failure {
        if self.faults.is_empty() {
            return self.failure;
        }
        let shown = path.display();
        let show = |(line, column, message): &(u64, u64, String)| format!("{shown}:{line}:{column}: {message}");
        Failure::Invalid(self.faults.iter().map(show).collect())
    }
}

/// Starts a job of a running gateway, follows it to its end, and returns its result.
pub(crate) fn remote<T: DeserializeOwned>(common: &Common, request: &Value) -> Result<T, RemoteFailure> {
    let job = admin::run(common, async |admin| {
        let mut interrupts = interrupts()?;
        let started = admin.send(AdminRequest::of(Method::POST, &ApiPath::of(&["jobs"]), request)).await;
        let started = match started {
            Ok(started) => started.body,
            Err(error) => return Ok(Err(RemoteFailure::from(error))),
        };
        let Some(id) = started["id"].as_str() else { return Ok(Err(not_a_job().into())) };
        let reporter = ProgressReporter::new(common);
        Ok(Follower { admin, id, reporter, interrupts: &mut interrupts, cancelled: false }.follow().await)
    })??;
    outcome(job)
}

fn not_a_job() -> Failure {
    Failure::Unreachable("the gateway's answer is not a job; it may be of another version".to_owned())
}

/// The result of a job that has ended.
fn outcome<T: DeserializeOwned>(mut job: Value) -> Result<T, RemoteFailure> {
    match job["state"].as_str() {
        Some("done") => serde_json::from_value(job["result"].take()).map_err(|_| not_a_job().into()),
        Some("failed") => {
            let error = &job["error"];
            let message = error["message"].as_str().unwrap_or_default().to_owned();
            let fault = |it: &Value| Some((it["line"].as_u64()?, it["column"].as_u64()?, it["message"].as_str()?.to_owned()));
            let faults = error["faults"].as_array().into_iter().flatten().filter_map(fault).collect();
            let failure = match job["exit_code"].as_u64() {
                Some(3) => Failure::Invalid(message.lines().map(str::to_owned).collect()),
                Some(4) => Failure::Unreachable(message),
                _ => Failure::Machine(message),
            };
            Err(RemoteFailure { failure, faults })
        }
        Some("cancelled") => {
            let reason = job["error"]["message"].as_str().map(|reason| format!(": {reason}"));
            let by = job["cancelled_by"].as_str().map(|by| format!(" by {by}"));
            let text = reason.or(by).unwrap_or_default();
            Err(Failure::Machine(format!("cancelled{text}")).into())
        }
        _ => Err(not_a_job().into()),
    }
}

/// Follows a job to its end, over several connections if they break.
struct Follower<'a> {
    admin: &'a Admin,
    id: &'a str,
    reporter: ProgressReporter,
    interrupts: &'a mut Signal,
    cancelled: bool,
}

/// Why following the events of a job ended.
enum EventsEnd {
    JobEnded(Value),
    Interrupted,
    Broken(AdminError),
}

impl Follower<'_> {
    /// Returns the job with its result.
    async fn follow(mut self) -> Result<Value, RemoteFailure> {
        let mut attempts = 0;
        loop {
            let mut events = 0;
            let end = match self.events(&mut events).await {
                // Events contain no result, so it is read separately. A job that is not done has none, and a stopping process could no
                // longer answer.
                EventsEnd::JobEnded(job) if job["state"] != "done" => Ok(job),
                EventsEnd::JobEnded(_) => self.admin.get(&ApiPath::of(&["jobs", self.id])).await,
                EventsEnd::Interrupted => {
                    self.cancel().await?;
                    continue;
                }
                EventsEnd::Broken(error) => Err(error),
            };
            attempts = if events > 0 { 1 } else { attempts + 1 };
            match end {
                Ok(job) => return Ok(job),
                Err(AdminError::Refused(AdminRefusal { status: StatusCode::NOT_FOUND, .. })) => {
                    let text = format!("the gateway no longer has the job {}: it was restarted, or another node answers", self.id);
                    return Err(Failure::Machine(text).into());
                }
                Err(AdminError::Failed(Failure::Unreachable(_))) if attempts < MAX_ATTEMPTS => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Shows progress until the job ends.
    async fn events(&mut self, received: &mut u32) -> EventsEnd {
        let target = ApiPath::of(&["jobs", self.id, "events"]);
        let mut lines = match self.admin.lines(Method::GET, &target, None).await {
            Ok(lines) => lines,
            Err(error) => return EventsEnd::Broken(error),
        };
        loop {
            let line = tokio::select! {
                _ = self.interrupts.recv() => return EventsEnd::Interrupted,
                line = lines.next() => line,
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) => {
                    let text = "the events of the job broke off".to_owned();
                    return EventsEnd::Broken(Failure::Unreachable(text).into());
                }
                Err(failure) => return EventsEnd::Broken(failure.into()),
            };
            let Some(data) = line.strip_prefix(b"data: ") else { continue };
            let job: Value = serde_json::from_slice(data).unwrap_or_default();
            *received += 1;
            if matches!(job["state"].as_str(), Some("done" | "failed" | "cancelled")) {
                return EventsEnd::JobEnded(job);
            }
            let progress = &job["progress"];
            if let (Some(step), Some(done)) = (progress["step"].as_str(), progress["done"].as_u64()) {
                self.reporter.report(step, done, progress["total"].as_u64());
            }
        }
    }

    /// Cancels the job; after a second interrupt the command no longer waits for it.
    async fn cancel(&mut self) -> Result<(), RemoteFailure> {
        if self.cancelled {
            return Err(Failure::Machine(format!("the job {} was cancelled and has not ended yet", self.id)).into());
        }
        self.cancelled = true;
        let target = ApiPath::of(&["jobs", self.id, "cancel"]);
        self.admin.send(AdminRequest { method: Method::POST, ..AdminRequest::delete(&target) }).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failure(job: Value) -> (Failure, usize) {
        let failure = outcome::<Value>(job).unwrap_err();
        (failure.failure, failure.faults.len())
    }

    #[test]
    fn ended_job_gives_its_result_or_the_failure_of_the_command() {
        assert_eq!(outcome::<Value>(json!({"state": "done", "result": {"a": 1}})).unwrap(), json!({"a": 1}));
        for (code, expected) in [(1, 1), (3, 3), (4, 4)] {
            let (failed, _) = failure(json!({"state": "failed", "exit_code": code, "error": {"message": "no", "faults": []}}));
            assert_eq!((failed.code(), failed.to_string()), (expected, "no".to_owned()));
        }
        let faults = json!([{"line": 3, "column": 1, "message": "what"}]);
        let job = json!({"state": "failed", "exit_code": 3, "error": {"message": "no", "faults": faults}});
        assert_eq!(failure(job.clone()).1, 1);
        assert_eq!(outcome::<Value>(job).unwrap_err().in_file(Path::new("c.toml")).to_string(), "c.toml:3:1: what");
        let (by, _) = failure(json!({"state": "cancelled", "cancelled_by": "ops", "error": null}));
        assert_eq!((by.code(), by.to_string()), (1, "cancelled by ops".to_owned()));
        let stopped = json!({"state": "cancelled", "cancelled_by": null, "error": {"message": "the gateway stopped"}});
        assert_eq!(failure(stopped).0.to_string(), "cancelled: the gateway stopped");
        assert_eq!(failure(json!({"state": "new"})).0.code(), 4);
    }

    #[test]
    fn progress_is_printed_at_intervals() {
        let reporter = ProgressReporter::new(&Common::default());
        let start = *reporter.next.lock().unwrap() - PROGRESS_INTERVAL;
        let due: Vec<u64> = (0..9).filter(|second| reporter.is_due(start + Duration::from_secs(*second))).collect();
        assert_eq!(due, [2, 4, 6, 8]);
        assert_eq!(progress_text("database", 3, Some(16)), "database: 3 of 16");
        assert_eq!(progress_text("journal", 3_000, None), "journal: 3000");
    }
}
