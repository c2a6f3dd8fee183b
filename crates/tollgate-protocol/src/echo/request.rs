//! The members of a request that the echo reads; others are ignored.

use serde_json::Value;

use super::words;
use crate::Method;

#[derive(Debug, Default)]
pub(super) struct EchoRequest {
    pub text: String,
    pub prompt_words: u64,
    pub max_words: Option<u64>,
    pub json: bool,
    /// A forced call: name, and true for a custom tool.
    pub call: Option<(String, bool)>,
    pub stream: bool,
    pub include_usage: bool,
}

pub(super) fn openai(body: &Value) -> EchoRequest {
    let messages = list(&body["messages"]);
    let format = body["response_format"]["type"].as_str().unwrap_or_default();
    EchoRequest {
        text: last_openai_turn(messages),
        prompt_words: messages.iter().map(|message| words::count(&openai_text(&message["content"]))).sum(),
        max_words: whole(&body["max_completion_tokens"]).or_else(|| whole(&body["max_tokens"])),
        json: matches!(format, "json_object" | "json_schema"),
        call: openai_call(body),
        stream: body["stream"] == Value::Bool(true),
        include_usage: body["stream_options"]["include_usage"] == Value::Bool(true),
    }
}

/// Reads a Gemini request, with field names in either spelling.
pub(super) fn gemini(body: &Value, method: Method) -> EchoRequest {
    let inner = either(body, "generateContentRequest", "generate_content_request");
    let body = if inner.is_object() { inner } else { body };
    let contents = list(&body["contents"]);
    let config = either(body, "generationConfig", "generation_config");
    let mime = either(config, "responseMimeType", "response_mime_type").as_str().unwrap_or_default();
    let system = gemini_text(list(&either(body, "systemInstruction", "system_instruction")["parts"]));
    let content_words: u64 = contents.iter().map(|content| words::count(&gemini_text(list(&content["parts"])))).sum();
    let last = contents.iter().rev().find(|content| !matches!(content["role"].as_str(), Some("model" | "assistant" | "system")));
    EchoRequest {
        text: last.map(|content| gemini_text(list(&content["parts"]))).unwrap_or_default(),
        prompt_words: content_words + words::count(&system),
        max_words: whole(either(config, "maxOutputTokens", "max_output_tokens")),
        json: mime == "application/json",
        call: gemini_call(body),
        stream: method == Method::StreamGenerate,
        include_usage: true,
    }
}

/// Text of the last user turn: a user message, or adjacent tool results at the end.
fn last_openai_turn(messages: &[Value]) -> String {
    let is = |message: &Value, roles: &[&str]| message["role"].as_str().is_some_and(|role| roles.contains(&role));
    let tools = &["tool", "function"];
    let Some(last) = messages.iter().rposition(|message| is(message, &["user"]) || is(message, tools)) else {
        return String::new();
    };
    if is(&messages[last], &["user"]) {
        return openai_text(&messages[last]["content"]);
    }
    let first = messages[..=last].iter().rposition(|message| !is(message, tools)).map_or(0, |at| at + 1);
    let results: Vec<String> = messages[first..=last].iter().map(|message| openai_text(&message["content"])).collect();
    results.join("\n")
}

fn openai_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(openai_part).collect::<Vec<_>>().join("\n"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn openai_part(part: &Value) -> String {
    match part["type"].as_str().unwrap_or_default() {
        "image_url" => {
            let image = &part["image_url"];
            described_url(image.as_str().or_else(|| image["url"].as_str()).unwrap_or_default(), "image")
        }
        "input_audio" => {
            let audio = &part["input_audio"];
            let mime = format!("audio/{}", audio["format"].as_str().unwrap_or("wav"));
            described(&mime, audio["data"].as_str().unwrap_or_default())
        }
        "file" => match part["file"]["file_data"].as_str() {
            Some(data) if data.starts_with("data:") => described_url(data, "file"),
            Some(data) => described("application/octet-stream", data),
            None => "[file]".to_owned(),
        },
        _ => part["text"].as_str().or_else(|| part["refusal"].as_str()).unwrap_or_default().to_owned(),
    }
}

fn gemini_text(parts: &[Value]) -> String {
    parts.iter().map(gemini_part).collect::<Vec<_>>().join("\n")
}

fn gemini_part(part: &Value) -> String {
    let (inline, file) = (either(part, "inlineData", "inline_data"), either(part, "fileData", "file_data"));
    let result = either(part, "functionResponse", "function_response");
    if inline.is_object() {
        return described(mime_of(inline), inline["data"].as_str().unwrap_or_default());
    }
    if file.is_object() {
        return format!("[{}]", Some(mime_of(file)).filter(|mime| !mime.is_empty()).unwrap_or("file"));
    }
    if result.is_object() {
        let response = &result["response"];
        let text = ["result", "output"].iter().find_map(|name| response[*name].as_str());
        return text.map_or_else(|| response.to_string(), str::to_owned);
    }
    part["text"].as_str().unwrap_or_default().to_owned()
}

fn mime_of(data: &Value) -> &str {
    either(data, "mimeType", "mime_type").as_str().unwrap_or_default()
}

/// Describes inline media: `[image/png, 1234 bytes]`.
fn described(mime: &str, base64: &str) -> String {
    let digits = base64.bytes().filter(|byte| !matches!(byte, b'=' | b'\n' | b'\r' | b' ')).count();
    format!("[{mime}, {} bytes]", digits / 4 * 3 + digits % 4 * 3 / 4)
}

/// Describes a `data:` URL; for other URLs only the kind of media.
fn described_url(url: &str, kind: &str) -> String {
    match url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((head, data)) => described(head.split(';').next().unwrap_or_default(), data),
        None => format!("[{kind}]"),
    }
}

/// The tool that `tool_choice` forces: `required`, a named tool, or one of the required `allowed_tools`.
fn openai_call(body: &Value) -> Option<(String, bool)> {
    let choice = &body["tool_choice"];
    let name = |tool: &Value| {
        let custom = tool["custom"]["name"].as_str().map(|name| (name.to_owned(), true));
        tool["function"]["name"].as_str().map(|name| (name.to_owned(), false)).or(custom)
    };
    match choice["type"].as_str() {
        Some("allowed_tools") if choice["allowed_tools"]["mode"] == "required" => {
            name(&choice["allowed_tools"]["tools"][0]).or_else(|| name(&body["tools"][0]))
        }
        Some(_) => name(choice),
        None if choice == "required" => name(&body["tools"][0]),
        None => None,
    }
}

fn gemini_call(body: &Value) -> Option<(String, bool)> {
    let config = either(either(body, "toolConfig", "tool_config"), "functionCallingConfig", "function_calling_config");
    let any = config["mode"].as_str().is_some_and(|mode| mode.eq_ignore_ascii_case("any")) || config["mode"] == 2;
    if !any {
        return None;
    }
    let allowed = either(config, "allowedFunctionNames", "allowed_function_names")[0].as_str();
    let declared = || {
        list(&body["tools"])
            .iter()
            .find_map(|tool| either(tool, "functionDeclarations", "function_declarations")[0]["name"].as_str())
    };
    allowed.or_else(declared).map(|name| (name.to_owned(), false))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn either<'a>(object: &'a Value, camel: &str, snake: &str) -> &'a Value {
    let value = &object[camel];
    if value.is_null() { &object[snake] } else { value }
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => crate::scan::whole(&number.to_string()),
        Value::String(text) => crate::scan::whole(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
