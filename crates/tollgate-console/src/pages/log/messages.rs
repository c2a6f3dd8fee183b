//! The messages of a stored body and answer, for reading. Media in stored bodies are shortened, so stored bodies are parsed more
//! leniently than requests. Unrecognised parts are left out here; they are visible in the body itself.

use serde_json::Value;
use tollgate_protocol::Protocol;

/// A message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) role: Role,
    pub(super) parts: Vec<MessagePart>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    System,
    #[default]
    User,
    Model,
    Tool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MessagePart {
    Text(String),
    Thought(String),
    /// A call of a tool: its name, and the arguments as they were written.
    Call(String, String),
    Result(String),
    /// An image or other media, with its kind.
    Media(String),
}

impl Message {
    fn of(role: Role, parts: Vec<MessagePart>) -> Option<Self> {
        (!parts.is_empty()).then_some(Self { role, parts })
    }
}

/// The messages of a body; `None` if it is not a JSON object, such as a truncated one.
pub(super) fn of_request(protocol: Protocol, body: &str) -> Option<Vec<Message>> {
    let body: Value = serde_json::from_str(body).ok()?;
    let body = body.as_object()?;
    let get = |name: &str| body.get(name).unwrap_or(&Value::Null);
    let messages = match protocol {
        Protocol::OpenAi => list(get("messages")).iter().filter_map(chat_message).collect(),
        Protocol::Gemini => {
            let system = body.get("systemInstruction").or_else(|| body.get("system_instruction")).unwrap_or(&Value::Null);
            let system = Message::of(Role::System, native_parts(system));
            system.into_iter().chain(list(get("contents")).iter().filter_map(native_message)).collect()
        }
        Protocol::Anthropic => {
            let system = Message::of(Role::System, blocks(get("system")));
            let message = |message: &Value| Message::of(role(&message["role"]), blocks(&message["content"]));
            system.into_iter().chain(list(get("messages")).iter().filter_map(message)).collect()
        }
        Protocol::Responses => {
            let system = Message::of(Role::System, blocks(get("instructions")));
            let input = match get("input").as_str() {
                Some(text) => Message::of(Role::User, vec![MessagePart::Text(text.to_owned())]).into_iter().collect(),
                None => list(get("input")).iter().filter_map(item).collect::<Vec<_>>(),
            };
            system.into_iter().chain(input).collect()
        }
    };
    Some(messages)
}

/// The answer as one message; `None` if nothing of it is recognised.
pub(super) fn of_answer(protocol: Protocol, answer: &str) -> Option<Message> {
    let mut parts = Vec::new();
    match serde_json::from_str::<Value>(answer) {
        // A stream of Gemini as one array.
        Ok(Value::Array(events)) => events.iter().for_each(|event| add_event(protocol, event, &mut parts)),
        Ok(whole) => parts = whole_answer(protocol, &whole),
        Err(_) => {
            let events: Vec<Value> =
                answer.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?.trim()).ok()).collect();
            // The last event of a Responses stream has the whole answer.
            let whole =
                events.iter().rev().find(|event| event["type"] == "response.completed" || event["type"] == "response.incomplete");
            match whole {
                Some(event) => parts = whole_answer(protocol, &event["response"]),
                None => events.iter().for_each(|event| add_event(protocol, event, &mut parts)),
            }
        }
    }
    Message::of(Role::Model, parts)
}

fn whole_answer(protocol: Protocol, answer: &Value) -> Vec<MessagePart> {
    match protocol {
        Protocol::OpenAi => list(&answer["choices"])
            .iter()
            .filter_map(|choice| chat_message(&choice["message"]))
            .flat_map(|message| message.parts)
            .collect(),
        Protocol::Gemini => list(&answer["candidates"]).iter().flat_map(|candidate| native_parts(&candidate["content"])).collect(),
        Protocol::Anthropic => blocks(&answer["content"]),
        Protocol::Responses => list(&answer["output"]).iter().filter_map(item).flat_map(|message| message.parts).collect(),
    }
}

/// Adds the content of a stream event.
fn add_event(protocol: Protocol, event: &Value, parts: &mut Vec<MessagePart>) {
    match protocol {
        Protocol::OpenAi => {
            let delta = &event["choices"][0]["delta"];
            let thought = delta["reasoning_content"].as_str().or_else(|| delta["reasoning"].as_str());
            add(parts, MessagePart::Thought(thought.unwrap_or_default().to_owned()));
            add(parts, MessagePart::Text(text_of(&delta["content"])));
            for call in list(&delta["tool_calls"]) {
                add_call(parts, &call["function"]["name"], &text_of(&call["function"]["arguments"]));
            }
        }
        Protocol::Gemini => native_parts(&event["candidates"][0]["content"]).into_iter().for_each(|part| add(parts, part)),
        Protocol::Anthropic => {
            let (block, delta) = (&event["content_block"], &event["delta"]);
            if block["type"] == "tool_use" {
                add_call(parts, &block["name"], "");
            }
            add(parts, MessagePart::Thought(text_of(&delta["thinking"])));
            add(parts, MessagePart::Text(text_of(&delta["text"])));
            add_call(parts, &Value::Null, &text_of(&delta["partial_json"]));
        }
        Protocol::Responses => {
            let delta = text_of(&event["delta"]);
            match event["type"].as_str().unwrap_or_default() {
                "response.output_text.delta" => add(parts, MessagePart::Text(delta)),
                "response.reasoning_summary_text.delta" => add(parts, MessagePart::Thought(delta)),
                "response.output_item.added" if event["item"]["type"] == "function_call" => {
                    add_call(parts, &event["item"]["name"], "");
                }
                "response.function_call_arguments.delta" => add_call(parts, &Value::Null, &delta),
                _ => {}
            }
        }
    }
}

/// Adds a part, or extends the last one if it is of the same kind.
fn add(parts: &mut Vec<MessagePart>, part: MessagePart) {
    match (parts.last_mut(), part) {
        (_, MessagePart::Text(text) | MessagePart::Thought(text)) if text.is_empty() => {}
        (Some(MessagePart::Text(before)), MessagePart::Text(text))
        | (Some(MessagePart::Thought(before)), MessagePart::Thought(text)) => before.push_str(&text),
        (_, part) => parts.push(part),
    }
}

/// Begins a call if there is a name, else extends the last one.
fn add_call(parts: &mut Vec<MessagePart>, name: &Value, more: &str) {
    match (name.as_str(), parts.last_mut()) {
        (Some(name), _) => parts.push(MessagePart::Call(name.to_owned(), more.to_owned())),
        (None, Some(MessagePart::Call(_, arguments))) => arguments.push_str(more),
        (None, _) => {}
    }
}

fn role(word: &Value) -> Role {
    match word.as_str() {
        Some("system" | "developer") => Role::System,
        Some("assistant" | "model") => Role::Model,
        Some("tool" | "function") => Role::Tool,
        _ => Role::User,
    }
}

fn chat_message(message: &Value) -> Option<Message> {
    let role = role(&message["role"]);
    let mut parts = Vec::new();
    add(&mut parts, MessagePart::Thought(text_of(&message["reasoning_content"])));
    if role == Role::Tool {
        parts.push(MessagePart::Result(joined(&blocks(&message["content"]))));
    } else {
        parts.extend(blocks(&message["content"]));
    }
    add(&mut parts, MessagePart::Text(text_of(&message["refusal"])));
    for call in list(&message["tool_calls"]) {
        let called = if call["custom"].is_object() { &call["custom"] } else { &call["function"] };
        let arguments = called["arguments"].as_str().or_else(|| called["input"].as_str());
        parts.push(MessagePart::Call(text_of(&called["name"]), arguments.unwrap_or_default().to_owned()));
    }
    Message::of(role, parts)
}

fn native_message(content: &Value) -> Option<Message> {
    Message::of(role(&content["role"]), native_parts(content))
}

/// The parts of a Gemini content.
fn native_parts(content: &Value) -> Vec<MessagePart> {
    let either = |part: &Value, camel: &str, snake: &str| part.get(camel).or_else(|| part.get(snake)).cloned();
    let mut parts = Vec::new();
    for part in list(&content["parts"]) {
        if let Some(text) = part["text"].as_str() {
            let text = text.to_owned();
            add(&mut parts, if part["thought"] == true { MessagePart::Thought(text) } else { MessagePart::Text(text) });
        } else if let Some(call) = either(part, "functionCall", "function_call") {
            parts.push(MessagePart::Call(text_of(&call["name"]), compact(&call["args"])));
        } else if let Some(result) = either(part, "functionResponse", "function_response") {
            parts.push(MessagePart::Result(compact(&result["response"])));
        } else if let Some(medium) = either(part, "inlineData", "inline_data").or_else(|| either(part, "fileData", "file_data")) {
            let kind = medium["mimeType"].as_str().or_else(|| medium["mime_type"].as_str());
            parts.push(MessagePart::Media(kind.unwrap_or_default().to_owned()));
        }
    }
    parts
}

/// The parts of a text, or of a list of blocks of chat completions, Messages or Responses.
fn blocks(content: &Value) -> Vec<MessagePart> {
    let mut parts = Vec::new();
    if let Some(text) = content.as_str() {
        add(&mut parts, MessagePart::Text(text.to_owned()));
    }
    for block in list(content) {
        let kind = block["type"].as_str().unwrap_or("text");
        match kind {
            "text" | "input_text" | "output_text" => add(&mut parts, MessagePart::Text(text_of(&block["text"]))),
            "refusal" => add(&mut parts, MessagePart::Text(text_of(&block["refusal"]))),
            "thinking" => add(&mut parts, MessagePart::Thought(text_of(&block["thinking"]))),
            "tool_use" | "server_tool_use" => parts.push(MessagePart::Call(text_of(&block["name"]), compact(&block["input"]))),
            "tool_result" => parts.push(MessagePart::Result(joined(&blocks(&block["content"])))),
            "redacted_thinking" => {}
            _ => parts.push(MessagePart::Media(kind.trim_start_matches("input_").trim_end_matches("_url").to_owned())),
        }
    }
    parts
}

/// An item of Responses.
fn item(item: &Value) -> Option<Message> {
    let one = |role: Role, part: MessagePart| Message::of(role, vec![part]);
    match item["type"].as_str().unwrap_or("message") {
        "message" => Message::of(role(&item["role"]), blocks(&item["content"])),
        "function_call" => one(Role::Model, MessagePart::Call(text_of(&item["name"]), text_of(&item["arguments"]))),
        "custom_tool_call" => one(Role::Model, MessagePart::Call(text_of(&item["name"]), text_of(&item["input"]))),
        "function_call_output" | "custom_tool_call_output" => {
            one(Role::Tool, MessagePart::Result(joined(&blocks(&item["output"]))))
        }
        "reasoning" => {
            let summary: Vec<String> = list(&item["summary"]).iter().map(|part| text_of(&part["text"])).collect();
            let text = summary.join("\n");
            if text.is_empty() { None } else { one(Role::Model, MessagePart::Thought(text)) }
        }
        _ => None,
    }
}

/// The texts of parts, joined by line breaks.
fn joined(parts: &[MessagePart]) -> String {
    let text = |part: &MessagePart| match part {
        MessagePart::Text(text) | MessagePart::Thought(text) | MessagePart::Result(text) | MessagePart::Media(text) => text.clone(),
        MessagePart::Call(name, arguments) => format!("{name}({arguments})"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A value as JSON in one line; nothing for null.
fn compact(value: &Value) -> String {
    if value.is_null() { String::new() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(role: Role, text: &str) -> Message {
        Message { role, parts: vec![MessagePart::Text(text.to_owned())] }
    }

    fn call(name: &str, arguments: &str) -> MessagePart {
        MessagePart::Call(name.to_owned(), arguments.to_owned())
    }

    /// The same conversation in each protocol: a system text, a question with an image, a call and its result.
    fn bodies() -> [(Protocol, Value); 4] {
        let data = "data:image/png;base64,QUJD[99 more characters]";
        [
            (
                Protocol::OpenAi,
                json!({"messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": data}}]},
                    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}}]},
                    {"role": "tool", "tool_call_id": "1", "content": "a cat"}
                ]}),
            ),
            (
                Protocol::Gemini,
                json!({"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": [
                    {"role": "user", "parts": [{"text": "What is it?"}, {"inlineData": {"mimeType": "image", "data": "QUJD"}}]},
                    {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": 1}}}]},
                    {"role": "tool", "parts": [{"functionResponse": {"name": "look", "response": "a cat"}}]}
                ]}),
            ),
            (
                Protocol::Anthropic,
                json!({"system": "Be brief.", "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image", "source": {"data": "QUJD"}}]},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {"at": 1}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a cat"}]}
                ]}),
            ),
            (
                Protocol::Responses,
                json!({"instructions": "Be brief.", "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": data}]},
                    {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{\"at\":1}"},
                    {"type": "function_call_output", "call_id": "1", "output": "a cat"}
                ]}),
            ),
        ]
    }

    #[test]
    fn conversations_are_parsed_in_every_protocol() {
        for (protocol, body) in bodies() {
            let messages = of_request(protocol, &body.to_string()).unwrap();
            let parts: Vec<MessagePart> = messages.iter().flat_map(|message| message.parts.clone()).collect();
            let result = if protocol == Protocol::Gemini { "\"a cat\"" } else { "a cat" };
            assert_eq!(
                parts,
                [
                    MessagePart::Text("Be brief.".to_owned()),
                    MessagePart::Text("What is it?".to_owned()),
                    MessagePart::Media("image".to_owned()),
                    call("look", "{\"at\":1}"),
                    MessagePart::Result(result.to_owned()),
                ],
                "{protocol:?}"
            );
            let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
            assert_eq!(roles[..3], [Role::System, Role::User, Role::Model], "{protocol:?}");
        }
        assert_eq!(of_request(Protocol::Responses, r#"{"input":"hi"}"#), Some(vec![text(Role::User, "hi")]));
        assert_eq!(of_request(Protocol::OpenAi, r#"{"messages":[{"role":"us"#), None);
        assert_eq!(of_request(Protocol::OpenAi, r#"{"messages":7}"#), Some(Vec::new()));
    }

    #[test]
    fn complete_answers_are_parsed_as_one_message() {
        let answers = [
            (Protocol::OpenAi, json!({"choices": [{"message": {"role": "assistant", "content": "Hello"}}]})),
            (Protocol::Gemini, json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hel"}, {"text": "lo"}]}}]})),
            (
                Protocol::Gemini,
                json!([{"candidates": [{"content": {"parts": [{"text": "Hel"}]}}]}, {"candidates": [{"content": {"parts": [{"text": "lo"}]}}]}]),
            ),
            (Protocol::Anthropic, json!({"role": "assistant", "content": [{"type": "text", "text": "Hello"}]})),
            (
                Protocol::Responses,
                json!({"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}]}),
            ),
        ];
        for (protocol, answer) in answers {
            assert_eq!(of_answer(protocol, &answer.to_string()), Some(text(Role::Model, "Hello")), "{protocol:?}");
        }
        assert_eq!(of_answer(Protocol::OpenAi, ""), None);
    }

    #[test]
    fn stream_events_are_assembled_into_one_message() {
        let expected = Message {
            role: Role::Model,
            parts: vec![MessagePart::Thought("Hm.".to_owned()), MessagePart::Text("Hello".to_owned()), call("look", "{\"at\":1}")],
        };
        let streams = [
            (
                Protocol::OpenAi,
                vec![
                    json!({"choices": [{"delta": {"role": "assistant", "reasoning_content": "Hm."}}]}),
                    json!({"choices": [{"delta": {"content": "Hel"}}]}),
                    json!({"choices": [{"delta": {"content": "lo"}}]}),
                    json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]}}]}),
                    json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"at\":1}"}}]}}]}),
                ],
            ),
            (
                Protocol::Anthropic,
                vec![
                    json!({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm."}}),
                    json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hello"}}),
                    json!({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "look", "input": {}}}),
                    json!({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{\"at\":"}}),
                    json!({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "1}"}}),
                ],
            ),
            (
                Protocol::Gemini,
                vec![
                    json!({"candidates": [{"content": {"parts": [{"text": "Hm.", "thought": true}]}}]}),
                    json!({"candidates": [{"content": {"parts": [{"text": "Hello"}]}}]}),
                    json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "look", "args": {"at": 1}}}]}}]}),
                ],
            ),
            (
                Protocol::Responses,
                vec![
                    json!({"type": "response.reasoning_summary_text.delta", "delta": "Hm."}),
                    json!({"type": "response.output_text.delta", "delta": "Hello"}),
                    json!({"type": "response.output_item.added", "item": {"type": "function_call", "name": "look"}}),
                    json!({"type": "response.function_call_arguments.delta", "delta": "{\"at\":1}"}),
                ],
            ),
        ];
        for (protocol, events) in streams {
            let stream: Vec<String> = events.iter().map(|event| format!("event: x\ndata: {event}\n\n")).collect();
            assert_eq!(
                of_answer(protocol, &format!("{}data: [DONE]\n\n", stream.concat())),
                Some(expected.clone()),
                "{protocol:?}"
            );
        }
        let done = json!({"type": "response.completed", "response": {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "All"}]}]}});
        let stream = format!("data: {}\n\ndata: {done}\n\n", json!({"type": "response.output_text.delta", "delta": "Al"}));
        assert_eq!(of_answer(Protocol::Responses, &stream), Some(text(Role::Model, "All")));
    }
}
