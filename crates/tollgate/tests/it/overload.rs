//! More requests than a core can begin: they wait for their turn, and keys share the core.

use tollgate_testkit::{ClientResponse, PendingResponse, Request, SERVICE_KEY, ScriptedResponse, TestGateway, Upstream};

use crate::support::{self, PROGRAM};

const FLOOD_KEY: &str = "tg-flood-key-0123456789abcdefghijklm";
/// Requests of the key that sends too many.
const FLOOD: usize = 400;

/// A gateway of one core, with the key `caller` and one of another member that sends too many requests.
fn gateway(upstream: &Upstream, in_flight: &str) -> TestGateway {
    let flood = format!(
        "[[member]]\nname = \"other\"\n\
         [[key]]\nname = \"flood\"\nmember = \"other\"\ngroups = [\"default\"]\nsecret = \"{FLOOD_KEY}\"\n"
    );
    let gateway = TestGateway::builder(PROGRAM)
        .catalog(&(support::catalog(upstream, "cooling = false") + &flood))
        .env("TOLLGATE_SERVER__CORES", "1")
        .env("TOLLGATE_LIMITS__IN_FLIGHT", in_flight)
        .without_record_check()
        .spawn();
    // Both keys are known to the gateway afterwards.
    for key in [SERVICE_KEY, FLOOD_KEY] {
        assert_eq!(gateway.send(&Request::get("/v1/models").bearer(key)).status, 200);
    }
    gateway
}

/// A request whose prompt is the name of its key.
fn ask(gateway: &TestGateway, key: &str) -> PendingResponse {
    let mut body = support::chat("chat-model");
    body["messages"][0]["content"] = key.into();
    gateway.start_request(&Request::post("/v1/chat/completions", &body).bearer(key))
}

/// Sends all requests of the flood and then one of another key while the gateway is stopped, so that the core finds all of them together.
/// Returns the answers to the flood and to the single request.
fn answers(gateway: &TestGateway) -> (Vec<ClientResponse>, ClientResponse) {
    gateway.signal("STOP");
    let flood: Vec<_> = (0..FLOOD).map(|_| ask(gateway, FLOOD_KEY)).collect();
    let single = ask(gateway, SERVICE_KEY);
    gateway.signal("CONT");
    let single = single.read().expect("an answer");
    (flood.into_iter().map(|pending| pending.read().expect("an answer")).collect(), single)
}

#[test]
fn single_request_of_a_key_is_not_queued_behind_all_of_another_key() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hi"));
    // Requests that wait for their turn do not count against this bound.
    let gateway = gateway(&upstream, "256");
    let (flood, single) = answers(&gateway);
    assert!(flood.iter().chain([&single]).all(|answer| answer.status == 200 && answer.complete));
    let received = upstream.received();
    assert_eq!(received.len(), FLOOD + 1);
    let place = received.iter().position(|request| request.json()["messages"][0]["content"] == SERVICE_KEY).unwrap();
    println!("the single request was begun after {place} of {FLOOD}");
    assert!(place < FLOOD / 2, "{place} requests were begun before it");
    assert!(gateway.send(&Request::get("/metrics")).text().contains("\ntollgate_waiting_requests 0\n"));
}

#[test]
fn key_above_its_share_of_the_requests_in_progress_is_refused_and_others_are_served() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hi").delay(std::time::Duration::from_secs(1)));
    let gateway = gateway(&upstream, "16");
    let (flood, single) = answers(&gateway);
    assert_eq!(single.status, 200, "{}", single.text());
    let served = flood.iter().filter(|answer| answer.status == 200).count();
    let refused: Vec<_> = flood.iter().filter(|answer| answer.status != 200).collect();
    assert!(served >= 12, "three quarters of all, and more as they end: {served}");
    assert!(refused.len() > FLOOD / 2, "{} were refused", refused.len());
    assert!(refused.iter().all(|answer| answer.status == 429 && answer.header("retry-after").is_some()), "{}", refused[0].text());
}
