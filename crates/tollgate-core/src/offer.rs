//! The model as this caller gets it: group, prices, channels, parameters. Stage 3 of the path decides here, and so do
//! the model lists: both ask [`offering`].

mod parameters;

use std::sync::Arc;

use tollgate_protocol::{FieldPath, Method, Protocol, RequestSummary};

pub(crate) use parameters::{carrying, structural};

use crate::{
    Catalog, Channel, Glob, Group, GroupId, Key, MappingRef, Model, OnUnsupported, Price, Provider, Revision, Timestamp, Visibility,
};

/// Who asks, with the groups that count.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Key, with its member.
    pub key: Arc<Key>,
    /// Groups in effect, in the key's order.
    pub groups: Vec<Arc<Group>>,
}

impl Caller {
    /// The caller behind a key. Public groups and granted private ones count; a key that names none has its
    /// member's default group, a member without one the public group `default`.
    #[must_use]
    pub fn of(catalog: &Catalog, key: Arc<Key>) -> Self {
        let member = &key.member;
        let permitted = |id: &GroupId| {
            catalog.groups.get(id).filter(|group| group.visibility == Visibility::Public || member.granted.contains(id)).cloned()
        };
        let mut groups: Vec<Arc<Group>> = Vec::with_capacity(key.groups.len().max(1));
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
}

/// A model on a caller's list.
#[derive(Clone, Debug)]
pub struct VisibleModel {
    /// Its row; made up where the catalog has none.
    pub model: Arc<Model>,
    /// The group that serves it to this caller.
    pub group: Arc<Group>,
    /// What it is offered for, native methods.
    pub methods: Vec<Method>,
    /// Caller protocols that reach it without translation, in order.
    pub protocols: Vec<Protocol>,
}

/// A model as a caller gets it.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its row; made up where the catalog has none.
    pub model: Arc<Model>,
    /// The group that serves it: prices, limits and policies are its.
    pub group: Arc<Group>,
    /// Sale list valid now, before the group's multiplier; `None`: not priced.
    pub sale: Option<Price>,
    /// The channels that serve it to this group, as positions in the catalog of `revision`.
    pub candidates: Vec<MappingRef>,
    /// Fields to take out of the request, in the caller's spelling (`on_unsupported = "drop"`).
    pub drop_fields: Vec<FieldPath>,
    /// The snapshot it was resolved from, which is also the price version.
    pub revision: Revision,
}

/// Why a caller does not get a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOffered {
    /// No channel serves it (E13).
    Unknown,
    /// It exists, but not for this caller (E14).
    OutsideGroup,
    /// It is offered, but not for this method (E15).
    Method {
        /// What it is offered for: native verbs and chat paths.
        supports: Vec<&'static str>,
    },
    /// Fields it does not take (E17), in the caller's spelling.
    Unsupported {
        /// All of them, in the order of the request.
        fields: Vec<FieldPath>,
    },
}

impl Offer {
    /// Whether an output limit can be written into a request for it.
    pub(crate) fn takes_output_limit(&self, from: Protocol) -> bool {
        let field = match from {
            Protocol::OpenAi => "max_completion_tokens",
            Protocol::Gemini => "generationConfig.maxOutputTokens",
            Protocol::Anthropic => "max_tokens",
        };
        parameters::refused(&self.model.parameters, from, &[field.to_owned()]).is_empty()
    }
}

/// Everything a caller may list, sorted by name.
#[must_use]
pub fn visible_models(catalog: &Catalog, caller: &Caller) -> Vec<VisibleModel> {
    catalog.mappings_by_model.keys().filter_map(|name| visible_model(catalog, caller, name)).filter(|it| !it.model.hidden).collect()
}

/// One model of the list, hidden ones included: who knows the name may ask for it.
#[must_use]
pub fn visible_model(catalog: &Catalog, caller: &Caller, name: &str) -> Option<VisibleModel> {
    let group = offering(catalog, caller, name)?.clone();
    let model = catalog.model(name)?;
    let purpose = ModelPurpose::of(catalog, &group, &model);
    let protocols = protocols(catalog, &group, name, purpose);
    let methods = match purpose {
        ModelPurpose::Embedding => vec![Method::EmbedContent, Method::BatchEmbedContents],
        ModelPurpose::Generation => vec![Method::Generate, Method::StreamGenerate, Method::CountTokens],
    };
    Some(VisibleModel { model, group, methods, protocols })
}

/// The offer for a request.
///
/// # Errors
/// When the caller does not get the model, not for this method, or not with these fields.
pub fn resolve(
    catalog: &Catalog,
    caller: &Caller,
    summary: &RequestSummary,
    from: Protocol,
    now: Timestamp,
) -> Result<Offer, NotOffered> {
    let name = summary.model.as_str();
    let model = catalog.model(name).ok_or(NotOffered::Unknown)?;
    let group = offering(catalog, caller, name).ok_or(NotOffered::OutsideGroup)?.clone();
    let purpose = ModelPurpose::of(catalog, &group, &model);
    if ModelPurpose::of_method(summary.method) != purpose {
        return Err(NotOffered::Method { supports: supports(purpose, &protocols(catalog, &group, name, purpose)) });
    }
    let fields = parameters::refused(&model.parameters, from, &summary.fields);
    let drop_fields = match model.on_unsupported {
        OnUnsupported::Refuse if !fields.is_empty() => return Err(NotOffered::Unsupported { fields }),
        OnUnsupported::Refuse | OnUnsupported::Drop => fields,
    };
    let sale = model.price.as_ref().and_then(|schedule| schedule.at(now)).cloned();
    let candidates = catalog.mappings_for(group.id, name).collect();
    Ok(Offer { model, group, sale, candidates, drop_fields, revision: catalog.revision })
}

/// The one rule of who sees what: the first of the caller's groups whose patterns and channels have the model, if the
/// key's patterns let it through. Which accounts are there does not count: that is E40, not E13.
fn offering<'a>(catalog: &Catalog, caller: &'a Caller, name: &str) -> Option<&'a Arc<Group>> {
    if !Glob::any(&caller.key.models, name) {
        return None;
    }
    caller.groups.iter().find(|group| Glob::any(&group.models, name) && catalog.mappings_for(group.id, name).next().is_some())
}

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelPurpose {
    /// Generating, and counting what generating would read.
    Generation,
    /// Embedding.
    Embedding,
}

impl ModelPurpose {
    /// What a method wants.
    pub(crate) const fn of_method(method: Method) -> Self {
        match method {
            Method::Chat | Method::Generate | Method::StreamGenerate | Method::CountTokens => Self::Generation,
            Method::EmbedContent | Method::BatchEmbedContents | Method::Embeddings => Self::Embedding,
        }
    }

    /// What a row says; echo never embeds, so a model that only echo serves is for generation whatever its row says.
    fn of(catalog: &Catalog, group: &Group, model: &Model) -> Self {
        let embeds = model.embeddings
            && catalog
                .mappings_for(group.id, &model.name)
                .filter_map(|it| catalog.channel_at(it.channel))
                .any(|channel| channel.provider != Provider::Echo);
        if embeds { Self::Embedding } else { Self::Generation }
    }
}

/// Caller protocols that reach a model without translation, in order.
fn protocols(catalog: &Catalog, group: &Group, name: &str, purpose: ModelPurpose) -> Vec<Protocol> {
    let channels = || catalog.mappings_for(group.id, name).filter_map(|it| catalog.channel_at(it.channel));
    [Protocol::OpenAi, Protocol::Gemini]
        .into_iter()
        .filter(|protocol| channels().any(|channel| channel.serves_purpose(purpose) && channel.speaks(*protocol)))
        .collect()
}

/// What E15 names: native verbs and chat paths on which a model is to be had. All of its kind when none of these
/// protocols is a caller's.
pub(crate) fn supports(purpose: ModelPurpose, protocols: &[Protocol]) -> Vec<&'static str> {
    let (native, chat): (&[&'static str], _) = match purpose {
        ModelPurpose::Generation => (&["generateContent", "streamGenerateContent", "countTokens"], "/v1/chat/completions"),
        ModelPurpose::Embedding => (&["embedContent", "batchEmbedContents"], "/v1/embeddings"),
    };
    let has = |protocol| protocols.contains(&protocol);
    let any = has(Protocol::Gemini) || has(Protocol::OpenAi);
    let mut names = Vec::new();
    if has(Protocol::Gemini) || !any {
        names.extend_from_slice(native);
    }
    if has(Protocol::OpenAi) || !any {
        names.push(chat);
    }
    names
}

impl Channel {
    /// Whether anything of this kind can be asked of it at all.
    pub(crate) fn serves_purpose(&self, purpose: ModelPurpose) -> bool {
        match purpose {
            ModelPurpose::Generation => true,
            ModelPurpose::Embedding => self.provider != Provider::Echo && self.protocol != Protocol::Anthropic,
        }
    }
}

#[cfg(test)]
mod tests;
