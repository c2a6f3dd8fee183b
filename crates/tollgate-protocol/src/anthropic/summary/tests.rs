//! Summaries of Messages bodies, and the errors of invalid ones.

use std::fs;

use super::*;
use crate::{Framing, MalformedKind, RequestExtras, ServiceTier};

fn read_as(method: Method, body: &str) -> Result<RequestSummary, Malformed> {
    summarise(&Target { method, model: None, framing: Framing::Sse }, body.as_bytes())
}

fn messages(body: &str) -> Result<RequestSummary, Malformed> {
    read_as(Method::Chat, body)
}

/// A body with more members after the required ones.
fn with(members: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"hi"}}],{members}}}"#)
}

fn with_message(message: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":9,"messages":[{message}]}}"#)
}

fn refused(body: &str) -> (MalformedKind, String) {
    let refusal = messages(body).expect_err(body);
    (refusal.kind, refusal.message)
}

#[test]
fn summary_has_all_fields() {
    let body = r#" {"model":"claude\u002dx","stream":true,"max_tokens":50,"system":[{"type":"text","text":"be\n"}],
        "messages":[
            {"role":"user","content":[
                {"type":"text","text":"caf\u00e9"},
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},
                {"type":"image","source":{"data":"AAAA","media_type":"image\/png","type":"base64"}},
                {"type":"image","source":{"type":"url","url":"https://x/y.png"}},
                {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAAAA=="}},
                {"type":"document","source":{"type":"text","media_type":"text/plain","data":"plain"}},
                {"type":"document","source":{"type":"content","content":[{"type":"text","text":"in"}]}}]},
            {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},
                {"type":"tool_use","id":"t","name":"f","input":{"a":1}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"42"}]}]}],
        "tools":[{"name":"f","input_schema":{"type":"object"}}],
        "temperature":0,"top_p":null,"thinking":{"type":"adaptive"},"output_config":{"effort":"low","format":null},"member_of_tomorrow":{"a":1}}"#;
    let summary = messages(body).expect("well formed");
    assert_eq!(summary.model, "claude-x");
    assert_eq!((summary.method, summary.stream, summary.max_output), (Method::Chat, true, Some(50)));
    assert_eq!(
        summary.fields,
        ["stream", "system", "tools", "temperature", "thinking", "output_config.effort", "member_of_tomorrow"]
    );
    assert_eq!((summary.images, summary.document_bytes, summary.first_file), (3, 4, None));
    let tools = r#"[{"name":"f","input_schema":{"type":"object"}}]"#;
    let texts = ["be\n", "café", "plain", "in", "hm", "f", r#"{"a":1}"#, "42", tools];
    assert_eq!(summary.text_bytes, texts.iter().map(|text| text.len() as u64).sum::<u64>());
    assert_eq!((summary.tools, summary.turns), (1, 4));
    assert_eq!(summary.extras, RequestExtras::default());
    let at = |range: &std::ops::Range<usize>| body[range.clone()].to_owned();
    assert_eq!(summary.splices.body_open, 2);
    assert_eq!(summary.splices.model.as_ref().map(at).as_deref(), Some(r#""claude\u002dx""#));
    assert_eq!(summary.splices.max_output.iter().map(at).collect::<Vec<_>>(), ["50"]);
    assert!(!summary.splices.markers);
}

#[test]
fn requests_of_claude_code_are_accepted() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/schemas/samples");
    for name in ["claude-code", "claude-code-tools", "full", "minimal"] {
        let text = fs::read_to_string(folder.join(format!("anthropic-messages-request--ok-{name}.json"))).expect("a sample");
        let summary = messages(&text).expect(name);
        assert!(summary.affinity.is_some() && summary.text_bytes > 0, "{name}");
    }
}

#[test]
fn invalid_members_are_named() {
    let (missing, wrong, invalid) = (MalformedKind::Missing, MalformedKind::WrongType, MalformedKind::InvalidValue);
    for (body, kind, sentence) in [
        (r#"{"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#, missing, "Missing required parameter: 'model'."),
        (r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#, missing, "Missing required parameter: 'max_tokens'."),
        (r#"{"model":"m","max_tokens":9}"#, missing, "Missing required parameter: 'messages'."),
        (r#"{"model":"m","max_tokens":9,"messages":[]}"#, invalid, "Invalid value for 'messages': it must not be empty."),
        (r#"{"model":"m","max_tokens":9,"messages":{}}"#, wrong, "Invalid type for 'messages': expected an array."),
        (&with_message(r#"{"content":"hi"}"#), missing, "Missing required parameter: 'messages[0].role'."),
        (&with_message(r#"{"role":7,"content":"hi"}"#), wrong, "Invalid type for 'messages[0].role': expected a string."),
        (&with_message(r#"{"role":"user"}"#), missing, "Missing required parameter: 'messages[0].content'."),
        (
            &with_message(r#"{"role":"user","content":7}"#),
            wrong,
            "Invalid type for 'messages[0].content': expected a string or an array.",
        ),
        (
            &with_message(r#"{"role":"user","content":[{"text":"a"}]}"#),
            missing,
            "Missing required parameter: 'messages[0].content[0].type'.",
        ),
        (
            &with_message(r#"{"role":"user","content":[{"type":"text","text":7}]}"#),
            wrong,
            "Invalid type for 'messages[0].content[0].text': expected a string.",
        ),
        (
            &with_message(r#"{"role":"user","content":[{"type":"text"}]}"#),
            missing,
            "Missing required parameter: 'messages[0].content[0].text'.",
        ),
        (&with(r#""system":7"#), wrong, "Invalid type for 'system': expected a string or an array."),
        (&with(r#""stream":"yes""#), wrong, "Invalid type for 'stream': expected a boolean."),
    ] {
        assert_eq!(refused(body), (kind, sentence.to_owned()), "{body}");
    }
    for limit in ["-1", "1.5", r#""9""#, "true"] {
        let body = format!(r#"{{"model":"m","max_tokens":{limit},"messages":[{{"role":"user","content":"hi"}}]}}"#);
        assert_eq!(refused(&body).0, wrong, "{limit}");
    }
    let contents = r#"{"model":"m","max_tokens":9,"contents":[]}"#;
    assert!(refused(contents).1.contains("the Messages API expects 'messages'"));
    assert_eq!(refused(&with(r#""model":"n""#)).0, MalformedKind::NotJson);
}

#[test]
fn token_count_needs_no_output_limit() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"foo"}],"tools":[]}"#;
    let summary = read_as(Method::CountTokens, body).expect("well formed");
    assert_eq!((summary.method, summary.max_output, summary.text_bytes), (Method::CountTokens, None, 3 + 2));
}

#[test]
fn tools_that_the_provider_runs_have_a_price() {
    let extras = |kind: &str| messages(&with(&format!(r#""tools":[{{"type":"{kind}","name":"x"}}]"#))).unwrap().extras;
    assert!(extras("web_search_20250305").web_search);
    assert!(extras("code_execution_20250825").server_tools);
    assert!(extras("mcp_toolset").server_tools);
    let fetched = extras("web_fetch_20250910");
    assert!(fetched.unseen.tools && !fetched.server_tools && !fetched.web_search);
    for own in ["custom", "bash_20250124", "text_editor_20250728", "memory_20250818", "computer_toolset_20260801"] {
        assert_eq!(extras(own), RequestExtras::default(), "{own}");
    }
    let tier = |value: &str| messages(&with(&format!(r#""service_tier":"{value}""#))).unwrap().extras.tier;
    assert_eq!([tier("auto"), tier("standard_only")], [ServiceTier::Standard; 2]);
}

#[test]
fn search_limit_is_known_only_if_every_search_tool_has_one() {
    let limit = |tools: &str| messages(&with(&format!(r#""tools":[{tools}]"#))).unwrap().max_searches;
    let (search, fetch) = (r#"{"max_uses":8,"type":"web_search_20250305"}"#, r#"{"type":"web_fetch_20250910","max_uses":2}"#);
    assert_eq!([limit(search), limit(&format!("{search},{fetch},{search}"))], [Some(8), Some(16)]);
    assert_eq!(limit(&format!(r#"{{"type":"web_search_20260209"}},{search}"#)), None);
    assert_eq!([limit(fetch), limit("")], [None, None]);
}

#[test]
fn tools_added_in_the_conversation_are_priced_like_declared_ones() {
    let read = |block: &str, members: &str| {
        let added = format!(r#"{{"role":"system","content":[{block}]}}"#);
        let body = format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"a"}},{added}]{members}}}"#);
        messages(&body).unwrap()
    };
    let addition =
        |definition: &str| format!(r#"{{"type":"tool_addition","tool":{{"type":"tool_definition","definition":{definition}}}}}"#);
    let search = addition(r#"{"name":"web_search","type":"web_search_20250305"}"#);
    let found = read(&search, "");
    assert!(found.extras.web_search && found.extras.unseen.tools);
    assert_eq!(found.fields, ["messages[1].content[0].tool"]);
    let limited = r#","tools":[{"type":"web_search_20250305","max_uses":2}]"#;
    assert_eq!((read(&search, limited).max_searches, read("", limited).max_searches), (None, Some(2)), "a limit of `tools` only");
    assert!(read(&addition(r#"{"type":"code_execution_20250825"}"#), "").extras.server_tools);
    for free in [
        addition(r#"{"name":"f","input_schema":{"type":"object"}}"#),
        addition(r#"{"type":"bash_20250124","name":"bash"}"#),
        r#"{"type":"tool_addition","tool":{"type":"tool_reference","name":"f"}}"#.to_owned(),
        r#"{"type":"tool_removal","tool":"f"}"#.to_owned(),
    ] {
        let found = read(&free, "");
        assert!(found.extras == RequestExtras::default() && found.fields.is_empty(), "{free}");
    }
}

#[test]
fn affinity_depends_on_the_beginning_of_the_conversation() {
    let affinity = |body: &str| messages(body).unwrap().affinity.expect("a conversation");
    let first = affinity(&with(r#""system":"s""#));
    let second = r#"{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[
        {"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]},
        {"role":"system","content":"now"},{"role":"assistant","content":"a"},{"role":"user","content":"b"}]}"#;
    assert_eq!(affinity(second), first);
    assert_ne!(affinity(&with(r#""system":"t""#)), first);
}

#[test]
fn gateway_markers_are_detected() {
    for (content, marked) in [
        (r#"[{"type":"thinking","thinking":"","signature":"tg1.openai"}]"#, true),
        (r#"[{"type":"tool_use","id":"c__sig1_QUJD","name":"f","input":{}}]"#, true),
        (r#"[{"type":"thinking","thinking":"","signature":"c2ln"}]"#, false),
    ] {
        let body = with_message(&format!(r#"{{"role":"assistant","content":{content}}}"#));
        assert_eq!(messages(&body).unwrap().splices.markers, marked, "{content}");
    }
}
