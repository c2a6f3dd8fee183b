//! The request fields that can change the cost of a request, in one table. Each is priced; a field without a price is refused by
//! name if the caller's money is limited.

/// Effect of a field on the price of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceEffect {
    /// Chooses the service tier: a factor on the whole price.
    ServiceTier,
    /// Lets the provider search the web, which it charges for besides tokens.
    WebSearch,
    /// Names tools that the provider runs and may charge for besides tokens.
    ServerTools,
    /// Requests images or audio in the answer, whose tokens have separate prices.
    OutputMedia,
    /// Adds content stored at the provider to the input.
    CachedContent,
    /// Lets the provider's tools add their findings to the input.
    FoundInput,
    /// Makes the provider summarise the conversation: the input is read a second time, and the summary is output beyond the
    /// limit.
    Compaction,
    /// Lets an upstream that is itself a gateway choose another model or provider, at other prices.
    OtherRoutes,
    /// An option that is charged separately, at a price that no price list has.
    Surcharge,
}

use PriceEffect::{
    CachedContent, Compaction, FoundInput, OtherRoutes, OutputMedia, ServerTools, ServiceTier, Surcharge, WebSearch,
};

/// Fields by their path, members of any protocol, in one spelling: case and underscores do not count.
const PRICE_FIELDS: &[(&str, &[PriceEffect])] = &[
    ("service_tier", &[ServiceTier]),
    ("web_search_options", &[WebSearch, FoundInput]),
    // xAI, Alibaba.
    ("search_parameters", &[WebSearch, FoundInput]),
    ("enable_search", &[WebSearch, FoundInput]),
    ("tools", &[WebSearch, ServerTools, FoundInput]),
    // OpenRouter.
    ("plugins", &[WebSearch, ServerTools, FoundInput]),
    // Anthropic, Azure OpenAI.
    ("mcp_servers", &[ServerTools, FoundInput]),
    ("data_sources", &[ServerTools, FoundInput]),
    ("google", &[ServerTools, CachedContent, FoundInput]),
    ("extra_body", &[ServerTools, CachedContent, FoundInput]),
    ("cached_content", &[CachedContent]),
    ("modalities", &[OutputMedia]),
    ("audio", &[OutputMedia]),
    ("image_config", &[OutputMedia]),
    ("generation_config.response_modalities", &[OutputMedia]),
    ("generation_config.speech_config", &[OutputMedia]),
    ("generation_config.image_config", &[OutputMedia]),
    // OpenRouter, LiteLLM, Bifrost, Vercel.
    ("models", &[OtherRoutes]),
    ("provider", &[OtherRoutes]),
    ("route", &[OtherRoutes]),
    ("preset", &[OtherRoutes]),
    ("fallbacks", &[OtherRoutes]),
    ("context_window_fallbacks", &[OtherRoutes]),
    ("content_policy_fallbacks", &[OtherRoutes]),
    ("provider_options", &[OtherRoutes]),
    // Vertex AI.
    ("generation_config.routing_config", &[OtherRoutes]),
    ("generation_config.model_config", &[OtherRoutes]),
    ("model_armor_config", &[Surcharge]),
    // Rejected tokens of a prediction are charged as output beyond the limit (OpenAI).
    ("prediction", &[Surcharge]),
    // Anthropic.
    ("inference_geo", &[Surcharge]),
    ("speed", &[Surcharge]),
    ("container", &[Surcharge]),
    ("billing_policy", &[Surcharge]),
    ("thread", &[CachedContent]),
    ("compaction", &[Compaction]),
    // Anthropic, OpenAI Responses.
    ("context_management", &[Compaction]),
    // OpenAI Responses: content stored by the service becomes input again; the usage of a background response is reported later, in
    // another answer.
    ("previous_response_id", &[CachedContent]),
    ("conversation", &[CachedContent]),
    ("prompt", &[CachedContent, FoundInput]),
    ("background", &[Surcharge]),
];

/// The effects of a field on the price, by its path in the caller's spelling; empty for fields without effects. A path with an index is a
/// tool that the conversation adds (`input[1].tools`, `messages[0].content[0].tool`), with the effects of `tools`.
#[must_use]
pub fn price_effects(field: &str) -> &'static [PriceEffect] {
    effects_of(if field.contains('[') { "tools" } else { field }.bytes())
}

/// The fields with an effect on the price, in their spelling in the table.
pub(crate) fn price_field_names() -> impl Iterator<Item = &'static str> {
    PRICE_FIELDS.iter().map(|(name, _)| *name)
}

/// [`price_effects`] of a member of an object of the body.
pub(crate) fn member_effects(object: &str, member: &str) -> &'static [PriceEffect] {
    effects_of(object.bytes().chain(*b".").chain(member.bytes()))
}

fn effects_of(path: impl Iterator<Item = u8> + Clone) -> &'static [PriceEffect] {
    let path = path.filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase());
    let is_same = |known: &str| known.bytes().filter(|byte| *byte != b'_').eq(path.clone());
    PRICE_FIELDS.iter().find(|(known, _)| is_same(known)).map_or(&[], |(_, effects)| effects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Framing, Protocol, RequestExtras, Target, codec};

    /// A value of the field that costs money.
    fn costly(field: &str, protocol: Protocol) -> &'static str {
        match field {
            "service_tier" => r#""priority""#,
            "enable_search" | "background" => "true",
            "tools" => r#"[{"type":"web_search","google_search":{}},{"type":"code_execution","x":{}}]"#,
            "plugins" => r#"[{"id":"web"},{"id":"file-parser"}]"#,
            "google" => r#"{"cached_content":"c","tools":[{}]}"#,
            "extra_body" => r#"{"google":{"cached_content":"c","tools":[{}]}}"#,
            "modalities" => r#"["text","audio"]"#,
            "generation_config.response_modalities" => r#"["TEXT","IMAGE"]"#,
            "models" => r#"["other"]"#,
            "speed" => r#""fast""#,
            "previous_response_id" => r#""resp_1""#,
            "thread" => r#"{"type":"continue","previous_message_id":"msg_1"}"#,
            "compaction" => r#"{"type":"summarize"}"#,
            "context_management" if protocol == Protocol::Anthropic => {
                r#"{"edits":[{"type":"clear_thinking_20251015"},{"type":"compact_20260112"}]}"#
            }
            "context_management" => r#"[{"type":"compaction","compact_threshold":1000}]"#,
            _ => r#"{"a":"b"}"#,
        }
    }

    fn extras(field: &str, value: &str, protocol: Protocol) -> RequestExtras {
        let (path, messages) = match protocol {
            Protocol::Gemini => (Some("m".to_owned()), r#""contents":[{"parts":[{"text":"a"}]}]"#),
            Protocol::OpenAi => (None, r#""model":"m","messages":[{"role":"user","content":"a"}]"#),
            Protocol::Anthropic => (None, r#""model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}]"#),
            Protocol::Responses => (None, r#""model":"m","input":"a""#),
        };
        let member = match field.split_once('.') {
            Some((config, member)) => format!(r#""{config}":{{"{member}":{value}}}"#),
            None => format!(r#""{field}":{value}"#),
        };
        let method = protocol.spec().generate_method;
        let target = Target { method, model: path, framing: Framing::Sse };
        codec(protocol).summarise(&target, format!("{{{messages},{member}}}").as_bytes()).unwrap().extras
    }

    fn has(extras: RequestExtras, effect: PriceEffect) -> bool {
        match effect {
            ServiceTier => extras.tier != crate::ServiceTier::Standard,
            WebSearch => extras.web_search,
            ServerTools => extras.server_tools,
            OutputMedia => extras.output_media,
            CachedContent => extras.unseen.cached_content,
            FoundInput => extras.unseen.tools,
            Compaction => extras.unseen.compaction,
            OtherRoutes => extras.other_routes,
            Surcharge => extras.surcharge,
        }
    }

    fn native(field: &str) -> bool {
        field.contains('.') || ["service_tier", "tools", "cached_content", "model_armor_config"].contains(&field)
    }

    #[test]
    fn every_price_field_is_detected_in_every_protocol() {
        for (field, effects) in PRICE_FIELDS {
            let protocols: &[Protocol] = match *field {
                "cached_content" => &[Protocol::OpenAi, Protocol::Gemini],
                "service_tier" | "tools" => &Protocol::ALL,
                "thread" | "compaction" => &[Protocol::Anthropic],
                "context_management" => &[Protocol::Anthropic, Protocol::Responses],
                "mcp_servers" | "fallbacks" | "inference_geo" | "speed" | "container" | "billing_policy" => {
                    &[Protocol::OpenAi, Protocol::Anthropic]
                }
                "previous_response_id" | "conversation" | "prompt" | "background" => &[Protocol::Responses],
                field if native(field) => &[Protocol::Gemini],
                _ => &[Protocol::OpenAi],
            };
            for protocol in protocols {
                let found = extras(field, costly(field, *protocol), *protocol).at_upstreams(true);
                for effect in *effects {
                    assert!(has(found, *effect), "{field} in {protocol:?}: {effect:?} of {found:?}");
                }
                assert_eq!(extras(field, "null", *protocol), RequestExtras::default(), "{field} in {protocol:?}");
                assert_eq!(price_effects(field), *effects);
                if native(field) && *protocol == Protocol::Gemini {
                    let camel = camel_case(field);
                    assert_eq!(extras(&camel, costly(field, *protocol), *protocol), found, "{camel}");
                    assert_eq!(price_effects(&camel), *effects, "{camel}");
                }
            }
        }
        assert_eq!(price_effects("temperature"), []);
        assert_eq!(price_effects("generationConfig.temperature"), []);
    }

    #[test]
    fn default_fallbacks_count_as_other_routes() {
        assert!(extras("fallbacks", r#""default""#, Protocol::Anthropic).other_routes);
    }

    fn camel_case(field: &str) -> String {
        let mut upper = false;
        let mut out = String::new();
        for letter in field.chars() {
            match letter {
                '_' => upper = true,
                letter if upper => {
                    out.push(letter.to_ascii_uppercase());
                    upper = false;
                }
                letter => out.push(letter),
            }
        }
        out
    }

    #[test]
    fn values_with_no_extra_cost_are_ignored() {
        let plain = RequestExtras::default();
        assert_eq!(extras("modalities", r#"["text"]"#, Protocol::OpenAi), plain);
        assert_eq!(extras("speed", r#""standard""#, Protocol::OpenAi), plain);
        assert_eq!(extras("thread", r#"{"type":"create"}"#, Protocol::Anthropic), plain);
        assert_eq!(extras("context_management", "[]", Protocol::Responses), plain);
        for value in [
            r#"{"edits":[{"type":"clear_thinking_20251015","keep":"all"},{"type":"clear_tool_uses_20250919"}]}"#,
            r#"{"edits":[]}"#,
            r#"{"edits":null}"#,
            "{}",
        ] {
            assert_eq!(extras("context_management", value, Protocol::Anthropic), plain, "{value}");
        }
        for value in [r#"["TEXT"]"#, r#"["text"]"#, "[]", "[1]", r#"["MODALITY_UNSPECIFIED"]"#] {
            assert_eq!(extras("generationConfig.responseModalities", value, Protocol::Gemini), plain, "{value}");
        }
    }
}
