//! Entries as LiteLLM writes them.

use serde_json::json;

use super::*;
use crate::parse_usd;

fn of(entry: &Value) -> Result<(Price, Vec<String>), String> {
    let list = read(&json!({"sample_spec": {"mode": "one of: chat, …"}, "m": entry}).to_string()).unwrap();
    match (list.entries.first(), list.skipped.first()) {
        (Some(entry), None) => Ok((entry.price.clone(), entry.notes.clone())),
        (None, Some(skipped)) => Err(skipped.reason.clone()),
        other => panic!("{other:?}"),
    }
}

fn usd(text: &str) -> Option<i64> {
    parse_usd(text).ok()
}

#[test]
fn figures_per_token_become_prices_per_million() {
    let entry = json!({
        "litellm_provider": "anthropic", "mode": "chat", "max_input_tokens": 200_000, "input_cost_per_token": 3e-06,
        "output_cost_per_token": 1.5e-05, "cache_read_input_token_cost": 3e-07, "cache_creation_input_token_cost": 3.75e-06,
        "cache_creation_input_token_cost_above_1hr": 6e-06, "input_cost_per_token_batches": 1.5e-06,
        "output_cost_per_reasoning_token": 2e-05, "input_cost_per_audio_token": 1e-06, "input_cost_per_image_token": 4e-06,
        "search_context_cost_per_query": {"search_context_size_low": 0.01, "search_context_size_high": 0.01},
    });
    let (price, notes) = of(&entry).unwrap();
    let expected = Price {
        input: usd("3"),
        output: usd("15"),
        cache_read: usd("0.3"),
        cache_write: usd("3.75"),
        cache_write_1h: usd("6"),
        thinking: usd("20"),
        image: usd("4"),
        audio: usd("1"),
        web_search: usd("0.01"),
        ..Price::default()
    };
    assert_eq!((price, notes), (expected, vec![]));
}

#[test]
fn tiers_and_service_tiers_are_read() {
    let entry = json!({
        "mode": "chat", "input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05,
        "input_cost_per_token_above_200k_tokens": 2.5e-06, "output_cost_per_token_above_200k_tokens": 1.5e-05,
        "input_cost_per_token_priority": 2.25e-06, "output_cost_per_token_priority": 1.8e-05,
        "input_cost_per_token_above_200k_tokens_priority": 4.5e-06,
        "input_cost_per_token_flex": 6.25e-07, "output_cost_per_token_flex": 8e-06,
    });
    let (price, notes) = of(&entry).unwrap();
    assert_eq!((price.tiers[0].above, price.tiers[0].price.input, price.tiers[0].price.output), (200_000, usd("2.5"), usd("15")));
    assert_eq!((price.priority, price.flex), (Some(Multiplier(1_800_000)), None));
    assert_eq!(notes, ["the service tier flex is left out: its factor differs between kinds of tokens"]);
    let ranges = json!({"mode": "chat", "tiered_pricing": [
        {"range": [0, 32_000.0], "input_cost_per_token": 5e-08, "output_cost_per_token": 4e-07},
        {"range": [32_000.0, 128_000], "input_cost_per_token": 1e-07, "output_cost_per_token": 8e-07},
    ]});
    let (price, _) = of(&ranges).unwrap();
    assert_eq!((price.input, price.tiers[0].above, price.tiers[0].price.output), (usd("0.05"), 32_000, usd("0.8")));
}

#[test]
fn prices_below_a_nano_usd_are_rounded_with_a_note() {
    let entry =
        json!({"mode": "chat", "input_cost_per_token": 1.234_567_890_12e-07, "output_cost_per_token": 3.000_000_000_000_000_4e-07});
    let (price, notes) = of(&entry).unwrap();
    assert_eq!((price.input, price.output), (Some(123_456_789), usd("0.3")));
    assert_eq!(notes, ["input_cost_per_token is rounded to whole nano-USD", "output_cost_per_token is rounded to whole nano-USD"]);
    assert_eq!(shifted("5e-16", 15), Some((1, true)), "half up");
    assert_eq!(shifted("4.9e-16", 15), Some((0, true)));
    assert_eq!(shifted("1e300", 15), None);
    assert_eq!(shifted("1e-300", 15), Some((0, true)));
}

#[test]
fn entry_with_an_unsupported_price_is_skipped_entirely() {
    let with = |key: &str, value: Value| {
        let mut entry = json!({"mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06});
        entry[key] = value;
        of(&entry)
    };
    for key in
        ["input_cost_per_second", "output_cost_per_image", "input_cost_per_character", "output_cost_per_audio_token", "new_cost"]
    {
        assert_eq!(with(key, json!(1e-03)).unwrap_err(), format!("a price cannot express {key}"));
    }
    assert!(with("off_peak_pricing", json!({})).unwrap_err().contains("off_peak_pricing"));
    assert!(with("input_cost_per_token", json!("cheap")).unwrap_err().contains("is not a price"));
    assert!(with("input_cost_per_token", json!(-1e-06)).unwrap_err().contains("is not a price"));
    assert!(with("input_cost_per_token", json!(1.0)).unwrap_err().contains("too large"));
    assert!(with("input_cost_per_token_above_12k_widgets", json!(1e-06)).is_err());
    assert!(with("input_cost_per_token_turbo", json!(1e-06)).is_err());
    assert!(with("mode", json!("image_generation")).unwrap_err().contains("image_generation"));
    assert!(with("tiered_pricing", json!([{"range": [5, 9]}])).unwrap_err().contains("gap"));
    assert!(with("output_cost_per_audio_token", json!(2e-06)).is_ok(), "the same as text");
    assert!(with("max_tokens", json!("many")).is_ok(), "members that are not prices are ignored");
    assert!(of(&json!({"mode": "chat"})).unwrap_err().contains("no price per token"));
    assert!(
        of(&json!({"mode": "chat", "input_cost_per_token": 0, "output_cost_per_token": 0.0}))
            .unwrap_err()
            .contains("its price is 0")
    );
    assert!(of(&json!(5)).unwrap_err().contains("no object"));
}

#[test]
fn provider_is_split_from_the_name() {
    let figures = json!({"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06});
    let mut entries = Map::new();
    for (name, provider) in
        [("gemini/flash", "gemini"), ("gpt", "openai"), ("flash", "vertex_ai-language-models"), ("a/b", "other")]
    {
        let mut entry = figures.clone();
        entry["litellm_provider"] = provider.into();
        entries.insert(name.to_owned(), entry);
    }
    let list = read(&Value::Object(entries).to_string()).unwrap();
    let named: Vec<_> = list.entries.iter().map(|entry| (entry.provider.as_deref().unwrap(), entry.model.as_str())).collect();
    assert_eq!(named, [("gemini", "flash"), ("openai", "gpt"), ("vertex_ai", "flash"), ("other", "a/b")]);
}

#[test]
fn text_that_is_not_a_list_is_refused_with_its_position() {
    let fault = &read("{\n  \"a\": }").unwrap_err()[0];
    assert_eq!((fault.line, fault.column), (2, 8));
    assert!(read("[]").is_err() && read("").is_err());
}
