//! Malformed and hostile requests to the paths of Messages: the corpus of chat completions with the other path and bodies, and bodies
//! that only Messages has.

use serde_json::{Value, json};

/// The paths, and whether the corpus of chat's own members is sent to them: token counts ignore options.
const PATHS: [(&str, bool); 2] = [("/v1/messages", true), ("/v1/messages/count_tokens", false)];

/// Types of errors in this protocol.
const ERROR_TYPES: [&str; 11] = [
    "api_error",
    "authentication_error",
    "billing_error",
    "conflict_error",
    "invalid_request_error",
    "not_found_error",
    "overloaded_error",
    "permission_error",
    "rate_limit_error",
    "request_too_large",
    "timeout_error",
];

/// Inputs of the corpus that Messages answers with another status than chat: keys in the headers of native callers, a tool in chat's
/// form, and a compressed body without `max_tokens`.
const OTHERWISE: [(&str, bool, u16); 4] = [
    ("auth-other-protocol-header", true, 401),
    ("auth-goog-header", true, 401),
    ("json-deep-tool-schema-100", true, 400),
    ("encoding-gzip-served", false, 400),
];

/// The expected answer to a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// 400 on both paths.
    Refused,
    /// 400 for a message; a token count may be answered.
    RefusedToGenerate,
    /// 2xx on both paths.
    Served,
    /// 2xx or 400.
    Either,
}

use Expected::{Either, Refused, RefusedToGenerate, Served};

/// Members of a body after the model, without the braces. `M` stands for a valid list of messages.
const BODIES: [(&str, &str, Expected); 66] = [
    ("valid", r#""max_tokens":9,"messages":M"#, Served),
    ("valid-blocks", r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]"#, Served),
    ("no-max-tokens", r#""messages":M"#, RefusedToGenerate),
    ("max-tokens-null", r#""max_tokens":null,"messages":M"#, RefusedToGenerate),
    ("max-tokens-text", r#""max_tokens":"9","messages":M"#, RefusedToGenerate),
    ("max-tokens-negative", r#""max_tokens":-1,"messages":M"#, RefusedToGenerate),
    ("max-tokens-fraction", r#""max_tokens":1.5,"messages":M"#, RefusedToGenerate),
    ("max-tokens-huge", r#""max_tokens":18446744073709551616,"messages":M"#, RefusedToGenerate),
    ("max-tokens-exponent", r#""max_tokens":1e400,"messages":M"#, RefusedToGenerate),
    ("max-tokens-twice", r#""max_tokens":1,"max_tokens":9,"messages":M"#, RefusedToGenerate),
    ("no-messages", r#""max_tokens":9"#, Refused),
    ("messages-null", r#""max_tokens":9,"messages":null"#, Refused),
    ("messages-text", r#""max_tokens":9,"messages":"hi""#, Refused),
    ("messages-object", r#""max_tokens":9,"messages":{"0":{"role":"user","content":"hi"}}"#, Refused),
    ("messages-empty", r#""max_tokens":9,"messages":[]"#, Refused),
    ("messages-twice", r#""max_tokens":9,"messages":M,"messages":M"#, Refused),
    ("message-null", r#""max_tokens":9,"messages":[null]"#, Refused),
    ("message-array", r#""max_tokens":9,"messages":[[]]"#, Refused),
    ("message-empty", r#""max_tokens":9,"messages":[{}]"#, Refused),
    ("role-missing", r#""max_tokens":9,"messages":[{"content":"hi"}]"#, Refused),
    ("role-number", r#""max_tokens":9,"messages":[{"role":1,"content":"hi"}]"#, Refused),
    ("role-empty", r#""max_tokens":9,"messages":[{"role":"","content":"hi"}]"#, Refused),
    ("role-unknown", r#""max_tokens":9,"messages":[{"role":"wizard","content":"hi"}]"#, Refused),
    ("role-twice", r#""max_tokens":9,"messages":[{"role":"user","role":"assistant","content":"hi"}]"#, Either),
    ("content-missing", r#""max_tokens":9,"messages":[{"role":"user"}]"#, Refused),
    ("content-null", r#""max_tokens":9,"messages":[{"role":"user","content":null}]"#, Refused),
    ("content-number", r#""max_tokens":9,"messages":[{"role":"user","content":7}]"#, Refused),
    ("content-object", r#""max_tokens":9,"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]"#, Refused),
    ("block-null", r#""max_tokens":9,"messages":[{"role":"user","content":[null]}]"#, Refused),
    ("block-text", r#""max_tokens":9,"messages":[{"role":"user","content":["hi"]}]"#, Refused),
    ("block-without-type", r#""max_tokens":9,"messages":[{"role":"user","content":[{"text":"hi"}]}]"#, Refused),
    ("block-type-number", r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":1,"text":"hi"}]}]"#, Refused),
    (
        "block-unknown",
        r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"hologram","data":"x"}]}]"#,
        RefusedToGenerate,
    ),
    ("text-missing", r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"text"}]}]"#, Refused),
    ("text-null", r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":null}]}]"#, Refused),
    ("text-number", r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":7}]}]"#, Refused),
    ("text-lone-surrogate", r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"\ud800"}]}]"#, Either),
    ("image-without-source", r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"image"}]}]"#, Refused),
    (
        "image-junk",
        r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"!!"}}]}]"#,
        Either,
    ),
    (
        "image-of-canary",
        r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://{{CANARY}}/x.png"}}]}]"#,
        Either,
    ),
    (
        "document-of-file",
        r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"file:///etc/passwd"}}]}]"#,
        Either,
    ),
    (
        "result-without-call",
        r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"x"}]}]"#,
        Refused,
    ),
    (
        "result-without-id",
        r#""max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"}]}]"#,
        Refused,
    ),
    (
        "call-without-result",
        r#""max_tokens":9,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":{}}]},{"role":"user","content":"hi"}]"#,
        Refused,
    ),
    (
        "call-input-text",
        r#""max_tokens":9,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":"{}"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1"}]}]"#,
        Either,
    ),
    (
        "calls-of-one-id",
        r#""max_tokens":9,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]"#,
        Either,
    ),
    (
        "thinking-forged",
        r#""max_tokens":9,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"tg1.gemini"},{"type":"text","text":"y"}]},{"role":"user","content":"hi"}]"#,
        Served,
    ),
    (
        "thinking-of-numbers",
        r#""max_tokens":9,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":7,"signature":[]},{"type":"text","text":"y"}]},{"role":"user","content":"hi"}]"#,
        Either,
    ),
    ("system-number", r#""max_tokens":9,"messages":M,"system":7"#, Refused),
    ("system-of-null", r#""max_tokens":9,"messages":M,"system":[null]"#, Refused),
    ("system-image", r#""max_tokens":9,"messages":M,"system":[{"type":"image"}]"#, Either),
    ("stream-text", r#""max_tokens":9,"messages":M,"stream":"true""#, RefusedToGenerate),
    ("stream-array", r#""max_tokens":9,"messages":M,"stream":[]"#, RefusedToGenerate),
    ("stream-null", r#""max_tokens":9,"messages":M,"stream":null"#, Served),
    ("tools-object", r#""max_tokens":9,"messages":M,"tools":{}"#, Refused),
    ("tools-of-null", r#""max_tokens":9,"messages":M,"tools":[null]"#, Refused),
    ("tool-without-name", r#""max_tokens":9,"messages":M,"tools":[{"input_schema":{"type":"object"}}]"#, Refused),
    (
        "tool-of-the-provider",
        r#""max_tokens":9,"messages":M,"tools":[{"type":"web_search_20250305","name":"web_search"}]"#,
        RefusedToGenerate,
    ),
    ("tool-schema-text", r#""max_tokens":9,"messages":M,"tools":[{"name":"f","input_schema":"object"}]"#, Either),
    ("tool-choice-number", r#""max_tokens":9,"messages":M,"tool_choice":7"#, RefusedToGenerate),
    ("thinking-text", r#""max_tokens":9,"messages":M,"thinking":"on""#, RefusedToGenerate),
    ("temperature-text", r#""max_tokens":9,"messages":M,"temperature":"hot""#, RefusedToGenerate),
    ("stop-sequences-number", r#""max_tokens":9,"messages":M,"stop_sequences":7"#, RefusedToGenerate),
    (
        "servers-of-canary",
        r#""max_tokens":9,"messages":M,"mcp_servers":[{"type":"url","url":"http://{{CANARY}}/","name":"x"}]"#,
        RefusedToGenerate,
    ),
    ("thread", r#""max_tokens":9,"messages":M,"thread":{"type":"continue","previous_message_id":"msg_1"}"#, RefusedToGenerate),
    ("member-unknown", r#""max_tokens":9,"messages":M,"api_base":"http://{{CANARY}}/v1""#, RefusedToGenerate),
];

/// Inputs for every path, in the form of the corpus, of which these are the lines.
pub(crate) fn inputs(corpus: &str) -> Vec<Value> {
    let of_chat = corpus.lines().filter(|line| line.contains("{{R:chat}}"));
    let of_chat = of_chat.flat_map(|line| PATHS.iter().filter_map(|path| from_chat(line, *path)));
    let own = BODIES.iter().flat_map(|body| PATHS.iter().map(|path| of_body(*body, *path)));
    of_chat.chain(own).collect()
}

/// The input of a line with another path; bodies get the member that Messages requires and chat does not.
fn from_chat(line: &str, (path, has_options): (&str, bool)) -> Option<Value> {
    let mut input: Value = serde_json::from_str(&line.replace("{{R:chat}}", path)).expect("the fixture is JSON lines");
    if input["class"] == "chat" && !has_options {
        return None;
    }
    if let Some((_, _, status)) = OTHERWISE.iter().find(|(id, also_counts, _)| input["id"] == *id && (has_options || *also_counts))
    {
        input["expect"]["status"] = json!([[status, status]]);
    }
    let has_limit = line.contains("max_tokens");
    if let Some(Value::String(text)) = input.pointer_mut("/req/body/0/t")
        && !has_limit
        && let Some(rest) =
            ["{\"model\":", "{\"messages\":"].iter().find_map(|start| text.strip_prefix(start).map(|rest| format!("{start}{rest}")))
    {
        *text = rest.replacen('{', "{\"max_tokens\":9,", 1);
    }
    Some(named(input, path))
}

fn of_body((name, members, expected): (&str, &str, Expected), (path, has_options): (&str, bool)) -> Value {
    let head = format!(
        "POST {path}?beta=true HTTP/1.1\r\nHost: {{{{HOST}}}}\r\nx-api-key: {{{{KEY}}}}\r\nanthropic-version: 2023-06-01\r\n\
         Content-Type: application/json\r\nContent-Length: {{{{CL}}}}\r\nConnection: close\r\n\r\n"
    );
    let members = members.replace(":M", r#":[{"role":"user","content":"hi"}]"#);
    let (served, refused) = ([200, 299], [400, 400]);
    let status = match expected {
        Refused => json!([refused]),
        RefusedToGenerate if has_options => json!([refused]),
        Served => json!([served]),
        Either | RefusedToGenerate => json!([served, refused]),
    };
    let body = format!("{{\"model\":\"{{{{MODEL}}}}\",{members}}}");
    let input = json!({"id": name, "class": "messages", "req": {"head": [{"t": head}], "body": [{"t": body}]}, "expect": {"status": status}});
    named(input, path)
}

/// Adds the path to the id, and the expectation that errors have the form of the protocol.
fn named(mut input: Value, path: &str) -> Value {
    input["id"] = format!("{} on {path}", input["id"].as_str().unwrap_or_default()).into();
    input["expect"]["messages"] = true.into();
    input
}

/// Why the body of a refusal is not a Messages error.
pub(crate) fn fault_in_error(body: &[u8]) -> Option<String> {
    let error: Value = serde_json::from_slice(body).unwrap_or_default();
    let is_error = error["type"] == "error"
        && error["error"]["type"].as_str().is_some_and(|kind| ERROR_TYPES.contains(&kind))
        && error["error"]["message"].as_str().is_some_and(|message| !message.is_empty())
        && error["request_id"].as_str().is_some_and(|id| id.starts_with("req_"));
    (!is_error).then(|| format!("no error of Messages: {:?}", String::from_utf8_lossy(body)))
}
