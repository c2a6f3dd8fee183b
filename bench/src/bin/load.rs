//! A low-overhead load client: one thread, raw HTTP/1.1, results as one line of JSON.
//!
//! `load max|rate|stream --url http://HOST:PORT/PATH [--connections N] [--seconds S] [--warm S] [--rate R]
//! [--ramp-ms MS] [--requests N] [--model M] [--native] [--refusals] [--header 'name: value'] [--pid P]`
//!
//! `max` is a closed loop; with `--requests` it ends after exactly that many instead of after a time. `rate` is an open loop:
//! latency counts from the time a request was due, so delays caused by a stalled server are included. `stream` measures the time
//! to the first content and the one-way delay of each chunk, using the timestamp that the fast upstream puts into it. With
//! `--refusals`, answers 429 and 503 are not errors but counted and timed separately. All answers are then timed from when the
//! request was written, because more requests come due than an overloaded server can accept.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

use memchr::memmem::find;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, mpsc},
    task::LocalSet,
};
use tollgate_bench::{message_end, now_ns};

#[derive(Default)]
struct Measurements {
    measuring: bool,
    /// Requests still to be sent; `None`: as many as fit into the time.
    remaining: Option<u64>,
    done: u64,
    errors: u64,
    last_error: String,
    whole: Vec<u64>,
    /// Answers 429 and 503, with `--refusals`.
    refused: Vec<u64>,
    first: Vec<u64>,
    chunk: Vec<u64>,
}

impl Measurements {
    /// Whether another request is to be sent. Counts it.
    fn take_turn(&mut self) -> bool {
        let Some(remaining) = &mut self.remaining else { return true };
        let is_one_left = *remaining > 0;
        *remaining = remaining.saturating_sub(1);
        is_one_left
    }
}

#[derive(Clone)]
struct LoadOptions {
    mode: String,
    address: String,
    request: Rc<Vec<u8>>,
    connections: usize,
    seconds: f64,
    warm: f64,
    rate: f64,
    ramp_ms: u64,
    requests: Option<u64>,
    counts_refusals: bool,
    pids: Vec<u32>,
}

/// Result of an exchange.
enum ExchangeOutcome {
    Served,
    /// With 429 or 503, and whether the connection stays open.
    Refused {
        keeps: bool,
    },
}

fn main() {
    let options = read_arguments();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let results = LocalSet::new().block_on(&runtime, measure(&options));
    #[expect(clippy::print_stdout, reason = "this line is what the program is for")]
    {
        println!("{results}");
    }
    // Exit without closing the streams still open.
    std::process::exit(0);
}

async fn measure(options: &LoadOptions) -> Value {
    let results = Rc::new(RefCell::new(Measurements { remaining: options.requests, ..Measurements::default() }));
    let queue: Rc<RefCell<VecDeque<u64>>> = Rc::default();
    let notify = Rc::new(Notify::new());
    let mut connections = Vec::new();
    for number in 0..options.connections {
        let (options, results, queue, notify) = (options.clone(), Rc::clone(&results), Rc::clone(&queue), Rc::clone(&notify));
        connections.push(tokio::task::spawn_local(async move { connection(number, &options, &results, &queue, &notify).await }));
    }
    if options.mode == "rate" {
        schedule_requests(options.rate, Rc::clone(&queue), Rc::clone(&notify));
    }
    if options.requests.is_none() {
        tokio::time::sleep(Duration::from_secs_f64(options.warm)).await;
    }
    results.borrow_mut().measuring = true;
    let (begin, cpu) = (now_ns(), cpu_ns(&options.pids));
    let mut memory = 0;
    let mut left = options.seconds;
    if options.requests.is_some() {
        left = 0.0;
        for connection in connections {
            let _ = connection.await;
        }
    }
    while left > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(left.min(1.0))).await;
        left -= 1.0;
        memory = memory.max(resident_bytes(&options.pids));
    }
    let seconds = seconds_of(now_ns() - begin);
    // The CPU time of an ended thread is lost.
    let cpu = cpu_ns(&options.pids).saturating_sub(cpu);
    let mut results = results.borrow_mut();
    results.measuring = false;
    let (done, chunks) = (results.done, results.chunk.len() as u64);
    let refused = results.refused.len();
    let micros = |per: u64| if per == 0 { Value::Null } else { json!(seconds_of(cpu) * 1e6 / count(per)) };
    json!({
        "per_second": if options.mode == "stream" { count(chunks) / seconds } else { count(done) / seconds },
        "done": done, "refused": refused, "errors": results.errors, "last_error": results.last_error,
        "cpu_us_per_request": micros(done), "cpu_us_per_chunk": micros(chunks), "memory_bytes": memory,
        "latency_ms": percentiles(&mut results.whole), "refused_ms": percentiles(&mut results.refused), "first_ms": percentiles(&mut results.first), "chunk_ms": percentiles(&mut results.chunk),
    })
}

async fn connection(
    number: usize,
    options: &LoadOptions,
    results: &RefCell<Measurements>,
    queue: &RefCell<VecDeque<u64>>,
    notify: &Notify,
) {
    if options.mode == "stream" {
        let wait = options.ramp_ms * number as u64 / options.connections.max(1) as u64;
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
    let mut socket: Option<TcpStream> = None;
    let mut buffer = Vec::with_capacity(8_192);
    while results.borrow_mut().take_turn() {
        let due = if options.mode == "rate" {
            let next = queue.borrow_mut().pop_front();
            let Some(due) = next else {
                notify.notified().await;
                continue;
            };
            due
        } else {
            now_ns()
        };
        let since = if options.counts_refusals { now_ns() } else { due };
        let result = exchange(&mut socket, &mut buffer, options, since, results).await;
        if let Ok(ExchangeOutcome::Refused { keeps }) = result {
            let mut results = results.borrow_mut();
            if results.measuring {
                results.refused.push(now_ns().saturating_sub(since));
            }
            if !keeps {
                socket = None;
            }
            continue;
        }
        if record_result(result, since, &mut results.borrow_mut()) {
            continue;
        }
        socket = None;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Counts one exchange; returns `false` when it failed.
fn record_result(result: Result<ExchangeOutcome, String>, due: u64, results: &mut Measurements) -> bool {
    match result {
        Ok(_) => {
            if results.measuring {
                results.done += 1;
                results.whole.push(now_ns().saturating_sub(due));
            }
            true
        }
        Err(error) => {
            results.errors += u64::from(results.measuring);
            results.last_error = error;
            false
        }
    }
}

async fn exchange(
    socket: &mut Option<TcpStream>,
    buffer: &mut Vec<u8>,
    options: &LoadOptions,
    since: u64,
    results: &RefCell<Measurements>,
) -> Result<ExchangeOutcome, String> {
    let stream = if let Some(stream) = socket {
        stream
    } else {
        let opened = TcpStream::connect(&options.address).await.map_err(|error| format!("connect: {error}"))?;
        opened.set_nodelay(true).map_err(|error| error.to_string())?;
        socket.insert(opened)
    };
    stream.write_all(&options.request).await.map_err(|error| format!("write: {error}"))?;
    buffer.clear();
    let (mut scanned, mut pieces, mut ended) = (0, 0_u64, false);
    loop {
        if stream.read_buf(buffer).await.map_err(|error| format!("read: {error}"))? == 0 {
            return Err("closed inside an answer".to_owned());
        }
        if options.mode == "stream"
            && let Some(line) = buffer[scanned..].iter().rposition(|byte| *byte == b'\n')
        {
            let lines = &buffer[scanned..=scanned + line];
            pieces += read_timestamps(lines, pieces, since, results);
            ended |= find(lines, b"[DONE]").is_some() || find(lines, b"\"STOP\"").is_some();
            scanned += line + 1;
        }
        // Search for the end only when the buffer may contain it; otherwise scanning would be quadratic in the answer.
        let may_be_whole = options.mode != "stream" || buffer.ends_with(b"0\r\n\r\n") || !buffer.starts_with(b"HTTP/1.1 200");
        if may_be_whole && message_end(buffer).is_some() {
            break;
        }
    }
    if options.counts_refusals && [b"HTTP/1.1 429", b"HTTP/1.1 503"].iter().any(|status| buffer.starts_with(*status)) {
        return Ok(ExchangeOutcome::Refused { keeps: find(buffer, b"connection: close").is_none() });
    }
    if !buffer.starts_with(b"HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(&buffer[..buffer.len().min(300)]).into_owned());
    }
    if options.mode == "stream" && (pieces == 0 || !ended) {
        return Err(format!("a stream of {pieces} pieces without its end"));
    }
    Ok(ExchangeOutcome::Served)
}

/// Reads the timestamps in complete lines and returns their number.
fn read_timestamps(lines: &[u8], before: u64, since: u64, results: &RefCell<Measurements>) -> u64 {
    let now = now_ns();
    let mut results = results.borrow_mut();
    let (mut from, mut found) = (0, 0);
    while let Some(at) = find(&lines[from..], b"\"@") {
        from += at + 2;
        let digits = lines[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let timestamp: u64 =
            std::str::from_utf8(&lines[from..from + digits]).ok().and_then(|text| text.parse().ok()).unwrap_or(now);
        if results.measuring {
            if before + found == 0 {
                results.first.push(now.saturating_sub(since));
            }
            results.chunk.push(now.saturating_sub(timestamp));
        }
        found += 1;
        from += digits;
    }
    found
}

/// Queues requests on schedule, independent of the server. A separate thread, because it sleeps more precisely than the runtime's
/// timer.
fn schedule_requests(rate: f64, queue: Rc<RefCell<VecDeque<u64>>>, notify: Rc<Notify>) {
    let (sender, mut receiver) = mpsc::channel(100_000);
    std::thread::spawn(move || {
        let begin = now_ns();
        for number in 0_u32.. {
            let due = begin + nanos(f64::from(number) / rate);
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
            if sender.blocking_send(due).is_err() {
                return;
            }
        }
    });
    tokio::task::spawn_local(async move {
        while let Some(due) = receiver.recv().await {
            queue.borrow_mut().push_back(due);
            notify.notify_one();
        }
    });
}

fn percentiles(values: &mut [u64]) -> Value {
    values.sort_unstable();
    let at = |per_mille: usize| {
        values.get((values.len() * per_mille / 1_000).min(values.len().saturating_sub(1))).map(|value| seconds_of(*value) * 1e3)
    };
    json!({"count": values.len(), "p50": at(500), "p90": at(900), "p99": at(990), "max": at(1_000)})
}

#[expect(clippy::cast_precision_loss, reason = "results for people")]
fn count(number: u64) -> f64 {
    number as f64
}

fn seconds_of(nanos: u64) -> f64 {
    count(nanos) / 1e9
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive times")]
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// These processes and all their descendants.
fn process_tree(pids: &[u32]) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)).and_then(|text| text.parse::<u32>().ok());
        parents.push((pid, parent.unwrap_or(0)));
    }
    let mut wanted = pids.to_vec();
    let mut next = 0;
    while next < wanted.len() {
        let parent = wanted[next];
        wanted.extend(parents.iter().filter(|(_, own)| *own == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    wanted
}

/// CPU time in nanoseconds, as counted by the scheduler.
fn cpu_ns(pids: &[u32]) -> u64 {
    let tasks = process_tree(pids).into_iter().filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
    tasks
        .flat_map(|tasks| tasks.flatten().collect::<Vec<_>>())
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

fn resident_bytes(pids: &[u32]) -> u64 {
    let pages = process_tree(pids)
        .into_iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?.split(' ').nth(1)?.parse::<u64>().ok());
    pages.sum::<u64>() * 4_096
}

fn read_arguments() -> LoadOptions {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().expect("max, rate or stream");
    let (mut url, mut model, mut headers, mut native) = (String::new(), "bench-model".to_owned(), String::new(), false);
    let mut options = LoadOptions {
        mode,
        address: String::new(),
        request: Rc::default(),
        connections: 64,
        seconds: 4.0,
        warm: 1.0,
        rate: 200.0,
        ramp_ms: 0,
        requests: None,
        counts_refusals: false,
        pids: Vec::new(),
    };
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().expect("this option has a value");
        match name.as_str() {
            "--url" => url = value(),
            "--model" => model = value(),
            "--header" => headers.extend([value(), "\r\n".to_owned()]),
            "--native" => native = true,
            "--refusals" => options.counts_refusals = true,
            "--connections" => options.connections = value().parse().expect("a number"),
            "--seconds" => options.seconds = value().parse().expect("a number"),
            "--warm" => options.warm = value().parse().expect("a number"),
            "--rate" => options.rate = value().parse().expect("a number"),
            "--requests" => options.requests = Some(value().parse().expect("a number")),
            "--ramp-ms" => options.ramp_ms = value().parse().expect("a number"),
            "--pid" => options.pids.push(value().parse().expect("a process id")),
            other => panic!("unknown option {other}"),
        }
    }
    let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("--url http://HOST:PORT/PATH");
    let text = "plain words of a prompt that is as long as usual prompts are ".repeat(5);
    let body = if native {
        json!({"contents": [{"role": "user", "parts": [{"text": text}]}], "generationConfig": {"temperature": 0.7, "maxOutputTokens": 256}})
    } else if path.ends_with("/messages") {
        json!({"model": model, "system": "You are a helpful assistant.", "messages": [{"role": "user", "content": text}], "temperature": 0.7, "max_tokens": 256})
    } else if path.ends_with("/responses") {
        json!({"model": model, "instructions": "You are a helpful assistant.", "input": [{"role": "user", "content": text}], "temperature": 0.7, "max_output_tokens": 256, "store": false})
    } else if options.mode == "stream" {
        json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 256, "stream": true, "stream_options": {"include_usage": true}})
    } else {
        json!({"model": model, "messages": [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": text}], "temperature": 0.7, "max_tokens": 256})
    }
    .to_string();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    options.request = Rc::new((head + &body).into_bytes());
    address.clone_into(&mut options.address);
    options
}
