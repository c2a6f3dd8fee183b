//! Decodes and encodes error bodies.

use bytes::Bytes;
use serde_json::json;

use crate::{Problem, UpstreamProblem, upstream_error};

/// The error object always has these four members, in this order.
pub(crate) fn encode(problem: &Problem) -> Bytes {
    let fields = &problem.openai;
    let error = json!({"message": problem.message, "type": fields.kind, "param": fields.param, "code": fields.code});
    json!({ "error": error }).to_string().into()
}

/// Codes for an account without quota or credit.
const QUOTA_EXHAUSTED_CODES: &[&str] =
    &["insufficient_quota", "credit_balance_exhausted", "billing_hard_limit_reached", "billing_not_active"];
/// Messages of compatible upstreams with the same meaning.
const QUOTA_EXHAUSTED_PHRASES: &[&str] = &["insufficient balance", "insufficient credits", "credit balance"];
/// Codes for a refused account, with any status.
const ACCOUNT_REFUSED_CODES: &[&str] =
    &["invalid_api_key", "account_deactivated", "organization_restricted", "organization_deactivated"];

/// The beginning of the message if a single request asks for more tokens than the limit per minute: `Request too large for gpt-4o in
/// organization … on tokens per min (TPM): Limit 30000, Requested 66313.` Type and code are the same as for every rate
/// limit.
const OVER_MINUTE_LIMIT: &str = "Request too large for ";

/// Decodes an upstream's error. Gemini's OpenAI-compatible endpoint and its resellers send Google's details.
pub(crate) fn decode(status: u16, body: &[u8]) -> UpstreamProblem {
    let found = upstream_error::find(body);
    let kind = found.text_field("type");
    let (quota, window) = found.quota_spent(status);
    let is_stated = window.is_some() || found.is(QUOTA_EXHAUSTED_CODES);
    let quota_exhausted = quota || is_stated || found.mentions(status, QUOTA_EXHAUSTED_PHRASES);
    let refused = found.is(ACCOUNT_REFUSED_CODES) || found.refused_by_google(status);
    let wait = wait_named(&found.message);
    let over_minute_limit = found.message.starts_with(OVER_MINUTE_LIMIT);
    let problem = found.into_problem(status);
    UpstreamProblem {
        kind,
        quota_exhausted,
        quota_in_text: quota_exhausted && !is_stated && problem.status != 429,
        window,
        account_refused: refused && !matches!(problem.status, 401..=403),
        retry_after: problem.retry_after.or(wait.filter(|_| problem.status == 429)),
        over_minute_limit: over_minute_limit && problem.status == 429,
        ..problem
    }
}

/// The delay in a message, in whole seconds, rounded up: `Please try again in 1.2s`, `20ms`, `6m0s`, `1h2m3s`; Google's
/// `Please retry in 34.07s`.
fn wait_named(message: &str) -> Option<u32> {
    let (_, rest) = message.split_once("try again in ").or_else(|| message.split_once("retry in "))?;
    let duration = rest.split([' ', ',', ')']).next()?.trim_end_matches('.');
    let mut seconds = 0.0;
    let mut rest = duration;
    while !rest.is_empty() {
        let unit = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
        let figure: f64 = rest[..unit].parse().ok()?;
        let behind = rest[unit..].find(|letter: char| letter.is_ascii_digit()).map_or(rest.len(), |at| unit + at);
        seconds += figure
            * match &rest[unit..behind] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = &rest[behind..];
    }
    upstream_error::whole_seconds(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenAiErrorFields;

    #[test]
    fn all_four_members_are_encoded() {
        let mut problem = Problem {
            status: 404,
            message: "The model 'a\"b' does not exist.".to_owned(),
            request_id: "req_1".to_owned(),
            openai: OpenAiErrorFields {
                kind: "invalid_request_error".to_owned(),
                code: Some("model_not_found".to_owned()),
                param: Some("model".to_owned()),
            },
            native: crate::GeminiErrorFields::default(),
            retry_after: Some(3),
            stop: true,
            ..Problem::default()
        };
        assert_eq!(
            encode(&problem),
            r#"{"error":{"message":"The model 'a\"b' does not exist.","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#
        );
        problem.openai = OpenAiErrorFields { kind: "server_error".to_owned(), code: None, param: None };
        assert!(encode(&problem).ends_with(br#""type":"server_error","param":null,"code":null}}"#));
    }

    #[test]
    fn quota_error_recognised_only_by_its_message_is_marked() {
        let read = |status, code: &str, message: &str| {
            let body = json!({"error": {"message": message, "code": code}}).to_string();
            let problem = decode(status, body.as_bytes());
            (problem.quota_exhausted, problem.quota_in_text)
        };
        let echo = "Unrecognized request argument supplied: insufficient credits";
        assert_eq!(read(400, "", echo), (true, true));
        assert_eq!(read(403, "", "Your input was flagged: insufficient balance"), (true, true));
        assert_eq!(read(402, "insufficient_quota", "insufficient credits"), (true, false));
        assert_eq!(read(400, "", "Unrecognized request argument supplied: x"), (false, false));
    }

    #[test]
    fn upstream_error_is_decoded() {
        let body = br#"{"error":{"message":"Unsupported parameter: 'x' is not","type":"invalid_request_error","param":"x","code":"unsupported_parameter"}}"#;
        let problem = decode(400, body);
        assert_eq!(
            (problem.status, problem.kind.as_deref(), problem.code.as_deref(), problem.param.as_deref()),
            (400, Some("invalid_request_error"), Some("unsupported_parameter"), Some("x"))
        );
        assert_eq!((problem.unsupported, problem.is_error_object, problem.quota_exhausted), (vec!["x".to_owned()], true, false));
    }

    #[test]
    fn google_error_has_no_type() {
        let problem = decode(400, br#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#);
        assert_eq!((problem.kind, problem.is_error_object, problem.message.as_str()), (None, true, "m"));
    }

    #[test]
    fn exhausted_quota_is_distinguished_from_rate_limits() {
        for (body, quota_exhausted) in [
            (
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                true,
            ),
            (r#"{"error":{"message":"x","type":"requests","code":"credit_balance_exhausted"}}"#, true),
            (r#"{"error":{"message":"Insufficient Balance","type":"unknown_error"}}"#, true),
            (r#"{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}"#, false),
        ] {
            assert_eq!(decode(429, body.as_bytes()).quota_exhausted, quota_exhausted, "{body}");
            assert!(!decode(429, body.as_bytes()).quota_in_text, "the status speaks of the account");
        }
    }

    #[test]
    fn refused_account_is_detected_with_any_status() {
        let body = br#"{"error":{"message":"m","type":"invalid_request_error","code":"invalid_api_key"}}"#;
        assert!(decode(400, body).account_refused);
        assert!(!decode(401, body).account_refused, "the status already states it");
    }

    #[test]
    fn key_refused_by_google_counts_against_the_account() {
        let info = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}"#;
        let error = |message: &str, details: &str| {
            format!(r#"{{"error":{{"code":400,"message":"{message}","status":"INVALID_ARGUMENT","details":[{details}]}}}}"#)
        };
        for object in [
            error("Please pass one.", info),
            error("API key not valid. Please pass a valid API key.", ""),
            error("API key expired. Please renew the API key.", ""),
            r#"{"error":{"message":"API key not valid. Please pass a valid API key.","type":"invalid_request_error"}}"#.to_owned(),
        ] {
            for body in [object.clone(), format!("[{object}]")] {
                let problem = decode(400, body.as_bytes());
                assert!(problem.account_refused && !problem.quota_exhausted, "{body}");
            }
        }
    }

    #[test]
    fn quoted_caller_text_does_not_count_against_the_account() {
        for text in [
            "Unknown parameter: 'api key not valid'.",
            r#"Invalid value: \"credit balance\". Supported values are: 'low'."#,
            "Unknown name `exceeded your current quota`",
            "Invalid value: 'x' insufficient credits 'y'.",
        ] {
            let problem = decode(400, format!(r#"{{"error":{{"message":"{text}","type":"invalid_request_error"}}}}"#).as_bytes());
            assert!(!problem.account_refused && !problem.quota_exhausted, "{text}");
        }
        let own = br#"{"error":{"message":"You don't have enough: insufficient credits for 'm'.","type":"x"}}"#;
        assert!(decode(400, own).quota_exhausted, "an apostrophe is not a quotation mark");
        let wrapped = br#"{"error":{"message":"upstream said \"Insufficient Balance\"","type":"x"}}"#;
        assert!(decode(429, wrapped).quota_exhausted, "a 429 does not quote the caller");
    }

    #[test]
    fn google_quota_windows_are_decoded() {
        let body = |quota: &str| {
            format!(
                r#"{{"error":{{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.",
                "status":"RESOURCE_EXHAUSTED","details":[
                {{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{{"quotaId":"Requests{quota}PerProject"}}]}},
                {{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"16.4s"}}]}}}}"#
            )
        };
        for (quota, quota_exhausted, window) in [
            ("PerMinute", false, None),
            ("PerDay", true, Some(crate::QuotaWindow::Day)),
            ("PerMonth", true, Some(crate::QuotaWindow::Month)),
        ] {
            for body in [body(quota), format!("[{}]", body(quota))] {
                let problem = decode(429, body.as_bytes());
                assert_eq!(
                    (problem.quota_exhausted, problem.window, problem.retry_after),
                    (quota_exhausted, window, Some(17)),
                    "{body}"
                );
            }
        }
        let minute = body("PerMinute").replace("QuotaFailure", "Help");
        assert!(!decode(429, minute.as_bytes()).quota_exhausted, "a delay in seconds is a rate limit");
    }

    #[test]
    fn request_above_the_minute_limit_is_distinguished_from_an_exhausted_minute() {
        let body =
            |text: &str| format!(r#"{{"error":{{"message":"{text}","type":"tokens","param":null,"code":"rate_limit_exceeded"}}}}"#);
        let large =
            body("Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 66313.");
        assert!(decode(429, large.as_bytes()).over_minute_limit && !decode(500, large.as_bytes()).over_minute_limit);
        let used = body("Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.");
        assert!(!decode(429, used.as_bytes()).over_minute_limit);
    }

    #[test]
    fn delay_in_the_message_is_read() {
        for (text, expected) in [
            ("Rate limit reached. Please try again in 1.2s. Visit", Some(2)),
            ("try again in 20ms.", Some(1)),
            ("try again in 6m0s", Some(360)),
            ("try again in 1h2m3.5s (soon)", Some(3724)),
            ("Quota exceeded for metric: x, limit: 20\nPlease retry in 34.074824224s.", Some(35)),
            ("try again in a while", None),
            ("try again in 12 parsecs", None),
            ("no hint", None),
        ] {
            let body = serde_json::json!({"error": {"message": text, "type": "tokens"}}).to_string();
            assert_eq!(decode(429, body.as_bytes()).retry_after, expected, "{text}");
        }
    }
}
