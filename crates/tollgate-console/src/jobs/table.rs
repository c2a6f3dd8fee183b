//! Admission and retention of jobs: one of a kind runs at a time, a few in total, and the latest ended ones are kept.

use std::{collections::VecDeque, sync::Arc};

use tollgate_core::JobId;

use super::{JobKind, job::Job};
use crate::api_error::ApiError;

/// Jobs that are queued or running.
const MAX_OPEN: usize = 3;
/// Jobs that are kept after their end.
const MAX_ENDED: usize = 16;

/// Jobs, oldest first.
#[derive(Debug, Default)]
pub(super) struct JobTable(VecDeque<Arc<Job>>);

#[derive(Debug)]
pub(crate) enum Admission {
    New(Arc<Job>),
    /// The job that the same request started before.
    Repeated(Arc<Job>),
}

/// Why a job is refused.
#[derive(Debug)]
pub(super) enum JobConflict {
    /// A job of the same kind has not ended.
    SameKind(Arc<Job>),
    TooMany(Vec<Arc<Job>>),
    IdempotencyKeyReused,
}

impl From<JobConflict> for ApiError {
    fn from(conflict: JobConflict) -> Self {
        match conflict {
            JobConflict::SameKind(job) => {
                let kind = job.kind.as_str();
                let message = format!("The job {} is a {kind} too and has not ended; wait for it, or cancel it.", job.id);
                Self::conflict("job_conflict", message)
            }
            JobConflict::TooMany(jobs) => {
                let named: Vec<String> = jobs.iter().map(|job| format!("{} ({})", job.id, job.kind.as_str())).collect();
                let message = format!("{MAX_OPEN} jobs have not ended: {}; wait for one, or cancel it.", named.join(", "));
                Self::conflict("job_conflict", message)
            }
            JobConflict::IdempotencyKeyReused => {
                let message = "The idempotency key belongs to another request; use a new one.";
                Self::conflict("idempotency_key_reused", message)
            }
        }
    }
}

impl JobTable {
    /// Adds a job, and forgets the oldest that have ended.
    pub(super) fn admit(&mut self, job: Arc<Job>) -> Result<Admission, JobConflict> {
        if let Some((key, fingerprint)) = &job.idempotency {
            let same_key = |known: &&Arc<Job>| known.idempotency.as_ref().is_some_and(|(known, _)| known == key);
            if let Some(known) = self.0.iter().find(same_key) {
                let same_request = known.idempotency.as_ref().is_some_and(|(_, known)| known == fingerprint);
                return if same_request {
                    Ok(Admission::Repeated(Arc::clone(known)))
                } else {
                    Err(JobConflict::IdempotencyKeyReused)
                };
            }
        }
        let open: Vec<Arc<Job>> = self.0.iter().filter(|known| !known.has_ended()).cloned().collect();
        if let Some(same) = open.iter().find(|known| known.kind == job.kind) {
            return Err(JobConflict::SameKind(Arc::clone(same)));
        }
        if open.len() >= MAX_OPEN {
            return Err(JobConflict::TooMany(open));
        }
        let mut forgotten = (self.0.len() - open.len()).saturating_sub(MAX_ENDED - 1);
        self.0.retain(|known| {
            let stays = forgotten == 0 || !known.has_ended();
            forgotten -= usize::from(!stays);
            stays
        });
        self.0.push_back(Arc::clone(&job));
        Ok(Admission::New(job))
    }

    pub(super) fn remove(&mut self, id: JobId) {
        self.0.retain(|job| job.id != id);
    }

    pub(super) fn find(&self, id: JobId) -> Option<Arc<Job>> {
        self.0.iter().find(|job| job.id == id).cloned()
    }

    /// Up to `limit` jobs before `after` of the kinds that `may_know` accepts, newest first.
    pub(super) fn page(&self, after: Option<JobId>, limit: usize, may_know: impl Fn(JobKind) -> bool) -> Vec<Arc<Job>> {
        let is_shown = |job: &&Arc<Job>| after.is_none_or(|after| job.id < after) && may_know(job.kind);
        let mut jobs: Vec<Arc<Job>> = self.0.iter().filter(is_shown).cloned().collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
        jobs.truncate(limit);
        jobs
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio_util::sync::CancellationToken;
    use tollgate_core::Timestamp;

    use super::*;
    use crate::jobs::{JobOutput, job::JobEnd};

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    fn job(number: i64, kind: JobKind, key: Option<(&str, u8)>) -> Arc<Job> {
        let at = NOW.plus_ms(number);
        let key = key.map(|(key, request)| (key.to_owned(), [request; 32]));
        Job::new(JobId::from_parts(at, [0; 10]), kind, "root".to_owned(), at, key, CancellationToken::new())
    }

    fn end(job: &Job) {
        job.end(JobEnd::of(Ok(JobOutput { result: json!({}), exit_code: 0 }), false), NOW);
    }

    fn conflict(table: &mut JobTable, job: Arc<Job>) -> String {
        ApiError::from(table.admit(job).unwrap_err()).message().to_owned()
    }

    #[test]
    fn one_job_per_kind_and_a_bounded_number_in_total_are_admitted() {
        let mut table = JobTable::default();
        let verify = job(0, JobKind::Verify, None);
        table.admit(Arc::clone(&verify)).unwrap();
        let refused = conflict(&mut table, job(1, JobKind::Verify, None));
        assert!(refused.contains(&verify.id.to_string()), "{refused}");
        table.admit(job(2, JobKind::Doctor, None)).unwrap();
        table.admit(job(3, JobKind::Replay, None)).unwrap();
        let refused = conflict(&mut table, job(4, JobKind::Backup, None));
        assert!(refused.contains("(verify)") && refused.contains("(doctor)") && refused.contains("(replay)"), "{refused}");
        end(&verify);
        table.admit(job(5, JobKind::Verify, None)).unwrap();
    }

    #[test]
    fn repeated_idempotency_key_returns_the_same_job() {
        let mut table = JobTable::default();
        let first = job(0, JobKind::Verify, Some(("k", 1)));
        table.admit(Arc::clone(&first)).unwrap();
        end(&first);
        let again = table.admit(job(1, JobKind::Verify, Some(("k", 1)))).unwrap();
        assert!(matches!(again, Admission::Repeated(job) if job.id == first.id));
        assert!(conflict(&mut table, job(2, JobKind::Doctor, Some(("k", 2)))).contains("idempotency key"));
    }

    #[test]
    fn oldest_ended_jobs_are_evicted_and_open_jobs_are_kept() {
        let mut table = JobTable::default();
        let open = job(0, JobKind::Backup, None);
        table.admit(Arc::clone(&open)).unwrap();
        for number in 1..100 {
            let job = job(number, JobKind::Verify, None);
            table.admit(Arc::clone(&job)).unwrap();
            end(&job);
        }
        let kept = table.page(None, 1_000, |_| true);
        assert_eq!(kept.len(), MAX_ENDED + 1);
        assert!(table.find(open.id).is_some());
        let first = table.page(None, 3, |_| true);
        let next = table.page(Some(first[2].id), 1_000, |_| true);
        let ids = |jobs: &[Arc<Job>]| jobs.iter().map(|job| job.id).collect::<Vec<_>>();
        assert_eq!([ids(&first), ids(&next)].concat(), ids(&kept));
        assert!(kept.is_sorted_by_key(|job| std::cmp::Reverse(job.id)));
        let without_backups = table.page(None, 1_000, |kind| kind != JobKind::Backup);
        assert_eq!(without_backups.len(), MAX_ENDED);
    }
}
