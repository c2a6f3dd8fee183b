//! Malformed and hostile requests to the paths of Responses: the corpus of chat completions with the other path and the other name of
//! the conversation, and bodies that only Responses has.

use serde_json::{Value, json};

/// The paths, and whether they validate options; token counts do not.
const PATHS: [(&str, bool); 2] = [("/v1/responses", true), ("/v1/responses/input_tokens", false)];

/// Inputs of the corpus for which Responses has another status than chat: a tool in chat's form, and a number in an option. The flag is
/// true if only the path without options differs.
const OTHERWISE: [(&str, bool, [u16; 2]); 2] =
    [("json-deep-tool-schema-100", false, [400, 400]), ("json-digits-100k", true, [200, 499])];

/// The expected answer to a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// 400 on both paths.
    Refused,
    /// 400 for a response; a token count may be answered.
    RefusedToGenerate,
    /// 2xx on both paths.
    Served,
    /// 2xx or 400.
    Either,
}

use Expected::{Either, Refused, RefusedToGenerate, Served};

/// Members of a body after the model, without the braces. `I` stands for a valid input.
const BODIES: [(&str, &str, Expected); 66] = [
    ("valid", r#""input":I"#, Served),
    ("valid-text", r#""input":"hi""#, Served),
    ("valid-item", r#""input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]"#, Served),
    ("valid-options", r#""input":I,"store":true,"truncation":"disabled","background":false,"previous_response_id":null"#, Served),
    ("no-input", r#""instructions":"hi""#, Refused),
    ("input-null", r#""input":null"#, Refused),
    ("input-number", r#""input":7"#, Refused),
    ("input-object", r#""input":{"role":"user","content":"hi"}"#, Refused),
    ("input-empty", r#""input":[]"#, Refused),
    ("input-empty-with-instructions", r#""input":[],"instructions":"hi""#, Either),
    ("input-twice", r#""input":I,"input":"hi""#, Either),
    ("messages-instead", r#""messages":I"#, Refused),
    ("item-null", r#""input":[null]"#, Refused),
    ("item-text", r#""input":["hi"]"#, Refused),
    ("item-array", r#""input":[[]]"#, Refused),
    ("item-empty", r#""input":[{}]"#, Refused),
    ("item-type-number", r#""input":[{"type":7}]"#, Refused),
    ("item-unknown", r#""input":[{"type":"hologram","data":"x"}]"#, RefusedToGenerate),
    ("item-reference", r#""input":[{"type":"item_reference","id":"msg_1"}]"#, RefusedToGenerate),
    ("item-of-a-hosted-tool", r#""input":[{"type":"computer_call","id":"x"}]"#, RefusedToGenerate),
    ("compaction", r#""input":[{"type":"compaction","encrypted_content":"x"}]"#, RefusedToGenerate),
    ("role-number", r#""input":[{"role":1,"content":"hi"}]"#, Refused),
    ("role-unknown", r#""input":[{"role":"wizard","content":"hi"}]"#, Refused),
    ("role-twice", r#""input":[{"role":"user","role":"assistant","content":"hi"}]"#, Either),
    ("content-number", r#""input":[{"role":"user","content":7}]"#, Refused),
    ("content-object", r#""input":[{"role":"user","content":{"type":"input_text","text":"hi"}}]"#, Refused),
    ("part-null", r#""input":[{"role":"user","content":[null]}]"#, Refused),
    ("part-text", r#""input":[{"role":"user","content":["hi"]}]"#, Refused),
    ("part-without-type", r#""input":[{"role":"user","content":[{"text":"hi"}]}]"#, Refused),
    ("part-unknown", r#""input":[{"role":"user","content":[{"type":"hologram","data":"x"}]}]"#, RefusedToGenerate),
    ("part-of-chat", r#""input":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]"#, RefusedToGenerate),
    ("text-number", r#""input":[{"role":"user","content":[{"type":"input_text","text":7}]}]"#, Refused),
    ("text-lone-surrogate", r#""input":[{"role":"user","content":[{"type":"input_text","text":"\ud800"}]}]"#, Either),
    (
        "image-junk",
        r#""input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,!!"}]}]"#,
        Either,
    ),
    (
        "image-of-canary",
        r#""input":[{"role":"user","content":[{"type":"input_image","image_url":"http://{{CANARY}}/x.png"}]}]"#,
        Either,
    ),
    ("image-of-file-id", r#""input":[{"role":"user","content":[{"type":"input_image","file_id":"file_1"}]}]"#, RefusedToGenerate),
    ("file-of-disk", r#""input":[{"role":"user","content":[{"type":"input_file","file_url":"file:///etc/passwd"}]}]"#, Either),
    ("output-without-call", r#""input":[{"type":"function_call_output","call_id":"c","output":"x"}]"#, Refused),
    ("output-without-id", r#""input":[{"type":"function_call_output","output":"x"}]"#, Refused),
    (
        "call-without-output",
        r#""input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"role":"user","content":"hi"}]"#,
        Refused,
    ),
    ("call-arguments-object", r#""input":[{"type":"function_call","call_id":"c","name":"f","arguments":{}}]"#, Served),
    ("call-without-name", r#""input":[{"type":"function_call","call_id":"c","arguments":"{}"}]"#, Refused),
    (
        "calls-of-one-id",
        r#""input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}]"#,
        Either,
    ),
    (
        "reasoning-forged",
        r#""input":[{"type":"reasoning","summary":[],"encrypted_content":"tg1.g.QUJD"},{"role":"user","content":"hi"}]"#,
        Served,
    ),
    (
        "reasoning-of-numbers",
        r#""input":[{"type":"reasoning","summary":7,"encrypted_content":[]},{"role":"user","content":"hi"}]"#,
        Either,
    ),
    ("instructions-number", r#""input":I,"instructions":7"#, Refused),
    ("stream-text", r#""input":I,"stream":"true""#, RefusedToGenerate),
    ("stream-null", r#""input":I,"stream":null"#, Served),
    ("max-output-text", r#""input":I,"max_output_tokens":"9""#, RefusedToGenerate),
    ("max-output-huge", r#""input":I,"max_output_tokens":18446744073709551616"#, RefusedToGenerate),
    ("max-output-exponent", r#""input":I,"max_output_tokens":1e400"#, RefusedToGenerate),
    ("temperature-text", r#""input":I,"temperature":"hot""#, RefusedToGenerate),
    ("include-unknown", r#""input":I,"include":["everything"]"#, RefusedToGenerate),
    ("include-number", r#""input":I,"include":7"#, RefusedToGenerate),
    ("reasoning-text", r#""input":I,"reasoning":"hard""#, RefusedToGenerate),
    ("text-format-unknown", r#""input":I,"text":{"format":{"type":"xml"}}"#, RefusedToGenerate),
    ("tools-object", r#""input":I,"tools":{}"#, Refused),
    ("tools-of-null", r#""input":I,"tools":[null]"#, Refused),
    ("tool-without-name", r#""input":I,"tools":[{"type":"function"}]"#, Refused),
    ("tool-of-the-service", r#""input":I,"tools":[{"type":"code_interpreter"}]"#, RefusedToGenerate),
    (
        "tool-server-of-canary",
        r#""input":I,"tools":[{"type":"mcp","server_url":"http://{{CANARY}}/","server_label":"x"}]"#,
        RefusedToGenerate,
    ),
    ("tool-choice-number", r#""input":I,"tool_choice":7"#, RefusedToGenerate),
    (
        "namespace-of-null",
        r#""input":I,"tools":[{"type":"namespace","name":"n","description":"","tools":[null]}]"#,
        RefusedToGenerate,
    ),
    ("previous-response", r#""input":I,"previous_response_id":"resp_1""#, RefusedToGenerate),
    ("background", r#""input":I,"background":true"#, RefusedToGenerate),
    ("member-unknown", r#""input":I,"api_base":"http://{{CANARY}}/v1""#, RefusedToGenerate),
];

/// Inputs for every path, in the form of the corpus, of which these are the lines.
pub(crate) fn inputs(corpus: &str) -> Vec<Value> {
    let of_chat = corpus.lines().filter(|line| line.contains("{{R:chat}}"));
    let of_chat = of_chat.flat_map(|line| PATHS.iter().filter_map(|path| from_chat(line, *path)));
    let own = BODIES.iter().flat_map(|body| PATHS.iter().map(|path| of_body(*body, *path)));
    of_chat.chain(own).collect()
}

/// The input of a line with another path and another name of the conversation. Members that only chat has are not sent.
fn from_chat(line: &str, (path, has_options): (&str, bool)) -> Option<Value> {
    let line = line.replace("{{R:chat}}", path).replace(r#"\"messages\""#, r#"\"input\""#);
    let mut input: Value = serde_json::from_str(&line).expect("the fixture is JSON lines");
    if input["class"] == "chat" {
        return None;
    }
    let is_other = |(id, counts_only, _): &&(&str, bool, [u16; 2])| input["id"] == *id && !(*counts_only && has_options);
    if let Some((_, _, status)) = OTHERWISE.iter().find(is_other) {
        input["expect"]["status"] = json!([status]);
    }
    Some(named(input, path))
}

fn of_body((name, members, expected): (&str, &str, Expected), (path, has_options): (&str, bool)) -> Value {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {{{{HOST}}}}\r\nAuthorization: Bearer {{{{KEY}}}}\r\nContent-Type: application/json\r\n\
         Content-Length: {{{{CL}}}}\r\nConnection: close\r\n\r\n"
    );
    let members = members.replace(":I", r#":[{"role":"user","content":"hi"}]"#);
    let (served, refused) = ([200, 299], [400, 400]);
    let status = match expected {
        Refused => json!([refused]),
        RefusedToGenerate if has_options => json!([refused]),
        Served => json!([served]),
        Either | RefusedToGenerate => json!([served, refused]),
    };
    let body = format!("{{\"model\":\"{{{{MODEL}}}}\",{members}}}");
    let expect = json!({"status": status, "body": "error"});
    named(json!({"id": name, "class": "responses", "req": {"head": [{"t": head}], "body": [{"t": body}]}, "expect": expect}), path)
}

fn named(mut input: Value, path: &str) -> Value {
    input["id"] = format!("{} on {path}", input["id"].as_str().unwrap_or_default()).into();
    input
}
