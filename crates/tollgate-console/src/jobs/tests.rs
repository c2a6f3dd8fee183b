//! Jobs from their start to their end, with scripted work.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde_json::json;
use tempfile::TempDir;

use super::{job::JobState, *};

const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

/// Work that ends when the test sends its end, or when it is cancelled.
#[derive(Debug)]
struct Scripted {
    begun: SyncSender<JobKind>,
    end: Mutex<Receiver<Result<JobOutput, JobFailure>>>,
}

impl JobRunner for Scripted {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn run(&self, request: JobRequest, control: &WorkControl) -> Result<JobOutput, JobFailure> {
        control.report("step", 1, Some(2));
        let _ = self.begun.send(request.kind());
        loop {
            if control.is_cancelled() {
                return Err(JobFailure::Cancelled);
            }
            let ended = self.end.lock().unwrap().recv_timeout(Duration::from_millis(5));
            match ended {
                Ok(ended) => return ended,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => panic!("the script ended"),
            }
        }
    }
}

struct Script {
    jobs: Jobs,
    begun: Receiver<JobKind>,
    end: SyncSender<Result<JobOutput, JobFailure>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    _data: TempDir,
}

fn script() -> Script {
    let ((begun, begins), (end, ends)) = (sync_channel(8), sync_channel(8));
    let (tasks, stop, data) = (TaskTracker::new(), CancellationToken::new(), TempDir::new().unwrap());
    let runner = Arc::new(Scripted { begun, end: Mutex::new(ends) });
    let jobs = Jobs::new(runner, (BackupFolder::of(data.path()), ScheduledBackups::new(true)), tasks.clone(), stop.clone());
    Script { jobs, begun: begins, end, tasks, stop, _data: data }
}

impl Script {
    fn start(&self, request: JobRequest) -> Arc<Job> {
        let Ok(Admission::New(job)) = self.jobs.admit(request.kind(), "root".to_owned(), None) else { panic!("a new job") };
        self.jobs.start(&job, request);
        job
    }
}

async fn ended(job: &Job) -> Value {
    job.status().wait_for(|status| status.state.has_ended()).await.unwrap();
    job.show_whole()
}

async fn is_in(job: &Job, state: JobState) {
    job.status().wait_for(|status| status.state == state).await.unwrap();
}

#[tokio::test]
async fn job_runs_and_keeps_its_result() {
    let script = script();
    let job = script.start(JobRequest::Verify);
    is_in(&job, JobState::Running).await;
    job.status().wait_for(|status| job.show(status)["progress"]["total"] == 2).await.unwrap();
    script.end.send(Ok(JobOutput { result: json!({"agrees": false}), exit_code: 1 })).unwrap();
    let shown = ended(&job).await;
    assert_eq!((&shown["state"], &shown["exit_code"], &shown["result"]["agrees"]), (&json!("done"), &json!(1), &json!(false)));
    assert!(job.show(&job.status().borrow())["result"].is_null(), "results are in the whole job only");
    assert!(!job.request_cancel("ops"), "it has ended");
    assert_eq!(job.show_whole()["state"], "done");
}

#[tokio::test]
async fn third_job_is_queued_and_can_be_cancelled_before_it_runs() {
    let script = script();
    let first = [script.start(JobRequest::Verify), script.start(JobRequest::Doctor)];
    for job in &first {
        is_in(job, JobState::Running).await;
    }
    let third = script.start(JobRequest::Backup(BackupOrigin::Request));
    assert_eq!(third.show_whole()["state"], "queued");
    assert!(third.request_cancel("ops") && !third.request_cancel("root"));
    let shown = ended(&third).await;
    assert_eq!((&shown["state"], &shown["cancelled_by"], &shown["started_at"]), (&json!("cancelled"), &json!("ops"), &Value::Null));
    first[0].request_cancel("ops");
    assert_eq!(ended(&first[0]).await["state"], "cancelled");
    let again = script.start(JobRequest::Backup(BackupOrigin::Request));
    is_in(&again, JobState::Running).await;
    // All jobs that began, in any order because each has a thread. The cancelled one is not among them.
    let begun: Vec<JobKind> = (0..3).map(|_| script.begun.recv().unwrap()).collect();
    let backups = begun.iter().filter(|kind| **kind == JobKind::Backup).count();
    assert_eq!((backups, script.begun.try_recv().ok()), (1, None), "{begun:?}");
}

#[tokio::test]
async fn failed_and_oversized_and_panicking_work_fails_the_job() {
    let script = script();
    let failure = JobError { exit_code: 4, message: "no database".to_owned(), faults: Vec::new() };
    let large = json!({"text": "x".repeat(MAX_RESULT_BYTES)});
    let ends = [Err(JobFailure::Failed(failure)), Ok(JobOutput { result: large, exit_code: 0 })];
    for (end, (code, words)) in ends.into_iter().zip([(4, "no database"), (1, "select fewer records")]) {
        let job = script.start(JobRequest::Verify);
        script.end.send(end).unwrap();
        let shown = ended(&job).await;
        assert_eq!((&shown["state"], &shown["exit_code"]), (&json!("failed"), &json!(code)));
        assert!(shown["error"]["message"].as_str().unwrap().contains(words) && shown["result"].is_null(), "{shown}");
    }
    let job = script.start(JobRequest::Verify);
    drop(script.end);
    assert!(ended(&job).await["error"]["message"].as_str().unwrap().contains("internal error"));
}

#[tokio::test]
async fn stopping_gateway_cancels_its_jobs_and_admits_none() {
    let script = script();
    let job = script.start(JobRequest::Verify);
    is_in(&job, JobState::Running).await;
    script.stop.cancel();
    let shown = ended(&job).await;
    assert_eq!((&shown["state"], &shown["error"]["message"]), (&json!("cancelled"), &json!("the gateway stopped")));
    assert!(script.jobs.admit(JobKind::Doctor, "root".to_owned(), None).is_err());
    script.tasks.close();
    script.tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn job_that_takes_too_long_is_cancelled_and_fails() {
    let script = script();
    let job = script.start(JobRequest::Verify);
    is_in(&job, JobState::Running).await;
    let shown = ended(&job).await;
    assert_eq!(shown["state"], "failed");
    assert!(shown["error"]["message"].as_str().unwrap().contains("6 h"), "{shown}");
}
