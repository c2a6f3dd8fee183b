//! Import of a price list: the choice of the entry for each model or channel, and the changes that the import would make. A price
//! that was set by hand is kept unless its model is named.

mod list_index;

use std::collections::BTreeSet;

use crate::{Catalog, Channel, ChannelSpec, Glob, ListedPrice, ModelMapping, Owner, Price, PriceList, PriceSchedule, Provider};

use list_index::{ListIndex, ListMatch};

/// The prices that an import may change.
#[derive(Clone, Copy)]
pub struct ImportScope<'a> {
    /// Sale prices of models.
    pub sale: bool,
    /// Costs of channels.
    pub cost: bool,
    /// Only models whose public name matches one of these.
    pub models: &'a [Glob],
    /// Models whose prices are replaced although they were set by hand.
    pub overwrite: &'a [String],
    /// True if a price was imported and has not been set by hand since: the sale price of a model, or its cost on the named channel.
    pub is_imported: &'a dyn Fn(&str, Option<&str>) -> bool,
}

impl std::fmt::Debug for ImportScope<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImportScope").field("sale", &self.sale).field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// The plan of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportPlan {
    /// Sorted by model; the sale price of a model before the costs of its channels.
    pub rows: Vec<ImportRow>,
    /// Names of entries that match no served model.
    pub not_served: Vec<String>,
}

/// A price and the entry of the list for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRow {
    /// Public name of the model.
    pub model: String,
    /// Channel whose cost it is; `None`: the sale price.
    pub channel: Option<String>,
    pub state: ImportState,
    /// Name of the entry, with its provider: `openai/gpt-5`.
    pub entry: Option<String>,
    pub before: Option<PriceSchedule>,
    /// Price in the list; `None` if there is none to import.
    pub after: Option<PriceSchedule>,
    /// Figures of the list that were rounded or left out.
    pub notes: Vec<String>,
}

/// Action of an import for a price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// There is no price yet.
    New,
    /// It replaces a price that was imported, or that is to be overwritten.
    Changed,
    Same,
    Kept(KeptReason),
    /// The list's price cannot be imported, with the reason.
    Skipped(String),
}

/// Why an import leaves a price unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptReason {
    SetByHand,
    OwnedByFile,
}

impl ImportState {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Same => "same",
            Self::Kept(_) => "kept",
            Self::Skipped(_) => "skipped",
        }
    }

    /// Whether the import writes the price.
    pub const fn is_written(&self) -> bool {
        matches!(self, Self::New | Self::Changed)
    }

    /// Why the price is not written.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::New | Self::Changed | Self::Same => None,
            Self::Kept(KeptReason::SetByHand) => Some("set by hand".to_owned()),
            Self::Kept(KeptReason::OwnedByFile) => Some("owned by the served catalog file".to_owned()),
            Self::Skipped(reason) => Some(reason.clone()),
        }
    }
}

/// Compares a list with the prices of the catalog.
pub fn plan_price_import(list: &PriceList, catalog: &Catalog, scope: &ImportScope<'_>) -> ImportPlan {
    let index = ListIndex::of(list);
    let mut plan = ImportPlan::default();
    let mut used = BTreeSet::new();
    let mut models: Vec<&String> = catalog.mappings_by_model.keys().filter(|model| Glob::any(scope.models, model)).collect();
    models.sort_unstable();
    for model in models {
        let mappings = mappings_of(catalog, model);
        let matches: Vec<(&Channel, Option<ListMatch<'_>>)> = mappings
            .iter()
            .map(|(channel, mapping)| (*channel, index.of_upstream(&channel.spec, &mapping.upstream, model)))
            .collect();
        let sale = index.of_model(model, matches.iter().filter_map(|(_, found)| found.clone()));
        used.extend(matches.iter().filter_map(|(_, found)| found.as_ref()).chain(&sale).filter_map(ListMatch::position));
        if scope.sale
            && let Some(found) = sale
        {
            let row = catalog.models.get(model);
            let before = row.and_then(|row| row.spec.price.as_ref());
            let owned = row.is_some_and(|row| row.owner == Some(Owner::File));
            plan.rows.push(import_row(scope, (model, None), before, owned, found));
        }
        if scope.cost {
            let found =
                matches.into_iter().zip(&mappings).filter_map(|((channel, found), (_, mapping))| Some((channel, mapping, found?)));
            plan.rows.extend(found.map(|(channel, mapping, found)| {
                let at = (model.as_str(), Some(channel.spec.name.as_str()));
                import_row(scope, at, mapping.cost.as_ref(), channel.owner == Owner::File, found)
            }));
        }
    }
    let unused = list.entries.iter().enumerate().filter(|(at, _)| !used.contains(at));
    plan.not_served = unused.map(|(_, entry)| entry_name(entry.provider.as_deref(), &entry.model)).collect();
    plan
}

/// The sale price that an import would take for each of these models of a channel's provider, if the channel alone served it under
/// that name; `None`: the list has none that can be imported.
pub fn listed_prices(list: &PriceList, channel: &ChannelSpec, upstreams: &[String]) -> Vec<Option<PriceSchedule>> {
    let index = ListIndex::of(list);
    let price = |upstream: &String| match index.of_model(upstream, index.of_upstream(channel, upstream, upstream).into_iter())? {
        ListMatch::Price(_, listed) => Some(always(listed.price.clone())),
        ListMatch::Skipped(_) | ListMatch::Ambiguous(_) => None,
    };
    upstreams.iter().map(price).collect()
}

/// The channels that serve a model, without echo, which costs nothing.
fn mappings_of<'a>(catalog: &'a Catalog, model: &str) -> Vec<(&'a Channel, &'a ModelMapping)> {
    let mappings = catalog.mappings_by_model.get(model).into_iter().flatten();
    let found = mappings.filter_map(|at| {
        let channel = catalog.channel_at(at.channel)?;
        Some((channel.as_ref(), channel.spec.serves.get(at.mapping as usize)?))
    });
    found.filter(|(channel, _)| channel.spec.provider != Provider::Echo).collect()
}

fn import_row(
    scope: &ImportScope<'_>,
    (model, channel): (&str, Option<&str>),
    before: Option<&PriceSchedule>,
    owned_by_file: bool,
    found: ListMatch<'_>,
) -> ImportRow {
    let row = |state, entry, after, notes| ImportRow {
        model: model.to_owned(),
        channel: channel.map(str::to_owned),
        state,
        entry,
        before: before.cloned(),
        after,
        notes,
    };
    let (entry, price, notes) = match found {
        ListMatch::Price(_, ListedPrice { provider, model, price, notes }) => {
            (entry_name(provider.as_deref(), model), price.clone(), notes.clone())
        }
        ListMatch::Skipped(skipped) => {
            let entry = entry_name(skipped.provider.as_deref(), &skipped.model);
            return row(ImportState::Skipped(skipped.reason.clone()), Some(entry), None, Vec::new());
        }
        ListMatch::Ambiguous(entries) => {
            let reason = format!("the list has different prices for it ({entries}); set it by hand");
            return row(ImportState::Skipped(reason), None, None, Vec::new());
        }
    };
    let after = always(price);
    let is_named = scope.overwrite.iter().any(|name| name == model);
    let state = match before {
        Some(before) if *before == after => ImportState::Same,
        _ if owned_by_file => ImportState::Kept(KeptReason::OwnedByFile),
        None => ImportState::New,
        Some(_) if is_named || (scope.is_imported)(model, channel) => ImportState::Changed,
        Some(_) => ImportState::Kept(KeptReason::SetByHand),
    };
    row(state, Some(entry), Some(after), notes)
}

fn always(price: Price) -> PriceSchedule {
    PriceSchedule::constant(price)
}

/// `openai/gpt-5`.
pub(crate) fn entry_name(provider: Option<&str>, model: &str) -> String {
    provider.map_or_else(|| model.to_owned(), |provider| format!("{provider}/{model}"))
}

#[cfg(test)]
mod tests;
