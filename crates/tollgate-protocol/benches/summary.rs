//! Cost of request summaries and splices for a short body, a long conversation and an inline image.

use std::{fmt::Write, hint::black_box};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tollgate_protocol::{Framing, Method, Protocol, RequestEdits, Target, codec};

/// An OpenAI body of about `bytes` bytes: English text, partly escaped, and a tool.
fn openai_body(bytes: usize) -> Bytes {
    const SENTENCE: &str = "The quick brown fox jumps over the \\\"lazy\\\" dog,\\n and no one counts the caf\u{e9}s it passes. ";
    let mut body = String::from(r#"{"model":"m","stream":true,"temperature":0.7,"max_tokens":1024,"tools":["#);
    body += r#"{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}"#;
    body += r#"],"messages":[{"role":"system","content":"You are terse."}"#;
    let mut is_user = true;
    while body.len() < bytes {
        let role = if is_user { "user" } else { "assistant" };
        let text = SENTENCE.repeat((bytes - body.len()).div_ceil(SENTENCE.len()).min(12));
        write!(body, r#",{{"role":"{role}","content":"{text}"}}"#).expect("writing to a string cannot fail");
        is_user = !is_user;
    }
    Bytes::from(body + "]}")
}

/// A Gemini body with one inline image of about `bytes` bytes of base64.
fn image_body(bytes: usize) -> Bytes {
    let data = "iVBORw0K".repeat(bytes / 8);
    Bytes::from(format!(
        r#"{{"contents":[{{"role":"user","parts":[{{"text":"what is this?"}},{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}}}]}}]}}"#
    ))
}

fn summaries(criterion: &mut Criterion) {
    let openai = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let gemini = Target { method: Method::Generate, model: Some("m".to_owned()), framing: Framing::Sse };
    let mut group = criterion.benchmark_group("summary");
    for (name, protocol, target, body) in [
        ("openai 500 B", Protocol::OpenAi, &openai, openai_body(500)),
        ("openai 50 KB", Protocol::OpenAi, &openai, openai_body(50_000)),
        ("gemini image 4 MB", Protocol::Gemini, &gemini, image_body(4_000_000)),
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
    for (name, body) in [("openai 500 B", openai_body(500)), ("openai 50 KB", openai_body(50_000))] {
        let codec = codec(Protocol::OpenAi);
        let summary = codec.summarise(&target, &body).expect("well formed");
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| codec.forward_request(black_box(&body), &summary, &edits)));
    }
    group.finish();
}

criterion_group!(benches, summaries, splices);
criterion_main!(benches);
