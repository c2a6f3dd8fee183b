//! Filter and sort order of the list of members. All of it is in the address.

use url::form_urlencoded::Serializer;

use super::view;
use crate::pages::{form::FormData, locale::Locale};

/// Fields as the admin API takes them.
const FIELDS: [&str; 5] = ["search", "role", "status", "group", "sort"];
const ROLES: [&str; 3] = ["admin", "operator", "member"];
const STATES: [&str; 2] = ["active", "suspended"];
const SORTS: [&str; 4] = ["name", "spent", "last_used", "newest"];

#[derive(Debug)]
pub(super) struct MemberFilter {
    values: Vec<(&'static str, String)>,
}

impl MemberFilter {
    /// Impossible values are ignored, because an address may be typed.
    pub(super) fn of(query: &FormData) -> Self {
        let is_known = |field: &str, value: &str| match field {
            "role" => ROLES.contains(&value),
            "status" => STATES.contains(&value),
            "sort" => SORTS.contains(&value),
            _ => value.chars().count() <= 100,
        };
        let value = |field: &'static str| Some((field, query.filled(field).filter(|value| is_known(field, value))?.to_owned()));
        Self { values: FIELDS.into_iter().filter_map(value).collect() }
    }

    pub(super) fn value(&self, field: &str) -> &str {
        self.values.iter().find(|(known, _)| *known == field).map_or("", |(_, value)| value)
    }

    /// Whether the filter leaves members out.
    pub(super) fn is_set(&self) -> bool {
        self.values.iter().any(|(field, _)| *field != "sort")
    }

    /// The parameters of the admin API.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.values.iter().map(|(field, value)| (*field, value.as_str())).collect()
    }

    /// The query of the list.
    pub(super) fn address(&self) -> String {
        Serializer::new(String::new()).extend_pairs(&self.values).finish()
    }

    /// The query of the list in another order; an empty one is the order of creation.
    pub(super) fn sorted_by(&self, sort: &str) -> String {
        let kept = self.values.iter().filter(|(field, _)| *field != "sort");
        let sort = Some(("sort", sort)).filter(|(_, sort)| !sort.is_empty());
        Serializer::new(String::new()).extend_pairs(kept).extend_pairs(sort).finish()
    }

    pub(super) fn is_sorted_by(&self, sort: &str) -> bool {
        self.value("sort") == sort
    }

    /// The orders that the heads of the table offer: value, label, and whether it is chosen.
    pub(super) fn sorts(&self, t: Locale) -> Vec<(&'static str, &'static str, bool)> {
        let sorts = [
            ("", t.say("sort.created")),
            ("newest", t.say("sort.created_newest")),
            ("name", t.say("sort.name")),
            ("spent", t.say("sort.spent")),
            ("last_used", t.say("sort.last_request")),
        ];
        sorts.map(|(sort, label)| (sort, label, self.is_sorted_by(sort))).to_vec()
    }

    /// Value, label, and whether it is chosen.
    pub(super) fn roles(&self, t: Locale) -> Vec<(&'static str, &'static str, bool)> {
        ROLES.map(|role| (role, view::role(t, role), self.value("role") == role)).to_vec()
    }

    pub(super) fn states(&self, t: Locale) -> Vec<(&'static str, String, bool)> {
        STATES.map(|state| (state, view::status(t, state).word, self.value("status") == state)).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> MemberFilter {
        MemberFilter::of(&FormData::parse(query.as_bytes()))
    }

    #[test]
    fn address_keeps_only_valid_filter_values() {
        let filter = of("search=a%26b&role=operator&status=suspended&group=team&sort=spent&x=1");
        assert_eq!(
            filter.pairs(),
            [("search", "a&b"), ("role", "operator"), ("status", "suspended"), ("group", "team"), ("sort", "spent")]
        );
        assert_eq!(filter.sorted_by("name"), "search=a%26b&role=operator&status=suspended&group=team&sort=name");
        assert_eq!(of("role=admin&sort=newest").sorted_by(""), "role=admin");
        assert!(filter.is_set() && filter.is_sorted_by("spent") && !of("sort=name").is_set());
        assert!(of("role=boss&status=x&sort=%00&group=").pairs().is_empty());
        assert!(
            filter
                .roles(Locale::EN)
                .iter()
                .any(|(role, label, is_chosen)| (*role, *label, *is_chosen) == ("operator", "Operator", true))
        );
        let sorts = filter.sorts(Locale::EN);
        assert!(
            sorts.iter().all(|(sort, _, is_chosen)| (sort.is_empty() || SORTS.contains(sort)) && *is_chosen == (*sort == "spent"))
        );
        assert_eq!(sorts.len(), SORTS.len() + 1);
        assert_eq!(filter.states(Locale::EN).iter().filter(|(_, _, is_chosen)| *is_chosen).count(), 1);
    }
}
