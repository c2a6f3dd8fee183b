//! Decodes and encodes error bodies.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::{FieldViolation, Problem, UpstreamProblem, upstream_error};

const DETAIL_TYPE: &str = "type.googleapis.com/google.rpc.";

/// Encodes an error body. `code` is numeric and `details` always present, because clients fail without it.
pub(super) fn encode(problem: &Problem) -> Bytes {
    let native = &problem.native;
    let status = if native.status.is_empty() { canonical(problem.status) } else { native.status };
    let mut metadata = Map::from_iter([("requestId".to_owned(), json!(problem.request_id))]);
    metadata.extend(native.metadata.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
    let mut details = Vec::new();
    let mut add = |kind: &str, members: Value| {
        let mut detail = Map::from_iter([("@type".to_owned(), format!("{DETAIL_TYPE}{kind}").into())]);
        detail.extend(members.as_object().cloned().unwrap_or_default());
        details.push(Value::Object(detail));
    };
    add("ErrorInfo", json!({"reason": native.reason, "domain": "tollgate", "metadata": metadata}));
    if !native.violations.is_empty() {
        let violations = native.violations.iter().map(|FieldViolation { field, description }| match field.as_str() {
            "" => json!({ "description": description }),
            field => json!({"field": field, "description": description}),
        });
        add("BadRequest", json!({"fieldViolations": violations.collect::<Value>()}));
    }
    if let Some(seconds) = problem.retry_after {
        add("RetryInfo", json!({"retryDelay": format!("{seconds}s")}));
    }
    if !native.quota.is_empty() {
        let quota = native.quota.iter().map(|quota| json!({"subject": quota.subject, "description": quota.description}));
        add("QuotaFailure", json!({"violations": quota.collect::<Value>()}));
    }
    if let Some((kind, name)) = &native.resource {
        add("ResourceInfo", json!({"resourceType": kind, "resourceName": name}));
    }
    details.extend(native.upstream_details.iter().filter_map(|detail| forwardable(detail)));
    let error = json!({"code": problem.status, "message": problem.message, "status": status, "details": details});
    json!({ "error": error }).to_string().into()
}

/// An upstream detail that may be forwarded beside ours. Reason and retry delay are replaced by ours; request id and debug info
/// concern the upstream's account.
fn forwardable(detail: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(detail).ok()?;
    let kind = value.get("@type")?.as_str()?.strip_prefix(DETAIL_TYPE)?;
    (!matches!(kind, "ErrorInfo" | "RetryInfo" | "RequestInfo" | "DebugInfo")).then_some(value)
}

const fn canonical(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        499 => "CANCELLED",
        501 | 405 => "UNIMPLEMENTED",
        502 | 503 => "UNAVAILABLE",
        408 | 504 => "DEADLINE_EXCEEDED",
        400..=499 => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

pub(super) fn decode(status: u16, body: &[u8]) -> UpstreamProblem {
    let found = upstream_error::find(body);
    let kind = found.text_field("status").filter(|word| word.parse::<u16>().is_err()).or_else(|| found.text_field("type"));
    let refused = found.refused_by_google(status);
    let (quota, window) = found.quota_spent(status);
    let quota_exhausted = quota || found.mentions(status, &["credit balance", "insufficient_quota"]);
    let fields = violated_fields(&found);
    let mut problem = found.into_problem(status);
    if problem.unsupported.is_empty() && problem.status == 400 {
        problem.unsupported = fields;
    }
    UpstreamProblem {
        kind,
        quota_exhausted,
        quota_in_text: quota_exhausted && window.is_none() && problem.status != 429,
        window,
        account_refused: refused && !matches!(problem.status, 401..=403),
        ..problem
    }
}

/// Fields that `BadRequest` reports as unsupported.
fn violated_fields(found: &upstream_error::UpstreamErrorBody) -> Vec<String> {
    let Some(list) = found.detail("BadRequest").and_then(|detail| detail.get("fieldViolations")).and_then(Value::as_array) else {
        return Vec::new();
    };
    list.iter()
        .filter(|violation| {
            violation
                .get("description")
                .and_then(Value::as_str)
                .is_some_and(|text| text.to_ascii_lowercase().contains("unsupported parameter"))
        })
        .filter_map(|violation| violation.get("field")?.as_str().map(str::to_owned))
        .take(20)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GeminiErrorFields, QuotaViolation, QuotaWindow};

    fn problem() -> Problem {
        Problem {
            status: 503,
            message: "m".to_owned(),
            request_id: "req_1".to_owned(),
            openai: crate::OpenAiErrorFields::default(),
            native: GeminiErrorFields {
                status: "UNAVAILABLE",
                reason: "NO_AVAILABLE_ACCOUNTS".to_owned(),
                ..GeminiErrorFields::default()
            },
            retry_after: None,
            stop: false,
            ..Problem::default()
        }
    }

    #[test]
    fn error_always_has_error_info_and_details() {
        let mut problem = problem();
        problem.native.metadata = vec![("family", "gemini".to_owned()), ("cause", "cooldown".to_owned())];
        problem.retry_after = Some(30);
        assert_eq!(
            encode(&problem),
            "{\"error\":{\"code\":503,\"message\":\"m\",\"status\":\"UNAVAILABLE\",\"details\":[\
             {\"@type\":\"type.googleapis.com/google.rpc.ErrorInfo\",\"reason\":\"NO_AVAILABLE_ACCOUNTS\",\"domain\":\"tollgate\",\
             \"metadata\":{\"requestId\":\"req_1\",\"family\":\"gemini\",\"cause\":\"cooldown\"}},\
             {\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"30s\"}]}}"
        );
    }

    #[test]
    fn details_are_in_order() {
        let mut problem = problem();
        problem.retry_after = Some(1);
        problem.native.violations = vec![
            FieldViolation { field: "messages".to_owned(), description: "Unknown field; use 'contents'.".to_owned() },
            FieldViolation { field: String::new(), description: "d".to_owned() },
        ];
        problem.native.quota = vec![QuotaViolation { subject: "key".to_owned(), description: "q".to_owned() }];
        problem.native.resource = Some(("model", "models/m".to_owned()));
        problem.native.upstream_details = vec![
            r#"{"@type":"type.googleapis.com/google.rpc.DebugInfo","detail":"stack"}"#.to_owned(),
            r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"X"}"#.to_owned(),
            r#"{"@type":"type.googleapis.com/google.rpc.Help","links":[]}"#.to_owned(),
            "not json".to_owned(),
        ];
        let body: Value = serde_json::from_slice(&encode(&problem)).unwrap();
        let details = body["error"]["details"].as_array().unwrap();
        let kinds: Vec<_> = details.iter().map(|detail| detail["@type"].as_str().unwrap().rsplit('.').next().unwrap()).collect();
        assert_eq!(kinds, ["ErrorInfo", "BadRequest", "RetryInfo", "QuotaFailure", "ResourceInfo", "Help"]);
        assert_eq!(
            details[1]["fieldViolations"],
            serde_json::json!([{"field": "messages", "description": "Unknown field; use 'contents'."}, {"description": "d"}])
        );
        assert_eq!(details[3]["violations"], serde_json::json!([{"subject": "key", "description": "q"}]));
        assert_eq!(details[4]["resourceName"], "models/m");
    }

    #[test]
    fn unnamed_status_gets_its_canonical_name() {
        for (status, name) in
            [(400, "INVALID_ARGUMENT"), (405, "UNIMPLEMENTED"), (413, "INVALID_ARGUMENT"), (502, "UNAVAILABLE"), (500, "INTERNAL")]
        {
            let mut problem = problem();
            (problem.status, problem.native.status) = (status, "");
            let body: Value = serde_json::from_slice(&encode(&problem)).unwrap();
            assert_eq!((body["error"]["status"].as_str(), body["error"]["code"].as_u64()), (Some(name), Some(status.into())));
        }
    }

    #[test]
    fn upstream_error_is_decoded() {
        let body = r#"[{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED","details":[
            {"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProject"}]},
            {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"16.4s"}]}}]"#;
        let problem = decode(429, body.as_bytes());
        assert_eq!(
            (problem.kind.as_deref(), problem.retry_after, problem.quota_exhausted),
            (Some("RESOURCE_EXHAUSTED"), Some(17), false)
        );
        assert_eq!((problem.details.len(), problem.is_error_object, problem.message.as_str()), (2, true, "Quota"));
        assert_eq!(problem.window, None);
        for (quota, window) in [("PerDay", QuotaWindow::Day), ("PerMonth", QuotaWindow::Month)] {
            let problem = decode(429, body.replace("PerMinute", quota).as_bytes());
            assert_eq!((problem.quota_exhausted, problem.window), (true, Some(window)), "{quota}");
        }
    }

    #[test]
    fn quota_messages_without_details_are_classified() {
        let says = |text: &str| {
            decode(429, serde_json::json!({"error": {"code": 429, "message": text}}).to_string().as_bytes()).quota_exhausted
        };
        assert!(says("You exceeded your current quota, please check your plan and billing details."));
        assert!(!says("Resource has been exhausted (e.g. check quota)."));
    }

    #[test]
    fn refused_key_is_detected_in_a_400() {
        let body = r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT",
            "details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}"#;
        assert!(decode(400, body.as_bytes()).account_refused);
        assert!(
            decode(400, br#"{"error":{"code":400,"message":"User location is not supported for the API use."}}"#).account_refused
        );
        assert!(!decode(403, body.as_bytes()).account_refused, "the status already states it");
        assert!(!decode(400, br#"{"error":{"code":400,"message":"bad"}}"#).account_refused);
    }

    #[test]
    fn unknown_fields_are_listed() {
        let body = r#"{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"x\" at 'generation_config': Cannot find field.",
            "status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[
            {"field":"generation_config","description":"Invalid JSON payload received."}]}]}}"#;
        assert_eq!(decode(400, body.as_bytes()).unsupported, ["generation_config.x"]);
        let ours = r#"{"error":{"code":400,"message":"no","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations":[{"field":"generationConfig.topK","description":"Unsupported parameter."}]}]}}"#;
        assert_eq!(decode(400, ours.as_bytes()).unsupported, ["generationConfig.topK"]);
    }
}
