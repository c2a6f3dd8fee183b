//! The requests that leave a line in the log of the program.

use serde_json::Value;
use tollgate_testkit::{ScriptedResponse, Upstream};

use crate::support;

/// The ids of the requests that left a line, and the log.
fn logged(requests: &str) -> (Vec<String>, [String; 2]) {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("well"));
    let mut gateway = support::builder(&upstream, "").env("TOLLGATE_LOG__REQUESTS", requests).spawn();
    let ids = ["chat-model", "unknown-model"].map(|model| {
        let answer = gateway.chat(&support::chat(model));
        answer.header("x-request-id").expect("every answer has an id").to_owned()
    });
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    let lines = gateway.log();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let requests = lines.filter(|line| line["target"] == "tollgate::request" && line["message"] == "request");
    (requests.map(|line| line["request.id"].as_str().unwrap_or_default().to_owned()).collect(), ids)
}

#[test]
fn logged_requests_follow_the_setting() {
    let (lines, [well, refused]) = logged("all");
    assert_eq!(lines, [well, refused]);
    let (lines, [_, refused]) = logged("problems");
    assert_eq!(lines, [refused]);
    assert_eq!(logged("none").0, [""; 0]);
}
