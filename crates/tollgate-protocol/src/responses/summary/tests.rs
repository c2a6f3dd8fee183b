//! Summaries of requests, and refusals while they are read.

use super::*;
use crate::{Framing, MalformedKind, Method, RequestExtras, ServiceTier};

fn read(body: &str) -> Result<RequestSummary, Malformed> {
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    summarise(&target, body.as_bytes())
}

fn summary(body: &str) -> RequestSummary {
    read(body).unwrap_or_else(|fault| panic!("{body}: {fault}"))
}

#[test]
fn summary_has_all_fields() {
    let body = r#"{"model":"m","stream":true,"instructions":"äb","input":[
        {"type":"message","role":"developer","content":[{"type":"input_text","text":"c"}]},
        {"role":"user","content":[{"type":"input_text","text":"de"},{"type":"input_image","image_url":"data:image/png;base64,AAAA"},
            {"type":"input_file","file_data":"AAAA"},{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]},
        {"type":"reasoning","summary":[{"type":"summary_text","text":"f"}],"encrypted_content":"gh"},
        {"type":"function_call","call_id":"x","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"x","output":"ij"}],
        "max_output_tokens":9,"reasoning":{"effort":"low","summary":null},"text":{"verbosity":"low"},"metadata":{"k":"v"},
        "tools":[{"type":"function","name":"f"}],"store":null}"#;
    let read = summary(body);
    assert_eq!((read.model.as_str(), read.stream, read.max_output), ("m", true, Some(9)));
    let tools = r#"[{"type":"function","name":"f"}]"#.len() as u64;
    assert_eq!((read.text_bytes, read.turns, read.tools), (3 + 1 + 2 + 1 + 2 + 1 + 2 + 2 + tools, 6, 1));
    assert_eq!((read.images, read.document_bytes, read.audio_bytes), (1, 3, 3));
    assert_eq!(
        read.fields,
        ["stream", "instructions", "max_output_tokens", "reasoning.effort", "text.verbosity", "metadata", "tools"]
    );
    assert_eq!(read.metadata, [("k".to_owned(), "v".to_owned())]);
    assert_eq!(read.extras, RequestExtras::default());
}

#[test]
fn invalid_bodies_are_refused_with_the_path_of_the_field() {
    use MalformedKind::{InvalidValue, Missing, NotJson, WrongType};
    for (rest, kind, field) in [
        ("", Missing, "input"),
        (r#","input":null"#, Missing, "input"),
        (r#","input":7"#, WrongType, "input"),
        (r#","input":[]"#, InvalidValue, "input"),
        (r#","input":[7]"#, WrongType, "input[0]"),
        (r#","input":[{"role":7,"content":"x"}]"#, WrongType, "input[0].role"),
        (r#","input":[{"role":"user","content":7}]"#, WrongType, "input[0].content"),
        (r#","input":[{"role":"user","content":[7]}]"#, WrongType, "input[0].content[0]"),
        (r#","input":[{"role":"user","content":[{"text":"x"}]}]"#, Missing, "input[0].content[0].type"),
        (r#","input":"x","stream":"yes""#, WrongType, "stream"),
        (r#","input":"x","tools":{}"#, WrongType, "tools"),
        (r#","input":"x","tools":[{"name":"f"}]"#, Missing, "tools[0].type"),
        (r#","input":"x","tools":[{"type":"function"}]"#, Missing, "tools[0].name"),
        (
            r#","input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":7}]}]"#,
            WrongType,
            "tools[0].tools[0].name",
        ),
        (r#","input":"x","max_output_tokens":-1"#, WrongType, "max_output_tokens"),
        (r#","input":"x","temperature":"hot""#, WrongType, "temperature"),
    ] {
        let fault = read(&format!("{{\"model\":\"m\"{rest}}}")).unwrap_err();
        assert_eq!((fault.kind, fault.violations[0].field.as_str()), (kind, field), "{rest}");
    }
    assert_eq!(read(r#"{"input":"x"}"#).unwrap_err().violations[0].field, "model");
    for twice in [r#"{"model":"m","input":"x","input":"y"}"#, r#"{"model":"m","input":"x","background":false,"background":true}"#] {
        assert_eq!(read(twice).unwrap_err().kind, NotJson, "{twice}");
    }
    assert!(read(r#"{"model":"m","input":[],"instructions":"i"}"#).is_ok());
}

#[test]
fn chat_body_gets_a_hint() {
    let fault = read(r#"{"model":"m","messages":[]}"#).unwrap_err();
    assert!(fault.message.contains("'messages'") && fault.message.contains("'input'"), "{}", fault.message);
}

#[test]
fn fields_that_affect_the_price_are_detected() {
    let extras = |rest: &str| summary(&format!("{{\"model\":\"m\",\"input\":\"x\",{rest}}}")).extras;
    assert_eq!(extras(r#""service_tier":"flex""#).tier, ServiceTier::Flex);
    let offered = extras(r#""tools":[{"type":"web_search_preview"}]"#);
    assert!(offered.own_search && !offered.web_search);
    assert!(offered.at_upstreams(true).web_search && offered.at_upstreams(true).unseen.tools);
    assert_eq!(offered.at_upstreams(false), offered);
    for kind in ["code_interpreter", "file_search", "mcp", "image_generation", "shell", "unknown"] {
        let found = extras(&format!(r#""tools":[{{"type":"{kind}"}}]"#));
        assert!(found.server_tools && found.unseen.tools, "{kind}");
        assert_eq!(found.output_media, kind == "image_generation");
    }
    assert_eq!(extras(r#""tools":[{"type":"tool_search"},{"type":"custom","name":"c"}]"#), RequestExtras::default());
    assert!(extras(r#""previous_response_id":"resp_1""#).unseen.cached_content);
    assert!(extras(r#""background":true"#).surcharge);
    assert_eq!(extras(r#""background":false,"conversation":null"#), RequestExtras::default());
    let input = |items: &str| summary(&format!("{{\"model\":\"m\",\"input\":[{items}]}}"));
    let reference = input(r#"{"type":"item_reference","id":"msg_1"}"#);
    assert_eq!((reference.extras.unseen.files, reference.first_file.as_deref()), (true, Some("input[0]")));
    for disguised in [
        r#"{"type":"item_reference","id":"msg_1","role":"user"}"#,
        r#"{"type":"message","id":"msg_1","type":"item_reference"}"#,
        r#"{"type":"item_reference","id":"msg_1","type":"message"}"#,
    ] {
        assert!(input(disguised).extras.unseen.files, "{disguised}");
    }
    for reference in [r#"{"id":"msg_1"}"#, r#"{"id":"msg_1","type":null}"#] {
        assert_eq!(input(reference).first_file.as_deref(), Some("input[0]"), "{reference}");
    }
    for shown in [r#"{"id":"msg_1","role":"user","content":"a"}"#, r#"{"id":"rs_1","type":"reasoning","summary":[]}"#] {
        assert!(!input(shown).extras.unseen.any(), "{shown}");
    }
    let compacted = input(r#"{"role":"user","content":"a"},{"type":"compaction_trigger"}"#);
    assert_eq!((compacted.extras.unseen.compaction, compacted.first_file.as_deref()), (true, Some("input[1]")));
    let file = input(r#"{"role":"user","content":[{"type":"input_file","file_id":"file_1"}]}"#);
    assert_eq!((file.extras.unseen.files, file.first_file.as_deref()), (true, Some("input[0].content[0].file_id")));
}

#[test]
fn computer_screenshot_counts_as_an_image() {
    let read = |output: &str| {
        summary(&format!(r#"{{"model":"m","input":[{{"type":"computer_call_output","call_id":"c","output":{output}}}]}}"#))
    };
    let data = "A".repeat(2_000);
    let shown = read(&format!(r#"{{"type":"computer_screenshot","image_url":"data:image/png;base64,{data}"}}"#));
    assert_eq!((shown.images, shown.text_bytes, shown.document_bytes), (1, 0, 0));
    let kept = read(r#"{"file_id":"file_1","type":"computer_screenshot"}"#);
    assert_eq!((kept.images, kept.extras.unseen.any()), (1, false), "an image by id is as many tokens as one in the body");
    let other = read(r#"{"type":"exit","exit_code":17,"image_url":null,"stdout":"abc"}"#);
    assert_eq!((other.images, other.text_bytes), (0, "17\"abc\"".len() as u64));
}

#[test]
fn impossible_search_is_free_and_required_search_is_not_optional() {
    let read = |rest: &str| summary(&format!("{{\"model\":\"m\",\"input\":\"x\",{rest}}}"));
    let function = r#"{"type":"function","name":"f"}"#;
    let both = format!(r#""tools":[{function},{{"type":"web_search","external_web_access":false}}]"#);
    let with = |choice: &str| read(&format!(r#""tool_choice":{choice},{both}"#));
    for choice in ["null", r#""auto""#, r#""required""#, r#"{"type":"function","name":"f"}"#] {
        let offered = with(choice);
        assert_eq!((offered.extras.own_search, offered.offered_searches), (true, vec!["tools[1]".to_owned()]), "{choice}");
    }
    let allowed = r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"},{"type":"function","name":"f"}]}"#;
    assert_eq!(with(allowed).offered_searches, ["tools[1]", "tool_choice.tools[0]"]);
    for demanded in [
        r#"{"type":"web_search"}"#,
        r#"{"type":"web_search_preview"}"#,
        r#"{"type":"allowed_tools","mode":"required","tools":[{"type":"web_search"}]}"#,
    ] {
        let demanded = with(demanded);
        assert_eq!((demanded.extras.own_search, demanded.offered_searches.len()), (true, 0));
    }
    let alone = read(r#""tools":[{"type":"web_search"}],"tool_choice":"required""#);
    assert_eq!((alone.extras.own_search, alone.offered_searches.len()), (true, 0), "no other tool can be called");
    assert_eq!(with(r#""none""#).extras, RequestExtras::default());
    assert_eq!(read(&format!(r#""max_tool_calls":0,{both}"#)).extras, RequestExtras::default());
    let limited = read(&format!(r#""max_tool_calls":1,{both}"#));
    assert_eq!((limited.extras.own_search, limited.max_searches), (true, Some(1)));
}

#[test]
fn compaction_is_not_streamed_and_may_reference_a_stored_response() {
    let target = Target { method: Method::Compact, model: None, framing: Framing::Sse };
    let read = |body: &str| summarise(&target, body.as_bytes());
    let given = read(r#"{"model":"m","input":"a","stream":true}"#).unwrap();
    assert_eq!((given.method, given.stream), (Method::Compact, false));
    assert!(given.affinity.is_some());
    assert!(read(r#"{"model":"m","previous_response_id":"resp_1"}"#).unwrap().extras.unseen.cached_content);
    assert_eq!(read(r#"{"model":"m","input":"a","max_output_tokens":1}"#).unwrap().max_output, None, "it has no limit");
    for body in [r#"{"model":"m"}"#, r#"{"model":"m","previous_response_id":null}"#] {
        assert_eq!(read(body).unwrap_err().violations[0].field, "input", "{body}");
    }
}

#[test]
fn affinity_is_stable_within_a_conversation() {
    let affinity = |rest: &str| summary(&format!("{{\"model\":\"m\",{rest}}}")).affinity;
    let first = affinity(r#""instructions":"i","input":"a""#);
    let second = affinity(
        r#""input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"instructions":"i""#,
    );
    assert!(first.is_some());
    assert_eq!(first, second);
    let keyed = affinity(r#""prompt_cache_key":"k","input":"a""#);
    assert_eq!(keyed, affinity(r#""input":"b","previous_response_id":"resp_1","prompt_cache_key":"k""#));
    assert_ne!(keyed, first);
    assert_eq!(affinity(r#""conversation":"conv_1","input":"a""#), affinity(r#""conversation":{"id":"conv_1"},"input":"b""#));
}

#[test]
fn gateway_markers_are_detected() {
    let marked = |sealed: &str| {
        summary(&format!(r#"{{"model":"m","input":[{{"type":"reasoning","encrypted_content":"{sealed}"}}]}}"#)).splices.markers
    };
    assert!(marked("tg1.a.x") && !marked("gAAAA"));
}

#[test]
fn tools_added_in_the_conversation_are_priced_like_declared_ones() {
    let read = |item: &str| summary(&format!(r#"{{"model":"m","input":[{{"role":"user","content":"a"}},{item}]}}"#));
    let adds = |tools: &str| read(&format!(r#"{{"type":"additional_tools","role":"developer","tools":[{tools}]}}"#));
    let searches = adds(r#"{"type":"web_search"}"#);
    assert!(searches.extras.web_search && searches.extras.unseen.tools && searches.offered_searches.is_empty());
    assert_eq!(searches.fields, ["input[1].tools"]);
    assert!(adds(r#"{"type":"code_interpreter","container":{"type":"auto"}}"#).extras.server_tools);
    assert!(adds(r#"{"type":"image_generation"}"#).extras.output_media);
    let nested =
        adds(r#"{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"},{"type":"mcp","server_label":"x"}]}"#);
    assert!(nested.extras.server_tools);
    assert!(read(r#"{"tools":[{"type":"mcp"}],"type":"tool_search_output","call_id":"c"}"#).extras.server_tools);
    // Tools that callers run, and the list of a remote server's tools, have no extra cost and are not checked.
    for free in [
        r#"{"type":"additional_tools","tools":[{"type":"function","name":"f"},{"type":"custom"},{"type":"local_shell"}]}"#,
        r#"{"type":"mcp_list_tools","id":"mcpl_1","server_label":"x","tools":[{"name":"f","input_schema":{"type":"object"}}]}"#,
        r#"{"type":"additional_tools","tools":"none"}"#,
    ] {
        let found = read(free);
        assert!(found.extras == RequestExtras::default() && !found.fields.iter().any(|field| field.contains('[')), "{free}");
    }
    let (few, many) =
        (adds(r#"{"type":"function","name":"f"}"#), adds(r#"{"type":"function","name":"f","description":"a long text"}"#));
    assert!(many.text_bytes > few.text_bytes, "definitions are input");
}
