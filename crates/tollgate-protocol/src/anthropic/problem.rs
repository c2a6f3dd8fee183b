//! Error bodies, both ways (wire reference, section 8; translation reference, section 2.7).

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::{Problem, UpstreamProblem, complaint};

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    error: Error<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct Error<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    message: &'a str,
}

/// Writes an error body.
pub(super) fn encode(problem: &Problem) -> Bytes {
    let error = Error { kind: type_of(problem.status), message: &problem.message };
    let body = Body { kind: "error", error, request_id: &problem.request_id };
    Bytes::from(serde_json::to_vec(&body).expect("strings always serialise"))
}

const fn type_of(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        _ => "api_error",
    }
}

/// `details.error_code` that says that the month's money is gone, behind a 429 without a waiting time.
const SPENT: &[&str] = &["enforced_spend_limit_reached", "contract_spend_limit_reached"];
/// Texts of a 400 that say it.
const SPENT_TEXTS: &[&str] = &["credit balance is too low", "specified api usage limits"];

/// Reads an error answer of an upstream.
pub(super) fn decode(status: u16, body: &[u8]) -> UpstreamProblem {
    let found = complaint::find(body);
    let kind = found.word("type");
    let detail = found.object.get("details").and_then(|details| details.get("error_code")).and_then(Value::as_str);
    let detail = detail.map(str::to_owned);
    let code = detail.as_deref().unwrap_or_default();
    let spent = SPENT.contains(&code) || found.says(SPENT_TEXTS);
    let refused = code == "organization_on_hold" || found.says(&["organization_on_hold"]);
    // An answer has a type too.
    let answer = kind.as_deref() == Some("message");
    let problem = found.into_problem(status);
    UpstreamProblem {
        kind,
        spent,
        account_refused: refused && !matches!(problem.status, 401..=403),
        code: detail.or(problem.code),
        recognised: problem.recognised && !answer,
        ..problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_type_and_request() {
        let mut problem = Problem {
            status: 429,
            message: "m".to_owned(),
            request_id: "req_1".to_owned(),
            openai: crate::OpenAiFace::default(),
            native: crate::NativeFace::default(),
            retry_after: None,
            stop: false,
        };
        assert_eq!(encode(&problem), r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"},"request_id":"req_1"}"#);
        problem.status = 502;
        assert!(encode(&problem).starts_with(br#"{"type":"error","error":{"type":"api_error","#));
    }

    #[test]
    fn the_accounts_fault_hides_behind_many_statuses() {
        let read = |status, kind: &str, message: &str, code: Option<&str>| {
            let details = code.map(|code| serde_json::json!({"error_code": code}));
            let body = serde_json::json!({"type": "error", "error": {"type": kind, "message": message, "details": details}});
            let problem = decode(status, body.to_string().as_bytes());
            (problem.spent, problem.account_refused)
        };
        let invalid = "invalid_request_error";
        assert_eq!(read(429, "rate_limit_error", "m", Some("enforced_spend_limit_reached")), (true, false));
        assert_eq!(read(429, "rate_limit_error", "m", Some("contract_spend_limit_reached")), (true, false));
        assert_eq!(read(429, "rate_limit_error", "m", Some("ramp_limit_exceeded")), (false, false));
        assert_eq!(read(400, invalid, "Your credit balance is too low to access the Anthropic API.", None), (true, false));
        assert_eq!(read(400, invalid, "You have reached your specified API usage limits. You will regain", None), (true, false));
        assert_eq!(read(400, invalid, "m", Some("organization_on_hold")), (false, true));
        assert_eq!(read(403, "permission_error", "m", Some("organization_on_hold")), (false, false));
        assert_eq!(read(400, invalid, "messages: too many", None), (false, false));
    }

    #[test]
    fn an_error_inside_a_200_counts_as_its_type() {
        for (kind, status) in [("overloaded_error", 529), ("rate_limit_error", 429), ("api_error", 500), ("timeout_error", 504)] {
            let body = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"m"}},"request_id":"r"}}"#);
            let problem = decode(200, body.as_bytes());
            assert_eq!((problem.status, problem.kind.as_deref(), problem.recognised), (status, Some(kind), true));
        }
    }

    #[test]
    fn a_refused_member_is_named() {
        let body =
            br#"{"type":"error","error":{"type":"invalid_request_error","message":"temperature: Extra inputs are not permitted"}}"#;
        assert_eq!(decode(400, body).unsupported, ["temperature"]);
    }
}
