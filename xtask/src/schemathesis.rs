//! `cargo xtask schemathesis`: requests that Schemathesis (from `PyPI`) makes from the OpenAPI document of the admin API, sent to
//! the real binary. Every answer must be one that the document has, and none a 5xx; requests that the document does not allow must
//! be refused.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::{
    bench::targets::ChildGuard,
    packages,
    shell::{self, StepOutcome},
};

/// Requests for each operation in `cargo xtask check`.
const CHECK_EXAMPLES: u32 = 5;

/// Options of `cargo xtask schemathesis`.
#[derive(Args)]
pub(crate) struct SchemathesisOptions {
    /// Seconds of requests.
    #[arg(long, default_value_t = 300)]
    seconds: u32,
    /// The seed that a run printed, to make the same requests.
    #[arg(long)]
    seed: Option<u64>,
}

/// `cargo xtask schemathesis`.
pub(crate) fn run_alone(options: &SchemathesisOptions) -> Result<()> {
    let mut arguments = vec![format!("--max-time={}", options.seconds)];
    arguments.extend(options.seed.map(|seed| format!("--seed={seed}")));
    match run(&arguments)? {
        StepOutcome::Passed => Ok(()),
        StepOutcome::Skipped(why) => bail!("Schemathesis could not run: {why}"),
    }
}

/// The step of `cargo xtask check`: the same requests in every run.
pub(crate) fn step() -> Result<StepOutcome> {
    run(&["--generation-deterministic".to_owned(), format!("--max-examples={CHECK_EXAMPLES}")])
}

fn run(arguments: &[String]) -> Result<StepOutcome> {
    let source = shell::root().join("sdk-tests/schemathesis");
    let Some(programs) = packages::python("schemathesis", &source.join("requirements.txt"), "Schemathesis")? else {
        return Ok(StepOutcome::Skipped(packages::NO_PYTHON.to_owned()));
    };
    shell::build_programs(&["tollgate"])?;
    let folder = shell::temp_dir("tollgate-schemathesis-")?;
    let gateway = Gateway::start(folder.path())?;
    let mut command = Command::new(programs.join("schemathesis"));
    command.arg("--config-file").arg(source.join("schemathesis.toml")).arg("run").args(arguments);
    command.arg(format!("{}/admin/openapi.json", gateway.url)).current_dir(folder.path());
    command.env("ADMIN_KEY", &gateway.key).env("OTHER_ADMIN_KEY", &gateway.other_key);
    let found = shell::run(&mut command);
    gateway.stop()?;
    found?;
    Ok(StepOutcome::Passed)
}

/// A gateway with an admin key, and another one that may be revoked.
struct Gateway {
    folder: PathBuf,
    url: String,
    key: String,
    /// Its id.
    other_key: String,
    process: ChildGuard,
}

impl Gateway {
    fn start(folder: &Path) -> Result<Self> {
        let make = |name: &str, field: &str| {
            let made = shell::output(&mut tollgate(folder, &["--json", "admin-key", "create", name, "--scope", "admin"]))?;
            serde_json::from_str::<Value>(&made)?[field].as_str().map(str::to_owned).context("an admin key")
        };
        let (key, other_key) = (make("schemathesis", "key")?, make("other", "id")?);
        let mut command = tollgate(folder, &["--json", "serve", "--listen", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(folder.join("log"))?);
        let mut process = ChildGuard(command.spawn().context("cannot start the gateway")?);
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().context("its output")?).read_line(&mut line)?;
        let started: Value = serde_json::from_str(&line).with_context(|| log(folder))?;
        let url = started["url"].as_str().context("the gateway prints its address")?.to_owned();
        Ok(Self { folder: folder.to_owned(), url, key, other_key, process })
    }

    /// Shuts it down. Fails if it no longer accepts the key, has met an internal error, or its accounting is inconsistent.
    fn stop(mut self) -> Result<()> {
        ensure!(self.process.0.try_wait()?.is_none(), "the gateway ended:\n{}", log(&self.folder));
        let mut ask = Command::new(shell::target_dir().join("debug/tollgate"));
        shell::output(ask.args(["--url", &self.url, "--admin-key", &self.key, "admin-key", "list"]))?;
        drop(self.process);
        let log = log(&self.folder);
        let errors: Vec<&str> = log.lines().filter(|line| line.contains("panicked") || line.contains("ERROR")).collect();
        ensure!(errors.is_empty(), "the gateway logged errors:\n{}", errors.join("\n"));
        shell::output(&mut tollgate(&self.folder, &["verify"])).map(drop)
    }
}

fn tollgate(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(shell::target_dir().join("debug/tollgate"));
    command.args(arguments).arg("--data").arg(folder.join("data")).current_dir(folder);
    command
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}
