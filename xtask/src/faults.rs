//! `cargo xtask faults`: the effect of a hostile key on a well-behaved key at 200 requests a second on the same gateway.
//!
//! Each round of a pattern starts a gateway of its own. The well-behaved key is measured alone, while the hostile client attacks
//! another gateway of the same machine, and beside it. The hostile client and the other gateway run at the lowest priority: an attacker
//! does not use the gateway's processors. The slowdown by the attack on the other gateway is due to the machine (its network stack and
//! memory), and no gateway could prevent it. The table is printed, and written into `docs/performance.md` with `--write`. A missed
//! bound fails the command.

pub(crate) mod catalog;
mod report;

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;

use self::{
    catalog::{DISABLED_KEY, GOOD_KEY, HOSTILE_KEY, LIMITED_KEY},
    report::{FairnessRow, Round, table},
};
use crate::{
    bench::targets::{ChildGuard, free_ports, http_get, start, wait_for},
    page, shell,
};

const FILE: &str = "docs/performance.md";
const MARKER: &str = "<!-- fairness: written by `cargo xtask faults --write` -->\n";
/// Requests a second of the well-behaved key.
const RATE: f64 = 200.0;
/// How long a hostile client runs before the well-behaved key is measured beside it.
const LEAD: Duration = Duration::from_secs(4);

/// Options of `cargo xtask faults`.
#[derive(Args)]
pub(crate) struct FaultsOptions {
    /// Measure the debug build; its times mean little, but it shows whether requests are served.
    #[arg(long)]
    debug: bool,
    /// Rounds of each pattern; the medians of the latencies count.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Run only the patterns whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Write the table into docs/performance.md.
    #[arg(long)]
    write: bool,
}

/// One way to misuse a key.
pub(crate) struct HostilePattern {
    name: &'static str,
    /// The pattern of the program `hostile`, and the key it uses.
    client: &'static str,
    key: &'static str,
}

const PATTERNS: &[HostilePattern] = &[
    HostilePattern { name: "slow bodies: 16,384 over HTTP/2, a byte each 10 s", client: "slow-bodies", key: HOSTILE_KEY },
    HostilePattern { name: "the same with a key of concurrency 1 and 1 request a minute", client: "slow-bodies", key: LIMITED_KEY },
    HostilePattern { name: "64 bodies of 32 MiB that never end", client: "declared-bodies", key: HOSTILE_KEY },
    HostilePattern { name: "80 answers of 60 MiB, read at 256 bytes a second", client: "slow-readers", key: HOSTILE_KEY },
    HostilePattern { name: "flood with a disabled key, 32 connections", client: "flood", key: DISABLED_KEY },
    HostilePattern { name: "flood above the key's requests a minute, 32 connections", client: "flood", key: LIMITED_KEY },
    HostilePattern { name: "16 media addresses that never answer a request, 16 at once", client: "tarpit-media", key: HOSTILE_KEY },
    HostilePattern { name: "timeouts provoked on a slow model of the same account", client: "timeouts", key: HOSTILE_KEY },
];

pub(crate) fn run(options: &FaultsOptions) -> Result<()> {
    let profile = if options.debug { "dev" } else { "release" };
    println!("building ({profile})");
    let packages = ["--package", "tollgate", "--package", "tollgate-bench"];
    shell::run(shell::cargo(&["build", "--quiet", "--bins", "--profile", profile]).args(packages))?;
    let programs = shell::target_dir().join(if options.debug { "debug" } else { "release" });
    let folder = shell::temp_dir("tollgate-faults-")?;
    let rows = measure_all(options, &programs, folder.path())?;
    let text = table(&rows);
    println!("\n{text}");
    if options.write {
        page::write(FILE, MARKER, &text)?;
    }
    let missed = rows.iter().filter(|row| !row.is_met()).count();
    if missed > 0 {
        bail!("{missed} of {} patterns are noticed by the well-behaved key", rows.len());
    }
    Ok(())
}

fn measure_all(options: &FaultsOptions, programs: &Path, folder: &Path) -> Result<Vec<FairnessRow>> {
    let wanted = |pattern: &&HostilePattern| options.only.as_deref().is_none_or(|only| pattern.client.contains(only));
    let mut rows = Vec::new();
    for (number, pattern) in PATTERNS.iter().enumerate().filter(|(_, pattern)| wanted(pattern)) {
        println!("{}", pattern.name);
        let data = folder.join(number.to_string());
        fs::create_dir(&data)?;
        let rounds = (0..options.rounds).map(|round| measure(options, programs, &data.join(round.to_string()), pattern));
        rows.push(FairnessRow::new(pattern.name, RATE, &rounds.collect::<Result<Vec<_>>>()?));
    }
    Ok(rows)
}

fn measure(options: &FaultsOptions, programs: &Path, folder: &Path, pattern: &HostilePattern) -> Result<Round> {
    fs::create_dir(folder)?;
    let gateway = MeasuredGateway::start(programs, &folder.join("measured"), Priority::Normal)?;
    let alone = load(options, programs, &gateway)?;
    let elsewhere = {
        let other = MeasuredGateway::start(programs, &folder.join("other"), Priority::Lowest)?;
        let _hostile = start_hostile(options, programs, &other.address, pattern)?;
        std::thread::sleep(LEAD);
        load(options, programs, &gateway)?
    };
    let _hostile = start_hostile(options, programs, &gateway.address, pattern)?;
    std::thread::sleep(LEAD);
    let beside = load(options, programs, &gateway)?;
    if beside["errors"] != 0 {
        println!("  {} errors, the last: {}", beside["errors"], beside["last_error"]);
    }
    Ok(Round { alone, elsewhere, beside })
}

/// Priority of a process.
#[derive(Clone, Copy)]
enum Priority {
    Normal,
    Lowest,
}

impl Priority {
    fn command(self, program: &Path) -> Command {
        match self {
            Self::Normal => Command::new(program),
            Self::Lowest => {
                let mut command = Command::new("nice");
                command.args(["-n", "19"]).arg(program);
                command
            }
        }
    }
}

/// A gateway with an upstream of its own.
struct MeasuredGateway {
    address: String,
    process: ChildGuard,
    _upstream: ChildGuard,
}

impl MeasuredGateway {
    fn start(programs: &Path, folder: &Path, priority: Priority) -> Result<Self> {
        fs::create_dir(folder)?;
        let ports = free_ports(2)?;
        let [upstream_address, address] = [ports[0], ports[1]].map(|port| format!("127.0.0.1:{port}"));
        let upstream = start(priority.command(&programs.join("fast-upstream")).args(["--listen", &upstream_address]))?;
        let file = folder.join("catalog.toml");
        fs::write(&file, catalog::text(&upstream_address))?;
        let mut command = priority.command(&programs.join("tollgate"));
        command.args(["serve", "--listen", &address, "--catalog"]).arg(file).arg("--data").arg(folder.join("data"));
        let process = start(command.env("TOLLGATE_LOG__LEVEL", "error").current_dir(folder))?;
        wait_for(&upstream_address)?;
        wait_for(&address)?;
        http_get(&address, "/healthz")?;
        Ok(Self { address, process, _upstream: upstream })
    }
}

fn start_hostile(options: &FaultsOptions, programs: &Path, address: &str, pattern: &HostilePattern) -> Result<ChildGuard> {
    // Longer than it is needed, so that it never ends first; it is terminated then.
    let seconds = (4 * options.seconds + 60).to_string();
    let mut command = Priority::Lowest.command(&programs.join("hostile"));
    start(command.arg(pattern.client).args(["--address", address, "--key", pattern.key, "--seconds", &seconds]))
}

/// The well-behaved key's requests.
fn load(options: &FaultsOptions, programs: &Path, gateway: &MeasuredGateway) -> Result<Value> {
    let mut command = Command::new(programs.join("load"));
    command.args(["rate", "--connections", "64", "--rate", &RATE.to_string(), "--model", "bench-chat"]);
    let url = format!("http://{}/v1/chat/completions", gateway.address);
    command.args(["--url", &url, "--seconds", &options.seconds.to_string()]);
    command.args(["--header", &format!("authorization: Bearer {GOOD_KEY}"), "--pid", &gateway.process.0.id().to_string()]);
    Ok(serde_json::from_str(shell::output(&mut command)?.trim())?)
}
