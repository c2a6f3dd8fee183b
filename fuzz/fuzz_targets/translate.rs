//! Any request through every request encoder; any answer, error and stream through every reply encoder.
//!
//! Input: five bytes selecting the kind (request, answer, stream), the protocol, the method or kind of answer, the flags, and the
//! upstream model; then the body or the stream.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tollgate_fuzz::{PROTOCOLS, context, cut, protocol, selectors, written_events};
use tollgate_protocol::{
    Framing, GeminiErrorFields, Method, OpenAiErrorFields, Problem, Profile, Protocol, RemoteMedia, Target, TranslateOptions,
    codec, decode_request, effective_profile, encode_request,
    neutral::{AnswerKind, EncodedRequest, ReplyContext, Request},
    pending_media, translate_problem, translate_reply, translating_relay,
};

/// Models whose known facts differ in every way that translation depends on.
const MODELS: [&str; 8] = [
    "gpt-4o",
    "gpt-5.1",
    "o3",
    "gemini-3-pro",
    "gemini-2.5-flash",
    "gemini-2.0-flash",
    "claude-3-7-sonnet-20250219",
    "claude-opus-4-7",
];

const NATIVE: [Method; 5] =
    [Method::Generate, Method::StreamGenerate, Method::CountTokens, Method::EmbedContent, Method::BatchEmbedContents];

fuzz_target!(|input: &[u8]| {
    let Some(([what, from, method, flags, model], body)) = selectors(input) else { return };
    let from = protocol(from);
    match what % 3 {
        0 => request(from, method, flags, model, body),
        1 => answer(from, method, flags, body),
        _ => stream(from, flags, body),
    }
});

fn request(from: Protocol, method: u8, flags: u8, model: u8, body: &[u8]) {
    let methods: &[Method] = match from {
        Protocol::OpenAi => &[Method::Chat, Method::Embeddings],
        Protocol::Gemini => &NATIVE,
        Protocol::Anthropic | Protocol::Responses => &[Method::Chat, Method::CountTokens],
    };
    let method = methods[usize::from(method) % methods.len()];
    let target = Target { method, model: (from == Protocol::Gemini).then(|| "m".to_owned()), framing: Framing::Sse };
    let Ok(request) = decode_request(from, &target, body) else { return };
    let options = TranslateOptions {
        lenient: flags & 1 != 0,
        hoist: flags & 4 != 0,
        server_tools: flags & 8 != 0,
        pass_user: flags & 16 != 0,
        media: if flags & 32 == 0 { RemoteMedia::Refused } else { RemoteMedia::Deferred },
    };
    let model = MODELS[usize::from(model) % MODELS.len()];
    for to in PROTOCOLS {
        let profile = effective_profile(to.as_str(), to, model, &Profile::default());
        let _ = pending_media(to, &request, &profile);
        let outcome = encode_request(to, &request, model, &profile, &options);
        assert_eq!(outcome, encode_request(to, &request, model, &profile, &options), "encoding is deterministic");
        if let Ok(encoded) = outcome {
            check_encoded(to, &request, &encoded);
        }
    }
}

/// A request encoded for an upstream is JSON that our own decoder of that protocol accepts.
fn check_encoded(to: Protocol, request: &Request, encoded: &EncodedRequest) {
    let value: Value = serde_json::from_slice(&encoded.body).expect("an encoded request is JSON");
    assert!(value.is_object());
    assert!(encoded.dropped.is_sorted(), "the list of dropped fields is sorted");
    let target =
        Target { method: encoded.method, model: (to == Protocol::Gemini).then(|| request.model.clone()), framing: Framing::Sse };
    decode_request(to, &target, &encoded.body).expect("the decoder accepts what the encoder writes");
}

fn answer(upstream: Protocol, kind: u8, flags: u8, body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    let kind = match kind % 4 {
        1 => AnswerKind::Count,
        2 => AnswerKind::Embeddings { list: flags & 1 != 0, base64: flags & 2 != 0, count: usize::from(flags & 4 != 0) + 1 },
        _ => AnswerKind::Generated,
    };
    let problem = codec(upstream).decode_problem(400, &body);
    // Chat completions callers cannot request token counts, Anthropic and Responses callers cannot request embeddings.
    let callers: &[Protocol] = match kind {
        AnswerKind::Generated => &PROTOCOLS,
        AnswerKind::Count => &[Protocol::Gemini, Protocol::Anthropic, Protocol::Responses],
        AnswerKind::Embeddings { .. } => &[Protocol::OpenAi, Protocol::Gemini],
    };
    for caller in callers.iter().copied() {
        let context = ReplyContext { kind, stream: false, ..context(flags) };
        if let Ok(passed) = translate_reply(upstream, caller, &body, &context) {
            serde_json::from_slice::<Value>(&passed.body).expect("an encoded answer is JSON");
        }
        if let Some(passed) = translate_problem(upstream, caller, &problem, &context) {
            serde_json::from_slice::<Value>(&passed.body).expect("an encoded answer is JSON");
        }
    }
}

fn stream(upstream: Protocol, flags: u8, bytes: &[u8]) {
    for caller in PROTOCOLS {
        let context = context(flags);
        let mut relay = translating_relay(upstream, caller, &context);
        let mut out = Vec::new();
        let mut fault = None;
        for chunk in cut(bytes, flags) {
            if let Err(found) = relay.push(&chunk, &mut out) {
                fault = Some(found);
                break;
            }
        }
        match &fault {
            Some(fault) => assert_eq!(relay.finish(&mut out), Err(fault.clone()), "later calls return the same error"),
            None => fault = relay.finish(&mut out).err(),
        }
        assert_eq!(relay.complete(), fault.is_none(), "a stream without an error is complete");
        let text = String::from_utf8(out.concat()).expect("output is UTF-8");
        if fault.is_some() {
            assert!(!text.contains("data: [DONE]\n"), "a failed stream has no end marker");
            out.push(relay.problem(&problem()));
        }
        let sent = out.concat();
        if caller != Protocol::Gemini || context.framing == Framing::Sse {
            written_events(&sent);
        } else if fault.is_none() {
            let pieces: Value = serde_json::from_slice(&sent).expect("an encoded array is JSON");
            assert!(pieces.is_array());
        }
    }
}

fn problem() -> Problem {
    Problem {
        status: 502,
        message: "The upstream stream broke.".to_owned(),
        request_id: "req_1".to_owned(),
        openai: OpenAiErrorFields { kind: "server_error".to_owned(), ..OpenAiErrorFields::default() },
        native: GeminiErrorFields { status: "UNAVAILABLE", reason: "X".to_owned(), ..GeminiErrorFields::default() },
        retry_after: None,
        stop: false,
        ..Problem::default()
    }
}
