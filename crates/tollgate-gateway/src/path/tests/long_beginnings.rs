//! Streams that show the caller little or nothing for a long time although the model works: a long or slow call, hidden reasoning,
//! an echo of a large request.

use serde_json::json;
use tollgate_core::Outcome;

use super::*;

const PROTOCOLS: [Protocol; 4] = [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic, Protocol::Responses];
/// Bytes of a piece of a call.
const PIECE: usize = 16 * 1024;

fn rig(script: Script, upstream: Protocol) -> Rig {
    Rig::with(script, 1, |channel| speaks(channel, upstream))
}

fn asked(rig: &Rig, caller: Protocol) -> Incoming {
    let messages = r#"{"model":"m","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"hello there"}]}"#;
    match caller {
        Protocol::Gemini => {
            rig.native(Method::StreamGenerate, r#"{"contents":[{"role":"user","parts":[{"text":"hello there"}]}]}"#)
        }
        Protocol::OpenAi => rig.incoming(STREAM),
        Protocol::Anthropic => rig.messages(messages),
        Protocol::Responses => rig.responses(r#"{"model":"m","stream":true,"input":"hello there"}"#),
    }
}

fn event(upstream: Protocol, data: &serde_json::Value) -> String {
    match data["type"].as_str() {
        Some(name) if upstream != Protocol::OpenAi => format!("event: {name}\ndata: {data}\n\n"),
        _ => format!("data: {data}\n\n"),
    }
}

/// Makes the event for a piece of the arguments.
type PieceOfCall = Box<dyn Fn(&str) -> serde_json::Value>;

/// The events of an answer that is one call: its beginning, its pieces and its end.
fn call(upstream: Protocol, pieces: usize, bytes: usize) -> (String, Vec<String>, String) {
    let text = "x".repeat(bytes);
    let whole = format!("{{\"x\":\"{}\"}}", text.repeat(pieces));
    let (begin, piece, end): (Vec<_>, PieceOfCall, Vec<_>) = match upstream {
        Protocol::OpenAi => {
            let chunk = |delta: serde_json::Value, finish: serde_json::Value| {
                json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "up-m",
                    "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
            };
            let arguments = move |arguments: &str| {
                chunk(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": arguments } }] }), json!(null))
            };
            let open = json!({ "role": "assistant", "content": null,
                "tool_calls": [{ "index": 0, "id": "c1", "type": "function", "function": { "name": "f", "arguments": "" } }] });
            let begin = vec![chunk(open, json!(null)), arguments("{\"x\":\"")];
            let end = vec![arguments("\"}"), chunk(json!({}), json!("tool_calls"))];
            (begin, Box::new(arguments), end)
        }
        Protocol::Gemini => {
            let part = |call: serde_json::Value| json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "functionCall": call }] }, "index": 0 }] });
            let end = json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "functionCall": {} }] }, "finishReason": "STOP", "index": 0 }],
                "usageMetadata": { "promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5 } });
            let piece = move |text: &str| {
                part(
                    json!({ "partialArgs": [{ "jsonPath": "$.x", "stringValue": text, "willContinue": true }], "willContinue": true }),
                )
            };
            (vec![part(json!({ "id": "c1", "name": "f", "willContinue": true }))], Box::new(piece), vec![end])
        }
        Protocol::Anthropic => {
            let delta = |text: &str| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": text } });
            let begin = vec![
                json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant", "model": "up-m",
                    "content": [], "usage": { "input_tokens": 3, "output_tokens": 1 } } }),
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "tool_use", "id": "c1", "name": "f", "input": {} } }),
                delta("{\"x\":\""),
            ];
            let end = vec![
                delta("\"}"),
                json!({ "type": "content_block_stop", "index": 0 }),
                json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 2 } }),
                json!({ "type": "message_stop" }),
            ];
            (begin, Box::new(delta), end)
        }
        Protocol::Responses => {
            let delta = |text: &str| json!({ "type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": text });
            let item = |arguments: &str, status: &str| json!({ "id": "fc_1", "type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments, "status": status });
            let begin = vec![
                json!({ "type": "response.created", "response": { "id": "resp_x", "status": "in_progress", "output": [] } }),
                json!({ "type": "response.output_item.added", "output_index": 0, "item": item("", "in_progress") }),
                delta("{\"x\":\""),
            ];
            let done = item(&whole, "completed");
            let end = vec![
                delta("\"}"),
                json!({ "type": "response.output_item.done", "output_index": 0, "item": done }),
                json!({ "type": "response.completed", "response": { "id": "resp_x", "object": "response", "status": "completed",
                    "output": [done], "usage": { "input_tokens": 3, "output_tokens": 2, "total_tokens": 5 } } }),
            ];
            (begin, Box::new(delta), end)
        }
    };
    let written = |events: &[serde_json::Value]| events.iter().map(|data| event(upstream, data)).collect::<String>();
    let mut end = written(&end);
    if upstream == Protocol::OpenAi {
        end.push_str("data: [DONE]\n\n");
    }
    (written(&begin), (0..pieces).map(|_| event(upstream, &piece(&text))).collect(), end)
}

#[tokio::test(start_paused = true)]
async fn tool_call_of_two_mebibytes_is_delivered_in_every_direction() {
    for (caller, upstream) in PROTOCOLS.iter().flat_map(|caller| PROTOCOLS.map(|upstream| (*caller, upstream))) {
        let (begin, pieces, end) = call(upstream, 2 * 1024 * 1024 / PIECE, PIECE);
        let pieces = [begin].into_iter().chain(pieces).chain([end]).map(|text| Piece::from(text.as_str())).collect();
        let mut rig = rig(Script::new().streams(pieces), upstream);
        let got = read(serve(&rig.core, asked(&rig, caller)).await).await;
        let beginning = &got.body[..got.body.len().min(300)];
        assert_eq!((got.status, got.aborted), (200, false), "{caller:?} from {upstream:?}: {beginning}");
        assert!(got.body.len() > 2 * 1024 * 1024, "{caller:?} from {upstream:?}: {beginning}");
        assert_eq!(rig.record().outcome, Outcome::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_tool_call_is_delivered_in_every_direction() {
    for (caller, upstream) in PROTOCOLS.iter().flat_map(|caller| PROTOCOLS.map(|upstream| (*caller, upstream))) {
        let (begin, pieces, end) = call(upstream, 150, 4);
        let slow = pieces.iter().flat_map(|piece| [Piece::Wait(2 * SECOND), piece.as_str().into()]);
        let pieces = [Piece::from(begin.as_str())].into_iter().chain(slow).chain([end.as_str().into()]).collect();
        let mut rig = rig(Script::new().streams(pieces), upstream);
        let got = read(serve(&rig.core, asked(&rig, caller)).await).await;
        assert_eq!((got.status, got.aborted), (200, false), "{caller:?} from {upstream:?}: {}", got.body);
        assert_eq!(rig.record().outcome, Outcome::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn messages_caller_gets_headers_and_pings_while_a_tool_call_is_streamed() {
    for upstream in [Protocol::OpenAi, Protocol::Responses] {
        let (begin, pieces, end) = call(upstream, 30, 4);
        let slow = pieces.iter().flat_map(|piece| [Piece::Wait(2 * SECOND), piece.as_str().into()]);
        let pieces = [Piece::from(begin.as_str())].into_iter().chain(slow).chain([end.as_str().into()]).collect();
        let mut rig = rig(Script::new().streams(pieces), upstream);
        let began = tokio::time::Instant::now();
        let response = serve(&rig.core, asked(&rig, Protocol::Anthropic)).await;
        assert!(began.elapsed() < SECOND, "the headers are sent at once: {:?}", began.elapsed());
        let got = read(response).await;
        assert!(got.body.starts_with("event: message_start\n"), "{}", got.body);
        let pings = got.body.matches("event: ping").count();
        assert!(pings >= 2, "{pings} pings: {}", got.body);
        assert_eq!(got.body.matches("input_json_delta").count(), 1, "the call comes in one piece: {}", got.body);
        rig.record();
    }
}

#[tokio::test(start_paused = true)]
async fn hidden_reasoning_counts_as_progress() {
    let chunk = |delta: serde_json::Value| {
        let data = json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "up-m",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
        Piece::from(event(Protocol::OpenAi, &data).as_str())
    };
    let mut pieces = vec![role()];
    pieces.extend((0..100).flat_map(|_| [Piece::Wait(2 * SECOND), chunk(json!({ "reasoning_content": "y".repeat(PIECE) }))]));
    pieces.extend([chunk(json!({ "content": "hi" })), tail()]);
    let mut rig = rig(Script::new().streams(pieces), Protocol::OpenAi);
    let got = read(serve(&rig.core, asked(&rig, Protocol::Anthropic)).await).await;
    assert!(got.status == 200 && got.body.contains("\"text\":\"hi\"") && !got.body.contains("yy"), "{}", got.body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn hidden_reasoning_without_an_early_answer_ends_at_the_total_limit() {
    let thought = json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "up-m",
        "choices": [{ "index": 0, "delta": { "reasoning_content": "y" }, "finish_reason": null }] });
    let thought = event(Protocol::OpenAi, &thought);
    for (answer_after, status, secs, reason) in [(0, 504, 600, Some("E51")), (30, 200, 800, None)] {
        let thoughts = (0..400).flat_map(|_| [Piece::Wait(2 * SECOND), thought.as_str().into()]);
        let pieces = [role()].into_iter().chain(thoughts).chain([tail()]).collect();
        let mut rig = rig(Script::new().streams(pieces), Protocol::OpenAi);
        let mut incoming = asked(&rig, Protocol::Anthropic);
        incoming.head.settings.upstream.answer_after = SECOND * answer_after;
        let began = tokio::time::Instant::now();
        let got = read(serve(&rig.core, incoming).await).await;
        assert_eq!(got.status, status, "{}", got.body);
        assert!((secs - 1..=secs + 2).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        assert_eq!(rig.record().reason.as_deref(), reason);
    }
}

#[tokio::test(start_paused = true)]
async fn undelivered_arguments_of_a_broken_tool_call_are_not_charged() {
    let output = |caller: Protocol, pieces: usize| async move {
        let (begin, pieces, _) = call(Protocol::OpenAi, pieces, 400);
        let pieces = [begin].iter().chain(&pieces).map(|text| Piece::from(text.as_str())).chain([Piece::Break]).collect();
        let mut rig = rig(Script::new().streams(pieces), Protocol::OpenAi);
        let got = read(serve(&rig.core, asked(&rig, caller)).await).await;
        assert_eq!(got.status, 200, "{}", got.body);
        rig.record().tokens.output
    };
    assert_eq!(output(Protocol::Anthropic, 1).await, output(Protocol::Anthropic, 40).await, "the call was never written");
    assert!(output(Protocol::OpenAi, 40).await > output(Protocol::OpenAi, 1).await + 1_000, "each piece was written");
}

#[tokio::test(start_paused = true)]
async fn echoed_long_instructions_do_not_exceed_the_prelude_limit() {
    let instructions = "z".repeat(600_000);
    let body = json!({ "model": "m", "stream": true, "instructions": instructions, "input": "hello there" }).to_string();
    let (begin, pieces, end) = call(Protocol::Responses, 2, 4);
    let echo = |name: &str| {
        let response = json!({ "id": "resp_x", "status": "in_progress", "instructions": instructions, "output": [] });
        Piece::from(event(Protocol::Responses, &json!({ "type": name, "response": response })).as_str())
    };
    for caller in [Protocol::Responses, Protocol::OpenAi] {
        let events = ["response.created", "response.queued", "response.in_progress"].map(echo);
        let call = [begin.clone()].into_iter().chain(pieces.clone()).chain([end.clone()]);
        let pieces = events.into_iter().chain(call.map(|text| Piece::from(text.as_str()))).collect();
        let mut rig = rig(Script::new().streams(pieces), Protocol::Responses);
        let chat = json!({ "model": "m", "stream": true, "messages": [{ "role": "system", "content": instructions },
            { "role": "user", "content": "hi" }] });
        let incoming = if caller == Protocol::OpenAi { rig.incoming(&chat.to_string()) } else { rig.responses(&body) };
        let got = read(serve(&rig.core, incoming).await).await;
        assert_eq!((got.status, got.aborted), (200, false), "{caller:?}: {}", &got.body[..got.body.len().min(300)]);
        rig.record();
    }
}
