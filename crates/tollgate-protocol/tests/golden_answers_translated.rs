//! Golden cases of translated answers, streams and upstream errors (format: `fixtures/golden/README.md`). Each case is a test
//! of its own, and a test checks that the list below is complete.
//!
//! For expected error answers, only the part that this crate decides is checked: the error or upstream problem and the
//! members the gateway builds its answer from. Status, message, headers and details are the gateway's.

use std::{collections::BTreeSet, fs, path::Path};

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_protocol::{
    Framing, GeminiErrorFields, InvalidReply, Method, OpenAiErrorFields, Problem, Protocol, StreamError, Target, UpstreamProblem,
    codec, decode_request,
    neutral::{AnswerKind, ReplyContext},
    translate_problem, translate_reply, translating_relay,
};

macro_rules! golden {
    ($($direction:ident: $($case:ident)+;)+) => {
        $(mod $direction {
            $(#[test]
            fn $case() {
                super::run(stringify!($direction), stringify!($case));
            })+
        })+

        const LISTED: &[(&str, &[&str])] = &[$((stringify!($direction), &[$(stringify!($case)),+])),+];
    };
}

golden! {
    openai_to_gemini:
        response_text response_thoughts_and_usage response_usage_inclusive_variant response_usage_tool_use_tokens
        response_parallel_calls_with_signature response_max_tokens_all_thinking response_prompt_blocked
        response_safety_after_partial_text response_malformed_call_without_content response_unknown_finish_reason
        response_two_candidates response_text_signature response_image_output response_grounding_offsets
        response_parallel_off_emulated response_logprobs response_no_candidates_no_reason
        stream_text_with_usage stream_no_usage_unless_asked stream_parallel_calls_separate_events
        stream_signature_on_empty_text stream_prompt_blocked_stream stream_error_event_midway stream_error_event_first
        stream_truncated_stream stream_malformed_call_midway stream_malformed_call_after_thoughts
        stream_two_candidates_stream error_upstream_400 error_upstream_403_hidden;
    gemini_to_openai:
        response_text response_tool_calls response_invalid_arguments response_length_cuts_call response_refusal
        response_content_filter response_thoughts_requested response_empty_content response_two_choices_logprobs
        response_name_mapped_back stream_text stream_tool_fragments_assembled stream_usage_missing stream_error_midway
        stream_truncated stream_error_first error_azure_content_filter error_quota_of_our_account error_upstream_400;
    openai_to_anthropic:
        response_text_blocks_thinking_usage response_tool_use response_refusal response_omitted_and_redacted_thinking
        stream_tool_stream stream_overloaded_midway;
    gemini_to_anthropic:
        response_thinking_and_tool response_omitted_signatures_ride stream_omitted_signature_rides
        stream_summarized_signature_on_thought;
    anthropic_to_openai:
        response_reasoning_marked response_refusal response_length_cuts_call response_empty_answer
        response_two_calls_cache_and_reasoning_tokens response_thoughts_not_asked response_no_usage
        stream_blocks_never_overlap stream_thinking_text_tool stream_call_without_arguments stream_refusal_without_text
        stream_error_midway stream_error_first error_upstream_rate_limit error_context_length;
    anthropic_to_gemini:
        response_tool_and_thought response_prompt_blocked response_max_tokens_while_thinking
        response_parallel_calls_one_signature stream_text_two_calls_late_finish stream_prompt_blocked error_account_refused;
    responses_to_openai:
        error_upstream_429 response_text response_reasoning_then_text response_parallel_calls response_text_and_call
        response_length response_refusal response_content_filter response_no_usage response_request_echoed
        response_namespace_restored response_custom_call stream_text stream_reasoning_text_calls stream_length
        stream_broken_off stream_custom_call;
    responses_to_gemini:
        response_thoughts_and_text response_signed_call response_signed_call_without_thought response_signed_text
        response_prompt_blocked response_max_tokens_all_thinking response_custom_call_restored response_image_output
        response_grounding response_malformed_call stream_thoughts_text_signature stream_parallel_calls
        stream_thought_then_signed_call stream_text_call_text stream_safety_midway stream_error_event_midway
        stream_error_before_content;
    responses_to_anthropic:
        response_thinking_text_call response_omitted_thinking response_refusal response_max_tokens
        stream_thinking_text_tool stream_omitted_and_redacted stream_overloaded_midway error_upstream_400
        error_upstream_overloaded;
}

#[test]
fn every_case_is_listed() {
    for (direction, listed) in LISTED {
        let listed: BTreeSet<String> = listed.iter().map(|name| (*name).to_owned()).collect();
        let found: BTreeSet<String> = cases(direction).iter().filter(|case| is_answer(case)).map(function_name).collect();
        assert_eq!(listed, found, "{direction}");
    }
}

/// True for cases of this runner. Requests that must be refused have kind `error` too; `golden_translation` runs them.
fn is_answer(case: &Value) -> bool {
    match case["kind"].as_str() {
        Some("response" | "stream") => true,
        Some("error") => case["input"].get("upstream_status").is_some(),
        _ => false,
    }
}

fn function_name(case: &Value) -> String {
    case["name"].as_str().expect("a name").replacen('.', "_", 1)
}

fn cases(direction: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/golden/{direction}.jsonl"));
    let text = fs::read_to_string(file).expect("a readable fixture");
    text.lines().map(|line| serde_json::from_str(line).expect("one case per line")).collect()
}

/// Caller protocol and upstream protocol of a direction.
fn sides(direction: &str) -> (Protocol, Protocol) {
    let (caller, upstream) = direction.split_once("_to_").expect("two protocols");
    (Protocol::parse(caller).expect("a protocol"), Protocol::parse(upstream).expect("a protocol"))
}

fn run(direction: &str, name: &str) {
    let case = cases(direction).into_iter().find(|case| is_answer(case) && function_name(case) == name).expect("the case");
    let (caller, upstream) = sides(direction);
    let context = with_request(caller, &case, context(&case));
    match case["kind"].as_str().expect("a kind") {
        "response" => response(caller, upstream, &case, &context),
        "stream" => stream(caller, upstream, &case, &context),
        _ => error(caller, upstream, &case, &context),
    }
}

/// Adds the request members that the answer repeats, if the case has them.
fn with_request(caller: Protocol, case: &Value, context: ReplyContext) -> ReplyContext {
    if caller != Protocol::Responses {
        return context;
    }
    let mut body = json!({"model": "m", "input": "hi"});
    body.as_object_mut().expect("an object").extend(case["ctx"]["request"].as_object().cloned().unwrap_or_default());
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let request = decode_request(caller, &target, body.to_string().as_bytes()).expect("a valid request");
    let custom = request.tools.iter().filter(|tool| tool.custom).map(|tool| tool.name.clone());
    ReplyContext { custom_tools: custom.collect(), echo: request.echo, ..context }
}

fn context(case: &Value) -> ReplyContext {
    let facts = &case["ctx"];
    let flag = |name: &str| facts[name].as_bool();
    let include_thoughts = flag("include_thoughts").unwrap_or(false);
    // Models with `thinking_display` send blocks without text where the caller did not request thoughts.
    let omitted = matches!(facts["profile"].as_str(), Some("claude-adaptive" | "claude-always"));
    let name_map = facts["name_map"].as_object().into_iter().flatten();
    ReplyContext {
        request_id: "req1".to_owned(),
        response_id: "req1".to_owned(),
        now: 1_700_000_000,
        model: "m".to_owned(),
        kind: AnswerKind::Generated,
        framing: Framing::Sse,
        stream: flag("stream").unwrap_or(false),
        include_usage: flag("include_usage").unwrap_or(false),
        include_thoughts,
        carry_thinking: include_thoughts || omitted,
        id_signatures: true,
        legacy_calls: false,
        parallel: flag("parallel").unwrap_or(true),
        custom_tools: serde_json::from_value(facts["custom_tools"].clone()).unwrap_or_default(),
        name_map: name_map.map(|(theirs, own)| (theirs.clone(), own.as_str().expect("a name").to_owned())).collect(),
        echo: None,
        counted_input: 0,
    }
}

/// Status and body of an expected error; `None` where an answer is expected.
fn expected_error(expected: &Value) -> Option<(u64, &Value)> {
    Some((expected["status"].as_u64()?, expected.get("body")?))
}

fn response(caller: Protocol, upstream: Protocol, case: &Value, context: &ReplyContext) {
    let body = Bytes::from(case["input"].to_string());
    let result = translate_reply(upstream, caller, &body, context);
    match expected_error(&case["expected"]) {
        None => {
            let reply = result.expect("an answer");
            same(&serde_json::from_slice(&reply.body).expect("JSON"), &case["expected"]);
            assert!(reply.summary.finish.is_some());
        }
        Some((status, body)) => {
            let Err(InvalidReply::Unreadable(word)) = result else { panic!("{result:?} instead of an error") };
            assert_eq!((status, &body["error"]["code"]), (502, &json!("upstream_bad_response")));
            let sentence = body["error"]["message"].as_str().expect("a sentence");
            if let Some((_, named)) = sentence.split_once('(') {
                assert_eq!(word, named.trim_end_matches([')', '.']));
            }
        }
    }
}

/// The events in the upstream's framing.
fn wire(upstream: Protocol, events: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events.as_array().expect("events") {
        let data = event.as_str().map_or_else(|| event.to_string(), ToOwned::to_owned);
        if upstream == Protocol::Anthropic {
            bytes.extend_from_slice(format!("event: {}\n", event["type"].as_str().expect("a type")).as_bytes());
        }
        bytes.extend_from_slice(format!("data: {data}\n\n").as_bytes());
    }
    bytes
}

fn stream(caller: Protocol, upstream: Protocol, case: &Value, context: &ReplyContext) {
    let context = ReplyContext { stream: true, ..context.clone() };
    let bytes = wire(upstream, &case["input"]);
    let (out, fault) = relay(caller, upstream, &context, &[&bytes]);
    for cut in 0..=bytes.len() {
        let (again, same_fault) = relay(caller, upstream, &context, &[&bytes[..cut], &bytes[cut..]]);
        assert_eq!((&again, &same_fault), (&out, &fault), "cut at {cut}");
    }
    if let Some((status, body)) = expected_error(&case["expected"]) {
        assert!(out.is_empty(), "nothing before an error answer");
        let Some(StreamError::Problem(problem)) = fault else { panic!("{fault:?} instead of an upstream problem") };
        return refused(status, body, &problem, case);
    }
    let mut events: Vec<Value> = events(caller, &out);
    if fault.is_some() {
        events.extend(interruption(caller, upstream, &context, &bytes));
    }
    same(&Value::Array(events), &case["expected"]);
}

/// The bytes a caller receives for `chunks`, and the error that ended the stream.
fn relay(caller: Protocol, upstream: Protocol, context: &ReplyContext, chunks: &[&[u8]]) -> (Vec<u8>, Option<StreamError>) {
    let mut relay = translating_relay(upstream, caller, context);
    let mut out = Vec::new();
    let mut result = Ok(());
    for chunk in chunks {
        result = result.and_then(|()| relay.push(&Bytes::copy_from_slice(chunk), &mut out));
    }
    result = result.and_then(|()| relay.finish(&mut out));
    assert_eq!(relay.complete(), result.is_ok());
    (out.concat(), result.err())
}

/// Splits a caller's stream into events.
fn events(caller: Protocol, out: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(out).expect("UTF-8");
    let mut events = Vec::new();
    for event in text.split_terminator("\n\n") {
        let data = match caller {
            Protocol::Anthropic | Protocol::Responses => {
                let (name, data) = event.split_once('\n').expect("a name and data");
                let data = data.strip_prefix("data: ").expect("data");
                let value: Value = serde_json::from_str(data).expect("JSON");
                assert_eq!(name.strip_prefix("event: "), value["type"].as_str());
                data
            }
            Protocol::OpenAi | Protocol::Gemini => event.strip_prefix("data: ").expect("data"),
        };
        events.push(if data == "[DONE]" { json!("[DONE]") } else { serde_json::from_str(data).expect("JSON") });
    }
    assert!(text.is_empty() || text.ends_with("\n\n"), "whole events only");
    events
}

/// The events that end a stream which broke after `bytes`.
fn interruption(caller: Protocol, upstream: Protocol, context: &ReplyContext, bytes: &[u8]) -> Vec<Value> {
    let problem = Problem {
        status: 502,
        message: "The upstream provider's stream ended before the answer was complete.".to_owned(),
        request_id: "req1".to_owned(),
        openai: OpenAiErrorFields {
            kind: "server_error".to_owned(),
            code: Some("upstream_stream_interrupted".to_owned()),
            param: None,
        },
        native: GeminiErrorFields {
            status: "UNAVAILABLE",
            reason: "UPSTREAM_STREAM_INTERRUPTED".to_owned(),
            ..GeminiErrorFields::default()
        },
        ..Problem::default()
    };
    let mut relay = translating_relay(upstream, caller, context);
    let mut before = Vec::new();
    if relay.push(&Bytes::copy_from_slice(bytes), &mut before).is_ok() {
        assert!(relay.finish(&mut before).is_err());
    }
    let events = events(caller, &relay.problem(&problem));
    assert_eq!(events.len(), if caller == Protocol::Responses { 2 } else { 1 });
    events
}

fn error(caller: Protocol, upstream: Protocol, case: &Value, context: &ReplyContext) {
    let status = u16::try_from(case["input"]["upstream_status"].as_u64().expect("a status")).expect("a status");
    let body = case["input"]["upstream_body"].to_string();
    let problem = codec(upstream).decode_problem(status, body.as_bytes());
    assert!(problem.is_error_object, "{problem:?}");
    let (expected_status, expected) = expected_error(&case["expected"]).expect("a status and a body");
    let answer = translate_problem(upstream, caller, &problem, context);
    if expected_status == 200 {
        let answer = answer.expect("an answer instead of an error");
        return same(&serde_json::from_slice(&answer.body).expect("JSON"), expected);
    }
    assert_eq!(answer, None);
    refused(expected_status, expected, &problem, case);
}

/// Checks that an upstream problem has the members of the expected error answer (`docs/errors.md`).
fn refused(status: u64, body: &Value, problem: &UpstreamProblem, case: &Value) {
    let error = &body["error"];
    if body["type"] == "error" {
        return refused_in_messages(status, error, problem, case);
    }
    let openai_code = error["code"].as_str();
    let native_reason = error["details"][0]["reason"].as_str();
    match openai_code.or(native_reason).expect("a code or a reason") {
        "upstream_rejected" | "UPSTREAM_REJECTED" => {
            assert_eq!(u64::from(problem.status), status);
            assert_eq!(Some(problem.message.as_str()), error["message"].as_str());
            assert!(!problem.quota_exhausted && !problem.account_refused);
        }
        "upstream_account_error" => assert!(matches!(problem.status, 401..=403) || problem.account_refused),
        "NO_AVAILABLE_ACCOUNTS" => assert!(problem.quota_exhausted),
        "upstream_rate_limited" => {
            assert_eq!(problem.status, 429);
            // The gateway's own wait where the upstream names none.
            let wait = problem.retry_after.map(|seconds| seconds.to_string());
            assert_eq!(wait.as_deref().or(Some("5")), case["expected"]["headers"]["retry-after"].as_str());
        }
        "upstream_overloaded" => assert!(matches!(problem.status, 503 | 529)),
        "UPSTREAM_ERROR" => assert_eq!(problem.status, 500),
        other => panic!("no rule for {other}"),
    }
}

/// [`refused`] for an Anthropic caller, whose errors have no code.
fn refused_in_messages(status: u64, error: &Value, problem: &UpstreamProblem, case: &Value) {
    let wait = case["expected"]["headers"]["retry-after"].as_str();
    match (error["type"].as_str().expect("a type"), status) {
        ("invalid_request_error", 400) => {
            assert_eq!((u64::from(problem.status), Some(problem.message.as_str())), (status, error["message"].as_str()));
        }
        ("rate_limit_error", 429) => {
            assert_eq!(problem.status, 429);
            // The gateway's own wait where the upstream names none.
            assert_eq!(problem.retry_after.map(|seconds| seconds.to_string()).as_deref().or(Some("5")), wait);
        }
        ("api_error", 502) if wait == Some("10") => assert_eq!(problem.status, 403),
        ("api_error", 502) => assert_eq!(problem.status, 500),
        other => panic!("no rule for {other:?}"),
    }
}

/// Asserts equality, ignoring member order and number formats.
#[track_caller]
fn same(found: &Value, expected: &Value) {
    assert!(equal(found, expected), "found    {found}\nexpected {expected}");
}

fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| equal(one, other)))
        }
        _ => one == other,
    }
}
