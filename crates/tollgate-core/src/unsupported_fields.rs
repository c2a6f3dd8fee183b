//! Learned parameters: a field that a channel's model rejects three times in a row is considered unsupported there for a while,
//! so that requests with it are refused at once or sent to other channels. As long as only requests of one key, or of one member's keys,
//! were rejected, the field is unsupported for these alone: another part of their requests may be the cause.

use serde::{Deserialize, Serialize};
use tollgate_protocol::{FieldPath, Protocol};

use crate::{
    Concerned, Requester, Timestamp, is_within_share,
    offer::{is_structural, matching_fields},
};

/// Consecutive refusals after which a field is unsupported.
const REFUSALS_TO_LEARN: u8 = 3;
/// How long a learned field stays unsupported.
const LEARNED_FOR_MS: i64 = 600_000;
/// Refusals further apart than this do not count as consecutive.
const STREAK_MS: i64 = 600_000;
/// Upper bound of remembered fields per channel and model, and of the length of their names.
const MAX_FIELDS: usize = 32;
const MAX_NAME_BYTES: usize = 256;

/// The fields one channel's model recently refused. Names are in the upstream's spelling; requests may use any protocol's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnsupportedFields {
    fields: Vec<RefusedField>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RefusedField {
    name: String,
    #[serde(rename = "times")]
    refusals: u8,
    /// Expiry of the entry.
    until: Timestamp,
    /// The callers with refused requests.
    #[serde(default)]
    concerned: Concerned,
}

impl UnsupportedFields {
    /// Records that an upstream called `names` unsupported in a request with `fields`. Names that match no field of the request or only
    /// structural fields are ignored, as are those above the share of the key or the member. `first` is the scope of a field that is
    /// refused for the first time.
    pub fn record_refusal(
        &mut self,
        names: &[String],
        from: Protocol,
        fields: &[FieldPath],
        by: Requester,
        first: Concerned,
        now: Timestamp,
    ) {
        self.fields.retain(|known| known.until > now);
        for name in names {
            let matching = matching_fields(std::slice::from_ref(name), from, fields);
            if name.len() > MAX_NAME_BYTES || matching.iter().all(|field| is_structural(field)) {
                continue;
            }
            let at = self.fields.iter().position(|known| known.name == *name);
            let at = match at {
                Some(at) => at,
                None if self.has_space_for(by) => {
                    self.fields.push(RefusedField { name: name.clone(), refusals: 0, until: now, concerned: first });
                    self.fields.len() - 1
                }
                None => continue,
            };
            let known = &mut self.fields[at];
            known.refusals = known.refusals.saturating_add(1);
            known.concerned = known.concerned.seen_by(by);
            known.until = now.plus_ms(if known.refusals >= REFUSALS_TO_LEARN { LEARNED_FOR_MS } else { STREAK_MS });
        }
    }

    /// True if one more field that only requests of `by` were refused for may be remembered.
    fn has_space_for(&self, by: Requester) -> bool {
        let used = self.fields.len() + 1;
        let of_key = self.fields.iter().filter(|known| known.concerned == Concerned::Key(by)).count();
        let of_member = self.fields.iter().filter(|known| match known.concerned {
            Concerned::Key(Requester { member, .. }) | Concerned::Member(member) => member == by.member,
            Concerned::Everyone => false,
        });
        let held = [of_key, of_member.count()];
        used <= MAX_FIELDS && held.into_iter().all(|held| held == 0 || is_within_share(MAX_FIELDS, used, held + 1))
    }

    /// Records that a request with `fields` was answered: none of them is unsupported.
    pub fn record_success(&mut self, from: Protocol, fields: &[FieldPath]) {
        self.fields.retain(|known| matching_fields(std::slice::from_ref(&known.name), from, fields).is_empty());
    }

    /// The fields of a request of `by` that are unsupported, in the request's spelling and order.
    pub fn unsupported_in(&self, from: Protocol, fields: &[FieldPath], by: Requester, now: Timestamp) -> Vec<FieldPath> {
        let applies = |known: &&RefusedField| known.concerned.concerns(by);
        let learned = self.fields.iter().filter(|known| known.refusals >= REFUSALS_TO_LEARN && known.until > now).filter(applies);
        let names: Vec<String> = learned.map(|known| known.name.clone()).collect();
        if names.is_empty() { Vec::new() } else { matching_fields(&names, from, fields) }
    }

    /// The unsupported fields in the upstream's spelling, each with its expiry.
    pub fn learned(&self, now: Timestamp) -> impl Iterator<Item = (&str, Timestamp)> {
        let learned = self.fields.iter().filter(move |known| known.refusals >= REFUSALS_TO_LEARN && known.until > now);
        learned.map(|known| (known.name.as_str(), known.until))
    }

    /// True when nothing is remembered at this time.
    pub fn is_empty(&self, now: Timestamp) -> bool {
        self.fields.iter().all(|known| known.until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyId, MemberId, samples::NOW};

    const KEY: Requester = requester(1, 1);
    const SIBLING_KEY: Requester = requester(2, 1);
    const OTHER_KEY: Requester = requester(3, 2);

    const fn requester(key: u128, member: u128) -> Requester {
        Requester { key: KeyId::from_uuid(uuid::Uuid::from_u128(key)), member: MemberId::from_uuid(uuid::Uuid::from_u128(member)) }
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn after_refusals(refusals: usize, name: &str, fields: &[&str]) -> UnsupportedFields {
        let mut learned = UnsupportedFields::default();
        for _ in 0..refusals {
            learned.record_refusal(&list(&[name]), Protocol::OpenAi, &list(fields), KEY, Concerned::Key(KEY), NOW);
        }
        learned
    }

    #[test]
    fn three_consecutive_refusals_apply_for_ten_minutes() {
        let fields = list(&["model", "logit_bias", "seed"]);
        for (refusals, refused) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
            let learned = after_refusals(refusals, "logit_bias", &["logit_bias"]);
            assert_eq!(learned.unsupported_in(Protocol::OpenAi, &fields, KEY, NOW).len(), refused, "{refusals}");
        }
        let learned = after_refusals(3, "logit_bias", &["logit_bias"]);
        assert_eq!(learned.unsupported_in(Protocol::OpenAi, &fields, KEY, NOW.plus_ms(599_999)), ["logit_bias"]);
        assert!(learned.unsupported_in(Protocol::OpenAi, &fields, KEY, NOW.plus_ms(600_000)).is_empty());
        assert!(learned.is_empty(NOW.plus_ms(600_000)) && !learned.is_empty(NOW));
        assert!(learned.unsupported_in(Protocol::OpenAi, &list(&["seed"]), KEY, NOW).is_empty());
        assert_eq!(learned.learned(NOW).collect::<Vec<_>>(), [("logit_bias", NOW.plus_ms(600_000))]);
        assert_eq!(learned.learned(NOW.plus_ms(600_000)).count(), 0);
        assert_eq!(
            after_refusals(2, "logit_bias", &["logit_bias"]).learned(NOW).count(),
            0,
            "two refusals are not known to be one"
        );
    }

    #[test]
    fn refusals_of_one_key_block_the_field_only_for_that_key() {
        let fields = list(&["logit_bias"]);
        let mut learned = after_refusals(3, "logit_bias", &["logit_bias"]);
        let blocks = |learned: &UnsupportedFields, key| !learned.unsupported_in(Protocol::OpenAi, &fields, key, NOW).is_empty();
        assert!(blocks(&learned, KEY) && !blocks(&learned, OTHER_KEY));
        learned.record_refusal(&fields, Protocol::OpenAi, &fields, OTHER_KEY, Concerned::Key(OTHER_KEY), NOW);
        assert!(blocks(&learned, KEY) && blocks(&learned, OTHER_KEY), "two keys are refused");
    }

    #[test]
    fn refusals_of_one_member_block_the_field_only_for_that_member() {
        let fields = list(&["logit_bias"]);
        let mut learned = after_refusals(3, "logit_bias", &["logit_bias"]);
        learned.record_refusal(&fields, Protocol::OpenAi, &fields, SIBLING_KEY, Concerned::Key(SIBLING_KEY), NOW);
        let blocks = |key| !learned.unsupported_in(Protocol::OpenAi, &fields, key, NOW).is_empty();
        assert_eq!([KEY, SIBLING_KEY, OTHER_KEY].map(blocks), [true, true, false]);
    }

    #[test]
    fn answered_request_with_the_field_resets_it() {
        let fields = list(&["logit_bias"]);
        for refusals in [2, 3] {
            let mut learned = after_refusals(refusals, "logit_bias", &["logit_bias"]);
            learned.record_success(Protocol::OpenAi, &list(&["seed"]));
            assert!(!learned.is_empty(NOW), "a request without the field does not reset it");
            learned.record_success(Protocol::OpenAi, &fields);
            learned.record_refusal(&fields, Protocol::OpenAi, &fields, KEY, Concerned::Key(KEY), NOW);
            assert!(learned.unsupported_in(Protocol::OpenAi, &fields, KEY, NOW).is_empty());
        }
    }

    #[test]
    fn fields_match_in_every_protocol_and_keep_the_callers_spelling() {
        let learned = after_refusals(3, "stop", &["stop"]);
        let native = list(&["generation_config.stop_sequences", "generationConfig.topK"]);
        assert_eq!(learned.unsupported_in(Protocol::Gemini, &native, KEY, NOW), ["generation_config.stop_sequences"]);
        let mut learned = UnsupportedFields::default();
        for _ in 0..3 {
            learned.record_refusal(
                &list(&["generationConfig.topK"]),
                Protocol::OpenAi,
                &list(&["top_k"]),
                KEY,
                Concerned::Key(KEY),
                NOW,
            );
        }
        assert_eq!(learned.unsupported_in(Protocol::OpenAi, &list(&["top_k"]), KEY, NOW), ["top_k"]);
    }

    #[test]
    fn absent_and_structural_fields_are_ignored() {
        assert!(after_refusals(3, "invented", &["seed"]).is_empty(NOW));
        assert!(after_refusals(3, "messages", &["messages", "seed"]).is_empty(NOW));
        let long = "x".repeat(257);
        assert!(after_refusals(3, &long, &[&long]).is_empty(NOW));
    }

    #[test]
    fn refusals_too_far_apart_are_not_consecutive() {
        let fields = list(&["seed"]);
        let mut learned = after_refusals(2, "seed", &["seed"]);
        learned.record_refusal(&fields, Protocol::OpenAi, &fields, KEY, Concerned::Key(KEY), NOW.plus_ms(600_001));
        assert!(learned.unsupported_in(Protocol::OpenAi, &fields, KEY, NOW.plus_ms(600_001)).is_empty());
    }

    #[test]
    fn one_key_or_member_cannot_fill_the_remembered_fields() {
        let mut learned = UnsupportedFields::default();
        let mut fill = |by: &dyn Fn(u128) -> Requester| {
            for n in 0..1_000 {
                let field = list(&[&format!("field_{}_{n}", by(n).member)]);
                learned.record_refusal(&field, Protocol::OpenAi, &field, by(n), Concerned::Key(by(n)), NOW);
            }
            learned.fields.len()
        };
        assert_eq!(fill(&|_| KEY), MAX_FIELDS / 4 * 3, "three times what is free");
        assert_eq!(fill(&|n| requester(10 + n, 1)), MAX_FIELDS / 4 * 3, "nor with all keys of its member");
        assert!(fill(&|_| OTHER_KEY) > MAX_FIELDS / 4 * 3);
        assert_eq!(fill(&|n| requester(10 + n, 10 + n)), MAX_FIELDS);
    }
}
