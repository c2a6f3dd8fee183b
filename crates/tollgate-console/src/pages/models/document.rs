//! The document of the model square as pages read it.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct SquareDocument {
    pub(crate) groups: Vec<SquareGroup>,
    pub(crate) parameter_sets: Vec<SquareParameters>,
    pub(crate) data: Vec<SquareEntry>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SquareGroup {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) multiplier: String,
    pub(crate) multiplier_varies: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SquareParameters {
    pub(crate) id: String,
    pub(crate) supported: Vec<String>,
    pub(crate) dropped: Vec<String>,
    pub(crate) unsupported: Vec<String>,
    /// Parameters that only some channels support, or that some channels drop.
    pub(crate) partly: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SquareEntry {
    pub(crate) id: String,
    pub(crate) display_name: Option<String>,
    pub(crate) vendor: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) context: Option<u64>,
    pub(crate) max_output: Option<u64>,
    pub(crate) input_modalities: Option<Vec<String>>,
    pub(crate) output_modalities: Option<Vec<String>>,
    pub(crate) added_at: Option<String>,
    /// `new`, `deprecated`, `limited`.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    pub(crate) popularity: Option<u64>,
    pub(crate) groups: Vec<ModelOffer>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ModelOffer {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) multiplier: String,
    /// After the multiplier; null: not priced.
    pub(crate) price: Value,
    pub(crate) base_price: Value,
    /// The price that is announced, with `valid_from`; null: none.
    pub(crate) next_price: Value,
    pub(crate) protocols: Vec<SquareProtocol>,
    pub(crate) state: SquareState,
    pub(crate) day: SquareFigures,
    pub(crate) week: SquareFigures,
    pub(crate) month: SquareFigures,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SquareProtocol {
    pub(crate) protocol: String,
    pub(crate) parameters: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SquareState {
    pub(crate) now: String,
    pub(crate) since: Option<String>,
    pub(crate) until: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SquareFigures {
    pub(crate) availability: Option<f64>,
    pub(crate) first_content_ms: Option<SquareTimes>,
    pub(crate) output_tokens_per_s: Option<f64>,
    pub(crate) buckets: Vec<Option<f64>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SquareTimes {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
}

impl SquareEntry {
    /// The offer of a group, or the cheapest one; the first of equally cheap ones.
    pub(crate) fn offer(&self, group: Option<&str>) -> Option<&ModelOffer> {
        match group {
            Some(group) => self.groups.iter().find(|offer| offer.group == group),
            None => self.groups.iter().min_by(|one, other| one.input_and_output().total_cmp(&other.input_and_output())),
        }
    }
}

impl ModelOffer {
    /// Price of a million input tokens plus a million output tokens, to compare offers of a model. An offer without a price is the most
    /// expensive.
    fn input_and_output(&self) -> f64 {
        let figure = |kind: &str| self.price[kind].as_str().and_then(|usd| usd.parse::<f64>().ok()).unwrap_or(0.0);
        if self.price.is_null() { f64::INFINITY } else { figure("input") + figure("output") }
    }

    pub(crate) fn has_protocol(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|offered| offered.protocol == protocol)
    }
}

/// An offer as `/models.json` shows it.
#[cfg(test)]
pub(crate) fn example_offer() -> Value {
    let figures = |count: usize| {
        serde_json::json!({
            "availability": 0.9988, "first_content_ms": {"p50": 574.0, "p95": 1_710.0}, "output_tokens_per_s": 71.0,
            "buckets": vec![Some(1.0); count],
        })
    };
    serde_json::json!({
        "group": "default", "kind": "generation", "multiplier": "0.9", "price": {"input": "2.16", "output": "10.8"},
        "base_price": {"input": "2.4", "output": "12"}, "next_price": null,
        "protocols": [{"protocol": "openai", "endpoints": ["/v1/chat/completions"], "translated": false, "parameters": "p1"}],
        "state": {"now": "available", "since": null, "until": null}, "day": figures(24), "week": figures(7), "month": figures(30),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_group_the_cheapest_offer_is_shown() {
        let offer = |group: &str, price: Value| {
            let mut offer = example_offer();
            (offer["group"], offer["price"]) = (group.into(), price);
            serde_json::from_value::<ModelOffer>(offer).unwrap()
        };
        let priced = |input: &str| serde_json::json!({"input": input, "output": "10"});
        let entry = |groups: Vec<ModelOffer>| SquareEntry {
            groups,
            ..serde_json::from_value(serde_json::json!({"id": "m", "groups": []})).unwrap()
        };
        let best = |groups: Vec<ModelOffer>| entry(groups).offer(None).map(|offer| offer.group.clone());
        assert_eq!(
            best(vec![offer("a", priced("2.5")), offer("b", priced("2.45")), offer("c", Value::Null)]),
            Some("b".to_owned())
        );
        assert_eq!(best(vec![offer("a", Value::Null), offer("b", priced("9")), offer("c", priced("9"))]), Some("b".to_owned()));
        assert_eq!(best(vec![offer("a", priced("1")), offer("b", serde_json::json!({"free": true}))]), Some("b".to_owned()));
        assert_eq!(best(Vec::new()), None);
        assert_eq!(entry(vec![offer("a", priced("1")), offer("b", priced("2"))]).offer(Some("b")).unwrap().group, "b");
    }
}
