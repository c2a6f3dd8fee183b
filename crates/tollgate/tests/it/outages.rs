//! Failing accounts and changing catalogs under load: the effect on callers. The printed figures are listed in
//! docs/performance.md.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use serde_json::json;
use tollgate_testkit::{ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::{
    load,
    support::{self, PROGRAM, channel, group, prices},
};

/// Two channels of one account each for `chat-model`, in one tier.
fn two(first: &str, second: &str, lines: &str) -> TestGateway {
    let catalog = channel("first", "openai", first, "chat-model", lines)
        + &channel("second", "openai", second, "chat-model", lines)
        + &prices(&["chat-model"])
        + &group(&["first", "second"]);
    TestGateway::builder(PROGRAM).catalog(&catalog).spawn()
}

fn at(address: SocketAddr) -> String {
    format!("http://{address}/v1")
}

/// A loopback address without a listener.
fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A listener that never accepts and whose backlog is full, so that connecting hangs.
struct BlackHole {
    listener: socket2::Socket,
    _waiting: Vec<TcpStream>,
}

impl BlackHole {
    fn open() -> Self {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            waiting.push(stream);
            assert!(waiting.len() < 1_000, "the queue does not fill");
        }
        Self { listener, _waiting: waiting }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap().as_socket().unwrap()
    }
}

/// Number of attempts of each recorded request.
fn attempts(gateway: &TestGateway) -> Vec<usize> {
    gateway.records().iter().map(|record| record["attempts"].as_array().map_or(0, Vec::len)).collect()
}

#[test]
fn refused_connections_fail_none_of_ten_thousand_requests() {
    let upstream = Upstream::start();
    let well = two(&upstream.openai_url(), &upstream.openai_url(), "");
    let usual = load::send(&well, "chat-model", 2_000, 16);
    assert_eq!(usual.failed(), 0, "{:?}", usual.statuses);
    drop(well);

    let gateway = two(&at(closed()), &upstream.openai_url(), "");
    let load = load::send(&gateway, "chat-model", 10_000, 16);
    let (p99, usual) = (load.within(990), usual.within(990));
    println!("refused connections: 10,000 requests, {} errors, p99 {p99:?} (both accounts well: {usual:?})", load.failed());
    assert_eq!(load.failed(), 0, "{:?}", load.statuses);
    let twice = attempts(&gateway).into_iter().filter(|it| *it > 1).count();
    println!("refused connections: {twice} requests went to the failed account first");
    assert!((1..500).contains(&twice), "{twice} requests went to the failed account first: it does not cool down");
}

#[test]
fn unreachable_account_causes_no_error_before_or_during_cooldown() {
    let (upstream, hole) = (Upstream::start(), BlackHole::open());
    let gateway = two(&at(hole.address()), &upstream.openai_url(), "connect_timeout_ms = 1500");
    let load = load::send(&gateway, "chat-model", 4_000, 16);
    println!("black hole: 4,000 requests, {} errors, p99 {:?}, longest {:?}", load.failed(), load.within(990), load.within(1_000));
    assert_eq!(load.failed(), 0, "{:?}", load.statuses);
    let attempts = attempts(&gateway);
    let twice = attempts.iter().filter(|it| **it > 1).count();
    assert!((1..400).contains(&twice), "{twice} requests went to the unresponsive account first: it does not cool down");
    assert!(attempts.iter().all(|it| *it <= 2), "no request waits for it twice");
}

#[test]
fn silent_upstream_fails_over_after_the_first_byte_timeout() {
    let (silent, upstream) = (Upstream::start(), Upstream::start());
    silent.set_default(ScriptedResponse::chat("never").delay(Duration::from_mins(1)));
    let gateway = two(&silent.openai_url(), &upstream.openai_url(), "first_byte_timeout_ms = 1500");
    let load = load::send(&gateway, "chat-model", 400, 8);
    println!("silent upstream: 400 requests, {} errors, longest {:?}", load.failed(), load.within(1_000));
    assert_eq!(load.failed(), 0, "{:?}", load.statuses);
    let sent = silent.received().len();
    println!("silent upstream: {sent} requests were sent into the silence");
    assert!((1..60).contains(&sent), "{sent} requests were sent into the silence");
}

#[test]
fn retries_in_a_total_outage_stay_within_the_retry_budget() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::error(500, &json!({"error": {"message": "boom"}})));
    for lines in ["cooling = false", ""] {
        let before = upstream.received().len();
        let gateway = two(&upstream.openai_url(), &upstream.openai_url(), lines);
        let begin = Instant::now();
        let load = load::send(&gateway, "chat-model", 1_000, 8);
        let windows = usize::try_from(begin.elapsed().as_secs() / 10).unwrap() + 1;
        let attempts = upstream.received().len() - before;
        println!("total outage ({lines:?}): 1,000 requests, {attempts} attempts");
        assert_eq!(load.failed(), 1_000);
        // The retry budget: a fifth of the requests, and ten per 10 s.
        assert!(attempts <= 1_200 + 10 * windows, "{attempts} attempts in {windows} windows");
        assert!(self::attempts(&gateway).into_iter().all(|it| it <= 3));
    }
}

#[test]
fn no_retry_after_the_first_byte_sent() {
    let (breaking, spare) = (Upstream::start(), Upstream::start());
    breaking.set_default(ScriptedResponse::chat_stream(&["hello", "world"]).cut_after(2));
    let catalog = channel("first", "openai", &breaking.openai_url(), "chat-model", "cooling = false")
        + &channel("second", "openai", &spare.openai_url(), "chat-model", "priority = 1")
        + &prices(&["chat-model"])
        + &group(&["first", "second"]);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let answer = gateway.chat(&support::chat_stream("chat-model"));
    assert_eq!((answer.status, answer.complete, answer.header("x-tollgate-attempts")), (200, false, Some("1")));
    assert!(spare.received().is_empty());
}

#[test]
fn fifty_catalog_changes_under_load_drop_no_request() {
    let upstream = Upstream::start();
    let version = |n: usize| {
        channel("chat", "openai", &upstream.openai_url(), "chat-model", "").replace("upstream-model", &format!("version-{n}"))
            + &prices(&["chat-model"])
            + &group(&["chat"])
    };
    let gateway = TestGateway::builder(PROGRAM).catalog(&version(0)).spawn();
    let serves = |n: usize| upstream.received().last().is_some_and(|received| received.json()["model"] == format!("version-{n}"));
    let mut slowest = Duration::ZERO;
    let load = load::during(&gateway, "chat-model", 4, || {
        for n in 1..=50 {
            gateway.serve_catalog(&version(n));
            let took = wait_for(&format!("change {n} takes effect"), Duration::from_secs(2), || serves(n));
            slowest = slowest.max(took);
        }
        gateway.serve_catalog("[[channel]]\nname = \"chat\"\nprovider = \"unknown\"\n");
        std::thread::sleep(Duration::from_millis(300));
    });
    let requests: usize = load.statuses.values().sum();
    println!("50 changes under load: {requests} requests, {} errors, effective within {slowest:?}", load.failed());
    assert_eq!(load.failed(), 0, "{:?}", load.statuses);
    assert!(gateway.log().contains("catalog file refused"), "{}", gateway.log());
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    assert!(serves(50), "the last good file serves");
}

#[test]
fn emptied_catalog_file_is_ignored() {
    let upstream = Upstream::start();
    let catalog =
        channel("chat", "openai", &upstream.openai_url(), "chat-model", "") + &prices(&["chat-model"]) + &group(&["chat"]);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let keys = || String::from_utf8(gateway.run(&["key", "list", "--json"]).stdout).unwrap();
    let ids = || serde_json::from_str::<serde_json::Value>(&keys()).unwrap().pointer("/items/0/id").cloned();
    let before = ids();
    assert!(before.is_some(), "{}", keys());
    gateway.serve_catalog(" \n");
    wait_for("the file is refused", Duration::from_secs(30), || gateway.log().contains("leave a comment in it"));
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    assert_eq!(ids(), before);
}

/// 100 channels of ten accounts, each serving a hundred models of its own: 10,000 models, 1,000 accounts.
#[expect(clippy::format_push_string, reason = "a text made once for a test")]
fn large(upstream: &Upstream, version: usize) -> String {
    let mut text = String::new();
    let mut names = Vec::new();
    for number in 0..100 {
        let name = format!("channel-{number:02}");
        text += &format!(
            "[[channel]]\nname = \"{name}\"\nprovider = \"compatible\"\nprotocol = \"openai\"\nbase_url = \"{}\"\nprivate_network = true\n",
            upstream.openai_url()
        );
        for account in 0..10 {
            text += &format!("[[channel.account]]\nname = \"{name}-{account}\"\ncredential = \"{{credential}}\"\n");
        }
        for model in 0..100 {
            let version = if (number, model) == (0, 0) { format!("version-{version}") } else { "upstream-model".to_owned() };
            text += &format!(
                "[[channel.serves]]\nmodel = \"model-{number:02}-{model:02}\"\nupstream = \"{version}\"\ncost = {{ input = \"1\", output = \"2\" }}\n"
            );
        }
        names.push(name);
    }
    for number in 0..10_000 {
        let (channel, model) = (number / 100, number % 100);
        text += &format!("[[model]]\nname = \"model-{channel:02}-{model:02}\"\nprice = {{ input = \"10\", output = \"20\" }}\n");
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    text + &group(&names)
}

#[test]
fn large_catalog_changes_without_a_stall() {
    let upstream = Upstream::start();
    let begin = Instant::now();
    let gateway = TestGateway::builder(PROGRAM).catalog(&large(&upstream, 0)).spawn();
    println!("10,000 models x 1,000 accounts: first start with the file {:?}", begin.elapsed());
    let quiet = load::send(&gateway, "model-00-00", 1_000, 4);
    let mut effective = Duration::ZERO;
    let busy = load::during(&gateway, "model-00-00", 4, || {
        gateway.serve_catalog(&large(&upstream, 1));
        let changed = || upstream.received().last().is_some_and(|received| received.json()["model"] == "version-1");
        effective = wait_for("the change takes effect", Duration::from_secs(10), changed);
    });
    println!(
        "10,000 models x 1,000 accounts: change effective after {effective:?}; p99 {:?} and longest {:?} meanwhile, {:?} and {:?} before",
        busy.within(990),
        busy.within(1_000),
        quiet.within(990),
        quiet.within(1_000),
    );
    assert_eq!((quiet.failed(), busy.failed()), (0, 0), "{:?} {:?}", quiet.statuses, busy.statuses);
    let folder = gateway.kill();
    let begin = Instant::now();
    let again = TestGateway::builder(PROGRAM).data_folder(folder).spawn();
    println!("10,000 models x 1,000 accounts: start from the database {:?}", begin.elapsed());
    assert_eq!(again.chat(&support::chat("model-99-99")).status, 200);
}
