//! Decodes and encodes error bodies (Anthropic API reference, "Errors").

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{Problem, QuotaWindow, UpstreamProblem, upstream_error};

pub(super) fn encode(problem: &Problem) -> Bytes {
    let fields = &problem.anthropic;
    let kind = fields.kind.as_deref().unwrap_or(error_type(problem.status, problem.stop));
    let mut error = json!({"type": kind, "message": problem.message});
    if let Some(details) = fields.details.as_deref().and_then(|raw| serde_json::from_str(raw).ok()) {
        error["details"] = details;
    }
    json!({"type": "error", "error": error, "request_id": problem.request_id}).to_string().into()
}

/// The type for a status. `stop`: repeating the request cannot help.
const fn error_type(status: u16, stop: bool) -> &'static str {
    match status {
        400 | 405 | 414 | 415 | 422 | 426 | 431 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 if stop => "billing_error",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    }
}

/// Values of `details.error_code` for an exhausted spend limit: 429 without `retry-after`.
const QUOTA_EXHAUSTED_CODES: &[&str] = &["enforced_spend_limit_reached", "contract_spend_limit_reached"];
/// Value of `details.error_code` for a conversation that the account does not keep.
const THREAD_NOT_FOUND: &str = "thread_not_found";
/// Longest `details` that are kept, in bytes.
const MAX_DETAILS: usize = 4_096;
/// Phrases of a 400 message with the same meaning.
const QUOTA_EXHAUSTED_PHRASES: &[&str] = &["credit balance is too low", "specified api usage limits"];

/// The end of the quota window in `You will regain access on 2026-12-01 at 00:00 UTC`.
fn quota_window(message: &str) -> Option<QuotaWindow> {
    let (_, rest) = message.split_once("regain access on ")?;
    let number = |from: usize, to: usize, max: i64| rest.get(from..to)?.parse::<i64>().ok().filter(|it| (0..=max).contains(it));
    let (year, month, day) = (number(0, 4, 9_999)?, number(5, 7, 12)?, number(8, 10, 31)?);
    let has_time = rest.get(10..14) == Some(" at ") && rest.get(19..23) == Some(" UTC");
    let (hour, minute) = if has_time { (number(14, 16, 23)?, number(17, 19, 59)?) } else { (0, 0) };
    // Days since the epoch, with years that start in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = 365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(QuotaWindow::Until(days * 86_400 + hour * 3_600 + minute * 60))
}

pub(super) fn decode(status: u16, body: &[u8]) -> UpstreamProblem {
    let found = upstream_error::find(body);
    let kind = found.text_field("type");
    let details = found.object.get("details").filter(|details| details.is_object()).map(Value::to_string);
    let detail = found.object.get("details").and_then(|details| details.get("error_code")).and_then(Value::as_str);
    let detail = detail.map(str::to_owned);
    let code = detail.as_deref().unwrap_or_default();
    let is_stated = QUOTA_EXHAUSTED_CODES.contains(&code);
    let quota_exhausted = is_stated || found.mentions(status, QUOTA_EXHAUSTED_PHRASES);
    let refused = code == "organization_on_hold" || found.mentions(status, &["organization_on_hold"]);
    // Answers have a `type` as well.
    let is_answer = kind.as_deref() == Some("message");
    let problem = found.into_problem(status);
    UpstreamProblem {
        kind,
        quota_exhausted,
        quota_in_text: quota_exhausted && !is_stated && problem.status != 429,
        window: quota_exhausted.then(|| quota_window(&problem.message)).flatten(),
        account_refused: refused && !matches!(problem.status, 401..=403),
        kept_elsewhere: code == THREAD_NOT_FOUND,
        code: detail.or(problem.code),
        details: details.into_iter().filter(|details| details.len() <= MAX_DETAILS).collect(),
        is_error_object: problem.is_error_object && !is_answer,
        ..problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_body_has_type_and_request_id() {
        let mut problem = Problem { status: 429, message: "m".to_owned(), request_id: "req_1".to_owned(), ..Problem::default() };
        assert_eq!(encode(&problem), r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"},"request_id":"req_1"}"#);
        problem.status = 502;
        assert!(encode(&problem).starts_with(br#"{"type":"error","error":{"type":"api_error","#));
    }

    #[test]
    fn error_type_depends_on_whether_a_retry_can_succeed() {
        let types = |stop| [429, 503, 529].map(|status| error_type(status, stop));
        assert_eq!(types(false), ["rate_limit_error", "overloaded_error", "overloaded_error"]);
        assert_eq!(types(true), ["billing_error", "overloaded_error", "overloaded_error"]);
    }

    #[test]
    fn upstreams_own_type_and_details_are_kept() {
        let body = br#"{"type":"error","error":{"type":"not_found_error","message":"thread","details":{"error_code":"thread_not_found"}}}"#;
        let found = decode(404, body);
        assert_eq!(
            (found.kind.as_deref(), &*found.details),
            (Some("not_found_error"), &[r#"{"error_code":"thread_not_found"}"#.to_owned()][..])
        );
        let own = crate::AnthropicErrorFields { kind: found.kind, details: found.details.into_iter().next() };
        let problem = Problem { status: 404, message: "thread".to_owned(), anthropic: own, ..Problem::default() };
        let expected = r#"{"type":"error","error":{"type":"not_found_error","message":"thread","details":{"error_code":"thread_not_found"}},"request_id":""}"#;
        assert_eq!(encode(&problem), expected);
    }

    #[test]
    fn exhausted_and_refused_accounts_are_recognised_at_any_status() {
        let read = |status, kind: &str, message: &str, code: Option<&str>| {
            let details = code.map(|code| serde_json::json!({"error_code": code}));
            let body = serde_json::json!({"type": "error", "error": {"type": kind, "message": message, "details": details}});
            let problem = decode(status, body.to_string().as_bytes());
            (problem.quota_exhausted, problem.account_refused)
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
    fn quota_error_recognised_only_by_its_message_is_marked() {
        let read = |status, code: Option<&str>| {
            let message = "Your input was flagged: You have reached your specified API usage limits.";
            let details = code.map(|code| serde_json::json!({"error_code": code}));
            let body = serde_json::json!({"type": "error", "error": {"type": "e", "message": message, "details": details}});
            let problem = decode(status, body.to_string().as_bytes());
            (problem.quota_exhausted, problem.quota_in_text)
        };
        assert_eq!([400, 403, 429].map(|status| read(status, None)), [(true, true), (true, true), (true, false)]);
        assert_eq!(read(403, Some("enforced_spend_limit_reached")), (true, false));
    }

    #[test]
    fn end_of_the_quota_window_is_parsed() {
        let window = |end: &str| {
            let message = format!("You have reached your specified API usage limits. You will regain access on {end}.");
            let body = serde_json::json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
            decode(400, body.to_string().as_bytes()).window
        };
        assert_eq!(window("2026-12-01 at 00:00 UTC"), Some(QuotaWindow::Until(1_796_083_200)));
        assert_eq!(window("2024-02-29 at 13:37 UTC"), Some(QuotaWindow::Until(1_709_213_820)));
        assert_eq!(window("2027-01-01"), Some(QuotaWindow::Until(1_798_761_600)));
        for end in ["", "tomorrow", "2026-13-01", "2026-12", "2026-12-0é"] {
            assert_eq!(window(end), None, "{end}");
        }
    }

    #[test]
    fn error_in_a_200_gets_the_status_of_its_type() {
        for (kind, status) in [("overloaded_error", 529), ("rate_limit_error", 429), ("api_error", 500), ("timeout_error", 504)] {
            let body = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"m"}},"request_id":"r"}}"#);
            let problem = decode(200, body.as_bytes());
            assert_eq!((problem.status, problem.kind.as_deref(), problem.is_error_object), (status, Some(kind), true));
        }
    }

    #[test]
    fn unsupported_member_is_named() {
        let body =
            br#"{"type":"error","error":{"type":"invalid_request_error","message":"temperature: Extra inputs are not permitted"}}"#;
        assert_eq!(decode(400, body).unsupported, ["temperature"]);
    }

    #[test]
    fn thread_not_found_is_recognised_as_stored_under_another_account() {
        let body = |code: &str| {
            format!(r#"{{"type":"error","error":{{"type":"not_found_error","message":"m","details":{{"error_code":"{code}"}}}}}}"#)
        };
        assert!(decode(404, body("thread_not_found").as_bytes()).kept_elsewhere);
        assert!(!decode(404, body("model_not_found").as_bytes()).kept_elsewhere);
    }
}
