//! The part of the offers that follows from the catalog: prices, protocols, parameters, and the accounts that serve them. Computed
//! when the catalog changes, or when a price takes effect.

use std::{collections::HashMap, sync::Arc};

use serde::Serialize;
use serde_json::Value;
use tollgate_core::{
    AccountId, AccountStanding, Audience, Catalog, ChannelId, Group, Model, OfferState, ParameterSupport, ParameterTables, Price,
    ScheduledPrice, Timestamp, VisibleModel, visible_offers,
};
use tollgate_protocol::Protocol;
use tollgate_store::fields::FieldValue as _;

use crate::gateway_handle::GatewayHandle;

/// All offers of all groups.
#[derive(Debug, Default)]
pub(super) struct OffersPart {
    /// When the next announced price takes effect.
    pub(super) until: Option<Timestamp>,
    pub(super) offers: Vec<OfferPart>,
    /// The sets that [`ProtocolPart::parameter_set`] refers to.
    pub(super) parameter_sets: Vec<ParameterSupport>,
}

/// A model as a group offers it.
#[derive(Debug)]
pub(super) struct OfferPart {
    pub(super) group: Arc<Group>,
    pub(super) model: Arc<Model>,
    pub(super) embeds: bool,
    /// After the group's multiplier.
    pub(super) price: Value,
    pub(super) base_price: Value,
    pub(super) next_price: Value,
    pub(super) protocols: Vec<ProtocolPart>,
    accounts: Vec<ServingAccount>,
}

/// A protocol that callers reach an offer with.
#[derive(Debug, Serialize)]
pub(super) struct ProtocolPart {
    protocol: &'static str,
    endpoints: Vec<String>,
    translated: bool,
    /// Id of the parameter set.
    parameters: String,
    /// Its index.
    #[serde(skip)]
    pub(super) parameter_set: usize,
}

#[derive(Debug)]
struct ServingAccount {
    channel: ChannelId,
    account: AccountId,
    is_on: bool,
}

/// The id of a parameter set in documents.
pub(super) fn set_id(index: usize) -> String {
    format!("p{}", index + 1)
}

impl OffersPart {
    pub(super) fn of(catalog: &Catalog, now: Timestamp) -> Self {
        let groups: Vec<Arc<Group>> = catalog.groups.values().cloned().collect();
        let (mut part, mut tables, mut sets) = (Self::default(), ParameterTables::default(), HashMap::new());
        for offered in visible_offers(catalog, Audience::of_groups(&groups)) {
            let embeds = offered.embeds();
            let endpoints_of = |protocol: Protocol| endpoints(protocol, embeds, offered.protocols.contains(&protocol));
            let protocols = Protocol::ALL.into_iter().filter(|protocol| !endpoints_of(*protocol).is_empty());
            let protocols = protocols.filter(|_| offered.channels(catalog).next().is_some()).map(|protocol| {
                let support = tables.support(catalog, &offered, protocol);
                let next = sets.len();
                let index = *sets.entry(support).or_insert(next);
                ProtocolPart {
                    protocol: protocol.as_str(),
                    endpoints: endpoints_of(protocol),
                    translated: !offered.protocols.contains(&protocol),
                    parameters: set_id(index),
                    parameter_set: index,
                }
            });
            let protocols = protocols.collect();
            part.until = part.until.into_iter().chain(next_begin(&offered.model, now)).min();
            part.offers.push(OfferPart::new(catalog, offered, protocols, now));
        }
        let mut sets: Vec<(ParameterSupport, usize)> = sets.into_iter().collect();
        sets.sort_by_key(|(_, index)| *index);
        part.parameter_sets = sets.into_iter().map(|(set, _)| set).collect();
        part
    }
}

impl OfferPart {
    fn new(catalog: &Catalog, offered: VisibleModel, protocols: Vec<ProtocolPart>, now: Timestamp) -> Self {
        let (schedule, factor) = (offered.model.spec.price.as_ref(), offered.group.sale_multiplier(&offered.model.spec.name));
        let base = schedule.and_then(|schedule| schedule.at(now));
        let begins = next_begin(&offered.model, now);
        let next = schedule.zip(begins).and_then(|(schedule, begins)| schedule.at(begins));
        let accounts = offered.accounts(catalog, now).map(|(channel, account)| ServingAccount {
            channel: channel.id,
            account: account.id,
            is_on: channel.spec.on && account.spec.on,
        });
        let accounts = accounts.collect();
        Self {
            embeds: offered.embeds(),
            price: show_price(base.map(|price| price.times(factor)), None),
            base_price: show_price(base.cloned(), None),
            next_price: show_price(next.map(|price| price.times(factor)), begins),
            group: offered.group,
            model: offered.model,
            protocols,
            accounts,
        }
    }

    /// Whether it can be used now, according to the health of its accounts.
    pub(super) fn state(&self, gateway: &dyn GatewayHandle) -> OfferState {
        let standing = |it: &ServingAccount| {
            let standing = gateway.standing(it.channel, it.account);
            let is_off = matches!(standing, AccountStanding::Off { .. });
            if it.is_on || is_off { standing } else { AccountStanding::Off { since: None } }
        };
        OfferState::of(&self.accounts.iter().map(standing).collect::<Vec<_>>())
    }
}

/// When the next price of a model takes effect.
fn next_begin(model: &Model, now: Timestamp) -> Option<Timestamp> {
    let begins = model.spec.price.iter().flat_map(|schedule| &schedule.0).filter_map(|scheduled| scheduled.valid_from);
    begins.filter(|begin| *begin > now).min()
}

/// A price as prices are shown everywhere; null: not priced.
pub(crate) fn show_price(price: Option<Price>, valid_from: Option<Timestamp>) -> Value {
    price.map_or(Value::Null, |price| ScheduledPrice { valid_from, price: price.into() }.show())
}

/// The paths to which callers of a protocol send requests for a model. `is_own`: one of the model's upstreams speaks
/// it.
fn endpoints(protocol: Protocol, embeds: bool, is_own: bool) -> Vec<String> {
    let Some(surface) = protocol.spec().caller else { return Vec::new() };
    let names = if embeds { surface.embedding } else { surface.generation };
    let path = |name: &&str| {
        if name.starts_with('/') {
            (*name).to_owned()
        } else {
            // The verb of a native method.
            format!("{}/{{model}}:{name}", surface.model_list_path)
        }
    };
    names.iter().filter(|name| is_own || !surface.own.contains(name)).map(path).collect()
}
