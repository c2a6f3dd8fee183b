//! Invalid and hostile answers of upstreams whose protocol differs from the caller's: each gives the documented error in the
//! caller's protocol, and a broken stream never ends like a complete one.

use tollgate_core::Outcome;

use super::*;

/// Caller and upstream.
const PAIRS: [(Protocol, Protocol); 12] = [
    (Protocol::OpenAi, Protocol::Gemini),
    (Protocol::OpenAi, Protocol::Anthropic),
    (Protocol::Gemini, Protocol::OpenAi),
    (Protocol::Gemini, Protocol::Anthropic),
    (Protocol::Anthropic, Protocol::OpenAi),
    (Protocol::Anthropic, Protocol::Gemini),
    (Protocol::Responses, Protocol::OpenAi),
    (Protocol::Responses, Protocol::Gemini),
    (Protocol::Responses, Protocol::Anthropic),
    (Protocol::OpenAi, Protocol::Responses),
    (Protocol::Gemini, Protocol::Responses),
    (Protocol::Anthropic, Protocol::Responses),
];
const GENERATE: &str = r#"{"contents":[{"role":"user","parts":[{"text":"hello there"}]}]}"#;

fn rig(script: Script, upstream: Protocol) -> Rig {
    Rig::with(script, 1, |channel| {
        speaks(channel, upstream);
        channel.spec.cooling = false;
    })
}

fn message(streams: bool) -> String {
    format!(r#"{{"model":"m","max_tokens":50,"stream":{streams},"messages":[{{"role":"user","content":"hello there"}}]}}"#)
}

async fn ask(rig: &Rig, caller: Protocol, streams: bool) -> Got {
    let incoming = match caller {
        Protocol::Gemini => rig.native(if streams { Method::StreamGenerate } else { Method::Generate }, GENERATE),
        Protocol::OpenAi => rig.incoming(if streams { STREAM } else { CHAT }),
        Protocol::Anthropic => rig.messages(&message(streams)),
        Protocol::Responses => rig.responses(&format!(r#"{{"model":"m","stream":{streams},"input":"hello there"}}"#)),
    };
    read(serve(&rig.core, incoming).await).await
}

/// The error code in an error of the caller's protocol. Checks that it is an error of that protocol alone.
fn fault_of(caller: Protocol, error: &serde_json::Value) -> String {
    let word = match caller {
        Protocol::Gemini => {
            assert!(error["error"]["status"].is_string() && error["error"]["details"].is_array(), "{error}");
            error["error"]["details"][0]["reason"].as_str().unwrap().to_ascii_lowercase()
        }
        Protocol::Anthropic => {
            assert!(error["type"] == "error" && error["request_id"].is_string() && error["error"].get("code").is_none(), "{error}");
            error["error"]["type"].as_str().unwrap().to_owned()
        }
        Protocol::OpenAi | Protocol::Responses => {
            assert!(error["error"].get("status").is_none() && error["error"].get("param").is_some(), "{error}");
            error["error"]["code"].as_str().unwrap().to_owned()
        }
    };
    assert!(!error.to_string().contains("secret"), "the upstream's text is not disclosed: {error}");
    word
}

/// How an error is called in the caller's protocol.
fn called(caller: Protocol, word: &'static str) -> &'static str {
    match (caller, word) {
        (Protocol::Anthropic, "upstream_overloaded") => "overloaded_error",
        (Protocol::Anthropic, "upstream_rate_limited") => "rate_limit_error",
        (Protocol::Anthropic, "upstream_timeout") => "timeout_error",
        (Protocol::Anthropic, _) => "api_error",
        (Protocol::OpenAi | Protocol::Gemini | Protocol::Responses, word) => word,
    }
}

/// Invalid complete answers, with the expected status and error code.
fn invalid_answers(upstream: Protocol) -> Vec<(Vec<Piece>, u16, &'static str)> {
    let half: &str = match upstream {
        Protocol::OpenAi => r#"{"choices":[{"index":0,"message":{"content":"secret"#,
        Protocol::Gemini => r#"{"candidates":[{"content":{"parts":[{"text":"secret"#,
        Protocol::Anthropic => r#"{"type":"message","content":[{"type":"text","text":"secret"#,
        Protocol::Responses => {
            r#"{"object":"response","output":[{"type":"message","content":[{"type":"output_text","text":"secret"#
        }
    };
    let others: &str = match upstream {
        Protocol::OpenAi => r#"{"candidates":[{"content":{"parts":[{"text":"secret"}]},"finishReason":"STOP"}]}"#,
        Protocol::Gemini | Protocol::Anthropic | Protocol::Responses => {
            r#"{"choices":[{"index":0,"message":{"content":"secret"},"finish_reason":"stop"}]}"#
        }
    };
    let bad = "upstream_bad_response";
    let mut cases = vec![
        (vec![], 502, bad),
        (vec!["<!doctype html><p>secret".into()], 502, bad),
        (vec![half.into()], 502, bad),
        (vec![half.into(), Piece::Break], 502, bad),
        (vec![others.into()], 502, bad),
        (vec!["null".into()], 502, bad),
        (vec!["[]".into()], 502, bad),
        (vec!["{}".into()], 502, bad),
        (vec![r#"{"choices":null,"candidates":null,"content":null}"#.into()], 502, bad),
        (vec![r#"{"choices":[],"candidates":[],"content":[]}"#.into()], 502, bad),
        (vec![Piece::from("{\"a\":".repeat(100_000).as_str())], 502, bad),
        (
            vec![r#"{"error":{"message":"secret","code":503,"status":"UNAVAILABLE","type":"overloaded_error"}}"#.into()],
            503,
            "upstream_overloaded",
        ),
        (vec![r#"{"error":{"message":"secret"}}"#.into()], 502, "upstream_error"),
    ];
    let piece = Piece::Data(Bytes::from(vec![b' '; 1 << 20]));
    cases.push((vec![piece; 66], 502, bad));
    cases
}

#[tokio::test(start_paused = true)]
async fn invalid_complete_answer_is_an_error_of_the_callers_protocol() {
    for (caller, upstream) in PAIRS {
        for (number, (pieces, status, word)) in invalid_answers(upstream).into_iter().enumerate() {
            let mut rig = rig(Script::new().answers(200, &[("content-type", "application/json")], pieces), upstream);
            let got = ask(&rig, caller, false).await;
            let shown = format!("{caller:?} from {upstream:?}, case {number}: {}", got.body);
            assert_eq!((got.status, got.aborted), (status, false), "{shown}");
            assert_eq!(fault_of(caller, &serde_json::from_str(&got.body).unwrap()), called(caller, word), "{shown}");
            assert_eq!(rig.record().outcome, Outcome::UpstreamBroke, "{shown}");
        }
    }
}

/// The first events of an answer.
fn first_events(upstream: Protocol) -> Vec<Piece> {
    match upstream {
        Protocol::OpenAi => vec![role(), chunk("hello")],
        Protocol::Responses => vec![
            "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"item_id\":\"i\",\"delta\":\"hello\"}\n\n".into(),
        ],
        Protocol::Gemini => {
            vec!["data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"hello\"}]},\"index\":0}]}\n\n".into()]
        }
        Protocol::Anthropic => vec![
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"a\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":\"c\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n".into(),
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n".into(),
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n".into(),
        ],
    }
}

#[tokio::test(start_paused = true)]
async fn broken_stream_ends_with_an_error_of_the_callers_protocol() {
    let breaks: Vec<Vec<Piece>> = vec![
        vec![Piece::Break],
        vec![],
        vec!["data: {\"half\":".into()],
        vec!["data: not json\n\n".into()],
        vec!["data: [1,2\n\n".into()],
        vec![
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"secret\"}}\n\n".into(),
        ],
        vec!["data: {\"error\":{\"message\":\"secret\",\"code\":500}}\n\n".into()],
        vec!["data: [DONE]\n\n".into()],
        vec![Piece::Data(Bytes::from_static(b"data: \xff\xfe{\n\n"))],
        vec!["data: {\"a\":".into(), Piece::Data(Bytes::from(vec![b'x'; 17 << 20]))],
    ];
    for (caller, upstream) in PAIRS {
        for (number, end) in breaks.iter().enumerate() {
            let pieces = first_events(upstream).into_iter().chain(end.iter().cloned()).collect();
            let mut rig = rig(Script::new().streams(pieces), upstream);
            let got = ask(&rig, caller, true).await;
            let shown = format!("{caller:?} from {upstream:?}, case {number}: {}", got.body);
            assert_eq!((got.status, got.aborted), (200, caller.spec().aborts_broken_streams), "{shown}");
            assert!(got.body.contains("hello") && !got.body.contains("[DONE]") && !got.body.contains("secret"), "{shown}");
            assert!(!got.body.contains("\"finish_reason\":\"stop\"") && !got.body.contains("\"finishReason\""), "{shown}");
            for end in ["message_stop", "response.completed", "response.incomplete"] {
                assert!(!got.body.contains(end), "{shown}");
            }
            assert_eq!(got.body.contains("event: response.failed"), caller == Protocol::Responses, "{shown}");
            let last = got.body.trim_end().rsplit("data: ").next().unwrap();
            let (code, id) = if number == 5 { ("upstream_overloaded", "E56") } else { ("upstream_stream_interrupted", "E59") };
            assert_eq!(fault_of(caller, &serde_json::from_str(last).unwrap()), called(caller, code), "{shown}");
            let record = rig.record();
            assert_eq!((record.outcome, record.reason.as_deref()), (Outcome::UpstreamBroke, Some(id)), "{shown}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stream_without_content_is_an_http_error() {
    let endless = || vec![Piece::from(": ping\n\n"), Piece::Stall];
    let nothing: Vec<(Vec<Piece>, u16, &str)> = vec![
        (vec![], 502, "upstream_bad_response"),
        (vec!["data: [DONE]\n\n".into()], 502, "upstream_bad_response"),
        (vec!["data: {}\n\n".into()], 502, "upstream_bad_response"),
        (vec!["data: 7\n\n".into()], 502, "upstream_bad_response"),
        (vec!["<!doctype html><p>secret".into()], 502, "upstream_bad_response"),
        (vec!["data: {\"error\":{\"message\":\"secret\",\"code\":429}}\n\n".into()], 429, "upstream_rate_limited"),
        (endless(), 504, "upstream_timeout"),
    ];
    for (caller, upstream) in PAIRS {
        for (number, (pieces, status, word)) in nothing.iter().enumerate() {
            let mut rig = rig(Script::new().streams(pieces.clone()), upstream);
            let got = ask(&rig, caller, true).await;
            let shown = format!("{caller:?} from {upstream:?}, case {number}: {}", got.body);
            assert_eq!((got.status, got.aborted), (*status, false), "{shown}");
            assert_eq!(fault_of(caller, &serde_json::from_str(&got.body).unwrap()), called(caller, word), "{shown}");
            rig.record();
        }
    }
}
