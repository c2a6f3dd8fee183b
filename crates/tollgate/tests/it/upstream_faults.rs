//! Faulty upstream responses beyond those of `upstream_responses.rs`: endless bodies, invalid bytes, resets, implausible
//! usage. Each gets the documented error or is parsed, the gateway keeps serving, and its memory stays bounded.

mod tls;

use std::{
    io::Write as _,
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use tollgate_testkit::{Request, ScriptedResponse, TestGateway, Upstream};

use crate::support::{self, PROGRAM};

const MIB: usize = 1 << 20;
/// Largest growth of memory over all responses, in KiB.
const MAX_GROWTH_KIB: u64 = 64 * 1024;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The body of a plain chat completion.
fn chat_body() -> String {
    r#"{"id":"x","object":"chat.completion","created":1,"model":"upstream-model","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}"#.to_owned()
}

fn delta(content: &str, finish: &str) -> String {
    format!(
        "{{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"upstream-model\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{content}}},\"finish_reason\":{finish}}}]}}"
    )
}

/// An event stream of this text in one chunk.
fn events(text: &str) -> ScriptedResponse {
    ScriptedResponse::events(vec![text.to_owned()])
}

/// Queues the response once per attempt, and checks the caller's status and a part of the body.
fn check(gateway: &TestGateway, upstream: &Upstream, body: &Value, cases: Vec<(&str, ScriptedResponse, u16, &str)>) {
    for (name, reply, status, has) in cases {
        for _ in 0..3 {
            upstream.enqueue(reply.clone());
        }
        let answer = gateway.chat(body);
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        assert!(answer.text().contains(has), "{name}: {}", answer.text());
        upstream.clear();
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200, "the gateway continues after: {name}");
    }
}

#[test]
fn unstreamed_faults_get_the_documented_status() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let body = chat_body();
    let raw = |head: &str, body: &str| ScriptedResponse::raw(format!("{head}\r\n\r\n{body}").as_bytes());
    let trailers = format!("{:x}\r\n{body}\r\n0\r\nset-cookie: a=b\r\nx-checksum: 1\r\n\r\n", body.len());
    let typed = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let flood = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(20_000);
    let answer = |body: String| ScriptedResponse::status(200).body(body, "application/json");
    let bad = "upstream_bad_response";
    let before = support::resident_kib(gateway.pid());
    check(
        &gateway,
        &upstream,
        &support::chat("chat-model"),
        vec![
            ("length too short", raw(&format!("{typed}content-length: 20"), &body), 502, bad),
            ("trailers", raw(&format!("{typed}transfer-encoding: chunked"), &trailers), 200, "hello"),
            ("204 with a body", raw("HTTP/1.1 204 No Content\r\ncontent-length: 2", "{}"), 502, ""),
            (
                "1xx flood",
                ScriptedResponse::raw(format!("{flood}{typed}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()),
                200,
                "hello",
            ),
            (
                "gzip unasked",
                ScriptedResponse::status(200).header("content-encoding", "gzip").body(gzip(body.as_bytes()), "application/json"),
                502,
                bad,
            ),
            (
                "gzip bomb",
                ScriptedResponse::status(200)
                    .header("content-encoding", "gzip")
                    .body(gzip(&vec![b' '; 100 * MIB]), "application/json"),
                502,
                bad,
            ),
            ("NUL", answer("{\"choices\":\0}".to_owned()), 502, bad),
            ("duplicate keys", answer(body.replacen("{\"id\":\"x\"", "{\"id\":\"y\",\"id\":\"x\"", 1)), 200, "hello"),
            ("lone surrogates", answer(body.replace("hello", "\\ud800 hello")), 200, "hello"),
            ("500 with 50 MB", ScriptedResponse::status(500).body(vec![b'x'; 50 * MIB], "text/html"), 502, "upstream_error"),
            ("400 with 50 MB", ScriptedResponse::status(400).body(vec![b'x'; 50 * MIB], "text/html"), 400, "upstream_rejected"),
            ("a page of 50 MB", ScriptedResponse::status(400).body(vec![b'<'; 50 * MIB], "text/html"), 502, "upstream_error"),
            (
                "1 GiB",
                ScriptedResponse::status(200)
                    .header("content-type", "application/json")
                    .chunks([vec![b' '; MIB]])
                    .repeat_last_chunk(),
                502,
                bad,
            ),
            ("reset before the head", ScriptedResponse::raw(b"").reset(), 502, "upstream_unreachable"),
            ("reset in the head", ScriptedResponse::raw(b"HTTP/1.1 200 OK\r\ncont").reset(), 502, "upstream_"),
            ("reset behind the head", raw(&format!("{typed}content-length: 20"), "").reset(), 502, bad),
            ("reset mid-chunk", raw(&format!("{typed}transfer-encoding: chunked"), "f0\r\n{\"id\"").reset(), 502, bad),
        ],
    );
    let growth = support::resident_kib(gateway.pid()).saturating_sub(before);
    println!("faulty responses: resident memory grew by {growth} KiB");
    assert!(growth < MAX_GROWTH_KIB, "memory grew by {growth} KiB");
    assert!(!gateway.chat(&support::chat("chat-model")).headers.iter().any(|(name, _)| name == "set-cookie"));
}

#[test]
fn streamed_faults_get_the_documented_status() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let (hello, stop) = (delta("\"hé\"", "null"), delta("\"\"", "\"stop\""));
    let good = format!("data: {hello}\r\n\r\ndata: {stop}\r\n\r\ndata: [DONE]\r\n\r\n");
    let stream = || ScriptedResponse::status(200).header("content-type", "text/event-stream");
    let bad = "upstream_bad_response";
    let before = support::resident_kib(gateway.pid());
    check(
        &gateway,
        &upstream,
        &support::chat_stream("chat-model"),
        vec![
            (
                "one byte at a time, inside characters and line ends",
                stream().chunks(good.bytes().map(|byte| vec![byte])),
                200,
                "hé",
            ),
            ("CR alone", events(&good.replace("\r\n", "\r")), 200, "hé"),
            ("data behind [DONE]", events(&format!("{good}data: {{\"late\":1}}\n\n")), 200, "hé"),
            ("endless comments", stream().chunks([b": nothing\n\n".to_vec()]).repeat_last_chunk(), 502, bad),
            (
                "endless empty deltas",
                stream().chunks([format!("data: {}\n\n", delta("\"\"", "null")).into_bytes()]).repeat_last_chunk(),
                502,
                bad,
            ),
            ("a line without end", stream().chunks([b"data: \"".to_vec(), vec![b'x'; MIB]]).repeat_last_chunk(), 502, bad),
            ("NUL", events("data: {\"choices\":\0}\n\n"), 502, bad),
            ("invalid UTF-8", stream().chunks([b"data: {\"x\":\"\xff\"}\n\n".to_vec()]), 502, bad),
            ("lone surrogates", events(&good.replace("hé", "\\ud800 hé")), 200, "hé"),
            ("duplicate keys", events(&good.replace("{\"id\":\"x\"", "{\"id\":\"y\",\"id\":\"x\"")), 200, "hé"),
            ("nesting", events(&format!("data: {}\n\n", "[".repeat(100_000))), 502, bad),
            ("gzip unasked", stream().header("content-encoding", "gzip").chunks([gzip(good.as_bytes())]), 502, bad),
            ("reset before content", stream().chunks([b": hi\n\n".to_vec()]).reset(), 502, "upstream_"),
        ],
    );
    let growth = support::resident_kib(gateway.pid()).saturating_sub(before);
    println!("faulty streams: resident memory grew by {growth} KiB");
    assert!(growth < MAX_GROWTH_KIB, "memory grew by {growth} KiB");
    upstream.enqueue(events(&format!("{good}data: {{\"late\":1}}\n\n")));
    assert!(!gateway.chat(&support::chat_stream("chat-model")).text().contains("late"), "nothing follows [DONE]");
}

#[test]
fn streams_broken_after_content_end_with_an_error_event() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let hello = format!("data: {}\n\n", delta("\"hé\"", "null"));
    let stream = || ScriptedResponse::status(200).header("content-type", "text/event-stream");
    let cases: [(&str, ScriptedResponse); 6] = [
        ("an error object", events(&format!("{hello}data: {{\"error\":{{\"message\":\"x\",\"type\":\"server_error\"}}}}\n\n"))),
        ("garbage", events(&format!("{hello}data: {{\"choices\":\n\n"))),
        (
            "a line without end",
            stream().chunks([hello.clone().into_bytes(), b"data: \"".to_vec(), vec![b'x'; MIB]]).repeat_last_chunk(),
        ),
        ("a reset", stream().chunks([hello.clone().into_bytes()]).reset()),
        ("no final chunk", stream().chunks([hello.clone().into_bytes(), Vec::new()]).cut_after(1)),
        ("NUL", events(&format!("{hello}data: \0\n\n"))),
    ];
    for (name, reply) in cases {
        upstream.enqueue(reply);
        let answer = gateway.chat(&support::chat_stream("chat-model"));
        assert_eq!((answer.status, answer.complete), (200, false), "{name}: {}", answer.text());
        assert!(answer.text().contains("hé") && answer.text().contains("upstream_stream_interrupted"), "{name}: {}", answer.text());
        let record = gateway.record_of(&answer);
        assert_eq!(
            (&record["outcome"], &record["attempts"][0]["result"]),
            (&"upstream_broke".into(), &"broke".into()),
            "{name}: {record}"
        );
    }
}

#[test]
fn stream_ends_after_its_finish_despite_comments_and_empty_deltas() {
    let upstream = Upstream::start();
    let gateway = support::builder(&upstream, "cooling = false\nidle_timeout_ms = 1500").spawn();
    let usage = r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"upstream-model","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}"#;
    let answer = format!("data: {}\n\ndata: {}\n\ndata: {usage}\n\n", delta("\"hé\"", "null"), delta("null", "\"stop\""));
    for nothing in [": ping\n\n".to_owned(), format!("data: {}\n\n", delta("\"\"", "null"))] {
        let stream = ScriptedResponse::status(200).header("content-type", "text/event-stream");
        let pieces = [answer.clone().into_bytes(), nothing.clone().into_bytes()];
        upstream.enqueue(stream.chunks(pieces).chunk_delay(Duration::from_millis(100)).repeat_last_chunk());
        let begin = Instant::now();
        let got = gateway.chat(&support::chat_stream("chat-model"));
        assert!(begin.elapsed() < Duration::from_secs(10), "{nothing}: {:?}", begin.elapsed());
        assert_eq!((got.status, got.complete), (200, true), "{nothing}: {}", got.text());
        assert!(got.text().ends_with("data: [DONE]\n\n"), "{nothing}: {}", got.text());
    }
}

#[test]
fn implausible_usage_is_replaced_by_a_local_count() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let odd = [
        json!(null),
        json!({}),
        json!({"prompt_tokens": null, "completion_tokens": null}),
        json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
        json!({"prompt_tokens": -5, "completion_tokens": -7}),
        json!({"prompt_tokens": 1.5, "completion_tokens": 2.5}),
        json!({"prompt_tokens": 9_223_372_036_854_775_808_u64, "completion_tokens": 7}),
        json!({"prompt_tokens": "five", "completion_tokens": []}),
        json!("many"),
    ];
    for usage in odd {
        let text = chat_body().replace(r#"{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}"#, &usage.to_string());
        upstream.enqueue(ScriptedResponse::status(200).body(text, "application/json"));
        let plain = gateway.chat(&support::chat("chat-model"));
        let chunk = format!("data: {}\n\ndata: {}\n\n", delta("\"hello\"", "null"), delta("\"\"", "\"stop\""));
        let last = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "upstream-model", "choices": [], "usage": usage});
        upstream.enqueue(events(&format!("{chunk}data: {last}\n\ndata: [DONE]\n\n")));
        let streamed = gateway.chat(&support::chat_stream("chat-model"));
        for answer in [plain, streamed] {
            assert_eq!((answer.status, answer.complete), (200, true), "{usage}: {}", answer.text());
            assert!(answer.text().contains("hello"), "{usage}");
            let record = gateway.record_of(&answer);
            assert_eq!(record["outcome"], "completed", "{usage}: {record}");
            let sale = record["sale"].as_str().map(|_| support::nano_usd(&record["sale"]));
            assert!(sale.is_none_or(|sale| sale >= 0), "{usage}: {record}");
            assert!(sale.is_some() || record["reason"] == "overflow", "{usage}: {record}");
        }
    }
    // Growing, shrinking, repeated: the last usage counts.
    let usage_chunk = |input: u64, output: u64| {
        format!(
            "data: {}\n\n",
            json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "upstream-model",
                "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}],
                "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}})
        )
    };
    let stop = format!("data: {}\n\ndata: [DONE]\n\n", delta("\"\"", "\"stop\""));
    upstream.enqueue(events(&[usage_chunk(5, 1), usage_chunk(5, 9), usage_chunk(5, 3), usage_chunk(5, 3), stop].concat()));
    let record = gateway.record_of(&gateway.chat(&support::chat_stream("chat-model")));
    assert_eq!((&record["tokens"]["input"], &record["tokens"]["output"]), (&5.into(), &3.into()), "{record}");
}

#[test]
fn retry_after_is_clamped() {
    for (asked, min, max) in [("1000000000", 3_500, 3_600), ("Sun, 06 Nov 1994 08:49:37 GMT", 0, 1), ("-5", 0, 10), ("soon", 0, 10)]
    {
        let upstream = Upstream::start();
        let gateway = support::builder(&upstream, "").spawn();
        upstream.enqueue(ScriptedResponse::error(429, &json!({"error": {"message": "slow down"}})).header("retry-after", asked));
        let answer = gateway.chat(&support::chat("chat-model"));
        let retry_after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!(answer.status == 429 && (1..=60).contains(&retry_after), "{asked}: {retry_after}");
        let begin = Instant::now();
        let left = loop {
            let output = gateway.run(&["explain", "--model", "chat-model", "--key", "caller", "--json"]);
            let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
            if let Some(detail) = explained["excluded"][0]["detail"].as_str() {
                let until: jiff::Timestamp = detail.rsplit(' ').next().unwrap().parse().unwrap();
                break until.duration_since(jiff::Timestamp::now()).as_secs();
            }
            // A cooldown of one second may be over before the next request.
            if min == 0 && begin.elapsed().as_secs() > 2 {
                break 0;
            }
            assert!(begin.elapsed().as_secs() < 10, "{asked}: {explained}");
        };
        assert!((min..=max).contains(&left), "{asked}: {left} s");
    }
}

#[test]
fn response_before_the_whole_request_is_forwarded_or_502() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-type: application/json\r\ncontent-length: 34\r\nconnection: close\r\n\r\n{\"error\":{\"message\":\"too large\"}}\n\n");
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    let catalog = support::channel("chat", "openai", &format!("http://{address}/v1"), "chat-model", "cooling = false")
        + &support::prices(&["chat-model"])
        + &support::group(&["chat"]);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let mut body = support::chat("chat-model");
    body["messages"][0]["content"] = "x".repeat(8 * MIB).into();
    for _ in 0..5 {
        let answer = gateway.chat(&body);
        assert!([413, 502].contains(&answer.status), "{}: {}", answer.status, answer.text());
    }
    assert_eq!(gateway.send(&Request::get("/healthz")).status, 200);
}

#[test]
fn closed_keep_alive_connections_fail_no_request() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello").close_unannounced());
    let gateway = support::gateway_for(&upstream);
    for number in 0..300 {
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!(answer.status, 200, "{number}: {}", answer.text());
    }
    let records = gateway.records();
    assert!(
        records.iter().all(|record| record["attempts"].as_array().is_some_and(|it| it.len() == 1)),
        "a lost race does not count as an attempt"
    );
}

#[test]
fn secret_headers_quoted_by_an_upstream_are_masked_for_callers_and_records() {
    const SECRET: &str = "extra-5566778899-secret";
    let upstream = Upstream::start();
    let lines = format!("headers = {{ \"x-extra\" = \"{SECRET}\" }}");
    let gateway = TestGateway::builder(support::PROGRAM).catalog(&support::catalog(&upstream, &lines)).spawn();
    let problem = json!({"error": {"message": format!("x-extra is {SECRET}"), "code": format!("bad {SECRET}")}});
    upstream.set_default(ScriptedResponse::error(400, &problem));
    for body in [support::chat("chat-model"), support::chat_stream("chat-model")] {
        let answer = gateway.chat(&body);
        let (text, record) = (answer.text(), gateway.record_of(&answer).to_string());
        assert!(answer.status == 400 && text.contains("x-extra is ***"), "{text}");
        assert!(!text.contains(SECRET) && !record.contains(SECRET), "{text} {record}");
    }
}
