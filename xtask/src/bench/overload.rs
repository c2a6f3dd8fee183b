//! Three times the load that the gateway can answer.
//!
//! The gateway has one core to itself; the client and the upstream share the other, so that more load takes nothing from the
//! gateway. Its capacity is measured in a closed loop first, on a few connections and on as many as a fleet of callers has: the
//! latter shows the cost of more connections by themselves. Then requests of one key come at three times the capacity on these
//! connections, independent of the answers. Meanwhile a key of another member sends 50 requests a second, and a probe
//! requests `/healthz` on a new connection each time.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use serde_json::{Value, json};

use super::{
    BenchOptions, CLOSED_LOOP, Scenario, load,
    report::number,
    targets::{BenchTarget, free_ports, http_get, serve, start, wait_for},
};
use crate::shell;

/// The scenario's name.
pub(super) const NAME: &str = "overload";
/// Offered load by capacity.
const FACTOR: f64 = 3.0;
const CONNECTIONS: &str = "1024";
/// `limits.in_flight` of the gateway: the number of requests that it answers in about 10 ms.
const IN_FLIGHT: &str = "256";
/// Requests a second of the other key.
const OTHER_RATE: &str = "50";
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// Medians of the rounds.
pub(super) fn measure(options: &BenchOptions, programs: &Path, folder: &Path) -> Result<Value> {
    shell::ensure_debian("taskset", "util-linux")?;
    ensure!(thread::available_parallelism()?.get() >= 2, "the gateway and the client need a core each");
    println!("\n{NAME}: {FACTOR} × the capacity of one core, {CONNECTIONS} connections, limits.in_flight = {IN_FLIGHT}");
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let folder = folder.join(format!("{NAME}-{round}"));
        fs::create_dir(&folder)?;
        rounds.push(measure_round(options, programs, &folder)?);
    }
    let median = |field: &str| {
        let mut values: Vec<f64> = rounds.iter().filter_map(|row| row[field].as_f64()).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let fields = [
        "peak",
        "peak_of_many",
        "offered",
        "served",
        "goodput",
        "goodput_of_many",
        "served_p99_ms",
        "refused",
        "refusal_p99_ms",
        "other_served",
        "other_p99_ms",
        "health_max_ms",
        "memory_mb",
    ];
    for field in fields {
        println!("{:<32}{:>12.2}", field.replace('_', " "), median(field).unwrap_or(f64::NAN));
    }
    Ok(fields.iter().map(|field| ((*field).to_owned(), json!(median(field)))).collect::<serde_json::Map<_, _>>().into())
}

fn measure_round(options: &BenchOptions, programs: &Path, folder: &Path) -> Result<Value> {
    let ports = free_ports(2)?;
    let [upstream, address] = [ports[0], ports[1]].map(|port| format!("127.0.0.1:{port}"));
    let _upstream = start(on_core("1", &programs.join("fast-upstream")).args(["--listen", &upstream]))?;
    let mut gateway = on_core("0", &programs.join("tollgate"));
    serve(&mut gateway, folder, "data", ports[1], &upstream)?;
    gateway.env("TOLLGATE_SERVER__CORES", "1").env("TOLLGATE_LIMITS__IN_FLIGHT", IN_FLIGHT);
    let gateway = start(&mut gateway)?;
    wait_for(&upstream)?;
    wait_for(&address)?;
    http_get(&upstream, &format!("/set?delay=0&{}", CLOSED_LOOP.upstream))?;
    let target = || BenchTarget::new("tollgate", &address, Some(gateway.0.id()), "bench-chat");
    let (flooding, other) = (target(), target().of_other_member());
    let seconds = options.seconds.to_string();
    let run = |load_options: &[&str], target: &BenchTarget| -> Result<Value> {
        let client = load(programs, target, &Scenario { load: load_options, ..CLOSED_LOOP });
        let mut command = on_core("1", Path::new(client.get_program()));
        let row: Value = serde_json::from_str(shell::output(command.args(client.get_args()))?.trim())?;
        if row["errors"] != 0 {
            println!("  ! {} errors, last: {}", row["errors"], row["last_error"]);
        }
        Ok(row)
    };
    let peak = number(&run(&["max", "--connections", "64", "--seconds", &seconds], &flooding)?, "/per_second");
    let many = run(&["max", "--connections", CONNECTIONS, "--refusals", "--seconds", &seconds], &flooding)?;
    let peak_of_many = number(&many, "/per_second");
    let rate = format!("{:.0}", peak * FACTOR);
    let probe = HealthProbe::start(&address);
    let common = ["--refusals", "--warm", "2", "--seconds", &seconds];
    let (row, other) = thread::scope(|scope| {
        let other = scope.spawn(|| run(&[&["rate", "--connections", "16", "--rate", OTHER_RATE][..], &common].concat(), &other));
        let row = run(&[&["rate", "--connections", CONNECTIONS, "--rate", &rate][..], &common].concat(), &flooding);
        (row, other.join())
    });
    let (row, other) = (row?, other.map_err(|_| anyhow!("a measurement panicked"))??);
    let health_max_ms = probe.slowest_ms();
    let served = number(&row, "/per_second");
    let refused = number(&row, "/refused") / f64::from(options.seconds);
    Ok(json!({
        "peak": peak, "peak_of_many": peak_of_many, "offered": served + refused, "served": served, "goodput": served / peak,
        "goodput_of_many": served / peak_of_many, "served_p99_ms": row["latency_ms"]["p99"], "refused": refused,
        "refusal_p99_ms": row["refused_ms"]["p99"], "other_served": other["per_second"], "other_p99_ms": other["latency_ms"]["p99"],
        "health_max_ms": health_max_ms, "memory_mb": number(&row, "/memory_bytes") / 1e6,
    }))
}

fn on_core(core: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", core]).arg(program);
    command
}

/// Requests `/healthz` repeatedly.
struct HealthProbe {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Duration>,
}

impl HealthProbe {
    #[expect(clippy::disallowed_methods, reason = "developer commands read the clock")]
    fn start(address: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (address, stopped) = (address.to_owned(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut slowest = Duration::ZERO;
            while !stopped.load(Relaxed) {
                let begin = Instant::now();
                // An unanswered probe counts as infinitely slow.
                let took = http_get(&address, "/healthz").map_or(Duration::MAX, |()| begin.elapsed());
                slowest = slowest.max(took);
                thread::sleep(PROBE_INTERVAL);
            }
            slowest
        });
        Self { stop, thread }
    }

    fn slowest_ms(self) -> f64 {
        self.stop.store(true, Relaxed);
        self.thread.join().map_or(f64::INFINITY, |slowest| slowest.as_secs_f64() * 1e3)
    }
}
