//! Tests of the default profiles.

use super::*;

fn claude(model: &str) -> Profile {
    effective_profile("anthropic", Protocol::Anthropic, model, &Profile::default())
}

#[test]
fn longest_name_prefix_wins() {
    assert_eq!(claude("claude-opus-4-1").thinking, Some(Thinking::Budget([1_024, 32_000])));
    assert_eq!(claude("claude-opus-4-6").thinking, Some(Thinking::Adaptive(owned(&["low", "medium", "high", "max"]))));
    assert_eq!(claude("eu.anthropic.claude-sonnet-5-5-v1:0").can_disable_thinking, Some(CanDisableThinking::BetweenTools));
    assert_eq!(claude("claude-sonnet-5@20260801").can_disable_thinking, Some(CanDisableThinking::Yes));
    assert_eq!(claude("claude-fable-5-1").forced_tools, Some(false));
    assert_eq!(claude("claude-fable-5").forced_tools, Some(true));
}

#[test]
fn unknown_claude_models_get_the_protocol_defaults() {
    let profile = claude("my-alias");
    assert_eq!(profile.thinking, Some(Thinking::Adaptive(owned(ALL_EFFORTS))));
    assert_eq!(profile.can_disable_thinking, Some(CanDisableThinking::No));
    assert_eq!((profile.sampling, profile.prefill, profile.forced_tools), (Some(false), Some(false), Some(true)));
    assert_eq!((profile.default_max_tokens, profile.temperature_max), (Some(16_384), Some(F64(1.0))));
}

#[test]
fn configured_kind_of_thinking_selects_its_defaults() {
    let stated = Profile { thinking: Some(Thinking::Budget([1_024, 9_000])), ..Profile::default() };
    let profile = effective_profile("anthropic", Protocol::Anthropic, "my-alias", &stated);
    assert_eq!(profile.thinking, Some(Thinking::Budget([1_024, 9_000])));
    assert_eq!(profile.can_disable_thinking, Some(CanDisableThinking::Yes));
    assert_eq!((profile.sampling, profile.prefill, profile.thinking_display), (Some(true), Some(true), Some(false)));
    let stated = Profile { thinking: Some(Thinking::Adaptive(owned(&["low"]))), prefill: Some(true), ..Profile::default() };
    let profile = effective_profile("anthropic", Protocol::Anthropic, "claude-3-opus", &stated);
    assert_eq!((profile.sampling, profile.prefill), (Some(false), Some(true)));
}

#[test]
fn gemini_generations_differ() {
    let profile_of = |model: &str| {
        let profile = effective_profile("gemini", Protocol::Gemini, model, &Profile::default());
        (profile.thinking, profile.call_ids, profile.signature_required, profile.json_schema_fields)
    };
    let budget = Some(Thinking::Budget([128, 32_768]));
    assert_eq!(profile_of("gemini-2.5-pro-preview"), (budget, Some(false), Some(false), Some(true)));
    assert_eq!(profile_of("gemini-1.5-flash"), (Some(Thinking::None), Some(false), Some(false), Some(false)));
    let level = Some(Thinking::Level(owned(&["minimal", "low", "medium", "high"])));
    assert_eq!(profile_of("models/gemini-3-flash"), (level, Some(true), Some(true), Some(true)));
    assert_eq!(profile_of("gemini-flash-latest").0, Some(Thinking::Level(owned(&["low", "high"]))));
}

#[test]
fn reasoning_models_are_known_by_name() {
    let profile_of = |provider: &str, model: &str| {
        let profile = effective_profile(provider, Protocol::OpenAi, model, &Profile::default());
        (profile.sampling, profile.stop_max, profile.max_tokens_field)
    };
    let newer = Some("max_completion_tokens".to_owned());
    assert_eq!(profile_of("openai", "gpt-5-mini"), (Some(false), Some(0), newer.clone()));
    assert_eq!(profile_of("openai", "gpt-4o"), (Some(true), Some(4), newer.clone()));
    assert_eq!(profile_of("openai", "o3"), (Some(false), Some(0), newer));
    assert_eq!(profile_of("compatible", "olmo-2"), (Some(true), Some(4), Some("max_tokens".to_owned())));
}
