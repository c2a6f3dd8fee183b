//! Offers: a model as a caller gets it, with group, prices, channels and parameters. Requests and model lists share
//! [`offering_groups`], so that they agree.

mod extras;
mod parameters;
mod visibility;

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_protocol::{FieldPath, Method, Protocol, RequestExtras, RequestSummary};

pub(crate) use parameters::{is_structural, matching_fields, names_in, refused};
use visibility::is_permitted;
pub use visibility::{Audience, VisibleModel, offering_groups, permitted_groups, visible_model, visible_models, visible_offers};

use crate::{
    Catalog, Channel, Group, GroupId, Key, MappingRef, Model, Multiplier, OnUnsupported, Provider, Revision, SharedPrice,
    Timestamp, Visibility, price_limit::money_is_bounded,
};

/// An authenticated caller and its effective groups.
#[derive(Clone, Debug)]
pub struct Caller {
    pub key: Arc<Key>,
    /// Effective groups, in the key's order.
    pub groups: SmallVec<[Arc<Group>; 1]>,
}

impl Caller {
    /// The caller of a key. Public groups and private groups granted to the member are effective. A key without groups uses its
    /// member's default group, or else the public group `default`.
    pub fn of(catalog: &Catalog, key: Arc<Key>) -> Self {
        let member = &key.member;
        let permitted = |id: &GroupId| catalog.groups.get(id).filter(|group| is_permitted(group, &member.granted)).cloned();
        let mut groups = SmallVec::<[Arc<Group>; 1]>::with_capacity(key.groups.len());
        for group in key.groups.iter().filter_map(permitted) {
            if !groups.iter().any(|it| it.id == group.id) {
                groups.push(group);
            }
        }
        if key.groups.is_empty() {
            let default = member.default_group.or_else(|| {
                catalog.group_by_name("default").filter(|group| group.visibility == Visibility::Public).map(|group| group.id)
            });
            groups.extend(default.as_ref().and_then(permitted));
        }
        Self { key, groups }
    }

    /// The group that a request is attributed to if it was not served: the first one that offers its model, else the caller's first one.
    pub fn group_of_unserved(&self, catalog: &Catalog, model: Option<&str>) -> Option<Arc<Group>> {
        let offering = model.and_then(|model| offering_groups(catalog, self.into(), model).next());
        offering.or_else(|| self.groups.first()).cloned()
    }
}

/// A model as offered to a caller.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The model's row, or a default row if the catalog has none.
    pub model: Arc<Model>,
    /// The group it is served by; its prices, limits and policies apply.
    pub group: Arc<Group>,
    /// Sale price in effect, before the group's multiplier; `None`: unpriced.
    pub sale: Option<SharedPrice>,
    /// The group's factor on the sale price of this model.
    pub sale_multiplier: Multiplier,
    /// Mappings of the channels that serve it to the group, as positions in the catalog of `revision`.
    pub candidates: Vec<MappingRef>,
    /// Fields to remove from the request, in the caller's spelling: `on_unsupported = "drop"`, and offered searches without a price.
    pub drop_fields: Vec<FieldPath>,
    /// Revision of the catalog it was resolved from; also the price version.
    pub revision: Revision,
}

/// Why a model is not offered to a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOffered {
    /// No channel serves it (E13).
    Unknown,
    /// It exists, but not for this caller (E14).
    OutsideGroup,
    /// It is offered, but for other methods (E15).
    Method {
        /// Native methods and paths for which it is offered.
        supports: Vec<&'static str>,
    },
    /// The request has fields that raise its price, and the caller's money is limited: the model has no price for them, or no context
    /// window that bounds them (E17).
    Unpriced { fields: Vec<FieldPath> },
    /// The request has fields it does not accept (E17), in the caller's spelling.
    Unsupported {
        /// All such fields, in request order.
        fields: Vec<FieldPath>,
    },
}

impl Offer {
    /// True when an output limit may be written into a request.
    pub(crate) fn takes_output_limit(&self, from: Protocol) -> bool {
        let field = from.spec().output_limit_fields[0];
        parameters::refused(&self.model.spec.parameters, from, &[field.to_owned()]).is_empty()
    }
}

/// The extras of a request at the upstreams that serve it.
pub fn upstream_extras(catalog: &Catalog, offer: &Offer, from: Protocol, summary: &RequestSummary) -> RequestExtras {
    let mut channels = offer.candidates.iter().filter_map(|served| catalog.channel_at(served.channel));
    summary.extras.at_upstreams(
        summary.extras.own_search && channels.any(|channel| channel.speaks(from, ModelPurpose::of_method(summary.method))),
    )
}

/// Resolves the offer for a request.
pub fn resolve(
    catalog: &Catalog,
    caller: &Caller,
    summary: &RequestSummary,
    from: Protocol,
    now: Timestamp,
) -> Result<Offer, NotOffered> {
    let name = summary.model.as_str();
    let model = catalog.model(name).ok_or(NotOffered::Unknown)?;
    let group = offering_groups(catalog, caller.into(), name).next().ok_or(NotOffered::OutsideGroup)?.clone();
    let purpose = ModelPurpose::of(catalog, &group, &model);
    if ModelPurpose::of_method(summary.method) != purpose {
        return Err(NotOffered::Method { supports: supports(purpose, &protocols(catalog, &group, name, purpose)) });
    }
    let fields = parameters::refused(&model.spec.parameters, from, &summary.fields);
    let drop_fields = match model.spec.on_unsupported {
        OnUnsupported::Refuse if !fields.is_empty() => return Err(NotOffered::Unsupported { fields }),
        OnUnsupported::Refuse | OnUnsupported::Drop => fields,
    };
    let sale = model.spec.price.as_ref().and_then(|schedule| schedule.shared_at(now)).cloned();
    let candidates = catalog.mappings_for(group.id, name).collect();
    let sale_multiplier = group.sale_multiplier(name);
    let mut offer = Offer { model, group, sale, sale_multiplier, candidates, drop_fields, revision: catalog.revision };
    let is_unpayable =
        |priced: &extras::PricedRequest, offer: &Offer| !priced.unpriced.is_empty() && money_is_bounded(caller, offer);
    let requested = upstream_extras(catalog, &offer, from, summary);
    let mut priced = extras::price(&offer, summary, requested);
    // Agents offer a search with every request and can do without it, so an unpayable search is dropped instead of refused.
    let is_offered = requested.web_search && !summary.offered_searches.is_empty() && summary.method.generates();
    if is_offered
        && (is_unpayable(&priced, &offer)
            || !extras::has_known_cost(catalog, caller, &offer, &priced, (from, summary, requested), now))
    {
        offer.drop_fields.extend(summary.offered_searches.iter().cloned());
        priced = extras::price(&offer, summary, summary.extras.at_upstreams(false));
    }
    if is_unpayable(&priced, &offer) {
        return Err(NotOffered::Unpriced { fields: priced.unpriced });
    }
    offer.sale = priced.sale;
    Ok(offer)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelPurpose {
    /// Generation, token counting and compaction.
    Generation,
    Embedding,
}

impl ModelPurpose {
    pub(crate) const fn of_method(method: Method) -> Self {
        match method {
            Method::Chat | Method::Generate | Method::StreamGenerate | Method::CountTokens | Method::Compact => Self::Generation,
            Method::EmbedContent | Method::BatchEmbedContents | Method::Embeddings => Self::Embedding,
        }
    }

    /// The purpose of a model's row. Echo cannot embed, so a model served only by echo is for generation.
    fn of(catalog: &Catalog, group: &Group, model: &Model) -> Self {
        let embeds = model.spec.embeddings
            && catalog
                .mappings_for(group.id, &model.spec.name)
                .filter_map(|it| catalog.channel_at(it.channel))
                .any(|channel| channel.spec.provider != Provider::Echo);
        if embeds { Self::Embedding } else { Self::Generation }
    }
}

/// Caller protocols that reach a model without translation, in order.
fn protocols(catalog: &Catalog, group: &Group, name: &str, purpose: ModelPurpose) -> Vec<Protocol> {
    let channels = || catalog.mappings_for(group.id, name).filter_map(|it| catalog.channel_at(it.channel));
    Protocol::ALL
        .into_iter()
        .filter(|protocol| protocol.spec().caller.is_some())
        .filter(|protocol| channels().any(|channel| channel.serves_purpose(purpose) && channel.speaks(*protocol, purpose)))
        .collect()
}

/// The methods named by E15: native methods and OpenAI paths, of every protocol of callers, since requests are translated. Methods that
/// are never translated are named only if an upstream speaks one of `protocols`.
pub(crate) fn supports(purpose: ModelPurpose, protocols: &[Protocol]) -> Vec<&'static str> {
    // Gemini verbs come before chat paths.
    let callers = Protocol::ALL.into_iter().rev().filter_map(|protocol| Some((protocol, protocol.spec().caller?)));
    callers
        .flat_map(|(protocol, caller)| {
            let methods = match purpose {
                ModelPurpose::Generation => caller.generation,
                ModelPurpose::Embedding => caller.embedding,
            };
            let is_spoken = protocols.contains(&protocol);
            methods.iter().filter(move |method| is_spoken || !caller.own.contains(method))
        })
        .copied()
        .collect()
}

impl Channel {
    /// True when the channel can serve this purpose at all.
    pub(crate) fn serves_purpose(&self, purpose: ModelPurpose) -> bool {
        match purpose {
            ModelPurpose::Generation => true,
            ModelPurpose::Embedding => {
                self.spec.provider != Provider::Echo && self.spec.protocol.spec().embeddings_protocol.is_some()
            }
        }
    }
}

#[cfg(test)]
mod tests;
