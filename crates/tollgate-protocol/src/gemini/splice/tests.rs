//! Edits of Gemini bodies change only what they name.

use proptest::prelude::*;

use super::*;
use crate::{Codec, Framing, Target, gemini::Gemini};

fn forward_as(method: Method, body: &str, edits: &RequestEdits<'_>) -> String {
    let target = Target { method, model: Some("m".to_owned()), framing: Framing::Sse };
    let summary = Gemini.summarise(&target, body.as_bytes()).expect(body);
    let forwarded = Gemini.forward_request(&Bytes::copy_from_slice(body.as_bytes()), &summary, edits);
    String::from_utf8(forwarded.to_vec()).expect("UTF-8")
}

fn forward(body: &str, edits: &RequestEdits<'_>) -> String {
    forward_as(Method::Generate, body, edits)
}

/// A body with these members in front; they end with a comma.
fn body(members: &str) -> String {
    format!(r#"{{{members}"contents":[{{"parts":[{{"text":"hi"}}]}}]}}"#)
}

#[test]
fn body_is_unchanged_because_the_model_is_in_the_path() {
    let edits = RequestEdits { upstream_model: Some("x"), force_usage: true, ..RequestEdits::default() };
    let given = body(r#""model":"models/m","#);
    assert_eq!(forward(&given, &edits), given);
}

#[test]
fn model_repeated_in_the_body_is_renamed() {
    let edits = RequestEdits { upstream_model: Some("x"), ..RequestEdits::default() };
    let batch = r#"{"requests":[{"model":"models/m","content":{"parts":[]}},{"content":{"model":"models/m"}},{"model" : "m","content":{}}]}"#;
    assert_eq!(
        forward_as(Method::BatchEmbedContents, batch, &edits),
        r#"{"requests":[{"model":"models/x","content":{"parts":[]}},{"content":{"model":"models/m"}},{"model" : "models/x","content":{}}]}"#
    );
    let tuned = RequestEdits { upstream_model: Some("tunedModels/x"), ..RequestEdits::default() };
    assert_eq!(
        forward_as(Method::CountTokens, r#"{"generateContentRequest":{"model":"models/m","contents":[{}]}}"#, &tuned),
        r#"{"generateContentRequest":{"model":"tunedModels/x","contents":[{}]}}"#
    );
    assert_eq!(forward_as(Method::BatchEmbedContents, batch, &RequestEdits::default()), batch);
}

#[test]
fn limit_is_added_or_lowered() {
    let edits = RequestEdits { max_output: Some(100), ..RequestEdits::default() };
    for (given, expected) in [
        ("", r#""generationConfig":{"maxOutputTokens":100},"#),
        (r#""generationConfig":{},"#, r#""generationConfig":{"maxOutputTokens":100},"#),
        (r#""generation_config":{"topK":1},"#, r#""generation_config":{"maxOutputTokens":100,"topK":1},"#),
        (r#""generationConfig":null,"#, r#""generationConfig":{"maxOutputTokens":100},"#),
        (r#""generationConfig":{"maxOutputTokens":7},"#, r#""generationConfig":{"maxOutputTokens":7},"#),
        (r#""generationConfig":{"maxOutputTokens":"7"},"#, r#""generationConfig":{"maxOutputTokens":"7"},"#),
        (r#""generationConfig":{"max_output_tokens":"700"},"#, r#""generationConfig":{"max_output_tokens":100},"#),
        (r#""generationConfig":{"maxOutputTokens":null},"#, r#""generationConfig":{"maxOutputTokens":100},"#),
        (
            r#""generationConfig":{"maxOutputTokens":7,"max_output_tokens":700},"#,
            r#""generationConfig":{"maxOutputTokens":7,"max_output_tokens":100},"#,
        ),
    ] {
        assert_eq!(forward(&body(given), &edits), body(expected), "{given}");
    }
    assert_eq!(forward_as(Method::CountTokens, &body(""), &edits), body(""));
}

#[test]
fn wrapped_signatures_are_removed() {
    for (given, expected) in [
        // A thought is removed as a whole, in any order of members.
        (r#"[{"text":"a"}, {"thought":true,"thoughtSignature":"dGcxLmEu","text":""} ]"#, Some(r#"[{"text":"a"} ]"#)),
        (r#"[{"thought_signature":"dGcxLmEu","text":"hm","thought":true}, {"text":"a"}]"#, Some(r#"[{"text":"a"}]"#)),
        // A call keeps a placeholder.
        (
            r#"[{"thought_signature":"dGcxLmEu","functionCall":{"args":{"thoughtSignature":"dGcxLmEu"}}}]"#,
            Some(
                r#"[{"thought_signature":"skip/thought/signature/validator","functionCall":{"args":{"thoughtSignature":"dGcxLmEu"}}}]"#,
            ),
        ),
        // Text and other data lose the signature; a part without text is removed.
        (r#"[{"thoughtSignature":"dGcxLmEu", "text":"a"}]"#, Some(r#"[{"text":"a"}]"#)),
        (r#"[{"text":"a", "thoughtSignature" : "dGcxLmEu" }]"#, Some(r#"[{"text":"a" }]"#)),
        (
            r#"[{"inlineData":{"mimeType":"image/png"},"thoughtSignature":"dGcxLmEu"}]"#,
            Some(r#"[{"inlineData":{"mimeType":"image/png"}}]"#),
        ),
        (r#"[{"text":"b"},{"text":"","thoughtSignature":"dGcxLmEu"},{"thoughtSignature":"dGcxLmEu"}]"#, Some(r#"[{"text":"b"}]"#)),
        // A content without remaining parts is removed.
        (r#"[{"text":"","thought":true,"thoughtSignature":"dGcxLmEu"}]"#, None),
        // Other signatures, and text that looks like a signature, are kept.
        (
            r#"[{"text":"dGcxLmEu"},{"thought":true,"text":"hm","thoughtSignature":"AbCd"}]"#,
            Some(r#"[{"text":"dGcxLmEu"},{"thought":true,"text":"hm","thoughtSignature":"AbCd"}]"#),
        ),
    ] {
        let turn = |parts: &str| format!(r#"{{"role":"model","parts":{parts}}}"#);
        let user = r#"{"role":"user","parts":[{"text":"q"}]}"#;
        let before = format!(r#"{{"contents":[{user},{},{user}]}}"#, turn(given));
        let after = expected.map_or(format!(r#"{{"contents":[{user},{user}]}}"#), |parts| {
            format!(r#"{{"contents":[{user},{},{user}]}}"#, turn(parts))
        });
        assert_eq!(forward(&before, &RequestEdits::default()), after, "{given}");
    }
    let counted = r#"{"generateContentRequest":{"contents":[{"parts":[{"text":"a","thoughtSignature":"dGcxLmEu"}]}]}}"#;
    assert_eq!(
        forward_as(Method::CountTokens, counted, &RequestEdits::default()),
        r#"{"generateContentRequest":{"contents":[{"parts":[{"text":"a"}]}]}}"#
    );
}

/// A part with or without a wrapped signature, members in any order.
fn part() -> impl Strategy<Value = serde_json::Value> {
    let data = prop_oneof![
        any::<String>().prop_map(|text| serde_json::json!({"text": text})),
        Just(serde_json::json!({"functionCall": {"name": "f", "args": {}}})),
        Just(serde_json::json!({"functionResponse": {"name": "f", "response": {}}})),
    ];
    (data, any::<bool>(), prop::option::of(prop_oneof![Just("dGcxLmEuU0lH"), Just("QUJD")])).prop_map(
        |(mut part, thought, signature)| {
            if thought {
                part["thought"] = true.into();
            }
            if let Some(signature) = signature {
                part["thoughtSignature"] = signature.into();
            }
            part
        },
    )
}

proptest! {
    #[test]
    fn forwarded_history_contains_no_wrapped_signature(turns in proptest::collection::vec(proptest::collection::vec(part(), 0..5), 1..4), pretty in any::<bool>()) {
        let contents: Vec<_> = turns.iter().map(|parts| serde_json::json!({"role": "model", "parts": parts})).collect();
        let value = serde_json::json!({"contents": contents});
        let body = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.expect("serialises");
        let forwarded = forward(&body, &RequestEdits::default());
        let read: serde_json::Value = serde_json::from_str(&forwarded).expect("still JSON");
        let kept: Vec<&serde_json::Value> =
            read["contents"].as_array().expect("an array").iter().flat_map(|turn| turn["parts"].as_array().expect("an array")).collect();
        prop_assert!(kept.iter().all(|part| part["thoughtSignature"] != "dGcxLmEuU0lH"));
        let expected = turns.iter().flatten().filter(|part| {
            part["thoughtSignature"] != "dGcxLmEuU0lH"
                || !part["functionCall"].is_null()
                || (part["thought"].is_null() && part["text"] != "")
        });
        prop_assert_eq!(kept.len(), expected.count());
    }
}

#[test]
fn all_signatures_are_replaced_or_removed_when_bound_to_their_issuer() {
    let edits = RequestEdits { drop_signatures: true, ..RequestEdits::default() };
    let given = r#"{"contents":[{"parts":[{"text":"a","thoughtSignature":"QUJD"},{"functionCall":{"name":"f"},"thoughtSignature":"QUJD"},{"text":"","thought_signature":"QUJD"}]}]}"#;
    let expected = r#"{"contents":[{"parts":[{"text":"a"},{"functionCall":{"name":"f"},"thoughtSignature":"skip/thought/signature/validator"}]}]}"#;
    assert_eq!(forward(given, &edits), expected);
    assert_eq!(forward(given, &RequestEdits::default()), given);
    assert_eq!(forward(expected, &edits), expected);
}
