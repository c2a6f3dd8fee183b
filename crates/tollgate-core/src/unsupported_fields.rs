//! What upstreams taught by refusing: a field that a channel's model called unsupported three times in a row is taken to be
//! unsupported there for a while, so that callers are told at once, or are served elsewhere.

use serde::{Deserialize, Serialize};
use tollgate_protocol::{FieldPath, Protocol};

use crate::{
    Timestamp,
    offer::{carrying, structural},
};

/// Refusals in a row that teach.
const REFUSALS_TO_LEARN: u8 = 3;
/// For how long.
const LEARNED_FOR_MS: i64 = 600_000;
/// A row of refusals that is not finished in this time is forgotten.
const STREAK_MS: i64 = 600_000;
/// Most fields remembered of one channel's model, and how long their names may be.
const MAX_FIELDS: usize = 32;
const MAX_NAME_BYTES: usize = 256;

/// What one channel's model refused lately. Names are the upstream's own; requests may spell them in any protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnsupportedFields {
    fields: Vec<RefusedField>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RefusedField {
    name: String,
    times: u8,
    /// When it is forgotten.
    until: Timestamp,
}

impl UnsupportedFields {
    /// An upstream called `names` unsupported in a request with `fields`. A name that no field of the request goes by, or
    /// that no request can do without, teaches nothing.
    pub fn record_refusal(&mut self, names: &[String], from: Protocol, fields: &[FieldPath], now: Timestamp) {
        self.fields.retain(|known| known.until > now);
        for name in names {
            let carried = carrying(std::slice::from_ref(name), from, fields);
            if name.len() > MAX_NAME_BYTES || carried.iter().all(|field| structural(field)) {
                continue;
            }
            let at = self.fields.iter().position(|known| known.name == *name);
            let at = match at {
                Some(at) => at,
                None if self.fields.len() < MAX_FIELDS => {
                    self.fields.push(RefusedField { name: name.clone(), times: 0, until: now });
                    self.fields.len() - 1
                }
                None => continue,
            };
            let known = &mut self.fields[at];
            known.times = known.times.saturating_add(1);
            known.until = now.plus_ms(if known.times >= REFUSALS_TO_LEARN { LEARNED_FOR_MS } else { STREAK_MS });
        }
    }

    /// A request with `fields` was answered: none of them is unsupported.
    pub fn record_success(&mut self, from: Protocol, fields: &[FieldPath]) {
        self.fields.retain(|known| carrying(std::slice::from_ref(&known.name), from, fields).is_empty());
    }

    /// Which of these fields are taken to be unsupported now, in the request's spelling and order.
    #[must_use]
    pub fn unsupported_in(&self, from: Protocol, fields: &[FieldPath], now: Timestamp) -> Vec<FieldPath> {
        let learned = self.fields.iter().filter(|known| known.times >= REFUSALS_TO_LEARN && known.until > now);
        let names: Vec<String> = learned.map(|known| known.name.clone()).collect();
        if names.is_empty() { Vec::new() } else { carrying(&names, from, fields) }
    }

    /// What is taken to be unsupported now, in the upstream's spelling, and until when.
    pub fn learned(&self, now: Timestamp) -> impl Iterator<Item = (&str, Timestamp)> {
        let learned = self.fields.iter().filter(move |known| known.times >= REFUSALS_TO_LEARN && known.until > now);
        learned.map(|known| (known.name.as_str(), known.until))
    }

    /// Whether nothing is remembered at this time.
    #[must_use]
    pub fn is_empty(&self, now: Timestamp) -> bool {
        self.fields.iter().all(|known| known.until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::NOW;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn taught(times: usize, name: &str, fields: &[&str]) -> UnsupportedFields {
        let mut learned = UnsupportedFields::default();
        for _ in 0..times {
            learned.record_refusal(&list(&[name]), Protocol::OpenAi, &list(fields), NOW);
        }
        learned
    }

    #[test]
    fn three_in_a_row_teach_for_ten_minutes() {
        let fields = list(&["model", "logit_bias", "seed"]);
        for (times, refused) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
            let learned = taught(times, "logit_bias", &["logit_bias"]);
            assert_eq!(learned.unsupported_in(Protocol::OpenAi, &fields, NOW).len(), refused, "{times}");
        }
        let learned = taught(3, "logit_bias", &["logit_bias"]);
        assert_eq!(learned.unsupported_in(Protocol::OpenAi, &fields, NOW.plus_ms(599_999)), ["logit_bias"]);
        assert!(learned.unsupported_in(Protocol::OpenAi, &fields, NOW.plus_ms(600_000)).is_empty());
        assert!(learned.is_empty(NOW.plus_ms(600_000)) && !learned.is_empty(NOW));
        assert!(learned.unsupported_in(Protocol::OpenAi, &list(&["seed"]), NOW).is_empty());
        assert_eq!(learned.learned(NOW).collect::<Vec<_>>(), [("logit_bias", NOW.plus_ms(600_000))]);
        assert_eq!(learned.learned(NOW.plus_ms(600_000)).count(), 0);
        assert_eq!(taught(2, "logit_bias", &["logit_bias"]).learned(NOW).count(), 0, "two refusals are not known to be one");
    }

    #[test]
    fn an_answered_request_that_carries_it_ends_the_row_and_what_was_learned() {
        let fields = list(&["logit_bias"]);
        for times in [2, 3] {
            let mut learned = taught(times, "logit_bias", &["logit_bias"]);
            learned.record_success(Protocol::OpenAi, &list(&["seed"]));
            assert!(!learned.is_empty(NOW), "another field says nothing about this one");
            learned.record_success(Protocol::OpenAi, &fields);
            learned.record_refusal(&fields, Protocol::OpenAi, &fields, NOW);
            assert!(learned.unsupported_in(Protocol::OpenAi, &fields, NOW).is_empty());
        }
    }

    #[test]
    fn a_field_is_met_in_every_protocols_spelling_and_named_in_the_callers() {
        let learned = taught(3, "stop", &["stop"]);
        let native = list(&["generation_config.stop_sequences", "generationConfig.topK"]);
        assert_eq!(learned.unsupported_in(Protocol::Gemini, &native, NOW), ["generation_config.stop_sequences"]);
        let mut learned = UnsupportedFields::default();
        for _ in 0..3 {
            learned.record_refusal(&list(&["generationConfig.topK"]), Protocol::OpenAi, &list(&["top_k"]), NOW);
        }
        assert_eq!(learned.unsupported_in(Protocol::OpenAi, &list(&["top_k"]), NOW), ["top_k"]);
    }

    #[test]
    fn what_the_request_does_not_carry_or_cannot_do_without_teaches_nothing() {
        assert!(taught(3, "invented", &["seed"]).is_empty(NOW));
        assert!(taught(3, "messages", &["messages", "seed"]).is_empty(NOW));
        let long = "x".repeat(257);
        assert!(taught(3, &long, &[&long]).is_empty(NOW));
    }

    #[test]
    fn a_row_that_takes_too_long_begins_anew() {
        let fields = list(&["seed"]);
        let mut learned = taught(2, "seed", &["seed"]);
        learned.record_refusal(&fields, Protocol::OpenAi, &fields, NOW.plus_ms(600_001));
        assert!(learned.unsupported_in(Protocol::OpenAi, &fields, NOW.plus_ms(600_001)).is_empty());
    }

    #[test]
    fn a_hostile_upstream_fills_nothing() {
        let mut learned = UnsupportedFields::default();
        for n in 0..1_000 {
            let field = list(&[&format!("field_{n}")]);
            learned.record_refusal(&field, Protocol::OpenAi, &field, NOW);
        }
        assert_eq!(learned.fields.len(), MAX_FIELDS);
    }
}
