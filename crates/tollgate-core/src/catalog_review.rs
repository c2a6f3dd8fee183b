//! Likely mistakes in a valid catalog: addresses that cannot be reached, rows that no request can reach, models that bounded keys
//! cannot use, prices below cost or without output.

mod output_prices;
mod reachability;

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
};

pub use output_prices::output_price_warning;

use crate::{
    Account, Budget, BudgetAction, Caller, Catalog, Channel, ChannelSpec, Glob, Group, Key, KeyStatus, Multiplier, NanoUsd,
    Timestamp, cost_of,
    price_limit::{EffectivePrice, PriceBasis},
};

/// Maximum number of warnings; one more states how many are left out.
const MAX_WARNINGS: usize = 100;
/// Most names that one warning lists.
const MAX_NAMES: usize = 5;

/// The warnings about a catalog and its keys, each a sentence that states what to do.
#[must_use]
pub fn catalog_warnings(catalog: &Catalog, keys: &[std::sync::Arc<Key>], now: Timestamp) -> Vec<String> {
    let mut warnings = Vec::new();
    let in_groups: HashSet<_> = catalog.groups.values().flat_map(|group| &group.channels).collect();
    for channel in catalog.channels.values() {
        channel_warnings(channel, &mut warnings);
        reachability::channel_warnings(channel, &in_groups, &mut warnings);
        output_prices::channel_warnings(catalog, channel, &mut warnings);
    }
    let bounded = bounded_groups(catalog, keys);
    for group in catalog.groups.values() {
        let why = bounded.iter().find(|(name, _)| *name == group.name).map(|(_, why)| why.as_str());
        group_warnings(catalog, group, why, now, &mut warnings);
        reachability::group_warnings(catalog, group, &mut warnings);
        reachability::multiplier_warnings(catalog, group, &mut warnings);
    }
    for key in keys {
        reachability::key_warnings(catalog, key, &mut warnings);
    }
    warnings.extend(catalog.models.values().filter_map(|model| output_price_warning(&model.spec)));
    warnings.extend(unserved_prices(catalog));
    let more = warnings.len().saturating_sub(MAX_WARNINGS);
    if more > 0 {
        warnings.truncate(MAX_WARNINGS);
        warnings.push(format!("{more} more warnings are left out"));
    }
    warnings
}

fn channel_warnings(channel: &Channel, warnings: &mut Vec<String>) {
    let name = &channel.spec.name;
    if channel.needs_private_network {
        warnings.push(format!(
            "channel '{name}': {} is a loopback or private address, which it may not reach; set private_network = true",
            channel.spec.base_url
        ));
    }
    if let Some(fault) = base_url_fault(&channel.spec) {
        warnings.push(format!("channel '{name}': base_url '{}' {fault}", shown_url(&channel.spec.base_url)));
    }
    if let Some(model) = &channel.spec.test_model
        && channel.spec.serves.iter().all(|mapping| mapping.model != *model)
    {
        warnings.push(format!("channel '{name}': test_model '{model}' is not served; tests use the first model"));
    }
    let unexpanded = |account: &&std::sync::Arc<Account>| account.credential.as_ref().is_some_and(|it| is_unexpanded(it.expose()));
    for account in channel.accounts.iter().filter(unexpanded) {
        warnings.push(format!(
            "account '{name}/{}': its credential begins with '$' and is sent literally; for an environment variable write env:NAME",
            account.spec.name
        ));
    }
}

/// The likely mistake in the path of a base URL. The gateway appends the endpoint, such as `/chat/completions`.
fn base_url_fault(spec: &ChannelSpec) -> Option<String> {
    let (address, query) = spec.base_url.split_once('?').map_or((spec.base_url.as_str(), ""), |(address, query)| (address, query));
    let (_, rest) = address.split_once("://")?;
    let segments: Vec<&str> = rest.split('/').skip(1).filter(|segment| !segment.is_empty()).collect();
    let default = spec.protocol.spec().default_base_url;
    let version = default.rsplit('/').next().filter(|segment| is_version(segment)).unwrap_or("v1");
    if let Some((first, second)) = segments.iter().zip(segments.iter().skip(1)).find(|(a, b)| is_version(a) && is_version(b)) {
        return Some(format!("has a version twice (/{first}/{second}): keep one"));
    }
    let path = format!("/{}", segments.join("/"));
    if let Some(endpoint) = ENDPOINTS.iter().find(|endpoint| path.ends_with(*endpoint)) {
        return Some(format!("ends with {endpoint}, which the gateway appends itself: leave it out"));
    }
    if segments.is_empty() && query.is_empty() {
        return Some(format!("has no path: append /{version}, unless the paths of this server begin without a version"));
    }
    None
}

const ENDPOINTS: [&str; 7] =
    ["/chat/completions", "/completions", "/embeddings", "/messages", "/responses", "/models", ":generateContent"];

/// `v1`, `v1beta`, `v4`.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Without the query, which may hold a key.
fn shown_url(base_url: &str) -> &str {
    base_url.split('?').next().unwrap_or_default()
}

/// Models with a price that no channel serves: probably a misspelt name.
fn unserved_prices(catalog: &Catalog) -> Option<String> {
    let served: BTreeSet<&str> =
        catalog.channels.values().flat_map(|channel| channel.spec.serves.iter().map(|mapping| mapping.model.as_str())).collect();
    let priced = catalog.models.values().filter(|model| model.spec.price.is_some()).map(|model| model.spec.name.as_str());
    let unserved: BTreeSet<&str> = priced.filter(|name| !served.contains(name)).collect();
    let names: Vec<String> = unserved.iter().take(MAX_NAMES).map(|name| format!("'{name}'")).collect();
    let more = if unserved.len() > names.len() { format!(" and {} more", unserved.len() - names.len()) } else { String::new() };
    let (who, has) = if unserved.len() == 1 { ("model", "has") } else { ("models", "have") };
    let them = if unserved.len() == 1 { "it" } else { "them" };
    (!names.is_empty()).then(|| {
        format!("{who} {}{more} {has} a price and no channel serves {them}; compare with the names in `serves`", names.join(", "))
    })
}

/// Whether a secret looks like an unexpanded shell variable: `$NAME`, `${NAME}`.
#[must_use]
pub fn is_unexpanded(secret: &str) -> bool {
    let Some(rest) = secret.strip_prefix('$') else { return false };
    let name = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(rest);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn blocks(budgets: &[Budget]) -> bool {
    budgets.iter().any(|budget| budget.action == BudgetAction::Block)
}

/// Groups with callers whose money is limited, each with a text that names them.
fn bounded_groups(catalog: &Catalog, keys: &[std::sync::Arc<Key>]) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut add = |group: &str, why: String| {
        if !found.iter().any(|(known, _): &(String, String)| known == group) {
            found.insert((group.to_owned(), why));
        }
    };
    for group in catalog.groups.values().filter(|group| blocks(&group.budgets)) {
        add(&group.name, "the group has a budget".to_owned());
    }
    for key in keys.iter().filter(|key| key.status == KeyStatus::Active) {
        let member = &key.member;
        let why = if blocks(&key.budgets) {
            format!("key '{}' has a budget", key.name)
        } else if blocks(&member.budgets) {
            format!("member '{}' has a budget", member.name)
        } else if member.billing == crate::Billing::Prepaid {
            format!("member '{}' is prepaid", member.name)
        } else {
            continue;
        };
        for group in &Caller::of(catalog, std::sync::Arc::clone(key)).groups {
            add(&group.name, why.clone());
        }
    }
    found
}

/// A kind of tokens that a group sells below what a channel costs, in nano-USD per million tokens.
pub(crate) struct SaleBelowCost<'c> {
    pub(crate) group: &'c str,
    pub(crate) model: &'c str,
    pub(crate) channel: &'c str,
    pub(crate) kind: &'static str,
    pub(crate) sale: i64,
    pub(crate) cost: i64,
}

impl fmt::Display for SaleBelowCost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, model, channel, kind, sale, cost } = self;
        let (sale, cost) = (NanoUsd(*sale).to_usd_string(), NanoUsd(*cost).to_usd_string());
        write!(
            f,
            "group '{group}' sells '{model}' below what channel '{channel}' costs: {kind} {sale} < {cost} USD per million tokens"
        )
    }
}

/// The models that a group may serve through its channels, with the position of their mapping in the channel.
fn served_by<'c>(catalog: &'c Catalog, group: &'c Group) -> impl Iterator<Item = (&'c Channel, usize, &'c str)> {
    let channels = group.channels.iter().filter_map(|id| catalog.channels.get(id));
    let models =
        channels.flat_map(|channel| channel.spec.serves.iter().enumerate().map(|(i, it)| (&**channel, i, it.model.as_str())));
    models.filter(|(_, _, model)| Glob::any(&group.models, model))
}

fn sale_price<'c>(catalog: &'c Catalog, model: &str, now: Timestamp) -> Option<&'c crate::Price> {
    catalog.models.get(model)?.spec.price.as_ref()?.at(now)
}

/// The sales of a group below cost.
pub(crate) fn sales_below_cost<'c>(catalog: &'c Catalog, group: &'c Group, now: Timestamp) -> Vec<SaleBelowCost<'c>> {
    let mut found = Vec::new();
    for (channel, index, model) in served_by(catalog, group) {
        let Some(sale) = sale_price(catalog, model, now) else { continue };
        let sale = EffectivePrice::of(sale, PriceBasis::SHORTEST, group.sale_multiplier(model));
        let Some(cost) = cost_of(channel, index, now) else { continue };
        let dearest = channel.accounts.iter().map(|account| account.spec.cost_multiplier).max_by_key(|factor| factor.0);
        let cost = EffectivePrice::of(&cost, PriceBasis::SHORTEST, dearest.unwrap_or(Multiplier::ONE));
        let (group, channel) = (group.name.as_str(), channel.spec.name.as_str());
        found.extend(sale.below(cost).into_iter().map(|(kind, sale, cost)| SaleBelowCost {
            group,
            model,
            channel,
            kind,
            sale,
            cost,
        }));
    }
    found
}

fn group_warnings(catalog: &Catalog, group: &Group, bounded: Option<&str>, now: Timestamp, warnings: &mut Vec<String>) {
    warnings.extend(sales_below_cost(catalog, group, now).iter().map(ToString::to_string));
    let unpriced: BTreeSet<&str> =
        served_by(catalog, group).map(|(_, _, model)| model).filter(|model| sale_price(catalog, model, now).is_none()).collect();
    let Some(why) = bounded else { return };
    for model in unpriced {
        warnings.push(format!(
            "model '{model}' has no price: in group '{}' requests for it get 503 (E42), because {why}; give it a price, or {{ free = \
             true }}",
            group.name
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Budget, Model, ModelSpec, Revision, Window,
        samples::{NOW, always, channel, group, key, price},
    };

    fn catalog(channel: Channel, group: Group, model: Model) -> Catalog {
        Catalog::from_parts(Revision(1), vec![channel], vec![group], vec![model])
    }

    fn priced(input: &str, output: &str) -> Model {
        Model {
            spec: ModelSpec { name: "m".to_owned(), price: Some(always(price(input, output))), ..ModelSpec::default() },
            ..Model::default()
        }
    }

    #[test]
    fn loopback_address_and_literal_variable_are_warned_about() {
        let mut row = channel("ollama", &["m"]);
        row.needs_private_network = true;
        let account = Account { credential: Some(crate::Secret::new("$OPENAI_API_KEY".to_owned())), ..(*row.accounts[0]).clone() };
        row.accounts = vec![Arc::new(account)];
        let found = catalog_warnings(&catalog(row, group("default", &["ollama"]), priced("1", "1")), &[], NOW);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("private_network = true") && found[1].contains("env:NAME"), "{found:?}");
        assert!(!found[1].contains("OPENAI_API_KEY"), "the text may be a secret after all");
    }

    #[test]
    fn only_shell_variables_count_as_unexpanded() {
        for text in ["$OPENAI_API_KEY", "${OPENAI_API_KEY}", "$x"] {
            assert!(is_unexpanded(text), "{text}");
        }
        for text in ["sk-live-1", "$", "${}", "$2a$10$abc/def", "a$b"] {
            assert!(!is_unexpanded(text), "{text}");
        }
    }

    #[test]
    fn base_url_without_a_version_or_with_too_much_is_warned_about() {
        let found = |base_url: &str| {
            let mut row = channel("c", &["m"]);
            base_url.clone_into(&mut row.spec.base_url);
            catalog_warnings(&catalog(row, group("default", &["c"]), priced("1", "1")), &[], NOW)
        };
        for (base_url, says) in [
            ("https://api.example.com", "'https://api.example.com' has no path: append /v1"),
            ("https://api.example.com/", "append /v1"),
            ("https://api.example.com/v1/v1", "a version twice (/v1/v1)"),
            ("https://api.example.com/v1/chat/completions", "ends with /chat/completions, which the gateway appends itself"),
            ("https://api.example.com/v1/embeddings?key=secret", "'https://api.example.com/v1/embeddings' ends with"),
        ] {
            let found = found(base_url);
            assert!(found.len() == 1 && found[0].contains(says) && !found[0].contains("secret"), "{base_url}: {found:?}");
        }
        for base_url in
            ["https://h/v1", "https://h/api/paas/v4", "https://h/openai/deployments/d?api-version=1", "https://h/inference", ""]
        {
            assert_eq!(found(base_url), Vec::<String>::new(), "{base_url}");
        }
    }

    #[test]
    fn price_of_a_model_that_no_channel_serves_is_warned_about() {
        let rows = |serves| catalog(channel("c", &[serves]), group("default", &["c"]), priced("1", "1"));
        let found = catalog_warnings(&rows("m-2"), &[], NOW);
        assert!(found.len() == 1 && found[0].starts_with("model 'm' has a price and no channel serves it"), "{found:?}");
        assert_eq!(catalog_warnings(&rows("m"), &[], NOW), Vec::<String>::new());
    }

    #[test]
    fn unpriced_model_under_a_budget_is_warned_about() {
        let unpriced = Model { spec: ModelSpec { name: "m".to_owned(), ..ModelSpec::default() }, ..Model::default() };
        let catalog = catalog(channel("c", &["m"]), group("default", &["c"]), unpriced);
        assert_eq!(catalog_warnings(&catalog, &[Arc::new(key(&["default"]))], NOW), Vec::<String>::new());
        let budget = Budget { amount: NanoUsd(1), window: Window::Month, action: BudgetAction::Block };
        let bounded = Key { budgets: vec![budget], ..key(&["default"]) };
        let found = catalog_warnings(&catalog, &[Arc::new(bounded)], NOW);
        assert!(found.len() == 1 && found[0].contains("key 'ci' has a budget") && found[0].contains("E42"), "{found:?}");
    }

    #[test]
    fn sale_below_cost_is_warned_about() {
        let mut row = channel("c", &["m"]);
        row.spec.serves[0].cost = Some(always(price("0.50", "2")));
        let half = Group { multipliers: Multiplier(500_000).into(), ..group("default", &["c"]) };
        let found = catalog_warnings(&catalog(row.clone(), half, priced("0.80", "4")), &[], NOW);
        assert!(found.len() == 1 && found[0].contains("input 0.40 < 0.50"), "{found:?}");
        assert_eq!(catalog_warnings(&catalog(row, group("default", &["c"]), priced("0.80", "4")), &[], NOW), Vec::<String>::new());
    }
}
