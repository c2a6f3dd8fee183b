//! Edits of every kind, in every protocol, and the edits that are refused.

use serde_json::json;

use super::*;

fn number(value: &Value) -> Option<Number> {
    value.as_number().cloned()
}

fn drop_it(field: &str) -> ParameterEdit {
    ParameterEdit { parameter: field.to_owned(), change: ParameterChange::Drop }
}

fn rename(field: &str, to: &str) -> ParameterEdit {
    ParameterEdit { parameter: field.to_owned(), change: ParameterChange::Rename { to: to.to_owned() } }
}

fn clamp(field: &str, min: &Value, max: &Value) -> ParameterEdit {
    ParameterEdit { parameter: field.to_owned(), change: ParameterChange::Clamp { min: number(min), max: number(max) } }
}

fn force(field: &str, value: Value) -> ParameterEdit {
    ParameterEdit { parameter: field.to_owned(), change: ParameterChange::Force { value } }
}

/// The edited body and the entries of the changes.
fn edited(protocol: Protocol, body: &'static str, edits: &[ParameterEdit]) -> (String, String) {
    let (body, changed) = edit_parameters(protocol, &Bytes::from_static(body.as_bytes()), edits);
    (String::from_utf8(body.to_vec()).unwrap(), changed.join(" "))
}

fn check(protocol: Protocol, body: &'static str, edits: &[ParameterEdit], expected: &str, changed: &str) {
    assert_eq!(edited(protocol, body, edits), (expected.to_owned(), changed.to_owned()), "{body}");
}

use Protocol::{Anthropic, Gemini, OpenAi, Responses};

#[test]
fn other_bytes_are_kept() {
    let body = r#"{ "model" : "m","x":1e400, "seed":9007199254740993,"temp\u0065rature":2.50,"messages":[{"seed" : 1.0}] }"#;
    check(
        OpenAi,
        body,
        &[drop_it("seed"), clamp("temperature", &json!(0), &json!(1))],
        r#"{"model" : "m","x":1e400,"temp\u0065rature":1,"messages":[{"seed" : 1.0}]}"#,
        "seed temperature=1",
    );
}

#[test]
fn unchanged_body_is_the_same_buffer() {
    let body = Bytes::from_static(br#"{ "temperature":0.5,"reasoning_effort":"low"}"#);
    let edits =
        [drop_it("seed"), rename("a", "b"), clamp("temperature", &json!(0), &json!(1)), force("reasoning_effort", json!("low"))];
    let (same, changed) = edit_parameters(OpenAi, &body, &edits);
    assert_eq!((same.as_ptr(), changed), (body.as_ptr(), Vec::new()));
    for bad in [&br#"{"seed":1"#[..], b"[]", b"", b"\xff"] {
        let body = Bytes::from_static(bad);
        assert_eq!(edit_parameters(OpenAi, &body, &[drop_it("seed")]).0.as_ptr(), body.as_ptr());
    }
}

#[test]
fn duplicate_members_are_all_edited() {
    check(OpenAi, r#"{"seed":1,"a":2,"seed":3}"#, &[drop_it("seed")], r#"{"a":2}"#, "seed");
    check(OpenAi, r#"{"k":9,"k":8}"#, &[clamp("k", &Value::Null, &json!(5))], r#"{"k":5,"k":5}"#, "k=5");
}

#[test]
fn renamed_parameter_gives_way_to_one_that_has_the_name() {
    check(
        OpenAi,
        r#"{"user":"a"}"#,
        &[rename("user", "safety_identifier")],
        r#"{"safety_identifier":"a"}"#,
        "user->safety_identifier",
    );
    let both = r#"{"user":"a","safety_identifier":"b"}"#;
    check(OpenAi, both, &[rename("user", "safety_identifier")], r#"{"safety_identifier":"b"}"#, "user->safety_identifier");
}

#[test]
fn edits_apply_in_order() {
    let edits = [rename("a", "b"), clamp("b", &json!(1), &Value::Null), drop_it("c"), force("c", json!(true))];
    check(OpenAi, r#"{"a":0,"c":1}"#, &edits, r#"{"b":1,"c":true}"#, "a->b b=1 c c=true");
}

#[test]
fn only_numbers_outside_the_range_are_clamped() {
    let edit = [clamp("t", &json!(-0.5), &json!(1.5))];
    for (value, clamped) in [("2", "1.5"), ("1e400", "1.5"), ("-1", "-0.5"), ("-1e999", "-0.5")] {
        let body: &'static str = format!(r#"{{"t":{value}}}"#).leak();
        check(OpenAi, body, &edit, &format!(r#"{{"t":{clamped}}}"#), &format!("t={clamped}"));
    }
    for value in ["1.5", "0", "null", "\"9\"", "[9]", "{}", "true"] {
        let body: &'static str = format!(r#"{{ "t":{value}}}"#).leak();
        check(OpenAi, body, &edit, body, "");
    }
    let exact = [clamp("k", &Value::Null, &json!(9_007_199_254_740_992_i64))];
    check(OpenAi, r#"{"k":9007199254740993}"#, &exact, r#"{"k":9007199254740992}"#, "k=9007199254740992");
}

#[test]
fn nested_parameters_are_edited() {
    let body = r#"{"contents":[],"generation_config":{"top_k":3,"topP":0.10,"thinkingConfig":{"a":1}}}"#;
    check(
        Gemini,
        body,
        &[drop_it("generationConfig.topK"), force("generationConfig.thinkingConfig.thinkingLevel", json!("low"))],
        r#"{"contents":[],"generation_config":{"topP":0.10,"thinkingConfig":{"a":1,"thinkingLevel":"low"}}}"#,
        "generationConfig.topK generationConfig.thinkingConfig.thinkingLevel=low",
    );
    check(OpenAi, r#"{"a_b":1}"#, &[drop_it("aB")], r#"{"a_b":1}"#, "");
    let effort = [force("reasoning.effort", json!("low"))];
    check(Responses, r#"{"input":"a"}"#, &effort, r#"{"input":"a","reasoning":{"effort":"low"}}"#, "reasoning.effort=low");
    check(Responses, r#"{"reasoning":null}"#, &effort, r#"{"reasoning":{"effort":"low"}}"#, "reasoning.effort=low");
    check(Responses, r#"{"reasoning":7}"#, &effort, r#"{"reasoning":7}"#, "");
    let whole = [force("reasoning", json!({"effort": "high"})), force("reasoning.summary", json!("auto"))];
    check(Responses, "{}", &whole[..1], r#"{"reasoning":{"effort":"high"}}"#, "reasoning=...");
}

#[test]
fn an_edit_that_would_falsify_what_was_read_is_refused() {
    let refused = |edit: &ParameterEdit| edit.fault().map(|(member, _)| member);
    for field in [
        "model",
        "messages",
        "contents",
        "input",
        "stream",
        "stream_options.include_usage",
        "tools",
        "n",
        "tool_choice",
        "system",
        "generationConfig",
        "generation_config.candidateCount",
        "service_tier",
        "serviceTier",
        "modalities",
        "web_search_options",
        "provider",
        "extra_body.google",
        "previous_response_id",
        "MODEL",
    ] {
        assert_eq!(refused(&drop_it(field)), Some("parameter"), "{field}");
        assert_eq!(refused(&force(field, json!(1))), Some("parameter"), "{field}");
        assert_eq!(refused(&rename(field, "other")), Some("parameter"), "{field}");
        assert_eq!(refused(&clamp(field, &json!(1), &json!(2))), Some("parameter"), "{field}");
    }
    for (field, to) in [("a", "model"), ("a", "max_tokens"), ("generationConfig.a", "candidateCount"), ("text.a", "format")] {
        assert_eq!(refused(&rename(field, to)), Some("to"), "{field} {to}");
    }
    assert_eq!(refused(&rename("a", "b.c")), Some("to"));
    assert_eq!(refused(&rename("a", "a")), Some("to"));
    for good in [
        drop_it("logit_bias"),
        drop_it("response_format"),
        drop_it("generationConfig.topK"),
        rename("user", "safety_identifier"),
        force("reasoning.effort", json!("low")),
        force("thinking", json!({"type": "disabled"})),
        force("text.verbosity", json!("low")),
        clamp("temperature", &json!(0), &json!(1)),
    ] {
        assert_eq!(good.fault(), None, "{good:?}");
    }
}

#[test]
fn output_limits_can_only_be_lowered() {
    for field in ["max_tokens", "max_completion_tokens", "max_output_tokens", "generationConfig.maxOutputTokens"] {
        assert_eq!(clamp(field, &Value::Null, &json!(4096)).fault(), None, "{field}");
        for (bad, member) in [
            (clamp(field, &json!(1), &json!(4096)), "min"),
            (clamp(field, &Value::Null, &json!(0)), "max"),
            (clamp(field, &Value::Null, &json!(1.5)), "max"),
            (drop_it(field), "parameter"),
            (force(field, json!(1)), "parameter"),
            (rename(field, "max_new_tokens"), "parameter"),
        ] {
            assert_eq!(bad.fault().map(|(member, _)| member), Some(member), "{bad:?}");
        }
    }
    check(
        Anthropic,
        r#"{"max_tokens":64000}"#,
        &[clamp("max_tokens", &Value::Null, &json!(8192))],
        r#"{"max_tokens":8192}"#,
        "max_tokens=8192",
    );
}

#[test]
fn impossible_names_and_values_are_refused() {
    let long = "x".repeat(MAX_PARAMETER_BYTES + 1);
    for field in ["", ".", "a.", "a..b", "a b", "a\"b", "a[0]", "größe", "a.b.c.d.e", &long] {
        assert_eq!(drop_it(field).fault().map(|(member, _)| member), Some("parameter"), "{field}");
    }
    let deep = (0..MAX_FORCED_DEPTH).fold(json!(1), |inner, _| json!([inner]));
    for value in [json!(null), json!([null]), json!(u64::MAX), json!("x".repeat(257)), json!(vec![1; 2_000]), deep] {
        assert_eq!(force("a", value.clone()).fault().map(|(member, _)| member), Some("value"), "{value}");
    }
    assert_eq!(force("response_format", json!({"type": "json_object"})).fault().map(|(member, _)| member), Some("parameter"));
    for (min, max) in [(json!(null), json!(null)), (json!(2), json!(1)), (json!(0.5), json!(0.25))] {
        assert_eq!(clamp("a", &min, &max).fault().map(|(member, _)| member), Some("max"), "{min} {max}");
    }
}
