//! Summaries of chat bodies, and the errors of invalid ones.

use std::ops::Range;

use crate::{Framing, MalformedKind};

use super::*;

fn target(method: Method) -> Target {
    Target { method, model: None, framing: Framing::Sse }
}

fn chat(body: &str) -> Result<RequestSummary, Malformed> {
    summarise(&target(Method::Chat), body.as_bytes())
}

/// A chat body with more members after the required ones.
fn with(members: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],{members}}}"#)
}

fn with_message(message: &str) -> String {
    format!(r#"{{"model":"m","messages":[{message}]}}"#)
}

fn refused(body: &str) -> (MalformedKind, String) {
    let refusal = chat(body).expect_err(body);
    (refusal.kind, refusal.message)
}

#[test]
fn summary_has_all_fields() {
    let body = r#" { "model":"gpt\u002dx", "stream":true,"stream_options": {"include_usage":true},
        "messages":[
            {"role":"system","content":"be\n"},
            {"role":"user","content":[
                {"type":"text","text":"caf\u00e9"},
                {"type":"image_url","image_url":{"url":"https://x/y.png","detail":"low"}},
                {"type":"image_url","image_url":"data:image\/png;base64,AAAAAAA="},
                {"type":"input_audio","input_audio":{"data":"AAAAAAAA","format":"wav"}},
                {"type":"file","file":{"file_data":"data:application/pdf;base64,AAAA"}},
                {"type":"file","file":{"file_data":"AAAAAA=="}},
                {"type":"file","file":{"file_id":"file-1"}}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"c1","content":"42"}],
        "tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"g"}}],
        "max_tokens":9,"max_completion_tokens":7.0,"n":3,"temperature":0,"top_p":null,"x_new":{"a":1},"prompt_cache_key":"k"}"#;
    let summary = chat(body).expect("well formed");
    assert_eq!(summary.model, "gpt-x");
    assert_eq!((summary.method, summary.stream, summary.include_usage), (Method::Chat, true, true));
    assert_eq!((summary.max_output, summary.candidates), (Some(9), 3));
    let fields = "stream stream_options tools max_tokens max_completion_tokens n temperature x_new prompt_cache_key";
    assert_eq!(summary.fields, fields.split(' ').collect::<Vec<_>>());
    assert_eq!((summary.images, summary.audio_bytes, summary.document_bytes), (2, 6, 3 + 4));
    let tools = r#"[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"g"}}]"#;
    assert_eq!(summary.text_bytes, ("be\n".len() + "café".len() + "f{}".len() + "42".len() + tools.len()) as u64);
    assert_eq!((summary.tools, summary.turns), (2, 4));
    let at = |range: &Option<Range<usize>>| body[range.clone().expect("present")].to_owned();
    assert_eq!(summary.splices.body_open, 2);
    assert_eq!(at(&summary.splices.model), r#""gpt\u002dx""#);
    assert_eq!(at(&summary.splices.stream_options), r#"{"include_usage":true}"#);
    assert_eq!(at(&summary.splices.include_usage), "true");
    let limits: Vec<_> = summary.splices.max_output.iter().map(|range| &body[range.clone()]).collect();
    assert_eq!(limits, ["9", "7.0"]);
    assert_eq!((summary.splices.config_open, summary.splices.markers), (None, false));
}

#[test]
fn minimal_body_has_no_fields() {
    let summary = chat(r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#).expect("well formed");
    assert!(summary.fields.is_empty() && !summary.stream && !summary.include_usage && summary.max_output.is_none());
    assert_eq!((summary.candidates, summary.text_bytes, summary.tools), (1, 2, 0));
}

#[test]
fn null_in_an_optional_field_counts_as_absent() {
    let summary = chat(&with(r#""stream":null,"temperature":null,"max_tokens":null,"tools":null,"n":null,"stream_options":null"#))
        .expect("well formed");
    assert!(summary.fields.is_empty() && !summary.stream && summary.max_output.is_none());
    assert_eq!(summary.splices.max_output.len(), 1);
    assert!(summary.splices.stream_options.is_some());
}

#[test]
fn missing_model_is_reported_after_other_errors() {
    for (body, kind, message) in [
        (r#"{"messages":[{"role":"user"}]}"#, MalformedKind::Missing, "Missing required parameter: 'model'."),
        (r#"{"model":null,"messages":[{"role":"user"}]}"#, MalformedKind::Missing, "Missing required parameter: 'model'."),
        (r#"{"model":" ","messages":[{"role":"user"}]}"#, MalformedKind::Missing, "Missing required parameter: 'model'."),
        (r#"{"Model":"m","messages":[{"role":"user"}]}"#, MalformedKind::Missing, "Missing required parameter: 'model'."),
        (r#"{"model":7,"messages":[{"role":"user"}]}"#, MalformedKind::WrongType, "Invalid type for 'model': expected a string."),
        (r#"{"model":[],"messages":[{"role":"user"}]}"#, MalformedKind::WrongType, "Invalid type for 'model': expected a string."),
        (
            r#"{"model":"a\u0000b","messages":[{"role":"user"}]}"#,
            MalformedKind::InvalidValue,
            "Invalid value for 'model': it must not hold control characters.",
        ),
    ] {
        assert_eq!(refused(body), (kind, message.to_owned()), "{body}");
    }
    let long = format!(r#"{{"model":"{}","messages":[{{"role":"user"}}]}}"#, "m".repeat(1_048_576));
    assert_eq!(refused(&long).1, "Invalid value for 'model': it must have at most 1024 bytes.");
    // Errors of other fields come first; all errors are listed.
    let refusal = chat("{}").expect_err("empty");
    assert_eq!(refusal.message, "Missing required parameter: 'messages'.");
    assert_eq!(refusal.violations.iter().map(|fault| fault.field.as_str()).collect::<Vec<_>>(), ["messages", "model"]);
}

#[test]
fn contents_in_place_of_messages_gets_a_hint() {
    let (kind, message) = refused(r#"{"model":"m","contents":[{"parts":[{"text":"hi"}]}]}"#);
    assert_eq!(kind, MalformedKind::Missing);
    assert!(message.starts_with("Missing required parameter: 'messages'. "), "{message}");
    assert!(message.contains("expect 'messages' (array of {role, content}), not 'contents'."), "{message}");
    // Beside `messages` it is an unknown field like any other.
    assert_eq!(chat(&with(r#""contents":[]"#)).expect("well formed").fields, ["contents"]);
}

#[test]
fn invalid_messages_are_refused() {
    for (messages, kind, message) in [
        ("null", MalformedKind::Missing, "Missing required parameter: 'messages'."),
        ("\"hi\"", MalformedKind::WrongType, "Invalid type for 'messages': expected an array."),
        ("{}", MalformedKind::WrongType, "Invalid type for 'messages': expected an array."),
        ("[]", MalformedKind::InvalidValue, "Invalid value for 'messages': it must not be empty."),
        ("[null]", MalformedKind::WrongType, "Invalid type for 'messages[0]': expected an object."),
        ("[[]]", MalformedKind::WrongType, "Invalid type for 'messages[0]': expected an object."),
    ] {
        assert_eq!(refused(&format!(r#"{{"model":"m","messages":{messages}}}"#)), (kind, message.to_owned()), "{messages}");
    }
    for (message, kind, sentence) in [
        (r#"{"content":"hi"}"#, MalformedKind::Missing, "Missing required parameter: 'messages[0].role'."),
        (r#"{"role":null}"#, MalformedKind::Missing, "Missing required parameter: 'messages[0].role'."),
        (r#"{"role":" ","content":"hi"}"#, MalformedKind::Missing, "Missing required parameter: 'messages[0].role'."),
        (r#"{"role":1,"content":"hi"}"#, MalformedKind::WrongType, "Invalid type for 'messages[0].role': expected a string."),
        (
            r#"{"role":"user","content":{"text":"hi"}}"#,
            MalformedKind::WrongType,
            "Invalid type for 'messages[0].content': expected a string or an array of parts.",
        ),
        (
            r#"{"role":"user","content":[null]}"#,
            MalformedKind::WrongType,
            "Invalid type for 'messages[0].content[0]': expected an object.",
        ),
        (
            r#"{"role":"user","content":[{"text":"x"}]}"#,
            MalformedKind::Missing,
            "Missing required parameter: 'messages[0].content[0].type'.",
        ),
        (
            r#"{"role":"user","content":[{"type":7}]}"#,
            MalformedKind::WrongType,
            "Invalid type for 'messages[0].content[0].type': expected a string.",
        ),
        (
            r#"{"role":"user","content":[{"text":{},"type":"text"}]}"#,
            MalformedKind::WrongType,
            "Invalid type for 'messages[0].content[0].text': expected a string.",
        ),
        (
            r#"{"role":"assistant","tool_calls":{}}"#,
            MalformedKind::WrongType,
            "Invalid type for 'messages[0].tool_calls': expected an array.",
        ),
    ] {
        assert_eq!(refused(&with_message(message)), (kind, sentence.to_owned()), "{message}");
    }
}

#[test]
fn fields_the_gateway_does_not_use_are_not_validated() {
    for message in [
        r#"{"role":"wizard","content":"hi"}"#,
        r#"{"role":"user","content":null}"#,
        r#"{"role":"user"}"#,
        r#"{"role":"user","content":[]}"#,
        r#"{"role":"user","content":[{"type":"hologram","text":7}]}"#,
        r#"{"role":"user","content":[{"type":"text"}]}"#,
        r#"{"role":"user","content":[{"type":"image_url","image_url":null}]}"#,
        r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,@@@"}}]}"#,
        r#"{"role":"user","content":"\ud800"}"#,
        r#"{"role":"assistant","tool_calls":[7,{"function":"x"}],"function_call":9}"#,
        r#"{"role":"assistant","tool_calls":null}"#,
    ] {
        assert!(chat(&with_message(message)).is_ok(), "{message}");
    }
    for members in [
        r#""temperature":-5"#,
        r#""temperature":-0"#,
        r#""top_p":"x""#,
        r#""n":0"#,
        r#""n":"x""#,
        r#""stop":{}"#,
        r#""seed":340282366920938463463374607431768211456"#,
        r#""stream_options":7"#,
        r#""tool_choice":7"#,
        r#""tools":[]"#,
        r#""tools":[{"type":"web_search"},{"type":"custom"}]"#,
        r#""functions":7"#,
        r#""max_tokens":9223372036854775807"#,
        r#""x":1,"x":2"#,
    ] {
        assert!(chat(&with(members)).is_ok(), "{members}");
    }
}

#[test]
fn optional_fields_of_the_wrong_type_are_refused() {
    for (members, path) in [
        (r#""stream":"true""#, "stream"),
        (r#""stream":[]"#, "stream"),
        (r#""temperature":"hot""#, "temperature"),
        (r#""temperature":{}"#, "temperature"),
        (r#""temperature":1e400"#, "temperature"),
        (r#""max_tokens":"100""#, "max_tokens"),
        (r#""max_tokens":true"#, "max_tokens"),
        (r#""max_tokens":-1"#, "max_tokens"),
        (r#""max_tokens":1.5"#, "max_tokens"),
        (r#""max_completion_tokens":18446744073709551616"#, "max_completion_tokens"),
        (r#""max_completion_tokens":9223372036854775808"#, "max_completion_tokens"),
        (r#""tools":{}"#, "tools"),
        (r#""tools":[null]"#, "tools[0]"),
        (r#""tools":[[]]"#, "tools[0]"),
        (r#""tools":[{"type":"function","function":{"name":7}}]"#, "tools[0].function.name"),
        (r#""tools":[{"type":"function","function":7}]"#, "tools[0].function"),
    ] {
        let (kind, message) = refused(&with(members));
        assert_eq!(kind, MalformedKind::WrongType, "{members}");
        assert!(message.starts_with(&format!("Invalid type for '{path}': expected ")), "{message}");
    }
    for (members, path) in [
        (r#""tools":[{"type":"function"}]"#, "tools[0].function"),
        (r#""tools":[{"function":{"description":""},"type":"function"}]"#, "tools[0].function.name"),
    ] {
        assert_eq!(refused(&with(members)), (MalformedKind::Missing, format!("Missing required parameter: '{path}'.")));
    }
    let digits = with(&format!(r#""max_tokens":{}"#, "9".repeat(100_000)));
    assert_eq!(refused(&digits).0, MalformedKind::WrongType);
}

#[test]
fn duplicates_of_used_members_are_refused() {
    for (member, name) in [
        (r#""model":"other""#, "model"),
        (r#""mod\u0065l":"other""#, "model"),
        (r#""messages":[]"#, "messages"),
        (r#""stream":false,"stream":true"#, "stream"),
        (r#""max_tokens":1,"max_tokens":2"#, "max_tokens"),
        (r#""max_completion_tokens":1,"max_completion_tokens":null"#, "max_completion_tokens"),
        (r#""n":1,"n":128"#, "n"),
        (r#""tools":[],"tools":[]"#, "tools"),
        (r#""stream_options":{},"stream_options":{}"#, "stream_options"),
        (r#""stream_options":{"include_usage":true,"include_usage":false}"#, "stream_options.include_usage"),
    ] {
        let (kind, message) = refused(&with(member));
        assert_eq!(kind, MalformedKind::NotJson, "{member}");
        let expected =
            format!("The request body is not valid JSON: the member '{name}' appears twice, the second time at line 1 column ");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn syntax_errors_take_precedence_over_validation_errors() {
    let (kind, message) = refused("{\n \"messages\": 7,\n \"model\"}");
    assert_eq!(kind, MalformedKind::NotJson);
    assert_eq!(message, "The request body is not valid JSON: expected ':' at line 3 column 9.");
    for body in ["", " ", "[]", "true", "\"hi\"", "{\"model\":\"m\"} x", "[{\"model\":\"m\"}]"] {
        assert_eq!(refused(body).0, MalformedKind::NotJson, "{body}");
    }
}

#[test]
fn turns_and_tools_are_bounded() {
    let messages = r#"{"role":"user"},"#.repeat(100_001);
    let (kind, message) = refused(&format!(r#"{{"model":"m","messages":[{}]}}"#, messages.trim_end_matches(',')));
    assert_eq!(
        (kind, message.as_str()),
        (MalformedKind::InvalidValue, "Invalid value for 'messages': it must have at most 100000 elements.")
    );
    let tools = |count: usize| with(&format!(r#""tools":[{}]"#, vec!["{}"; count].join(",")));
    assert_eq!(chat(&tools(1024)).expect("well formed").tools, 1024);
    assert_eq!(refused(&tools(1025)).1, "Invalid value for 'tools': it must have at most 1024 elements.");
    let empty = "{},".repeat(1_000_000);
    assert_eq!(refused(&format!(r#"{{"model":"m","messages":[{empty}{{}}]}}"#)).0, MalformedKind::NotJson);
}

#[test]
fn affinity_is_stable_within_a_conversation() {
    let affinity = |body: &str| chat(body).expect("well formed").affinity.expect("a conversation");
    let tools = r#"[{"type":"function","function":{"name":"f"}}]"#;
    let first = affinity(&format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"s"}},{{"role":"user","content":"q"}}],"tools":{tools}}}"#
    ));
    // Later turns, other parameters, another member order, another form of the same text, a moved cache marker.
    let later = affinity(&format!(
        r#"{{"tools":{tools},"temperature":1,"messages":[{{"content":"s","role":"developer"}},
            {{"role":"user","content":[{{"type":"text","text":"q","cache_control":{{"type":"ephemeral"}}}}]}},
            {{"role":"assistant","content":"a"}},{{"role":"user","content":"q2"}},{{"role":"system","content":"late"}}],"model":"m"}}"#
    ));
    assert_eq!(first, later);
    let other = |body: &str| affinity(body) != first;
    assert!(other(&format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"t"}},{{"role":"user","content":"q"}}],"tools":{tools}}}"#
    )));
    assert!(other(&format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"s"}},{{"role":"user","content":"r"}}],"tools":{tools}}}"#
    )));
    assert!(other(r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"q"}]}"#));
    // The caller's own key takes precedence.
    assert_eq!(
        affinity(&with(r#""prompt_cache_key":"k","temperature":1"#)),
        affinity(&with(r#""prompt_cache_key":"k","tools":[]"#))
    );
    assert_ne!(affinity(&with(r#""prompt_cache_key":"k""#)), affinity(&with(r#""prompt_cache_key":"l""#)));
    assert_eq!(affinity(&with(r#""prompt_cache_key":"""#)), affinity(&with(r#""prompt_cache_key":7"#)));
}

#[test]
fn markers_are_detected() {
    assert!(chat(&with_message(r#"{"role":"tool","tool_call_id":"c1__sig1_QUJD"}"#)).expect("well formed").splices.markers);
    let signed = r#"{"role":"assistant","content":"x","extra_content":{"google":{"thought_signature":"QUJD"}}}"#;
    assert!(chat(&with_message(signed)).expect("well formed").splices.markers);
    let sealed = r#"{"role":"assistant","tool_calls":[{"id":"c","extra_content":{"openai":{}},"function":{"name":"f"}}]}"#;
    assert!(chat(&with_message(sealed)).expect("well formed").splices.markers);
    let plain = r#"{"role":"assistant","content":"extra_content","tool_calls":[{"id":"c","function":{"name":"extra_content"}}]}"#;
    assert!(!chat(&with_message(plain)).expect("well formed").splices.markers);
}

#[test]
fn embeddings_require_model_and_input() {
    let embed = |body: &str| summarise(&target(Method::Embeddings), body.as_bytes());
    for (input, bytes) in [(r#""hello""#, 5), (r#"["a","bc"]"#, 3), ("[1,2,3]", 12), (r#"[[1,2],["x"]]"#, 9), ("[]", 0)] {
        let body = format!(r#"{{"model":"e","input":{input},"dimensions":8,"stream":true,"messages":7}}"#);
        let read = embed(&body).expect("well formed");
        assert_eq!((read.text_bytes, read.model.as_str(), read.stream, read.affinity), (bytes, "e", false, None), "{input}");
        assert_eq!(read.fields, ["dimensions", "stream", "messages"]);
        assert_eq!(read.splices.model.map(|range| body[range].to_owned()), Some("\"e\"".to_owned()));
    }
    assert_eq!(embed(r#"{"model":"e"}"#).expect_err("no input").message, "Missing required parameter: 'input'.");
    assert_eq!(embed(r#"{"model":"e","input":null}"#).expect_err("no input").message, "Missing required parameter: 'input'.");
    assert_eq!(
        embed(r#"{"model":"e","input":7}"#).expect_err("wrong").message,
        "Invalid type for 'input': expected a string or an array."
    );
    assert_eq!(embed(r#"{"input":"x"}"#).expect_err("no model").message, "Missing required parameter: 'model'.");
}

#[test]
fn fields_that_affect_the_price_are_detected() {
    use crate::{RequestExtras, ServiceTier};

    let extras = |members: &str| chat(&with(members)).expect(members).extras;
    assert_eq!(extras(r#""service_tier":"auto","web_search_options":null"#), RequestExtras::default());
    for (tier, expected) in [
        (r#""priority""#, ServiceTier::Priority),
        (r#""flex""#, ServiceTier::Flex),
        (r#""scale""#, ServiceTier::Other),
        ("7", ServiceTier::Other),
    ] {
        assert_eq!(extras(&format!(r#""service_tier":{tier}"#)).tier, expected, "{tier}");
    }
    let search = extras(r#""web_search_options":{}"#);
    assert!(search.web_search && search.unseen.tools);
    assert!(extras(r#""cached_content":"cachedContents/a""#).unseen.cached_content);
    assert!(extras(r#""extra_body":{"google":{"cached_content":"cachedContents/a"}}"#).unseen.cached_content);
    assert!(extras(r#""google":{"cached_content":"cachedContents/a"}"#).unseen.cached_content);
    assert!(extras(r#""extra_body":{"google":{"tools":[{"google_search":{}}]}}"#).server_tools);
    assert!(!extras(r#""extra_body":{"google":{"thinking_config":{}}}"#).unseen.any());
    for other in [
        r#""models":["a","b"]"#,
        r#""provider":{"sort":"throughput"}"#,
        r#""route":"fallback""#,
        r#""preset":"fast-ones""#,
        r#""fallbacks":[{"model":"a"}]"#,
        r#""providerOptions":{"gateway":{"order":["a"]}}"#,
    ] {
        assert!(extras(other).other_routes, "{other}");
    }
    for none in [r#""models":null"#, r#""models":[ ]"#, r#""provider":{}"#, r#""transforms":["middle-out"]"#] {
        assert_eq!(extras(none), RequestExtras::default(), "{none}");
    }
    let embeddings = |member: &str| {
        let body = format!(r#"{{"model":"e","input":"x",{member}}}"#);
        summarise(&target(Method::Embeddings), body.as_bytes()).expect(member)
    };
    let routed = embeddings(r#""provider":{"sort":"price"}"#);
    assert!(routed.extras.other_routes && routed.fields == ["provider"]);
    assert_eq!(embeddings(r#""provider":{},"dimensions":7"#).extras, RequestExtras::default());
    assert_eq!(chat(&with(r#""best_of":50,"n":2"#)).unwrap().candidates, 50);
    assert_eq!(refused(&with(r#""service_tier":"auto","service_tier":"priority""#)).0, MalformedKind::NotJson);
    let image = with_message(r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}"#);
    assert_eq!(chat(&image).unwrap().extras, RequestExtras::default(), "an image by address is as large as one in the body");
}

#[test]
fn provider_tools_and_files_by_url_are_classified_by_their_cost() {
    let extras = |members: &str| chat(&with(members)).expect(members).extras;
    for search in [
        r#""tools":[{"type":"web_search"}]"#,
        r#""tools":[{"type":"web_search_preview"}]"#,
        r#""tools":[{"googleSearch":{}}]"#,
        r#""plugins":[{"id":"web","max_results":3}]"#,
        r#""search_parameters":{"mode":"on"}"#,
        r#""enable_search":true"#,
    ] {
        assert!(extras(search).web_search && extras(search).unseen.tools && !extras(search).server_tools, "{search}");
    }
    for other in [
        r#""tools":[{"type":"code_interpreter","container":{"type":"auto"}}]"#,
        r#""tools":[{"type":"file_search","vector_store_ids":["v"]}]"#,
        r#""tools":[{"type":"builtin_function","function":{"name":"$web_search"}}]"#,
        r#""plugins":[{"id":"file-parser"}]"#,
    ] {
        assert!(extras(other).server_tools && extras(other).unseen.tools && !extras(other).web_search, "{other}");
    }
    for own in [
        r#""tools":[{"type":"function","function":{"name":"search"}}]"#,
        r#""tools":[{"function":{"name":"search"}}]"#,
        r#""tools":[{"type":"custom","custom":{"name":"search"}}]"#,
        r#""plugins":[]"#,
        r#""plugins":null,"search_parameters":null,"enable_search":false"#,
    ] {
        assert_eq!(extras(own), crate::RequestExtras::default(), "{own}");
    }
    let part = |part: &str| chat(&with_message(&format!(r#"{{"role":"user","content":[{part}]}}"#))).expect(part).extras;
    for (file, member) in [
        (r#"{"type":"file","file":{"file_id":"file-a"}}"#, "file"),
        (r#"{"type":"file","file":{"file_data":"https://x/y.pdf"}}"#, "file"),
        (r#"{"type":"video_url","video_url":{"url":"https://x/y.mp4"}}"#, "video_url"),
    ] {
        assert!(part(file).unseen.files, "{file}");
        let text = r#"{"type":"text","text":"a"}"#;
        let whole = chat(&with_message(&format!(r#"{{"role":"user","content":[{text},{file}]}}"#))).unwrap();
        assert_eq!(whole.first_file, Some(format!("messages[0].content[1].{member}")));
    }
    assert!(!part(r#"{"type":"image_url","image_url":{"url":"https://x/y.png"}}"#).unseen.any());
    assert!(!part(r#"{"type":"file","file":{"file_data":"data:application/pdf;base64,QUFB"}}"#).unseen.any());
    assert!(!part(r#"{"type":"file","file":{"file_data":"httpQUFB"}}"#).unseen.any());
}

#[test]
fn short_metadata_strings_are_recorded() {
    let metadata = |value: &str| chat(&with(&format!(r#""metadata":{value}"#))).expect(value).metadata;
    let entry = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(metadata(r#"{"project":"web","n":1,"b\u0061d":"a\"b","l":["x"]}"#), [entry("project", "web"), entry("bad", "a\"b")]);
    for none in ["null", "7", "\"project\"", "[]", "{}"] {
        assert_eq!(metadata(none), [], "{none}");
    }
    let many: Vec<String> = (0..40).map(|number| format!("\"n{number}\":\"v\"")).collect();
    assert_eq!(metadata(&format!("{{{}}}", many.join(","))).len(), crate::MAX_METADATA);
    assert_eq!(metadata(&format!(r#"{{"long":"{}"}}"#, "v".repeat(2_000))), []);
}
