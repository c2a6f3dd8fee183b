//! Revoked keys, disabled keys and keys of suspended members: their running streams end, and a node that has lost only the database
//! refuses them too.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate_testkit::{ClientResponse, Latch, PendingResponse, Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::{
    nodes::{MASTER_KEY, Services},
    support::{self, PROGRAM},
};

/// A TCP proxy in front of a service, whose connections can be cut for one node.
struct TcpProxy {
    port: u16,
    is_cut: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl TcpProxy {
    fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), is_cut: Arc::default(), streams: Arc::default() };
        let (target, is_cut, streams) = (target.to_owned(), Arc::clone(&proxy.is_cut), Arc::clone(&proxy.streams));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(&target) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                streams.lock().unwrap().extend([near, far]);
            }
        });
        proxy
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn chat(secret: &str) -> Request {
    Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(secret)
}

fn create_key(gateway: &TestGateway, name: &str) -> String {
    create_key_of(gateway, name, "owner")
}

fn create_key_of(gateway: &TestGateway, name: &str, member: &str) -> String {
    let output = gateway.run(&["key", "create", name, "--member", member, "--group", "default", "--json"]);
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    made["key"].as_str().unwrap().to_owned()
}

/// Runs a command that succeeds.
fn done(gateway: &TestGateway, arguments: &[&str]) {
    let output = gateway.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two nodes of the same services, the second of which reaches the database through a proxy.
fn two_nodes(services: &Services) -> (TestGateway, TestGateway, TcpProxy) {
    let url = services.postgres.url();
    let address = url.split_once('@').unwrap().1.split('/').next().unwrap();
    let proxy = TcpProxy::to(address);
    let first = services.builder("").spawn();
    let cut_off = TestGateway::builder(PROGRAM)
        .catalog(&support::catalog(&services.upstream, "cooling = false"))
        .env("DATABASE_URL", &url.replace(address, &format!("127.0.0.1:{}", proxy.port)))
        .env("REDIS_URL", &services.redis.url())
        .env("TOLLGATE_MASTER_KEY", MASTER_KEY)
        .without_record_check()
        .spawn();
    (first, cut_off, proxy)
}

#[test]
fn node_without_database_refuses_what_another_node_disabled_until_it_is_enabled_again() {
    let name = "node_without_database_refuses_what_another_node_disabled_until_it_is_enabled_again";
    let Some(services) = Services::start(name) else { return };
    let (first, cut_off, proxy) = two_nodes(&services);
    done(&first, &["member", "add", "ben", "groups=default"]);
    let (paused, kept, of_ben) = (create_key(&first, "paused"), create_key(&first, "kept"), create_key_of(&first, "of-ben", "ben"));
    let status = |secret: &str| cut_off.send(&chat(secret)).status;
    for secret in [&paused, &kept, &of_ben] {
        wait_for("the new key", Duration::from_secs(2), || status(secret) == 200);
    }
    // A change that reaches the node makes it read a key again: it has received all of them before it loses the database.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!([&paused, &kept, &of_ben].map(|secret| status(secret)), [200; 3]);
    proxy.cut();
    done(&first, &["key", "set", "paused", "status=disabled"]);
    done(&first, &["member", "set", "ben", "status=suspended"]);
    let took = wait_for("the disabled key", Duration::from_secs(3), || status(&paused) == 401);
    println!("a node without the database refused a disabled key after {took:.1?}");
    wait_for("the suspended member", Duration::from_secs(3), || status(&of_ben) == 403);
    assert_eq!(status(&kept), 200, "others are served from what it knows");
    done(&first, &["key", "set", "paused", "status=active"]);
    done(&first, &["member", "set", "ben", "status=active"]);
    for secret in [&paused, &of_ben] {
        wait_for("what is enabled again", Duration::from_secs(3), || status(secret) == 200);
    }
}

#[test]
fn node_without_database_refuses_a_key_that_another_node_revoked() {
    let Some(services) = Services::start("node_without_database_refuses_a_key_that_another_node_revoked") else { return };
    let (first, cut_off, proxy) = two_nodes(&services);
    let (secret, kept) = (create_key(&first, "soon-gone"), create_key(&first, "kept"));
    let status = |secret: &str| cut_off.send(&chat(secret)).status;
    for secret in [&secret, &kept] {
        wait_for("the new key", Duration::from_secs(2), || status(secret) == 200);
    }
    // A change that reaches the node makes it read a key again: it has received all of them before it loses the database.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!([&secret, &kept].map(|secret| status(secret)), [200; 2]);
    proxy.cut();
    assert!(first.run(&["key", "revoke", "soon-gone"]).status.success());
    let took = wait_for("the revocation", Duration::from_secs(3), || status(&secret) == 401);
    println!("a node without the database refused a revoked key after {took:.1?}");
    assert_eq!(status(&kept), 200, "others are served from what it knows");
    let degraded = cut_off.send(&Request::get("/readyz")).text();
    assert!(degraded.contains("degraded"), "{degraded}");
}

/// A stream of a key that waits for the rest of its answer.
struct OpenStream {
    connection: PendingResponse,
    answer: ClientResponse,
}

impl OpenStream {
    /// Opens a stream and reads its first chunk.
    fn start(gateway: &TestGateway, secret: &str) -> Self {
        let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(secret);
        let mut connection = gateway.start_request(&request);
        let mut answer = connection.read_head().unwrap();
        assert_eq!(answer.status, 200);
        answer.body = connection.read_chunk(&answer).unwrap().unwrap();
        Self { connection, answer }
    }

    /// Reads the rest.
    fn end(mut self) -> ClientResponse {
        self.connection.read_rest(&mut self.answer);
        self.answer
    }
}

/// Commands that take access away from the key `KEY` of the member `ben`, the error that ends its streams, and its code.
const LOSSES: [(&[&str], &str, &str); 3] = [
    (&["key", "revoke", "KEY"], "E4", "api_key_disabled"),
    (&["key", "set", "KEY", "status=disabled"], "E4", "api_key_disabled"),
    (&["member", "set", "ben", "status=suspended"], "E6", "account_suspended"),
];

/// The command for this key.
fn for_key<'a>(command: &[&'a str], key: &'a str) -> Vec<&'a str> {
    command.iter().map(|word| if *word == "KEY" { key } else { word }).collect()
}

/// An answer whose rest waits for the latch.
fn answer_after(latch: &Latch) -> ScriptedResponse {
    ScriptedResponse::chat_stream(&["one", "two"]).wait_after(2, latch)
}

#[test]
fn running_streams_end_with_an_error_event_when_access_is_lost() {
    let upstream = Upstream::start();
    let latch = Latch::default();
    upstream.set_default(answer_after(&latch));
    let gateway = support::gateway_for(&upstream);
    done(&gateway, &["member", "add", "ben", "groups=default"]);
    let kept = OpenStream::start(&gateway, &create_key(&gateway, "kept"));
    for (number, (command, error, code)) in LOSSES.into_iter().enumerate() {
        let name = format!("soon-gone-{number}");
        let stream = OpenStream::start(&gateway, &create_key_of(&gateway, &name, "ben"));
        let begin = Instant::now();
        done(&gateway, &for_key(command, &name));
        let answer = stream.end();
        let took = begin.elapsed();
        println!("{command:?}: the stream ended within {took:.1?}");
        assert!(answer.text().contains(code) && !answer.complete, "{command:?}: {}", answer.text());
        assert!(took < Duration::from_secs(20), "{took:.1?}");
        let record = gateway.record_of(&answer);
        assert_eq!((&record["outcome"], &record["reason"]), (&"gateway_stopped".into(), &error.into()), "{record}");
        assert!(support::nano_usd(&record["sale"]) > 0, "what was delivered is paid for: {record}");
    }
    latch.open();
    let kept = kept.end();
    assert!(kept.complete && kept.text().contains("two"), "streams of others continue: {}", kept.text());
}

#[test]
fn streams_of_a_reenabled_key_continue() {
    let upstream = Upstream::start();
    let latch = Latch::default();
    upstream.set_default(answer_after(&latch));
    let gateway = support::gateway_for(&upstream);
    let secret = create_key(&gateway, "paused");
    done(&gateway, &["key", "set", "paused", "status=disabled"]);
    wait_for("the disabled key", Duration::from_secs(3), || gateway.send(&chat(&secret)).status == 401);
    done(&gateway, &["key", "set", "paused", "status=active"]);
    let models = Request::get("/v1/models").bearer(&secret);
    wait_for("the enabled key", Duration::from_secs(3), || gateway.send(&models).status == 200);
    let stream = OpenStream::start(&gateway, &secret);
    // Ends the streams of another key, which makes every stream check whether it has to end.
    let other = create_key(&gateway, "other");
    let ended = OpenStream::start(&gateway, &other);
    done(&gateway, &["key", "set", "other", "status=disabled"]);
    assert!(!ended.end().complete);
    latch.open();
    assert!(stream.end().complete);
}

#[test]
fn running_streams_finish_if_revoked_streams_is_set_to_finish() {
    let upstream = Upstream::start();
    let latch = Latch::default();
    upstream.set_default(answer_after(&latch));
    let gateway = support::builder(&upstream, "cooling = false").env("TOLLGATE_LIMITS__REVOKED_STREAMS", "finish").spawn();
    done(&gateway, &["member", "add", "ben", "groups=default"]);
    let names: Vec<String> = (0..LOSSES.len()).map(|number| format!("soon-gone-{number}")).collect();
    let secrets: Vec<String> = names.iter().map(|name| create_key_of(&gateway, name, "ben")).collect();
    let streams: Vec<OpenStream> = secrets.iter().map(|secret| OpenStream::start(&gateway, secret)).collect();
    for ((command, ..), name) in LOSSES.into_iter().zip(&names) {
        done(&gateway, &for_key(command, name));
    }
    let models = |secret: &String| gateway.send(&Request::get("/v1/models").bearer(secret)).status;
    for secret in &secrets {
        wait_for("that new requests are refused", Duration::from_secs(3), || matches!(models(secret), 401 | 403));
    }
    // The change woke the streams. The rest of their answers is sent only now.
    latch.open();
    for stream in streams {
        let answer = stream.end();
        assert!(answer.complete && answer.text().contains("two"), "{}", answer.text());
        assert_eq!(gateway.record_of(&answer)["outcome"], "completed");
    }
}

#[test]
fn running_streams_end_on_every_node_including_one_without_a_database() {
    let Some(services) = Services::start("running_streams_end_on_every_node_including_one_without_a_database") else { return };
    let latch = Latch::default();
    services.upstream.set_default(answer_after(&latch));
    let (first, cut_off, proxy) = two_nodes(&services);
    let third = services.builder("").spawn();
    done(&first, &["member", "add", "ben", "groups=default"]);
    let names: Vec<String> = (0..LOSSES.len()).map(|number| format!("soon-gone-{number}")).collect();
    let secrets: Vec<String> = names.iter().map(|name| create_key_of(&first, name, "ben")).collect();
    let kept = create_key(&first, "kept");
    let models = |gateway: &TestGateway, secret: &String| gateway.send(&Request::get("/v1/models").bearer(secret)).status;
    for gateway in [&third, &cut_off] {
        for secret in secrets.iter().chain([&kept]) {
            wait_for("the new key", Duration::from_secs(2), || models(gateway, secret) == 200);
        }
    }
    // A change that reaches the node makes it read a key again: it has received all of them before it loses the database.
    thread::sleep(Duration::from_secs(4));
    let open = |gateway: &TestGateway, secret: &String| (OpenStream::start(gateway, secret), gateway.address());
    let streams: Vec<_> = secrets.iter().map(|secret| [open(&third, secret), open(&cut_off, secret)]).collect();
    let others = [open(&third, &kept), open(&cut_off, &kept)];
    proxy.cut();
    for (((command, _, code), name), streams) in LOSSES.into_iter().zip(&names).zip(streams) {
        let begin = Instant::now();
        done(&first, &for_key(command, name));
        for (stream, node) in streams {
            let answer = stream.end();
            println!("{command:?} at another node: the stream at {node} ended within {:.1?}", begin.elapsed());
            assert!(answer.text().contains(code) && !answer.complete, "{command:?}, {node}: {}", answer.text());
        }
    }
    latch.open();
    for (stream, node) in others {
        assert!(stream.end().complete, "streams of others continue at {node}");
    }
}
