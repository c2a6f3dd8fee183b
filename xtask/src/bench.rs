//! `cargo xtask bench`: the gateway against nginx, in one interleaved run; ratios and CPU per request.
//!
//! Whatever else the machine does hits all targets alike, because they take turns. Read CPU per request first: it
//! holds on a busy machine. Nothing here passes or fails on a time.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::shell;

/// What to measure, and how long.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds over all targets; medians are shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds each target is measured in a round.
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Only this run: max, native, translated, rate, stream or slow.
    #[arg(long)]
    only: Option<String>,
    /// Build profile: release, or dist (fat LTO) as shipped.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Where the figures go as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One way of loading the targets.
struct Run {
    name: &'static str,
    says: &'static str,
    upstream: &'static str,
    load: &'static [&'static str],
    native: bool,
}

const RUNS: &[Run] = &[
    Run {
        name: "max",
        says: "64 connections, chat, JSON, as fast as they go",
        upstream: "chunks=20&interval=0",
        load: &["max", "--connections", "64"],
        native: false,
    },
    Run {
        name: "native",
        says: "64 connections, native, JSON, as fast as they go",
        upstream: "chunks=20&interval=0",
        load: &["max", "--connections", "64"],
        native: true,
    },
    Run {
        name: "rate",
        says: "200 requests a second, open loop",
        upstream: "chunks=20&interval=0",
        load: &["rate", "--connections", "64", "--rate", "200"],
        native: false,
    },
    Run {
        name: "stream",
        says: "100 streams of 50 chunks a second",
        upstream: "chunks=100&interval=20",
        load: &["stream", "--connections", "100", "--ramp-ms", "1000", "--warm", "2"],
        native: false,
    },
    Run {
        name: "slow",
        says: "1,000 streams of 20 chunks a second",
        upstream: "chunks=400&interval=50",
        load: &["stream", "--connections", "1000", "--ramp-ms", "2000", "--warm", "4"],
        native: false,
    },
];

/// The run that compares the gateway with itself: chat callers of a model whose upstream speaks chat, and of one whose
/// upstream speaks the native protocol.
const TRANSLATED: Run = Run {
    name: "translated",
    says: "64 connections, chat, JSON, as fast as they go: the upstream speaks chat, or the native protocol",
    upstream: "chunks=20&interval=0",
    load: &["max", "--connections", "64"],
    native: false,
};

const KEY: &str = "bench-key-0123456789abcdefghijklmnop";

/// A process that ends with its handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// Who is measured: name, address, process whose CPU counts, model it is asked for.
struct Target {
    name: &'static str,
    address: String,
    pid: Option<u32>,
    model: &'static str,
}

impl Target {
    fn new(name: &'static str, address: &str, pid: Option<u32>, model: &'static str) -> Self {
        Self { name, address: address.to_owned(), pid, model }
    }
}

/// Runs the benches and prints one table each.
pub(crate) fn run(options: &Options) -> Result<()> {
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

fn measure_all(options: &Options, programs: &Path, folder: &Path) -> Result<Value> {
    let ports = free_ports(4)?;
    let upstream = format!("127.0.0.1:{}", ports[0]);
    let _upstream = start(Command::new(programs.join("fast-upstream")).args(["--listen", &upstream]))?;
    let nginx = start_nginx(folder, ports[1], &upstream)?;
    let background = start_gateway(programs, folder, "background", ports[2], &upstream)?;
    let group = start_gateway(programs, folder, "group", ports[3], &upstream)?;
    let gateways = [format!("127.0.0.1:{}", ports[2]), format!("127.0.0.1:{}", ports[3])];
    let targets = [
        Target::new("direct", &upstream, None, "bench-chat"),
        Target::new("nginx", &format!("127.0.0.1:{}", ports[1]), Some(nginx.0.id()), "bench-chat"),
        Target::new("tollgate", &gateways[0], Some(background.0.id()), "bench-chat"),
        Target::new("tollgate, journal.sync = group", &gateways[1], Some(group.0.id()), "bench-chat"),
    ];
    let pair = [
        Target::new("same protocol", &gateways[0], Some(background.0.id()), "bench-chat"),
        Target::new("translated", &gateways[0], Some(background.0.id()), "bench-native"),
    ];
    for target in &targets {
        wait_for(&target.address)?;
    }
    let idle = resident_mb(background.0.id());
    println!("idle process: {idle:.1} MB");
    let mut report = json!({"profile": options.profile, "rounds": options.rounds, "seconds": options.seconds, "idle_mb": idle});
    let wanted = |run: &&Run| options.only.as_deref().is_none_or(|only| only == run.name);
    for run in RUNS.iter().filter(wanted) {
        let rows = measure(options, programs, &targets, run, &upstream)?;
        print_table(run, &targets, &rows, &targets[1], &rows[1]);
        report[run.name] = by_name(&targets, &rows);
    }
    if wanted(&&TRANSLATED) {
        let rows = measure(options, programs, &pair, &TRANSLATED, &upstream)?;
        print_table(&TRANSLATED, &pair, &rows, &pair[0], &rows[0]);
        report[TRANSLATED.name] = by_name(&pair, &rows);
        if let (Some(same), Some(translated)) = (rows[0]["per_second"].as_f64(), rows[1]["per_second"].as_f64()) {
            let share = translated / same;
            println!("translated throughput: {share:.2} of the same protocol's");
            report[TRANSLATED.name]["share"] = share.into();
        }
    }
    Ok(report)
}

fn by_name(targets: &[Target], rows: &[Value]) -> Value {
    targets.iter().zip(rows).map(|(target, row)| (target.name.to_owned(), row.clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Medians of every figure, one row a target.
fn measure(options: &Options, programs: &Path, targets: &[Target], run: &Run, upstream: &str) -> Result<Vec<Value>> {
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
            command.args(["--header", &format!("authorization: Bearer {KEY}"), "--model", target.model]);
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

fn medians(rows: &[Value]) -> Value {
    let median = |pointer: &str| {
        let mut values: Vec<f64> = rows.iter().filter_map(|row| row.pointer(pointer)?.as_f64()).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    json!({
        "per_second": median("/per_second"), "cpu_us_per_request": median("/cpu_us_per_request"), "cpu_us_per_chunk": median("/cpu_us_per_chunk"),
        "p50_ms": median("/latency_ms/p50"), "p99_ms": median("/latency_ms/p99"), "first_p50_ms": median("/first_ms/p50"),
        "chunk_p50_ms": median("/chunk_ms/p50"), "chunk_p99_ms": median("/chunk_ms/p99"), "memory_mb": median("/memory_bytes").map(|bytes| bytes / 1e6),
        "errors": rows.iter().filter_map(|row| row["errors"].as_u64()).sum::<u64>(),
    })
}

/// Prints the rows, and what each is of `base`'s.
fn print_table(run: &Run, targets: &[Target], rows: &[Value], base: &Target, base_row: &Value) {
    println!("\n{}: {}", run.name, run.says);
    let streams = run.load[0] == "stream";
    let (cpu, unit) = if streams { ("cpu_us_per_chunk", "CPU µs/chunk") } else { ("cpu_us_per_request", "CPU µs/req") };
    let (middle, late) = if streams { ("first_p50_ms", "chunk_p99_ms") } else { ("p50_ms", "p99_ms") };
    println!(
        "{:<32}{:>12}{:>14}{:>10}{:>10}{:>10}{:>14}{:>10}",
        "",
        "per second",
        unit,
        format!("× {}", base.name.split(' ').next().unwrap_or_default()),
        "rate ×",
        middle.trim_end_matches("_ms"),
        late,
        "MB"
    );
    for (target, row) in targets.iter().zip(rows) {
        let show = |name: &str, digits: usize| row[name].as_f64().map_or("–".to_owned(), |value| format!("{value:.digits$}"));
        let ratio = |name: &str| match (row[name].as_f64(), base_row[name].as_f64()) {
            (Some(own), Some(base)) if base > 0.0 => format!("{:.2}", own / base),
            _ => "–".to_owned(),
        };
        println!(
            "{:<32}{:>12}{:>14}{:>10}{:>10}{:>10}{:>14}{:>10}",
            target.name,
            show("per_second", 0),
            show(cpu, 1),
            ratio(cpu),
            ratio("per_second"),
            show(middle, 2),
            show(late, 2),
            show("memory_mb", 0)
        );
    }
}

fn start_nginx(folder: &Path, port: u16, upstream: &str) -> Result<Running> {
    let tmp = folder.display();
    let text = format!(
        "worker_processes 2; daemon off; error_log {tmp}/error.log; pid {tmp}/nginx.pid; worker_rlimit_nofile 20000;\n\
         events {{ worker_connections 9000; multi_accept on; }}\n\
         http {{ access_log off; keepalive_requests 1000000; tcp_nodelay on; client_body_temp_path {tmp}/a; proxy_temp_path {tmp}/b;\n\
         fastcgi_temp_path {tmp}/c; uwsgi_temp_path {tmp}/d; scgi_temp_path {tmp}/e;\n\
         upstream fast {{ server {upstream}; keepalive 2048; keepalive_requests 10000000; }}\n\
         server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://fast; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_buffering off; client_max_body_size 50m; client_body_buffer_size 256k; }} }} }}\n"
    );
    let path = folder.join("nginx.conf");
    fs::write(&path, text)?;
    shell::output(Command::new("chmod").arg("755").arg(folder))?;
    start(Command::new("nginx").arg("-c").arg(path))
}

fn start_gateway(programs: &Path, folder: &Path, sync: &str, port: u16, upstream: &str) -> Result<Running> {
    let catalog = folder.join("catalog.toml");
    let channel = |name: &str, protocol: &str, version: &str, model: &str| {
        format!(
            "[[channel]]\nname = \"{name}\"\nprovider = \"compatible\"\nprotocol = \"{protocol}\"\nbase_url = \"http://{upstream}/{version}\"\nprivate_network = true\n\
             [[channel.account]]\nname = \"{name}\"\ncredential = \"bench\"\n\
             [[channel.serves]]\nmodel = \"{model}\"\ncost = {{ input = \"0.25\", output = \"2.00\" }}\n\
             [[model]]\nname = \"{model}\"\nprice = {{ input = \"0.30\", output = \"2.40\" }}\n"
        )
    };
    let text = channel("chat", "openai", "v1", "bench-chat")
        + &channel("native", "gemini", "v1beta", "bench-native")
        + "[[group]]\nname = \"default\"\nchannels = [\"chat\", \"native\"]\n[[key]]\nname = \"bench\"\ngroups = [\"default\"]\nsecret = \""
        + KEY
        + "\"\n";
    fs::write(&catalog, text)?;
    let mut command = Command::new(programs.join("tollgate"));
    command
        .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--catalog"])
        .arg(catalog)
        .arg("--data")
        .arg(folder.join(sync));
    command.env("TOLLGATE_JOURNAL__SYNC", sync).env("TOLLGATE_LOG__LEVEL", "warn").current_dir(folder);
    start(&mut command)
}

fn start(command: &mut Command) -> Result<Running> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Ok(Running(child.with_context(|| format!("cannot start {name}"))?))
}

fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

fn wait_for(address: &str) -> Result<()> {
    for _ in 0..200 {
        if std::net::TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("nothing listens at {address}")
}

fn http_get(address: &str, path: &str) -> Result<()> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = [0; 64];
    let got = stream.read(&mut answer)?;
    if answer[..got].starts_with(b"HTTP/1.1 200") { Ok(()) } else { bail!("{address}{path} did not answer 200") }
}

fn resident_mb(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: f64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / 1e6
}
