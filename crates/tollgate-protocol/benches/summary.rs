//! What the light scan of a request costs: a short body as most are, and a long conversation.

use std::{fmt::Write, hint::black_box};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tollgate_protocol::{Framing, Method, Protocol, RequestEdits, Target, codec};

/// A chat body of about so many bytes: English text, some of it escaped, and two tools.
fn chat_body(bytes: usize) -> Bytes {
    const SENTENCE: &str = "The quick brown fox jumps over the \\\"lazy\\\" dog,\\n and nobody counts the caf\u{e9}s it passes. ";
    let mut body = String::from(r#"{"model":"m","stream":true,"temperature":0.7,"max_tokens":1024,"tools":["#);
    body += r#"{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}"#;
    body += r#"],"messages":[{"role":"system","content":"You are terse."}"#;
    let mut asks = true;
    while body.len() < bytes {
        let role = if asks { "user" } else { "assistant" };
        let text = SENTENCE.repeat((bytes - body.len()).div_ceil(SENTENCE.len()).min(12));
        write!(body, r#",{{"role":"{role}","content":"{text}"}}"#).expect("a String takes all");
        asks = !asks;
    }
    Bytes::from(body + "]}")
}

/// A native body with one inline image of so many bytes of base64.
fn image_body(bytes: usize) -> Bytes {
    let data = "iVBORw0K".repeat(bytes / 8);
    Bytes::from(format!(
        r#"{{"contents":[{{"role":"user","parts":[{{"text":"what is this?"}},{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}}}]}}]}}"#
    ))
}

fn summaries(criterion: &mut Criterion) {
    let chat = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let native = Target { method: Method::Generate, model: Some("m".to_owned()), framing: Framing::Sse };
    let mut group = criterion.benchmark_group("outline");
    for (name, protocol, target, body) in [
        ("chat 500 B", Protocol::OpenAi, &chat, chat_body(500)),
        ("chat 50 KB", Protocol::OpenAi, &chat, chat_body(50_000)),
        ("native image 4 MB", Protocol::Gemini, &native, image_body(4_000_000)),
    ] {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| codec(protocol).summarise(target, black_box(&body)).expect("well formed"));
        });
    }
    group.finish();
}

fn splices(criterion: &mut Criterion) {
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let edits = RequestEdits { upstream_model: Some("gpt-x"), force_usage: true, ..RequestEdits::default() };
    let mut group = criterion.benchmark_group("forward");
    for (name, body) in [("chat 500 B", chat_body(500)), ("chat 50 KB", chat_body(50_000))] {
        let codec = codec(Protocol::OpenAi);
        let summary = codec.summarise(&target, &body).expect("well formed");
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| codec.forward_request(black_box(&body), &summary, &edits)));
    }
    group.finish();
}

criterion_group!(benches, summaries, splices);
criterion_main!(benches);
