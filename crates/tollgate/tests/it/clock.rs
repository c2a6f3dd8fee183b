//! Wall clocks that are wrong on one node, or jump while it serves.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testkit::{ReceivedRequest, Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::{nodes::Services, support};

/// The variable that names a file with the shift of the wall clock in seconds. Only builds with debug assertions read it.
const CLOCK: &str = "GATEWAY_TEST_CLOCK";
const HOUR_S: i64 = 3_600;
const MONTH_S: i64 = 30 * 86_400;

fn set(clock: &Path, seconds: i64) {
    let new = clock.with_extension("new");
    fs::write(&new, seconds.to_string()).unwrap();
    fs::rename(&new, clock).unwrap();
}

fn chat(gateway: &TestGateway) -> u16 {
    gateway.send(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key())).status
}

fn slow_down(retry_after: &str) -> ScriptedResponse {
    ScriptedResponse::error(429, &json!({"error": {"message": "slow"}})).header("retry-after", retry_after)
}

/// A metric of a gateway.
fn metric(gateway: &TestGateway, name: &str) -> f64 {
    let text = gateway.send(&Request::get("/metrics")).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

fn readiness(gateway: &TestGateway) -> Value {
    serde_json::from_slice(&gateway.send(&Request::get("/readyz")).body).unwrap()
}

#[test]
fn node_with_a_wrong_clock_excludes_no_account_on_other_nodes() {
    let Some(services) = Services::start("node_with_a_wrong_clock_excludes_no_account_on_other_nodes") else { return };
    let catalog = support::catalog(&services.upstream, "");
    let folder = TempDir::new().unwrap();
    let clock = folder.path().join("clock");
    set(&clock, HOUR_S);
    let right = services.builder("").catalog(&catalog).spawn();
    let webhook = Upstream::start();
    webhook.set_default(ScriptedResponse::status(204));
    let alerting = services
        .builder("")
        .env("TOLLGATE_ALERTS__WEBHOOK", &format!("http://{}/alert", webhook.address()))
        .env("TOLLGATE_ALERTS__SECRET", "a shared secret")
        .env("TOLLGATE_ALERTS__PRIVATE_NETWORK", "true");
    let wrong = alerting.catalog(&catalog).env(CLOCK, clock.to_str().unwrap()).spawn();
    let usable = |gateway: &TestGateway, within: u64| {
        wait_for("the account is usable again", Duration::from_secs(within), || chat(gateway) == 200)
    };
    assert_eq!((chat(&right), chat(&wrong)), (200, 200));

    // The node whose clock is an hour ahead gets `retry-after: 2`; all nodes wait that long, and no longer.
    services.upstream.set_default(slow_down("2"));
    let _ = chat(&wrong);
    services.upstream.set_default(ScriptedResponse::chat("hello"));
    let out = usable(&right, 3);
    println!("the other node used the account again after {out:.1?}");

    // A long rest that the wrong clock began ends everywhere with a passed test, or when an operator ends it.
    for end in [&["channel", "test", "chat"][..], &["channel", "end-cooling", "chat"]] {
        services.upstream.set_default(slow_down("3000"));
        let _ = chat(&wrong);
        wait_for("both nodes rest it", Duration::from_secs(2), || chat(&right) == 503 && chat(&wrong) == 503);
        services.upstream.set_default(ScriptedResponse::chat("hello"));
        let said = right.run(end);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let took = usable(&right, 3).max(usable(&wrong, 3));
        println!("{end:?}: usable on both nodes after {took:.1?}");
        // A state that another node still has is not restored.
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!((chat(&right), chat(&wrong)), (200, 200));
    }

    // A node that starts now loads no wrong state from the database or from Redis.
    services.upstream.set_default(slow_down("2"));
    let _ = chat(&wrong);
    services.upstream.set_default(ScriptedResponse::chat("hello"));
    let third = services.builder("").catalog(&catalog).spawn();
    usable(&third, 3);

    wait_for("the skew is measured", Duration::from_secs(3), || metric(&wrong, "tollgate_clock_skew_seconds").abs() > 3_500.0);
    assert!(metric(&right, "tollgate_clock_skew_seconds").abs() < 2.0);
    assert_eq!(readiness(&right), json!({"status": "ready"}));
    let shown = readiness(&wrong);
    assert_eq!(shown["status"], "ready");
    assert!((3_590..=3_610).contains(&shown["clock_skew_s"].as_i64().unwrap()), "{shown}");
    assert!(wrong.log().contains("clock"), "{}", wrong.log());
    let doctor = wrong.run(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!doctor.status.success() && text.contains("FAIL  clock"), "{text}");
    assert!(right.run(&["doctor"]).status.success());

    // The webhook gets one message that the clock is wrong, and one that it is right again.
    let events = || webhook.received().iter().map(ReceivedRequest::json).collect::<Vec<_>>();
    wait_for("the alert", Duration::from_secs(3), || !events().is_empty());
    set(&clock, 0);
    wait_for("the end of the alert", Duration::from_secs(5), || events().len() > 1);
    assert_eq!(readiness(&wrong), json!({"status": "ready"}));
    let [began, ended] = &events()[..] else { panic!("{:?}", events()) };
    assert_eq!((&began["event"], &began["state"]), (&json!("clock_skew"), &json!("raised")), "{began}");
    assert_eq!((&ended["event"], &ended["state"], &ended["id"]), (&json!("clock_skew"), &json!("ended"), &began["id"]), "{ended}");
    let skew_s: i64 = began["detail"]["skew_s"].as_str().unwrap().parse().unwrap();
    assert!((3_590..=3_610).contains(&skew_s), "{began}");
    assert!(webhook.received()[0].header("x-tollgate-signature").unwrap().starts_with("sha256="));
}

#[test]
fn rest_begun_while_the_clock_was_wrong_keeps_its_duration() {
    let upstream = Upstream::start();
    let folder = TempDir::new().unwrap();
    let clock = folder.path().join("clock");
    set(&clock, MONTH_S);
    let catalog = support::catalog(&upstream, "");
    let start =
        || TestGateway::builder(support::PROGRAM).catalog(&catalog).env(CLOCK, clock.to_str().unwrap()).without_record_check();
    let gateway = start().spawn();
    let back_in_time = |gateway: &TestGateway| {
        upstream.set_default(ScriptedResponse::chat("hello"));
        let took = wait_for("the account is usable again", Duration::from_secs(4), || chat(gateway) == 200);
        println!("usable {took:.1?} after the clock was put right");
    };
    upstream.set_default(slow_down("3"));
    assert_ne!(chat(&gateway), 200);
    set(&clock, 0);
    back_in_time(&gateway);

    // The same across a restart, with health that was saved by the wrong clock.
    set(&clock, MONTH_S);
    std::thread::sleep(Duration::from_millis(500));
    upstream.set_default(slow_down("3"));
    assert_ne!(chat(&gateway), 200);
    std::thread::sleep(Duration::from_millis(1_500));
    let data = gateway.kill();
    set(&clock, 0);
    back_in_time(&start().data_folder(data).spawn());
}
