//! Several channels at once: changed, removed and shown as a file, all or none.

use serde_json::{Value, json};
use tollgate_testkit::UPSTREAM_CREDENTIAL;

use super::{Admin, ok, refusal, refused, text};
use crate::support;

const CHANNELS: &str = "/admin/v1/channels";

fn make(admin: &Admin, name: &str) -> Value {
    let channel = json!({
        "name": name, "provider": "compatible", "base_url": "https://api.example.com/v1", "headers": {"x-one": "header-canary"},
        "accounts": [{"name": "one", "credential": UPSTREAM_CREDENTIAL, "rpm": 5}, {"name": "two", "credential": UPSTREAM_CREDENTIAL}],
    });
    admin.post(CHANNELS, &channel)
}

/// A field of each of these channels.
fn field(admin: &Admin, name: &str, channels: &[&str]) -> Vec<Value> {
    channels.iter().map(|channel| admin.get(&format!("{CHANNELS}/{channel}"))[name].clone()).collect()
}

#[test]
fn channels_are_changed_together_or_not_at_all() {
    let admin = Admin::echo();
    let (a, _) = (make(&admin, "a"), make(&admin, "b"));
    let change =
        json!({"channels": [a["id"], "b", "a"], "weight": 7, "status": "off", "account": {"rpm": 60, "cost_multiplier": "0.8"}});
    let before = admin.get("/admin/v1/catalog")["revision"].as_u64().unwrap();
    let changed = ok(&admin.as_operator("PATCH", CHANNELS, Some(&change)));
    assert_eq!(changed["items"].as_array().unwrap().len(), 2, "each once: {changed}");
    assert_eq!(admin.get("/admin/v1/catalog")["revision"], before + 1, "one change of the catalog");
    assert_eq!(field(&admin, "weight", &["a", "b"]), [json!(7), json!(7)]);
    assert_eq!(field(&admin, "headers", &["a"]), [json!({"x-one": "***"})], "fields that were not sent are unchanged");
    for account in ["a/accounts/one", "a/accounts/two", "b/accounts/one"] {
        let account = admin.get(&format!("{CHANNELS}/{account}"));
        assert_eq!((&account["rpm"], &account["cost_multiplier"]), (&json!(60), &json!("0.8")));
    }
    let events = admin.get("/admin/v1/audit?limit=20");
    let of_change: Vec<&Value> = events["items"].as_array().unwrap().iter().filter(|it| it["revision"] == before + 1).collect();
    assert_eq!(of_change.len(), 6, "each row has its entry: {events}");

    // A fault of one channel leaves all unchanged, and is reported for that channel.
    let missing = admin.call("PATCH", CHANNELS, Some(&json!({"channels": ["a", "gone-canary"], "weight": 9})));
    assert_eq!(refusal(&missing), refused(400, "rows_refused", "channels"));
    let error = ok_json(&missing)["error"].clone();
    assert_eq!((&error["rows"][0]["name"], &error["rows"][0]["code"]), (&json!("channels[1]"), &json!("not_found")));
    assert!(!text(&missing).contains("gone-canary"), "what was sent may be a secret");
    assert_eq!(field(&admin, "weight", &["a", "b"]), [json!(7), json!(7)]);
    // A fault of every channel is reported for the field.
    let wrong = admin.call("PATCH", CHANNELS, Some(&json!({"channels": ["a", "b"], "weight": 0})));
    assert_eq!(refusal(&wrong), refused(400, "invalid_value", "weight"));
    let proxy = json!({"channels": ["a", "b"], "proxy": "http://proxy.example.com:3128"});
    assert_eq!(admin.as_operator("PATCH", CHANNELS, Some(&proxy)).status, 403);
    ok(&admin.call("PATCH", CHANNELS, Some(&proxy)));
    for (body, code, param) in [
        (json!({"channels": [], "weight": 1}), "invalid_value", "channels"),
        (json!({"channels": ["a"]}), "missing_required_parameter", "channels"),
        (json!({"weight": 1}), "missing_required_parameter", "channels"),
        (json!({"channels": ["a"], "name": "c"}), "unknown_parameter", "name"),
        (json!({"channels": ["a"], "account": {"rpms": 1}}), "unknown_parameter", "account.rpms"),
        (json!({"channels": vec!["a"; 101], "weight": 1}), "invalid_value", "channels"),
    ] {
        assert_eq!(refusal(&admin.call("PATCH", CHANNELS, Some(&body))), refused(400, code, param), "{body}");
    }
}

/// The body of an answer, whatever its status.
fn ok_json(answer: &tollgate_testkit::ClientResponse) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
fn channels_are_removed_together_or_not_at_all() {
    let admin = Admin::echo();
    for name in ["a", "b", "c"] {
        make(&admin, name);
    }
    let gone = admin.call("POST", "/admin/v1/channel-removals", Some(&json!({"channels": ["a", "x"]})));
    assert_eq!(refusal(&gone), refused(400, "rows_refused", "channels"));
    assert_eq!(admin.call("GET", "/admin/v1/channels/a", None).status, 200);
    ok(&admin.as_operator("POST", "/admin/v1/channel-removals", Some(&json!({"channels": ["a", "b"]}))));
    for (name, status) in [("a", 404), ("b", 404), ("c", 200)] {
        assert_eq!(admin.call("GET", &format!("{CHANNELS}/{name}"), None).status, status, "{name}");
    }
}

#[test]
fn channels_owned_by_the_served_file_are_refused_by_name() {
    let upstream = tollgate_testkit::Upstream::start();
    let admin = Admin::of(support::builder(&upstream, "").spawn());
    make(&admin, "own");
    let change = admin.call("PATCH", CHANNELS, Some(&json!({"channels": ["own", "chat"], "status": "off"})));
    let error = ok_json(&change)["error"].clone();
    assert_eq!(
        (change.status, &error["rows"][0]["name"], &error["rows"][0]["code"]),
        (400, &json!("chat"), &json!("owned_by_file"))
    );
    assert_eq!(field(&admin, "status", &["own", "chat"]), [json!("on"), json!("on")]);
}

#[test]
fn selected_channels_are_rendered_as_a_catalog_file() {
    let admin = Admin::echo();
    let (a, _) = (make(&admin, "a"), make(&admin, "b"));
    let file =
        admin.get(&format!("/admin/v1/catalog?channels={},b", a["id"].as_str().unwrap()))["file"].as_str().unwrap().to_owned();
    assert!(file.contains("name = \"a\"") && file.contains("name = \"b\"") && !file.contains("echo"), "{file}");
    assert!(!file.contains(UPSTREAM_CREDENTIAL) && !file.contains("header-canary"), "{file}");
    let applied = admin.post("/admin/v1/catalog/preview", &json!({"file": file}));
    assert_eq!(applied["changes"], 0, "it changes nothing: {applied}");
    assert_eq!(admin.call("GET", "/admin/v1/catalog?channels=a,x", None).status, 404);
    let gateway = &admin.gateway;
    let out = |arguments: &[&str]| {
        let out = gateway.run(arguments);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    assert!(out(&["pull", "--channels", "a,b"]).contains("name = \"b\""));
    assert_eq!(out(&["channel", "set-several", "a,b", "priority=3", "account={tpm=9}"]).trim(), "changed the channels a, b");
    assert_eq!(field(&admin, "priority", &["a", "b"]), [json!(3), json!(3)]);
    assert_eq!(admin.get("/admin/v1/channels/b/accounts/two")["tpm"], 9);
    assert_eq!(out(&["channel", "remove-several", "a,b"]).trim(), "removed the channels a, b");
    assert_eq!(admin.call("GET", "/admin/v1/channels/a", None).status, 404);
}
