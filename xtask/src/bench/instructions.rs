//! The user-space instructions that the gateway spends on a request, counted by valgrind's callgrind: the same number on a busy
//! machine and on a quiet one, so that a small regression shows where times cannot show it.
//!
//! The kernel's part is not seen; CPU time in comparison with nginx covers it. Booking follows the requests, and the
//! measurement waits for it.

mod profile;

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use self::profile::{Profile, ThreadGroup};
use super::targets::{ChildGuard, KEY, free_ports, http_get, serve, start, wait_for};
use crate::shell;

/// The scenario's name.
pub(super) const NAME: &str = "instructions";
/// Requests before the count begins, so that caches are filled, connections are open and statements are prepared.
const WARM_UP: u64 = 1_000;
/// Time for booking to follow the requests.
const DRAIN: Duration = Duration::from_secs(4);
/// Functions that are printed.
const TOP: usize = 25;

/// A protocol of callers, and a model whose upstream speaks it too.
struct CountedProtocol {
    name: &'static str,
    path: &'static str,
    model: &'static str,
    /// Arguments of the load client.
    arguments: &'static [&'static str],
}

/// Chat completions first: the others are compared with it.
const PROTOCOLS: [CountedProtocol; 4] = [
    CountedProtocol { name: "chat", path: "v1/chat/completions", model: "bench-chat", arguments: &[] },
    CountedProtocol {
        name: "native",
        path: "v1beta/models/bench-native:generateContent",
        model: "bench-native",
        arguments: &["--native"],
    },
    CountedProtocol {
        name: "messages",
        path: "v1/messages",
        model: "bench-messages",
        arguments: &["--header", "anthropic-version: 2023-06-01"],
    },
    CountedProtocol { name: "responses", path: "v1/responses", model: "bench-responses", arguments: &[] },
];

/// Counts the instructions of this many requests of each protocol and prints them by thread group and function.
pub(super) fn measure(programs: &Path, folder: &Path, requests: u64) -> Result<Value> {
    shell::ensure_debian("valgrind", "valgrind")?;
    println!("\n{NAME}: {requests} requests on 8 connections, JSON, booked into SQLite; user space only, under callgrind");
    let mut counts = Vec::new();
    for counted in &PROTOCOLS {
        let folder = folder.join(format!("{NAME}-{}", counted.name));
        fs::create_dir(&folder)?;
        println!("\n{}", counted.name);
        counts.push((counted.name, measure_protocol(programs, &folder, counted, requests)?));
    }
    println!("\n{:<12}{:>14}{:>14}{:>14}{:>14}", "", "cores", "allocations", "all", "all to chat");
    let figure = |row: &Value, pointer: &str| row.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let mut report = counts[0].1.clone();
    for (name, row) in &counts {
        let ratio = figure(row, "/per_request") / figure(&counts[0].1, "/per_request");
        let (cores, allocations) = (figure(row, "/by_group/cores"), figure(row, "/allocations"));
        println!("{name:<12}{cores:>14.0}{allocations:>14.1}{:>14.0}{ratio:>14.2}", figure(row, "/per_request"));
        report["to_chat"][*name] = ratio.into();
        report["by_protocol"][*name] = row.clone();
    }
    Ok(report)
}

/// The same of one protocol, on a gateway of its own.
fn measure_protocol(programs: &Path, folder: &Path, counted: &CountedProtocol, requests: u64) -> Result<Value> {
    let ports = free_ports(2)?;
    let (upstream, address) = (format!("127.0.0.1:{}", ports[0]), format!("127.0.0.1:{}", ports[1]));
    let _upstream = start(Command::new(programs.join("fast-upstream")).args(["--listen", &upstream]))?;
    wait_for(&upstream)?;
    http_get(&upstream, "/set?delay=0&chunks=20&interval=0")?;
    let files = folder.join("callgrind");
    let gateway = start_under_callgrind(programs, folder, ports[1], &upstream, &files)?;
    let pid = gateway.0.id();
    wait_for(&address)?;
    http_get(&address, "/healthz")?;

    send(programs, &address, counted, WARM_UP)?;
    sleep(DRAIN);
    control(pid, "instrumentation on")?;
    send(programs, &address, counted, requests)?;
    sleep(DRAIN);
    control(pid, "instrumentation off")?;
    let booked = booked(&address)?;
    if booked < WARM_UP + requests {
        println!(
            "  ! {booked} of {} records were booked within {} s; the figures lack the others",
            WARM_UP + requests,
            DRAIN.as_secs()
        );
    }
    let names = thread_names(pid)?;
    // Ends it, and waits until callgrind has written its files.
    drop(gateway);
    let profile = Profile::read(folder, &files, &names)?;
    Ok(report(&profile, requests))
}

fn start_under_callgrind(programs: &Path, folder: &Path, port: u16, upstream: &str, files: &Path) -> Result<ChildGuard> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes"]);
    command.arg(format!("--callgrind-out-file={}", files.display())).arg(programs.join("tollgate"));
    serve(&mut command, folder, "instructions-data", port, upstream)?;
    let log = fs::File::create(folder.join("gateway.log"))?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().context("cannot start valgrind")?;
    Ok(ChildGuard(child))
}

/// Sends exactly this many requests, all of which must be answered.
fn send(programs: &Path, address: &str, counted: &CountedProtocol, requests: u64) -> Result<()> {
    let mut command = Command::new(programs.join("load"));
    command.args(["max", "--connections", "8", "--requests", &requests.to_string(), "--model", counted.model]);
    command.args(["--url", &format!("http://{address}/{}", counted.path), "--header", &format!("authorization: Bearer {KEY}")]);
    command.args(counted.arguments);
    let row: Value = serde_json::from_str(shell::output(&mut command)?.trim())?;
    if row["errors"] != 0 {
        bail!("{} of {requests} requests failed, the last with: {}", row["errors"], row["last_error"]);
    }
    Ok(())
}

/// Sends a command to valgrind and returns its answer.
fn control(pid: u32, command: &str) -> Result<String> {
    shell::output(Command::new("vgdb").arg(format!("--pid={pid}")).args(command.split(' ')).stdin(Stdio::null()))
}

/// Names of the threads by valgrind's number of them.
fn thread_names(pid: u32) -> Result<BTreeMap<u32, String>> {
    let status = control(pid, "v.info scheduler")?;
    let threads = status.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("Thread ")?.split_once(':')?;
        let (_, task) = rest.rsplit_once("(lwpid ")?;
        Some((number.parse().ok()?, task.trim_end_matches(')').parse::<u32>().ok()?))
    });
    let name = |task| fs::read_to_string(format!("/proc/{pid}/task/{task}/comm")).unwrap_or_default().trim().to_owned();
    Ok(threads.map(|(number, task)| (number, name(task))).collect())
}

/// Usage records that are in the database, from the gateway's metrics.
fn booked(address: &str) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let line = text.lines().find_map(|line| line.strip_prefix("tollgate_till_records_total "));
    line.and_then(|count| count.parse().ok()).context("the gateway's metrics lack the number of booked records")
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn report(profile: &Profile, requests: u64) -> Value {
    let each = |count: u64| count as f64 / requests as f64;
    println!("{:<32}{:>14}{:>14}", "", "a request", "allocations");
    for group in ThreadGroup::ALL {
        println!("{:<32}{:>14.0}{:>14.1}", group.as_str(), each(profile.instructions(group)), each(profile.allocations(group)));
    }
    println!("{:<32}{:>14.0}", "all", each(profile.total()));
    println!("\n{:>10}{:>10}  function", "all", "cores");
    for (name, [all, cores]) in profile.top(TOP) {
        println!("{:>10.0}{:>10.0}  {}", each(all), each(cores), name.chars().take(110).collect::<String>());
    }
    let by_group = |of: &dyn Fn(ThreadGroup) -> u64| -> BTreeMap<&str, f64> {
        ThreadGroup::ALL.into_iter().map(|group| (group.as_str(), each(of(group)))).collect()
    };
    json!({
        "requests": requests, "per_request": each(profile.total()), "allocations": each(profile.allocations(ThreadGroup::Cores)),
        "by_group": by_group(&|group| profile.instructions(group)),
        "allocations_by_group": by_group(&|group| profile.allocations(group)),
    })
}
