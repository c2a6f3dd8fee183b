//! Visibility: which models an audience sees, and in which groups. Model lists, the model square, its feeds and routing all ask
//! [`offering_groups`], so that they agree.

use std::sync::Arc;

use tollgate_protocol::{Method, Protocol};

use super::{Caller, ModelPurpose, protocols};
use crate::{
    Account, Catalog, Channel, Glob, Group, GroupId, Model, Timestamp, Visibility, cost_of,
    price_limit::{EffectivePrice, PriceBasis, PriceRules},
};

/// The viewers of a model list: a caller, or visitors without a key.
#[derive(Clone, Copy, Debug)]
pub struct Audience<'a> {
    /// The groups of the audience, in order of preference.
    pub groups: &'a [Arc<Group>],
    /// Patterns of the models it may use; none: all.
    pub models: &'a [Glob],
    /// Patterns of models that it may not use, although `models` allows them.
    pub models_deny: &'a [Glob],
}

impl<'a> From<&'a Caller> for Audience<'a> {
    fn from(caller: &'a Caller) -> Self {
        Self { groups: &caller.groups, models: &caller.key.models, models_deny: &caller.key.models_deny }
    }
}

impl<'a> Audience<'a> {
    /// All viewers of these groups, without restriction to models.
    pub const fn of_groups(groups: &'a [Arc<Group>]) -> Self {
        Self { groups, models: &[], models_deny: &[] }
    }

    /// Whether its patterns allow a model.
    pub fn may_use(&self, model: &str) -> bool {
        Glob::any(self.models, model) && !self.models_deny.iter().any(|denied| denied.matches(model))
    }
}

/// True if a member who was granted these groups may use `group`. Public groups are open to every member.
pub(super) fn is_permitted(group: &Group, granted: &[GroupId]) -> bool {
    group.visibility == Visibility::Public || granted.contains(&group.id)
}

/// The groups that members who were granted these ones may use, in order of name. Visitors without a key are granted none.
pub fn permitted_groups(catalog: &Catalog, granted: &[GroupId]) -> Vec<Arc<Group>> {
    catalog.groups.values().filter(|group| is_permitted(group, granted)).cloned().collect()
}

/// The visibility rule: the groups of an audience whose model patterns and channels include the model, if its own patterns allow
/// the model. Requests are served by the first one. Accounts do not matter here: their absence is E40, not E13.
pub fn offering_groups<'a>(
    catalog: &'a Catalog,
    audience: Audience<'a>,
    name: &'a str,
) -> impl Iterator<Item = &'a Arc<Group>> + use<'a> {
    let groups = if audience.may_use(name) { audience.groups } else { &[] };
    groups.iter().filter(move |group| Glob::any(&group.models, name) && catalog.mappings_for(group.id, name).next().is_some())
}

/// A model as a group offers it.
#[derive(Clone, Debug)]
pub struct VisibleModel {
    /// The model's row, or a default row if the catalog has none.
    pub model: Arc<Model>,
    pub group: Arc<Group>,
    /// Methods it is offered for, as native methods.
    pub methods: Vec<Method>,
    /// Caller protocols that reach it without translation.
    pub protocols: Vec<Protocol>,
}

impl VisibleModel {
    /// Whether it is offered for embeddings instead of generation.
    pub fn embeds(&self) -> bool {
        self.methods.contains(&Method::EmbedContent)
    }

    /// The channels through which the group gets it, in order of name.
    pub fn channels<'a>(&'a self, catalog: &'a Catalog) -> impl Iterator<Item = &'a Arc<Channel>> {
        self.serving(catalog).map(|(channel, _)| channel)
    }

    /// These channels, each with the position of its mapping of the model.
    fn serving<'a>(&'a self, catalog: &'a Catalog) -> impl Iterator<Item = (&'a Arc<Channel>, usize)> {
        let purpose = if self.embeds() { ModelPurpose::Embedding } else { ModelPurpose::Generation };
        let positions = catalog.mappings_for(self.group.id, &self.model.spec.name);
        let serving = positions.filter_map(|it| Some((catalog.channel_at(it.channel)?, it.mapping as usize)));
        serving.filter(move |(channel, _)| channel.serves_purpose(purpose))
    }

    /// The accounts of these channels, without those that the group's own price limit excludes.
    pub fn accounts<'a>(
        &'a self,
        catalog: &'a Catalog,
        now: Timestamp,
    ) -> impl Iterator<Item = (&'a Arc<Channel>, &'a Arc<Account>)> {
        let basis = PriceBasis { has_output: !self.embeds(), ..PriceBasis::SHORTEST };
        let model = &self.model.spec;
        let sale = model.price.as_ref().and_then(|schedule| schedule.at(now));
        let rules = PriceRules::of_group(&self.group, sale, basis, self.group.sale_multiplier(&model.name));
        let is_sold = rules.sale_exclusion().is_none();
        let serving = self.serving(catalog).filter(move |_| is_sold);
        let accounts =
            serving.flat_map(|(channel, mapping)| channel.accounts.iter().map(move |account| (channel, mapping, account)));
        accounts.filter_map(move |(channel, mapping, account)| {
            if rules.applies_to_cost() {
                let cost = cost_of(channel, mapping, now);
                let cost = cost.map(|price| EffectivePrice::of(&price, basis, account.spec.cost_multiplier));
                return rules.cost_exclusion(cost).is_none().then_some((channel, account));
            }
            Some((channel, account))
        })
    }

    fn of(catalog: &Catalog, group: &Arc<Group>, name: &str) -> Option<Self> {
        let model = catalog.model(name)?;
        let purpose = ModelPurpose::of(catalog, group, &model);
        let protocols = protocols(catalog, group, name, purpose);
        let methods = match purpose {
            ModelPurpose::Embedding => vec![Method::EmbedContent, Method::BatchEmbedContents],
            ModelPurpose::Generation => vec![Method::Generate, Method::StreamGenerate, Method::CountTokens],
        };
        Some(Self { model, group: Arc::clone(group), methods, protocols })
    }
}

/// All models an audience may list, sorted by name, each as the group offers it that serves its requests.
pub fn visible_models<'a>(catalog: &'a Catalog, audience: impl Into<Audience<'a>>) -> Vec<VisibleModel> {
    let audience = audience.into();
    let names = listed_names(catalog);
    names.filter_map(|name| visible_model(catalog, audience, name)).collect()
}

/// All models an audience may list, sorted by name, once for each of its groups that offers them, the one that serves requests
/// first.
pub fn visible_offers<'a>(catalog: &'a Catalog, audience: impl Into<Audience<'a>>) -> Vec<VisibleModel> {
    let audience = audience.into();
    listed_names(catalog)
        .flat_map(|name| offering_groups(catalog, audience, name).filter_map(move |group| VisibleModel::of(catalog, group, name)))
        .collect()
}

/// One model, including hidden ones, which are usable by name, as the group offers it that serves its requests.
pub fn visible_model<'a>(catalog: &'a Catalog, audience: impl Into<Audience<'a>>, name: &'a str) -> Option<VisibleModel> {
    let group = offering_groups(catalog, audience.into(), name).next()?;
    VisibleModel::of(catalog, group, name)
}

/// The served models that lists may show, in order of name.
fn listed_names(catalog: &Catalog) -> impl Iterator<Item = &str> {
    let names = catalog.mappings_by_model.keys().map(String::as_str);
    names.filter(|name| catalog.models.get(*name).is_none_or(|model| !model.spec.hidden))
}
