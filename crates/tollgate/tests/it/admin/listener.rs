//! The console on an address of its own.

use std::net::SocketAddr;

use tollgate_testkit::{Answer, Gate, Request};

use super::{make_key, refusal, refused_whole};
use crate::support;

fn send(to: SocketAddr, request: &Request) -> Answer {
    request.send(to).and_then(tollgate_testkit::Open::answer).unwrap()
}

fn metrics() -> Request {
    Request::get("/metrics")
}

#[test]
fn an_address_of_its_own_takes_everything_from_the_model_address() {
    let gate = Gate::of(support::PROGRAM).env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0").spawn();
    let console: SocketAddr = gate.said()["console"].as_str().unwrap().parse().unwrap();
    let key = make_key(&gate, "root", "admin");
    let me = Request::get("/admin/v1/me").bearer(&key);
    assert_eq!(send(console, &me).status, 200);
    let answer = send(console, &me);
    assert!(answer.header("x-request-id").is_some_and(|id| id.starts_with("req_")), "{answer:?}");
    assert_eq!(refusal(&send(console, &Request::get("/admin/v1/me"))), refused_whole(401, "missing_api_key"));
    assert_eq!(refusal(&gate.send(&me)), refused_whole(404, "unknown_url"), "the model address knows nothing of it");
    assert_eq!(gate.send(&metrics()).status, 404);
    assert_eq!(send(console, &metrics()).status, 200);
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(gate.key());
    assert_eq!(refusal(&send(console, &chat)), refused_whole(404, "unknown_url"), "no models here");
    let made = Request::post("/admin/v1/keys", &serde_json::json!({"name": "k"})).bearer(&key);
    assert_eq!(send(console, &made).status, 201);
    let no_host = Request::get("/admin/v1/me").header("host", "a").bearer(&key);
    assert_eq!(send(console, &no_host).status, 400, "two hosts are not to be guessed about");
}

#[test]
fn a_busy_address_is_told_at_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let out = Gate::of(support::PROGRAM).env("TOLLGATE_CONSOLE__LISTEN", &taken.local_addr().unwrap().to_string()).fail();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && said.contains("console.listen"), "{said}");
}

#[test]
fn away_from_loopback_nothing_is_open_before_there_is_an_admin_key() {
    let gate = Gate::of(support::PROGRAM).listen("0.0.0.0:0").spawn();
    let near = SocketAddr::from(([127, 0, 0, 1], gate.address().port()));
    let me = Request::get("/admin/v1/me");
    assert_eq!(refusal(&send(near, &me)), refused_whole(404, "unknown_url"));
    let key = make_key(&gate, "root", "operator");
    let begin = std::time::Instant::now();
    while send(near, &me).status == 404 {
        assert!(begin.elapsed() < std::time::Duration::from_secs(5), "it does not open");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(send(near, &me.bearer(&key)).status, 200);
}
