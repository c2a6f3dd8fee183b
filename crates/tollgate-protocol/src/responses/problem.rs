//! Decodes errors of an upstream: error bodies, which are those of chat completions, and the errors of streams, which are `error` events
//! and failed responses.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{UpstreamProblem, openai::decode_problem};

/// Code of a refused seal.
const SEAL_REFUSED: &str = "invalid_encrypted_content";
/// Messages with the same meaning, of services that give no code: `The encrypted content for item rs_1 could not be verified.`
const SEAL_REFUSED_PHRASES: [(&str, &str); 3] = [
    ("encrypted content", "could not be verified"),
    ("encrypted content", "did not match"),
    ("reasoning input items", "can only be provided to a reasoning"),
];

/// Codes of a response or a conversation that the account does not have, and the beginnings of messages without a code.
const NOT_KEPT: [&str; 2] = ["previous_response_not_found", "conversation_not_found"];
const NOT_KEPT_BEGINNINGS: [&str; 2] = ["previous response with id", "conversation with id"];

pub(super) fn decode(status: u16, body: &[u8]) -> UpstreamProblem {
    let problem = match error_of_event(body) {
        Some(error) => decode_problem(status, json!({ "error": error }).to_string().as_bytes()),
        None => decode_problem(status, body),
    };
    UpstreamProblem { seals_refused: seals_refused(&problem), kept_elsewhere: kept_elsewhere(&problem), ..problem }
}

fn kept_elsewhere(problem: &UpstreamProblem) -> bool {
    let text = problem.message.to_ascii_lowercase();
    let says_so = text.contains("not found") && NOT_KEPT_BEGINNINGS.iter().any(|beginning| text.starts_with(beginning));
    let is_meant = says_so || problem.code.as_deref().is_some_and(|code| NOT_KEPT.contains(&code));
    is_meant && problem.is_error_object
}

fn seals_refused(problem: &UpstreamProblem) -> bool {
    let text = problem.message.to_ascii_lowercase();
    let is_meant = |(subject, fault): &(&str, &str)| text.contains(subject) && text.contains(fault);
    let is_refused = problem.code.as_deref() == Some(SEAL_REFUSED) || SEAL_REFUSED_PHRASES.iter().any(is_meant);
    is_refused && problem.is_error_object
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
    fn stream_errors_are_decoded_in_every_form() {
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
    fn failure_without_a_reason_is_a_server_error() {
        let problem = decode(200, br#"{"type":"response.failed","response":{"status":"failed","error":null}}"#);
        assert_eq!((problem.status, problem.is_error_object), (500, true));
    }

    #[test]
    fn refused_encrypted_content_is_recognised_by_code_and_message() {
        for (error, refused) in [
            (r#"{"code":"invalid_encrypted_content","message":"no"}"#, true),
            (r#"{"code":null,"message":"The encrypted content for item rs_1 could not be verified."}"#, true),
            (r#"{"code":"invalid_request_body","message":"Encrypted content item_id did not match the target item id."}"#, true),
            (r#"{"message":"Reasoning input items can only be provided to a reasoning or computer use model."}"#, true),
            (r#"{"code":"invalid_value","message":"The input could not be verified."}"#, false),
            (r#"{"message":"Encrypted content is not supported."}"#, false),
        ] {
            assert_eq!(decode(400, format!(r#"{{"error":{error}}}"#).as_bytes()).seals_refused, refused, "{error}");
        }
        assert!(!decode(400, b"The encrypted content could not be verified").seals_refused, "a page in front of the service");
        let event = br#"{"type":"response.failed","response":{"error":{"code":"invalid_encrypted_content","message":"no"}}}"#;
        assert!(decode(200, event).seals_refused);
    }

    #[test]
    fn missing_stored_response_is_recognised_by_code_and_message() {
        for (error, elsewhere) in [
            (r#"{"code":"previous_response_not_found","message":"no"}"#, true),
            (r#"{"code":null,"message":"Previous response with id 'resp_1' not found."}"#, true),
            (r#"{"message":"Conversation with id 'conv_1' not found."}"#, true),
            (r#"{"message":"Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."}"#, false),
            (r#"{"code":"model_not_found","message":"The model 'previous response with id' was not found"}"#, false),
        ] {
            let body = format!(r#"{{"error":{error}}}"#);
            assert_eq!(decode(400, body.as_bytes()).kept_elsewhere, elsewhere, "{error}");
        }
        assert!(!decode(404, b"Previous response with id 'resp_1' not found.").kept_elsewhere, "a page in front of the service");
    }

    #[test]
    fn chat_style_error_body_is_decoded() {
        let body = br#"{"error":{"message":"Unsupported parameter: 'x'","type":"invalid_request_error","param":"x","code":"unsupported_parameter"}}"#;
        let problem = decode(400, body);
        assert_eq!((problem.status, problem.param.as_deref()), (400, Some("x")));
        assert_eq!(problem.unsupported, ["x"]);
        assert!(!decode(502, b"<html>").is_error_object);
    }
}
