//! Detection of unsupported fields in the messages of upstreams.

use super::*;

fn unsupported(body: &str) -> Vec<String> {
    find(body.as_bytes()).into_problem(400).unsupported
}

fn message(text: &str) -> String {
    serde_json::json!({"error": {"message": text}}).to_string()
}

#[test]
fn error_message_is_found_in_every_body_shape() {
    for (body, message, is_error_object) in [
        (r#"{"error":{"message":"m","type":"t","param":null,"code":null}}"#, "m", true),
        (r#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#, "m", true),
        (r#"{"error":"m"}"#, "m", true),
        (r#"{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}"#, "m", true),
        (r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#, "m", true),
        (r#"{"error":{"message":"m","code":402,"metadata":{"raw":"x"}},"user_id":"u"}"#, "m", true),
        (r#"{"message":"m"}"#, "m", true),
        (r#"{"detail":"m"}"#, "m", false),
        (r#"{"detail":[{"loc":["body"],"msg":"m"}]}"#, "m", false),
        ("  m\n", "m", false),
        ("<html><body>502 Bad Gateway</body></html>", "", false),
        ("", "", false),
        ("[]", "", false),
        ("null", "", false),
        ("{\"error\":{\"message\":\"cut", "", false),
        (r#"{"error":null}"#, "", false),
        (r#"{"error":{}}"#, "", false),
        ("a\0b", "", false),
    ] {
        let found = find(body.as_bytes());
        assert_eq!((found.message.as_str(), found.is_error_object), (message, is_error_object), "{body}");
    }
}

#[test]
fn a_huge_or_deep_body_is_not_parsed() {
    let huge = format!("{{\"error\":{{\"message\":\"{}\"}}}}", "x".repeat(BODY_LIMIT));
    assert!(!find(huge.as_bytes()).is_error_object);
    assert!(!find("[".repeat(100_000).as_bytes()).is_error_object);
    let long = find(message(&"\u{e9}".repeat(5000)).as_bytes());
    assert_eq!(long.message.len(), MESSAGE_LIMIT);
    assert!(!find(b"{\"error\":{\"message\":\"\xff\"}}").message.is_empty());
}

#[test]
fn error_status_is_the_http_status_or_for_a_200_that_of_the_body() {
    for (body, answered, expected) in [
        (r#"{"error":{"message":"m","code":429}}"#, 503, 503),
        (r#"{"error":{"message":"m","code":429}}"#, 200, 429),
        (r#"{"error":{"message":"m","code":"429"}}"#, 200, 429),
        (r#"{"error":{"message":"m","code":99}}"#, 200, 500),
        (r#"{"error":{"message":"m","status":"UNAVAILABLE"}}"#, 200, 503),
        (r#"{"error":{"message":"m","type":"overloaded_error"}}"#, 200, 529),
        (r#"{"error":{"message":"m","type":"server_error","code":"rate_limit_exceeded"}}"#, 200, 429),
        (r#"{"error":{"message":"m","type":"brand_new"}}"#, 200, 500),
        ("<html>", 200, 500),
    ] {
        assert_eq!(find(body.as_bytes()).status(answered), expected, "{body}");
    }
}

#[test]
fn unsupported_fields_are_recognised_in_the_words_of_many_upstreams() {
    for (text, expected) in [
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            &["max_tokens"][..],
        ),
        ("unsupported parameter: \"top_k\"", &["top_k"]),
        ("Unsupported parameter: 'a', 'b' are not supported with the model 'm'. Remove it.", &["a", "b"]),
        ("Unknown parameter: 'reasoning'.", &["reasoning"]),
        ("Unrecognized request argument supplied: top_k", &["top_k"]),
        ("Unrecognized request arguments supplied: top_k, min_p", &["top_k", "min_p"]),
        ("property 'logprobs' is unsupported", &["logprobs"]),
        ("`temperature` is not supported with this model", &["temperature"]),
        ("\"thinking.type.disabled\" is not supported for this model. Use adaptive.", &["thinking.type.disabled"]),
        ("temperature: Extra inputs are not permitted", &["temperature"]),
        (
            "Invalid JSON payload received. Unknown name \"topQ\" at 'generation_config': Cannot find field.\nInvalid JSON payload \
             received. Unknown name \"x\": Cannot find field.",
            &["generation_config.topQ", "x"],
        ),
        ("Unsupported value: 'temperature' does not support 0.5 with this model.", &[]),
        ("Something else failed", &[]),
        ("Unsupported parameter: 'no quotes end", &[]),
    ] {
        assert_eq!(unsupported(&message(text)), expected, "{text}");
    }
    assert_eq!(unsupported(r#"{"error":{"message":"no","code":"unsupported_parameter","param":"seed"}}"#), ["seed"]);
    assert!(find(message("Unknown parameter: 'a'.").as_bytes()).into_problem(500).unsupported.is_empty());
}

#[test]
fn retry_delays_are_rounded_up() {
    let body = |delay: &str| {
        format!(r#"{{"error":{{"details":[{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{delay}}}]}}}}"#)
    };
    for (delay, expected) in [
        ("\"17s\"", Some(17)),
        ("\"3.2s\"", Some(4)),
        ("\"0s\"", Some(1)),
        ("{\"seconds\":9}", Some(9)),
        ("\"-1s\"", None),
        ("\"soon\"", None),
        ("7", None),
    ] {
        assert_eq!(find(body(delay).as_bytes()).into_problem(429).retry_after, expected, "{delay}");
    }
}

#[test]
fn details_are_kept_raw_and_bounded() {
    let body = r#"{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT","details":[
        {"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"a","description":"b"}]},{"x":1},7]}}"#;
    assert_eq!(
        find(body.as_bytes()).details(),
        [r#"{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"a","description":"b"}]}"#]
    );
    let many = format!(r#"{{"error":{{"details":[{}]}}}}"#, vec![r#"{"@type":"type.googleapis.com/x"}"#; 50].join(","));
    assert_eq!(find(many.as_bytes()).details().len(), 20);
}
