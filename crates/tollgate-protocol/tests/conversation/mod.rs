//! Generated conversations that every protocol can express, and their request bodies.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tollgate_protocol::Protocol;

/// A conversation with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    system: Option<String>,
    exchanges: Vec<Exchange>,
    last: Vec<GeneratedTurn>,
    tools: bool,
    choice: Option<&'static str>,
    pub(crate) stream: bool,
    params: Params,
}

/// Content of a user turn or a model turn.
#[derive(Clone, Debug)]
struct Exchange {
    user: Vec<GeneratedTurn>,
    model: Option<String>,
    calls: Vec<(usize, Value, String)>,
}

#[derive(Clone, Debug)]
enum GeneratedTurn {
    Text(String),
    Image(&'static str),
}

#[derive(Clone, Debug)]
struct Params {
    temperature: Option<f64>,
    top_p: Option<f64>,
    max_tokens: u32,
    stop: Vec<String>,
    schema: bool,
}

const TOOLS: [&str; 2] = ["get_weather", "search-2"];

fn words() -> impl Strategy<Value = String> {
    "[a-zäé\"\\\\ \n\u{2028}]{0,12}[a-z]"
}

fn turns() -> impl Strategy<Value = Vec<GeneratedTurn>> {
    let one = prop_oneof![
        3 => words().prop_map(GeneratedTurn::Text),
        1 => proptest::sample::select(&["iVBO", "/9j/", "AAAA"][..]).prop_map(GeneratedTurn::Image),
    ];
    proptest::collection::vec(one, 1..3)
}

fn arguments() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map(
        "[a-z$]{1,5}",
        prop_oneof![words().prop_map(Value::from), any::<i32>().prop_map(Value::from)],
        0..3,
    )
    .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into())
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let calls = proptest::collection::vec((0..TOOLS.len(), arguments(), words()), 0..3);
    (turns(), proptest::option::of(words()), calls).prop_map(|(user, model, calls)| {
        let model = if calls.is_empty() { Some(model.unwrap_or_else(|| "yes".to_owned())) } else { model };
        Exchange { user, model, calls }
    })
}

fn params() -> impl Strategy<Value = Params> {
    let tenths = || proptest::option::of((0_u8..=10).prop_map(|tenths| f64::from(tenths) / 10.0));
    // Requests to Responses upstreams have a limit of 16 or more.
    (tenths(), tenths(), 16_u32..9_000, proptest::collection::vec("[a-z]{1,3}", 0..4), any::<bool>())
        .prop_map(|(temperature, top_p, max_tokens, stop, schema)| Params { temperature, top_p, max_tokens, stop, schema })
}

/// Strategy for conversations.
pub(crate) fn conversations() -> impl Strategy<Value = Conversation> {
    let choice = proptest::option::of(proptest::sample::select(&["auto", "none", "any", "named"][..]));
    let exchanges = proptest::collection::vec(exchange(), 0..4);
    (proptest::option::of(words()), exchanges, turns(), any::<bool>(), choice, any::<bool>(), params()).prop_map(
        |(system, exchanges, last, tools, choice, stream, params)| {
            let tools = tools || exchanges.iter().any(|exchange| !exchange.calls.is_empty());
            Conversation { system, exchanges, last, tools, choice: choice.filter(|_| tools), stream, params }
        },
    )
}

fn parameters() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}, "enum": {"type": "number"}}, "required": ["city"]})
}

/// An object of the members that are set.
fn object(members: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    Value::Object(members.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value))).collect())
}

impl Conversation {
    /// The request body in a protocol.
    pub(crate) fn body_for(&self, protocol: Protocol) -> Value {
        match protocol {
            Protocol::OpenAi => self.openai(),
            Protocol::Gemini => self.gemini(),
            Protocol::Anthropic => self.anthropic(),
            Protocol::Responses => self.responses(),
        }
    }

    /// The calls of each exchange, with generated ids.
    fn numbered(&self) -> Vec<Vec<(String, &'static str, &Value, &str)>> {
        let mut number = 0;
        let mut id = || {
            number += 1;
            format!("id_{number}")
        };
        self.exchanges
            .iter()
            .map(|exchange| exchange.calls.iter().map(|(tool, args, result)| (id(), TOOLS[*tool], args, result.as_str())).collect())
            .collect()
    }

    fn openai(&self) -> Value {
        let user = |said: &[GeneratedTurn]| {
            let part = |said: &GeneratedTurn| match said {
                GeneratedTurn::Text(text) => json!({"type": "text", "text": text}),
                GeneratedTurn::Image(data) => {
                    json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}})
                }
            };
            json!({"role": "user", "content": said.iter().map(part).collect::<Vec<_>>()})
        };
        let mut messages: Vec<Value> = self.system.iter().map(|text| json!({"role": "system", "content": text})).collect();
        for (exchange, calls) in self.exchanges.iter().zip(self.numbered()) {
            messages.push(user(&exchange.user));
            let made: Vec<Value> = calls
                .iter()
                .map(|(id, name, args, _)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": args.to_string()}}))
                .collect();
            let mut message = json!({"role": "assistant", "content": exchange.model});
            if !made.is_empty() {
                message["tool_calls"] = made.into();
            }
            messages.push(message);
            messages.extend(
                calls.iter().rev().map(|(id, _, _, result)| json!({"role": "tool", "tool_call_id": id, "content": result})),
            );
        }
        messages.push(user(&self.last));
        let tool =
            |name: &&str| json!({"type": "function", "function": {"name": name, "description": "d", "parameters": parameters()}});
        let choice = self.choice.map(|choice| match choice {
            "any" => json!("required"),
            "named" => json!({"type": "function", "function": {"name": TOOLS[0]}}),
            plain => json!(plain),
        });
        let schema = || json!({"type": "json_schema", "json_schema": {"name": "n", "schema": parameters()}});
        object([
            ("model", Some(json!("m"))),
            ("messages", Some(messages.into())),
            ("tools", self.tools.then(|| TOOLS.iter().map(tool).collect())),
            ("tool_choice", choice),
            ("temperature", self.params.temperature.map(Value::from)),
            ("top_p", self.params.top_p.map(Value::from)),
            ("max_tokens", Some(self.params.max_tokens.into())),
            ("stop", (!self.params.stop.is_empty()).then(|| self.params.stop.clone().into())),
            ("response_format", self.params.schema.then(schema)),
            ("stream", Some(self.stream.into())),
        ])
    }

    fn gemini(&self) -> Value {
        let user = |said: &[GeneratedTurn]| {
            let part = |said: &GeneratedTurn| match said {
                GeneratedTurn::Text(text) => json!({"text": text}),
                GeneratedTurn::Image(data) => json!({"inline_data": {"mimeType": "image/png", "data": data}}),
            };
            json!({"role": "user", "parts": said.iter().map(part).collect::<Vec<_>>()})
        };
        let mut contents = Vec::new();
        for (exchange, calls) in self.exchanges.iter().zip(self.numbered()) {
            contents.push(user(&exchange.user));
            let mut parts: Vec<Value> = exchange.model.iter().map(|text| json!({"text": text})).collect();
            parts.extend(calls.iter().map(|(id, name, args, _)| json!({"functionCall": {"id": id, "name": name, "args": args}})));
            contents.push(json!({"role": "model", "parts": parts}));
            let result = |(id, name, _, result): &(String, &str, &Value, &str)| json!({"functionResponse": {"id": id, "name": name, "response": {"output": result}}});
            if !calls.is_empty() {
                contents.push(json!({"role": "user", "parts": calls.iter().rev().map(result).collect::<Vec<_>>()}));
            }
        }
        contents.push(user(&self.last));
        let tool = |name: &&str| json!({"name": name, "description": "d", "parametersJsonSchema": parameters()});
        let calling = self.choice.map(|choice| {
            let named = (choice == "named").then(|| json!([TOOLS[0]]));
            let mode = if choice == "named" { "ANY".to_owned() } else { choice.to_uppercase() };
            json!({"functionCallingConfig": object([("mode", Some(json!(mode))), ("allowedFunctionNames", named)])})
        });
        let config = object([
            ("temperature", self.params.temperature.map(Value::from)),
            ("topP", self.params.top_p.map(Value::from)),
            ("maxOutputTokens", Some(self.params.max_tokens.into())),
            ("stopSequences", (!self.params.stop.is_empty()).then(|| self.params.stop.clone().into())),
            ("responseMimeType", self.params.schema.then(|| json!("application/json"))),
            ("responseJsonSchema", self.params.schema.then(parameters)),
        ]);
        object([
            ("contents", Some(contents.into())),
            ("system_instruction", self.system.as_ref().map(|text| json!({"parts": [{"text": text}]}))),
            ("tools", self.tools.then(|| json!([{"functionDeclarations": TOOLS.iter().map(tool).collect::<Vec<_>>()}]))),
            ("toolConfig", calling),
            ("generationConfig", Some(config)),
        ])
    }

    /// Without stop sequences, which the protocol does not have.
    fn responses(&self) -> Value {
        let user = |said: &[GeneratedTurn]| {
            let part = |said: &GeneratedTurn| match said {
                GeneratedTurn::Text(text) => json!({"type": "input_text", "text": text}),
                GeneratedTurn::Image(data) => {
                    json!({"type": "input_image", "image_url": format!("data:image/png;base64,{data}"), "detail": "auto"})
                }
            };
            json!({"type": "message", "role": "user", "content": said.iter().map(part).collect::<Vec<_>>()})
        };
        let mut input = Vec::new();
        for (exchange, calls) in self.exchanges.iter().zip(self.numbered()) {
            input.push(user(&exchange.user));
            input.extend(exchange.model.iter().map(|text| json!({"role": "assistant", "content": text})));
            let call = |(id, name, args, _): &(String, &str, &Value, &str)| json!({"type": "function_call", "call_id": id, "name": name, "arguments": args.to_string()});
            input.extend(calls.iter().map(call));
            let result = |(id, _, _, result): &(String, &str, &Value, &str)| json!({"type": "function_call_output", "call_id": id, "output": result});
            input.extend(calls.iter().rev().map(result));
        }
        input.push(user(&self.last));
        let tool = |name: &&str| json!({"type": "function", "name": name, "description": "d", "parameters": parameters(), "strict": false});
        let choice = self.choice.map(|choice| match choice {
            "any" => json!("required"),
            "named" => json!({"type": "function", "name": TOOLS[0]}),
            plain => json!(plain),
        });
        let text = || json!({"format": {"type": "json_schema", "name": "n", "schema": parameters(), "strict": false}});
        object([
            ("model", Some(json!("m"))),
            ("instructions", self.system.clone().map(Value::from)),
            ("input", Some(input.into())),
            ("tools", self.tools.then(|| TOOLS.iter().map(tool).collect())),
            ("tool_choice", choice),
            ("temperature", self.params.temperature.map(Value::from)),
            ("top_p", self.params.top_p.map(Value::from)),
            ("max_output_tokens", Some(self.params.max_tokens.into())),
            ("text", self.params.schema.then(text)),
            ("stream", Some(self.stream.into())),
        ])
    }

    fn anthropic(&self) -> Value {
        let block = |said: &GeneratedTurn| match said {
            GeneratedTurn::Text(text) => json!({"type": "text", "text": text}),
            GeneratedTurn::Image(data) => {
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
            }
        };
        let mut messages = Vec::new();
        let mut results: Vec<Value> = Vec::new();
        for (exchange, calls) in self.exchanges.iter().zip(self.numbered()) {
            results.extend(exchange.user.iter().map(block));
            messages.push(json!({"role": "user", "content": std::mem::take(&mut results)}));
            let mut blocks: Vec<Value> = exchange.model.iter().map(|text| json!({"type": "text", "text": text})).collect();
            blocks
                .extend(calls.iter().map(|(id, name, args, _)| json!({"type": "tool_use", "id": id, "name": name, "input": args})));
            messages.push(json!({"role": "assistant", "content": blocks}));
            let result = |(id, _, _, result): &(String, &str, &Value, &str)| json!({"type": "tool_result", "tool_use_id": id, "content": result});
            results = calls.iter().rev().map(result).collect();
        }
        results.extend(self.last.iter().map(block));
        messages.push(json!({"role": "user", "content": results}));
        let tool = |name: &&str| json!({"name": name, "description": "d", "input_schema": parameters()});
        let choice = self.choice.map(|choice| match choice {
            "named" => json!({"type": "tool", "name": TOOLS[0]}),
            plain => json!({"type": plain}),
        });
        let format = || json!({"format": {"type": "json_schema", "schema": parameters()}});
        object([
            ("model", Some(json!("m"))),
            ("max_tokens", Some(self.params.max_tokens.into())),
            ("messages", Some(messages.into())),
            ("system", self.system.clone().map(Value::from)),
            ("tools", self.tools.then(|| TOOLS.iter().map(tool).collect())),
            ("tool_choice", choice),
            ("temperature", self.params.temperature.map(Value::from)),
            ("top_p", self.params.top_p.map(Value::from)),
            ("stop_sequences", (!self.params.stop.is_empty()).then(|| self.params.stop.clone().into())),
            ("output_config", self.params.schema.then(format)),
            ("stream", Some(self.stream.into())),
        ])
    }
}
