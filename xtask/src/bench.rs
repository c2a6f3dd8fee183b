//! `cargo xtask bench`: the gateway against nginx, in one interleaved run; ratios and CPU per request.
//!
//! Whatever else the machine does hits all targets alike, because they take turns. Read CPU per request first: it
//! holds on a busy machine. What is measured is shown beside its bound, met or missed; the command itself never fails
//! on a time.

mod report;
mod targets;
mod usage_writer;

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
use crate::shell;

/// What to measure, and how long.
#[derive(Args)]
pub(crate) struct BenchOptions {
    /// Rounds over all targets; medians are shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds each target is measured in a round.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Only this run: max, native, rate, stream, slow, translated, bounded or till.
    #[arg(long)]
    only: Option<String>,
    /// Records that are booked into each database by the run `till`.
    #[arg(long, default_value_t = 400_000)]
    records: u64,
    /// Build profile: release, or dist (fat LTO) as shipped.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Where the figures go as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One way of loading the targets.
struct Scenario {
    name: &'static str,
    says: &'static str,
    upstream: &'static str,
    load: &'static [&'static str],
    native: bool,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "max",
        says: "64 connections, chat, JSON, as fast as they go",
        upstream: "chunks=20&interval=0",
        load: &["max", "--connections", "64"],
        native: false,
    },
    Scenario {
        name: "native",
        says: "64 connections, native, JSON, as fast as they go",
        upstream: "chunks=20&interval=0",
        load: &["max", "--connections", "64"],
        native: true,
    },
    Scenario {
        name: "rate",
        says: "200 requests a second, open loop",
        upstream: "chunks=20&interval=0",
        load: &["rate", "--connections", "64", "--rate", "200"],
        native: false,
    },
    Scenario {
        name: "stream",
        says: "100 streams of 50 chunks a second",
        upstream: "chunks=100&interval=20",
        load: &["stream", "--connections", "100", "--ramp-ms", "1000", "--warm", "2"],
        native: false,
    },
    Scenario {
        name: "slow",
        says: "1,000 streams of 20 chunks a second",
        upstream: "chunks=400&interval=50",
        load: &["stream", "--connections", "1000", "--ramp-ms", "2000", "--warm", "4"],
        native: false,
    },
];

/// The run that compares the gateway with itself: chat callers of a model whose upstream speaks chat, and of one whose
/// upstream speaks the native protocol.
const TRANSLATED: Scenario = Scenario {
    name: "translated",
    says: "64 connections, chat, JSON, as fast as they go: the upstream speaks chat, or the native protocol",
    upstream: "chunks=20&interval=0",
    load: &["max", "--connections", "64"],
    native: false,
};

/// The run that compares accounting that only writes down with accounting that also decides. Every request is recorded,
/// priced and booked either way, which cannot be switched off; what can is that its money, rates and concurrency are set
/// aside before it goes on and counted when it ends: a key without bounds, or one of a member with a budget and rates.
const BOUNDED: Scenario = Scenario {
    name: "bounded",
    says: "64 connections, chat, JSON, as fast as they go: accounting off (a key without bounds) and on (budget, rates, concurrency)",
    upstream: "chunks=20&interval=0",
    load: &["max", "--connections", "64"],
    native: false,
};

/// Runs the benches and prints one table each.
pub(crate) fn run(options: &BenchOptions) -> Result<()> {
    shell::ensure_debian("nginx", "nginx-light")?;
    println!("building ({})", options.profile);
    shell::run(&mut shell::cargo(&[
        "build",
        "--quiet",
        "--profile",
        &options.profile,
        "--package",
        "tollgate",
        "--package",
        "tollgate-bench",
    ]))?;
    let programs = shell::target_dir().join(&options.profile);
    let folder = PathBuf::from(shell::output(Command::new("mktemp").args(["-d", "/tmp/tollgate-bench-XXXXXX"]))?.trim());
    let result = measure_all(options, &programs, &folder);
    let _ = fs::remove_dir_all(&folder);
    let report = result?;
    let file = options.json.clone().unwrap_or_else(|| shell::root().join("bench/results/latest.json"));
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&file, serde_json::to_string_pretty(&report)?)?;
    println!("\nfigures written to {}", file.display());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a developer command reads the clock itself")]
fn measure_all(options: &BenchOptions, programs: &Path, folder: &Path) -> Result<Value> {
    let ports = free_ports(4)?;
    let address = |at: usize| format!("127.0.0.1:{}", ports[at]);
    let upstream = address(0);
    let _upstream = start(Command::new(programs.join("fast-upstream")).args(["--listen", &upstream]))?;
    let nginx = start_nginx(folder, ports[1], &upstream)?;
    let begun = Instant::now();
    let background = start_gateway(programs, folder, "background", ports[2], &upstream)?;
    wait_for(&address(2))?;
    http_get(&address(2), "/healthz")?;
    let started = begun.elapsed().as_secs_f64();
    let group = start_gateway(programs, folder, "group", ports[3], &upstream)?;
    let (nginx_pid, pid) = (Some(nginx.0.id()), Some(background.0.id()));
    let targets = [
        BenchTarget::new("direct", &upstream, None, "bench-chat"),
        BenchTarget::new("nginx", &address(1), nginx_pid, "bench-chat"),
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
    let wanted = |run: &&Scenario| options.only.as_deref().is_none_or(|only| only == run.name);
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
    if options.only.as_deref().is_none_or(|only| only == "till") {
        report["till"] = usage_writer::measure(programs, folder, options.records)?;
    }
    print_bounds(&report);
    Ok(report)
}

fn by_name(targets: &[BenchTarget], rows: &[Value]) -> Value {
    targets.iter().zip(rows).map(|(target, row)| (target.name.to_owned(), row.clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Medians of every figure, one row a target.
fn measure(options: &BenchOptions, programs: &Path, targets: &[BenchTarget], run: &Scenario, upstream: &str) -> Result<Vec<Value>> {
    http_get(upstream, &format!("/set?delay=0&{}", run.upstream))?;
    let mut rounds: Vec<Vec<Value>> = vec![Vec::new(); targets.len()];
    for _ in 0..options.rounds {
        for (index, target) in targets.iter().enumerate() {
            let path = if run.native { "v1beta/models/bench-native:generateContent" } else { "v1/chat/completions" };
            let mut command = Command::new(programs.join("load"));
            command.args(run.load).args([
                "--url",
                &format!("http://{}/{path}", target.address),
                "--seconds",
                &options.seconds.to_string(),
            ]);
            command.args(["--header", &format!("authorization: Bearer {}", target.key), "--model", target.model]);
            if run.native {
                command.arg("--native");
            }
            if let Some(pid) = target.pid {
                command.args(["--pid", &pid.to_string()]);
            }
            let row: Value = serde_json::from_str(shell::output(&mut command)?.trim())?;
            if row["errors"] != 0 {
                println!("  ! {}: {} errors, last: {}", target.name, row["errors"], row["last_error"]);
            }
            rounds[index].push(row);
        }
    }
    Ok(rounds.iter().map(|rows| medians(rows)).collect())
}
