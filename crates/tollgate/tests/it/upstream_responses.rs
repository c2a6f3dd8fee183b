//! Unusual and invalid upstream responses: each gets the documented status, and the gateway keeps serving.

use serde_json::json;
use tollgate_testkit::{ScriptedResponse, Upstream};

use crate::support;

/// Answers a plain and a streamed request with each response, and checks the caller's status.
fn check(cases: Vec<(&str, ScriptedResponse, u16)>) {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    for (name, reply, status) in cases {
        // One copy per attempt, so that every account has the same fault.
        for _ in 0..3 {
            upstream.enqueue(reply.clone());
        }
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        assert!(answer.json()["error"]["message"].is_string(), "{name}");
        upstream.clear();
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200, "the gateway continues after: {name}");
    }
}

#[test]
fn unreadable_responses_are_502() {
    let long_line = vec![b'x'; 8 << 20];
    check(vec![
        ("truncated JSON", ScriptedResponse::status(200).body("{\"choices\":[", "application/json"), 502),
        ("HTML", ScriptedResponse::status(200).body("<html></html>", "text/html"), 502),
        ("empty", ScriptedResponse::status(200).body("", "application/json"), 502),
        ("an array", ScriptedResponse::status(200).body("[]", "application/json"), 502),
        ("choices null", ScriptedResponse::json(&json!({"choices": null})), 502),
        ("wrong shape", ScriptedResponse::json(&json!({"choices": "x"})), 502),
        (
            "invalid UTF-8",
            ScriptedResponse::status(200).body(vec![b'{', b'"', 0xff, b'"', b':', b'1', b'}'], "application/json"),
            502,
        ),
        ("deep nesting", ScriptedResponse::status(200).body("[".repeat(100_000), "application/json"), 502),
        ("204", ScriptedResponse::status(204), 502),
        ("a long line that is not JSON", ScriptedResponse::status(200).body(long_line, "application/json"), 502),
        ("error object without a status", ScriptedResponse::json(&json!({"error": {"message": "x"}})), 502),
    ]);
}

#[test]
fn broken_http_is_502() {
    check(vec![
        ("no HTTP", ScriptedResponse::raw(b"hello\r\n\r\n"), 502),
        ("reset before headers", ScriptedResponse::close_immediately(), 502),
        (
            "length too long",
            ScriptedResponse::raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{}"),
            502,
        ),
        ("bad chunk size", ScriptedResponse::raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"), 502),
        ("cut chunk", ScriptedResponse::raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"), 502),
        ("101", ScriptedResponse::raw(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"), 502),
        (
            "a header of 2 MB",
            ScriptedResponse::raw(format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(2 << 20)).as_bytes()),
            502,
        ),
        ("10,000 headers", ScriptedResponse::raw(format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(10_000)).as_bytes()), 502),
    ]);
}

#[test]
fn upstream_errors_map_to_documented_statuses() {
    check(vec![
        ("500 HTML", ScriptedResponse::status(500).body("<html>", "text/html"), 502),
        ("503", ScriptedResponse::error(503, &json!({"error": {"message": "busy"}})), 503),
        ("529", ScriptedResponse::error(529, &json!({"error": {"message": "busy"}})), 503),
        ("504", ScriptedResponse::error(504, &json!({})), 504),
        ("401", ScriptedResponse::error(401, &json!({"error": {"message": "who are you"}})), 502),
        ("429", ScriptedResponse::error(429, &json!({"error": {"message": "slow"}})).header("retry-after", "3"), 429),
        ("400", ScriptedResponse::error(400, &json!({"error": {"message": "no", "type": "invalid_request_error"}})), 400),
        ("413", ScriptedResponse::error(413, &json!({"error": {"message": "no"}})), 413),
        (
            "404 about a model",
            ScriptedResponse::error(404, &json!({"error": {"message": "The model does not exist", "code": "model_not_found"}})),
            404,
        ),
        ("404 about a path", ScriptedResponse::status(404).body("not found", "text/plain"), 502),
        ("418", ScriptedResponse::status(418), 502),
    ]);
}

#[test]
fn upstream_response_headers_are_not_forwarded() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    upstream.enqueue(
        ScriptedResponse::chat("hi")
            .header("set-cookie", "a=b")
            .header("server", "secret")
            .header("x-internal", "1")
            .header("openai-organization", "org"),
    );
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 200);
    for name in ["set-cookie", "x-internal", "openai-organization"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_ne!(answer.header("server"), Some("secret"));
}

#[test]
fn unusual_event_streams_are_parsed_or_refused() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let chunk = |text: &str, finish: &str| {
        format!(
            "{{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"upstream-model\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{finish}}}]}}"
        )
    };
    let stream = |text: String| ScriptedResponse::events(vec![text]);
    let good = [
        ("CRLF", format!("data: {}\r\n\r\ndata: {}\r\n\r\ndata: [DONE]\r\n\r\n", chunk("hé", "null"), chunk("", "\"stop\""))),
        ("no space", format!("data:{}\n\ndata:{}\n\ndata:[DONE]\n\n", chunk("hé", "null"), chunk("", "\"stop\""))),
        (
            "comments",
            format!(": hi\n\n: hi\n\ndata: {}\n\n: hi\n\ndata: {}\n\ndata: [DONE]\n\n", chunk("hé", "null"), chunk("", "\"stop\"")),
        ),
        ("no DONE", format!("data: {}\n\ndata: {}\n\n", chunk("hé", "null"), chunk("", "\"stop\""))),
    ];
    for (name, text) in good {
        let bytes: Vec<String> = vec![text.clone()];
        upstream.enqueue(ScriptedResponse::events(bytes));
        let answer = gateway.chat(&support::chat_stream("chat-model"));
        assert_eq!((answer.status, answer.complete), (200, true), "{name}: {}", answer.text());
        assert!(answer.text().contains("hé"), "{name}: {}", answer.text());
    }
    for (name, text) in [
        ("HTML", "<html></html>".to_owned()),
        ("garbage JSON", "data: {\"choices\":\n\n".to_owned()),
        ("nothing", String::new()),
        ("an error event first", "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n".to_owned()),
    ] {
        upstream.enqueue(stream(text));
        let answer = gateway.chat(&support::chat_stream("chat-model"));
        assert_eq!(answer.status, 502, "{name}: {}", answer.text());
    }
}
