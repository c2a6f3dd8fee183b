//! Small synthetic requests: one that carries a given field, to ask translation whether an upstream can express that
//! field, and one that probes an upstream.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::{Framing, Method, Protocol, Target, decode_request, neutral::Request};

const PROBE_OUTPUT_TOKENS: u32 = 16;

/// Values for fields that have no sample, in the order in which they are tried.
fn generic_values() -> [Value; 8] {
    [json!(true), json!(2), json!(0.5), json!("x"), json!(["x"]), json!([{}]), json!({"x": 1}), json!(false)]
}

/// A request that carries this field, such as `logit_bias` or `generationConfig.topK`, with a value that differs from the
/// default. `None` if no known value is accepted.
pub fn minimal_request(from: Protocol, field: &str) -> Option<Request> {
    request_with(from, from.spec().generate_method, &minimal_body(from, "m", "-"), field)
}

/// [`minimal_request`] for embeddings. `None` also if the protocol has none.
pub fn minimal_embedding_request(from: Protocol, field: &str) -> Option<Request> {
    let (method, body) = from.spec().minimal_embedding?;
    request_with(from, method, &body("m", "-").as_object().cloned().unwrap_or_default(), field)
}

fn request_with(from: Protocol, method: Method, smallest: &Map<String, Value>, field: &str) -> Option<Request> {
    let target = Target { method, model: Some("m".to_owned()), framing: Framing::Sse };
    let read = |members: &[(&str, Value)]| {
        let mut body = smallest.clone();
        for (path, value) in members {
            set(&mut body, path, value.clone());
        }
        decode_request(from, &target, Value::Object(body).to_string().as_bytes()).ok()
    };
    let sample = (from.spec().field_sample)(field);
    let Some(((_, value), required)) = sample.split_first() else {
        return generic_values().into_iter().find_map(|value| read(&[(field, value)]));
    };
    let mut members: Vec<(&str, Value)> = required.to_vec();
    members.push((field, value.clone()));
    read(&members)
}

/// Method and body of the smallest request that a model answers with a few tokens. `limit_field` is the only output-limit
/// field the model accepts, where its profile names one.
pub fn probe_request(to: Protocol, upstream_model: &str, limit_field: Option<&str>) -> (Method, Bytes) {
    let spec = to.spec();
    let limit_field = limit_field.filter(|field| spec.output_limit_fields.contains(field)).unwrap_or(spec.output_limit_fields[0]);
    let mut body = minimal_body(to, upstream_model, "ping");
    set(&mut body, limit_field, PROBE_OUTPUT_TOKENS.into());
    (spec.generate_method, Value::Object(body).to_string().into())
}

/// The members of the smallest body that generates text.
pub fn minimal_body(protocol: Protocol, model: &str, text: &str) -> Map<String, Value> {
    let body = (protocol.spec().minimal_body)(model, text);
    body.as_object().cloned().unwrap_or_default()
}

/// Sets the value at a dotted path and creates the objects on its path.
fn set(body: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(body.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = body.entry(first.to_owned()).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FieldPath, Profile, RemoteMedia, TranslateError, TranslateOptions, encode_request};

    fn refused(from: Protocol, to: Protocol, field: &str) -> Vec<FieldPath> {
        let request = minimal_request(from, field).unwrap_or_else(|| panic!("no request with {field} can be read"));
        let options =
            TranslateOptions { lenient: false, hoist: true, server_tools: false, pass_user: false, media: RemoteMedia::Refused };
        match encode_request(to, &request, "up", &Profile::default(), &options) {
            Err(TranslateError::Unsupported { fields, .. }) => fields,
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    #[test]
    fn inexpressible_field_is_refused_by_name() {
        for field in ["logit_bias", "store", "verbosity", "modalities", "frobnicate", "audio"] {
            assert_eq!(refused(Protocol::OpenAi, Protocol::Gemini, field), [field], "{field}");
        }
        for field in ["generationConfig.topK", "generationConfig.speechConfig", "frobnicate"] {
            assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, field), [field], "{field}");
        }
        assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, "generation_config.top_k"), ["generation_config.top_k"]);
        let budget = "generationConfig.thinkingConfig.thinkingBudget";
        for field in [budget, "generationConfig.thinkingConfig"] {
            assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, field), [budget], "{field}");
        }
    }

    #[test]
    fn expressible_field_is_not_refused() {
        let chat = "temperature top_p max_tokens max_completion_tokens stop seed tools tool_choice response_format stream \
                    stream_options metadata functions function_call";
        for field in chat.split_whitespace() {
            assert_eq!(refused(Protocol::OpenAi, Protocol::Gemini, field), Vec::<String>::new(), "{field}");
        }
        let config = "temperature topP maxOutputTokens stopSequences seed presencePenalty frequencyPenalty responseMimeType \
                      responseSchema responseJsonSchema candidateCount responseLogprobs logprobs";
        for field in config.split_whitespace().map(|name| format!("generationConfig.{name}")) {
            assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, &field), Vec::<String>::new(), "{field}");
        }
        for field in ["systemInstruction", "tools", "toolConfig", "labels"] {
            assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, field), Vec::<String>::new(), "{field}");
        }
    }

    #[test]
    fn every_sample_value_is_accepted() {
        let chat_fields = "temperature top_logprobs logprobs tools functions parallel_tool_calls tool_choice function_call \
                           web_search_options stream_options response_format reasoning_effort extra_body extra_body.google \
                           extra_body.google.thinking_config extra_body.google.cached_content service_tier logit_bias modalities \
                           n user verbosity store prediction max_tokens presence_penalty";
        for field in chat_fields.split_whitespace() {
            assert!(minimal_request(Protocol::OpenAi, field).is_some(), "{field}");
        }
        let native_fields = "systemInstruction tools toolConfig safetySettings serviceTier labels cachedContent store \
                             generationConfig generationConfig.mediaResolution generationConfig.responseModalities \
                             generationConfig.thinkingConfig generationConfig.thinkingConfig.thinkingLevel \
                             generationConfig.thinkingConfig.thinkingBudget generationConfig.enableAffectiveDialog \
                             generation_config.response_json_schema";
        for field in native_fields.split_whitespace() {
            assert!(minimal_request(Protocol::Gemini, field).is_some(), "{field}");
        }
    }

    #[test]
    fn every_parameter_has_a_minimal_request() {
        for protocol in Protocol::ALL {
            for field in protocol.spec().parameters {
                assert!(minimal_request(protocol, field).is_some(), "{field}");
            }
            for field in protocol.spec().embedding_parameters {
                assert!(minimal_embedding_request(protocol, field).is_some(), "{field}");
            }
        }
        assert!(minimal_embedding_request(Protocol::Anthropic, "user").is_none());
    }

    #[test]
    fn sample_values_differ_from_the_defaults() {
        assert_eq!(minimal_request(Protocol::OpenAi, "n").unwrap().params.n.unwrap().value, 2);
        assert!(!minimal_request(Protocol::OpenAi, "parallel_tool_calls").unwrap().params.parallel.unwrap().value);
        assert_eq!(minimal_request(Protocol::Gemini, "serviceTier").unwrap().params.tier.unwrap().value, "flex");
    }

    #[test]
    fn probes_limit_the_output_in_the_field_the_model_accepts() {
        let probe = |protocol, field| probe_request(protocol, "up", field).1;
        assert_eq!(
            probe(Protocol::OpenAi, None),
            r#"{"model":"up","messages":[{"role":"user","content":"ping"}],"max_completion_tokens":16}"#
        );
        assert_eq!(
            probe(Protocol::OpenAi, Some("max_tokens")),
            r#"{"model":"up","messages":[{"role":"user","content":"ping"}],"max_tokens":16}"#
        );
        assert_eq!(
            probe(Protocol::Gemini, Some("max_tokens")),
            r#"{"contents":[{"role":"user","parts":[{"text":"ping"}]}],"generationConfig":{"maxOutputTokens":16}}"#
        );
        assert_eq!(
            probe(Protocol::Anthropic, None),
            r#"{"model":"up","max_tokens":16,"messages":[{"role":"user","content":"ping"}]}"#
        );
    }
}
