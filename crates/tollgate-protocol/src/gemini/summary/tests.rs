//! Summaries of Gemini bodies, and the errors of invalid ones.

use crate::{Framing, MalformedKind};

use super::*;

fn read_as(method: Method, body: &str) -> Result<RequestSummary, Malformed> {
    let target = Target { method, model: Some("gemini-x".to_owned()), framing: Framing::Sse };
    summarise(&target, body.as_bytes())
}

fn generate(body: &str) -> Result<RequestSummary, Malformed> {
    read_as(Method::Generate, body)
}

fn with(members: &str) -> String {
    format!(r#"{{"contents":[{{"role":"user","parts":[{{"text":"hi"}}]}}],{members}}}"#)
}

fn refused(body: &str) -> (MalformedKind, String) {
    let refusal = generate(body).expect_err(body);
    (refusal.kind, refusal.message)
}

#[test]
fn summary_has_all_fields() {
    let body = r#"{"systemInstruction":{"role":"user","parts":[{"text":"be"}]},
        "contents":[
            {"role":"user","parts":[{"text":"caf\u00e9"},
                {"inlineData":{"data":"__4-Pw==","mime_type":"image/png"}},
                {"inline_data":{"mimeType":"audio/wav","data":"AAAAAAAA"}},
                {"inlineData":{"mimeType":"application/pdf","data":"AAAA"}},
                {"fileData":{"mimeType":"image/jpeg","fileUri":"gs://x"}}]},
            {"role":"model","parts":[{"functionCall":{"name":"f"}}]},
            {"role":"user","parts":[{"function_response":{"name":"f","response":{"a":1},"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}}]}],
        "generationConfig":{"temperature":"0.5","maxOutputTokens":"100","topK":4.0,"candidateCount":2,"seed":null,
            "thinkingConfig":{"include_thoughts":true}},
        "tools":[{"functionDeclarations":[{"name":"f"},{"name":"g"}]},{"googleSearch":{}}],
        "tool_config":{"functionCallingConfig":{"mode":"ANY"}},
        "safetySettings":[{}],"brandNewField":1,"model":"models/other","cachedContent":null}"#;
    let summary = read_as(Method::StreamGenerate, body).expect("well formed");
    assert_eq!((summary.model.as_str(), summary.stream, summary.include_usage), ("gemini-x", true, false));
    assert_eq!((summary.max_output, summary.candidates, summary.tools), (Some(100), 2, 2));
    let fields = "systemInstruction generationConfig.temperature generationConfig.maxOutputTokens generationConfig.topK \
                  generationConfig.candidateCount generationConfig.thinkingConfig tools tool_config.functionCallingConfig \
                  safetySettings brandNewField";
    assert_eq!(summary.fields, fields.split_whitespace().collect::<Vec<_>>());
    assert_eq!((summary.images, summary.audio_bytes, summary.document_bytes), (3, 6, 3));
    let tools = r#"[{"functionDeclarations":[{"name":"f"},{"name":"g"}]},{"googleSearch":{}}]"#;
    assert_eq!(summary.text_bytes, ("becafé".len() + r#"{"name":"f"}"#.len() + r#"f{"a":1}"#.len() + tools.len()) as u64);
    let limits: Vec<_> = summary.splices.max_output.iter().map(|range| &body[range.clone()]).collect();
    assert_eq!(limits, ["\"100\""]);
    assert_eq!(summary.splices.body_open, 1);
    assert!(body[summary.splices.config_open.expect("present")..].starts_with("\"temperature\""));
    assert!(summary.splices.model.is_none() && !summary.splices.markers);
}

#[test]
fn both_spellings_are_accepted() {
    let body = with(
        r#""generation_config":{"top_k":1,"max_output_tokens":7,"candidate_count":"3"},"system_instruction":{"parts":[{"text":"abc"}]}"#,
    );
    let summary = generate(&body).expect("well formed");
    assert_eq!((summary.max_output, summary.candidates, summary.text_bytes), (Some(7), 3, 5));
    let fields = "generation_config.top_k generation_config.max_output_tokens generation_config.candidate_count system_instruction";
    assert_eq!(summary.fields, fields.split(' ').collect::<Vec<_>>());
    // It is unknown which of two limits an upstream uses, so the larger one is reserved, and both can be lowered.
    let summary = generate(&with(
        r#""generationConfig":{"maxOutputTokens":9,"max_output_tokens":5},"generation_config":{"maxOutputTokens":7}"#,
    ))
    .expect("both spellings at once are legal");
    assert_eq!((summary.max_output, summary.splices.max_output.len()), (Some(9), 3));
}

#[test]
fn missing_contents_gets_a_hint() {
    let refusal = generate(r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#).expect_err("messages");
    assert_eq!(refusal.kind, MalformedKind::Missing);
    assert_eq!(
        refusal.message,
        "The body could not be parsed: unknown field 'messages'; the native protocol expects 'contents' (array of {role, parts}), not \
         'messages'."
    );
    assert_eq!(refusal.violations.len(), 1);
    assert_eq!(
        (refusal.violations[0].field.as_str(), refusal.violations[0].description.as_str()),
        ("messages", "Unknown field; use 'contents'.")
    );

    let refusal = generate("{}").expect_err("nothing");
    assert_eq!(refusal.message, "The body could not be parsed: required field 'contents' is missing.");
    assert_eq!(refusal.violations[0].description, "Required field is missing.");
    assert_eq!(generate(r#"{"contents":null}"#).expect_err("null").kind, MalformedKind::Missing);
    // Beside `contents`, `messages` is left to the upstream.
    assert_eq!(generate(&with(r#""messages":[]"#)).expect("well formed").fields, ["messages"]);
}

#[test]
fn invalid_contents_are_refused() {
    for (contents, rest) in [
        ("7", "'contents' must be an array."),
        ("true", "'contents' must be an array."),
        ("{}", "'contents' must be an array."),
        ("[]", "'contents' must not be empty."),
        ("[null]", "'contents[0]' must be an object."),
        (r#"[{"role":7}]"#, "'contents[0].role' must be a string."),
        (r#"[{"parts":"hi"}]"#, "'contents[0].parts' must be an array."),
        (r#"[{"parts":{}}]"#, "'contents[0].parts' must be an array."),
        (r#"[{"parts":[1]}]"#, "'contents[0].parts[0]' must be an object."),
        (r#"[{"parts":[{"text":{}}]}]"#, "'contents[0].parts[0].text' must be a string."),
        (r#"[{"parts":[{"inlineData":"x"}]}]"#, "'contents[0].parts[0].inlineData' must be an object."),
        (
            r#"[{"parts":[{"inlineData":{"data":"AAAA"}}]}]"#,
            "required field 'contents[0].parts[0].inlineData.mimeType' is missing.",
        ),
        (r#"[{"parts":[{"inline_data":{"mime_type":7}}]}]"#, "'contents[0].parts[0].inline_data.mime_type' must be a string."),
    ] {
        assert_eq!(
            refused(&format!(r#"{{"contents":{contents}}}"#)).1,
            format!("The body could not be parsed: {rest}"),
            "{contents}"
        );
    }
}

#[test]
fn invalid_config_objects_are_refused() {
    for (members, rest) in [
        (r#""generationConfig":"x""#, "'generationConfig' must be an object."),
        (r#""generation_config":[]"#, "'generation_config' must be an object."),
        (r#""systemInstruction":"x""#, "'systemInstruction' must be an object."),
        (r#""generationConfig":{"temperature":"hot"}"#, "'generationConfig.temperature' must be a number."),
        (r#""generationConfig":{"temperature":{}}"#, "'generationConfig.temperature' must be a number."),
        (
            r#""generationConfig":{"maxOutputTokens":-1}"#,
            "'generationConfig.maxOutputTokens' must be a whole number from 0 to 2147483647.",
        ),
        (
            r#""generationConfig":{"max_output_tokens":2147483648}"#,
            "'generationConfig.max_output_tokens' must be a whole number from 0 to 2147483647.",
        ),
        (
            r#""generationConfig":{"maxOutputTokens":"x"}"#,
            "'generationConfig.maxOutputTokens' must be a whole number from 0 to 2147483647.",
        ),
        (r#""tools":{}"#, "'tools' must be an array."),
        (r#""tools":[7]"#, "'tools[0]' must be an object."),
        (r#""safetySettings":7"#, "'safetySettings' must be an array."),
        (r#""safety_settings":[7]"#, "'safety_settings[0]' must be an object."),
    ] {
        let (kind, message) = refused(&with(members));
        assert_eq!((kind, message), (MalformedKind::WrongType, format!("The body could not be parsed: {rest}")), "{members}");
    }
}

#[test]
fn fields_the_gateway_does_not_use_are_not_validated() {
    for contents in [
        r#"[{"role":"user"}]"#,
        r#"[{"role":null,"parts":null}]"#,
        r#"[{"parts":[{}]}]"#,
        r#"[{"role":"wizard","parts":[{"hologram":{}}]}]"#,
        r#"[{"parts":[{"text":null},{"inlineData":null},{"functionCall":7},{"functionResponse":7},{"fileData":7}]}]"#,
        r#"[{"parts":[{"text":"\udfff x"}]}]"#,
    ] {
        assert!(generate(&format!(r#"{{"contents":{contents}}}"#)).is_ok(), "{contents}");
    }
    for members in [
        r#""generationConfig":null,"systemInstruction":null,"tools":null,"safetySettings":null"#,
        r#""generationConfig":{"temperature":"NaN","maxOutputTokens":null,"candidateCount":1000000,"topP":"x"}"#,
        r#""generationConfig":{"maxOutputTokens":1e2}"#,
        r#""systemInstruction":{"parts":7}"#,
        r#""toolConfig":7"#,
        r#""stream":true"#,
        r#""cachedContent":"../../../v1beta/files/secret""#,
    ] {
        assert!(generate(&with(members)).is_ok(), "{members}");
    }
}

#[test]
fn duplicates_of_used_members_are_refused() {
    for members in [
        r#""contents":[]"#,
        r#""generationConfig":{},"generationConfig":{}"#,
        r#""generationConfig":{"maxOutputTokens":1,"maxOutputTokens":2}"#,
        r#""generationConfig":{"candidate_count":1,"candidate_count":2}"#,
        r#""tools":[],"tools":[]"#,
    ] {
        let (kind, message) = refused(&with(members));
        assert_eq!(kind, MalformedKind::NotJson, "{members}");
        assert!(message.contains("' appears twice, the second time at line 1 column "), "{message}");
    }
}

#[test]
fn count_accepts_contents_or_a_request() {
    let count = |body: &str| read_as(Method::CountTokens, body);
    assert_eq!(count(r#"{"contents":[{"parts":[{"text":"abc"}]}]}"#).expect("well formed").text_bytes, 3);
    let body = r#"{"generateContentRequest":{"model":"models/x","contents":[{"parts":[{"text":"abc"}]}],"systemInstruction":{"parts":[{"text":"de"}]}}}"#;
    let summary = count(body).expect("well formed");
    assert_eq!((summary.text_bytes, summary.fields, summary.affinity), (5, Vec::<String>::new(), None));
    let both = r#"{"contents":[{}],"tools":[],"generateContentRequest":{"contents":[{}],"tools":[]}}"#;
    assert_eq!(count(both).expect("the inner request has separate members").fields, ["tools"]);
    assert_eq!(count("{}").expect_err("nothing").message, "The body could not be parsed: required field 'contents' is missing.");
    assert_eq!(
        count(r#"{"generateContentRequest":{}}"#).expect_err("nothing").message,
        "The body could not be parsed: required field 'generateContentRequest.contents' is missing."
    );
    assert_eq!(
        count(r#"{"generate_content_request":7}"#).expect_err("number").message,
        "The body could not be parsed: 'generate_content_request' must be an object."
    );
}

#[test]
fn embedding_accepts_one_content_or_a_batch() {
    let one = read_as(
        Method::EmbedContent,
        r#"{"model":"models/e","content":{"parts":[{"text":"abc"}]},"taskType":"X","embed_content_config":{"title":"t"}}"#,
    )
    .expect("well formed");
    assert_eq!((one.text_bytes, one.fields), (3, vec!["taskType".to_owned(), "embed_content_config.title".to_owned()]));
    let batch =
        r#"{"requests":[{"model":"models/gemini-x","content":{"parts":[{"text":"abc"}]}},{"content":{"parts":[{"text":"de"}]}}]}"#;
    assert_eq!(read_as(Method::BatchEmbedContents, batch).expect("well formed").text_bytes, 5);
    for named in ["gemini-x", "models/gemini-x", "publishers/google/models/gemini-x"] {
        let body = format!(r#"{{"requests":[{{"model":"{named}","content":{{"parts":[]}}}}]}}"#);
        assert!(read_as(Method::BatchEmbedContents, &body).is_ok(), "{named}");
    }
    for (method, body, rest) in [
        (Method::EmbedContent, "{}", "required field 'content' is missing."),
        (Method::EmbedContent, r#"{"content":null}"#, "required field 'content' is missing."),
        (Method::EmbedContent, r#"{"content":"abc"}"#, "'content' must be an object."),
        (Method::BatchEmbedContents, "{}", "required field 'requests' is missing."),
        (Method::BatchEmbedContents, r#"{"requests":[]}"#, "'requests' must not be empty."),
        (Method::BatchEmbedContents, r#"{"requests":[{}]}"#, "required field 'requests[0].content' is missing."),
        (Method::BatchEmbedContents, r#"{"requests":[7]}"#, "'requests[0]' must be an object."),
        (
            Method::BatchEmbedContents,
            r#"{"requests":[{"content":{}},{"model":"models/other","content":{}}]}"#,
            "'requests[1].model' must be the model of the path.",
        ),
        (
            Method::BatchEmbedContents,
            r#"{"requests":[{"model":"other-gemini-x","content":{}}]}"#,
            "'requests[0].model' must be the model of the path.",
        ),
    ] {
        assert_eq!(read_as(method, body).expect_err(body).message, format!("The body could not be parsed: {rest}"), "{body}");
    }
}

#[test]
fn turns_and_tools_are_bounded() {
    let declarations = |count: usize| with(&format!(r#""tools":[{{"functionDeclarations":[{}]}}]"#, vec!["{}"; count].join(",")));
    assert_eq!(generate(&declarations(1024)).expect("well formed").tools, 1024);
    assert_eq!(
        refused(&declarations(1025)).1,
        "The body could not be parsed: 'tools' must have at most 1024 function declarations."
    );
    let contents = vec!["{}"; 100_001].join(",");
    assert_eq!(
        refused(&format!(r#"{{"contents":[{contents}]}}"#)).1,
        "The body could not be parsed: 'contents' must have at most 100000 elements."
    );
}

#[test]
fn affinity_is_stable_within_a_conversation() {
    let affinity = |body: &str| generate(body).expect("well formed").affinity.expect("a conversation");
    let first = affinity(r#"{"contents":[{"role":"user","parts":[{"text":"q"}]}],"systemInstruction":{"parts":[{"text":"s"}]}}"#);
    let later = affinity(
        r#"{"system_instruction":{"parts":[{"text":"s"}]},"generationConfig":{"topK":1},
            "contents":[{"parts":[{"text":"q"}]},{"role":"model","parts":[{"text":"a"}]},{"role":"user","parts":[{"text":"r"}]}]}"#,
    );
    assert_eq!(first, later);
    assert_ne!(first, affinity(r#"{"contents":[{"role":"user","parts":[{"text":"q"}]}]}"#));
    assert_ne!(
        first,
        affinity(r#"{"contents":[{"role":"user","parts":[{"text":"r"}]}],"systemInstruction":{"parts":[{"text":"s"}]}}"#)
    );
}

#[test]
fn markers_are_detected() {
    let body = r#"{"contents":[{"parts":[{"text":"hm","thought":true,"thoughtSignature":"dGcxLmEuU0lH"}]}]}"#;
    assert!(generate(body).expect("well formed").splices.markers);
}

#[test]
fn fields_that_affect_the_price_are_detected() {
    use crate::{RequestExtras, ServiceTier};

    let extras = |members: &str| generate(&with(members)).expect(members).extras;
    assert_eq!(extras(r#""tools":[{"functionDeclarations":[]}],"cachedContent":null"#), RequestExtras::default());
    let cached = extras(r#""cachedContent":"cachedContents/a""#);
    assert!(cached.unseen.cached_content);
    assert_eq!(extras(r#""serviceTier":"SERVICE_TIER_PRIORITY""#).tier, ServiceTier::Priority);
    let search = extras(r#""tools":[{"google_search":{}}]"#);
    assert!(search.web_search && search.unseen.tools);
    let code = extras(r#""tools":[{"codeExecution":{}}]"#);
    assert!(!code.web_search && code.unseen.tools);
}

#[test]
fn provider_tools_and_files_by_url_are_classified_by_their_cost() {
    let tool = |name: &str| generate(&with(&format!(r#""tools":[{{"{name}":{{}}}}]"#))).expect(name).extras;
    for name in ["urlContext", "url_context", "codeExecution", "fileSearch", "file_search"] {
        let extras = tool(name);
        assert!(extras.unseen.tools && !extras.web_search && !extras.server_tools, "{name}: tokens only");
    }
    for name in ["googleSearch", "google_maps", "enterpriseWebSearch"] {
        assert!(tool(name).unseen.tools && tool(name).web_search && !tool(name).server_tools, "{name}");
    }
    for name in ["mcpServers", "retrieval", "inventedTomorrow"] {
        assert!(tool(name).unseen.tools && tool(name).server_tools, "{name}: a separate price is possible");
    }
    assert_eq!(tool("computerUse"), crate::RequestExtras::default(), "the caller runs it");

    let part = |part: &str| generate(&format!(r#"{{"contents":[{{"parts":[{part}]}}]}}"#)).expect(part).extras;
    for file in [
        r#"{"fileData":{"fileUri":"https://www.youtube.com/watch?v=a"}}"#,
        r#"{"file_data":{"mime_type":"application/pdf","file_uri":"https://x/files/a"}}"#,
        r#"{"functionResponse":{"name":"f","response":{},"parts":[{"fileData":{"fileUri":"gs://b/c"}}]}}"#,
    ] {
        assert!(part(file).unseen.files, "{file}");
    }
    let first_file = |body: &str| generate(body).expect(body).first_file;
    for (body, place) in [
        (
            r#"{"contents":[{"parts":[{"text":"a"},{"fileData":{"fileUri":"gs://b"}},{"file_data":{}}]}]}"#,
            "contents[0].parts[1].fileData",
        ),
        (
            r#"{"contents":[{"parts":[{"text":"a"}]}],"system_instruction":{"parts":[{"file_data":{"file_uri":"gs://b"}}]}}"#,
            "system_instruction.parts[0].file_data",
        ),
        (
            r#"{"contents":[{"parts":[{"functionResponse":{"name":"f","parts":[{"fileData":{"fileUri":"gs://b"}}]}}]}]}"#,
            "contents[0].parts[0].functionResponse.parts[0].fileData",
        ),
        (
            r#"{"systemInstruction":{"parts":[{"inlineData":{"mimeType":"video/mp4"}}]},"contents":[{"parts":[{"text":"a"}]}]}"#,
            "systemInstruction.parts[0].inlineData",
        ),
    ] {
        assert_eq!(first_file(body).as_deref(), Some(place), "{body}");
    }
    let image = part(r#"{"fileData":{"mimeType":"image/png","fileUri":"https://x/y.png"}}"#);
    assert!(!image.unseen.any(), "as many tokens as an image in the body");
    assert!(!part(r#"{"text":"a","fileData":null}"#).unseen.any());
}
