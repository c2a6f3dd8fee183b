//! Upgrades without a gap: a new process takes over the sockets of the running one.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use sqlx::Connection as _;
use tempfile::TempDir;
use tollgate_testkit::{
    ClientResponse, Latch, PendingResponse, Postgres, Redis, Request, ScriptedResponse, TestGateway, Upstream, wait_for,
};

use crate::{
    nodes::MASTER_KEY,
    support::{self, PROGRAM},
};

/// A catalog whose key may have one request at a time.
fn one_at_a_time(upstream: &Upstream) -> String {
    support::catalog(upstream, "cooling = false").replace("name = \"caller\"\n", "name = \"caller\"\nconcurrency = 1\n")
}

/// A caller's connection that is kept open.
struct KeptConnection(BufReader<TcpStream>);

impl KeptConnection {
    fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        Self(BufReader::new(socket))
    }

    fn head(key: &str, body: &str) -> String {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        )
    }

    /// Status and whether the connection stays open.
    fn answer(&mut self) -> (u16, bool) {
        let (mut status, mut length, mut stays) = (0, 0, true);
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection was closed");
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            }
            length = line.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
            stays &= line != "connection: close";
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, stays)
    }

    fn chat(&mut self, key: &str) -> (u16, bool) {
        let body = support::chat("chat-model").to_string();
        self.0.get_mut().write_all((Self::head(key, &body) + &body).as_bytes()).unwrap();
        self.answer()
    }
}

/// A stream whose first chunk has arrived; the upstream delays the rest.
fn begun_stream(gateway: &TestGateway) -> (PendingResponse, ClientResponse) {
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gateway.key());
    let mut open = gateway.start_request(&request);
    let mut answer = open.read_head().unwrap();
    answer.body = open.read_chunk(&answer).unwrap().unwrap();
    (open, answer)
}

fn read_to_end((mut open, mut answer): (PendingResponse, ClientResponse)) -> ClientResponse {
    while let Some(bytes) = open.read_chunk(&answer).unwrap() {
        answer.body.extend(bytes);
    }
    answer
}

fn on_data(data: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(PROGRAM);
    command.env_clear().env("PATH", "/usr/bin:/bin").args(arguments).arg("--data").arg(data).current_dir(data);
    let out = command.output().unwrap();
    (out.status.code(), format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
}

/// A number in the SQLite database.
fn number_in(data: &Path, query: &'static str) -> i64 {
    let place = format!("sqlite:{}?mode=ro", data.join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        let number = sqlx::query_scalar(query).fetch_one(&mut database).await.unwrap();
        database.close().await.unwrap();
        number
    })
}

#[test]
fn upgrades_under_load_fail_no_request() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello").delay(Duration::from_millis(20)));
    let mut gateway = support::gateway_for(&upstream);
    let (address, key, ended) = (gateway.address(), gateway.key().to_owned(), AtomicBool::new(false));
    let answered = thread::scope(|scope| {
        let kept = || {
            let (mut connection, mut answers) = (KeptConnection::open(address), 0);
            while !ended.load(Ordering::Relaxed) {
                assert_eq!(connection.chat(&key), (200, true));
                answers += 1;
            }
            answers
        };
        let new = || {
            let request = Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(&key);
            let mut answers = 0;
            while !ended.load(Ordering::Relaxed) {
                let answer = request.send(address).and_then(tollgate_testkit::PendingResponse::read).expect("an answer");
                assert_eq!((answer.status, answer.complete), (200, true), "{}", answer.text());
                answers += 1;
            }
            answers
        };
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(kept)).chain((0..4).map(|_| scope.spawn(new))).collect();
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(300));
            gateway.upgrade();
        }
        thread::sleep(Duration::from_millis(300));
        ended.store(true, Ordering::Relaxed);
        callers.into_iter().map(|caller| caller.join().unwrap()).sum::<usize>()
    });
    assert_eq!(gateway.replaced_exits(), [Some(0); 4], "{}", gateway.log());
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    let records = gateway.records();
    assert_eq!(records.len(), answered, "each request has one record");
    assert!(records.iter().all(|record| record["outcome"] == "completed"));
}

#[test]
fn kept_connection_is_handed_to_the_new_process() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let mut gateway = support::gateway_for(&upstream);
    let mut idle = KeptConnection::open(gateway.address());
    assert_eq!(idle.chat(gateway.key()), (200, true));
    // Half a head: the bytes that were read of it move with the connection.
    let body = support::chat("chat-model").to_string();
    let text = KeptConnection::head(gateway.key(), &body) + &body;
    let mut partial = KeptConnection::open(gateway.address());
    assert_eq!(partial.chat(gateway.key()), (200, true));
    partial.0.get_mut().write_all(&text.as_bytes()[..60]).unwrap();
    let mut silent = KeptConnection::open(gateway.address());
    thread::sleep(Duration::from_millis(100));
    gateway.upgrade();
    assert_eq!(gateway.replaced_exits(), [Some(0)], "{}", gateway.log());
    partial.0.get_mut().write_all(&text.as_bytes()[60..]).unwrap();
    assert_eq!(partial.answer(), (200, true));
    assert_eq!(idle.chat(gateway.key()), (200, true));
    assert_eq!(silent.chat(gateway.key()), (200, true));
}

#[test]
fn stream_continues_in_the_old_process_and_keeps_its_reservation() {
    let upstream = Upstream::start();
    let latch = Latch::default();
    upstream.set_default(ScriptedResponse::chat_stream(&["one", "two", "three"]).wait_after(2, &latch));
    let mut gateway = TestGateway::builder(PROGRAM).catalog(&one_at_a_time(&upstream)).spawn();
    let stream = begun_stream(&gateway);
    let began = Instant::now();
    // Two upgrades, so that a third process counts the end of a stream that the first one began.
    gateway.upgrade();
    println!("upgraded in {:?}", began.elapsed());
    gateway.upgrade();
    // The new process serves, and counts the stream: the key's concurrency of one is used up.
    let refused = gateway.chat(&support::chat("chat-model"));
    assert_eq!(refused.status, 429, "{}", refused.text());
    upstream.set_default(ScriptedResponse::chat("hello"));
    latch.open();
    let answer = read_to_end(stream);
    assert!(answer.text().contains("three") && answer.text().contains("[DONE]"), "{}", answer.text());
    assert_eq!(gateway.replaced_exits(), [Some(0); 2], "{}", gateway.log());
    // It is released when the old process reports the end of the stream.
    let released = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(10));
        gateway.chat(&support::chat("chat-model")).status == 200
    });
    assert!(released, "{}", gateway.log());
    let id = answer.header("x-request-id").unwrap().to_owned();
    let record = gateway.wait_for_record("record of the stream", |record| record["id"] == id.as_str());
    assert_eq!(record["outcome"], "completed", "{record}");
}

#[test]
fn unfinished_stream_of_a_killed_old_process_is_booked_once() {
    let upstream = Upstream::start();
    let latch = Latch::default();
    upstream.set_default(ScriptedResponse::chat_stream(&["one", "two"]).wait_after(2, &latch));
    let mut gateway = TestGateway::builder(PROGRAM).catalog(&one_at_a_time(&upstream)).spawn();
    let (_open, answer) = begun_stream(&gateway);
    gateway.upgrade();
    let pid = gateway.replaced_pids()[0].to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    assert_eq!(gateway.replaced_exits(), [None]);
    upstream.set_default(ScriptedResponse::chat("hello"));
    let id = answer.header("x-request-id").unwrap().to_owned();
    let record = gateway.wait_for_record("record of the stream", |record| record["id"] == id.as_str());
    assert_eq!(record["outcome"], "gateway_stopped", "{record}");
    // Its reservation ends with it.
    let released = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(20));
        gateway.chat(&support::chat("chat-model")).status == 200
    });
    assert!(released, "{}", gateway.log());
}

#[test]
fn failed_upgrade_does_not_affect_the_running_gateway() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let mut gateway = support::gateway_for(&upstream);
    let mut kept = KeptConnection::open(gateway.address());
    assert_eq!(kept.chat(gateway.key()), (200, true));
    // Settings that cannot be taken over are refused before anything pauses.
    let other = gateway.run(&["serve", "--upgrade", "--listen", "127.0.0.2:1"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&other.stderr).contains("restart the gateway instead"), "{other:?}");
    // A new process that ends after the gateway has paused for it.
    let mut socket = UnixStream::connect(gateway.data().join("upgrade.sock")).unwrap();
    let ask = json!({"Ask": {"protocol": 1, "version": "0", "listen": gateway.address(), "console": null}}).to_string();
    socket.write_all(&u32::try_from(ask.len()).unwrap().to_be_bytes()).unwrap();
    socket.write_all(ask.as_bytes()).unwrap();
    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut text = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut text).unwrap();
    assert!(String::from_utf8_lossy(&text).contains("Handed"), "{}", String::from_utf8_lossy(&text));
    drop(socket);
    assert_eq!(kept.chat(gateway.key()), (200, true));
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    assert!(gateway.log().contains("this process keeps serving"), "{}", gateway.log());
    gateway.upgrade();
    assert_eq!(kept.chat(gateway.key()), (200, true));
    assert_eq!(gateway.replaced_exits(), [Some(0)], "{}", gateway.log());
}

#[test]
fn new_process_that_cannot_serve_reports_why_and_the_running_one_continues() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let mut gateway = support::gateway_for(&upstream);
    let mut kept = KeptConnection::open(gateway.address());
    let mut serves = |gateway: &TestGateway| {
        assert_eq!(kept.chat(gateway.key()), (200, true));
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200, "{}", gateway.log());
    };
    let failed = |gateway: &TestGateway, variable: &str, value: &str, why: &str| {
        let out = gateway.upgrade_command().env(variable, value).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(why), "{said}");
    };
    // Settings are checked before the running process is asked.
    failed(&gateway, "TOLLGATE_LIMITS__IN_FLIGHT", "many", "TOLLGATE_LIMITS__IN_FLIGHT takes");
    assert!(!gateway.log().contains("handing over"), "{}", gateway.log());
    serves(&gateway);
    // This failure is found only after the hand-over, when the database is opened.
    failed(&gateway, "TOLLGATE_DATABASE__MASTER_KEY", "file:/nowhere/master.key", "/nowhere/master.key");
    serves(&gateway);
    let line = "the new process cannot serve";
    wait_for("the reason in the log", Duration::from_secs(5), || gateway.log().contains(line));
    let log = gateway.log();
    let line = log.lines().find(|logged| logged.contains(line)).unwrap();
    assert!(line.contains("this process keeps serving") && line.contains("/nowhere/master.key"), "{line}");
    gateway.upgrade();
    serves(&gateway);
    assert_eq!(gateway.replaced_exits(), [Some(0)], "{}", gateway.log());
}

#[test]
fn concurrent_upgrades_take_over_one_after_the_other() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let mut gateway = support::gateway_for(&upstream);
    let mut kept = KeptConnection::open(gateway.address());
    assert_eq!(kept.chat(gateway.key()), (200, true));
    // Each connection moves from process to process before its first request.
    let mut silent: Vec<_> = (0..100).map(|_| KeptConnection::open(gateway.address())).collect();
    gateway.upgrade_at_once(3);
    assert_eq!(kept.chat(gateway.key()), (200, true));
    for connection in &mut silent {
        assert_eq!(connection.chat(gateway.key()), (200, true), "{}", gateway.log());
    }
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    assert_eq!(gateway.replaced_exits(), [Some(0); 3], "{}", gateway.log());
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
}

#[test]
fn backup_contains_requests_in_progress_of_both_processes() {
    let upstream = Upstream::start();
    let latch = Latch::default();
    upstream.set_default(ScriptedResponse::chat_stream(&["one", "two"]).wait_after(2, &latch));
    let mut gateway = support::gateway_for(&upstream);
    let first = begun_stream(&gateway);
    gateway.upgrade();
    let second = begun_stream(&gateway);
    let journal = gateway.data().join("journal");
    for folder in [journal.clone(), journal.join("1")] {
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{}", folder.display());
    }
    let (folder, restored) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = folder.path().join("one.backup").display().to_string();
    let made = gateway.run(&["backup", &file]);
    assert!(made.status.success(), "{made:?}");
    std::fs::copy(gateway.data().join("master.key"), restored.path().join("master.key")).unwrap();
    let (code, said) = on_data(restored.path(), &["restore", &file]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = on_data(restored.path(), &["verify"]);
    assert!(code == Some(0) && said.contains("2 requests were cut by a kill"), "{said}");
    latch.open();
    let ids = [first, second].map(|stream| read_to_end(stream).header("x-request-id").unwrap().to_owned());
    assert_eq!(gateway.replaced_exits(), [Some(0)], "{}", gateway.log());
    let again = TestGateway::builder(PROGRAM).data_folder(restored).without_record_check().spawn();
    for id in ids {
        let record = again.wait_for_record("record of a stream", |record| record["id"] == id.as_str());
        assert_eq!(record["outcome"], "gateway_stopped", "{record}");
        let record = gateway.wait_for_record("record of a stream", |record| record["id"] == id.as_str());
        assert_eq!(record["outcome"], "completed", "{record}");
    }
}

#[test]
fn last_process_to_end_leaves_the_database_consistent() {
    const UNFINISHED: &str = "SELECT SUM(unfinished) FROM journals";
    const HOLDERS: &str = "SELECT COUNT(*) FROM key_holders";
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let mut gateway = support::gateway_for(&upstream);
    let _ = gateway.record_of(&gateway.chat(&support::chat("chat-model")));
    gateway.upgrade();
    assert_eq!(gateway.replaced_exits(), [Some(0)], "{}", gateway.log());
    let state = |gateway: &TestGateway| (number_in(gateway.data(), UNFINISHED), number_in(gateway.data(), HOLDERS));
    assert_eq!(state(&gateway), (1, 1), "the new process continues");

    // The opposite case: the new process ends while the old one still relays.
    let latch = Latch::default();
    upstream.set_default(ScriptedResponse::chat_stream(&["one", "two"]).wait_after(2, &latch));
    let stream = begun_stream(&gateway);
    gateway.upgrade();
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    assert_eq!(state(&gateway), (1, 1), "the old process continues");
    latch.open();
    let _ = read_to_end(stream);
    assert_eq!(gateway.replaced_exits(), [Some(0)], "{}", gateway.log());
    assert_eq!(state(&gateway), (0, 0));
    let copy = TempDir::new().unwrap();
    for name in ["tollgate.db", "master.key"] {
        std::fs::copy(gateway.data().join(name), copy.path().join(name)).unwrap();
    }
    let (code, said) = on_data(copy.path(), &["verify"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn connections_of_the_console_address_are_not_handed_to_the_model_address() {
    let upstream = Upstream::start();
    let builder = support::builder(&upstream, "cooling = false");
    let mut gateway = builder.env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0").spawn();
    let console = |gateway: &TestGateway| -> SocketAddr { gateway.startup()["console"].as_str().unwrap().parse().unwrap() };
    let address = console(&gateway);
    let request = format!("GET /admin/v1/me HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let ask = |connection: &mut KeptConnection| connection.0.get_mut().write_all(request.as_bytes());
    let mut kept = KeptConnection::open(address);
    ask(&mut kept).unwrap();
    assert_eq!(kept.answer(), (401, true));
    gateway.upgrade();
    assert_eq!(console(&gateway), address);
    // The kept connection is closed and not moved: a model listener would answer that it has no such path.
    let mut rest = Vec::new();
    let _ = ask(&mut kept);
    let _ = kept.0.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains(" 404 "), "{}", String::from_utf8_lossy(&rest));
    let mut new = KeptConnection::open(address);
    ask(&mut new).unwrap();
    assert_eq!(new.answer().0, 401);
    assert_eq!(gateway.replaced_exits(), [Some(0)], "{}", gateway.log());
}

#[test]
fn second_signal_ends_the_streams_of_a_replaced_process() {
    let upstream = Upstream::start();
    let latch = Latch::default();
    upstream.set_default(ScriptedResponse::chat_stream(&["one", "two"]).wait_after(2, &latch));
    let mut gateway = support::gateway_for(&upstream);
    let stream = begun_stream(&gateway);
    let id = stream.1.header("x-request-id").unwrap().to_owned();
    gateway.upgrade();
    let pid = gateway.replaced_pids()[0].to_string();
    let terminate = || assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    terminate();
    wait_for("the first signal", Duration::from_secs(5), || gateway.log().contains("stopping: running responses continue"));
    terminate();
    assert_eq!(gateway.replaced_exits(), [Some(1)], "{}", gateway.log());
    latch.open();
    let record = gateway.wait_for_record("record of the stream", |record| record["id"] == id.as_str());
    assert_eq!(record["outcome"], "gateway_stopped", "{record}");
    drop(stream);
}

#[test]
fn upgrades_on_postgres_and_redis_keep_streams_and_their_reservations() {
    const NAME: &str = "upgrades_on_postgres_and_redis_keep_streams_and_their_reservations";
    let (Some(postgres), Some(redis)) = (Postgres::start(NAME), Redis::start(NAME)) else { return };
    let upstream = Upstream::start();
    for redis in [None, Some(redis.url())] {
        let latch = Latch::default();
        upstream.set_default(ScriptedResponse::chat_stream(&["one", "two", "three"]).wait_after(2, &latch));
        let mut builder = TestGateway::builder(PROGRAM).catalog(&one_at_a_time(&upstream));
        builder = builder.env("DATABASE_URL", &postgres.url()).env("TOLLGATE_MASTER_KEY", MASTER_KEY);
        if let Some(url) = &redis {
            builder = builder.env("REDIS_URL", url);
        }
        let mut gateway = builder.spawn();
        let stream = begun_stream(&gateway);
        for _ in 0..2 {
            gateway.upgrade();
            let refused = gateway.chat(&support::chat("chat-model"));
            assert_eq!(refused.status, 429, "{}", refused.text());
        }
        upstream.set_default(ScriptedResponse::chat("hello"));
        latch.open();
        let answer = read_to_end(stream);
        assert!(answer.text().contains("[DONE]"), "{}", answer.text());
        assert_eq!(gateway.replaced_exits(), [Some(0); 2], "{}", gateway.log());
        wait_for("the end of the reservation", Duration::from_secs(10), || {
            gateway.chat(&support::chat("chat-model")).status == 200
        });
        let record = gateway.record_of(&answer);
        assert_eq!(record["outcome"], "completed", "{record}");
        assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    }
}
