//! Filter and sort order of the list of keys. All of it is in the address.

use url::form_urlencoded::Serializer;

use crate::pages::{form::FormData, locale::Locale, mark};

/// Fields as the admin API takes them.
const FIELDS: [&str; 7] = ["search", "member", "group", "state", "expires_within_days", "unused_days", "sort"];
const SORTS: [&str; 5] = ["name", "spent", "requests", "last_used", "expires"];
const STATES: [&str; 6] = ["active", "exhausted", "disabled", "expired", "member_suspended", "revoked"];

#[derive(Debug)]
pub(super) struct KeyFilter {
    values: Vec<(&'static str, String)>,
}

impl KeyFilter {
    /// Impossible values are ignored, because an address may be typed.
    pub(super) fn of(query: &FormData, is_operator: bool) -> Self {
        let is_known = |field: &str, value: &str| match field {
            "member" => is_operator,
            "state" => STATES.contains(&value),
            "expires_within_days" | "unused_days" => value.parse().is_ok_and(|days: u16| (1..=365).contains(&days)),
            "sort" => SORTS.contains(&value),
            _ => value.chars().count() <= 100,
        };
        let value = |field: &'static str| Some((field, query.filled(field).filter(|value| is_known(field, value))?.to_owned()));
        let mut values: Vec<(&'static str, String)> = FIELDS.into_iter().filter_map(value).collect();
        let asks_for_revoked = values.iter().any(|(field, value)| *field == "state" && value == "revoked");
        if query.value("revoked") == "true" || asks_for_revoked {
            values.push(("revoked", "true".to_owned()));
        }
        Self { values }
    }

    pub(super) fn value(&self, field: &str) -> &str {
        self.values.iter().find(|(known, _)| *known == field).map_or("", |(_, value)| value)
    }

    pub(super) fn has(&self, field: &str) -> bool {
        !self.value(field).is_empty()
    }

    /// Whether the filter leaves keys out.
    pub(super) fn is_set(&self) -> bool {
        self.values.iter().any(|(field, _)| !matches!(*field, "sort" | "revoked"))
    }

    /// The parameters of the admin API.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.values.iter().map(|(field, value)| (*field, value.as_str())).collect()
    }

    /// The query of the same list with more.
    pub(super) fn address(&self, more: &[(&str, &str)]) -> String {
        Serializer::new(String::new()).extend_pairs(self.pairs()).extend_pairs(more).finish()
    }

    /// The query of the list in another order.
    pub(super) fn sorted_by(&self, sort: &str) -> String {
        let kept = self.values.iter().filter(|(field, _)| *field != "sort");
        Serializer::new(String::new()).extend_pairs(kept).append_pair("sort", sort).finish()
    }

    pub(super) fn is_sorted_by(&self, sort: &str) -> bool {
        self.value("sort") == sort
    }

    /// The orders that the heads of the table offer, and that of creation: value, label, and whether it is chosen.
    pub(super) fn sorts(&self, t: Locale) -> Vec<(&'static str, &'static str, bool)> {
        let sorts = [
            ("", t.say("sort.created")),
            ("name", t.say("sort.name")),
            ("spent", t.say("sort.spent")),
            ("requests", t.say("sort.requests")),
            ("last_used", t.say("sort.last_used")),
            ("expires", t.say("sort.expires")),
        ];
        sorts.map(|(sort, label)| (sort, label, self.is_sorted_by(sort))).to_vec()
    }

    /// Value, label, and whether it is chosen.
    pub(super) fn states(&self, t: Locale) -> Vec<(&'static str, String, bool)> {
        STATES.map(|state| (state, mark::of_key(t, state).word, self.value("state") == state)).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str, is_operator: bool) -> KeyFilter {
        KeyFilter::of(&FormData::parse(query.as_bytes()), is_operator)
    }

    #[test]
    fn address_keeps_only_valid_filter_values() {
        let filter = of("search=a%26b&state=expired&unused_days=30&sort=spent&member=ann&group=&x=1", true);
        assert_eq!(
            filter.address(&[("after", "key_1")]),
            "search=a%26b&member=ann&state=expired&unused_days=30&sort=spent&after=key_1"
        );
        assert_eq!(filter.sorted_by("name"), "search=a%26b&member=ann&state=expired&unused_days=30&sort=name");
        assert!(filter.is_set() && filter.is_sorted_by("spent"));
        assert!(of("state=x&unused_days=many&sort=%00&expires_within_days=0&member=ann", false).pairs().is_empty());
        let sorts = filter.sorts(Locale::EN);
        assert!(
            sorts.iter().all(|(sort, _, is_chosen)| (sort.is_empty() || SORTS.contains(sort)) && *is_chosen == (*sort == "spent"))
        );
        assert_eq!(sorts.len(), SORTS.len() + 1);
        assert_eq!(of("state=revoked", false).value("revoked"), "true");
        assert!(!of("revoked=true&sort=name", false).is_set());
    }
}
