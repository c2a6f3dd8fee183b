//! What a changed catalog would price out: accounts that no price limit excludes now and one would exclude then, by group
//! and by key. Shown before a change is saved, because nobody sees it in the numbers of a limit.

use std::{collections::HashSet, sync::Arc};

use tollgate_protocol::{Method, Protocol};

use crate::{
    Billing, Caller, Catalog, Cause, Glob, GroupId, Key, KeyId, KeyStatus, Limits, Member, MemberId, MemberStatus, Owner, Past,
    Role, RouteInput, Timestamp, Unloaded,
    offer::resolve,
    rank_all,
    replay::{AllWell, plain_outline},
};

/// Who is priced out of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceEffect {
    /// Whose requests.
    pub subject: PriceSubject,
    /// For this model.
    pub model: String,
    /// What they can no longer use.
    pub accounts: Vec<PricedOut>,
    /// Nothing is left: callers get E41.
    pub nothing_left: bool,
}

/// Whose requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PriceSubject {
    /// Those of a group's keys, whatever the keys say.
    Group(String),
    /// Those of one key, beyond what its group does.
    Key {
        /// Its member.
        member: String,
        /// Its name.
        key: String,
    },
}

/// An account, or a whole channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PricedOut {
    /// Channel.
    pub channel: String,
    /// Account; `None`: every one of the channel.
    pub account: Option<String>,
    /// The exclusion's code.
    pub code: &'static str,
    /// The figures, where there are some.
    pub detail: Option<String>,
}

/// Compares what price limits exclude by one catalog and by another. `keys` are looked at one by one, as they are by each:
/// before (`None`: not there) and after. Other keys have what their groups have.
#[must_use]
pub fn price_effects(before: &Catalog, after: &Catalog, keys: &[(Option<Arc<Key>>, Arc<Key>)], now: Timestamp) -> Vec<PriceEffect> {
    let mut effects = Vec::new();
    let mut of_groups: HashSet<(GroupId, String, PricedOut)> = HashSet::new();
    for group in after.groups.values() {
        let key = anybody(group.id, now);
        let there_before = before.groups.contains_key(&group.id);
        for model in after.served_by.keys() {
            let then = there_before.then(|| priced_out(before, &key, model, now)).flatten();
            let Some(seen) = priced_out(after, &key, model, now) else { continue };
            if let Some(effect) = difference(PriceSubject::Group(group.name.clone()), model, then, seen, |_| true) {
                of_groups.extend(effect.accounts.iter().map(|it| (group.id, model.clone(), it.clone())));
                effects.push(effect);
            }
        }
    }
    for (key_before, key) in keys.iter().filter(|(_, key)| key.status == KeyStatus::Active) {
        let subject = PriceSubject::Key { member: key.member.name.clone(), key: key.name.clone() };
        for model in after.served_by.keys() {
            let then = key_before.as_ref().and_then(|key| priced_out(before, key, model, now));
            let Some(seen) = priced_out(after, key, model, now) else { continue };
            let group = seen.group;
            let new = |it: &PricedOut| !of_groups.contains(&(group, model.clone(), it.clone()));
            effects.extend(difference(subject.clone(), model, then, seen, new));
        }
    }
    effects
}

/// What price limits exclude of one model.
struct Seen {
    group: GroupId,
    accounts: Vec<PricedOut>,
    nothing_left: bool,
}

/// `None`: the model is not offered.
fn priced_out(catalog: &Catalog, key: &Arc<Key>, model: &str, now: Timestamp) -> Option<Seen> {
    let caller = Caller::of(catalog, Arc::clone(key));
    let (outline, offer) = [Method::Chat, Method::Embeddings].into_iter().find_map(|method| {
        let outline = plain_outline(model, method);
        let offer = resolve(catalog, &caller, &outline, Protocol::OpenAi, now).ok()?;
        Some((outline, offer))
    })?;
    let input = RouteInput {
        catalog,
        newer: None,
        caller: &caller,
        offer: &offer,
        outline: &outline,
        from: Protocol::OpenAi,
        health: &AllWell,
        view: &Unloaded,
        now,
        request_limit: None,
        translates: true,
        past: &Past::default(),
    };
    let (excluded, nothing_left) = match rank_all(&input, &mut || 0) {
        Ok(plan) => (plan.excluded, false),
        Err(no) => {
            let alone = no.price_limit_alone();
            (no.excluded, alone)
        }
    };
    let by_price = excluded.iter().filter(|it| it.why.cause() == Some(Cause::PriceLimit)).map(|it| PricedOut {
        channel: it.channel.name.clone(),
        account: it.account().map(|account| account.name.clone()),
        code: it.why.code(),
        detail: it.why.detail(),
    });
    Some(Seen { group: offer.group.id, accounts: by_price.collect(), nothing_left })
}

fn difference(
    subject: PriceSubject,
    model: &str,
    before: Option<Seen>,
    after: Seen,
    counts: impl Fn(&PricedOut) -> bool,
) -> Option<PriceEffect> {
    let known: HashSet<(String, Option<String>)> =
        before.into_iter().flat_map(|seen| seen.accounts).map(|it| (it.channel, it.account)).collect();
    // A channel that was excluded whole was so with each of its accounts.
    let was =
        |it: &PricedOut| known.contains(&(it.channel.clone(), it.account.clone())) || known.contains(&(it.channel.clone(), None));
    let accounts: Vec<PricedOut> = after.accounts.into_iter().filter(|it| !was(it) && counts(it)).collect();
    let nothing_left = after.nothing_left;
    (!accounts.is_empty()).then(|| PriceEffect { subject, model: model.to_owned(), accounts, nothing_left })
}

/// A key that has nothing but its group.
fn anybody(group: GroupId, now: Timestamp) -> Arc<Key> {
    let nobody = [0; 10];
    Arc::new(Key {
        id: KeyId::from_parts(now, nobody),
        name: String::new(),
        owner: Owner::Database,
        prefix: String::new(),
        suffix: String::new(),
        status: KeyStatus::Active,
        expires_at: None,
        signatures_in_ids: None,
        groups: vec![group],
        models: Vec::<Glob>::new(),
        ip_allow: Vec::new(),
        limits: Limits::default(),
        budgets: Vec::new(),
        price_limit: None,
        created_at: now,
        member: Member {
            id: MemberId::from_parts(now, nobody),
            name: String::new(),
            role: Role::Member,
            status: MemberStatus::Active,
            granted: vec![group],
            default_group: None,
            billing: Billing::Postpaid,
            limits: Limits::default(),
            budgets: Vec::new(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Channel, Group, PriceLimit, PriceLimitMode, PriceLimitOn,
        samples::{NOW, always, catalog, channel, group, key, model, price},
    };

    fn priced(name: &str, cost: &str) -> Channel {
        let mut row = channel(name, &["m"]);
        row.serves[0].cost = Some(always(price(cost, cost)));
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
    fn a_new_limit_shows_whom_it_prices_out_and_whether_anybody_is_left() {
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
    fn what_was_priced_out_before_and_what_comes_back_are_not_told() {
        let tight = over(|group| group.price_limit = Some(ceiling(2_000_000_000, PriceLimitOn::Cost)));
        let loose = over(|_| {});
        assert_eq!(price_effects(&tight, &tight, &[], NOW), []);
        assert_eq!(price_effects(&tight, &loose, &[], NOW), []);
        // On the sale the whole channel is excluded; afterwards, on cost, its accounts are.
        let sale = over(|group| group.price_limit = Some(ceiling(500_000_000, PriceLimitOn::Sale)));
        assert_eq!(price_effects(&sale, &tight, &[], NOW), []);
    }

    #[test]
    fn a_keys_own_limit_is_told_beside_its_groups() {
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
        assert_eq!(effects.len(), 1, "what the group does is told of the group: {effects:?}");
    }
}
