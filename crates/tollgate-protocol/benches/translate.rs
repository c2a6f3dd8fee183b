//! Cost of translation: a request of 4 KiB, and a streamed reply of 100 events.

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tollgate_protocol::{
    Framing, Method, Profile, Protocol, StreamRelay, Target, TranslateOptions, decode_request, encode_request,
    neutral::ReplyContext, translating_relay,
};

const EVENTS: usize = 100;

fn events(upstream: Protocol) -> Vec<Bytes> {
    let text = |n: usize| match upstream {
        Protocol::OpenAi => format!(
            r#"{{"id":"chatcmpl-x","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{{"index":0,"delta":{{"content":" token{n}"}},"logprobs":null,"finish_reason":null}}],"usage":null}}"#
        ),
        Protocol::Gemini => format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":[{{"text":" token{n}"}}]}},"index":0}}],"usageMetadata":{{"promptTokenCount":40,"candidatesTokenCount":{n},"totalTokenCount":{}}},"modelVersion":"gemini-x","responseId":"abc"}}"#,
            n + 40
        ),
        Protocol::Anthropic => {
            format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":" token{n}"}}}}"#)
        }
        Protocol::Responses => {
            format!(r#"{{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":" token{n}"}}"#)
        }
    };
    let (first, last): (&[&str], &[&str]) = match upstream {
        Protocol::OpenAi => (&[], &[r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#, "[DONE]"]),
        Protocol::Gemini => (&[], &[r#"{"candidates":[{"finishReason":"STOP","index":0}]}"#]),
        Protocol::Anthropic => (
            &[r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#],
            &[
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                r#"{"type":"message_stop"}"#,
            ],
        ),
        Protocol::Responses => {
            (&[], &[r#"{"type":"response.completed","response":{"id":"r","object":"response","status":"completed","output":[]}}"#])
        }
    };
    let first = first.iter().map(|event| (*event).to_owned());
    let last = last.iter().map(|event| (*event).to_owned());
    first.chain((0..EVENTS).map(text)).chain(last).map(|data| Bytes::from(format!("data: {data}\n\n"))).collect()
}

fn streams(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("translate_stream_100_events");
    for (upstream, caller) in [
        (Protocol::Gemini, Protocol::OpenAi),
        (Protocol::OpenAi, Protocol::Gemini),
        (Protocol::Anthropic, Protocol::OpenAi),
        (Protocol::Anthropic, Protocol::Gemini),
        (Protocol::OpenAi, Protocol::Responses),
        (Protocol::Responses, Protocol::OpenAi),
    ] {
        let events = events(upstream);
        group.throughput(Throughput::Elements(EVENTS as u64));
        let context = ReplyContext { stream: true, ..ReplyContext::new("r", 1, "m") };
        group.bench_function(format!("{}_to_{}", upstream.as_str(), caller.as_str()), |bencher| {
            bencher.iter_batched(
                || (translating_relay(upstream, caller, &context), Vec::with_capacity(EVENTS + 4)),
                |(mut relay, mut out): (Box<dyn StreamRelay>, Vec<Bytes>)| {
                    for event in &events {
                        relay.push(event, &mut out).expect("a valid event");
                    }
                    relay.finish(&mut out).expect("a complete answer");
                    out
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// A conversation of about 4 KiB with a tool.
fn conversation() -> String {
    let turn = |role: &str| format!(r#"{{"role":"{role}","content":"{}"}}"#, "No one counts the cups of tea. ".repeat(12));
    let turns: Vec<String> = (0..10).map(|n| turn(if n % 2 == 0 { "user" } else { "assistant" })).collect();
    let tool = r#"{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}"#;
    format!(r#"{{"model":"m","temperature":0.5,"max_tokens":100,"tools":[{tool}],"messages":[{}]}}"#, turns.join(","))
}

fn requests(criterion: &mut Criterion) {
    let body = conversation();
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let (profile, options) =
        (Profile { default_max_tokens: Some(4096), sampling: Some(true), ..Profile::default() }, TranslateOptions::default());
    let mut group = criterion.benchmark_group("translate_request_4_kib");
    group.throughput(Throughput::Bytes(body.len() as u64));
    for upstream in [Protocol::Gemini, Protocol::Anthropic, Protocol::Responses] {
        group.bench_function(format!("openai_to_{}", upstream.as_str()), |bencher| {
            bencher.iter(|| {
                let request = decode_request(Protocol::OpenAi, &target, body.as_bytes()).expect("a valid request");
                encode_request(upstream, &request, "u", &profile, &options).expect("a supported request")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, requests, streams);
criterion_main!(benches);
