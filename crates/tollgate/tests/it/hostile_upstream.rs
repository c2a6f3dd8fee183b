//! The answers of upstreams that must not hurt, beyond those in `faults.rs`: floods, odd bytes, resets, usage that cannot
//! be. Each is answered as the error table says or read as what it is, the gateway goes on, and its memory stays.

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
/// Growth of memory over all of them.
const MOST_GROWTH_KIB: u64 = 64 * 1024;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A whole answer with its head, and headers behind its body.
fn chat_body() -> String {
    r#"{"id":"x","object":"chat.completion","created":1,"model":"upstream-model","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}"#.to_owned()
}

fn delta(content: &str, finish: &str) -> String {
    format!(
        "{{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"upstream-model\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{content}}},\"finish_reason\":{finish}}}]}}"
    )
}

/// An event stream of this text, in one piece.
fn events(text: &str) -> ScriptedResponse {
    ScriptedResponse::events(vec![text.to_owned()])
}

/// Each case as often as there are attempts; the status the caller sees, and what his answer has in it.
fn check(gate: &TestGateway, upstream: &Upstream, body: &Value, cases: Vec<(&str, ScriptedResponse, u16, &str)>) {
    for (name, reply, status, has) in cases {
        for _ in 0..3 {
            upstream.next(reply.clone());
        }
        let answer = gate.chat(body);
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        assert!(answer.text().contains(has), "{name}: {}", answer.text());
        upstream.clear();
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200, "the gateway goes on after: {name}");
    }
}

#[test]
fn whole_answers() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let body = chat_body();
    let raw = |head: &str, body: &str| ScriptedResponse::raw(format!("{head}\r\n\r\n{body}").as_bytes());
    let trailers = format!("{:x}\r\n{body}\r\n0\r\nset-cookie: a=b\r\nx-checksum: 1\r\n\r\n", body.len());
    let typed = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let flood = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(20_000);
    let answer = |body: String| ScriptedResponse::status(200).body(body, "application/json");
    let bad = "upstream_bad_response";
    let before = support::resident_kib(gate.pid());
    check(
        &gate,
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
                ScriptedResponse::status(200).header("content-type", "application/json").pieces([vec![b' '; MIB]]).forever(),
                502,
                bad,
            ),
            ("reset before the head", ScriptedResponse::raw(b"").reset(), 502, "upstream_unreachable"),
            ("reset in the head", ScriptedResponse::raw(b"HTTP/1.1 200 OK\r\ncont").reset(), 502, "upstream_"),
            ("reset behind the head", raw(&format!("{typed}content-length: 20"), "").reset(), 502, bad),
            ("reset mid-chunk", raw(&format!("{typed}transfer-encoding: chunked"), "f0\r\n{\"id\"").reset(), 502, bad),
        ],
    );
    let growth = support::resident_kib(gate.pid()).saturating_sub(before);
    println!("hostile answers: resident memory grew by {growth} KiB");
    assert!(growth < MOST_GROWTH_KIB, "memory grew by {growth} KiB");
    assert!(!gate.chat(&support::chat("chat-model")).headers.iter().any(|(name, _)| name == "set-cookie"));
}

#[test]
fn streams() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let (hello, stop) = (delta("\"hé\"", "null"), delta("\"\"", "\"stop\""));
    let good = format!("data: {hello}\r\n\r\ndata: {stop}\r\n\r\ndata: [DONE]\r\n\r\n");
    let stream = || ScriptedResponse::status(200).header("content-type", "text/event-stream");
    let bad = "upstream_bad_response";
    let before = support::resident_kib(gate.pid());
    check(
        &gate,
        &upstream,
        &support::chat_stream("chat-model"),
        vec![
            (
                "one byte at a time, inside characters and line ends",
                stream().pieces(good.bytes().map(|byte| vec![byte])),
                200,
                "hé",
            ),
            ("CR alone", events(&good.replace("\r\n", "\r")), 200, "hé"),
            ("data behind [DONE]", events(&format!("{good}data: {{\"late\":1}}\n\n")), 200, "hé"),
            ("endless comments", stream().pieces([b": nothing\n\n".to_vec()]).forever(), 502, bad),
            (
                "endless empty deltas",
                stream().pieces([format!("data: {}\n\n", delta("\"\"", "null")).into_bytes()]).forever(),
                502,
                bad,
            ),
            ("a line without end", stream().pieces([b"data: \"".to_vec(), vec![b'x'; MIB]]).forever(), 502, bad),
            ("NUL", events("data: {\"choices\":\0}\n\n"), 502, bad),
            ("invalid UTF-8", stream().pieces([b"data: {\"x\":\"\xff\"}\n\n".to_vec()]), 502, bad),
            ("lone surrogates", events(&good.replace("hé", "\\ud800 hé")), 200, "hé"),
            ("duplicate keys", events(&good.replace("{\"id\":\"x\"", "{\"id\":\"y\",\"id\":\"x\"")), 200, "hé"),
            ("nesting", events(&format!("data: {}\n\n", "[".repeat(100_000))), 502, bad),
            ("gzip unasked", stream().header("content-encoding", "gzip").pieces([gzip(good.as_bytes())]), 502, bad),
            ("reset before content", stream().pieces([b": hi\n\n".to_vec()]).reset(), 502, "upstream_"),
        ],
    );
    let growth = support::resident_kib(gate.pid()).saturating_sub(before);
    println!("hostile streams: resident memory grew by {growth} KiB");
    assert!(growth < MOST_GROWTH_KIB, "memory grew by {growth} KiB");
    upstream.next(events(&format!("{good}data: {{\"late\":1}}\n\n")));
    assert!(!gate.chat(&support::chat_stream("chat-model")).text().contains("late"), "nothing follows [DONE]");
}

#[test]
fn streams_that_break_behind_content_end_in_an_error_event() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let hello = format!("data: {}\n\n", delta("\"hé\"", "null"));
    let stream = || ScriptedResponse::status(200).header("content-type", "text/event-stream");
    let cases: [(&str, ScriptedResponse); 6] = [
        ("an error object", events(&format!("{hello}data: {{\"error\":{{\"message\":\"x\",\"type\":\"server_error\"}}}}\n\n"))),
        ("garbage", events(&format!("{hello}data: {{\"choices\":\n\n"))),
        ("a line without end", stream().pieces([hello.clone().into_bytes(), b"data: \"".to_vec(), vec![b'x'; MIB]]).forever()),
        ("a reset", stream().pieces([hello.clone().into_bytes()]).reset()),
        ("no final chunk", stream().pieces([hello.clone().into_bytes(), Vec::new()]).cut_after(1)),
        ("NUL", events(&format!("{hello}data: \0\n\n"))),
    ];
    for (name, reply) in cases {
        upstream.next(reply);
        let answer = gate.chat(&support::chat_stream("chat-model"));
        assert_eq!((answer.status, answer.whole), (200, false), "{name}: {}", answer.text());
        assert!(answer.text().contains("hé") && answer.text().contains("upstream_stream_interrupted"), "{name}: {}", answer.text());
        let record = gate.record_of(&answer);
        assert_eq!(
            (&record["outcome"], &record["attempts"][0]["result"]),
            (&"upstream_broke".into(), &"broke".into()),
            "{name}: {record}"
        );
    }
}

#[test]
fn nothing_that_follows_a_finish_holds_a_stream() {
    let upstream = Upstream::start();
    let gate = support::builder(&upstream, "cooling = false\nidle_timeout_ms = 1500").spawn();
    let usage = r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"upstream-model","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}"#;
    let answer = format!("data: {}\n\ndata: {}\n\ndata: {usage}\n\n", delta("\"hé\"", "null"), delta("null", "\"stop\""));
    for nothing in [": ping\n\n".to_owned(), format!("data: {}\n\n", delta("\"\"", "null"))] {
        let stream = ScriptedResponse::status(200).header("content-type", "text/event-stream");
        let pieces = [answer.clone().into_bytes(), nothing.clone().into_bytes()];
        upstream.next(stream.pieces(pieces).every(Duration::from_millis(100)).forever());
        let begin = Instant::now();
        let got = gate.chat(&support::chat_stream("chat-model"));
        assert!(begin.elapsed() < Duration::from_secs(10), "{nothing}: {:?}", begin.elapsed());
        assert_eq!((got.status, got.whole), (200, true), "{nothing}: {}", got.text());
        assert!(got.text().ends_with("data: [DONE]\n\n"), "{nothing}: {}", got.text());
    }
}

#[test]
fn usage_that_cannot_be_is_counted_here_and_never_negative() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
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
        upstream.next(ScriptedResponse::status(200).body(text, "application/json"));
        let plain = gate.chat(&support::chat("chat-model"));
        let chunk = format!("data: {}\n\ndata: {}\n\n", delta("\"hello\"", "null"), delta("\"\"", "\"stop\""));
        let last = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "upstream-model", "choices": [], "usage": usage});
        upstream.next(events(&format!("{chunk}data: {last}\n\ndata: [DONE]\n\n")));
        let streamed = gate.chat(&support::chat_stream("chat-model"));
        for answer in [plain, streamed] {
            assert_eq!((answer.status, answer.whole), (200, true), "{usage}: {}", answer.text());
            assert!(answer.text().contains("hello"), "{usage}");
            let record = gate.record_of(&answer);
            assert_eq!(record["outcome"], "completed", "{usage}: {record}");
            let sale = record["sale_nano_usd"].as_i64();
            assert!(sale.is_none_or(|sale| sale >= 0), "{usage}: {record}");
            assert!(sale.is_some() || record["reason"] == "overflow", "{usage}: {record}");
        }
    }
    // Growing, shrinking, twice: the last one that was said counts.
    let said = |input: u64, output: u64| {
        format!(
            "data: {}\n\n",
            json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "upstream-model",
                "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}],
                "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}})
        )
    };
    let stop = format!("data: {}\n\ndata: [DONE]\n\n", delta("\"\"", "\"stop\""));
    upstream.next(events(&[said(5, 1), said(5, 9), said(5, 3), said(5, 3), stop].concat()));
    let record = gate.record_of(&gate.chat(&support::chat_stream("chat-model")));
    assert_eq!((&record["tokens"]["input"], &record["tokens"]["output"]), (&5.into(), &3.into()), "{record}");
}

#[test]
fn a_pause_of_ages_or_of_the_past_is_kept_within_bounds() {
    for (asked, least, most) in
        [("1000000000", 3_500, 3_600), ("Sun, 06 Nov 1994 08:49:37 GMT", 0, 1), ("-5", 0, 10), ("soon", 0, 10)]
    {
        let upstream = Upstream::start();
        let gate = support::builder(&upstream, "").spawn();
        upstream.next(ScriptedResponse::error(429, &json!({"error": {"message": "slow down"}})).header("retry-after", asked));
        let answer = gate.chat(&support::chat("chat-model"));
        let told: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!(answer.status == 429 && (1..=60).contains(&told), "{asked}: {told}");
        let begin = Instant::now();
        let left = loop {
            let output = gate.run(&["explain", "--model", "chat-model", "--key", "caller", "--json"]);
            let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
            if let Some(detail) = explained["excluded"][0]["detail"].as_str() {
                let until: jiff::Timestamp = detail.rsplit(' ').next().unwrap().parse().unwrap();
                break until.duration_since(jiff::Timestamp::now()).as_secs();
            }
            // A pause of a second may be over before anybody looks.
            if least == 0 && begin.elapsed().as_secs() > 2 {
                break 0;
            }
            assert!(begin.elapsed().as_secs() < 10, "{asked}: {explained}");
        };
        assert!((least..=most).contains(&left), "{asked}: {left} s");
    }
}

#[test]
fn an_answer_before_the_request_is_fully_sent_is_an_answer_or_a_502() {
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
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    let mut body = support::chat("chat-model");
    body["messages"][0]["content"] = "x".repeat(8 * MIB).into();
    for _ in 0..5 {
        let answer = gate.chat(&body);
        assert!([413, 502].contains(&answer.status), "{}: {}", answer.status, answer.text());
    }
    assert_eq!(gate.send(&Request::get("/healthz")).status, 200);
}

#[test]
fn an_upstream_that_closes_kept_connections_costs_no_caller_anything() {
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::chat("hello").quits());
    let gate = support::before(&upstream);
    for number in 0..300 {
        let answer = gate.chat(&support::chat("chat-model"));
        assert_eq!(answer.status, 200, "{number}: {}", answer.text());
    }
    let records = gate.records();
    assert!(
        records.iter().all(|record| record["attempts"].as_array().is_some_and(|it| it.len() == 1)),
        "a race lost is no attempt"
    );
}
