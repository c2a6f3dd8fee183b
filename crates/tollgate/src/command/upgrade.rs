//! `upgrade`: starts a new process that takes over from the running gateway, and waits until it serves.

use std::{
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tollgate_store::DataFolderLock;

use crate::{
    cli::{Common, Upgrade},
    compose,
    failure::Failure,
    output,
};

const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait for the new process.
const START_LIMIT: Duration = Duration::from_mins(1);

/// Starts this executable as `serve --upgrade`, in a process group of its own so that it outlives the terminal's signals.
pub(crate) fn run(common: &Common, arguments: &Upgrade) -> Result<(), Failure> {
    let config = compose::settings(common, &[])?;
    let program = std::env::current_exe().map_err(|error| Failure::Machine(format!("cannot find the executable: {error}")))?;
    let mut command = Command::new(program);
    command.args(["serve", "--upgrade"]);
    for (flag, value) in [("--config", &common.config), ("--data", &common.data), ("--catalog", &arguments.catalog)] {
        if let Some(value) = value {
            command.arg(flag).arg(value);
        }
    }
    if let Some(listen) = &arguments.listen {
        command.args(["--listen", listen]);
    }
    let started = command.stdin(Stdio::null()).process_group(0).spawn();
    let mut process = started.map_err(|error| Failure::Machine(format!("cannot start the new process: {error}")))?;
    wait_until_it_serves(&mut process, || DataFolderLock::holder(&config.data))?;
    if !common.quiet {
        output::line(&format!("process {} serves now; the previous one completes its running requests", process.id()));
    }
    Ok(())
}

/// The new process writes its id into the lock of the data folder when it has taken over.
fn wait_until_it_serves(process: &mut Child, holder: impl Fn() -> Option<u32>) -> Result<(), Failure> {
    let begin = compose::instant();
    while holder() != Some(process.id()) {
        match process.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => {
                return Err(Failure::Machine(format!("the new process ended ({status}); the running gateway keeps serving")));
            }
            Err(error) => return Err(Failure::Machine(format!("cannot watch the new process: {error}"))),
        }
        if compose::instant() - begin > START_LIMIT {
            return Err(Failure::Machine(format!("process {} does not serve yet; see its log", process.id())));
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    Ok(())
}
