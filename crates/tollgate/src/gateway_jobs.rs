//! The work of a running gateway's jobs: the same as the commands' work, on the gateway's own settings and data folder.

use std::sync::Arc;

use serde::Serialize;
use tollgate_console::{ImportFailure, JobError, JobFailure, JobOutput, JobRequest, JobRunner};
use tollgate_core::Timestamp;
use tollgate_store::{BackupOrigin, WorkControl};

use crate::{
    compose,
    config::Config,
    failure::Failure,
    live_settings::LiveSettings,
    priority,
    work::{
        backup::backup,
        backup_check::check_kept,
        doctor::doctor,
        export::export,
        import::{ImportError, import},
        replay::{ReplayFailure, replay},
        verify::verify,
    },
};

#[derive(Debug)]
pub(crate) struct GatewayJobs {
    pub(crate) settings: Arc<LiveSettings>,
}

impl JobRunner for GatewayJobs {
    fn now(&self) -> Timestamp {
        compose::now()
    }

    fn run(&self, request: JobRequest, control: &WorkControl) -> Result<JobOutput, JobFailure> {
        priority::lower(priority::JOBS);
        let config = &*self.settings.current();
        let ended = match request {
            JobRequest::Doctor => doctor(config, control).map(|outcome| output(&outcome, outcome.wrong() > 0)),
            JobRequest::Verify => verify(config, control).map(|outcome| output(&outcome, outcome.failure().is_some())),
            JobRequest::Backup(origin) => back_up(config, origin, control),
            JobRequest::BackupCheck(name) => {
                check_kept(config, &name, control).map(|outcome| output(&outcome, outcome.failure().is_some()))
            }
            JobRequest::Replay(request) => match replay(config, &request.file, &request.records, control) {
                Ok(outcome) => Ok(output(&outcome, false)),
                Err(ReplayFailure::Other(failure)) => Err(failure),
                Err(ReplayFailure::File(faults)) => {
                    let message = "the file conflicts with the catalog".to_owned();
                    return Err(JobFailure::Failed(JobError { exit_code: 3, message, faults }));
                }
            },
            JobRequest::Export(request) => export(config, request, control).map(|outcome| output(&outcome, false)),
            JobRequest::Import(request) => match import(config, *request, control) {
                Ok(result) => Ok(JobOutput { result, exit_code: 0 }),
                Err(ImportError::Other(failure)) => Err(failure),
                Err(ImportError::Import(failure)) => return Err(not_imported(failure)),
            },
        };
        ended.map_err(|failure| {
            if control.is_cancelled() {
                return JobFailure::Cancelled;
            }
            JobFailure::Failed(JobError { exit_code: failure.code(), message: failure.to_string(), faults: Vec::new() })
        })
    }
}

fn back_up(config: &Config, origin: BackupOrigin, control: &WorkControl) -> Result<JobOutput, Failure> {
    let folder = compose::backup_folder(config);
    let target = folder.target(origin, compose::now())?;
    let mut outcome = backup(config, None, &target, control)?;
    if origin == BackupOrigin::Schedule {
        folder.remove_old(config.count("backup.keep"))?;
    }
    outcome.file = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(output(&outcome, false))
}

/// Why a list was not imported: it is wrong, or the state of the catalog prevents it.
fn not_imported(failure: ImportFailure) -> JobFailure {
    JobFailure::Failed(match failure {
        ImportFailure::List { message, faults } => JobError { exit_code: 3, message, faults },
        ImportFailure::Refused(message) => JobError { exit_code: 1, message, faults: Vec::new() },
        ImportFailure::Store(error) => JobError { exit_code: 1, message: error.to_string(), faults: Vec::new() },
    })
}

/// The result of a command, with its exit code.
fn output(outcome: &impl Serialize, found_something: bool) -> JobOutput {
    let result = serde_json::to_value(outcome).expect("texts and numbers are valid JSON");
    JobOutput { result, exit_code: u8::from(found_something) }
}
