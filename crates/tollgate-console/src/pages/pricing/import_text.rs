//! Remarks of an import of prices in the reader's language: why a price is kept or skipped, and what is left out of it.

use crate::pages::{
    locale::{Language, Locale},
    price_text,
    sentences::{Said, translated_with},
};

/// A remark; notes of a list in other words stay as they are.
pub(in crate::pages) fn say(t: Locale, text: &str) -> Said {
    let kind_of_tokens =
        |name: &str, value: &str| (name == "kind" && t.language != Language::En).then(|| price_text::label(t, value).to_owned());
    translated_with(t, text, remarks, kind_of_tokens).map_or_else(|| Said::english(text), Said::new)
}

/// The remarks; a longer one comes before one that it could be taken for.
fn remarks(t: Locale) -> Vec<&'static str> {
    vec![
        t.say("import_remark.by_hand"),
        t.say("import_remark.by_file"),
        t.say("import_remark.different"),
        t.say("import_remark.no_object"),
        t.say("import_remark.mode"),
        t.say("import_remark.no_price"),
        t.say("import_remark.zero"),
        t.say("import_remark.inexpressible"),
        t.say("import_remark.two_figures"),
        t.say("import_remark.two_prices"),
        t.say("import_remark.not_a_price"),
        t.say("import_remark.too_large"),
        t.say("import_remark.shape"),
        t.say("import_remark.gap"),
        t.say("import_remark.cached_otherwise"),
        t.say("import_remark.rounded"),
        t.say("import_remark.search_size"),
        t.say("import_remark.factor_differs"),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tollgate_core::{ImportState, KeptReason, PriceList, PriceListFormat};

    use super::*;

    /// An entry with these prices of input and output, and more.
    fn entry(more: &Value) -> Value {
        let mut entry = json!({"mode": "chat", "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6});
        for (name, value) in more.as_object().unwrap() {
            entry[name] = value.clone();
        }
        entry
    }

    /// A list of LiteLLM with everything that cannot be imported, or not as it is.
    fn remarks_of_a_list() -> Vec<String> {
        let tier = |from: u64, to: u64, price: f64| json!({"range": [from, to], "input_cost_per_token": price});
        let entries = [
            json!("text"),
            entry(&json!({"mode": "image_generation"})),
            entry(&json!({"output_cost_per_token": null})),
            entry(&json!({"input_cost_per_token": 0.0, "output_cost_per_token": 0.0})),
            entry(&json!({"input_cost_per_video": 1.0})),
            entry(&json!({"cache_read_input_token_cost": 1e-7, "input_cost_per_token_cache_hit": 2e-7})),
            entry(&json!({"tiered_pricing": [tier(0, 10, 2e-6)]})),
            entry(&json!({"input_cost_per_token": "much"})),
            entry(&json!({"input_cost_per_token": 1e9})),
            entry(&json!({"tiered_pricing": 1})),
            json!({"mode": "chat", "tiered_pricing": [tier(0, 10, 1e-6), tier(11, 20, 2e-6)]}),
            entry(&json!({"cache_read_input_audio_token_cost": 1e-7})),
            entry(&json!({"input_cost_per_token": 1.000_000_000_1e-6})),
            entry(&json!({"search_context_cost_per_query": {"low": 0.01, "high": 0.02}})),
            entry(&json!({"input_cost_per_token_priority": 2e-6, "output_cost_per_token_priority": 3e-6})),
        ];
        let list: Value = entries.into_iter().enumerate().map(|(at, entry)| (format!("m{at}"), entry)).collect();
        let list = PriceList::read(PriceListFormat::LiteLlm, &list.to_string()).unwrap();
        let skipped = list.skipped.into_iter().map(|skipped| skipped.reason);
        skipped.chain(list.entries.into_iter().flat_map(|entry| entry.notes)).collect()
    }

    #[test]
    fn every_remark_is_translated() {
        let mut found = remarks_of_a_list();
        let kept = [KeptReason::SetByHand, KeptReason::OwnedByFile].map(|why| ImportState::Kept(why).reason().unwrap());
        found.extend(kept);
        found.push("the list has different prices for it (a/m, b/m); set it by hand".to_owned());
        for text in &found {
            let (said, english) = (say(Locale::ZH_CN, text), say(Locale::EN, text));
            assert!(!said.is_english && said.text != *text && english.text == *text, "{text}: {said:?}");
        }
        let is_found = |sentence: &&'static str| {
            found.iter().any(|text| translated_with(Locale::EN, text, |_| vec![*sentence], |_, _| None).is_some())
        };
        let missing: Vec<_> = remarks(Locale::EN).into_iter().filter(|sentence| !is_found(sentence)).collect();
        assert!(missing.is_empty(), "no longer said, or not in this test: {missing:?}");
        assert!(say(Locale::ZH_CN, "a note of its own").is_english);
    }
}
