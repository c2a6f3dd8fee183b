//! A gateway with a month of history in front of the scripted provider, both on loopback. `cargo xtask dev` runs it, and
//! `cargo xtask pictures` takes pictures of it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use crate::shell;

/// An admin and a member of the history, and the password of both. For development only: the gateway listens on loopback.
pub(crate) const ADMIN: &str = "mira";
pub(crate) const MEMBER: &str = "lin";
pub(crate) const PASSWORD: &str = "demo-password";
/// A key of the history's admin, and of the catalog of `cargo xtask dev --empty`.
pub(crate) const KEY: &str = "dev-key-0123456789abcdef";

/// The programs, built.
#[derive(Debug)]
pub(crate) struct DemoPrograms(PathBuf);

/// A program that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningProgram(Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl DemoPrograms {
    /// Builds them.
    pub(crate) fn build() -> Result<Self> {
        shell::build_programs(&["tollgate", "scripted-provider", "demo-history"])?;
        Ok(Self(shell::target_dir().join("debug")))
    }

    pub(crate) fn gateway(&self) -> Command {
        Command::new(self.0.join("tollgate"))
    }

    /// Starts the scripted provider. Returns its address, too.
    pub(crate) fn provider(&self, listen: &str) -> Result<(RunningProgram, String)> {
        let mut command = Command::new(self.0.join("scripted-provider"));
        command.args(["--listen", listen, "--answers"]).arg(answers());
        started(command.stdout(Stdio::piped()))
    }

    /// Writes the history into a new data folder, which may remain from an earlier run, and sets the passwords.
    pub(crate) fn write_history(&self, data: &Path, provider: &str) -> Result<()> {
        if data.exists() {
            fs::remove_dir_all(data).with_context(|| format!("cannot remove {}", data.display()))?;
        }
        let written = shell::output(Command::new(self.0.join("demo-history")).arg(data).arg(provider))?;
        for member in [ADMIN, MEMBER] {
            let mut command = self.gateway();
            command.args(["member", "reset-password", member, "--stdin", "--quiet", "--data"]).arg(data);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("cannot start tollgate")?;
            child.stdin.take().context("its input is piped")?.write_all(PASSWORD.as_bytes())?;
            if !child.wait()?.success() {
                bail!("the password of {member} could not be set");
            }
        }
        println!("    history: {}", written.trim());
        Ok(())
    }

    /// A gateway that listens here, and knows that browsers find its console here.
    pub(crate) fn serving(&self, listen: &str) -> Command {
        let mut command = self.gateway();
        command.args(["serve", "--listen", listen]).env("TOLLGATE_CONSOLE__URL", format!("http://{listen}"));
        command
    }

    /// Starts it on a free port of loopback. Returns the address of its console, too.
    pub(crate) fn serve(&self, data: &Path, log: &Path) -> Result<(RunningProgram, String)> {
        let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let mut command = self.serving(&listen);
        command.args(["--json", "--data"]).arg(data).stdout(Stdio::piped()).stderr(fs::File::create(log)?);
        let (running, _) = started(&mut command)?;
        Ok((running, format!("http://{listen}")))
    }
}

/// The answers of the scripted provider to the questions in the pictures.
pub(crate) fn answers() -> PathBuf {
    shell::root().join("demo/src/answers.json")
}

/// Starts a program and waits for its first line.
fn started(command: &mut Command) -> Result<(RunningProgram, String)> {
    let mut running = RunningProgram(command.stdin(Stdio::null()).spawn().context("cannot start a program")?);
    let output = running.0.stdout.take().context("its output is piped")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.is_empty() {
        bail!("{} ended before it was ready", command.get_program().to_string_lossy());
    }
    Ok((running, line.trim().to_owned()))
}
