//! Sample values: the smallest Gemini bodies, the optional fields, and values for fields that accept only certain ones.

use serde_json::{Value, json};

/// See `ProtocolSpec::parameters`.
pub(crate) const PARAMETERS: &[&str] = &[
    "cachedContent",
    "generationConfig.candidateCount",
    "generationConfig.enableAffectiveDialog",
    "generationConfig.enableEnhancedCivicAnswers",
    "generationConfig.frequencyPenalty",
    "generationConfig.imageConfig",
    "generationConfig.logprobs",
    "generationConfig.maxOutputTokens",
    "generationConfig.mediaResolution",
    "generationConfig.presencePenalty",
    "generationConfig.responseFormat",
    "generationConfig.responseJsonSchema",
    "generationConfig.responseLogprobs",
    "generationConfig.responseMimeType",
    "generationConfig.responseModalities",
    "generationConfig.responseSchema",
    "generationConfig.seed",
    "generationConfig.speechConfig",
    "generationConfig.stopSequences",
    "generationConfig.temperature",
    "generationConfig.thinkingConfig",
    "generationConfig.topK",
    "generationConfig.topP",
    "generationConfig.translationConfig",
    "labels",
    "safetySettings",
    "serviceTier",
    "store",
    "toolConfig",
    "tools",
];

/// See `ProtocolSpec::embedding_parameters`.
pub(crate) const EMBEDDING_PARAMETERS: &[&str] = &["outputDimensionality", "taskType", "title"];

pub(crate) fn minimal_embedding_body(_model: &str, text: &str) -> Value {
    json!({"content": {"parts": [{"text": text}]}})
}

/// A body with one user turn; the model is in the path.
pub(crate) fn minimal_body(_model: &str, text: &str) -> Value {
    json!({"contents": [{"role": "user", "parts": [{"text": text}]}]})
}

/// See `ProtocolSpec::field_sample`. Both proto3 spellings are accepted.
pub(crate) fn field_sample(field: &str) -> Vec<(&'static str, Value)> {
    let tools = || ("tools", json!([{"functionDeclarations": [{"name": "f"}]}]));
    let mime = || ("generationConfig.responseMimeType", json!("application/json"));
    let one = |value: Value| vec![("", value)];
    match camel_case(field).as_str() {
        "systemInstruction" => one(json!({"parts": [{"text": "-"}]})),
        "tools" => one(tools().1),
        "toolConfig" => vec![("", json!({"functionCallingConfig": {"mode": "ANY"}})), tools()],
        "safetySettings" => one(json!([{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}])),
        "serviceTier" => one(json!("flex")),
        "taskType" => one(json!("RETRIEVAL_QUERY")),
        "labels" => one(json!({"a": "b"})),
        "generationConfig" => one(json!({"temperature": 0.5})),
        "generationConfig.temperature"
        | "generationConfig.topP"
        | "generationConfig.presencePenalty"
        | "generationConfig.frequencyPenalty" => one(json!(0.5)),
        "generationConfig.stopSequences" => one(json!(["x"])),
        "generationConfig.logprobs" => vec![("", json!(2)), ("generationConfig.responseLogprobs", json!(true))],
        "generationConfig.mediaResolution" => one(json!("MEDIA_RESOLUTION_LOW")),
        "generationConfig.responseMimeType" => one(json!("application/json")),
        "generationConfig.responseSchema" => {
            vec![("", json!({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}})), mime()]
        }
        "generationConfig.responseJsonSchema" | "generationConfig._responseJsonSchema" => {
            vec![("", json!({"type": "object", "properties": {"a": {"type": "string"}}})), mime()]
        }
        "generationConfig.responseModalities" => one(json!(["IMAGE"])),
        // Contains every member that translation may refuse.
        "generationConfig.thinkingConfig" => one(json!({"includeThoughts": true, "thinkingBudget": 1_024})),
        "generationConfig.thinkingConfig.thinkingLevel" => one(json!("low")),
        "generationConfig.thinkingConfig.thinkingBudget" => one(json!(1_024)),
        _ => Vec::new(),
    }
}

/// Converts a field path to lowerCamelCase. A leading underscore is kept.
fn camel_case(field: &str) -> String {
    let mut upper = false;
    let mut name = String::with_capacity(field.len());
    for character in field.chars() {
        match character {
            '_' if !name.is_empty() && !name.ends_with('.') => upper = true,
            _ if std::mem::take(&mut upper) => name.extend(character.to_uppercase()),
            _ => name.push(character),
        }
    }
    name
}
