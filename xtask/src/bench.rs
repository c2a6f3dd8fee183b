//! `cargo xtask bench`: measures the gateway against nginx in one interleaved run; prints ratios and CPU per request.
//!
//! Targets take turns, so other load on the machine affects them equally. CPU per request is the most reliable figure on a
//! busy machine. Each figure is printed with its bound; a missed bound does not fail the command. With `--peers` it measures other
//! gateways beside both instead.

mod console_users;
mod instructions;
mod machine;
mod overload;
pub(crate) mod peers;
mod report;
pub(crate) mod targets;
mod usage_api;
mod usage_pages;
mod usage_paint;
mod usage_store;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use self::{
    report::{medians, print_bounds, print_table},
    targets::{BenchTarget, free_ports, http_get, resident_mb, start, start_gateway, start_nginx, wait_for},
};
use crate::{dist, shell};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct BenchOptions {
    /// Rounds over all targets; medians are printed.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds per target and round.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Run only this scenario: max, native, rate, stream, slow, translated, bounded, usage,
    /// overload or instructions.
    #[arg(long)]
    only: Option<String>,
    /// Measure LiteLLM and Portkey beside the gateway and nginx, and nothing else.
    #[arg(long, conflicts_with = "only")]
    peers: bool,
    /// With `--peers`: write the figures, the tables of README.md and docs/performance.md, and the chart.
    #[arg(long, requires = "peers")]
    write: bool,
    /// Number of usage records that the scenario `usage` stores in each database.
    #[arg(long, default_value_t = 400_000)]
    records: u64,
    /// Number of keys of these records.
    #[arg(long, default_value_t = 200)]
    keys: u64,
    /// Folder for the databases of `usage`, which are kept. Existing ones are only queried.
    #[arg(long)]
    databases: Option<PathBuf>,
    /// Run `usage` on this PostgreSQL database only, which is kept too.
    #[arg(long, value_name = "URL", requires = "databases")]
    postgres: Option<String>,
    /// Leave export and verification out of `usage`.
    #[arg(long)]
    brief: bool,
    /// Number of requests whose instructions are counted.
    #[arg(long, default_value_t = 3_000)]
    requests: u64,
    /// Measure the programs that were built last.
    #[arg(long)]
    skip_build: bool,
    /// Build profile: release, or dist, as `cargo xtask dist` builds it.
    #[arg(long, default_value = "release")]
    profile: String,
    /// File for the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One way to load the targets.
#[derive(Clone, Copy)]
struct Scenario<'a> {
    name: &'a str,
    description: &'a str,
    upstream: &'a str,
    load: &'a [&'a str],
    native: bool,
}

const CLOSED_LOOP: Scenario<'static> = Scenario {
    name: "max",
    description: "64 connections, chat, JSON, closed loop",
    upstream: "chunks=20&interval=0",
    load: &["max", "--connections", "64"],
    native: false,
};

const SCENARIOS: &[Scenario<'static>] = &[
    CLOSED_LOOP,
    Scenario { name: "native", description: "64 connections, native, JSON, closed loop", native: true, ..CLOSED_LOOP },
    Scenario {
        name: "rate",
        description: "200 requests a second, open loop",
        load: &["rate", "--connections", "64", "--rate", "200"],
        ..CLOSED_LOOP
    },
    Scenario {
        name: "stream",
        description: "100 streams of 50 chunks a second",
        upstream: "chunks=100&interval=20",
        load: &["stream", "--connections", "100", "--ramp-ms", "1000", "--warm", "2"],
        ..CLOSED_LOOP
    },
    Scenario {
        name: "slow",
        description: "1,000 streams of 20 chunks a second",
        upstream: "chunks=400&interval=50",
        load: &["stream", "--connections", "1000", "--ramp-ms", "2000", "--warm", "4"],
        ..CLOSED_LOOP
    },
];

/// Compares chat requests to an upstream of the same protocol with ones translated to the native protocol.
const TRANSLATED: Scenario<'static> = Scenario {
    name: "translated",
    description: "64 connections, chat, JSON, closed loop: the upstream speaks chat, or the native protocol",
    ..CLOSED_LOOP
};

/// Compares a key without limits with one that has a budget, rates and a concurrency limit. Every request is recorded and
/// priced either way; the second key's also reserve and settle.
const BOUNDED: Scenario<'static> = Scenario {
    name: "bounded",
    description: "64 connections, chat, JSON, closed loop: accounting off (a key without bounds) and on (budget, rates, concurrency)",
    ..CLOSED_LOOP
};

/// The package of the bench's own programs.
pub(crate) const PACKAGE: &str = "tollgate-bench";

/// Runs the scenarios and prints a table for each.
pub(crate) fn run(options: &BenchOptions) -> Result<()> {
    let counts_only = options.only.as_deref() == Some(instructions::NAME);
    if !counts_only {
        shell::ensure_debian("nginx", "nginx-light")?;
    }
    let programs = match options.profile.as_str() {
        dist::PROFILE if options.skip_build => dist::folder(),
        dist::PROFILE => dist::build(&dist::DistOptions::default())?,
        profile => {
            if !options.skip_build {
                build(profile, &["tollgate", PACKAGE])?;
            }
            shell::target_dir().join(profile)
        }
    };
    let folder = shell::temp_dir("tollgate-bench-")?;
    if options.peers {
        return peers::run(options, &programs, folder.path());
    }
    let report = if counts_only { json!({}) } else { measure_all(options, &programs, folder.path())? };
    let report = count_instructions(options, &programs, folder.path(), report)?;
    print_bounds(&report);
    let file = options.json.clone().unwrap_or_else(|| shell::root().join("bench/results/latest.json"));
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&file, serde_json::to_string_pretty(&report)?)?;
    println!("\nfigures written to {}", file.display());
    Ok(())
}

/// Builds the programs of these packages with this profile.
pub(crate) fn build(profile: &str, packages: &[&str]) -> Result<()> {
    println!("building ({profile})");
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    shell::run(shell::cargo(&["build", "--quiet", "--profile", profile]).args(packages))
}

#[expect(clippy::disallowed_methods, reason = "developer commands read the clock")]
fn measure_all(options: &BenchOptions, programs: &Path, folder: &Path) -> Result<Value> {
    let ports = free_ports(5)?;
    let address = |at: usize| format!("127.0.0.1:{}", ports[at]);
    let upstream = address(0);
    let _upstream = start(Command::new(programs.join("fast-upstream")).args(["--listen", &upstream]))?;
    let nginx = start_nginx(folder, ports[1], &upstream)?;
    let bare = start(Command::new(programs.join("bare-proxy")).args(["--listen", &address(4), "--upstream", &upstream]))?;
    let start_time = Instant::now();
    let background = start_gateway(programs, folder, "background", ports[2], &upstream)?;
    wait_for(&address(2))?;
    http_get(&address(2), "/healthz")?;
    let started = start_time.elapsed().as_secs_f64();
    let group = start_gateway(programs, folder, "group", ports[3], &upstream)?;
    let (nginx_pid, pid) = (Some(nginx.0.id()), Some(background.0.id()));
    let targets = [
        BenchTarget::new("direct", &upstream, None, "bench-chat"),
        BenchTarget::new("nginx", &address(1), nginx_pid, "bench-chat"),
        BenchTarget::new("bare hyper", &address(4), Some(bare.0.id()), "bench-chat"),
        BenchTarget::new("tollgate", &address(2), pid, "bench-chat"),
        BenchTarget::new("tollgate, journal.sync = group", &address(3), Some(group.0.id()), "bench-chat"),
    ];
    for target in &targets {
        wait_for(&target.address)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a size in MB")]
    let program = fs::metadata(programs.join("tollgate"))?.len() as f64 / 1e6;
    let mut report = json!({
        "profile": options.profile, "rounds": options.rounds, "seconds": options.seconds,
        "idle_mb": resident_mb(background.0.id()), "start_s": started, "program_mb": program,
    });
    let wanted = |run: &&Scenario<'_>| options.only.as_deref().is_none_or(|only| only == run.name);
    for run in SCENARIOS.iter().filter(wanted) {
        let rows = measure(options, programs, &targets, run, &upstream)?;
        print_table(run, &targets, &rows, 1);
        report[run.name] = by_name(&targets, &rows);
    }
    let pairs = [
        (
            TRANSLATED,
            [
                BenchTarget::new("same protocol", &address(2), pid, "bench-chat"),
                BenchTarget::new("translated", &address(2), pid, "bench-native"),
            ],
        ),
        (
            BOUNDED,
            [
                BenchTarget::new("accounting off", &address(2), pid, "bench-chat"),
                BenchTarget::new("accounting on", &address(2), pid, "bench-chat").bounded(),
            ],
        ),
    ];
    for (run, pair) in pairs.iter().filter(|(run, _)| wanted(&run)) {
        let rows = measure(options, programs, pair, run, &upstream)?;
        print_table(run, pair, &rows, 0);
        report[run.name] = by_name(pair, &rows);
    }
    if options.only.as_deref().is_none_or(|only| only == "usage") {
        report["usage"] = usage_store::measure(options, programs, folder)?;
    }
    if options.only.as_deref().is_none_or(|only| only == overload::NAME) {
        drop((background, group));
        report[overload::NAME] = overload::measure(options, programs, folder)?;
    }
    Ok(report)
}

/// Adds the scenario `instructions` to a report. A run of all scenarios leaves it out if valgrind is missing.
fn count_instructions(options: &BenchOptions, programs: &Path, folder: &Path, mut report: Value) -> Result<Value> {
    match options.only.as_deref() {
        Some(instructions::NAME) => {}
        Some(_) => return Ok(report),
        None if !shell::has("valgrind") => {
            println!("\ninstructions: skipped, because valgrind is not installed (Debian package `valgrind`)");
            return Ok(report);
        }
        None => {}
    }
    report[instructions::NAME] = instructions::measure(programs, folder, options.requests)?;
    Ok(report)
}

fn by_name(targets: &[BenchTarget], rows: &[Value]) -> Value {
    targets.iter().zip(rows).map(|(target, row)| (target.name.to_owned(), row.clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Medians of every figure, one row per target.
fn measure(
    options: &BenchOptions,
    programs: &Path,
    targets: &[BenchTarget],
    run: &Scenario<'_>,
    upstream: &str,
) -> Result<Vec<Value>> {
    http_get(upstream, &format!("/set?delay=0&{}", run.upstream))?;
    let mut rounds: Vec<Vec<Value>> = vec![Vec::new(); targets.len()];
    for _ in 0..options.rounds {
        for (index, target) in targets.iter().enumerate() {
            let mut command = load(programs, target, run);
            command.args(["--seconds", &options.seconds.to_string()]);
            let row: Value = serde_json::from_str(shell::output(&mut command)?.trim())?;
            if row["errors"] != 0 {
                println!("  ! {}: {} errors, last: {}", target.name, row["errors"], row["last_error"]);
            }
            rounds[index].push(row);
        }
    }
    Ok(rounds.iter().map(|rows| medians(rows)).collect())
}

/// The load client with the arguments of a scenario.
fn load(programs: &Path, target: &BenchTarget, run: &Scenario<'_>) -> Command {
    let path = if run.native { "v1beta/models/bench-native:generateContent" } else { "v1/chat/completions" };
    let mut command = Command::new(programs.join("load"));
    command.args(run.load).args(["--url", &format!("http://{}/{path}", target.address), "--model", target.model]);
    command.args(["--header", &format!("authorization: Bearer {}", target.key)]);
    for header in &target.headers {
        command.args(["--header", header]);
    }
    if run.native {
        command.arg("--native");
    }
    if let Some(pid) = target.pid {
        command.args(["--pid", &pid.to_string()]);
    }
    command
}
