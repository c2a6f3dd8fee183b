//! The golden cases of translation, end to end: requests as the upstream receives them, and every case that ends in an error as
//! the caller receives it. The cases are those of the protocol crate (see `fixtures/golden/README.md` there). Answers without an
//! error need facts about their request that the cases do not contain, and are tested there.

use std::{collections::BTreeSet, fs};

use serde_json::Value;
use tollgate_core::Provider;
use tollgate_protocol::{Profile, Protocol};

use super::*;

macro_rules! refusals {
    ($($direction:ident: $($case:ident)+;)+) => {
        $(mod $direction {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                super::refused(stringify!($direction), stringify!($case)).await;
            })+
        })+

        const LISTED: &[(&str, &[&str])] = &[$((stringify!($direction), &[$(stringify!($case)),+])),+];
    };
}

refusals! {
    openai_to_gemini:
        error_logit_bias_rejected error_too_many_stops error_n_too_large error_json_with_tools_on_25 error_unknown_part_type
        error_tool_result_missing error_remote_image_refused error_upstream_400 error_upstream_403_hidden
        response_malformed_call_without_content response_no_candidates_no_reason stream_error_event_first;
    gemini_to_openai:
        error_messages_instead_of_contents error_top_k_unsupported error_google_search_unsupported error_stop_five
        error_orphan_function_response error_gs_uri error_root_array_schema error_azure_content_filter
        error_quota_of_our_account error_upstream_400 stream_error_first;
    openai_to_anthropic:
        error_temperature_above_one error_n_two error_adaptive_temperature error_prefill_not_taken;
    anthropic_to_openai:
        error_server_tool error_other_context_edit error_server_held_thread error_max_tokens_missing
        error_upstream_rate_limit error_context_length stream_error_first;
    anthropic_to_gemini: error_unknown_block error_account_refused;
    responses_to_openai:
        error_previous_response_id error_background error_conversation error_item_reference error_hosted_tool
        error_hosted_tool_forced error_orphan_output error_call_without_output error_prompt_template error_upstream_429;
    responses_to_gemini:
        error_verbosity error_format_with_tools error_unknown_item error_compaction_item response_malformed_call
        stream_error_before_content;
    responses_to_anthropic:
        error_temperature_above_one error_json_object error_prefill_not_taken error_logprobs error_upstream_400
        error_upstream_overloaded;
}

macro_rules! requests {
    ($($direction:ident: $($case:ident)+;)+) => {
        mod sent {
            $(mod $direction {
                $(#[tokio::test(start_paused = true)]
                async fn $case() {
                    super::super::sends(stringify!($direction), stringify!($case)).await;
                })+
            })+
        }

        const SENT: &[(&str, &[&str])] = &[$((stringify!($direction), &[$(stringify!($case)),+])),+];
    };
}

requests! {
    openai_to_gemini:
        request_minimal request_sampling_params request_zero_and_noop_values request_bookkeeping_fields_dropped
        request_leading_system_parts request_system_in_the_middle_stays request_system_between_call_and_result
        request_system_only request_consecutive_same_role_merge request_empty_contents request_parallel_tools_roundtrip
        request_no_ids_on_gemini_25 request_signature_from_id request_signature_from_extra_content
        request_tool_result_with_ref request_broken_arguments_kept request_tool_schema_verbatim
        request_schema_subset_for_old_models request_tool_choice_named request_tool_choice_allowed_tools_auto
        request_json_schema_with_tools_on_g3 request_effort_level request_effort_none_cannot_disable
        request_effort_budget request_google_extra_body request_media_parts request_deprecated_functions
        request_history_starts_with_tool_call;
    gemini_to_openai:
        request_minimal request_role_absent_and_multi_text request_system_all_parts request_snake_case_and_number_forms
        request_same_function_twice_no_ids request_ids_win_over_order request_text_before_function_response
        request_thoughts_and_signatures_dropped request_tools_schema_conversion request_tool_config_any_one
        request_tool_config_any_many request_function_name_rewritten request_response_schema request_json_mode_word
        request_thinking_budget_to_effort request_safety_and_labels_dropped request_media;
    openai_to_anthropic:
        request_minimal_default_max_tokens request_system_params request_parallel_results_one_message
        request_gemini_ids_cleaned request_effort_and_schema request_images request_adaptive_effort_noop_sampling
        request_adaptive_effort_none request_always_effort_none_adjusted;
    gemini_to_anthropic:
        request_functions_and_candidates request_anthropic_thinking_returns request_omitted_signatures_return;
    anthropic_to_openai:
        request_tool_results_first request_claude_code_first_turn request_claude_code_reasoning request_results_out_of_order
        request_interleaved_thinking_turns request_any_tool_one_at_a_time request_documents_and_images
        request_output_format_and_noops;
    anthropic_to_gemini:
        request_thinking_images_errors request_claude_code_first_turn request_two_rounds_with_signatures
        request_deferred_tool_loaded request_budget_and_sampling;
    responses_to_openai:
        request_minimal request_stream_forces_usage request_leading_system_joined request_system_later_stays
        request_sampling_and_limits request_sdk_defaults_are_noops request_bookkeeping_dropped request_tool_loop
        request_result_parts_and_image request_user_parts request_custom_tool request_namespace_flattened
        request_offered_web_search_dropped request_only_hosted_tools request_tool_choice_forms request_structured_output
        request_effort_on_a_reasoning_model request_own_reasoning_returns request_foreign_reasoning_dropped
        request_codex_first_turn;
    responses_to_gemini:
        request_minimal request_leading_system_parts request_system_later request_sampling_stream request_effort_without_summary
        request_effort_with_summary request_summary_alone request_effort_none_adjusted request_signature_on_call
        request_signature_of_text request_signature_lost request_custom_tool_as_function request_namespace_and_allowed_tools
        request_structured_output request_image_and_result_image;
    responses_to_anthropic:
        request_minimal_default_max_tokens request_system_params_choice request_thinking_returns
        request_omitted_thinking_returns request_foreign_thoughts_dropped request_results_first request_effort_adaptive_summary
        request_effort_budget_and_format request_summary_alone_budget request_files;
}

const DIRECTIONS: [&str; 9] = [
    "openai_to_gemini",
    "gemini_to_openai",
    "openai_to_anthropic",
    "gemini_to_anthropic",
    "anthropic_to_openai",
    "anthropic_to_gemini",
    "responses_to_openai",
    "responses_to_gemini",
    "responses_to_anthropic",
];
/// Requests for cases that contain none.
const MESSAGE: &str = r#"{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}"#;
const MESSAGE_STREAM: &str = r#"{"model":"m","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
const INPUT: &str = r#"{"model":"m","input":"hi"}"#;
const INPUT_STREAM: &str = r#"{"model":"m","stream":true,"input":"hi"}"#;
/// Answers of upstreams for cases that contain none.
const GEMINI_REPLY: &str = r#"{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}"#;
const ANTHROPIC_REPLY: &str = r#"{"id":"a","type":"message","role":"assistant","model":"c","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;

fn fixture(name: &str) -> String {
    let path = format!("{}/../tollgate-protocol/fixtures/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn cases(direction: &str) -> Vec<Value> {
    fixture(&format!("{direction}.jsonl")).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn function_name(case: &Value) -> String {
    case["name"].as_str().unwrap().replacen('.', "_", 1)
}

/// Whether the caller receives an error instead of the upstream's answer.
fn is_refusal(case: &Value) -> bool {
    case["kind"] != "request" && case["expected"]["status"].is_u64() && case["expected"]["body"].is_object()
}

fn sides(direction: &str) -> (Protocol, Protocol) {
    let (caller, upstream) = direction.split_once("_to_").unwrap();
    (Protocol::parse(caller).unwrap(), Protocol::parse(upstream).unwrap())
}

#[test]
fn every_error_case_is_listed() {
    for direction in DIRECTIONS {
        let listed = LISTED.iter().find(|(name, _)| *name == direction).map_or(&[][..], |(_, cases)| cases);
        let listed: BTreeSet<String> = listed.iter().map(|name| (*name).to_owned()).collect();
        let found: BTreeSet<String> = cases(direction).iter().filter(|case| is_refusal(case)).map(function_name).collect();
        assert_eq!(listed, found, "{direction}");
    }
}

/// Whether the case is a request as the upstream receives it. Fetched media would need a network.
fn is_request(case: &Value) -> bool {
    case["kind"] == "request" && case["ctx"]["fetched"].is_null()
}

#[test]
fn every_request_case_is_listed() {
    for direction in DIRECTIONS {
        let listed = SENT.iter().find(|(name, _)| *name == direction).map_or(&[][..], |(_, cases)| cases);
        let listed: BTreeSet<String> = listed.iter().map(|name| (*name).to_owned()).collect();
        let found: BTreeSet<String> = cases(direction).iter().filter(|case| is_request(case)).map(function_name).collect();
        assert_eq!(listed, found, "{direction}");
    }
}

/// A gateway with one account of the case's upstream.
fn rig(script: Script, upstream: Protocol, case: &Value) -> Rig {
    let (provider, word) = match upstream {
        Protocol::OpenAi => (Provider::OpenAi, "openai-chat"),
        Protocol::Gemini => (Provider::Gemini, "gemini-3-flash"),
        Protocol::Anthropic => (Provider::Anthropic, "claude"),
        Protocol::Responses => (Provider::OpenAi, "gpt-5.1"),
    };
    let word = case["ctx"]["profile"].as_str().unwrap_or(word);
    let mut profiles: std::collections::HashMap<String, Profile> = serde_json::from_str(&fixture("profiles.json")).unwrap();
    let profile = profiles.remove(word).expect("a profile of the cases");
    Rig::with(script, 1, |channel| {
        (channel.spec.protocol, channel.spec.provider) = (upstream, provider);
        word.clone_into(&mut channel.spec.serves[0].upstream);
        channel.spec.serves[0].profile = profile;
    })
}

async fn ask(rig: &Rig, caller: Protocol, body: &str, streams: bool) -> Got {
    let incoming = match caller {
        Protocol::Gemini => rig.native(if streams { Method::StreamGenerate } else { Method::Generate }, body),
        Protocol::OpenAi => rig.incoming(body),
        Protocol::Anthropic => rig.messages(body),
        Protocol::Responses => rig.responses(body),
    };
    read(serve(&rig.core, incoming).await).await
}

async fn refused(direction: &str, name: &str) {
    let case = cases(direction).into_iter().find(|case| is_refusal(case) && function_name(case) == name).expect("the case");
    let (caller, upstream) = sides(direction);
    let input = &case["input"];
    let (script, sent) = match case["kind"].as_str().unwrap() {
        "response" => (Script::new().replies(&input.to_string()), None),
        "stream" => {
            let events = input.as_array().unwrap().iter().map(|event| format!("data: {event}\n\n").as_str().into());
            (Script::new().streams(events.collect()), None)
        }
        _ => match input["upstream_status"].as_u64() {
            Some(status) => {
                let body = input["upstream_body"].to_string();
                (Script::new().answers(status.try_into().unwrap(), &[], vec![body.as_str().into()]), None)
            }
            None => (Script::new(), Some(input.to_string())),
        },
    };
    let calls = usize::from(sent.is_none());
    let streams = case["kind"] == "stream";
    let valid = match caller {
        Protocol::Gemini => r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#,
        Protocol::OpenAi if streams => STREAM,
        Protocol::OpenAi => CHAT,
        Protocol::Anthropic if streams => MESSAGE_STREAM,
        Protocol::Anthropic => MESSAGE,
        Protocol::Responses if streams => INPUT_STREAM,
        Protocol::Responses => INPUT,
    };
    let mut rig = rig(script, upstream, &case);
    let got = ask(&rig, caller, sent.as_deref().unwrap_or(valid), streams).await;

    let expected = &case["expected"];
    assert_eq!(u64::from(got.status), expected["status"].as_u64().unwrap(), "{}", got.body);
    for (name, value) in expected["headers"].as_object().into_iter().flatten() {
        assert_eq!(got.header(name), value.as_str(), "{name}");
    }
    let id = got.header("x-request-id").expect("on every answer").to_owned();
    let received: Value = serde_json::from_str(&got.body).unwrap();
    let wanted: Value = serde_json::from_str(&expected["body"].to_string().replace("req1", &id)).unwrap();
    assert_same_error(&received, &wanted);
    assert_eq!(rig.script.seen().len(), calls, "calls upstream");
    assert_eq!(u64::from(rig.record().status), expected["status"].as_u64().unwrap());
}

/// Compares two errors. Text in parentheses may differ. A message that docs/errors.md does not spell out only needs the quoted words.
fn assert_same_error(received: &Value, wanted: &Value) {
    let (mut one, mut other) = (received.clone(), wanted.clone());
    let free = wanted["error"]["code"] == "invalid_value" || wanted["error"]["details"][0]["reason"] == "INVALID_BODY";
    for pointer in ["/error/message", "/error/details/1/fieldViolations/0/description"] {
        let (Some(received), Some(wanted)) = (one.pointer_mut(pointer), other.pointer_mut(pointer)) else { continue };
        let (mine, theirs) = (received.as_str().unwrap(), wanted.as_str().unwrap());
        if free {
            for word in theirs.split('\'').skip(1).step_by(2) {
                assert!(mine.contains(&format!("'{word}'")), "'{word}' is not in: {mine}");
            }
            *received = wanted.clone();
        } else {
            (*received, *wanted) = (bare(mine).into(), bare(theirs).into());
        }
    }
    assert_eq!(one, other, "received {received}");
}

/// A sentence without its text in parentheses, except `(gemini)`, the protocol family.
fn bare(sentence: &str) -> String {
    let Some((before, rest)) = sentence.split_once(" (") else { return sentence.to_owned() };
    let Some((inside, after)) = rest.split_once(')') else { return sentence.to_owned() };
    if inside == "gemini" { sentence.to_owned() } else { format!("{before}{after}") }
}

async fn sends(direction: &str, name: &str) {
    let (caller, upstream) = sides(direction);
    let case = cases(direction).into_iter().find(|case| is_request(case) && function_name(case) == name).expect("the case");
    let reply = match upstream {
        Protocol::OpenAi => REPLY,
        Protocol::Gemini => GEMINI_REPLY,
        Protocol::Anthropic => ANTHROPIC_REPLY,
        Protocol::Responses => panic!("no direction has such upstreams"),
    };
    let mut rig = rig(Script::new().replies(reply), upstream, &case);
    let got = ask(&rig, caller, &case["input"].to_string(), case["ctx"]["stream"] == true).await;
    let seen = rig.script.seen();
    assert_eq!(seen.len(), 1, "{}", got.body);
    let sent: Value = serde_json::from_str(&seen[0].body).unwrap();
    let expected = &case["expected"];
    assert!(same(&sent, &expected["body"]), "\n    sent {sent}\nexpected {}", expected["body"]);
    let path = expected["path"].as_str().unwrap();
    assert!(path.ends_with(&seen[0].path), "{} is not {path}", seen[0].path);
    let dropped: Vec<String> =
        expected["dropped"].as_array().into_iter().flatten().map(|entry| entry.as_str().unwrap().to_owned()).collect();
    assert_eq!(rig.record().dropped, dropped);
}

/// Equal with numbers compared by value.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}
