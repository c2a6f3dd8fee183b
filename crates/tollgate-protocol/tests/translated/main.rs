//! Tests of translation: streamed and complete answers agree, everything sent validates against the schemas, and no
//! upstream input causes a panic or an empty success.

mod agents;
mod answers;
mod anthropic_rules;
mod assembled;
mod details;
mod empty;
mod hostile;
mod legacy_functions;
mod loss_matrix;
mod odd_finishes;
mod properties;
mod round_trips;
mod schemas;
mod sealed;
mod sources;
mod surrogates;
mod unsupported;

use bytes::Bytes;
use tollgate_protocol::{Protocol, StreamError, neutral::ReplyContext, translating_relay};

/// Every pair of upstream and caller protocol.
const DIRECTIONS: [(Protocol, Protocol); 12] = [
    (Protocol::Gemini, Protocol::OpenAi),
    (Protocol::OpenAi, Protocol::Gemini),
    (Protocol::Anthropic, Protocol::OpenAi),
    (Protocol::Anthropic, Protocol::Gemini),
    (Protocol::OpenAi, Protocol::Anthropic),
    (Protocol::Gemini, Protocol::Anthropic),
    (Protocol::OpenAi, Protocol::Responses),
    (Protocol::Gemini, Protocol::Responses),
    (Protocol::Anthropic, Protocol::Responses),
    (Protocol::Responses, Protocol::OpenAi),
    (Protocol::Responses, Protocol::Gemini),
    (Protocol::Responses, Protocol::Anthropic),
];

/// The bytes a caller receives for `chunks`, and the error that ended the stream.
fn relay<'a>(
    (upstream, caller): (Protocol, Protocol),
    context: &ReplyContext,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, Option<StreamError>) {
    let mut relay = translating_relay(upstream, caller, context);
    let mut out = Vec::new();
    for chunk in chunks {
        if let Err(fault) = relay.push(&Bytes::copy_from_slice(chunk), &mut out) {
            assert_eq!(relay.finish(&mut out), Err(fault.clone()), "the error is repeated");
            return (out.concat(), Some(fault));
        }
    }
    let fault = relay.finish(&mut out).err();
    assert_eq!(relay.complete(), fault.is_none());
    (out.concat(), fault)
}

/// The events of a stream in the upstream's framing.
fn framed(upstream: Protocol, events: &[serde_json::Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events {
        let data = event.as_str().map_or_else(|| event.to_string(), ToOwned::to_owned);
        if matches!(upstream, Protocol::Anthropic | Protocol::Responses) {
            bytes.extend_from_slice(format!("event: {}\n", event["type"].as_str().unwrap_or("x")).as_bytes());
        }
        bytes.extend_from_slice(format!("data: {data}\n\n").as_bytes());
    }
    bytes
}
