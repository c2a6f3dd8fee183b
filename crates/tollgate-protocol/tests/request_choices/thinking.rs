//! Thinking settings in requests to models of other providers.

use super::*;

/// A history that has only thoughts which the upstream does not accept becomes one blank user turn.
#[test]
fn history_with_only_thoughts_becomes_one_blank_user_turn() {
    let claude = json!({"model": "m", "max_tokens": 5, "messages": [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}
    ]});
    let native = json!({"contents": [{"role": "model", "parts": [{"text": "hm", "thought": true}]}]});
    let blank_chat = json!([{"role": "user", "content": " "}]);
    let blank_native = json!([{"role": "user", "parts": [{"text": " "}]}]);
    let blank_claude = json!([{"role": "user", "content": "."}]);
    for (direction, body, list, expected) in [
        ((Anthropic, OpenAi), &claude, "messages", &blank_chat),
        ((Anthropic, Gemini), &claude, "contents", &blank_native),
        ((Gemini, OpenAi), &native, "messages", &blank_chat),
        ((Gemini, Anthropic), &native, "messages", &blank_claude),
    ] {
        let encoded = translate(direction, body, &TranslateOptions::default()).expect("a translated request");
        assert_eq!(encoded_body(&encoded)[list], *expected, "{direction:?}");
    }
}

fn claude(thinking: Thinking, can_disable: CanDisableThinking) -> Profile {
    let stated = Profile { thinking: Some(thinking), can_disable_thinking: Some(can_disable), ..Profile::default() };
    effective_profile("anthropic", Anthropic, "alias", &stated)
}

fn efforts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// `thinking`, effort and dropped fields of a Gemini request to a Claude model.
fn claude_thinking(config: &Value, profile: &Profile) -> (Value, Value, Vec<String>) {
    let body = gemini(&json!({"maxOutputTokens": 4_000, "thinkingConfig": config}));
    let encoded = translate_as((Gemini, Anthropic), Method::Generate, &body, profile, &TranslateOptions::default())
        .expect("a translated request");
    let body = encoded_body(&encoded);
    (body["thinking"].clone(), body["output_config"]["effort"].clone(), encoded.dropped)
}

#[test]
fn gemini_thinking_becomes_adaptive_thinking() {
    let adaptive = claude(Thinking::Adaptive(efforts(&["low", "high"])), CanDisableThinking::BetweenTools);
    let on = |display: &str| json!({"type": "adaptive", "display": display});
    let path = "generationConfig.thinkingConfig";
    for (config, thinking, effort, dropped) in [
        (json!({"thinkingLevel": "HIGH", "includeThoughts": true}), on("summarized"), json!("high"), vec![]),
        (json!({"thinkingLevel": "MEDIUM"}), on("omitted"), json!("high"), vec![format!("{path}.thinkingLevel=HIGH")]),
        (json!({"thinkingBudget": 5_000}), on("omitted"), json!("high"), vec![format!("{path}.thinkingBudget=24576")]),
        (json!({"thinkingBudget": 0}), json!({"type": "between_tools"}), Value::Null, vec![]),
        (json!({"thinkingBudget": -1}), on("omitted"), Value::Null, vec![]),
        (json!({"includeThoughts": true}), on("summarized"), Value::Null, vec![]),
        (json!({"includeThoughts": false}), Value::Null, Value::Null, vec![]),
    ] {
        assert_eq!(claude_thinking(&config, &adaptive), (thinking, effort, dropped), "{config}");
    }
    let always = claude(Thinking::Adaptive(efforts(&["low", "high"])), CanDisableThinking::No);
    let off = claude_thinking(&json!({"thinkingBudget": 0}), &always);
    assert_eq!(off, (on("omitted"), json!("low"), vec![format!("{path}.thinkingBudget=1024")]));
}

#[test]
fn gemini_thinking_becomes_a_budget_that_leaves_room_for_the_answer() {
    let budget = claude(Thinking::Budget([1_024, 32_000]), CanDisableThinking::Yes);
    let on = |tokens: i64| json!({"type": "enabled", "budget_tokens": tokens});
    let path = "generationConfig.thinkingConfig";
    for (config, thinking, dropped) in [
        (json!({"thinkingBudget": 2_000}), on(2_000), vec![]),
        (json!({"thinkingBudget": 9_000}), on(3_200), vec![format!("{path}.thinkingBudget=3200")]),
        (json!({"thinkingBudget": 5}), on(1_024), vec![format!("{path}.thinkingBudget=1024")]),
        (json!({"thinkingLevel": "HIGH"}), on(3_200), vec![format!("{path}.thinkingLevel=LOW")]),
        (json!({"thinkingBudget": 0}), json!({"type": "disabled"}), vec![]),
        (json!({"thinkingBudget": -1}), Value::Null, vec![]),
        (json!({"includeThoughts": true}), Value::Null, vec![format!("{path}.includeThoughts")]),
    ] {
        assert_eq!(claude_thinking(&config, &budget), (thinking, Value::Null, dropped), "{config}");
    }
}

#[test]
fn thinking_is_disabled_and_reported_where_the_limit_is_too_low_for_a_budget() {
    let budget = claude(Thinking::Budget([1_024, 32_000]), CanDisableThinking::Yes);
    let body = openai(json!({"reasoning_effort": "low", "max_tokens": 1_024}));
    let encoded = translate_as((OpenAi, Anthropic), Method::Chat, &body, &budget, &TranslateOptions::default()).unwrap();
    assert_eq!(
        (&encoded_body(&encoded)["thinking"], encoded.dropped),
        (&json!({"type": "disabled"}), efforts(&["reasoning_effort=none"]))
    );
}

#[test]
fn thinking_budget_restricts_sampling_and_forced_tools() {
    let budget = claude(Thinking::Budget([1_024, 32_000]), CanDisableThinking::Yes);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let body =
        openai(json!({"reasoning_effort": "low", "temperature": 0.5, "top_p": 0.9, "tools": tools, "tool_choice": "required"}));
    let (fields, _) = unsupported(translate_as((OpenAi, Anthropic), Method::Chat, &body, &budget, &TranslateOptions::default()));
    assert_eq!(fields, ["tool_choice", "temperature", "top_p"]);
    let fine = openai(json!({"reasoning_effort": "low", "temperature": 1, "top_p": 0.95}));
    assert!(translate_as((OpenAi, Anthropic), Method::Chat, &fine, &budget, &TranslateOptions::default()).is_ok());
}

#[test]
fn thinking_budget_is_dropped_if_the_last_calls_have_no_thinking_block() {
    let budget = claude(Thinking::Budget([1_024, 32_000]), CanDisableThinking::Yes);
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "r"}]);
    let body = json!({"model": "m", "messages": messages, "reasoning_effort": "low"});
    let encoded = translate_as((OpenAi, Anthropic), Method::Chat, &body, &budget, &TranslateOptions::default()).unwrap();
    assert_eq!((encoded_body(&encoded).get("thinking"), encoded.dropped), (None, efforts(&["reasoning_effort"])));
}

#[test]
fn models_without_thinking_refuse_an_effort_but_accept_none() {
    let gemma = effective_profile("gemini", Gemini, "gemma-3", &Profile::default());
    let try_effort = |effort: &str| {
        let body = openai(json!({"reasoning_effort": effort}));
        translate_as((OpenAi, Gemini), Method::Chat, &body, &gemma, &TranslateOptions::default())
    };
    assert_eq!(unsupported(try_effort("low")).0, ["reasoning_effort"]);
    assert_eq!(try_effort("none").unwrap().dropped, Vec::<String>::new());
    let (fields, _) = unsupported(translate(
        (Gemini, OpenAi),
        &gemini(&json!({"thinkingConfig": {"thinkingLevel": "LOW"}})),
        &TranslateOptions::default(),
    ));
    assert_eq!(fields, ["generationConfig.thinkingConfig.thinkingLevel"]);
}

#[test]
fn two_thinking_settings_together_are_refused() {
    let body = openai(json!({"reasoning_effort": "low", "extra_body": {"google": {"thinking_config": {"thinking_budget": 5}}}}));
    let Err(TranslateError::Malformed(fault)) = translate((OpenAi, Gemini), &body, &TranslateOptions::default()) else {
        panic!("accepted")
    };
    assert_eq!(
        (fault.kind, fault.violations[0].field.as_str()),
        (MalformedKind::InvalidValue, "extra_body.google.thinking_config")
    );
}
