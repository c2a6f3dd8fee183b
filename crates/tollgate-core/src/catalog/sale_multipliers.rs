//! A group's factors on sale prices: one for all models, and others for single models and patterns.

use std::cmp::Reverse;

use super::{Glob, Group};
use crate::Multiplier;

/// Maximum number of names and patterns of a group with a separate factor. A request searches the patterns once.
pub const MAX_MODEL_MULTIPLIERS: usize = 200;

/// The factors of a group on sale prices. A model has the factor of its exact name; else that of the most specific pattern that
/// matches it; else that of the group.
///
/// The most specific pattern is the one with the most characters other than `*` and `?`; among equals the one with the most `?`;
/// among these the first in alphabetical order. The order in which they are written does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaleMultipliers {
    of_group: Multiplier,
    /// By exact name, in order of name.
    names: Box<[(String, Multiplier)]>,
    /// The most specific first.
    patterns: Box<[(Glob, Multiplier)]>,
}

impl SaleMultipliers {
    /// The factor of a group and those of names and patterns, in any order. Of two with the same text the last one wins.
    pub fn new(of_group: Multiplier, of_models: impl IntoIterator<Item = (Glob, Multiplier)>) -> Self {
        let (mut patterns, mut names): (Vec<_>, Vec<_>) = of_models.into_iter().partition(|(glob, _)| glob.has_wildcards());
        // Reversed, so that of entries with the same text the last one sorts first: it is kept by `dedup_by` and found first among
        // patterns.
        names.reverse();
        patterns.reverse();
        names.sort_by(|(one, _), (other, _)| one.0.cmp(&other.0));
        names.dedup_by(|(later, _), (first, _)| later.0 == first.0);
        patterns.sort_by(|(one, _), (other, _)| specificity(one).cmp(&specificity(other)));
        let names = names.into_iter().map(|(name, factor)| (name.0, factor)).collect();
        Self { of_group, names, patterns: patterns.into_boxed_slice() }
    }

    /// The factor of models without a separate one.
    pub const fn of_group(&self) -> Multiplier {
        self.of_group
    }

    /// The factor of a model.
    pub fn of(&self, model: &str) -> Multiplier {
        self.own(model).map_or(self.of_group, |(_, factor)| factor)
    }

    /// The name or the pattern that gives a model a separate factor, and the factor.
    pub fn own(&self, model: &str) -> Option<(&str, Multiplier)> {
        if let Ok(at) = self.names.binary_search_by(|(name, _)| name.as_str().cmp(model)) {
            return self.names.get(at).map(|(name, factor)| (name.as_str(), *factor));
        }
        self.patterns.iter().find(|(pattern, _)| pattern.matches(model)).map(|(pattern, factor)| (pattern.0.as_str(), *factor))
    }

    /// Names and patterns with a separate factor, names first.
    pub fn own_patterns(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| name.as_str()).chain(self.patterns.iter().map(|(pattern, _)| pattern.0.as_str()))
    }

    /// Whether some models have a separate factor.
    pub fn vary(&self) -> bool {
        !self.names.is_empty() || !self.patterns.is_empty()
    }

    /// Whether no factor is zero.
    pub(crate) fn are_positive(&self) -> bool {
        let own = self.names.iter().map(|(_, factor)| factor).chain(self.patterns.iter().map(|(_, factor)| factor));
        own.chain([&self.of_group]).all(|factor| factor.0 > 0)
    }
}

impl From<Multiplier> for SaleMultipliers {
    /// One factor for all models.
    fn from(of_group: Multiplier) -> Self {
        Self { of_group, ..Self::default() }
    }
}

impl Group {
    /// The factor on the sale price of a model: what reservations, price limits, bills and every page that shows a price use.
    pub fn sale_multiplier(&self, model: &str) -> Multiplier {
        self.multipliers.of(model)
    }
}

/// Orders patterns, the most specific first.
fn specificity(pattern: &Glob) -> (Reverse<usize>, Reverse<usize>, &str) {
    let count = |counted: fn(char) -> bool| pattern.0.chars().filter(|c| counted(*c)).count();
    (Reverse(count(|c| !matches!(c, '*' | '?'))), Reverse(count(|c| c == '?')), &pattern.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn multipliers(own: &[(&str, i64)]) -> SaleMultipliers {
        SaleMultipliers::new(Multiplier(7), own.iter().map(|(pattern, factor)| (Glob((*pattern).to_owned()), Multiplier(*factor))))
    }

    fn of(own: &[(&str, i64)], model: &str) -> i64 {
        multipliers(own).of(model).0
    }

    #[test]
    fn model_without_its_own_factor_uses_the_factor_of_the_group() {
        assert_eq!(of(&[], "gpt-fast"), 7);
        assert_eq!(of(&[("gpt-slow", 1), ("claude-*", 2)], "gpt-fast"), 7);
        assert_eq!(SaleMultipliers::from(Multiplier(3)).of("gpt-fast"), Multiplier(3));
        assert_eq!(SaleMultipliers::default().of("gpt-fast"), Multiplier::ONE);
    }

    #[test]
    fn exact_name_takes_precedence_over_patterns() {
        let own = [("gpt-fast*", 1), ("gpt-fast", 2), ("gpt-fas?", 3)];
        assert_eq!((of(&own, "gpt-fast"), of(&own, "gpt-fasx"), of(&own, "gpt-faster")), (2, 3, 1));
        assert_eq!(of(&[("GPT-FAST", 1)], "gpt-fast"), 7, "case matters");
    }

    #[test]
    fn pattern_with_the_most_literal_characters_applies_in_any_order() {
        let mut own = [("gpt-*", 1), ("*-mini", 2), ("gpt-5*", 3), ("gpt-5-*", 4), ("*", 5)];
        for _ in 0..own.len() {
            own.rotate_left(1);
            let found = ["gpt-4", "gpt-5", "gpt-5-mini", "gpt-4-mini", "o3"].map(|model| of(&own, model));
            assert_eq!(found, [1, 3, 4, 2, 5], "{own:?}");
        }
    }

    #[test]
    fn with_equally_many_literal_characters_the_pattern_with_more_question_marks_applies() {
        for own in [[("gpt-*", 1), ("gpt-?", 2)], [("gpt-?", 2), ("gpt-*", 1)]] {
            assert_eq!((of(&own, "gpt-5"), of(&own, "gpt-55")), (2, 1));
        }
        for own in [[("a*b", 1), ("*ab", 2)], [("*ab", 2), ("a*b", 1)]] {
            assert_eq!(of(&own, "ab"), 2, "the first in alphabetical order");
        }
    }

    #[test]
    fn matching_pattern_is_returned_with_its_factor() {
        let found = multipliers(&[("gpt-*", 1), ("gpt-fast", 2)]);
        let own = |model| found.own(model).map(|(pattern, factor)| (pattern, factor.0));
        assert_eq!((own("gpt-fast"), own("gpt-slow"), own("o3")), (Some(("gpt-fast", 2)), Some(("gpt-*", 1)), None));
        assert_eq!(found.own_patterns().collect::<Vec<_>>(), ["gpt-fast", "gpt-*"]);
        assert!(found.vary() && !multipliers(&[]).vary());
    }

    #[test]
    fn multipliers_with_a_zero_factor_are_not_positive() {
        assert!(multipliers(&[("a", 1), ("b*", 1)]).are_positive());
        for own in [[("a", 0), ("b*", 1)], [("a", 1), ("b*", 0)]] {
            assert!(!multipliers(&own).are_positive());
        }
        assert!(!SaleMultipliers::from(Multiplier(0)).are_positive());
    }

    #[test]
    fn last_of_two_with_the_same_text_wins() {
        assert_eq!((of(&[("a", 1), ("a", 2)], "a"), of(&[("a*", 1), ("a*", 2)], "ab")), (2, 2));
    }

    proptest! {
        #[test]
        fn order_of_the_entries_does_not_matter(
            own in proptest::collection::btree_map("[ab*?]{1,4}", 1i64..100, 0..8),
            model in "[ab]{0,5}",
        ) {
            let entries = || own.iter().map(|(pattern, factor)| (Glob(pattern.clone()), Multiplier(*factor)));
            let (forwards, backwards) =
                (SaleMultipliers::new(Multiplier(7), entries()), SaleMultipliers::new(Multiplier(7), entries().rev()));
            prop_assert_eq!(&forwards, &backwards);
            let matching = own.iter().filter(|(pattern, _)| Glob((*pattern).clone()).matches(&model));
            let allowed: Vec<i64> = matching.map(|(_, factor)| *factor).collect();
            let found = forwards.of(&model).0;
            let is_allowed = if allowed.is_empty() { found == 7 } else { allowed.contains(&found) };
            prop_assert!(is_allowed, "{found} is not one of {allowed:?}");
            if let Some(exact) = own.get(&model) {
                prop_assert_eq!(found, *exact);
            }
        }
    }
}
