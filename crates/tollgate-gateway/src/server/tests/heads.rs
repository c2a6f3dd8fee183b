//! Valid and invalid request heads.

use super::*;

/// Bytes sent on one connection, and the statuses of all responses before it closes.
struct Row {
    name: &'static str,
    sent: String,
    statuses: &'static [u16],
}

fn row(name: &'static str, sent: impl Into<String>, statuses: &'static [u16]) -> Row {
    Row { name, sent: sent.into(), statuses }
}

fn get(lines: &str) -> String {
    format!("GET /healthz HTTP/1.1\r\n{lines}Connection: close\r\n\r\n")
}

fn post(lines: &str, body: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n{lines}\r\n{body}")
}

async fn check(rows: Vec<Row>) {
    let gate = Gate::open(Settings::default());
    for row in rows {
        let answer = gate.say(&row.sent).await;
        assert_eq!(statuses(&answer), row.statuses, "{}: {answer}", row.name);
        let alive = gate.say(get("Host: x\r\n")).await;
        assert_eq!(statuses(&alive), [200], "after {}", row.name);
    }
    gate.close().await;
}

#[tokio::test]
async fn host_and_request_line_are_checked() {
    check(vec![
        row("plain", get("Host: x\r\n"), &[200]),
        row("no host", get(""), &[400]),
        row("two hosts", get("Host: x\r\nHost: x\r\n"), &[400]),
        row("host with blanks", get("Host: a b\r\n"), &[400]),
        row("empty host", get("Host:\r\n"), &[400]),
        row("no host in 1.0", "GET /healthz HTTP/1.0\r\n\r\n", &[200]),
        row("blank before colon", get("Host: x\r\nX-A : 1\r\n"), &[400]),
        row("folded line", get("Host: x\r\nX-A: 1\r\n 2\r\n"), &[400]),
        row("blank in name", get("Host: x\r\nX A: 1\r\n"), &[400]),
        row("nul in name", get("Host: x\r\nX\0A: 1\r\n"), &[400]),
        row("control in value", get("Host: x\r\nX-A: \u{1}\r\n"), &[400]),
        row("bare return", get("Host: x\r\nX-A: a\rX-B: 1\r\n"), &[400]),
        row("garbage, then a request", format!("GARBAGE\r\n\r\n{}", get("Host: x\r\n")), &[400]),
        row("no such version", "GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n", &[400]),
        row("a TLS greeting", "\u{16}\u{3}\u{1}\u{0}\u{c8}\u{1}\u{0}\u{0}\r\n\r\n", &[400]),
        row("lower-case method", "post /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &[405]),
        row("CONNECT", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", &[405]),
        row("OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &[404]),
        row("upgrade is not taken", get("Host: x\r\nUpgrade: h2c\r\n"), &[200]),
        row("absolute form", "GET http://x/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &[200]),
    ])
    .await;
}

#[tokio::test]
async fn framing_is_checked() {
    let smuggled = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    check(vec![
        row(
            "encoding and length",
            post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", &format!("0\r\n\r\n{smuggled}")),
            &[400],
        ),
        row(
            "length and encoding",
            post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", &format!("0\r\n\r\n{smuggled}")),
            &[400],
        ),
        row("the same length twice", post("Content-Length: 2\r\nContent-Length: 2\r\n", &format!("{{}}{smuggled}")), &[400]),
        row(
            "encoding and length behind an empty line",
            format!("\r\n{}", post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", &format!("0\r\n\r\n{smuggled}"))),
            &[400],
        ),
        row(
            "encoding and length in a second request of the same packet",
            format!("{smuggled}{}", post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", &format!("0\r\n\r\n{smuggled}"))),
            &[200, 400],
        ),
        row(
            "the same length twice behind a request with a body",
            format!(
                "{}{}",
                post("Content-Length: 2\r\n", "{}"),
                post("Content-Length: 2\r\nContent-Length: 2\r\n", &format!("{{}}{smuggled}"))
            ),
            &[200, 400],
        ),
        row("chunked twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), &[400]),
        row("two lengths", post("Content-Length: 2\r\nContent-Length: 3\r\n", "{} "), &[400]),
        row("list of lengths", post("Content-Length: 2, 2\r\n", "{}"), &[400]),
        row("negative length", post("Content-Length: -1\r\n", "{}"), &[400]),
        row("length with sign", post("Content-Length: +2\r\n", "{}"), &[400]),
        row("empty length", post("Content-Length:\r\n", "{}"), &[400]),
        row("identity", post("Transfer-Encoding: identity\r\n", "{}"), &[400]),
        row("compressed chunks", post("Transfer-Encoding: gzip, chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), &[400]),
        row(
            "compressed chunks in two lines",
            post("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"),
            &[400],
        ),
        row("quoted encoding", post("Transfer-Encoding: \"chunked\"\r\n", "{}"), &[400]),
        row("encoding with parameter", post("Transfer-Encoding: chunked;foo\r\n", "{}"), &[400]),
        row("encoding in 1.0", "POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[400]),
        row("junk as chunk size", post("Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"), &[400]),
        row("chunk size too large", post("Transfer-Encoding: chunked\r\n", "FFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n"), &[400]),
        row("chunk without its end", post("Transfer-Encoding: chunked\r\n", "2\r\n{}XX0\r\n\r\n"), &[400]),
        row(
            "chunks are joined",
            post("Transfer-Encoding: chunked\r\nConnection: close\r\n", "1;ext=1\r\n{\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n"),
            &[200],
        ),
    ])
    .await;
}

#[tokio::test]
async fn head_sizes_are_limited() {
    let fields = |count: usize| (0..count).map(|n| format!("X-{n}: 1")).collect::<Vec<_>>().join("\r\n") + "\r\n";
    check(vec![
        row("long target", format!("GET /healthz?{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "q".repeat(9_000)), &[414]),
        row("very long target", format!("GET /healthz?{} HTTP/1.1\r\nHost: x\r\n\r\n", "q".repeat(70_000)), &[414]),
        row("large head", get(&format!("Host: x\r\nX-A: {}\r\n", "a".repeat(65_000))), &[200]),
        row("too large a head", get(&format!("Host: x\r\nX-A: {}\r\n", "a".repeat(70_000))), &[431]),
        row("far too large a head", get(&format!("Host: x\r\nX-A: {}\r\n", "a".repeat(1_000_000))), &[431]),
        row("98 fields", get(&format!("Host: x\r\n{}", fields(98))), &[200]),
        row("101 fields", get(&format!("Host: x\r\n{}", fields(101))), &[431]),
        row("empty lines without end", "\r\n".repeat(200_000), &[431]),
    ])
    .await;
}

#[tokio::test]
async fn refusals_use_the_protocol_of_their_path() {
    let gate = Gate::open(Settings::default());
    for (target, openai) in [
        ("/v1/nothing", true),
        ("/foo", true),
        ("/v1beta/nothing", false),
        ("/v1/models/m:nothing", false),
        ("/v1/chat/completions?x=", true),
    ] {
        let answer = gate.say(format!("POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.contains("content-type: application/json; charset=utf-8\r\n"), "{answer}");
        assert!(answer.contains("x-request-id: req_"), "{answer}");
        assert_eq!(answer.contains("\"details\""), !openai, "{target}: {answer}");
        assert_eq!(answer.contains("\"param\""), openai, "{target}: {answer}");
    }
    let answer = gate.say("POST /chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(answer.contains("Did you mean /v1/chat/completions?"), "{answer}");
    gate.close().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let gate = Gate::open(Settings::default());
    let mut caller = gate.connect().await;
    for length in [0, 1, 3] {
        caller.send(chat("", &"x".repeat(length))).await;
        let answer = caller.until(&format!("length {length}")).await;
        assert_eq!(statuses(&answer), [200]);
    }
    let pipelined = [chat("", "1"), chat("", "22"), chat("Connection: close\r\n", "333")].concat();
    caller.send(pipelined).await;
    let answers = caller.rest().await;
    assert_eq!(statuses(&answers), [200, 200, 200]);
    let places = ["length 1", "length 2", "length 3"].map(|text| answers.find(text).unwrap());
    assert!(places.is_sorted(), "{answers}");
    gate.close().await;
}

#[tokio::test]
async fn head_request_gets_no_body() {
    let gate = Gate::open(Settings::default());
    for target in ["/healthz", "/v1/chat/completions", "/v1beta/models"] {
        let answer = gate.say(format!("HEAD {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.ends_with("\r\n\r\n") && !answer.contains('{'), "{answer}");
    }
    gate.close().await;
}

#[tokio::test]
async fn only_an_authenticated_caller_gets_100_continue() {
    let gate = Gate::open(Settings::default());
    let mut caller = gate.connect().await;
    let request = chat("Expect: 100-continue\r\nConnection: close\r\n", "12345");
    let (head, body) = request.split_at(request.len() - 5);
    caller.send(head).await;
    assert_eq!(statuses(&caller.until("\r\n\r\n").await), [100]);
    caller.send(body).await;
    assert!(caller.rest().await.ends_with("length 5"));

    let mut unknown = gate.connect().await;
    unknown.send(head.replace(SECRET, "unknown-key-0123456789ab")).await;
    assert_eq!(statuses(&unknown.rest().await), [401]);
    gate.close().await;
}

#[tokio::test]
async fn status_endpoints_are_served() {
    let gate = Gate::open(Settings::default());
    for (target, found) in [
        ("/healthz", r#"{"status":"ok"}"#),
        ("/readyz", r#"{"status":"ready"}"#),
        ("/version", r#"{"name":"tollgate","version":""#),
        ("/metrics", "tollgate_connections 1\n"),
    ] {
        let answer = gate.say(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(found), "{target}: {answer}");
    }
    let rebound = gate.say("GET /metrics HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n").await;
    assert!(!rebound.contains("tollgate_connections"), "{rebound}");
    gate.shared.serving.set_degraded(true);
    assert!(gate.say("GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.contains("200 OK"));
    gate.shared.serving.set_without_catalog(true);
    assert!(gate.say("GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.contains(r#"{"status":"starting"}"#));
    gate.close().await;
}

#[tokio::test]
async fn panic_becomes_an_error_response_of_one_request() {
    let gate = Gate::open(Settings::default());
    let mut caller = gate.connect().await;
    caller.send(chat("X-Script: panic\r\n", "")).await;
    let answer = caller.until("to the operator.").await;
    let id = answer.split("x-request-id: ").nth(1).and_then(|rest| rest.get(..30)).unwrap();
    assert_eq!(statuses(&answer), [500]);
    assert!(answer.contains(&format!("Quote request id {id} ")), "{answer}");
    let broken = gate.say(chat("X-Script: panic midway\r\n", "")).await;
    assert!(statuses(&broken) == [200] && broken.ends_with("5\r\npiece\r\n"), "bytes before the fault arrive: {broken}");
    assert_eq!(statuses(&gate.say(chat("Connection: close\r\n", "")).await), [200]);
    gate.quiet().await;
    gate.close().await;
}
