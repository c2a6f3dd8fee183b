//! Revoked keys: their running streams end, and a node that has lost the database alone refuses them too, as it does disabled keys
//! and keys of suspended members.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tollgate_testkit::{Request, ScriptedResponse, TestGateway, Upstream, wait_for};

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
    std::thread::sleep(Duration::from_secs(1));
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
    for secret in [&secret, &kept] {
        wait_for("the new key", Duration::from_secs(2), || cut_off.send(&chat(secret)).status == 200);
    }
    proxy.cut();
    assert!(first.run(&["key", "revoke", "soon-gone"]).status.success());
    let took = wait_for("the revocation", Duration::from_secs(3), || cut_off.send(&chat(&secret)).status == 401);
    println!("a node without the database refused a revoked key after {took:.1?}");
    assert_eq!(cut_off.send(&chat(&kept)).status, 200, "others are served from what it knows");
    let degraded = cut_off.send(&Request::get("/readyz")).text();
    assert!(degraded.contains("degraded"), "{degraded}");
}

/// Reads a stalled stream to its end while its key is revoked.
fn stream_of_a_revoked_key(gateway: &TestGateway, upstream: &Upstream, name: &str) -> tollgate_testkit::ClientResponse {
    let secret = create_key(gateway, name);
    upstream.set_default(ScriptedResponse::chat_stream(&["one"]).stall_after(2));
    let stream = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(&secret);
    let mut open = gateway.start_request(&stream);
    let mut answer = open.read_head().unwrap();
    assert_eq!(answer.status, 200);
    answer.body = open.read_chunk(&answer).unwrap().unwrap();
    assert!(gateway.run(&["key", "revoke", name]).status.success());
    open.read_rest(&mut answer);
    answer
}

#[test]
fn running_stream_of_a_revoked_key_ends_with_an_error_event() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let begin = std::time::Instant::now();
    let answer = stream_of_a_revoked_key(&gateway, &upstream, "soon-gone");
    let took = begin.elapsed();
    assert!(answer.text().contains("api_key_disabled") && !answer.complete, "{}", answer.text());
    println!("a stream of a revoked key ended {took:.1?} after it was opened");
    assert!(took < Duration::from_secs(20), "{took:.1?}");
    let record = gateway.record_of(&answer);
    assert_eq!((&record["outcome"], &record["reason"]), (&"gateway_stopped".into(), &"E4".into()), "{record}");
    assert!(support::nano_usd(&record["sale"]) > 0, "what was delivered is paid for: {record}");
}
