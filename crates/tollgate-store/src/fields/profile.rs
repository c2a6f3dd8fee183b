//! The fields of a profile: facts about an upstream model that translation needs. Facts that are not stated follow from the
//! name of the model if it is known, else from the provider.

use serde_json::{Value, json};
use tollgate_protocol::{CanDisableThinking, F64, Profile, Thinking};

use super::{Field, FieldShape, FieldValue, Kind, field, table};

impl FieldValue for F64 {
    const KIND: Kind = Kind::Number { max: 1_000 };

    fn show(&self) -> Value {
        self.0.into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        value.as_f64().map(Self).ok_or_else(|| "expected a number".to_owned())
    }
}

/// Maximum number of levels or efforts of a model, and maximum length of their names, in characters.
const MAX_LEVELS: usize = 16;
const MAX_LEVEL_NAME: usize = 32;

fn read_thinking(value: &Value) -> Result<Thinking, String> {
    let thinking = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    if let Thinking::Level(names) | Thinking::Effort(names) | Thinking::Adaptive(names) = &thinking
        && (names.len() > MAX_LEVELS || names.iter().any(|name| name.chars().count() > MAX_LEVEL_NAME))
    {
        return Err(format!("expected at most {MAX_LEVELS} names of at most {MAX_LEVEL_NAME} characters"));
    }
    Ok(thinking)
}

fn thinking_schema() -> Value {
    let names = json!({"type": "array", "maxItems": MAX_LEVELS, "items": {"type": "string", "maxLength": MAX_LEVEL_NAME}});
    let tokens = json!({"type": "integer", "minimum": 0, "maximum": i64::MAX});
    let budget = json!({"type": "array", "minItems": 2, "maxItems": 2, "items": tokens});
    let of = |name: &str, value: &Value| json!({"type": "object", "required": [name], "properties": {name: value}, "additionalProperties": false});
    let forms = [("level", &names), ("budget", &budget), ("effort", &names), ("adaptive", &names)];
    let objects = forms.iter().map(|(name, value)| of(name, value));
    json!({"anyOf": std::iter::once(json!({"const": "none"})).chain(objects).collect::<Vec<_>>()})
}

fn can_disable_schema() -> Value {
    json!({"enum": [true, false, "between_tools"]})
}

fn read_can_disable(value: &Value) -> Result<CanDisableThinking, String> {
    match (value.as_bool(), value.as_str()) {
        (Some(true), _) => Ok(CanDisableThinking::Yes),
        (Some(false), _) => Ok(CanDisableThinking::No),
        (None, Some("between_tools")) => Ok(CanDisableThinking::BetweenTools),
        (None, _) => Err("expected true, false or \"between_tools\"".to_owned()),
    }
}

table!(
    Profile,
    "Profile",
    Profile::default(),
    &[
        Field {
            shape: FieldShape::new(
                "thinking",
                Kind::Form { expected: "\"none\", { level = [\"low\", \"high\"] }, { budget = [1024, 32000] }, { effort = [\"low\"] } or { adaptive = [\"low\"] }", schema: thinking_schema },
                "How thinking is controlled: not at all; by Gemini's levels, lowest first; by a token budget between two bounds; by \
                 `reasoning_effort`; by the model itself under an effort (newer Claude).",
            )
            .or_null(),
            get: |profile: &Self| profile.thinking.as_ref().map_or(Value::Null, |it| serde_json::to_value(it).unwrap_or_default()),
            set: |profile: &mut Self, value| {
                profile.thinking = if value.is_null() { None } else { Some(read_thinking(value)?) };
                Ok(())
            },
        }
        .rule(|value| read_thinking(value).map(drop)),
        Field {
            shape: FieldShape::new(
                "can_disable_thinking",
                Kind::Form { expected: "true, false or \"between_tools\"", schema: can_disable_schema },
                "Whether thinking can be switched off, or between tool calls only.",
            )
            .or_null(),
            get: |profile: &Self| match profile.can_disable_thinking {
                None => Value::Null,
                Some(CanDisableThinking::No) => false.into(),
                Some(CanDisableThinking::Yes) => true.into(),
                Some(CanDisableThinking::BetweenTools) => "between_tools".into(),
            },
            set: |profile: &mut Self, value| {
                profile.can_disable_thinking = if value.is_null() { None } else { Some(read_can_disable(value)?) };
                Ok(())
            },
        }
        .rule(|value| read_can_disable(value).map(drop)),
        field!("thinking_display", thinking_display: Option<bool>, "Supports `display` of thinking (Anthropic)."),
        field!("prefill", prefill: Option<bool>, "The conversation may end with an assistant turn."),
        field!("forced_tools", forced_tools: Option<bool>, "Accepts `tool_choice` any, required or named."),
        field!(
            "effort_with_tools",
            effort_with_tools: Option<bool>,
            "Accepts `reasoning_effort` beside function tools, on a chat channel; else it is `none` where there are tools (GPT-5.4 and \
             later)."
        ),
        field!(
            "thought_field",
            thought_field: Option<String>,
            "The member of a message in which a chat channel takes the thoughts of a history: `reasoning_content` (DeepSeek, Kimi, GLM, \
             Qwen), `reasoning` (OpenRouter, newer vLLM), or `none`, which leaves them out. Unset: thoughts that came in \
             `reasoning_content` go back in it, others are left out."
        ),
        field!(
            "tool_properties",
            tool_properties: Option<bool>,
            "Refuses tools whose parameters have no `properties`, on a chat channel; they get empty ones (OpenAI's models)."
        ),
        field!(
            "signature_required",
            signature_required: Option<bool>,
            "Function calls must be returned with their signatures (Gemini 3). On a chat channel: the model is Gemini; signatures \
             stay in histories."
        ),
        field!(
            "signatures_bound",
            signatures_bound: Option<bool>,
            "Gemini's signatures and the sealed thoughts of Responses are accepted only by the account that issued them: where several \
             accounts serve the model, they are left out of histories."
        ),
        field!("call_ids", call_ids: Option<bool>, "Function calls carry ids."),
        field!("sampling", sampling: Option<bool>, "Accepts `temperature`, `top_p` and `top_k`."),
        field!(
            "temperature_with_top_p",
            temperature_with_top_p: Option<bool>,
            "Accepts `temperature` and `top_p` in one request."
        ),
        field!("top_k", top_k: Option<bool>, "Accepts `top_k`."),
        field!("temperature_max", temperature_max: Option<F64>, "Highest temperature."),
        field!("penalties", penalties: Option<bool>, "Accepts presence and frequency penalties."),
        field!("logprobs", logprobs: Option<bool>, "Gives log probabilities."),
        field!("n_max", n_max: Option<u32>, "Maximum number of choices."),
        field!("stop_max", stop_max: Option<u32>, "Maximum number of stop sequences; 0: none allowed."),
        field!(
            "json_schema_fields",
            json_schema_fields: Option<bool>,
            "Accepts JSON Schema unchanged (`parametersJsonSchema`); else Google's subset is written."
        ),
        field!("tools_with_json", tools_with_json: Option<bool>, "Accepts tools and a JSON format in one request."),
        field!("media_in_results", media_in_results: Option<bool>, "Accepts media inside results of functions."),
        field!("part_media_resolution", part_media_resolution: Option<bool>, "Accepts a resolution for each part."),
        field!("validated_mode", validated_mode: Option<bool>, "Supports the function calling mode `VALIDATED`."),
        field!("fetches_urls", fetches_urls: Option<bool>, "Fetches public addresses itself."),
        field!("max_tokens_field", max_tokens_field: Option<String>, "The field the output limit goes to: `max_tokens` or `max_completion_tokens`."),
        field!(
            "default_max_tokens",
            default_max_tokens: Option<u64>,
            "Sent when the protocol requires an output limit and the caller set none."
        ),
        field!("system_role", system_role: Option<String>, "The role of system texts: `system` or `developer`."),
    ]
);

#[cfg(test)]
mod tests {
    use super::{super::Row as _, *};

    #[test]
    fn every_field_of_a_profile_is_in_the_table() {
        let unknown = serde_json::from_str::<Profile>(r#"{"no_such_field": 1}"#).unwrap_err().to_string();
        for field in Profile::FIELDS {
            assert!(unknown.contains(&format!("`{}`", field.shape.name)), "{} is not a field: {unknown}", field.shape.name);
        }
        let names = unknown.split(" at line").next().unwrap().matches('`').count();
        assert_eq!(names, 2 * (Profile::FIELDS.len() + 1), "a field is missing in the table: {unknown}");
    }
}
