//! Scripted OpenAI Responses API. It keeps nothing.

use serde_json::{Value, json};

use super::{ModelInput, ModelOutput, ProviderError, RESPONSES_SEAL, ResponseBody, deltas, respond};

/// Beginning of the ids of calls that this model made.
const CALL_ID: &str = "call_responses_";

pub(crate) fn answer(body: &Value) -> Result<ResponseBody, ProviderError> {
    if let Some(id) = body["previous_response_id"].as_str() {
        return Err(ProviderError {
            detail: Some(("previous_response_not_found", "previous_response_id")),
            ..ProviderError::bad(format!("Previous response with id '{id}' not found."))
        });
    }
    let input = read(body)?;
    let output = respond(&input)?;
    let reply = Reply { output: &output, instructions: &body["instructions"] };
    Ok(if input.stream { ResponseBody::Events(reply.events()) } else { ResponseBody::Json(reply.whole()) })
}

fn read(body: &Value) -> Result<ModelInput, ProviderError> {
    let reasoning = &body["reasoning"];
    let mut input = ModelInput {
        stream: body["stream"] == true,
        thinking: reasoning.is_object() && reasoning["effort"] != "none",
        hides_thought: reasoning["summary"].is_null(),
        json: ["json_object", "json_schema"].iter().any(|kind| body["text"]["format"]["type"] == *kind),
        ..ModelInput::default()
    };
    for tool in body["tools"].as_array().into_iter().flatten().filter(|tool| tool["type"] == "function") {
        input.tools.push(tool["name"].as_str().ok_or_else(|| ProviderError::bad("a tool without a name"))?.to_owned());
        let kind = &tool["parameters"]["type"];
        if kind != "object" {
            return Err(ProviderError::bad(format!("parameters of type {kind}")));
        }
    }
    if let Some(text) = body["input"].as_str() {
        input.messages += 1;
        input.begin_turn(text.to_owned(), 0);
        return Ok(input);
    }
    let mut open: Vec<String> = Vec::new();
    let mut in_results = false;
    let mut has_thought = false;
    for item in body["input"].as_array().ok_or_else(|| ProviderError::bad("Missing required parameter: 'input'."))? {
        input.messages += 1;
        let kind = item["type"].as_str().unwrap_or("message");
        if kind == "message" && !open.is_empty() {
            return Err(ProviderError::bad(format!("No tool output found for function calls {open:?}.")));
        }
        match kind {
            "message" => read_message(item, &mut input)?,
            "reasoning" => {
                has_thought = true;
                if item["encrypted_content"] != RESPONSES_SEAL {
                    return Err(ProviderError::bad(format!(
                        "The encrypted content {} could not be verified.",
                        item["encrypted_content"]
                    )));
                }
            }
            "function_call" => {
                let id = called(item)?;
                if input.thinking && id.starts_with(CALL_ID) && !has_thought {
                    return Err(ProviderError::bad(format!(
                        "Item of call {id} was provided without its required 'reasoning' item."
                    )));
                }
                open.push(id);
            }
            "function_call_output" => {
                has_thought = false;
                let id = item["call_id"].as_str().unwrap_or_default();
                let position = open
                    .iter()
                    .position(|known| known == id)
                    .ok_or_else(|| ProviderError::bad(format!("No tool call found for function call output with call_id {id}.")))?;
                open.remove(position);
                input.results.push(content(&item["output"]).0);
            }
            other => return Err(ProviderError::bad(format!("unknown item {other}"))),
        }
        let is_result = kind == "function_call_output";
        input.rounds += usize::from(is_result && !in_results);
        in_results = is_result;
    }
    Ok(input)
}

/// The id of a call, if the call can be one.
fn called(item: &Value) -> Result<String, ProviderError> {
    let id = item["call_id"].as_str().unwrap_or_default();
    let fits =
        (1..=64).contains(&id.len()) && item["arguments"].as_str().is_some_and(|text| serde_json::from_str::<Value>(text).is_ok());
    if fits { Ok(id.to_owned()) } else { Err(ProviderError::bad(format!("a call that cannot be: {item}"))) }
}

fn read_message(item: &Value, input: &mut ModelInput) -> Result<(), ProviderError> {
    match item["role"].as_str() {
        Some("user") => {
            let (text, media) = content(&item["content"]);
            input.begin_turn(text, media);
            Ok(())
        }
        Some("assistant" | "system" | "developer") => Ok(()),
        other => Err(ProviderError::bad(format!("unknown role {other:?}"))),
    }
}

fn content(content: &Value) -> (String, usize) {
    if let Some(text) = content.as_str() {
        return (text.to_owned(), 0);
    }
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    (texts.join("\n"), parts.len() - texts.len())
}

/// The items of an output, as they are when they are complete.
fn items(output: &ModelOutput) -> Vec<Value> {
    let number = output.number;
    let summary = |thought: &String| {
        let part = json!({"type": "summary_text", "text": thought});
        if thought.is_empty() { json!([]) } else { json!([part]) }
    };
    let mut items: Vec<Value> = output
        .thought
        .iter()
        .map(|thought| json!({"type": "reasoning", "summary": summary(thought), "encrypted_content": RESPONSES_SEAL}))
        .collect();
    items.extend(output.text.iter().map(|text| {
        let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
        json!({"type": "message", "role": "assistant", "status": "completed", "content": [part]})
    }));
    items.extend(output.calls.iter().enumerate().map(|(index, (name, arguments))| {
        json!({
            "type": "function_call", "status": "completed", "call_id": format!("{CALL_ID}{number}_{index}"), "name": name,
            "arguments": arguments.to_string(),
        })
    }));
    for (index, item) in items.iter_mut().enumerate() {
        item["id"] = format!("item_{number}_{index}").into();
    }
    items
}

/// An output, and the members of the request that a response repeats.
struct Reply<'a> {
    output: &'a ModelOutput,
    instructions: &'a Value,
}

impl Reply<'_> {
    /// A response with this status and these items.
    fn response(&self, status: &str, items: &[Value]) -> Value {
        let (output, instructions) = (self.output, self.instructions);
        let mut response = json!({
            "id": format!("resp_scripted_{}", output.number), "object": "response", "created_at": 1_700_000_000,
            "model": "scripted-1", "status": status, "error": null, "incomplete_details": null, "instructions": instructions,
            "metadata": {}, "output": items, "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [],
            "top_p": 1.0, "store": false,
        });
        if status == "completed" {
            let reasoning = if output.thought.is_some() { 3 } else { 0 };
            let completion = output.tokens() + reasoning;
            response["usage"] = json!({
                "input_tokens": 11, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": completion,
                "output_tokens_details": {"reasoning_tokens": reasoning}, "total_tokens": 11 + completion,
            });
        }
        response
    }

    fn whole(&self) -> Value {
        self.response("completed", &items(self.output))
    }

    fn events(&self) -> Vec<String> {
        let begun = self.response("in_progress", &[]);
        let mut events = vec![
            json!({"type": "response.created", "response": begun}),
            json!({"type": "response.in_progress", "response": begun}),
        ];
        for (index, item) in items(self.output).iter().enumerate() {
            let (begin, body) = item_events(item);
            events.push(json!({"type": "response.output_item.added", "item": begin, "output_index": index}));
            events.extend(body.into_iter().map(|mut event| {
                (event["item_id"], event["output_index"]) = (item["id"].clone(), index.into());
                event
            }));
            events.push(json!({"type": "response.output_item.done", "item": item, "output_index": index}));
        }
        events.push(json!({"type": "response.completed", "response": self.whole()}));
        let numbered = events.into_iter().enumerate().map(|(number, mut event)| {
            event["sequence_number"] = number.into();
            format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
        });
        numbered.collect()
    }
}

/// An item as it begins, and the events between its beginning and its end.
fn item_events(item: &Value) -> (Value, Vec<Value>) {
    let mut begin = item.clone();
    begin["status"] = "in_progress".into();
    let event = |kind: &str, members: &Value| {
        let mut event = members.clone();
        event["type"] = format!("response.{kind}").into();
        event
    };
    // The text in pieces, then whole.
    let texts = |kind: &str, name: &str, text: &str, place: &Value| {
        let with = |name: &str, value: &str| {
            let mut members = place.clone();
            members[name] = value.into();
            members
        };
        let mut events: Vec<Value> =
            deltas(text).iter().map(|piece| event(&format!("{kind}.delta"), &with("delta", piece))).collect();
        events.push(event(&format!("{kind}.done"), &with(name, text)));
        events
    };
    match item["type"].as_str() {
        Some("reasoning") => {
            begin["summary"] = json!([]);
            let Some(part) = item["summary"].get(0) else { return (begin, Vec::new()) };
            let place = json!({"summary_index": 0});
            let edge = |kind: &str, text: &str| {
                let part = json!({"type": "summary_text", "text": text});
                event(kind, &json!({"summary_index": 0, "part": part}))
            };
            let text = part["text"].as_str().unwrap_or_default();
            let mut events = vec![edge("reasoning_summary_part.added", "")];
            events.extend(texts("reasoning_summary_text", "text", text, &place));
            events.push(edge("reasoning_summary_part.done", text));
            (begin, events)
        }
        Some("message") => {
            begin["content"] = json!([]);
            let part = &item["content"][0];
            let mut empty = part.clone();
            empty["text"] = "".into();
            let mut events = vec![event("content_part.added", &json!({"content_index": 0, "part": empty}))];
            let place = json!({"content_index": 0, "logprobs": []});
            events.extend(texts("output_text", "text", part["text"].as_str().unwrap_or_default(), &place));
            events.push(event("content_part.done", &json!({"content_index": 0, "part": part})));
            (begin, events)
        }
        _ => {
            begin["arguments"] = "".into();
            (begin, texts("function_call_arguments", "arguments", item["arguments"].as_str().unwrap_or_default(), &json!({})))
        }
    }
}
