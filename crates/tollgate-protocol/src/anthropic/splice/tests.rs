//! Tests of the edits of Messages bodies.

use super::*;
use crate::Method;

fn forward(body: &str, edits: &RequestEdits<'_>) -> String {
    let summary = RequestSummary::minimal("m", Method::Chat);
    let forwarded = forward_request(&Bytes::copy_from_slice(body.as_bytes()), &summary, edits);
    String::from_utf8(forwarded.to_vec()).expect("UTF-8")
}

#[test]
fn model_is_renamed() {
    let edits = RequestEdits { upstream_model: Some("claude-x"), ..RequestEdits::default() };
    assert_eq!(
        forward(r#"{"metadata":{"model":"m"}, "model" : "m","messages":[]}"#, &edits),
        r#"{"metadata":{"model":"m"}, "model" : "claude-x","messages":[]}"#
    );
}

#[test]
fn output_limit_is_added_or_lowered() {
    let edits = RequestEdits { max_output: Some(100), ..RequestEdits::default() };
    for (given, expected) in [
        (r#"{"model":"m"}"#, r#"{"max_tokens":100,"model":"m"}"#),
        (r#"{"max_tokens":50}"#, r#"{"max_tokens":50}"#),
        (r#"{"max_tokens":500}"#, r#"{"max_tokens":100}"#),
        (r#"{"max_tokens":null}"#, r#"{"max_tokens":100}"#),
    ] {
        assert_eq!(forward(given, &edits), expected);
    }
}

#[test]
fn marked_thinking_and_id_suffixes_are_removed() {
    let given = r#"{"messages":[
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"tg1.gemini"}]},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"EqQB"},{"type":"redacted_thinking","data":"tg1.openai"},
            {"type":"tool_use","id":"t1__sig1_QUJD","name":"f","input":{"id":"x__sig1_QQ","signature":"tg1.x"}},{"type":"text","text":"\"tg1."}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1__sig1_QUJD","content":"__sig1_QQ"}]},
        {"role":"user","content":"t1__sig1_QUJD"}]}"#;
    let expected = r#"{"messages":[
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"EqQB"},
            {"type":"tool_use","id":"t1","name":"f","input":{"id":"x__sig1_QQ","signature":"tg1.x"}},{"type":"text","text":"\"tg1."}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"__sig1_QQ"}]},
        {"role":"user","content":"t1__sig1_QUJD"}]}"#;
    assert_eq!(forward(given, &RequestEdits::default()), expected);
}

#[test]
fn invalid_json_is_forwarded_unchanged() {
    let edits = RequestEdits { upstream_model: Some("x"), ..RequestEdits::default() };
    assert_eq!(forward(r#"{"model":"m","messages":["#, &edits), r#"{"model":"m","messages":["#);
}
