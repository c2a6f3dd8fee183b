//! The rows as Anthropic's clients get them.

use super::*;

const MESSAGES: &str = "/v1/messages";

/// True if only the operator can make the accounts usable again.
fn waits_for_operator(row: &RefusalRow) -> bool {
    use NoRouteCause::{Credential, Disabled};
    matches!(row.refusal, Refusal::NoRoute { cause: Disabled | Credential, .. })
}

/// `error.type` of a row.
fn kind_of(row: &RefusalRow) -> &'static str {
    match row.id {
        "E1" | "E2" | "E3" | "E4" => "authentication_error",
        "E5" | "E6" | "E7" => "permission_error",
        "E10" | "E12" | "E13" | "E14" | "E15" | "E69" => "not_found_error",
        "E11" | "E16" | "E17" | "E18" | "E19" | "E21" | "E23" | "E52" | "E66" | "E67" | "E70" => "invalid_request_error",
        "E22" => "request_too_large",
        "E31" | "E54" => "rate_limit_error",
        "E32" | "E33" => "billing_error",
        // Claude Code retries `overloaded_error` regardless of the headers.
        "E41" | "E42" | "E50" | "E53" | "E55" | "E58" | "E59" | "E62" | "E64" => "api_error",
        "E51" | "E57" | "E60" | "E65" => "timeout_error",
        "E40" if waits_for_operator(row) => "api_error",
        "E40" | "E56" | "E61" | "E63" | "E68" => "overloaded_error",
        id => panic!("no type for {id}"),
    }
}

#[tokio::test]
async fn every_refusal_has_its_messages_form() {
    let head = caller(MESSAGES);
    for mut row in rows::all() {
        // The SDKs retry 401 and do not know 422.
        row.stop |= row.status == 401;
        row.status = if row.status == 422 { 400 } else { row.status };
        let (parts, body) = written(&row.refusal, &head).await;
        check_head(&row, &parts, &head);
        assert_eq!(row.refusal.id(head.from), row.id);
        let message = row.message.replace("{request}", &head.request_id.to_string()).replace("{path}", MESSAGES);
        let message = message.replace("{list}", "/v1/models").replace("{family}", "anthropic protocol family");
        let message = message.replace("{wrong key}", "Incorrect API key provided: abc***wxyz.");
        let message = message.replace("'model' and 'messages' alone are", "'model', 'max_tokens' and 'messages' alone are");
        let error = json!({"type": kind_of(&row), "message": message});
        let expected = json!({"type": "error", "error": error, "request_id": head.request_id.to_string()});
        assert_eq!(body, expected, "{}", row.id);
    }
}

#[tokio::test]
async fn rate_limits_are_sent_in_anthropics_headers() {
    let head = caller(MESSAGES);
    let (parts, _) = written(&rows::rate_limit(), &head).await;
    assert_eq!(header(&parts, "anthropic-ratelimit-requests-limit"), Some("60"));
    assert_eq!(header(&parts, "anthropic-ratelimit-requests-remaining"), Some("0"));
    let reset = header(&parts, "anthropic-ratelimit-requests-reset").unwrap();
    assert!(reset.ends_with('Z') && reset.contains('T'), "{reset}");
    assert_eq!((header(&parts, "anthropic-ratelimit-tokens-limit"), header(&parts, "x-ratelimit-limit-requests")), (None, None));
}

#[tokio::test]
async fn unsupported_thread_is_refused_with_its_error_code() {
    let refused = |fields: &[&str]| {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        Refusal::Unsupported { fields, model: "m".to_owned(), reason: None }
    };
    let (_, body) = written(&refused(&["top_k"]), &caller(MESSAGES)).await;
    assert!(body["error"]["details"].is_null(), "{body}");
    let refusal = refused(&["top_k", "thread"]);
    let (_, body) = written(&refusal, &caller(MESSAGES)).await;
    let details = json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]});
    assert_eq!(body["error"]["details"], details);
    let (_, body) = written(&refusal, &caller("/v1/messages/count_tokens")).await;
    assert!(body["error"]["message"].as_str().unwrap().contains("; 'model' and 'messages' alone are enough"));
}

/// Claude Code corrects its request according to the text of an upstream's error.
#[test]
fn upstream_messages_about_a_request_are_unchanged() {
    for text in [
        "adaptive thinking is not supported on this model",
        "messages.1.role: Input should be 'user' or 'assistant'",
        "context_management: Extra inputs are not permitted",
        "Unexpected value(s) `context-management-2025-06-27` for the `anthropic-beta` header. Please consult our documentation",
        "Unexpected value(s) `mid-conversation-tool-changes-2026-07-01` for the `anthropic-beta` header",
        "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022",
        "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or `max_tokens`",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ] {
        let said = UpstreamProblem {
            status: 400,
            message: text.to_owned(),
            kind: Some("invalid_request_error".to_owned()),
            is_error_object: true,
            details: vec![r#"{"error_code":"x"}"#.to_owned()],
            ..UpstreamProblem::default()
        };
        let problem = rejected(Protocol::Anthropic, said).problem(&caller(MESSAGES));
        assert_eq!((problem.status, problem.message.as_str()), (400, text));
        assert_eq!(problem.anthropic.kind.as_deref(), Some("invalid_request_error"));
        assert_eq!(problem.anthropic.details.as_deref(), Some(r#"{"error_code":"x"}"#));
    }
}

/// Claude Code lowers its own limit only if the error has Anthropic's text.
#[test]
fn refused_output_limit_of_another_provider_is_reworded_for_claude_code() {
    let text = "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.";
    let said = |status| UpstreamProblem { status, message: text.to_owned(), is_error_object: true, ..UpstreamProblem::default() };
    let known = "max_tokens: 32000 > 16384, which is the maximum allowed number of output tokens for this model: ";
    for (upstream, path, status, words) in [
        (Protocol::OpenAi, MESSAGES, 400, format!("{known}{text}")),
        (Protocol::OpenAi, MESSAGES, 422, format!("{known}{text}")),
        (Protocol::Responses, MESSAGES, 400, format!("{known}{text}")),
        (Protocol::Anthropic, MESSAGES, 400, text.to_owned()),
        (Protocol::OpenAi, "/v1/chat/completions", 400, text.to_owned()),
    ] {
        let problem = rejected(upstream, said(status)).problem(&caller(path));
        assert_eq!((problem.status, problem.message.as_str()), (400, words.as_str()), "{upstream:?} {status} {path}");
    }
}

#[test]
fn thread_not_found_of_an_upstream_is_returned_as_404() {
    let said = UpstreamProblem {
        status: 404,
        message: "thread not found".to_owned(),
        kind: Some("not_found_error".to_owned()),
        code: Some("thread_not_found".to_owned()),
        is_error_object: true,
        ..UpstreamProblem::default()
    };
    assert_eq!(rejected(Protocol::Anthropic, said).problem(&caller(MESSAGES)).status, 404);
}
