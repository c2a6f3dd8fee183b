//! One job and its state.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tollgate_core::{JobId, Timestamp};
use tollgate_store::{WorkProgress, catalog_file::FileError};

use super::{JobError, JobFailure, JobKind, JobOutput, ScheduledEnd};
use crate::time::time_value;

/// A job. Its state is watched by the requests that follow it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) kind: JobKind,
    /// The admin key that started it.
    by: String,
    created_at: Timestamp,
    /// Idempotency key and fingerprint of the request that started it.
    pub(super) idempotency: Option<(String, [u8; 32])>,
    pub(super) cancel: CancellationToken,
    status: watch::Sender<JobStatus>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JobState {
    #[default]
    Queued,
    Running,
    Done,
    Failed,
    Cancelled,
}

impl JobState {
    pub(crate) const WORDS: &[&str] =
        &[Self::Queued.as_str(), Self::Running.as_str(), Self::Done.as_str(), Self::Failed.as_str(), Self::Cancelled.as_str()];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// The mutable part of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobStatus {
    pub(crate) state: JobState,
    progress: Option<WorkProgress>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    cancelled_by: Option<String>,
    exit_code: Option<u8>,
    result: Option<Arc<Value>>,
    error: Option<JobError>,
}

impl JobStatus {
    pub(super) fn scheduled_end(&self) -> ScheduledEnd {
        match self.state {
            JobState::Done => ScheduledEnd::Done,
            JobState::Failed => ScheduledEnd::Failed(self.error.as_ref().map(|error| error.message.clone()).unwrap_or_default()),
            JobState::Queued | JobState::Running | JobState::Cancelled => ScheduledEnd::NotRun,
        }
    }
}

/// How a job ended.
#[derive(Clone, Debug)]
pub(super) enum JobEnd {
    Done(JobOutput),
    Failed(JobError),
    /// With the reason, if it was not a request.
    Cancelled(Option<&'static str>),
}

impl JobEnd {
    /// `stopping`: whether the gateway stops, which cancels all jobs.
    pub(super) fn of(ended: Result<JobOutput, JobFailure>, stopping: bool) -> Self {
        match ended {
            Ok(output) => Self::Done(output),
            Err(JobFailure::Failed(error)) => Self::Failed(error),
            Err(JobFailure::Cancelled) => Self::Cancelled(stopping.then_some("the gateway stopped")),
        }
    }
}

impl Job {
    pub(super) fn new(
        id: JobId,
        kind: JobKind,
        by: String,
        created_at: Timestamp,
        idempotency: Option<(String, [u8; 32])>,
        cancel: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self { id, kind, by, created_at, idempotency, cancel, status: watch::Sender::default() })
    }

    pub(crate) fn status(&self) -> watch::Receiver<JobStatus> {
        self.status.subscribe()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.status.borrow().state.has_ended()
    }

    pub(super) fn begin(&self, now: Timestamp) {
        self.status.send_modify(|status| (status.state, status.started_at) = (JobState::Running, Some(now)));
    }

    pub(super) fn progress(&self, progress: WorkProgress) {
        self.status.send_if_modified(|status| {
            let is_new = status.progress != Some(progress);
            status.progress = Some(progress);
            is_new
        });
    }

    pub(super) fn end(&self, end: JobEnd, now: Timestamp) {
        self.status.send_modify(|status| {
            status.ended_at = Some(now);
            match end {
                JobEnd::Done(JobOutput { result, exit_code }) => {
                    status.state = JobState::Done;
                    (status.result, status.exit_code) = (Some(Arc::new(result)), Some(exit_code));
                }
                JobEnd::Failed(error) => {
                    status.state = JobState::Failed;
                    (status.exit_code, status.error) = (Some(error.exit_code), Some(error));
                }
                JobEnd::Cancelled(reason) => {
                    status.state = JobState::Cancelled;
                    status.exit_code = Some(1);
                    status.error = reason.map(|reason| JobError { exit_code: 1, message: reason.to_owned(), faults: Vec::new() });
                }
            }
        });
    }

    /// Requests the end of the job. Returns whether this request is the first one, and the job has not ended.
    pub(crate) fn request_cancel(&self, by: &str) -> bool {
        let is_first = self.status.send_if_modified(|status| {
            let is_first = !status.state.has_ended() && status.cancelled_by.is_none();
            if is_first {
                status.cancelled_by = Some(by.to_owned());
            }
            is_first
        });
        self.cancel.cancel();
        is_first
    }

    /// The job as an object of the API, without its result.
    pub(crate) fn show(&self, status: &JobStatus) -> Value {
        let progress = status.progress.map(|it| json!({"step": it.step, "done": it.done, "total": it.total}));
        let fault = |fault: &FileError| json!({"line": fault.line, "column": fault.column, "message": fault.message});
        let error = status.error.as_ref().map(|error| {
            let faults: Vec<Value> = error.faults.iter().take(crate::api_error::MAX_FAULTS).map(fault).collect();
            json!({"message": error.message, "faults": faults})
        });
        json!({
            "id": self.id, "kind": self.kind.as_str(), "state": status.state.as_str(), "by": self.by, "progress": progress,
            "created_at": time_value(self.created_at), "started_at": status.started_at.map(time_value),
            "ended_at": status.ended_at.map(time_value), "cancelled_by": status.cancelled_by, "exit_code": status.exit_code,
            "error": error, "result": null,
        })
    }

    /// The same with its result.
    pub(crate) fn show_whole(&self) -> Value {
        let status = self.status.borrow().clone();
        let mut shown = self.show(&status);
        if let Some(result) = &status.result {
            shown["result"] = Value::clone(result);
        }
        shown
    }
}
