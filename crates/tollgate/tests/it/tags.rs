//! `x-tollgate-tags` and `metadata`: tags of requests, and the sums by tag.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::support;

const HEADER: &str = "x-tollgate-tags";

/// A chat request with these lines of the header.
fn chat(gateway: &TestGateway, body: &Value, lines: &[&str]) -> ClientResponse {
    let request = Request::post("/v1/chat/completions", body).bearer(gateway.key());
    gateway.send(&lines.iter().fold(request, |request, line| request.header(HEADER, line)))
}

fn native(gateway: &TestGateway, line: &str) -> ClientResponse {
    let request = Request::post("/v1beta/models/native-model:generateContent", &support::native()).native_key(gateway.key());
    gateway.send(&request.header(HEADER, line))
}

/// A command's JSON output.
fn shown(gateway: &TestGateway, arguments: &[&str]) -> Value {
    let output = gateway.run(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn tags_are_recorded_summed_up_and_not_sent_upstream() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    upstream.enqueue(ScriptedResponse::chat("hi"));
    let mut body = support::chat("chat-model");
    body["metadata"] = json!({"project": "mobile", "customer": "größte, AG", "user": "ü", "n": 1});
    let tagged = chat(&gateway, &body, &["project=web", "team=a b"]);
    assert_eq!(tagged.status, 200, "{}", tagged.text());
    let sent = &upstream.received()[0];
    assert_eq!((sent.header(HEADER), &sent.json()["metadata"]), (None, &body["metadata"]), "metadata passes, the header does not");
    assert_eq!(gateway.record_of(&tagged)["tags"], json!({"project": "web", "team": "a b", "user": "ü"}));
    upstream.enqueue(ScriptedResponse::chat("hi"));
    let untagged = chat(&gateway, &support::chat("chat-model"), &[]);
    assert_eq!(gateway.record_of(&untagged)["tags"], json!({}));
    upstream.enqueue(ScriptedResponse::native("hi"));
    assert_eq!(native(&gateway, "project=web").status, 200);
    let unknown = chat(&gateway, &support::chat("unknown"), &["project=mobile"]);
    assert_eq!(gateway.record_of(&unknown)["tags"], json!({"project": "mobile"}), "refused requests have tags too");

    wait_for("every request is booked", Duration::from_secs(2), || {
        shown(&gateway, &["usage", "summary", "--by", "nothing"])["items"][0]["requests"] == 4
    });
    let sums = shown(&gateway, &["usage", "summary", "--by", "tag:project"]);
    let rows: Vec<(&str, u64)> = sums["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["of"].as_str().unwrap(), row["requests"].as_u64().unwrap()))
        .collect();
    assert_eq!(rows, [("", 1), ("mobile", 1), ("web", 2)], "{sums}");
    let of_web = shown(&gateway, &["usage", "summary", "--by", "model", "--tag", "project=web", "--tag", "team=a b"]);
    assert_eq!((&of_web["items"][0]["of"], &of_web["items"][0]["requests"]), (&json!("chat-model"), &json!(1)), "{of_web}");
    let listed = gateway.run(&["usage", "list", "--tag", "user=ü", "--json"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.lines().count() == 1 && listed.contains(tagged.header("x-request-id").unwrap()), "{listed}");
    let text = String::from_utf8(gateway.run(&["usage", "show", tagged.header("x-request-id").unwrap()]).stdout).unwrap();
    assert!(text.contains("project=web, team=a b, user=ü"), "{text}");
    let wrong = gateway.run(&["usage", "list", "--tag", "project"]);
    assert_eq!(wrong.status.code(), Some(2));

    let own = |query: &str| gateway.send(&Request::get(&format!("/v1/usage{query}")).bearer(gateway.key())).json();
    let sums = own("?by=tag:project&tags=project=web");
    assert_eq!((&sums["data"][0]["of"], &sums["data"][0]["requests"]), (&json!("web"), &json!(2)), "{sums}");
    let records = own("/records?tags=team=a%20b");
    assert_eq!(
        (records["data"].as_array().map(Vec::len), &records["data"][0]["tags"]["user"]),
        (Some(1), &json!("ü")),
        "{records}"
    );
}

#[test]
fn invalid_tags_are_refused_by_the_name_of_the_header() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    for (line, says) in [
        ("project", "expected 'name=value' pairs separated by commas"),
        ("my project=web", "the name of a tag has 1 to 40 letters, digits, '_', '-' or '.'"),
        ("project=", "the value of the tag 'project' must have 1 to 100 printable ASCII characters"),
        ("a=1,a=2", "the tag 'a' occurs twice"),
    ] {
        let answer = chat(&gateway, &support::chat("chat-model"), &[line]);
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["code"], &error["param"]), (400, &json!("invalid_value"), &json!(HEADER)), "{line}");
        assert_eq!(error["message"], format!("Invalid value for the header '{HEADER}': {says}."));
        let record = gateway.record_of(&answer);
        assert_eq!((&record["reason"], &record["tags"]), (&json!("E21"), &json!({})));
        let answer = native(&gateway, line);
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["status"]), (400, &json!("INVALID_ARGUMENT")), "{line}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    assert!(upstream.received().is_empty());
}

#[test]
fn tags_survive_a_kill() {
    let upstream = Upstream::start();
    upstream.enqueue(ScriptedResponse::chat_stream(&["hello", "world"]).stall_after(2));
    let gateway = support::gateway_for(&upstream);
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gateway.key());
    let mut open = gateway.start_request(&request.header(HEADER, "project=web"));
    let answer = open.read_head().unwrap();
    assert!(open.read_chunk(&answer).unwrap().is_some());
    let catalog = support::catalog(&upstream, "cooling = false");
    let gateway = TestGateway::builder(support::PROGRAM).catalog(&catalog).data_folder(gateway.kill()).spawn();
    let record = gateway.wait_for_record("record of the killed stream", |record| record["outcome"] == "gateway_stopped");
    assert_eq!(record["tags"], json!({"project": "web"}));
}
