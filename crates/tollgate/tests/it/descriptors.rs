//! A process that runs out of file descriptors: bounds are fitted to the limit, and its exhaustion does not count as a failure of
//! an account.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::Command,
    time::Duration,
};

use serde_json::json;
use tempfile::TempDir;
use tollgate_testkit::{Request, TestGateway, Upstream, wait_for};

use crate::support::{self, PROGRAM};

/// A script that runs the program with these limits of open files.
fn program_with_limits(folder: &TempDir, soft: u32, hard: u32) -> String {
    let program = folder.path().join("tollgate");
    let text = format!("#!/bin/sh\nulimit -Sn {soft}\nulimit -Hn {hard}\nexec '{PROGRAM}' \"$@\"\n");
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

fn set_soft_limit(gateway: &TestGateway, files: &str) {
    let output = Command::new("prlimit").args(["--pid", &gateway.pid().to_string(), &format!("--nofile={files}:")]).output();
    let output = output.expect("prlimit is part of util-linux");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Leaves the gateway without a descriptor for anything new. Not before it has stopped opening files: its first core answers while the
/// others start, and a gateway whose core cannot start ends.
fn exhaust_descriptors(gateway: &TestGateway) {
    let folder = format!("/proc/{}/fd", gateway.pid());
    let count = || std::fs::read_dir(&folder).expect("the gateway runs").count();
    let (mut before, mut unchanged) = (count(), 0);
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(50));
        let now = count();
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
        if unchanged == 10 {
            set_soft_limit(gateway, "3");
            return;
        }
    }
    panic!("the gateway opens and closes files all the time");
}

#[test]
fn connection_limit_is_lowered_to_the_open_files_limit_with_a_reserve() {
    let (folder, upstream) = (TempDir::new().unwrap(), Upstream::start());
    let program = program_with_limits(&folder, 64, 400);
    let catalog = support::catalog(&upstream, "");
    let gateway = TestGateway::builder(&program).catalog(&catalog).env("TOLLGATE_SERVER__CORES", "2").spawn();
    assert!(gateway.log().contains("the limit of open files is too low"), "{}", gateway.log());
    let doctor = gateway.run(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(text.contains("FAIL  open files") && text.contains("400 open files allowed"), "{text}");

    // Far more connections than fit: the rest are refused, and those that are served reach the upstream.
    let mut idle: Vec<TcpStream> = (0..500).filter_map(|_| TcpStream::connect(gateway.address()).ok()).collect();
    let body = support::chat("chat-model").to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        gateway.key(),
        body.len()
    );
    let mut answer = String::new();
    idle[0].write_all(request.as_bytes()).unwrap();
    idle[0].set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    idle[0].read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!gateway.log().contains("cannot accept a connection"), "{}", gateway.log());
    drop(idle);
    wait_for("new connections are served", Duration::from_secs(2), || gateway.chat(&support::chat("chat-model")).status == 200);
}

/// A connection that is kept, because a gateway without descriptors accepts no other.
struct Kept(TcpStream);

impl Kept {
    fn open(gateway: &TestGateway) -> Self {
        let stream = TcpStream::connect(gateway.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(stream)
    }

    /// Head and JSON body of the answer; without a body of the request it is a `GET`.
    fn ask(&mut self, key: &str, path: &str, body: &str) -> String {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut bytes = [0; 4_096];
        while !answer.ends_with(b"}") && !answer.ends_with(b"}\n") {
            let got = self.0.read(&mut bytes).unwrap();
            assert_ne!(got, 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&bytes[..got]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn is_overload(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 503") && answer.contains("server_overloaded")
}

#[test]
fn lack_of_descriptors_is_reported_as_overload_and_cools_no_account() {
    let upstream = Upstream::start();
    let gateway = support::builder(&upstream, "").spawn();
    let mut kept = Kept::open(&gateway);
    // The key is known, so that only the upstream needs a socket.
    assert!(kept.ask(gateway.key(), "/v1/models", "").starts_with("HTTP/1.1 200"));
    exhaust_descriptors(&gateway);
    let refused = kept.ask(gateway.key(), "/v1/chat/completions", &support::chat("chat-model").to_string());
    assert!(is_overload(&refused), "{refused}");
    set_soft_limit(&gateway, "1000");
    let answer = gateway.send(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key()));
    assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("1")), "{}", gateway.log());
    assert!(!gateway.log().contains("account health changed"), "{}", gateway.log());
}

#[test]
fn media_download_without_descriptors_is_reported_as_overload() {
    let upstream = Upstream::start();
    let gateway = support::builder(&upstream, "fetch_media = true").spawn();
    let mut kept = Kept::open(&gateway);
    assert!(kept.ask(gateway.key(), "/v1/models", "").starts_with("HTTP/1.1 200"));
    let picture = json!({"type": "image_url", "image_url": {"url": "http://picture.invalid/a.png"}});
    let body = json!({"model": "native-model", "messages": [{"role": "user", "content": [picture]}]}).to_string();
    exhaust_descriptors(&gateway);
    let refused = kept.ask(gateway.key(), "/v1/chat/completions", &body);
    assert!(is_overload(&refused), "{refused}");
    set_soft_limit(&gateway, "1000");
}

#[test]
fn uncached_key_without_descriptors_is_reported_as_overload() {
    let upstream = Upstream::start();
    let gateway = support::builder(&upstream, "").spawn();
    let mut kept = Kept::open(&gateway);
    // Answered without a key.
    assert!(kept.ask("", "/version", "").starts_with("HTTP/1.1 200"));
    exhaust_descriptors(&gateway);
    let refused = kept.ask(gateway.key(), "/v1/chat/completions", &support::chat("chat-model").to_string());
    assert!(is_overload(&refused), "{refused}");
    set_soft_limit(&gateway, "1000");
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    assert!(!gateway.log().contains("account health changed"), "{}", gateway.log());
}
