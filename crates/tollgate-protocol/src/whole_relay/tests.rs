//! Relaying in pieces gives the same result as reading the whole answer, and detects broken answers.

use super::*;
use crate::{CheckedReply, Protocol, codec};

fn long(text: &str, bytes: usize) -> String {
    text.repeat(bytes / text.len() + 1)
}

/// Answers of all protocols, with the method they answer.
fn samples() -> Vec<(Protocol, Method, String)> {
    let text = long("h\u{e9}llo \\u00e9 \\ud83d\\ude00 \\n \u{1f600} ", 5_000);
    let (picture, floats) = (long("QUJD", 9_000), long("0.0123,", 20_000));
    let vectors = (0..40).map(|at| format!("{{\"index\":{at},\"embedding\":[{floats}1]}}")).collect::<Vec<_>>().join(", ");
    let tokens = (0..3_000)
        .map(|at| format!("{{\"token\":\"t{at}\",\"top_logprobs\":[{{\"token\":\"x\"}}]}}"))
        .collect::<Vec<_>>()
        .join(",");
    vec![
        (
            Protocol::OpenAi,
            Method::Chat,
            format!(
                " {{\"id\":\"a\",\"mod\\u0065l\":\"up\",\n\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\",\
                 \"reasoning\":\"{text}\",\"images\":[{{\"image_url\":{{\"url\":\"data:{picture}\"}}}}]}},\"logprobs\":{{\"content\":[{tokens}]}},\
                 \"finish_reason\":\"stop\"}}],\"x\":{{\"model\":\"up\"}},\"usage\":{{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}}}\n"
            ),
        ),
        (
            Protocol::OpenAi,
            Method::Embeddings,
            format!(
                "{{\"object\":\"list\",\"data\":[{vectors}],\"model\":\"up\",\"usage\":{{\"prompt_tokens\":7,\"total_tokens\":7}}}}"
            ),
        ),
        (
            Protocol::Gemini,
            Method::Generate,
            format!(
                "{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}},{{\"inlineData\":{{\"mimeType\":\"image/png\",\"data\":\"{picture}\"}}}}]}},\
                 \"finishReason\":\"STOP\"}}],\"usageMetadata\":{{\"promptTokenCount\":3,\"candidatesTokenCount\":9}},\"modelVersion\":\"up\"}}"
            ),
        ),
        (
            Protocol::Anthropic,
            Method::Chat,
            format!(
                "{{\"type\":\"message\",\"model\":\"up\",\"content\":[{{\"type\":\"thinking\",\"thinking\":\"{text}\"}},{{\"type\":\"text\",\"text\":\"{text}\"}}],\
                 \"stop_reason\":\"end_turn\",\"usage\":{{\"input_tokens\":3,\"output_tokens\":2}}}}"
            ),
        ),
    ]
}

fn edits() -> ReplyEdits {
    ReplyEdits { caller_model: Some("mine \"1\"".to_owned()), hide_usage: false }
}

/// The answer relayed in pieces of `size` bytes after a beginning of 4,000.
fn relayed(protocol: Protocol, method: Method, text: &[u8], size: usize) -> Result<CheckedReply, StreamError> {
    let (beginning, rest) = text.split_at(4_000);
    let mut out = Vec::new();
    let relay = relay_whole(codec(protocol), (method, 4 << 20), &edits(), &Bytes::copy_from_slice(beginning), &mut out);
    let mut relay = relay.expect("the beginning is that of an answer");
    for piece in rest.chunks(size) {
        assert!(!relay.complete());
        relay.push(&Bytes::copy_from_slice(piece), &mut out)?;
    }
    relay.finish(&mut out)?;
    Ok(CheckedReply { body: out.concat().into(), summary: relay.summary() })
}

#[test]
fn answer_in_pieces_gives_the_same_bytes_and_summary_as_the_whole() {
    for (protocol, method, text) in samples() {
        let whole = codec(protocol).read_reply(method, &Bytes::from(text.clone()), &edits()).unwrap();
        for size in [1, 7, 1_000, text.len()] {
            let pieces = relayed(protocol, method, text.as_bytes(), size).unwrap();
            assert!(pieces.body == whole.body, "{protocol:?} {method:?} in pieces of {size}");
            assert_eq!(pieces.summary, whole.summary, "{protocol:?} {method:?} in pieces of {size}");
        }
    }
}

#[test]
fn json_outline_is_bounded() {
    for (protocol, _, text) in samples() {
        let mut outline = JsonOutline::new();
        outline.push(text.as_bytes(), |_, _, _| {}).unwrap();
        assert!(outline.kept().len() < 100_000 && outline.kept().len() < text.len(), "{protocol:?}: {}", outline.kept().len());
    }
    let mut wide = JsonOutline::new();
    let members = (0..30_000).map(|at| format!("\"member{at}\":1")).collect::<Vec<_>>().join(",");
    assert!(wide.push(format!("{{{members}}}").as_bytes(), |_, _, _| {}).is_err());
}

#[test]
fn truncated_or_malformed_answer_is_an_error() {
    for (protocol, method, text) in samples() {
        for cut in [4_001, text.len() / 2, text.trim_end().len() - 1] {
            assert_eq!(relayed(protocol, method, &text.as_bytes()[..cut], 999), Err(StreamError::Truncated), "{protocol:?}");
        }
        for end in ["}", " x"] {
            let more = relayed(protocol, method, (text.clone() + end).as_bytes(), 999);
            assert_eq!(more, Err(StreamError::Malformed("not a JSON object")), "{protocol:?}");
        }
    }
    let (protocol, method, text) = samples().remove(0);
    let with_error = text.trim_end().strip_suffix('}').unwrap().to_owned() + ",\"error\":{\"message\":\"m\",\"code\":429}}";
    assert!(
        matches!(relayed(protocol, method, with_error.as_bytes(), 999), Err(StreamError::Problem(problem)) if problem.status == 429)
    );
}

#[test]
fn body_that_does_not_begin_like_an_answer_is_not_relayed_in_pieces() {
    let begins = |text: String| {
        let mut out = Vec::new();
        let relay =
            relay_whole(codec(Protocol::OpenAi), (Method::Chat, 4 << 20), &ReplyEdits::default(), &Bytes::from(text), &mut out);
        assert_eq!(relay.is_some(), !out.is_empty());
        relay.is_some()
    };
    let text = long("a", 300);
    assert!(begins(format!("{{\"choices\":[{{\"message\":{{\"content\":\"{text}")));
    for other in [
        format!("{{\"error\":{{\"message\":\"{text}"),
        format!("{{\"error\":{{}},\"choices\":[{{\"message\":{{\"content\":\"{text}"),
        format!("{{\"object\":\"error\",\"message\":\"{text}"),
        format!("[{{\"choices\":[{{\"message\":{{\"content\":\"{text}"),
        format!("<html>{text}"),
        format!("{{\"choices\":\"{text}"),
        "{\"choices\":[{\"message\":{\"content\":\"a\"}}]}".to_owned(),
    ] {
        assert!(!begins(other.clone()), "{other}");
    }
}
