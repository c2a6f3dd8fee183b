//! `cargo xtask upgrades`: measures the effect on callers of repeated upgrades of a gateway under load.
//!
//! One client sends requests at a steady rate over kept connections, another reads streams that are longer than an upgrade. The
//! table is printed, and written into `docs/performance.md` with `--write`. The command fails if a request is refused or cut, or if
//! a record is missing or stored twice.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::{
    bench::targets::{free_ports, http_get, start, wait_for},
    faults::catalog::{self, GOOD_KEY},
    page, shell,
};

const FILE: &str = "docs/performance.md";
const MARKER: &str = "<!-- upgrades: written by `cargo xtask upgrades --write` -->\n";
/// Streams at the same time, and their chunks, 100 ms apart.
const STREAMS: u32 = 16;
const CHUNKS: u32 = 50;
/// Time before the first upgrade and between two.
const INTERVAL: Duration = Duration::from_secs(2);

/// Options of `cargo xtask upgrades`.
#[derive(Args)]
pub(crate) struct UpgradesOptions {
    /// Measure the debug build.
    #[arg(long)]
    debug: bool,
    #[arg(long, default_value_t = 20)]
    upgrades: u32,
    /// Requests a second.
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// Write the table into docs/performance.md.
    #[arg(long)]
    write: bool,
}

/// The measured gateway and its programs.
struct Setup {
    programs: PathBuf,
    folder: PathBuf,
    address: String,
}

pub(crate) fn run(options: &UpgradesOptions) -> Result<()> {
    let profile = if options.debug { "dev" } else { "release" };
    println!("building ({profile})");
    let packages = ["--package", "tollgate", "--package", "tollgate-bench"];
    shell::run(shell::cargo(&["build", "--quiet", "--bins", "--profile", profile]).args(packages))?;
    let programs = shell::target_dir().join(if options.debug { "debug" } else { "release" });
    let folder = PathBuf::from(shell::output(Command::new("mktemp").args(["-d", "/tmp/tollgate-upgrades-XXXXXX"]))?.trim());
    let measured = measure(options, &programs, &folder);
    let _ = fs::remove_dir_all(&folder);
    let (text, is_met) = measured?;
    println!("\n{text}");
    if options.write {
        page::write(FILE, MARKER, &text)?;
    }
    ensure!(is_met, "callers noticed the upgrades");
    Ok(())
}

fn measure(options: &UpgradesOptions, programs: &Path, folder: &Path) -> Result<(String, bool)> {
    let ports = free_ports(2)?;
    let [upstream, address] = [ports[0], ports[1]].map(|port| format!("127.0.0.1:{port}"));
    let _upstream = start(Command::new(programs.join("fast-upstream")).args(["--listen", &upstream]))?;
    let setup = Setup { programs: programs.to_owned(), folder: folder.to_owned(), address };
    fs::write(folder.join("catalog.toml"), catalog::text(&upstream))?;
    let first = start(&mut setup.tollgate(&["serve", "--listen", &setup.address, "--catalog", "catalog.toml"]))?;
    wait_for(&upstream)?;
    wait_for(&setup.address)?;
    http_get(&upstream, &format!("/set?delay=20&chunks={CHUNKS}&interval=100"))?;
    let seconds = INTERVAL.as_secs() * u64::from(options.upgrades + 2);
    let rate = setup.load(&["rate", "--connections", "64", "--rate", &options.rate.to_string()], seconds)?;
    let streams = setup.load(&["stream", "--connections", &STREAMS.to_string()], seconds)?;
    let mut last = ProcessGuard(String::new());
    for _ in 0..options.upgrades {
        thread::sleep(INTERVAL);
        shell::run(&mut setup.tollgate(&["upgrade", "--listen", &setup.address, "--catalog", "catalog.toml"]))?;
        fs::read_to_string(folder.join("data/lock"))?.trim().clone_into(&mut last.0);
    }
    let (rate, streams) = (result(rate)?, result(streams)?);
    drop((last, first));
    shell::run(&mut setup.tollgate(&["verify"]))?;
    let records = shell::output(setup.tollgate(&["usage", "export", "--json"]).stdout(Stdio::piped()))?;
    let ids: std::collections::HashSet<String> = records.lines().map(id_of).collect::<Result<_>>()?;
    let number = |row: &Value, pointer: &str| row.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::INFINITY);
    let failed = number(&rate, "/errors") + number(&streams, "/errors");
    if failed > 0.0 {
        println!("errors: {} {}", rate["last_error"], streams["last_error"]);
    }
    let text = format!(
        "| upgrades | requests | refused or cut | p50 | p99 | longest wait | streams of {} s | cut | records | there twice |\n\
         |---|---|---|---|---|---|---|---|---|---|\n\
         | {} | {} at {}/s | {} | {:.1} ms | {:.1} ms | {:.0} ms | {} | {} | {} | {} |\n",
        CHUNKS / 10,
        options.upgrades,
        rate["done"],
        options.rate,
        rate["errors"],
        number(&rate, "/latency_ms/p50"),
        number(&rate, "/latency_ms/p99"),
        number(&rate, "/latency_ms/max"),
        streams["done"],
        streams["errors"],
        ids.len(),
        records.lines().count() - ids.len(),
    );
    let answered = number(&rate, "/done") + number(&streams, "/done");
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let is_booked = ids.len() as f64 >= answered && records.lines().count() == ids.len();
    Ok((text, failed == 0.0 && is_booked))
}

fn id_of(record: &str) -> Result<String> {
    let record: Value = serde_json::from_str(record)?;
    record["id"].as_str().map(str::to_owned).context("a record has no id")
}

impl Setup {
    fn tollgate(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("tollgate"));
        command.args(arguments).arg("--data").arg(self.folder.join("data"));
        command.env("TOLLGATE_LOG__LEVEL", "error").current_dir(&self.folder).stdout(Stdio::null());
        command
    }

    /// Starts the load client.
    fn load(&self, arguments: &[&str], seconds: u64) -> Result<Child> {
        let mut command = Command::new(self.programs.join("load"));
        command.args(arguments).args(["--model", "bench-chat", "--seconds", &seconds.to_string()]);
        command.args(["--url", &format!("http://{}/v1/chat/completions", self.address)]);
        command.args(["--header", &format!("authorization: Bearer {GOOD_KEY}")]);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
    }
}

/// Output of the load client.
fn result(client: Child) -> Result<Value> {
    let out = client.wait_with_output()?;
    if !out.status.success() {
        bail!("the load client failed");
    }
    Ok(serde_json::from_str(String::from_utf8(out.stdout)?.trim())?)
}

/// The process id of the running gateway, which is not a child of this process. Dropping it ends the gateway.
struct ProcessGuard(String);

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let _ = Command::new("kill").args(["-TERM", &self.0]).status();
        let process = Path::new("/proc").join(&self.0);
        for _ in 0..600 {
            if !process.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}
