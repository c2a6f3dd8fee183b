//! Rows that no request can reach: channels without an account or without a group, and patterns that match no model.

use std::{collections::HashSet, sync::Arc};

use crate::{Caller, Catalog, Channel, ChannelId, Glob, Group, Key, KeyStatus};

/// `in_groups`: the channels of all groups.
pub(super) fn channel_warnings(channel: &Channel, in_groups: &HashSet<&ChannelId>, warnings: &mut Vec<String>) {
    let name = &channel.spec.name;
    if !channel.spec.on {
        return;
    }
    if channel.accounts.is_empty() {
        warnings.push(format!(
            "channel '{name}' has no account, so it serves no request; add a [[channel.account]] to it, or with `tollgate account add`"
        ));
    } else if channel.accounts.iter().all(|account| !account.spec.on) {
        warnings.push(format!("channel '{name}' serves no request, because all its accounts are off; switch one on"));
    }
    if !in_groups.contains(&channel.id) {
        warnings.push(format!("channel '{name}' is in no group, so no key can use it; add it to the `channels` of a group"));
    }
}

pub(super) fn group_warnings(catalog: &Catalog, group: &Group, warnings: &mut Vec<String>) {
    let is_served = |name: &str| catalog.mappings_for(group.id, name).next().is_some();
    for pattern in group.models.iter().filter(|pattern| !pattern.matches_all()) {
        if first_match(catalog, pattern, is_served).is_some() {
            continue;
        }
        let advice = first_match(catalog, pattern, |_| true).and_then(|model| {
            let mapping = catalog.mappings_by_model.get(model)?.first()?;
            let channel = &catalog.channel_at(mapping.channel)?.spec.name;
            Some(format!("channel '{channel}' serves '{model}': add the channel to the group, or correct the pattern"))
        });
        warnings.push(format!(
            "group '{}': '{}' in `models` matches no model that the group's channels serve; {}",
            group.name,
            pattern.0,
            advice.as_deref().unwrap_or(COMPARE)
        ));
    }
}

/// Factors that apply to no model, probably because of a misspelt name: the model then sells at the group's factor.
pub(super) fn multiplier_warnings(catalog: &Catalog, group: &Group, warnings: &mut Vec<String>) {
    for pattern in group.multipliers.own_patterns() {
        let glob = Glob(pattern.to_owned());
        if first_match(catalog, &glob, |name| offers(catalog, group, name)).is_none() {
            warnings.push(format!(
                "group '{}': '{pattern}' in `model_multipliers` matches no model that the group offers, so its factor applies to none; \
                 {COMPARE}",
                group.name
            ));
        }
    }
}

pub(super) fn key_warnings(catalog: &Catalog, key: &Arc<Key>, warnings: &mut Vec<String>) {
    if key.status != KeyStatus::Active || key.models.iter().all(Glob::matches_all) {
        return;
    }
    let caller = Caller::of(catalog, Arc::clone(key));
    for pattern in key.models.iter().filter(|pattern| !pattern.matches_all()) {
        if first_match(catalog, pattern, |name| caller.groups.iter().any(|group| offers(catalog, group, name))).is_some() {
            continue;
        }
        let other = catalog.groups.values().find_map(|group| {
            let model = first_match(catalog, pattern, |name| offers(catalog, group, name))?;
            Some(format!("group '{}' offers '{model}': add the group to the key, or correct the pattern", group.name))
        });
        warnings.push(format!(
            "key '{}': '{}' in `models` matches no model that the key's groups offer; {}",
            key.name,
            pattern.0,
            other.as_deref().unwrap_or(COMPARE)
        ));
    }
}

const COMPARE: &str = "compare it with the names in `serves`";

/// Whether a group offers a model of this name.
fn offers(catalog: &Catalog, group: &Group, name: &str) -> bool {
    Glob::any(&group.models, name) && catalog.mappings_for(group.id, name).next().is_some()
}

/// The first served model that a pattern matches and that is accepted.
fn first_match<'a>(catalog: &'a Catalog, pattern: &Glob, accepts: impl Fn(&str) -> bool) -> Option<&'a str> {
    // Thousands of keys may name their models, so a name without wildcards is looked up instead of compared with each
    // model.
    if !pattern.has_wildcards() {
        return catalog.mappings_by_model.get_key_value(&pattern.0).map(|(name, _)| name.as_str()).filter(|name| accepts(name));
    }
    catalog.mappings_by_model.keys().map(String::as_str).find(|name| pattern.matches(name) && accepts(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Account, AccountSpec, Multiplier, SaleMultipliers,
        catalog_review::catalog_warnings,
        samples::{NOW, catalog, channel, group, key, model},
    };

    fn globs(patterns: &[&str]) -> Vec<Glob> {
        patterns.iter().map(|&pattern| Glob(pattern.to_owned())).collect()
    }

    fn warnings(channels: Vec<Channel>, groups: Vec<Group>, keys: &[Key]) -> Vec<String> {
        let keys: Vec<Arc<Key>> = keys.iter().cloned().map(Arc::new).collect();
        catalog_warnings(&catalog(channels, groups, vec![model("m")]), &keys, NOW)
    }

    #[test]
    fn channel_without_an_account_that_is_on_is_warned_about() {
        let with = |accounts| Channel { accounts, ..channel("c", &["m"]) };
        let account = |on| {
            let sample = channel("c", &["m"]).accounts.remove(0);
            Arc::new(Account { spec: AccountSpec { on, ..sample.spec.clone() }, ..(*sample).clone() })
        };
        let found = |channel| warnings(vec![channel], vec![group("default", &["c"])], &[]);
        let none = found(with(Vec::new()));
        assert!(none.len() == 1 && none[0].contains("channel 'c' has no account") && none[0].contains("account add"), "{none:?}");
        let off = found(with(vec![account(false), account(false)]));
        assert!(off.len() == 1 && off[0].contains("all its accounts are off"), "{off:?}");
        assert_eq!(found(with(vec![account(false), account(true)])), Vec::<String>::new());
        let mut switched_off = with(Vec::new());
        switched_off.spec.on = false;
        assert_eq!(found(switched_off), Vec::<String>::new(), "it serves nothing on purpose");
    }

    #[test]
    fn channel_in_no_group_is_warned_about() {
        let found = warnings(vec![channel("c", &["m"]), channel("d", &["m"])], vec![group("default", &["c"])], &[]);
        assert!(found.len() == 1 && found[0].contains("channel 'd' is in no group"), "{found:?}");
    }

    #[test]
    fn pattern_of_a_group_that_matches_no_model_of_its_channels_is_warned_about() {
        let channels = || vec![channel("c", &["m"]), channel("d", &["other-1"])];
        let found = |patterns: &[&str]| {
            let limited = Group { models: globs(patterns), ..group("default", &["c"]) };
            warnings(channels(), vec![limited, group("all", &["c", "d"])], &[])
        };
        for patterns in [&["m"][..], &["m*"], &["?"], &["*"], &["**"], &[]] {
            assert_eq!(found(patterns), Vec::<String>::new(), "{patterns:?}");
        }
        let unknown = found(&["m", "n-*", "n"]);
        assert_eq!(unknown.len(), 2, "{unknown:?}");
        assert!(unknown[0].contains("group 'default': 'n-*' in `models`") && unknown[0].ends_with(COMPARE), "{unknown:?}");
        let elsewhere = found(&["other-*"]);
        assert!(elsewhere.len() == 1 && elsewhere[0].contains("channel 'd' serves 'other-1': add the channel"), "{elsewhere:?}");
    }

    #[test]
    fn factor_that_applies_to_no_model_of_the_group_is_warned_about() {
        let found = |patterns: &[&str]| {
            let own = globs(patterns).into_iter().map(|glob| (glob, Multiplier(2_000_000)));
            let multipliers = SaleMultipliers::new(Multiplier::ONE, own);
            let groups = vec![Group { multipliers, ..group("default", &["c"]) }, group("all", &["c", "d"])];
            warnings(vec![channel("c", &["m"]), channel("d", &["other-1"])], groups, &[])
        };
        assert_eq!(found(&["m", "m*"]), Vec::<String>::new());
        let unknown = found(&["m", "n", "other-*"]);
        assert!(
            unknown.len() == 2 && unknown[0].contains("'n' in `model_multipliers`") && unknown[1].contains("'other-*'"),
            "{unknown:?}"
        );
    }

    #[test]
    fn pattern_of_a_key_that_matches_no_model_of_its_groups_is_warned_about() {
        let found = |patterns: &[&str], status| {
            let limited = Key { models: globs(patterns), status, ..key(&["default"]) };
            let groups = vec![group("default", &["c"]), group("more", &["d"])];
            warnings(vec![channel("c", &["m"]), channel("d", &["other-1"])], groups, &[limited])
        };
        for patterns in [&["m"][..], &["m*"], &["*"], &[]] {
            assert_eq!(found(patterns, KeyStatus::Active), Vec::<String>::new(), "{patterns:?}");
        }
        let unknown = found(&["n"], KeyStatus::Active);
        assert!(
            unknown.len() == 1 && unknown[0].contains("key 'ci': 'n' in `models`") && unknown[0].ends_with(COMPARE),
            "{unknown:?}"
        );
        let elsewhere = found(&["other-1"], KeyStatus::Active);
        assert!(elsewhere.len() == 1 && elsewhere[0].contains("group 'more' offers 'other-1': add the group"), "{elsewhere:?}");
        assert_eq!(found(&["n"], KeyStatus::Revoked), Vec::<String>::new());
    }
}
