//! Tests of the edits of Messages bodies.

use super::*;
use crate::{Codec as _, Framing, Method, Target, anthropic::Anthropic};

/// Forwards a body that is valid with these members besides the required ones.
fn forward(body: &str, edits: &RequestEdits<'_>) -> String {
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let summary = Anthropic.summarise(&target, body.as_bytes()).expect("a valid body");
    let (forwarded, left) = super::forward(&Bytes::copy_from_slice(body.as_bytes()), &summary, edits);
    assert_eq!(left, left_out(body.as_bytes(), &summary));
    String::from_utf8(forwarded.to_vec()).expect("UTF-8")
}

#[test]
fn model_is_renamed() {
    let edits = RequestEdits { upstream_model: Some("claude-x"), ..RequestEdits::default() };
    assert_eq!(
        forward(
            r#"{"metadata":{"model":"m"}, "model" : "m","max_tokens":9,"messages":[{"role":"user","content":"model"}]}"#,
            &edits
        ),
        r#"{"metadata":{"model":"m"}, "model" : "claude-x","max_tokens":9,"messages":[{"role":"user","content":"model"}]}"#
    );
}

#[test]
fn output_limit_is_lowered() {
    let edits = RequestEdits { max_output: Some(100), ..RequestEdits::default() };
    let body = |limit: &str| format!(r#"{{"model":"m","max_tokens":{limit},"messages":[{{"role":"user","content":"hi"}}]}}"#);
    for (given, expected) in [("50", "50"), ("500", "100"), ("1e3", "100"), ("0", "0")] {
        assert_eq!(forward(&body(given), &edits), body(expected));
    }
}

#[test]
fn marked_thinking_and_id_suffixes_are_removed() {
    let given = r#"{"model":"m","max_tokens":9,"messages":[
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"tg1.gemini"}]},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"EqQB"},{"type":"redacted_thinking","data":"tg1.openai"},
            {"type":"tool_use","id":"t1__sig1_QUJD","name":"f","input":{"id":"x__sig1_QQ","signature":"tg1.x"}},{"type":"text","text":"\"tg1."}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1__sig1_QUJD","content":"__sig1_QQ"}]},
        {"role":"user","content":"t1__sig1_QUJD"}]}"#;
    let expected = r#"{"model":"m","max_tokens":9,"messages":[
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"EqQB"},
            {"type":"tool_use","id":"t1","name":"f","input":{"id":"x__sig1_QQ","signature":"tg1.x"}},{"type":"text","text":"\"tg1."}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"__sig1_QQ"}]},
        {"role":"user","content":"t1__sig1_QUJD"}]}"#;
    assert_eq!(forward(given, &RequestEdits::default()), expected);
}

#[test]
fn thinking_budget_is_removed_with_the_marked_block_before_the_last_calls() {
    let body = |thinking: &str, blocks: &str| {
        format!(
            r#"{{"model":"m","max_tokens":9,{thinking}"messages":[{{"role":"user","content":"hi"}},
            {{"role":"assistant","content":[{blocks}{{"type":"tool_use","id":"t1","name":"f","input":{{}}}}]}},
            {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","content":"r"}}]}}]}}"#
        )
    };
    let marked = r#"{"type":"thinking","thinking":"hm","signature":"tg1.openai"},"#;
    let own = r#"{"type":"thinking","thinking":"hm","signature":"EqQB"},"#;
    let budget = r#""thinking":{"type":"enabled","budget_tokens":2000},"#;
    let adaptive = r#""thinking":{"type":"adaptive"},"#;
    let left_out = |body: &str| {
        let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
        let summary = Anthropic.summarise(&target, body.as_bytes()).expect("a valid body");
        Anthropic.left_out(body.as_bytes(), &summary).pop()
    };
    for (thinking, blocks, thinking_left, blocks_left) in [
        (budget, marked.to_owned(), "", ""),
        (adaptive, marked.to_owned(), adaptive, ""),
        // No thoughts: the model did not think, or Claude's thinking was off.
        (budget, String::new(), "", ""),
        (adaptive, String::new(), adaptive, ""),
        (budget, own.to_owned(), budget, own),
        (budget, format!("{own}{marked}"), budget, own),
    ] {
        let given = body(thinking, &blocks);
        assert_eq!(forward(&given, &RequestEdits::default()), body(thinking_left, blocks_left));
        assert_eq!(left_out(&given), (thinking != thinking_left).then(|| "thinking".to_owned()));
    }
    // Claude thinks only before the first calls.
    let step = r#"{"type":"tool_use","id":"t0","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t0","content":"r"}]},
        {"role":"assistant","content":["#;
    for (first, budget_left) in [(own, budget), ("", "")] {
        let given = body(budget, &format!("{first}{step}"));
        assert_eq!(forward(&given, &RequestEdits::default()), body(budget_left, &format!("{first}{step}")));
    }
    let next = r#"{"type":"text","text":"x"}]},{"role":"user","content":"go on"},{"role":"assistant","content":["#;
    let given = body(budget, &format!("{own}{next}"));
    assert_eq!(forward(&given, &RequestEdits::default()), body("", &format!("{own}{next}")), "a later turn has no block");
    let context = r#""context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"#;
    let given = body(&format!("{budget}{context}"), marked);
    assert_eq!(forward(&given, &RequestEdits::default()), body(r#""context_management":{"edits":[]},"#, ""));
}

#[test]
fn token_count_gets_no_limit() {
    let body = Bytes::from_static(br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#);
    let target = Target { method: Method::CountTokens, model: None, framing: Framing::Sse };
    let summary = Anthropic.summarise(&target, &body).expect("a valid body");
    let edits = RequestEdits { max_output: Some(100), ..RequestEdits::default() };
    assert_eq!(super::forward(&body, &summary, &edits).0.as_ptr(), body.as_ptr());
}
