//! Id, status, codes, retry headers and text of every refusal on each protocol, as encoded.

mod messages;
mod rows;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tollgate_core::{Secret, Subject, Window};

use super::*;
use crate::{
    request::Head,
    testing::{self, head},
};

/// The expected encoding of a row.
struct RefusalRow {
    id: &'static str,
    refusal: Refusal,
    status: u16,
    /// `error.type`, `error.code`, `error.param`.
    openai: (&'static str, Option<&'static str>, Option<&'static str>),
    /// `error.status`, `ErrorInfo.reason`.
    native: (&'static str, &'static str),
    retry_after: Option<u32>,
    stop: bool,
    /// On chat; `{list}` stands for the list path, `{request}` for the request id, `{family}` for the family and `{wrong key}` for how a
    /// wrong key is named.
    message: &'static str,
}

fn caller(path: &str) -> Head {
    Head { presented_key: Some(Secret::new("abc-a-service-key-wxyz".to_owned())), ..head(path) }
}

const CHAT: &str = "/v1/chat/completions";
const NATIVE: &str = "/v1beta/models/m:generateContent";

async fn written(refusal: &Refusal, head: &Head) -> (http::response::Parts, Value) {
    let (parts, body) = refusal.respond(head, &refusal.problem(head)).into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts, serde_json::from_slice(&body).unwrap())
}

fn header<'a>(parts: &'a http::response::Parts, name: &str) -> Option<&'a str> {
    parts.headers.get(name).map(|value| value.to_str().unwrap())
}

/// Headers and status, equal on all protocols.
fn check_head(row: &RefusalRow, parts: &http::response::Parts, head: &Head) {
    let id = row.id;
    assert_eq!(parts.status.as_u16(), row.status, "{id}");
    assert_eq!(header(parts, "content-type"), Some("application/json; charset=utf-8"), "{id}");
    assert_eq!(header(parts, "x-request-id"), Some(head.request_id.to_string().as_str()), "{id}");
    let secs = row.retry_after.map(|secs| secs.to_string());
    assert_eq!(header(parts, "retry-after"), secs.as_deref(), "{id}");
    let ms = row.retry_after.filter(|secs| *secs < 10).map(|secs| (secs * 1_000).to_string());
    assert_eq!(header(parts, "retry-after-ms"), ms.as_deref(), "{id}");
    assert_eq!(header(parts, "x-should-retry"), row.stop.then_some("false"), "{id}");
    assert_eq!(header(parts, "www-authenticate"), (row.status == 401).then_some("Bearer"), "{id}");
    let closes = ["E22", "E61", "E65", "E66"].contains(&id);
    assert_eq!(header(parts, "connection"), closes.then_some("close"), "{id}");
}

#[tokio::test]
async fn every_refusal_has_its_openai_form() {
    let head = caller(CHAT);
    for row in rows::all() {
        let (parts, body) = written(&row.refusal, &head).await;
        check_head(&row, &parts, &head);
        assert_eq!(row.refusal.id(head.from), row.id);
        let message = row.message.replace("{request}", &head.request_id.to_string());
        let message = message.replace("{list}", "/v1/models").replace("{family}", "openai protocol family");
        let message = message.replace("{wrong key}", "Incorrect API key provided: abc***wxyz.");
        let (kind, code, param) = row.openai;
        let expected = json!({"error": {"message": message.replace("{path}", CHAT), "type": kind, "param": param, "code": code}});
        assert_eq!(body, expected, "{}", row.id);
    }
}

#[tokio::test]
async fn every_refusal_has_its_native_form() {
    let head = caller(NATIVE);
    for row in rows::all() {
        // A blocked prompt is an answer on native and has its own test.
        if row.id == "E67" {
            continue;
        }
        let (parts, body) = written(&row.refusal, &head).await;
        check_head(&row, &parts, &head);
        let id = row.refusal.id(head.from);
        let native_id = if row.id == "E21" || row.id == "E16" { matches!(id, "E20" | "E16") } else { id == row.id };
        assert!(native_id, "{id} for {}", row.id);
        let error = &body["error"];
        let message = row.message.replace("{request}", &head.request_id.to_string());
        let message = message.replace("{list}", "/v1beta/models").replace("{family}", "native protocol family (gemini)");
        let message = message.replace("{wrong key}", "The API key abc***wxyz is not valid.");
        let message = message.replace("'model' and 'messages' alone are", "'contents' alone is").replace("{path}", NATIVE);
        assert_eq!(error["message"].as_str(), Some(message.as_str()), "{}", row.id);
        assert_eq!(
            (error["code"].as_u64(), error["status"].as_str()),
            (Some(u64::from(row.status)), Some(row.native.0)),
            "{}",
            row.id
        );
        let details = error["details"].as_array().unwrap();
        assert_eq!(details[0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{}", row.id);
        assert_eq!(details[0]["reason"].as_str(), Some(row.native.1), "{}", row.id);
        assert_eq!(details[0]["domain"], "tollgate");
        let metadata = details[0]["metadata"].as_object().unwrap();
        assert_eq!(metadata["requestId"].as_str(), Some(head.request_id.to_string().as_str()));
        assert!(metadata.values().all(Value::is_string), "{}", row.id);
        let delay = details.iter().find(|detail| detail["@type"] == "type.googleapis.com/google.rpc.RetryInfo");
        let expected = row.retry_after.map(|secs| format!("{secs}s"));
        assert_eq!(delay.and_then(|detail| detail["retryDelay"].as_str()), expected.as_deref(), "{}", row.id);
    }
}

#[tokio::test]
async fn blocked_prompt_is_an_answer_on_native() {
    let (parts, body) = written(&Refusal::ContentPolicy, &caller(NATIVE)).await;
    assert_eq!(parts.status, 200);
    assert_eq!(body, json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}));
}

#[tokio::test]
async fn hidden_model_is_answered_like_an_unknown_one() {
    for path in [CHAT, NATIVE] {
        let (head, mut answers) = (caller(path), Vec::new());
        for hidden in [false, true] {
            let refusal = Refusal::ModelNotFound { model: "m".to_owned(), hidden };
            let (parts, body) = written(&refusal, &head).await;
            answers.push(format!("{:?} {:?} {body}", parts.status, parts.headers));
        }
        assert_eq!(answers[0], answers[1]);
    }
}

#[tokio::test]
async fn native_errors_have_their_details() {
    let head = caller(NATIVE);
    let (_, body) = written(&Refusal::ModelNotFound { model: "m".to_owned(), hidden: false }, &head).await;
    assert_eq!(body["error"]["details"][0]["metadata"]["model"], "m");
    let resource =
        json!({"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceType": "model", "resourceName": "models/m"});
    assert_eq!(body["error"]["details"][1], resource);
    let (_, body) = written(&rows::no_route(NoRouteCause::Cooldown), &head).await;
    let metadata = json!({"requestId": head.request_id.to_string(), "family": "gemini", "model": "m", "cause": "cooldown", "retryable": "true"});
    assert_eq!(body["error"]["details"][0]["metadata"], metadata);
    let (_, body) = written(&rows::rate_limit(), &head).await;
    let quota = body["error"]["details"].as_array().unwrap().iter().find(|detail| detail["violations"].is_array()).unwrap();
    assert_eq!(
        (quota["@type"].as_str(), quota["violations"][0]["subject"].as_str()),
        (Some("type.googleapis.com/google.rpc.QuotaFailure"), Some("key"))
    );
    let unsupported = || Refusal::Unsupported { fields: vec!["x".to_owned()], model: "m".to_owned(), reason: None };
    for (method, field) in [("generateContent", "contents"), ("embedContent", "content"), ("batchEmbedContents", "requests")] {
        let (_, body) = written(&unsupported(), &caller(&format!("/v1beta/models/m:{method}"))).await;
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("; '{field}' alone is enough to verify the call.")), "{message}");
    }
    let unsupported = Refusal::Unsupported { fields: vec!["logit_bias".to_owned()], model: "m".to_owned(), reason: None };
    let (_, body) = written(&unsupported, &head).await;
    let violation = &body["error"]["details"][1]["fieldViolations"][0];
    assert_eq!(violation, &json!({"field": "logit_bias", "description": "Unsupported parameter."}));
}

#[tokio::test]
async fn specific_refusals_have_their_own_headers() {
    let head = caller(CHAT);
    let (parts, _) = written(&Refusal::MethodNotAllowed { allow: "GET, HEAD" }, &head).await;
    assert_eq!(header(&parts, "allow"), Some("GET, HEAD"));
    let mut nowhere = head.clone();
    nowhere.path = String::new();
    let problem = Refusal::MethodNotAllowed { allow: "GET, HEAD" }.problem(&nowhere);
    assert_eq!(problem.message, "Method POST is not allowed; use GET.");
    for cause in [NoRouteCause::Concurrency, NoRouteCause::PriceLimit, NoRouteCause::NoPrice] {
        let (parts, _) = written(&rows::no_route(cause), &head).await;
        assert_eq!(header(&parts, "x-tollgate-cause"), Some(cause.as_str()));
    }
    let (parts, _) = written(&rows::rate_limit(), &head).await;
    for (name, value) in [
        ("x-ratelimit-limit-requests", Some("60")),
        ("x-ratelimit-remaining-requests", Some("0")),
        ("x-ratelimit-reset-requests", Some("12s")),
        ("x-ratelimit-limit-tokens", None),
    ] {
        assert_eq!(header(&parts, name), value, "{name}");
    }
}

#[test]
fn only_transient_causes_are_retryable() {
    let head = caller(NATIVE);
    for (cause, retryable) in [
        (NoRouteCause::NoneConfigured, "false"),
        (NoRouteCause::Disabled, "false"),
        (NoRouteCause::PriceLimit, "false"),
        (NoRouteCause::NoPrice, "false"),
        (NoRouteCause::Credential, "false"),
        (NoRouteCause::Cooldown, "true"),
        (NoRouteCause::Concurrency, "true"),
        (NoRouteCause::UpstreamRateLimited, "true"),
        (NoRouteCause::UpstreamQuota, "true"),
    ] {
        let problem = rows::no_route(cause).problem(&head);
        assert!(problem.native.metadata.contains(&("retryable", retryable.to_owned())), "{cause:?}");
    }
}

#[tokio::test]
async fn permanent_refusal_asks_the_client_not_to_retry() {
    use NoRouteCause::{Credential, Disabled, NoPrice, PriceLimit};
    for head in [caller(CHAT), caller(NATIVE)] {
        for cause in [Disabled, Credential, PriceLimit, NoPrice] {
            assert!(!cause.retryable());
            let (parts, body) = written(&rows::no_route(cause), &head).await;
            assert_eq!((header(&parts, "x-should-retry"), header(&parts, "retry-after")), (Some("false"), None), "{cause:?}");
            let text = body.to_string();
            assert!(!["later", "RetryInfo", "at the moment"].iter().any(|word| text.contains(word)), "{text}");
        }
    }
}

#[tokio::test]
async fn refusal_of_a_model_without_accounts_has_a_long_retry_after() {
    for head in [caller(CHAT), caller(NATIVE)] {
        let (parts, _) = written(&rows::no_route(NoRouteCause::NoneConfigured), &head).await;
        assert_eq!((header(&parts, "x-should-retry"), header(&parts, "retry-after")), (None, Some("30")));
    }
}

#[test]
fn permanent_refusals_have_a_non_retryable_error_type_on_messages() {
    use NoRouteCause::{Cooldown, Credential, Disabled, NoneConfigured};
    let head = caller("/v1/messages");
    let kind = |cause| rows::no_route(cause).problem(&head).anthropic.kind;
    assert_eq!([Disabled, Credential].map(kind), [Some("api_error".to_owned()), Some("api_error".to_owned())]);
    assert_eq!([NoneConfigured, Cooldown].map(kind), [None, None], "the type of the status: overloaded_error");
}

#[test]
fn retry_after_stays_between_one_second_and_a_minute() {
    let head = caller(CHAT);
    for (asked, secs) in [(None, 30), (Some(0), 1), (Some(7), 7), (Some(3_600), 60)] {
        let refusal = Refusal::NoRoute {
            model: "m".to_owned(),
            cause: NoRouteCause::Cooldown,
            retry_after: asked,
            price: None,
            missing_price: None,
        };
        assert_eq!(refusal.problem(&head).retry_after, Some(secs));
    }
    for (asked, secs) in [(None, 5), (Some(1_000_000_000), 60)] {
        let failure = UpstreamFailure::RateLimited { retry_after: asked };
        let problem = Refusal::Upstream { model: "m".to_owned(), failure }.problem(&head);
        assert_eq!(problem.retry_after, Some(secs));
        assert!(problem.message.ends_with(&format!("Try again in {secs} s.")));
    }
    let secs = Refusal::Overloaded.problem(&head).retry_after.unwrap();
    assert!((1..=5).contains(&secs));
}

#[test]
fn budget_that_renews_soon_has_retry_after() {
    let head = caller(CHAT);
    let midnight = Window::Day.ends(head.arrived).unwrap();
    let spent = |window, ms_to_midnight: i64| {
        let head = Head { arrived: midnight.plus_ms(-ms_to_midnight), ..head.clone() };
        rows::spent(Subject::Key(testing::key().id), Some(window), 0).problem(&head)
    };
    assert_eq!(spent(Window::Day, 20_500).retry_after, Some(21));
    assert_eq!(spent(Window::Day, 61_000).retry_after, None);
    assert_eq!(spent(Window::Total, 20_500).retry_after, None);
    assert!(spent(Window::Total, 20_500).stop);
}

fn rejected(protocol: Protocol, problem: UpstreamProblem) -> Refusal {
    let rejection = Box::new(Rejection { protocol, problem });
    Refusal::Upstream { model: "m".to_owned(), failure: UpstreamFailure::Rejected(rejection) }
}

#[test]
fn upstream_message_is_forwarded_redacted() {
    let said = UpstreamProblem {
        status: 400,
        message: "Unsupported parameter: 'x'. Key sk-abcdefghijklmnop of https://api.example.com/v1 is fine.".to_owned(),
        kind: Some("invalid_request_error".to_owned()),
        code: Some("unsupported_parameter".to_owned()),
        param: Some("x".to_owned()),
        is_error_object: true,
        details: vec![r#"{"@type":"type.googleapis.com/google.rpc.Help"}"#.to_owned(), r#"{"a":"http://10.0.0.1/"}"#.to_owned()],
        ..UpstreamProblem::default()
    };
    let problem = rejected(Protocol::OpenAi, said.clone()).problem(&caller(CHAT));
    assert!(problem.message.starts_with("Unsupported parameter: 'x'. Key "), "{}", problem.message);
    assert!(!problem.message.contains("abcdefgh") && !problem.message.contains("example.com"), "{}", problem.message);
    assert_eq!((problem.openai.code.as_deref(), problem.openai.param.as_deref()), (Some("unsupported_parameter"), Some("x")));
    assert!(problem.native.upstream_details.is_empty());
    let problem = rejected(Protocol::Gemini, said.clone()).problem(&caller(NATIVE));
    assert_eq!(problem.native.upstream_details, said.details[..1], "a detail with an address is omitted");
    assert_eq!(problem.openai.code.as_deref(), Some("upstream_rejected"));
    let problem = rejected(Protocol::Anthropic, said).problem(&caller(CHAT));
    assert_eq!(problem.openai.code.as_deref(), Some("upstream_rejected"));
}

#[test]
fn upstream_404_about_another_object_keeps_its_status_for_callers_of_the_protocol() {
    let found = |protocol, path: &str, status, body: &str| {
        let problem = tollgate_protocol::codec(protocol).decode_problem(status, body.as_bytes());
        rejected(protocol, problem).problem(&caller(path))
    };
    let file = r#"{"type":"error","error":{"type":"not_found_error","message":"File not found: file_01abc"}}"#;
    let problem = found(Protocol::Anthropic, "/v1/messages", 404, file);
    assert_eq!((problem.status, problem.anthropic.kind.as_deref()), (404, Some("not_found_error")));
    assert_eq!(problem.message, "File not found: file_01abc");
    for message in ["Vector store with id 'vs_1' not found.", "No such File object: file-abc"] {
        let body = format!(r#"{{"error":{{"message":"{message}","type":"invalid_request_error","param":null,"code":null}}}}"#);
        assert_eq!(found(Protocol::Responses, "/v1/responses", 404, &body).status, 404, "{message}");
        assert_eq!(
            found(Protocol::Responses, CHAT, 404, &body).status,
            502,
            "a chat request names no object of Responses: {message}"
        );
    }
    let unknown_path = r#"{"type":"error","error":{"type":"not_found_error","message":"Not Found"}}"#;
    assert_eq!(found(Protocol::Anthropic, "/v1/messages", 404, unknown_path).status, 502);
}

#[test]
fn only_an_upstream_404_about_a_model_is_returned_as_404() {
    for (message, code, status) in [
        ("The model `x` does not exist", None, 404),
        ("no", Some("model_not_found"), 404),
        ("404 page not found", None, 502),
        ("", None, 502),
    ] {
        let said = UpstreamProblem {
            status: 404,
            message: message.to_owned(),
            code: code.map(str::to_owned),
            ..UpstreamProblem::default()
        };
        let problem = rejected(Protocol::OpenAi, said).problem(&caller(CHAT));
        assert_eq!(problem.status, status, "{message}");
        assert!(!problem.message.is_empty());
    }
}
