//! The orders of the list of groups.

use std::{cmp::Reverse, collections::HashMap};

use tollgate_core::NanoUsd;

use super::{
    found, spent,
    view::{GroupObject, GroupSpent},
};
use crate::{
    api_error::ApiError,
    pages::{
        list_order::{READ, whole},
        locale::Locale,
        request::{ApiPage, PageRequest},
    },
};

pub(super) const SORTS: [&str; 5] = ["name", "keys", "multiplier", "requests", "spent"];

/// The orders with their labels, that of creation first.
pub(super) fn labels(t: Locale) -> [(&'static str, &'static str); 6] {
    [
        ("", t.say("sort.created")),
        ("name", t.say("sort.name")),
        ("keys", t.say("sort.keys")),
        ("multiplier", t.say("sort.multiplier")),
        ("requests", t.say("sort.requests")),
        ("spent", t.say("sort.spent")),
    ]
}

/// Groups, and their usage of this month.
type GroupsWithUse = (Vec<GroupObject>, HashMap<String, GroupSpent>);

/// A page of groups in the order of the admin API.
pub(super) async fn page(request: &PageRequest, limit: &str, after: Option<&str>) -> Result<ApiPage<GroupObject>, ApiError> {
    let mut query = vec![("limit", limit)];
    query.extend(after.map(|after| ("after", after)));
    found(request, query).await
}

/// All groups in another order; `None` if there are too many.
pub(super) async fn sorted(request: &PageRequest, by: &str) -> Result<Option<GroupsWithUse>, ApiError> {
    let read = whole(|after: Option<String>| async move { page(request, READ, after.as_deref()).await }).await?;
    let Some(mut groups) = read else { return Ok(None) };
    let spent = spent(request, !groups.is_empty()).await?;
    sort(&mut groups, &spent, by);
    Ok(Some((groups, spent)))
}

/// Figures are in descending order; groups without one come last.
fn sort(groups: &mut [GroupObject], spent: &HashMap<String, GroupSpent>, by: &str) {
    let of = |group: &GroupObject| spent.get(&group.name);
    let sale = |group: &GroupObject| of(group).and_then(|spent| NanoUsd::parse(&spent.sale).ok()).map(|sale| sale.0);
    let multiplier = |group: &GroupObject| group.sale_multiplier.parse::<f64>().unwrap_or_default();
    match by {
        "name" => groups.sort_by_cached_key(|group| (group.name.to_lowercase(), group.name.clone())),
        "keys" => groups.sort_by_key(|group| Reverse(group.key_count)),
        "multiplier" => groups.sort_by(|one, other| multiplier(other).total_cmp(&multiplier(one))),
        "requests" => groups.sort_by_key(|group| Reverse(of(group).map(|spent| spent.requests))),
        _ => groups.sort_by_cached_key(|group| Reverse(sale(group))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn group(name: &str, multiplier: &str, keys: Option<u64>) -> GroupObject {
        serde_json::from_value(json!({
            "id": name, "name": name, "owner": "database", "revision": 1, "created_at": "2026-01-01T00:00:00Z", "description": null,
            "visibility": "public", "channels": [], "models": ["*"], "sale_multiplier": multiplier, "model_multipliers": {},
            "translation": "on", "stream_break": "close", "price_limit": null, "never_below_cost": false, "routing": "balanced",
            "hedge": null, "trace": false, "log_contents": false, "self_service": false, "rpm": 0, "tpm": 0, "concurrency": 0,
            "budget": null, "key_count": keys,
        }))
        .unwrap()
    }

    #[test]
    fn groups_are_sorted_by_each_column() {
        let used = |of: &str, requests: u64, sale: &str| {
            (of.to_owned(), GroupSpent { of: of.to_owned(), requests, sale: sale.to_owned() })
        };
        let spent = HashMap::from([used("b", 3, "9"), used("Zoe", 10, "10.5")]);
        let by = |word: &str| {
            let mut groups = vec![group("b", "1.5", Some(2)), group("Zoe", "0.9", None), group("a", "10", Some(7))];
            sort(&mut groups, &spent, word);
            groups.into_iter().map(|group| group.name).collect::<Vec<_>>()
        };
        assert_eq!(by("name"), ["a", "b", "Zoe"]);
        assert_eq!(by("keys"), ["a", "b", "Zoe"], "unknown last");
        assert_eq!(by("multiplier"), ["a", "b", "Zoe"]);
        assert_eq!(by("requests"), ["Zoe", "b", "a"]);
        assert_eq!(by("spent"), ["Zoe", "b", "a"]);
        let labelled: Vec<&str> = labels(Locale::EN).iter().map(|(word, _)| *word).skip(1).collect();
        assert_eq!(labelled, SORTS);
    }
}
