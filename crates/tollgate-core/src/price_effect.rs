//! Effect of a catalog change on price limits: the accounts that a price limit would newly exclude, by group and by key. Shown
//! before a change is saved, because it cannot be seen from the limit's number alone.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tollgate_protocol::{Method, Protocol, RequestSummary};

use crate::{
    AttemptHistory, Caller, Catalog, Glob, GroupId, Key, KeyId, KeyStatus, Member, MemberId, NoRouteCause, PriceLimit, RouteInput,
    Timestamp, UnlimitedView, offer::resolve, price_limit::key_bounds_money, rank_all, replay::AllHealthy,
};

/// Accounts that one subject can no longer use for one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceEffect {
    /// Subject whose requests are affected.
    pub subject: PriceSubject,
    pub model: String,
    pub accounts: Vec<PricedOutAccount>,
    /// True when no account is left: callers get E41 or E42.
    pub nothing_left: bool,
    /// True when the model was served to the subject before, or would be to a new subject without its limit. Otherwise nothing is lost.
    pub served_before: bool,
}

/// Subject whose requests are affected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PriceSubject {
    /// Any key of the group, by name.
    Group(String),
    /// One key, beyond the effect on its group.
    Key { member: String, key: String },
}

/// An excluded account or channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PricedOutAccount {
    pub channel: String,
    /// Account name; `None`: the whole channel.
    pub account: Option<String>,
    /// Code of the exclusion.
    pub code: &'static str,
    /// Prices and limits involved, if any.
    pub detail: Option<String>,
}

/// All effects of a catalog change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceEffects {
    /// Effects by subject and model.
    pub effects: Vec<PriceEffect>,
    /// True when some keys were not evaluated because too many differ.
    pub truncated: bool,
}

/// Upper bound of evaluations (one per model and distinct kind of key) per catalog. Keys that are changed themselves are
/// evaluated regardless.
const MAX_EVALUATIONS: usize = 50_000;

/// Compares the exclusions by price limits under two catalogs. `keys` pairs each key before the change (`None`: new) and after;
/// keys not listed are covered by their groups.
pub fn price_effects(before: &Catalog, after: &Catalog, keys: &[(Option<Arc<Key>>, Arc<Key>)], now: Timestamp) -> PriceEffects {
    let models: Vec<&str> = after.mappings_by_model.keys().map(String::as_str).collect();
    let mut found = PriceEffects::default();
    let mut group_accounts: HashSet<(GroupId, &str, PricedOutAccount)> = HashSet::new();
    let mut groups_without_accounts: HashSet<(GroupId, &str)> = HashSet::new();
    for group in after.groups.values() {
        let key = Arc::new(plain_key(vec![group.id], now));
        let existed = before.groups.contains_key(&group.id);
        for model in &models {
            let before_cache = existed.then(|| priced_out(before, &key, model, now)).flatten();
            let Some(seen) = priced_out(after, &key, model, now) else { continue };
            if seen.nothing_left {
                groups_without_accounts.insert((group.id, model));
            }
            if let Some(mut effect) =
                difference(&PriceSubject::Group(group.name.clone()), model, before_cache.as_ref(), &seen, |_| true)
            {
                effect.served_before |= !existed;
                group_accounts.extend(effect.accounts.iter().map(|it| (group.id, *model, it.clone())));
                found.effects.push(effect);
            }
        }
    }
    let mut keys: Vec<_> = keys.iter().filter(|(_, key)| key.status == KeyStatus::Active).collect();
    // Compares only the relevant fields: other fields of a key differ between catalogs, since it contains its member.
    let changes = |(was, key): &(Option<Arc<Key>>, Arc<Key>)| {
        let relevant = |key: &Key| (key.groups.clone(), key.models.clone(), key.models_deny.clone(), key.price_limit);
        was.as_ref().is_none_or(|was| relevant(was) != relevant(key))
    };
    keys.sort_by_cached_key(|pair| !changes(pair));
    let (mut before_cache, mut seen) = (EvaluationCache::at(before, &models, now), EvaluationCache::at(after, &models, now));
    for pair in keys {
        let (key_before, key) = pair;
        let is_changed = changes(pair);
        let was = key_before.as_ref().map(|key| before_cache.of(key, is_changed));
        let (Some(was), Some(is)) = (was.map_or(Some(None), |was| was.map(Some)), seen.of(key, is_changed)) else {
            found.truncated = true;
            continue;
        };
        let subject = PriceSubject::Key { member: key.member.name.clone(), key: key.name.clone() };
        for (at, model) in models.iter().enumerate() {
            let Some(is) = &is[at] else { continue };
            let was = was.as_ref().and_then(|was| was[at].as_ref());
            // Effects on a group's keys are reported for the group, unless this key has no account left only in combination with
            // its own limit.
            let key_loses_all = is.loses_all_of(was) && !groups_without_accounts.contains(&(is.group, model));
            let new = |it: &PricedOutAccount| key_loses_all || !group_accounts.contains(&(is.group, model, it.clone()));
            found.effects.extend(difference(&subject, model, was, is, new));
        }
    }
    found
}

/// Evaluations of keys under one catalog. Keys with equal [`EvaluationKey`]s share one.
struct EvaluationCache<'a> {
    catalog: &'a Catalog,
    models: &'a [&'a str],
    now: Timestamp,
    known: HashMap<EvaluationKey<'a>, Arc<[Option<ModelEvaluation>]>>,
    left: usize,
}

/// The fields of a key that price limits depend on.
#[derive(PartialEq, Eq, Hash)]
struct EvaluationKey<'a> {
    groups: Vec<GroupId>,
    /// Patterns of the models it may use, and of those it may not.
    models: (&'a [Glob], &'a [Glob]),
    limit: Option<PriceLimit>,
    /// True if the money of the key or of its member is limited. The key then cannot use models without a price.
    bounds_money: bool,
}

impl<'a> EvaluationCache<'a> {
    fn at(catalog: &'a Catalog, models: &'a [&'a str], now: Timestamp) -> Self {
        Self { catalog, models, now, known: HashMap::new(), left: MAX_EVALUATIONS }
    }

    /// One evaluation per model; `None` when the bound is exceeded.
    fn of(&mut self, key: &'a Arc<Key>, is_changed: bool) -> Option<Arc<[Option<ModelEvaluation>]>> {
        let groups = Caller::of(self.catalog, Arc::clone(key)).groups.iter().map(|group| group.id).collect();
        let models = (key.models.as_slice(), key.models_deny.as_slice());
        let relevant = EvaluationKey { groups, models, limit: key.price_limit, bounds_money: key_bounds_money(key) };
        if let Some(known) = self.known.get(&relevant) {
            return Some(Arc::clone(known));
        }
        if self.left < self.models.len() && !is_changed {
            return None;
        }
        self.left = self.left.saturating_sub(self.models.len());
        let seen: Arc<[Option<ModelEvaluation>]> =
            self.models.iter().map(|model| priced_out(self.catalog, key, model, self.now)).collect();
        self.known.insert(relevant, Arc::clone(&seen));
        Some(seen)
    }
}

/// Exclusions by price limits for one model.
struct ModelEvaluation {
    group: GroupId,
    accounts: Vec<PricedOutAccount>,
    /// True when an account is usable.
    usable: bool,
    nothing_left: bool,
}

impl ModelEvaluation {
    /// True when an account was usable before and price limits leave none.
    fn loses_all_of(&self, before: Option<&Self>) -> bool {
        self.nothing_left && before.is_some_and(|before| before.usable)
    }
}

/// Evaluates one model for a key; `None` when it is not offered.
fn priced_out(catalog: &Catalog, key: &Arc<Key>, model: &str, now: Timestamp) -> Option<ModelEvaluation> {
    let caller = Caller::of(catalog, Arc::clone(key));
    let (summary, offer) = [Method::Chat, Method::Embeddings].into_iter().find_map(|method| {
        let summary = RequestSummary::minimal(model, method);
        let offer = resolve(catalog, &caller, &summary, Protocol::OpenAi, now).ok()?;
        Some((summary, offer))
    })?;
    let input = RouteInput {
        catalog,
        latest_catalog: None,
        caller: &caller,
        offer: &offer,
        summary: &summary,
        from: Protocol::OpenAi,
        health: &AllHealthy,
        candidate_view: &UnlimitedView,
        now,
        request_limit: None,
        translates: true,
        history: &AttemptHistory::default(),
    };
    let (excluded, usable, nothing_left) = match rank_all(&input, &mut || 0) {
        Ok(plan) => (plan.excluded, true, false),
        Err(no) => {
            let price_alone = no.price_alone();
            (no.excluded, false, price_alone)
        }
    };
    let by_price = excluded.iter().filter(|it| it.why.cause().is_some_and(NoRouteCause::is_price)).map(|it| PricedOutAccount {
        channel: it.channel.spec.name.clone(),
        account: it.account().map(|account| account.spec.name.clone()),
        code: it.why.code(),
        detail: it.why.detail(),
    });
    Some(ModelEvaluation { group: offer.group.id, accounts: by_price.collect(), usable, nothing_left })
}

fn difference(
    subject: &PriceSubject,
    model: &str,
    before: Option<&ModelEvaluation>,
    after: &ModelEvaluation,
    counts: impl Fn(&PricedOutAccount) -> bool,
) -> Option<PriceEffect> {
    let known: HashSet<(&str, Option<&str>)> =
        before.into_iter().flat_map(|seen| &seen.accounts).map(|it| (it.channel.as_str(), it.account.as_deref())).collect();
    // Excluding a whole channel excluded each of its accounts.
    let was = |it: &PricedOutAccount| {
        known.contains(&(it.channel.as_str(), it.account.as_deref())) || known.contains(&(it.channel.as_str(), None))
    };
    let mut accounts: Vec<PricedOutAccount> = after.accounts.iter().filter(|it| !was(it) && counts(it)).cloned().collect();
    if accounts.is_empty() && after.loses_all_of(before) {
        // The accounts that served the model were removed. Report the remaining ones, although they were excluded before, too.
        accounts = after.accounts.iter().filter(|it| counts(it)).cloned().collect();
    }
    let nothing_left = after.nothing_left;
    let served_before = before.is_some_and(|before| before.usable);
    (!accounts.is_empty()).then(|| PriceEffect {
        subject: subject.clone(),
        model: model.to_owned(),
        accounts,
        nothing_left,
        served_before,
    })
}

/// A key with no settings but its groups, which are granted to its member.
pub fn plain_key(groups: Vec<GroupId>, now: Timestamp) -> Key {
    let zeros = [0; 10];
    let member = Member { granted: groups, ..Member::new(MemberId::from_parts(now, zeros), "") };
    Key::new(KeyId::from_parts(now, zeros), "", member, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Channel, Group, PriceLimitMode, PriceLimitOn,
        samples::{NOW, always, catalog, channel, group, key, model, price},
    };

    fn price_effects(before: &Catalog, after: &Catalog, keys: &[(Option<Arc<Key>>, Arc<Key>)], now: Timestamp) -> Vec<PriceEffect> {
        let found = super::price_effects(before, after, keys, now);
        assert!(!found.truncated);
        found.effects
    }

    fn priced(name: &str, cost: &str) -> Channel {
        let mut row = channel(name, &["m"]);
        row.spec.serves[0].cost = Some(always(price(cost, cost)));
        row
    }

    fn ceiling(max_input: i64, on: PriceLimitOn) -> PriceLimit {
        PriceLimit { mode: PriceLimitMode::Ceiling { max_input: Some(max_input), max_output: None }, on }
    }

    fn over(change: impl FnOnce(&mut Group)) -> Catalog {
        let mut group = group("default", &["cheap", "dear"]);
        change(&mut group);
        catalog(vec![priced("cheap", "1"), priced("dear", "4")], vec![group], vec![model("m")])
    }

    fn channels(effect: &PriceEffect) -> Vec<&str> {
        effect.accounts.iter().map(|it| it.channel.as_str()).collect()
    }

    #[test]
    fn new_limit_reports_excluded_accounts_and_whether_any_is_left() {
        let before = over(|_| {});
        let after = over(|group| group.price_limit = Some(ceiling(2_000_000_000, PriceLimitOn::Cost)));
        let effects = price_effects(&before, &after, &[], NOW);
        assert_eq!(effects.len(), 1);
        assert_eq!((effects[0].subject.clone(), channels(&effects[0])), (PriceSubject::Group("default".into()), vec!["dear"]));
        assert_eq!(effects[0].accounts[0].code, "price_above_limit");
        assert!(!effects[0].nothing_left);
        let none = over(|group| group.price_limit = Some(ceiling(500_000_000, PriceLimitOn::Sale)));
        let effects = price_effects(&before, &none, &[], NOW);
        assert_eq!((channels(&effects[0]), effects[0].nothing_left), (vec!["cheap", "dear"], true));
    }

    #[test]
    fn new_model_above_a_keys_ceiling_was_not_served_before() {
        let before = over(|_| {});
        let mut added = channel("new", &["n"]);
        added.spec.serves[0].cost = Some(always(price("9", "9")));
        let after = catalog(
            vec![priced("cheap", "1"), priced("dear", "4"), added],
            vec![group("default", &["cheap", "dear", "new"])],
            vec![model("m"), model("n")],
        );
        let key = limited(ceiling(2_000_000_000, PriceLimitOn::Cost));
        let effects = price_effects(&before, &after, &[(Some(Arc::clone(&key)), key)], NOW);
        let found: Vec<_> = effects.iter().map(|it| (it.model.as_str(), it.nothing_left, it.served_before)).collect();
        assert_eq!(found, [("n", true, false)], "nothing that was served is lost");
        // A model that was served, and a new group whose limit excludes every account.
        let none = over(|group| group.price_limit = Some(ceiling(500_000_000, PriceLimitOn::Sale)));
        assert!(price_effects(&before, &none, &[], NOW).iter().all(|it| it.nothing_left && it.served_before));
        let empty = catalog(vec![priced("cheap", "1"), priced("dear", "4")], vec![], vec![model("m")]);
        assert!(price_effects(&empty, &none, &[], NOW).iter().all(|it| it.nothing_left && it.served_before));
    }

    #[test]
    fn accounts_already_excluded_or_readmitted_are_not_reported() {
        let tight = over(|group| group.price_limit = Some(ceiling(2_000_000_000, PriceLimitOn::Cost)));
        let loose = over(|_| {});
        assert_eq!(price_effects(&tight, &tight, &[], NOW), []);
        assert_eq!(price_effects(&tight, &loose, &[], NOW), []);
        // A sale limit excludes the whole channel, a cost limit its accounts.
        let sale = over(|group| group.price_limit = Some(ceiling(500_000_000, PriceLimitOn::Sale)));
        assert_eq!(price_effects(&sale, &tight, &[], NOW), []);
    }

    #[test]
    fn key_limit_is_reported_for_the_key() {
        let catalog = over(|_| {});
        let bounded = |limit| {
            let mut key = key(&["default"]);
            key.price_limit = limit;
            Arc::new(key)
        };
        let limit = Some(ceiling(2_000_000_000, PriceLimitOn::Cost));
        let effects = price_effects(&catalog, &catalog, &[(Some(bounded(None)), bounded(limit))], NOW);
        assert_eq!(effects.len(), 1);
        assert!(matches!(&effects[0].subject, PriceSubject::Key { .. }));
        assert_eq!(channels(&effects[0]), ["dear"]);
        assert_eq!(price_effects(&catalog, &catalog, &[(Some(bounded(limit)), bounded(limit))], NOW), []);
        let after = over(|group| group.price_limit = limit);
        let effects = price_effects(&catalog, &after, &[(Some(bounded(None)), bounded(None))], NOW);
        assert_eq!(effects.len(), 1, "the group's effect is reported for the group: {effects:?}");
    }

    #[test]
    fn keys_with_limited_money_are_evaluated_separately() {
        // `m` has no sale price, so it is not sold where a budget bounds the money.
        let mut unpriced = model("m");
        unpriced.spec.price = None;
        let catalog = catalog(vec![priced("cheap", "1")], vec![group("default", &["cheap"])], vec![unpriced]);
        let (plain, mut bounded) = (key(&["default"]), key(&["default"]));
        bounded.budgets =
            vec![crate::Budget { amount: crate::NanoUsd(1), window: crate::Window::Month, action: crate::BudgetAction::Block }];
        let (plain, bounded) = (Arc::new(plain), Arc::new(bounded));
        let changed = (Some(Arc::clone(&plain)), limited(ceiling(2_000_000_000, PriceLimitOn::Cost)));
        let others = [&bounded, &plain].map(|key| (Some(Arc::clone(key)), Arc::clone(key)));
        let pairs: Vec<_> = std::iter::once(changed).chain(others).collect();
        assert_eq!(price_effects(&catalog, &catalog, &pairs, NOW), [], "nothing changes for any of them");
    }

    fn limited(limit: PriceLimit) -> Arc<Key> {
        let mut key = key(&["default"]);
        key.price_limit = Some(limit);
        Arc::new(key)
    }

    /// `cheap` costs more for output, so that each of two limits can leave one channel.
    fn crossed(change: impl FnOnce(&mut Group)) -> Catalog {
        let mut group = group("default", &["cheap", "dear"]);
        change(&mut group);
        let mut cheap = priced("cheap", "1");
        cheap.spec.serves[0].cost = Some(always(price("1", "9")));
        catalog(vec![cheap, priced("dear", "4")], vec![group], vec![model("m")])
    }

    #[test]
    fn combined_exclusion_by_group_and_key_is_reported_for_the_key() {
        let output = PriceLimitMode::Ceiling { max_input: None, max_output: Some(5_000_000_000) };
        let key = limited(PriceLimit { mode: output, on: PriceLimitOn::Cost });
        let after = crossed(|group| group.price_limit = Some(ceiling(2_000_000_000, PriceLimitOn::Cost)));
        let effects = price_effects(&crossed(|_| {}), &after, &[(Some(Arc::clone(&key)), Arc::clone(&key))], NOW);
        let [of_group, of_key] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!((channels(of_group), of_group.nothing_left), (vec!["dear"], false));
        assert!(matches!(&of_key.subject, PriceSubject::Key { .. }));
        assert_eq!((channels(of_key), of_key.nothing_left), (vec!["dear"], true));
        // When the group leaves no account, the key is not reported as well.
        let none = crossed(|group| group.price_limit = Some(ceiling(500_000_000, PriceLimitOn::Cost)));
        let effects = price_effects(&crossed(|_| {}), &none, &[(Some(Arc::clone(&key)), key)], NOW);
        assert_eq!(effects.iter().filter(|it| it.nothing_left).count(), 1, "{effects:?}");
    }

    #[test]
    fn losing_the_last_usable_channel_is_reported() {
        let limit = ceiling(2_000_000_000, PriceLimitOn::Cost);
        let before = over(|group| group.price_limit = Some(limit));
        let after = over(|group| {
            group.price_limit = Some(limit);
            group.channels.retain(|id| before.channels[id].spec.name == "dear");
        });
        let effects = price_effects(&before, &after, &[], NOW);
        assert_eq!(effects.len(), 1);
        assert_eq!((channels(&effects[0]), effects[0].nothing_left), (vec!["dear"], true));
        assert_eq!(price_effects(&after, &after, &[], NOW), [], "unchanged");
        // The same with the key's limit alone.
        let key = limited(limit);
        let (before, after) = (over(|_| {}), over(|group| group.channels = after.groups.values().next().unwrap().channels.clone()));
        let effects = price_effects(&before, &after, &[(Some(Arc::clone(&key)), key)], NOW);
        assert_eq!(effects.len(), 1);
        assert_eq!((channels(&effects[0]), effects[0].nothing_left), (vec!["dear"], true));
    }

    #[test]
    fn evaluations_are_bounded_but_changed_keys_are_always_evaluated() {
        let names: Vec<String> = (0..500).map(|n| format!("m{n}")).collect();
        let served: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut row = channel("one", &served);
        row.spec.serves.iter_mut().for_each(|serves| serves.cost = Some(always(price("4", "4"))));
        let models = served.iter().map(|name| model(name)).collect();
        let catalog = catalog(vec![row], vec![group("default", &["one"])], models);
        let keys: Vec<_> = (0..200_i64).map(|n| limited(ceiling(5_000_000_000 + n, PriceLimitOn::Cost))).collect();
        let mut pairs: Vec<_> = keys.iter().map(|key| (Some(Arc::clone(key)), Arc::clone(key))).collect();
        assert!(super::price_effects(&catalog, &catalog, &pairs, NOW).truncated);
        pairs.push((Some(Arc::clone(&keys[0])), limited(ceiling(1, PriceLimitOn::Cost))));
        let found = super::price_effects(&catalog, &catalog, &pairs, NOW);
        assert_eq!((found.truncated, found.effects.len()), (true, 500));
        let alike: Vec<_> = (0..200).map(|_| pairs[0].clone()).collect();
        assert!(!super::price_effects(&catalog, &catalog, &alike, NOW).truncated);
    }
}
