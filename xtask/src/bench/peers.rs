//! `cargo xtask bench --peers`: other gateways beside this one and nginx, in one interleaved run.
//!
//! Every target forwards chat completions to the same upstream. Peers are installed into cargo's output folder; one that cannot be
//! installed is left out. The figures are kept in a file from which `cargo xtask docs` draws the tables and the chart.

mod chart;
mod figures;
mod install;

use std::{fs, path::Path, process::Command, thread::sleep, time::Duration};

use anyhow::{Result, bail};
use serde_json::Value;

pub(crate) use self::figures::write_pages;
use self::{
    figures::{Figures, TargetFigures},
    install::{start_litellm, start_portkey},
};
use super::{
    BenchOptions, CLOSED_LOOP, Scenario, load,
    machine::{Machine, today},
    measure,
    report::print_table,
    targets::{BenchTarget, ChildGuard, free_ports, start_gateway, start_nginx, start_upstream, wait_for},
};
use crate::shell;

/// Requests a second at which latency is measured: the largest that takes at most half of the slowest target's capacity.
const STEADY_RATES: [&str; 4] = ["100", "50", "20", "10"];

/// A running peer.
struct Peer {
    target: BenchTarget,
    version: String,
    process: ChildGuard,
}

/// Measures, prints, and optionally writes the figures.
pub(super) fn run(options: &BenchOptions, programs: &Path, folder: &Path) -> Result<()> {
    let figures = measure_all(options, programs, folder)?;
    println!("\n{}", figures.table());
    for reason in &figures.skipped {
        println!("left out: {reason}");
    }
    if let Some(failed) = figures.targets.iter().find(|target| target.errors > 0) {
        bail!("{} failed {} requests, so its figures mean nothing", failed.name, failed.errors);
    }
    if let Some(target) = figures.targets.iter().find(|target| !target.is_complete()) {
        bail!("{} lacks a figure", target.name);
    }
    if options.write {
        figures.store()?;
        write_pages()?;
    }
    Ok(())
}

fn measure_all(options: &BenchOptions, programs: &Path, folder: &Path) -> Result<Figures> {
    let machine = Machine::of_this_process()?;
    let ports = free_ports(5)?;
    let address = |at: usize| format!("127.0.0.1:{}", ports[at]);
    let upstream = address(0);
    let _upstream = start_upstream(programs, &upstream)?;
    let nginx = start_nginx(folder, ports[1], &upstream)?;
    let gateway = start_gateway(programs, folder, "background", ports[2], &upstream)?;
    let mut targets = vec![
        BenchTarget::new("direct", &upstream, None, "bench-chat"),
        BenchTarget::new("nginx", &address(1), Some(nginx.0.id()), "bench-chat"),
        BenchTarget::new("tollgate", &address(2), Some(gateway.0.id()), "bench-chat"),
    ];
    let mut versions = vec![String::new(), nginx_version()?, gateway_version(programs)?];
    let (mut skipped, mut running) = (Vec::new(), Vec::new());
    let peers = [
        ("Portkey", start_portkey(folder, ports[3], &upstream)),
        ("LiteLLM", start_litellm(folder, ports[4], &upstream, machine.cores)),
    ];
    for (name, started) in peers {
        match started.and_then(|peer| wait_until_serving(programs, &peer.target).map(|()| peer)) {
            Ok(Peer { target, version, process }) => {
                targets.push(target);
                versions.push(version);
                running.push(process);
            }
            Err(error) => {
                let reason = format!("{name}: {}", format!("{error:#}").lines().next().unwrap_or_default());
                println!("left out: {reason}");
                skipped.push(reason);
            }
        }
    }
    for target in &targets {
        wait_for(&target.address)?;
    }
    let rows = measure_scenarios(options, programs, &targets, &upstream)?;
    let targets = targets.iter().zip(versions).enumerate().skip(1);
    Ok(Figures {
        date: today()?,
        machine,
        profile: options.profile.clone(),
        rounds: options.rounds,
        seconds: options.seconds,
        rate: rows.rate,
        targets: targets.map(|(at, (target, version))| rows.of(target.name, version, at)).collect(),
        skipped,
    })
}

/// Medians of each target in each scenario; the first target is the upstream itself.
struct Rows {
    rate: u32,
    max: Vec<Value>,
    steady: Vec<Value>,
    first: Vec<Value>,
}

impl Rows {
    fn of(&self, name: &str, version: String, at: usize) -> TargetFigures {
        let number = |row: &Value, field: &str| row[field].as_f64().unwrap_or(f64::NAN);
        let added = |rows: &[Value], field: &str| number(&rows[at], field) - number(&rows[0], field);
        let errors = [&self.max, &self.steady, &self.first].iter().filter_map(|rows| rows[at]["errors"].as_u64()).sum();
        TargetFigures {
            name: name.to_owned(),
            version,
            per_second: number(&self.max[at], "per_second"),
            cpu_us: number(&self.max[at], "cpu_us_per_request"),
            memory_mb: number(&self.max[at], "memory_mb"),
            added_p50_ms: added(&self.steady, "p50_ms"),
            added_p99_ms: added(&self.steady, "p99_ms"),
            first_chunk_ms: added(&self.first, "first_p50_ms"),
            errors,
        }
    }
}

fn measure_scenarios(options: &BenchOptions, programs: &Path, targets: &[BenchTarget], upstream: &str) -> Result<Rows> {
    let measured = |run: &Scenario<'_>| -> Result<Vec<Value>> {
        let rows = measure(options, programs, targets, run, upstream)?;
        print_table(run, targets, &rows, 1);
        Ok(rows)
    };
    let max = measured(&CLOSED_LOOP)?;
    let slowest = max.iter().filter_map(|row| row["per_second"].as_f64()).fold(f64::INFINITY, f64::min);
    let rate = steady_rate(slowest);
    let steady = measured(&Scenario {
        name: "steady",
        description: &format!("{rate} requests a second, open loop"),
        load: &["rate", "--connections", "64", "--rate", rate],
        ..CLOSED_LOOP
    })?;
    let first = measured(&Scenario {
        name: "first",
        description: "4 streams of 20 chunks, 20 ms apart",
        upstream: "chunks=20&interval=20",
        load: &["stream", "--connections", "4", "--ramp-ms", "400"],
        ..CLOSED_LOOP
    })?;
    Ok(Rows { rate: rate.parse()?, max, steady, first })
}

/// The rate at which latency is measured, by the capacity of the slowest target.
fn steady_rate(slowest: f64) -> &'static str {
    let fits = |rate: &&str| rate.parse::<f64>().is_ok_and(|rate| rate * 2.0 <= slowest);
    STEADY_RATES.into_iter().find(fits).unwrap_or(STEADY_RATES[3])
}

/// Waits until a request is answered, then sends some more on many connections.
fn wait_until_serving(programs: &Path, target: &BenchTarget) -> Result<()> {
    let send = |requests: &str, connections: &str| -> Result<Value> {
        let load_options = ["max", "--requests", requests, "--connections", connections];
        let text = shell::output(&mut load(programs, target, &Scenario { load: &load_options, ..CLOSED_LOOP }))?;
        Ok(serde_json::from_str(text.trim())?)
    };
    let mut answered = Value::Null;
    for _ in 0..120 {
        answered = send("1", "1")?;
        if answered["done"] == 1 {
            return send("500", "64").map(drop);
        }
        sleep(Duration::from_secs(1));
    }
    bail!("it answers no request: {}", answered["last_error"])
}

fn nginx_version() -> Result<String> {
    let text = shell::output(Command::new("sh").args(["-c", "nginx -v 2>&1"]))?;
    Ok(text.trim().rsplit('/').next().unwrap_or_default().to_owned())
}

fn gateway_version(programs: &Path) -> Result<String> {
    let text = shell::output(Command::new(programs.join("tollgate")).arg("--version"))?;
    Ok(text.trim().rsplit(' ').next().unwrap_or_default().to_owned())
}

/// Starts a peer in a folder of its own, with its output in a file there.
fn start_in(folder: &Path, command: &mut Command) -> Result<ChildGuard> {
    let log = fs::File::create(folder.join("log"))?;
    command.current_dir(folder).stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(ChildGuard(command.spawn()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steady_rate_is_at_most_half_of_the_slowest_capacity() {
        for (slowest, rate) in [(50_000.0, "100"), (200.0, "100"), (199.0, "50"), (45.0, "20"), (1.0, "10")] {
            assert_eq!(steady_rate(slowest), rate, "{slowest}");
        }
    }

    #[test]
    fn latency_is_relative_to_the_upstream_and_errors_of_all_scenarios_count() {
        let row = |base: f64, errors: u64| json!({"per_second": 10.0, "cpu_us_per_request": 20.0, "memory_mb": 30.0, "p50_ms": base, "p99_ms": base * 2.0, "first_p50_ms": base * 3.0, "errors": errors});
        let both = |errors| vec![row(1.0, 7), row(1.5, errors)];
        let figures = Rows { rate: 100, max: both(0), steady: both(1), first: both(2) }.of("x", "1".to_owned(), 1);
        assert_eq!((figures.added_p50_ms, figures.added_p99_ms, figures.first_chunk_ms), (0.5, 1.0, 1.5));
        assert_eq!(figures.errors, 3);
    }
}
