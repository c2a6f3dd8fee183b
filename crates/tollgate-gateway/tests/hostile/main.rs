//! Malformed and hostile requests, byte for byte. Every response is checked, and the gateway must be healthy after each.
//!
//! `corpus.jsonl` holds one input a line. Its `req` is a list of segments sent in order on one connection: `t` text
//! (one character one byte), `b` base64, `r` repeated text, `seq` repeated and counted, `gz` gzip of a long run,
//! `wait` and `shut`, and raw HTTP/2 frames. Its `expect` says which statuses are acceptable, how many answers there
//! may be, and what must not appear in them. Inputs that must be served are in it on purpose: a gateway that refuses
//! everything does not pass.

#![expect(clippy::unwrap_used, reason = "a test program: clippy sees only functions marked as tests")]

mod corpus;
mod exchange;
mod gate;
mod http2;
mod judge;

use std::sync::Arc;

use futures_util::StreamExt as _;

/// Inputs sent concurrently.
const AT_ONCE: usize = 8;

/// Sends every input of a class and reports all faults at once.
async fn class(name: &str) {
    let gate = Arc::new(gate::Gate::open().await);
    let inputs = corpus::of_class(name);
    assert!(!inputs.is_empty(), "no inputs of class {name}");
    let faults = futures_util::stream::iter(inputs)
        .map(|input| {
            let gate = Arc::clone(&gate);
            async move {
                let (input, outcome) = exchange::exchange(input, &gate).await;
                let mut faults = judge::judge(&input, &outcome);
                if let Err(why) = gate.health().await {
                    faults.push(format!("the gateway was not healthy afterwards: {why}"));
                }
                faults.into_iter().map(|fault| format!("{}: {fault}", input.id)).collect::<Vec<_>>()
            }
        })
        .buffer_unordered(AT_ONCE)
        .concat()
        .await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(!gate.called_out(), "the gateway connected to an address a caller named");
}

macro_rules! classes {
    ($($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                class(stringify!($name)).await;
            }
        )*
    };
}

classes!(control auth chat encoding framing h2 header inject json method native path size ssrf);

#[test]
fn every_class_has_a_test() {
    let known = [
        "control", "auth", "chat", "encoding", "framing", "h2", "header", "inject", "json", "method", "native", "path", "size",
        "slow", "ssrf",
    ];
    for input in corpus::all() {
        assert!(known.contains(&input.class.as_str()), "{} is of class {}", input.id, input.class);
    }
}
