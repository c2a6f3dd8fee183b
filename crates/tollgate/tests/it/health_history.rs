//! The history of health: when accounts and channels could not be used, why, and until when.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{Postgres, ScriptedResponse, TestGateway, TestGatewayBuilder, Upstream, wait_for};

use crate::{
    admin::{Admin, make_key, refusal, refused},
    nodes::MASTER_KEY,
    support,
};

/// A change is written within this time.
const WRITTEN: Duration = Duration::from_secs(10);

fn error(status: u16, message: &str) -> ScriptedResponse {
    ScriptedResponse::error(status, &json!({"error": {"message": message}}))
}

/// The command's output about a channel.
fn health(gateway: &TestGateway, arguments: &[&str]) -> Value {
    let mut command = vec!["channel", "health", "chat", "--json"];
    command.extend(arguments);
    let out = gateway.run(&command);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// The transitions of the account or of the channel, the oldest first.
fn transitions(gateway: &TestGateway, account: &Value) -> Vec<Value> {
    let shown = health(gateway, &["--since", "1h"]);
    let mut found: Vec<Value> = shown["transitions"].as_array().unwrap().clone();
    found.retain(|it| it["account"] == *account);
    found.reverse();
    found
}

fn words(transition: &Value) -> [&str; 3] {
    ["state", "reason", "cause"].map(|member| transition[member].as_str().unwrap())
}

/// Serves the catalog with a channel that is off, or with all channels on.
fn switch_off(gateway: &TestGateway, upstream: &Upstream, off: Option<&str>) {
    let catalog = support::catalog(upstream, "");
    let switched = off.map(|channel| {
        let name = format!("[[channel]]\nname = \"{channel}\"\n");
        assert!(catalog.contains(&name), "{catalog}");
        catalog.replace(&name, &format!("{name}status = \"off\"\n"))
    });
    gateway.serve_catalog(&switched.unwrap_or(catalog));
}

/// Two outages, on a gateway that is restarted in between: one shown by a refused request and a probe and ended by a test, and one
/// made by the operator.
fn check_history(builder: &dyn Fn() -> TestGatewayBuilder, upstream: &Upstream) {
    upstream.set_default(error(401, "who are you"));
    let mut gateway = builder().spawn();
    let account = json!("chat-account");
    assert!(transitions(&gateway, &account).is_empty());
    assert_ne!(gateway.chat(&support::chat("chat-model")).status, 200);
    wait_for("the account's transition", WRITTEN, || !transitions(&gateway, &account).is_empty());
    let open = transitions(&gateway, &account).remove(0);
    // The request itself could be at fault, so a probe confirmed the refusal.
    assert_eq!(words(&open), ["resting", "refused", "probe"], "{open}");
    assert!(open["since"].is_string() && open["until"].is_null() && open["ended_at"].is_null(), "{open}");
    let of_channel = transitions(&gateway, &Value::Null);
    assert_eq!(words(&of_channel[0]), ["unavailable", "accounts", "probe"], "{of_channel:?}");

    assert_eq!(gateway.stop(), Some(0));
    let gateway = builder().data_folder(gateway.into_data()).spawn();
    assert_eq!(transitions(&gateway, &account), std::slice::from_ref(&open), "a restart neither ends nor repeats it");
    upstream.set_default(ScriptedResponse::chat("well again"));
    assert!(gateway.run(&["channel", "test", "chat"]).status.success());
    wait_for("the end", WRITTEN, || transitions(&gateway, &account)[0]["ended_at"].is_string());
    let ended = transitions(&gateway, &account).remove(0);
    assert_eq!((&ended["since"], &ended["node"], words(&ended)), (&open["since"], &open["node"], words(&open)));
    assert!(transitions(&gateway, &Value::Null)[0]["ended_at"].is_string());

    switch_off(&gateway, upstream, Some("native"));
    let off = || {
        let out = gateway.run(&["channel", "health", "native", "--json"]);
        serde_json::from_slice::<Value>(&out.stdout).unwrap()["transitions"].as_array().unwrap().clone()
    };
    wait_for("the operator's transitions", WRITTEN, || off().len() == 2);
    for transition in off() {
        assert_eq!(words(&transition), ["off", "switched_off", "operator"]);
    }
    let uptime = &health(&gateway, &["--account", "chat-account"])["uptime"];
    let cells = uptime[0]["cells"].as_array().unwrap();
    assert_eq!((uptime.as_array().unwrap().len(), cells.len(), &uptime[0]["account"]), (1, 48, &account));
    let last = cells.last().unwrap();
    assert!(last["usable"].as_f64().unwrap() < 1.0 && last["state"] == "resting", "{last}");
    assert_eq!(
        (&cells[0]["usable"], &cells[0]["state"]),
        (&Value::Null, &Value::Null),
        "a day ago there was no channel: {}",
        cells[0]
    );
    let table = String::from_utf8(gateway.run(&["channel", "health", "chat"]).stdout).unwrap();
    assert!(table.contains("resting") && table.contains("chat-account") && table.contains("[....."), "{table}");
}

#[test]
fn outages_are_recorded_with_reason_cause_and_end() {
    let upstream = Upstream::start();
    check_history(&|| support::builder(&upstream, ""), &upstream);
}

#[test]
fn outages_are_recorded_in_postgres_as_well() {
    let Some(postgres) = Postgres::start("outages_are_recorded_in_postgres_as_well") else { return };
    let upstream = Upstream::start();
    let builder = || support::builder(&upstream, "").env("DATABASE_URL", &postgres.url()).env("TOLLGATE_MASTER_KEY", MASTER_KEY);
    check_history(&builder, &upstream);
}

#[test]
fn outage_detected_by_a_request_has_the_cause_request() {
    let upstream = Upstream::start();
    upstream.set_default(error(429, "slow down").header("retry-after", "600"));
    let gateway = support::builder(&upstream, "").spawn();
    assert_ne!(gateway.chat(&support::chat("chat-model")).status, 200);
    let account = json!("chat-account");
    wait_for("the account's transition", WRITTEN, || !transitions(&gateway, &account).is_empty());
    let open = transitions(&gateway, &account).remove(0);
    assert_eq!(words(&open), ["cooling", "rate_limited", "request"], "{open}");
    assert!(open["until"].is_string() && open["ended_at"].is_null(), "{open}");
}

#[test]
fn probe_transitions_name_their_cause_and_leave_no_usage_records() {
    let upstream = Upstream::start();
    upstream.set_default(error(401, "who are you"));
    let gateway = support::builder(&upstream, "probe_interval_s = 10").spawn();
    let account = json!("chat-account");
    wait_for("a probe's transition", Duration::from_secs(40), || !transitions(&gateway, &account).is_empty());
    assert_eq!(words(&transitions(&gateway, &account)[0]), ["resting", "refused", "probe"]);
    assert!(!gateway.run(&["channel", "test", "chat"]).status.success());
    upstream.set_default(ScriptedResponse::chat("well again"));
    assert!(gateway.run(&["channel", "end-cooling", "chat"]).status.success());
    wait_for("the end", WRITTEN, || transitions(&gateway, &account)[0]["ended_at"].is_string());
    assert!(gateway.records().is_empty(), "probes and tests leave no usage record");
    let figures = gateway.send(&tollgate_testkit::Request::get("/models.json")).json();
    assert!(figures["data"][0]["groups"][0]["day"]["availability"].is_null(), "{figures}");
}

#[test]
fn history_is_paged_and_filtered_over_the_admin_api() {
    let upstream = Upstream::start();
    let admin = Admin::of(support::builder(&upstream, "").spawn());
    let _ = make_key(&admin.gateway, "reader", "operator");
    for channel in ["chat", "native", "chat"] {
        switch_off(&admin.gateway, &upstream, Some(channel));
        wait_for("it is off", WRITTEN, || {
            let found = admin.get(&format!("/admin/v1/health/history?channel={channel}"));
            found["items"].as_array().unwrap().iter().any(|it| it["ended_at"].is_null())
        });
        if channel == "chat" {
            switch_off(&admin.gateway, &upstream, None);
            wait_for("it is on", WRITTEN, || {
                let found = admin.get(&format!("/admin/v1/health/history?channel={channel}"));
                found["items"].as_array().unwrap().iter().all(|it| it["ended_at"].is_string())
            });
        }
    }
    let whole = admin.get("/admin/v1/health/history");
    let whole = whole["items"].as_array().unwrap();
    assert_eq!(whole.len(), 6, "two of each time: {whole:?}");
    let (mut paged, mut after) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("/admin/v1/health/history?limit=2{after}"));
        paged.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(&paged, whole);
    let of_account = admin.get("/admin/v1/health/history?channel=chat&account=chat-account");
    assert_eq!(of_account["items"].as_array().unwrap().len(), 2);
    let none = admin.get("/admin/v1/health/history?until=2026-01-01T00:00:00Z");
    assert_eq!(none["items"], json!([]));
    let channels = admin.get("/admin/v1/health/uptime?cells=4");
    // Pages are in the order of ids, which rows of one file get in any order.
    let mut shown: Vec<_> = channels["items"].as_array().unwrap().iter().map(|it| it["channel"].as_str().unwrap()).collect();
    shown.sort_unstable();
    assert_eq!(shown, ["chat", "native"]);
    for (query, expected) in [
        ("history?account=chat-account", refused(400, "invalid_value", "account")),
        ("history?after=x", refused(400, "invalid_value", "after")),
        ("history?since=2026-11-02T00:00:00Z&until=2026-11-01T00:00:00Z", refused(400, "invalid_value", "since")),
        ("uptime?cells=0", refused(400, "invalid_value", "cells")),
        ("history?channel=none", (404, "not_found".to_owned(), None)),
    ] {
        assert_eq!(refusal(&admin.call("GET", &format!("/admin/v1/health/{query}"), None)), expected, "{query}");
    }
}
