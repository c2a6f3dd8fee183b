//! Streamed and complete answers agree, for any chunk boundaries.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use tollgate_protocol::{Protocol, neutral::ReplyContext, translate_reply};

use crate::{
    DIRECTIONS,
    answers::{CollectedAnswer, answer},
    assembled::{assemble, normalised},
    framed, relay,
    schemas::{check_reply, check_stream},
};

fn context(thoughts: bool, parallel: bool) -> ReplyContext {
    ReplyContext {
        include_usage: true,
        include_thoughts: thoughts,
        carry_thinking: true,
        parallel,
        name_map: vec![("g".to_owned(), "own:g".to_owned())],
        ..ReplyContext::new("r", 1, "m")
    }
}

fn same(direction: (Protocol, Protocol), answer: &CollectedAnswer, context: &ReplyContext) -> Result<(), TestCaseError> {
    let (upstream, caller) = direction;
    let body = Bytes::from(answer.whole(upstream).to_string());
    let translated = translate_reply(upstream, caller, &body, context).expect("an answer");
    let whole = check_reply(caller, &translated.body);
    let bytes = framed(upstream, &answer.streamed(upstream));
    let (out, fault) = relay(direction, &ReplyContext { stream: true, ..context.clone() }, [&bytes[..]]);
    prop_assert_eq!(fault, None);
    let streamed = assemble(caller, &check_stream(caller, &out));
    let (streamed, whole) = (normalised(caller, streamed), normalised(caller, whole));
    prop_assert_eq!(&streamed, &whole, "{:?}\nstreamed {}\nwhole    {}", direction, &streamed, &whole);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn streamed_answer_equals_the_complete_one(answer in answer(), thoughts in any::<bool>(), parallel in any::<bool>()) {
        let context = context(thoughts, parallel);
        for direction in DIRECTIONS {
            same(direction, &answer, &context)?;
        }
    }

    #[test]
    fn chunk_boundaries_do_not_matter(answer in answer(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let context = ReplyContext { stream: true, ..context(true, true) };
        for direction in DIRECTIONS {
            let bytes = framed(direction.0, &answer.streamed(direction.0));
            let expected = relay(direction, &context, [&bytes[..]]);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let chunks = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(relay(direction, &context, chunks), expected.clone());
            prop_assert_eq!(relay(direction, &context, bytes.chunks(1)), expected);
        }
    }

    #[test]
    fn truncated_stream_is_never_complete(answer in answer(), share in 0.0..1.0_f64) {
        for direction in DIRECTIONS {
            let events = answer.streamed(direction.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of a few")]
            let kept = (events.len() as f64 * share) as usize;
            let finished = |event: &Value| event.to_string().contains("finish_reason\":\"") || event.to_string().contains("finishReason")
                || event.to_string().contains("stop_reason\":\"")
                || matches!(event["type"].as_str(), Some("response.completed" | "response.incomplete"));
            let (out, fault) = relay(direction, &context(true, true), [&framed(direction.0, &events[..kept])[..]]);
            prop_assert_eq!(fault.is_none(), events[..kept].iter().any(finished));
            let text = String::from_utf8(out).expect("UTF-8");
            let ends = ["[DONE]", "message_stop", "finishReason", "response.completed", "response.incomplete"];
            let ended = ends.iter().any(|end| text.contains(end));
            prop_assert_eq!(ended, fault.is_none());
        }
    }
}
