//! Edits of chat bodies change only what they name.

use proptest::prelude::*;

use super::*;
use crate::{Codec, Framing, Method, Target, openai::OpenAi};

fn forward(body: &str, edits: &RequestEdits<'_>) -> String {
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let summary = OpenAi.summarise(&target, body.as_bytes()).expect(body);
    let forwarded = OpenAi.forward_request(&Bytes::copy_from_slice(body.as_bytes()), &summary, edits);
    String::from_utf8(forwarded.to_vec()).expect("UTF-8")
}

/// A body with these members in front; they end with a comma.
fn body(members: &str) -> String {
    format!(r#"{{{members}"model":"m","messages":[{{"role":"user","content":"hi"}}]}}"#)
}

#[test]
fn model_is_renamed_and_escaped() {
    let renamed = RequestEdits { upstream_model: Some("org/\"x\""), ..RequestEdits::default() };
    assert_eq!(
        forward(r#"{"messages":[{"role":"user"}],"mo\u0064el" : "\u006d"}"#, &renamed),
        r#"{"messages":[{"role":"user"}],"mo\u0064el" : "org/\"x\""}"#
    );
    let same = RequestEdits { upstream_model: Some("m"), ..RequestEdits::default() };
    assert_eq!(forward(&body(""), &same), body(""));
}

#[test]
fn usage_is_requested_for_streams_only() {
    let edits = RequestEdits { force_usage: true, ..RequestEdits::default() };
    for (given, expected) in [
        (r#""stream":true,"#, r#""stream_options":{"include_usage":true},"stream":true,"#),
        (r#""stream":true,"stream_options":null,"#, r#""stream":true,"stream_options":{"include_usage":true},"#),
        (r#""stream":true,"stream_options":{},"#, r#""stream":true,"stream_options":{"include_usage":true},"#),
        (r#""stream":true,"stream_options":{ },"#, r#""stream":true,"stream_options":{"include_usage":true },"#),
        (r#""stream":true,"stream_options":{"a":1},"#, r#""stream":true,"stream_options":{"include_usage":true,"a":1},"#),
        (r#""stream":true,"stream_options":{"include_usage":null},"#, r#""stream":true,"stream_options":{"include_usage":true},"#),
        (r#""stream":true,"stream_options":{"include_usage":true},"#, r#""stream":true,"stream_options":{"include_usage":true},"#),
        (r#""stream":true,"stream_options":7,"#, r#""stream":true,"stream_options":7,"#),
        (r#""stream":false,"#, r#""stream":false,"#),
        ("", ""),
    ] {
        assert_eq!(forward(&body(given), &edits), body(expected), "{given}");
    }
    assert_eq!(forward(&body(r#""stream":true,"#), &RequestEdits::default()), body(r#""stream":true,"#));
}

#[test]
fn limit_is_added_or_lowered() {
    let edits = RequestEdits { max_output: Some(100), ..RequestEdits::default() };
    for (given, expected) in [
        ("", r#""max_completion_tokens":100,"#),
        (r#""max_tokens":7,"#, r#""max_tokens":7,"#),
        (r#""max_tokens":100,"#, r#""max_tokens":100,"#),
        (r#""max_tokens":1e3,"#, r#""max_tokens":100,"#),
        (r#""max_tokens" : 5000 ,"max_completion_tokens":50,"#, r#""max_tokens" : 100 ,"max_completion_tokens":50,"#),
        (r#""max_completion_tokens":null,"#, r#""max_completion_tokens":100,"#),
        (r#""max_tokens":null,"#, r#""max_completion_tokens":100,"max_tokens":null,"#),
        (r#""max_tokens":null,"max_completion_tokens":50,"#, r#""max_tokens":null,"max_completion_tokens":50,"#),
    ] {
        assert_eq!(forward(&body(given), &edits), body(expected), "{given}");
    }
    let old = RequestEdits { output_limit_field: Some("max_tokens"), ..edits };
    assert_eq!(forward(&body(""), &old), body(r#""max_tokens":100,"#));
    assert_eq!(forward(&body(r#""max_tokens":null,"#), &old), body(r#""max_tokens":100,"#));
}

#[test]
fn limit_gets_the_name_in_the_profile() {
    let edits = RequestEdits { output_limit_field: Some("max_completion_tokens"), ..RequestEdits::default() };
    for (given, expected) in [
        (r#""max_tokens" : 7,"#, r#""max_completion_tokens" : 7,"#),
        (r#""max_completion_tokens":7,"#, r#""max_completion_tokens":7,"#),
        (r#""max_tokens":7,"max_completion_tokens":8,"#, r#""max_tokens":7,"max_completion_tokens":8,"#),
        (r#""max_tokens":7,"max_completion_tokens":null,"#, r#""max_tokens":7,"max_completion_tokens":null,"#),
        (r#""max_tokens":null,"#, r#""max_tokens":null,"#),
        ("", ""),
    ] {
        assert_eq!(forward(&body(given), &edits), body(expected), "{given}");
    }
    let both = RequestEdits { max_output: Some(5), ..edits };
    assert_eq!(forward(&body(r#""max_tokens":7,"#), &both), body(r#""max_completion_tokens":5,"#));
}

#[test]
fn all_edits_are_combined() {
    let edits = RequestEdits { upstream_model: Some("x"), force_usage: true, max_output: Some(9), ..RequestEdits::default() };
    assert_eq!(
        forward(r#"{"model":"m","messages":[{"role":"tool","tool_call_id":"c__sig1_QQ"}],"stream":true}"#, &edits),
        r#"{"stream_options":{"include_usage":true},"max_completion_tokens":9,"model":"x","messages":[{"role":"tool","tool_call_id":"c"}],"stream":true}"#
    );
}

#[test]
fn suffixes_are_removed_from_tool_ids_only() {
    let given = r#"{"model":"m__sig1_QQ","messages":[
        {"role":"user","content":"x__sig1_QQ","id":"x__sig1_QQ"},
        {"role":"assistant","tool_calls":[{"id":"c1__sig1_QUJD","function":{"name":"f","arguments":"{\"id\":\"x__sig1_QQ\"}"}},7]},
        {"role":"tool","tool_call_id" : "c1__sig1_QUJD","content":"x__sig1_QQ"}],"metadata":{"id":"x__sig1_QQ"}}"#;
    assert_eq!(forward(given, &RequestEdits::default()), given.replace("c1__sig1_QUJD", "c1"));
}

#[test]
fn google_signatures_are_removed_for_other_providers() {
    let history = |call: &str, message: &str| {
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"thought_signature"}},
            {{"role":"assistant","content":null,"tool_calls":[{{"id":"c1","type":"function"{call},"function":{{"name":"f","arguments":"{{\"extra_content\":{{\"google\":{{\"thought_signature\":1}}}}}}"}}}}]{message}}},
            {{"role":"tool","tool_call_id":"c1","content":"{{}}"}}],"extra_content":{{"google":{{"thought_signature":"mine"}}}}}}"#
        )
    };
    let signed = r#", "extra_content" : {"google":{"thought_signature":"QUJD"}}"#;
    for (given, expected) in [
        (signed, ""),
        (r#","extra_content":{"google":{"thought_signature":"QUJD","x":1}}"#, r#","extra_content":{"google":{"x":1}}"#),
        (r#","extra_content":{"google":{"x":1, "thought_signature":"QUJD"}}"#, r#","extra_content":{"google":{"x":1}}"#),
        (r#","extra_content":{"google":{"thought_signature":"QUJD"},"y":{"z":2}}"#, r#","extra_content":{"y":{"z":2}}"#),
        (r#","extra_content":{"y":{"thought_signature":2}}"#, r#","extra_content":{"y":{"thought_signature":2}}"#),
        (r#","extra_content":null,"z":[{}]"#, r#","extra_content":null,"z":[{}]"#),
        (r#","extra_content":{"google":{}}"#, r#","extra_content":{"google":{}}"#),
    ] {
        for (call, message) in [(given, ""), ("", given), (given, given)] {
            let wanted = |given: &str| if given.is_empty() { "" } else { expected }.to_owned();
            let forwarded = forward(&history(call, message), &RequestEdits::default());
            assert_eq!(forwarded, history(&wanted(call), &wanted(message)), "{given}");
        }
    }
    let own = RequestEdits { keep_google_signatures: true, ..RequestEdits::default() };
    assert_eq!(forward(&history(signed, signed), &own), history(signed, signed));
    let sealed =
        r#","extra_content":{"google":{"thought_signature":"QUJD"},"openai":{"reasoning":[{"encrypted_content":"gAAAA"}]}}"#;
    assert_eq!(forward(&history(sealed, ""), &own), history(r#","extra_content":{"google":{"thought_signature":"QUJD"}}"#, ""));
    assert_eq!(forward(&history(sealed, ""), &RequestEdits::default()), history("", ""));
    let others = r#","extra_content":{"openai":{"reasoning":{"encrypted_content":"gAAAA"},"x":1}}"#;
    assert_eq!(forward(&history(others, ""), &own), history(r#","extra_content":{"openai":{"x":1}}"#, ""));
    let suffixed = history(signed, signed).replace("c1", "c1__sig1_QUJD");
    assert_eq!(forward(&suffixed, &own), history(signed, signed));
    assert_eq!(forward(&suffixed, &RequestEdits::default()), history("", ""));
}

proptest! {
    #[test]
    fn without_edits_the_buffer_is_the_same(text in any::<String>(), seed in any::<u64>(), pretty in any::<bool>()) {
        prop_assume!(!text.contains("__sig1_"));
        let value = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": text}], "seed": seed});
        let body = Bytes::from(if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.expect("serialises"));
        let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
        let summary = OpenAi.summarise(&target, &body).expect("well formed");
        let edits = RequestEdits { force_usage: true, ..RequestEdits::default() };
        let forwarded = OpenAi.forward_request(&body, &summary, &edits);
        prop_assert_eq!(forwarded.as_ptr(), body.as_ptr());
        prop_assert_eq!(forwarded.len(), body.len());
    }

    /// After any edits, the result is JSON with the requested changes and is otherwise equal.
    #[test]
    fn edits_change_only_the_named_ranges(
        stream in any::<bool>(),
        options in prop::option::of(prop::option::of(any::<bool>())),
        limit in prop::option::of(1_u64..200),
        max in prop::option::of(1_u64..200),
        name in prop::option::of("[a-z\"\\\\é]{1,5}"),
    ) {
        let mut value = serde_json::json!({"top_p": 0.3, "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream});
        match options {
            Some(Some(include)) => value["stream_options"] = serde_json::json!({"x": 1, "include_usage": include}),
            Some(None) => value["stream_options"] = serde_json::json!({}),
            None => {}
        }
        if let Some(limit) = limit {
            value["max_completion_tokens"] = limit.into();
        }
        let edits = RequestEdits { upstream_model: name.as_deref(), force_usage: true, max_output: max, ..RequestEdits::default() };
        let forwarded: serde_json::Value = serde_json::from_str(&forward(&value.to_string(), &edits)).expect("still JSON");
        if let Some(name) = name {
            value["model"] = name.into();
        }
        if stream {
            value["stream_options"]["include_usage"] = true.into();
        }
        if let Some(max) = max {
            value["max_completion_tokens"] = limit.map_or(max, |limit| limit.min(max)).into();
        }
        prop_assert_eq!(forwarded, value);
    }
}
