//! Streams: bytes, usage, breaks, callers who leave.

use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_testkit::{Latch, Request, ScriptedResponse, Upstream};

use crate::support;

#[test]
fn a_stream_hides_the_usage_the_caller_did_not_ask_for_and_records_it() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let answer = gate.chat(&support::chat_stream("chat-model"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert!(answer.whole);
    assert!(!answer.text().contains("usage"), "{}", answer.text());
    assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
    assert_eq!(upstream.seen()[0].json()["stream_options"]["include_usage"], true);
    let record = gate.record_of(&answer);
    assert_eq!((record["tokens"]["input"].as_u64(), record["tokens"]["output"].as_u64()), (Some(5), Some(7)));
    assert_eq!(record["outcome"], "completed");
    assert!(record["ttft_us"].as_u64().is_some_and(|us| us > 0));
}

#[test]
fn a_caller_who_asks_for_usage_gets_the_upstreams_bytes() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let mut body = support::chat_stream("chat-model");
    body["stream_options"] = json!({"include_usage": true});
    let answer = gate.chat(&body);
    assert!(answer.text().contains("\"total_tokens\":12"), "{}", answer.text());
}

#[test]
fn native_streams_come_as_events_or_as_an_array() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let events = gate.native("native-model", "streamGenerateContent?alt=sse", &support::native());
    assert_eq!(events.status, 200);
    assert!(!events.text().contains('\r') && !events.text().contains("[DONE]"), "{:?}", events.text());
    assert_eq!(events.events().len(), 2);
    let array = gate.native("native-model", "streamGenerateContent", &support::native());
    assert_eq!(array.header("content-type").map(str::to_ascii_lowercase), Some("application/json; charset=utf-8".to_owned()));
    assert_eq!(array.json().as_array().unwrap().len(), 2, "{}", array.text());
    assert!(upstream.seen().iter().all(|seen| seen.line.ends_with(":streamGenerateContent?alt=sse")));
}

#[test]
fn the_first_piece_reaches_the_caller_before_the_second_is_sent() {
    let upstream = Upstream::start();
    let hold = Latch::default();
    upstream.next(ScriptedResponse::chat_stream(&["one", "two"]).wait_after(2, &hold));
    let gate = support::before(&upstream);
    let mut open = gate.open(&Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gate.key()));
    let head = open.head().unwrap();
    let mut text = String::new();
    while !text.contains("one") {
        text += &String::from_utf8_lossy(&open.piece(&head).unwrap().expect("the stream goes on"));
    }
    assert!(!text.contains("two"), "{text}");
    hold.open();
    while let Some(piece) = open.piece(&head).unwrap() {
        text += &String::from_utf8_lossy(&piece);
    }
    assert!(text.contains("two") && text.contains("[DONE]"), "{text}");
}

#[test]
fn a_stream_cut_in_the_middle_ends_with_the_error_event_and_an_abort() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    upstream.next(ScriptedResponse::chat_stream(&["hello", "world"]).cut_after(2));
    let answer = gate.chat(&support::chat_stream("chat-model"));
    assert_eq!(answer.status, 200);
    assert!(!answer.whole, "the body must not end as if all were well");
    let last: serde_json::Value = serde_json::from_str(answer.events().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "upstream_stream_interrupted");
    assert!(!answer.text().contains("[DONE]"));
    let record = gate.record_of(&answer);
    assert_eq!((record["outcome"].as_str(), record["reason"].as_str()), (Some("upstream_broke"), Some("E59")));

    upstream.next(ScriptedResponse::native_stream(&["hello", "world"]).cut_after(1));
    let answer = gate.native("native-model", "streamGenerateContent?alt=sse", &support::native());
    assert!(!answer.whole);
    let last = answer.events().last().unwrap().clone();
    assert!(last.starts_with("{\"error\":{\"code\":502"), "{last}");
}

#[test]
fn a_stream_that_breaks_before_its_content_is_an_ordinary_error() {
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::chat_stream(&["hello"]).cut_after(1));
    let gate = support::before(&upstream);
    let answer = gate.chat(&support::chat_stream("chat-model"));
    assert_eq!(answer.status, 502, "{}", answer.text());
    let record = gate.record_of(&answer);
    assert_eq!(record["sale_nano_usd"], 0);
}

#[test]
fn silence_in_the_middle_ends_after_the_idle_limit() {
    let upstream = Upstream::start();
    upstream.next(ScriptedResponse::chat_stream(&["hello", "world"]).stall_after(2));
    let gate = support::builder(&upstream, "idle_timeout_ms = 1500").spawn();
    let answer = gate.chat(&support::chat_stream("chat-model"));
    assert!(!answer.whole);
    let last: serde_json::Value = serde_json::from_str(answer.events().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "upstream_timeout");
    assert_eq!(gate.record_of(&answer)["reason"], "E60");
}

#[test]
fn a_silent_stream_is_kept_alive_in_the_form_of_its_protocol() {
    let upstream = Upstream::start();
    let gate = support::builder(&upstream, "").env("TOLLGATE_UPSTREAM__KEEP_ALIVE_MS", "100").spawn();
    upstream.next(ScriptedResponse::chat_stream(&["one", "two"]).every(Duration::from_millis(350)));
    let answer = gate.chat(&support::chat_stream("chat-model"));
    assert!(answer.text().contains(": keep-alive\n\n"), "{}", answer.text());
    upstream.next(ScriptedResponse::native_stream(&["one", "two"]).every(Duration::from_millis(350)));
    let answer = gate.native("native-model", "streamGenerateContent?alt=sse", &support::native());
    assert!(answer.text().contains("\n\n\n\n") && !answer.text().contains("\n:"), "{:?}", answer.text());
}

#[test]
fn the_upstream_is_closed_when_the_caller_leaves_streaming_or_not() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let mut waits = Vec::new();
    for streamed in [true, false] {
        let before = upstream.seen().len();
        let (reply, body) = if streamed {
            (ScriptedResponse::chat_stream(&["hello", "world"]).stall_after(2), support::chat_stream("chat-model"))
        } else {
            (ScriptedResponse::chat("never").after(Duration::from_secs(30)), support::chat("chat-model"))
        };
        upstream.next(reply);
        let mut open = gate.open(&Request::post("/v1/chat/completions", &body).bearer(gate.key()));
        upstream.wait_for("the request", |seen| seen.len() > before);
        if streamed {
            let answer = open.head().unwrap();
            assert!(open.piece(&answer).unwrap().is_some());
        }
        let left = Instant::now();
        open.leave();
        upstream.wait_for("the gateway closing", |seen| seen[before].left_at.is_some());
        waits.push(upstream.seen()[before].left_at.unwrap() - left);
    }
    // The promise is 100 ms; a busy test machine says nothing about that, so the figure is printed, and only an upstream
    // that was left running fails.
    println!("closed after the caller left: {waits:?}");
    assert!(waits.iter().all(|wait| *wait < Duration::from_secs(5)), "{waits:?}");
    let left = gate
        .wait_for_record("record of a caller who left", |record| record["outcome"] == "caller_left" && record["stream"] == true);
    assert!(left["tokens"]["output"].as_u64().is_some_and(|tokens| tokens > 0), "{left}");
    let _ = gate.wait_for_record("record of the other one", |record| {
        record["outcome"] == "caller_left" && record["stream"] == false && record["status"] == 499
    });
}

#[test]
fn missing_usage_is_counted_here_and_said_so() {
    let upstream = Upstream::start();
    upstream.next(ScriptedResponse::json(&json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "upstream-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "twelve words"}, "finish_reason": "stop"}],
    })));
    let gate = support::before(&upstream);
    let answer = gate.chat(&support::chat("chat-model"));
    assert!(answer.json().get("usage").is_none(), "no usage from upstream, none to the caller");
    let record = gate.record_of(&answer);
    assert_eq!(record["tokens"]["source"], "counted");
    assert!(record["tokens"]["output"].as_u64().is_some_and(|tokens| tokens > 0));
}
