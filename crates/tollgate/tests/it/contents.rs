//! Stored contents of requests: for which requests they are stored, who may read them, and when they are removed.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::{
    admin::{Admin, ok},
    identity::{make_member, sign_in},
    support::{self, PROGRAM},
};

/// A text that occurs nowhere else.
pub(crate) const SAID: &str = "the quick brown fox 你好";

fn set(admin: &Admin, name: &str, value: &Value) {
    ok(&admin.call("PUT", &format!("/admin/v1/settings/{name}"), Some(&json!({"value": value}))));
}

/// The administration of a gateway that stores contents, and a key whose contents are stored.
pub(crate) fn storing() -> (Admin, String) {
    let admin = Admin::echo();
    set(&admin, "contents.store", &json!("true"));
    make_member(&admin, "ann", "member");
    let key = admin.post("/admin/v1/keys", &json!({"name": "logged", "member": "ann", "log_contents": true}));
    let key = key["key"].as_str().unwrap().to_owned();
    (admin, key)
}

pub(crate) fn said(text: &str) -> Value {
    json!({"model": "echo", "messages": [{"role": "user", "content": text}]})
}

pub(crate) fn ask(admin: &Admin, key: &str, body: &Value) -> ClientResponse {
    admin.gateway.send(&Request::post("/v1/chat/completions", body).bearer(key))
}

pub(crate) fn id(answer: &ClientResponse) -> String {
    answer.header("x-request-id").unwrap().to_owned()
}

pub(crate) fn path(record: &str) -> String {
    format!("/admin/v1/usage/{record}/contents")
}

/// The contents of a request, once they are there.
pub(crate) fn contents(admin: &Admin, record: &str) -> Value {
    wait_for("the contents are stored", Duration::from_secs(30), || admin.call("GET", &path(record), None).status == 200);
    admin.get(&path(record))
}

/// A record, once it is there.
fn record(admin: &Admin, id: &str) -> Value {
    let path = format!("/admin/v1/usage/{id}");
    wait_for("the request is booked", Duration::from_secs(30), || admin.call("GET", &path, None).status == 200);
    admin.get(&path)
}

#[test]
fn contents_are_stored_sealed_for_a_key_that_enables_it() {
    let (admin, key) = storing();
    let body = said(SAID);
    let answer = ask(&admin, &key, &body);
    let stored = contents(&admin, &id(&answer));
    assert_eq!(serde_json::from_str::<Value>(stored["request"]["text"].as_str().unwrap()).unwrap(), body);
    assert_eq!((&stored["request"]["is_cut"], &stored["answer"]["text"]), (&json!(false), &json!(answer.text())));
    assert_eq!(stored["request"]["bytes"], json!(body.to_string().len()));
    assert_eq!(record(&admin, &id(&answer))["contents"], json!(true));

    // A refused request has no answer; the stored body shows why it was refused.
    let wrong = json!({"model": "echo"});
    let refused = ask(&admin, &key, &wrong);
    assert_eq!(refused.status, 400, "{}", refused.text());
    let stored = contents(&admin, &id(&refused));
    assert_eq!((&stored["request"]["text"], &stored["answer"]["text"]), (&json!(wrong.to_string()), &json!("")));

    // Contents of another key of the same group are not stored.
    let other = admin.post("/admin/v1/keys", &json!({"name": "plain"}))["key"].as_str().unwrap().to_owned();
    let plain = id(&ask(&admin, &other, &body));
    assert_eq!(record(&admin, &plain)["contents"], json!(false));
    assert_eq!(admin.call("GET", &path(&plain), None).status, 404);

    // No content is on the disk in clear text.
    for file in fs::read_dir(admin.gateway.data()).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(15).any(|part| part == &SAID.as_bytes()[..15]), "{}", file.display());
    }
    let metrics = admin.gateway.send(&Request::get("/metrics")).text();
    assert!(metrics.contains("tollgate_contents_total{result=\"stored\"} 2"), "{metrics}");
}

#[test]
fn streams_are_stored_as_sent_and_media_are_cut() {
    let upstream = Upstream::start();
    let catalog = support::catalog(&upstream, "").replace("[[group]]", "[[group]]\nlog_contents = true");
    let admin = Admin::of(TestGateway::builder(PROGRAM).catalog(&catalog).spawn());
    set(&admin, "contents.store", &json!("true"));
    let picture = format!("data:image/png;base64,{}", "QUJD".repeat(5_000));
    let body = json!({"model": "chat-model", "stream": true, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": picture}}]}]});
    upstream.enqueue(ScriptedResponse::chat_stream(&["A ", "cat", "."]));
    let answer = admin.gateway.send(&Request::post("/v1/chat/completions", &body).bearer(admin.gateway.key()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let stored = contents(&admin, &id(&answer));
    assert_eq!(stored["answer"]["text"], json!(answer.text()));
    let request: Value = serde_json::from_str(stored["request"]["text"].as_str().unwrap()).unwrap();
    let url = request["messages"][0]["content"][1]["image_url"]["url"].as_str().unwrap();
    assert!(url.ends_with("[18976 more characters]") && url.len() < 1_100, "{url}");
    assert_eq!(stored["request"]["bytes"], json!(body.to_string().len()));
}

#[test]
fn contents_are_off_by_default_and_are_cut_and_redacted() {
    let (admin, key) = storing();
    set(&admin, "contents.redact", &json!(r"[\w.]+@[\w.]+"));
    set(&admin, "contents.max_bytes", &json!("1024"));
    let long = format!("mail ada@example.com {}", "word ".repeat(1_000));
    let stored = wait_for_value("the settings are in force", || {
        let stored = contents(&admin, &id(&ask(&admin, &key, &said(&long))));
        let text = stored["request"]["text"].as_str().unwrap().to_owned();
        (stored["request"]["is_cut"] == true && text.contains("mail [redacted] word")).then_some(stored)
    });
    let request = &stored["request"];
    assert!(request["text"].as_str().unwrap().len() <= 1_024 && request["bytes"].as_u64().unwrap() > 5_000, "{stored}");
    assert!(!stored["answer"]["text"].as_str().unwrap().contains("ada@example.com"), "{stored}");
    let refused = admin.call("PUT", "/admin/v1/settings/contents.redact", Some(&json!({"value": "(a"})));
    assert_eq!(refused.status, 400, "{}", refused.text());

    // Without the setting nothing is stored, even for keys that enable it.
    set(&admin, "contents.store", &json!("false"));
    wait_for("nothing is stored any more", Duration::from_secs(30), || {
        let answered = id(&ask(&admin, &key, &said(SAID)));
        record(&admin, &answered);
        std::thread::sleep(Duration::from_secs(1));
        admin.call("GET", &path(&answered), None).status == 404
    });
}

/// Waits until `find` returns something.
fn wait_for_value<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_for(what, Duration::from_secs(30), || {
        found = find();
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn members_read_their_own_contents_and_reading_by_admins_is_audited() {
    let (admin, key) = storing();
    for (name, role) in [("eve", "member"), ("op", "operator")] {
        make_member(&admin, name, role);
    }
    let answered = id(&ask(&admin, &key, &said(SAID)));
    let audit = |action: &str| {
        let events = admin.get("/admin/v1/audit?kind=contents")["items"].as_array().unwrap().clone();
        events.into_iter().filter(|event| event["action"] == action).collect::<Vec<_>>()
    };
    let ann = sign_in(&admin, "ann");
    wait_for("the contents are stored", Duration::from_secs(30), || ann.send(&admin, "GET", &path(&answered), None).status == 200);
    assert!(ann.get(&admin, &path(&answered))["request"]["text"].as_str().unwrap().contains(SAID));
    assert_eq!(ann.get(&admin, &format!("/admin/v1/usage/{answered}"))["contents"], json!(true));
    // Operators see the usage of all members, but no contents.
    for other in ["eve", "op"] {
        let other = sign_in(&admin, other);
        assert_eq!(other.send(&admin, "GET", &path(&answered), None).status, 404);
        assert_eq!(other.send(&admin, "DELETE", &path(&answered), None).status, 404);
    }
    assert_eq!(sign_in(&admin, "op").get(&admin, &format!("/admin/v1/usage/{answered}"))["contents"], json!(false));
    assert!(audit("read").is_empty());
    admin.get(&path(&answered));
    let read = audit("read");
    assert_eq!(read.len(), 1, "{read:?}");
    assert_eq!((&read[0]["id"], &read[0]["name"]), (&json!(answered), &json!("ann")));
    ok_or_no_content(&ann.send(&admin, "DELETE", &path(&answered), None));
    assert_eq!(ann.send(&admin, "GET", &path(&answered), None).status, 404);
    assert_eq!(ann.send(&admin, "DELETE", &path(&answered), None).status, 404);
    assert_eq!(audit("remove").len(), 1);
    assert_eq!(record(&admin, &answered)["contents"], json!(false));
}

fn ok_or_no_content(answer: &ClientResponse) {
    assert_eq!(answer.status, 204, "{}", answer.text());
}

#[test]
fn contents_survive_a_rotation_of_the_master_key() {
    let (admin, key) = storing();
    let answered = id(&ask(&admin, &key, &said(SAID)));
    contents(&admin, &answered);
    let rotated = admin.gateway.run(&["master-key", "rotate"]);
    assert!(rotated.status.success(), "{}", String::from_utf8_lossy(&rotated.stderr));
    assert!(contents(&admin, &answered)["request"]["text"].as_str().unwrap().contains(SAID));
}

#[test]
fn command_shows_and_removes_contents() {
    let (admin, key) = storing();
    let answered = id(&ask(&admin, &key, &said(SAID)));
    contents(&admin, &answered);
    let run = |arguments: &[&str]| {
        let out = admin.gateway.run(arguments);
        (out.status.success(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (is_ok, shown, _) = run(&["usage", "contents", &answered]);
    assert!(is_ok && shown.contains(SAID) && shown.starts_with("body, ") && shown.contains("answer, "), "{shown}");
    assert!(run(&["usage", "contents", &answered, "--remove"]).0);
    let (is_ok, _, fault) = run(&["usage", "contents", &answered]);
    assert!(!is_ok && fault.contains("request with stored contents"), "{fault}");
}

#[test]
fn contents_of_a_busy_key_are_evicted_before_those_of_others() {
    let (admin, busy) = storing();
    set(&admin, "contents.total_bytes", &json!("1048576"));
    let quiet = admin.post("/admin/v1/keys", &json!({"name": "quiet", "log_contents": true}))["key"].as_str().unwrap().to_owned();
    let first = id(&ask(&admin, &quiet, &said(SAID)));
    contents(&admin, &first);
    // Texts that cannot be compressed: 40 times some 60 KB for body and answer.
    let noise = |seed: u64| {
        let mut state = seed;
        let word = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:x} ", state >> 11)
        };
        (0..4_000).map(word).collect::<String>()
    };
    let asked: Vec<String> = (1..=40).map(|seed| id(&ask(&admin, &busy, &said(&noise(seed))))).collect();
    contents(&admin, asked.last().unwrap());
    wait_for("the oldest of the busy key are gone", Duration::from_secs(30), || {
        admin.call("GET", &path(&asked[0]), None).status == 404
    });
    assert!(contents(&admin, &first)["request"]["text"].as_str().unwrap().contains(SAID));
}

#[test]
fn pending_contents_are_stored_at_shutdown() {
    let (admin, key) = storing();
    let answered = id(&ask(&admin, &key, &said(SAID)));
    let mut gateway = admin.gateway;
    assert_eq!(gateway.stop(), Some(0));
    let data = gateway.into_data();
    let admin = Admin::of_restored(TestGateway::builder(PROGRAM).data_folder(data).spawn());
    assert!(contents(&admin, &answered)["request"]["text"].as_str().unwrap().contains(SAID));
}

#[test]
fn translation_shows_what_the_upstream_was_sent_to_admins_and_operators_own_requests() {
    let (upstream, native) = (Upstream::start(), Upstream::start());
    let catalog = support::catalog(&upstream, "").replace("[[group]]", "[[group]]\nlog_contents = true");
    let admin = Admin::of(TestGateway::builder(PROGRAM).catalog(&catalog).spawn());
    let channel = json!({
        "name": "gem", "provider": "gemini", "base_url": native.gemini_url(), "private_network": true,
        "accounts": [{"name": "main", "credential": "native-credential-0123456789"}],
        "serves": [{"model": "gem-model", "upstream": "g-1"}],
    });
    admin.post("/admin/v1/channels", &channel);
    admin.post("/admin/v1/groups", &json!({"name": "team", "channels": ["gem"], "translation": "lenient", "log_contents": true}));
    native.set_default(ScriptedResponse::native("hello there"));
    let made = admin.post("/admin/v1/keys", &json!({"name": "ci", "groups": ["team"]}));
    let key = made["key"].as_str().unwrap();
    let body = json!({
        "model": "gem-model", "messages": [{"role": "user", "content": SAID}], "max_tokens": 50, "logit_bias": {"7": 1},
    });
    let asked = wait_for_value("the model is served", || {
        let answer = ask(&admin, key, &body);
        (answer.status == 200).then(|| id(&answer))
    });
    let translation = |record: &str| admin.get(&format!("/admin/v1/usage/{record}/translation"));
    record(&admin, &asked);
    let off = translation(&asked);
    assert_eq!((&off["contents"], &off["request"], &off["protocol_out"]), (&json!("off"), &Value::Null, &json!("gemini")));

    set(&admin, "contents.store", &json!("true"));
    let asked = wait_for_value("contents are stored", || {
        let asked = id(&ask(&admin, key, &body));
        record(&admin, &asked);
        (admin.call("GET", &path(&asked), None).status == 200).then_some(asked)
    });
    let shown = translation(&asked);
    assert_eq!((&shown["contents"], &shown["channel"], &shown["fault"]), (&json!("stored"), &json!("gem"), &Value::Null));
    let sent: Value = serde_json::from_str(shown["upstream_request"].as_str().unwrap()).unwrap();
    assert_eq!(sent, native.received().last().unwrap().json(), "what is written again is what was sent");
    assert!(shown["upstream_path"].as_str().unwrap().contains("g-1:generateContent"), "{shown}");
    let parameters = shown["parameters"].as_array().unwrap();
    let of = |name: &str| parameters.iter().find(|parameter| parameter["name"] == name).unwrap();
    assert_eq!((&of("logit_bias")["outcome"], &of("max_tokens")["outcome"]), (&json!("dropped"), &json!("renamed")));
    assert_eq!(of("max_tokens")["upstream_name"], "generationConfig.maxOutputTokens");
    assert!(shown["answer"]["text"].as_str().unwrap().contains("hello there"), "{shown}");
    let answer: Value = serde_json::from_str(shown["upstream_answer"].as_str().unwrap()).unwrap();
    assert_eq!(answer["candidates"][0]["content"]["parts"][0]["text"], "hello there");
    let reads = admin.get("/admin/v1/audit?kind=contents")["items"].as_array().unwrap().len();
    assert!(reads >= 1, "reading a translation is a read of the contents");

    // Channels are for operators, and contents for admins and the member of the key.
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let path = format!("/admin/v1/usage/{asked}/translation");
    assert_eq!(sign_in(&admin, "op").send(&admin, "GET", &path, None).status, 404);
    assert_eq!(sign_in(&admin, "ann").send(&admin, "GET", &path, None).status, 403);
    let own = admin.post("/admin/v1/keys", &json!({"name": "own", "member": "op", "groups": ["team"]}));
    let asked = id(&ask(&admin, own["key"].as_str().unwrap(), &body));
    let path = format!("/admin/v1/usage/{asked}/translation");
    let op = sign_in(&admin, "op");
    wait_for("the operator's own request is shown", Duration::from_secs(30), || {
        let answer = op.send(&admin, "GET", &path, None);
        answer.status == 200 && answer.text().contains("g-1:generateContent")
    });
}
