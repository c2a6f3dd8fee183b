//! Cost of relaying a streamed reply without translation: 100 events, each in its own chunk.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tollgate_protocol::{Framing, Method, Protocol, ReplyEdits, codec};

const EVENTS: usize = 100;

fn openai_stream(end: &str) -> Vec<Bytes> {
    let event = |delta: &str, finish: &str| {
        Bytes::from(format!(
            "data: {{\"id\":\"chatcmpl-9\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-x\",\"choices\":\
             [{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}],\"usage\":null}}{end}"
        ))
    };
    let mut all = vec![event("{\"content\":\"Hello, world of words \"}", "null"); EVENTS - 2];
    all.push(event("{}", "\"stop\""));
    all.push(Bytes::from(format!("data: [DONE]{end}")));
    all
}

fn gemini_stream(end: &str) -> Vec<Bytes> {
    let event = |rest: &str| {
        Bytes::from(format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"Hello, world of words \"}}],\"role\":\"model\"}},\"index\":0{rest}}}],\
             \"usageMetadata\":{{\"promptTokenCount\":11,\"candidatesTokenCount\":7,\"totalTokenCount\":18}},\"modelVersion\":\"m\"}}{end}"
        ))
    };
    let mut all = vec![event(""); EVENTS - 1];
    all.push(event(",\"finishReason\":\"STOP\""));
    all
}

fn run(protocol: Protocol, chunks: &[Bytes], edits: &ReplyEdits) -> usize {
    let mut relay = codec(protocol).relay(Framing::Sse, edits);
    let mut out = Vec::with_capacity(4);
    let mut bytes = 0;
    for chunk in chunks {
        relay.push(chunk, &mut out).expect("a valid stream");
        bytes += out.drain(..).map(|piece| piece.len()).sum::<usize>();
    }
    relay.finish(&mut out).expect("a complete stream");
    bytes
}

fn relays(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("relay, 100 events");
    group.throughput(Throughput::Elements(EVENTS as u64));
    let plain = ReplyEdits::default();
    let edited = ReplyEdits { caller_model: Some("mine".to_owned()), hide_usage: true };
    for (name, protocol, chunks, edits) in [
        ("chat, untouched", Protocol::OpenAi, openai_stream("\n\n"), &plain),
        ("chat, renamed and usage hidden", Protocol::OpenAi, openai_stream("\n\n"), &edited),
        ("chat, CRLF", Protocol::OpenAi, openai_stream("\r\n\r\n"), &plain),
        ("native, untouched", Protocol::Gemini, gemini_stream("\n\n"), &plain),
        ("native, CRLF", Protocol::Gemini, gemini_stream("\r\n\r\n"), &plain),
    ] {
        group.bench_function(name, |bencher| bencher.iter(|| run(protocol, black_box(&chunks), edits)));
    }
    group.finish();
}

fn replies(criterion: &mut Criterion) {
    let body = Bytes::from(format!(
        "{{\"id\":\"chatcmpl-9\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"gpt-x\",\"choices\":[{{\"index\":0,\"message\":\
         {{\"role\":\"assistant\",\"content\":\"{}\",\"refusal\":null}},\"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":\
         {{\"prompt_tokens\":11,\"completion_tokens\":7,\"total_tokens\":18}}}}",
        "Hello, world of words. ".repeat(2000)
    ));
    let mut group = criterion.benchmark_group("reply");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("chat, 46 KB", |bencher| {
        bencher.iter_batched(
            || body.clone(),
            |body| codec(Protocol::OpenAi).read_reply(Method::Chat, &body, &ReplyEdits::default()),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, relays, replies);
criterion_main!(benches);
