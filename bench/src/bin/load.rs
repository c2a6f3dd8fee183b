//! A load client that costs little: one thread, raw HTTP/1.1, one JSON line of figures at its end.
//!
//! `load max|rate|stream --url http://HOST:PORT/PATH [--connections N] [--seconds S] [--warm S] [--rate R]
//! [--ramp-ms MS] [--model M] [--native] [--header 'name: value'] [--pid P]`
//!
//! `max` is a closed loop; `rate` an open one, where latency counts from the moment a request was due, so that a
//! stalled server is charged for what it held up; `stream` measures the time to the first content and each chunk's
//! one-way delay, from the stamp the fast upstream puts into it.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, mpsc},
    task::LocalSet,
};
use tollgate_bench::{find, message_end, now_ns};

#[derive(Default)]
struct Measurements {
    measuring: bool,
    done: u64,
    errors: u64,
    last_error: String,
    whole: Vec<u64>,
    first: Vec<u64>,
    chunk: Vec<u64>,
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
    pids: Vec<u32>,
}

fn main() {
    let asked = read_arguments();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let figures = LocalSet::new().block_on(&runtime, measure(&asked));
    #[expect(clippy::print_stdout, reason = "this line is what the program is for")]
    {
        println!("{figures}");
    }
    // Streams still open need no orderly end.
    std::process::exit(0);
}

async fn measure(asked: &LoadOptions) -> Value {
    let figures = Rc::new(RefCell::new(Measurements::default()));
    let queue: Rc<RefCell<VecDeque<u64>>> = Rc::default();
    let bell = Rc::new(Notify::new());
    for number in 0..asked.connections {
        let (asked, figures, queue, bell) = (asked.clone(), Rc::clone(&figures), Rc::clone(&queue), Rc::clone(&bell));
        tokio::task::spawn_local(async move { connection(number, &asked, &figures, &queue, &bell).await });
    }
    if asked.mode == "rate" {
        clockwork(asked.rate, Rc::clone(&queue), Rc::clone(&bell));
    }
    tokio::time::sleep(Duration::from_secs_f64(asked.warm)).await;
    figures.borrow_mut().measuring = true;
    let (begin, cpu) = (now_ns(), cpu_ns(&asked.pids));
    let mut memory = 0;
    let mut left = asked.seconds;
    while left > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(left.min(1.0))).await;
        left -= 1.0;
        memory = memory.max(resident_bytes(&asked.pids));
    }
    let seconds = seconds_of(now_ns() - begin);
    let cpu = cpu_ns(&asked.pids) - cpu;
    let mut figures = figures.borrow_mut();
    figures.measuring = false;
    let (done, chunks) = (figures.done, figures.chunk.len() as u64);
    let micros = |per: u64| if per == 0 { Value::Null } else { json!(seconds_of(cpu) * 1e6 / count(per)) };
    json!({
        "per_second": if asked.mode == "stream" { count(chunks) / seconds } else { count(done) / seconds },
        "done": done, "errors": figures.errors, "last_error": figures.last_error,
        "cpu_us_per_request": micros(done), "cpu_us_per_chunk": micros(chunks), "memory_bytes": memory,
        "latency_ms": spread(&mut figures.whole), "first_ms": spread(&mut figures.first), "chunk_ms": spread(&mut figures.chunk),
    })
}

async fn connection(
    number: usize,
    asked: &LoadOptions,
    figures: &RefCell<Measurements>,
    queue: &RefCell<VecDeque<u64>>,
    bell: &Notify,
) {
    if asked.mode == "stream" {
        let wait = asked.ramp_ms * number as u64 / asked.connections.max(1) as u64;
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
    let mut socket: Option<TcpStream> = None;
    let mut buffer = Vec::with_capacity(8_192);
    loop {
        let due = if asked.mode == "rate" {
            let next = queue.borrow_mut().pop_front();
            let Some(due) = next else {
                bell.notified().await;
                continue;
            };
            due
        } else {
            now_ns()
        };
        let result = exchange(&mut socket, &mut buffer, asked, due, figures).await;
        if note(result, due, &mut figures.borrow_mut()) {
            continue;
        }
        socket = None;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Counts one exchange; `false` when it failed.
fn note(result: Result<(), String>, due: u64, figures: &mut Measurements) -> bool {
    match result {
        Ok(()) => {
            if figures.measuring {
                figures.done += 1;
                figures.whole.push(now_ns().saturating_sub(due));
            }
            true
        }
        Err(error) => {
            figures.errors += u64::from(figures.measuring);
            figures.last_error = error;
            false
        }
    }
}

async fn exchange(
    socket: &mut Option<TcpStream>,
    buffer: &mut Vec<u8>,
    asked: &LoadOptions,
    since: u64,
    figures: &RefCell<Measurements>,
) -> Result<(), String> {
    let stream = if let Some(stream) = socket {
        stream
    } else {
        let opened = TcpStream::connect(&asked.address).await.map_err(|error| format!("connect: {error}"))?;
        opened.set_nodelay(true).map_err(|error| error.to_string())?;
        socket.insert(opened)
    };
    stream.write_all(&asked.request).await.map_err(|error| format!("write: {error}"))?;
    buffer.clear();
    let (mut scanned, mut pieces, mut ended) = (0, 0_u64, false);
    loop {
        if stream.read_buf(buffer).await.map_err(|error| format!("read: {error}"))? == 0 {
            return Err("closed inside an answer".to_owned());
        }
        if asked.mode == "stream"
            && let Some(line) = buffer[scanned..].iter().rposition(|byte| *byte == b'\n')
        {
            let lines = &buffer[scanned..=scanned + line];
            pieces += stamps(lines, pieces, since, figures);
            ended |= find(lines, b"[DONE]").is_some() || find(lines, b"\"STOP\"").is_some();
            scanned += line + 1;
        }
        // Scanning for the end is linear in the answer only when it is worth trying.
        if (asked.mode != "stream" || buffer.ends_with(b"0\r\n\r\n")) && message_end(buffer).is_some() {
            break;
        }
    }
    if !buffer.starts_with(b"HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(&buffer[..buffer.len().min(300)]).into_owned());
    }
    if asked.mode == "stream" && (pieces == 0 || !ended) {
        return Err(format!("a stream of {pieces} pieces without its end"));
    }
    Ok(())
}

/// Reads the stamps of whole lines; gives how many there were.
fn stamps(lines: &[u8], before: u64, since: u64, figures: &RefCell<Measurements>) -> u64 {
    let now = now_ns();
    let mut figures = figures.borrow_mut();
    let (mut from, mut found) = (0, 0);
    while let Some(at) = find(&lines[from..], b"\"@") {
        from += at + 2;
        let digits = lines[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let stamp: u64 = std::str::from_utf8(&lines[from..from + digits]).ok().and_then(|text| text.parse().ok()).unwrap_or(now);
        if figures.measuring {
            if before + found == 0 {
                figures.first.push(now.saturating_sub(since));
            }
            figures.chunk.push(now.saturating_sub(stamp));
        }
        found += 1;
        from += digits;
    }
    found
}

/// Puts requests on the queue on time, whatever the server does. A thread of its own sleeps more exactly than the
/// runtime's timer.
fn clockwork(rate: f64, queue: Rc<RefCell<VecDeque<u64>>>, bell: Rc<Notify>) {
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
            bell.notify_one();
        }
    });
}

fn spread(values: &mut [u64]) -> Value {
    values.sort_unstable();
    let at = |per_mille: usize| {
        values.get((values.len() * per_mille / 1_000).min(values.len().saturating_sub(1))).map(|value| seconds_of(*value) * 1e3)
    };
    json!({"count": values.len(), "p50": at(500), "p90": at(900), "p99": at(990), "max": at(1_000)})
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
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

/// These processes and all that descend from them.
fn tree(pids: &[u32]) -> Vec<u32> {
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

/// Time on a CPU, in nanoseconds, as the scheduler counts it.
fn cpu_ns(pids: &[u32]) -> u64 {
    let tasks = tree(pids).into_iter().filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
    tasks
        .flat_map(|tasks| tasks.flatten().collect::<Vec<_>>())
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

fn resident_bytes(pids: &[u32]) -> u64 {
    let pages = tree(pids)
        .into_iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?.split(' ').nth(1)?.parse::<u64>().ok());
    pages.sum::<u64>() * 4_096
}

fn read_arguments() -> LoadOptions {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().expect("max, rate or stream");
    let (mut url, mut model, mut headers, mut native) = (String::new(), "bench-model".to_owned(), String::new(), false);
    let mut asked = LoadOptions {
        mode,
        address: String::new(),
        request: Rc::default(),
        connections: 64,
        seconds: 4.0,
        warm: 1.0,
        rate: 200.0,
        ramp_ms: 0,
        pids: Vec::new(),
    };
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().expect("each option but --native has a value");
        match name.as_str() {
            "--url" => url = value(),
            "--model" => model = value(),
            "--header" => headers.extend([value(), "\r\n".to_owned()]),
            "--native" => native = true,
            "--connections" => asked.connections = value().parse().expect("a number"),
            "--seconds" => asked.seconds = value().parse().expect("a number"),
            "--warm" => asked.warm = value().parse().expect("a number"),
            "--rate" => asked.rate = value().parse().expect("a number"),
            "--ramp-ms" => asked.ramp_ms = value().parse().expect("a number"),
            "--pid" => asked.pids.push(value().parse().expect("a process id")),
            other => panic!("unknown option {other}"),
        }
    }
    let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("--url http://HOST:PORT/PATH");
    let text = "plain words of a prompt that is as long as usual prompts are ".repeat(5);
    let body = if native {
        json!({"contents": [{"role": "user", "parts": [{"text": text}]}], "generationConfig": {"temperature": 0.7, "maxOutputTokens": 256}})
    } else if asked.mode == "stream" {
        json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 256, "stream": true, "stream_options": {"include_usage": true}})
    } else {
        json!({"model": model, "messages": [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": text}], "temperature": 0.7, "max_tokens": 256})
    }
    .to_string();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    asked.request = Rc::new((head + &body).into_bytes());
    address.clone_into(&mut asked.address);
    asked
}
