//! Decodes errors of an upstream: error bodies, which are those of chat completions, and the errors of streams, which are `error` events
//! and failed responses.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{UpstreamProblem, openai::decode_problem};

pub(super) fn decode(status: u16, body: &[u8]) -> UpstreamProblem {
    match error_of_event(body) {
        Some(error) => decode_problem(status, json!({ "error": error }).to_string().as_bytes()),
        None => decode_problem(status, body),
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: Option<Value>,
    error: Option<Value>,
    code: Option<Value>,
    message: Option<Value>,
    param: Option<Value>,
    status: Option<Value>,
    response: Option<Response>,
}

#[derive(Deserialize)]
struct Response {
    error: Option<Value>,
}

/// The error object of an `error` event, a `response.failed` event or a failed response; `None` for other bodies.
fn error_of_event(body: &[u8]) -> Option<Value> {
    let event: Event = serde_json::from_slice(body).ok()?;
    if event.error.as_ref().is_some_and(Value::is_object) {
        // Its code is a word; a response names no status.
        let is_response = event.status.as_ref().is_some_and(|status| status == "failed");
        return event.error.filter(|_| is_response);
    }
    if let Some(response) = event.response {
        return Some(response.error.filter(Value::is_object).unwrap_or_else(|| json!({"code": "server_error"})));
    }
    let is_error = event.kind.as_ref().is_some_and(|kind| kind == "error");
    is_error.then(|| json!({"code": event.code, "message": event.message, "param": event.param}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_streams_are_read_in_every_form() {
        for body in [
            r#"{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null,"sequence_number":3}"#,
            r#"{"type":"error","error":{"type":"rate_limit_error","code":"rate_limit_exceeded","message":"slow down"}}"#,
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow down"}}}"#,
            r#"{"object":"response","status":"failed","error":{"code":"rate_limit_exceeded","message":"slow down"}}"#,
        ] {
            let problem = decode(200, body.as_bytes());
            assert_eq!((problem.status, problem.message.as_str(), problem.is_error_object), (429, "slow down", true), "{body}");
        }
    }

    #[test]
    fn failure_without_a_reason_is_the_providers() {
        let problem = decode(200, br#"{"type":"response.failed","response":{"status":"failed","error":null}}"#);
        assert_eq!((problem.status, problem.is_error_object), (500, true));
    }

    #[test]
    fn error_bodies_are_those_of_chat() {
        let body = br#"{"error":{"message":"Unsupported parameter: 'x'","type":"invalid_request_error","param":"x","code":"unsupported_parameter"}}"#;
        let problem = decode(400, body);
        assert_eq!((problem.status, problem.param.as_deref()), (400, Some("x")));
        assert_eq!(problem.unsupported, ["x"]);
        assert!(!decode(502, b"<html>").is_error_object);
    }
}
