//! Building a snapshot and looking up its rows.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use indexmap::IndexMap;
use tollgate_protocol::{Method, Protocol};

use super::{Catalog, Channel, Group, MappingRef, Model, Provider, channel_index::ChannelIndex};
use crate::{Account, AccountId, ChannelId, GroupId, IdHash, ModelSpec, NameHash, Price, Revision, offer::ModelPurpose};

impl Catalog {
    /// Builds a snapshot of these rows, sorted by name, with its indexes. Channel ids of a group that match no row are ignored;
    /// of several rows with the same id or model name the last one wins.
    pub fn from_parts(revision: Revision, channels: Vec<Channel>, groups: Vec<Group>, models: Vec<Model>) -> Self {
        let mut channels = channels;
        let mut groups = groups;
        let mut models = models;
        channels.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        models.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        let channels: IndexMap<ChannelId, Arc<Channel>, IdHash> = channels.into_iter().map(|row| (row.id, Arc::new(row))).collect();
        let groups: IndexMap<GroupId, Arc<Group>, IdHash> = groups.into_iter().map(|row| (row.id, Arc::new(row))).collect();
        let models: IndexMap<String, Arc<Model>, NameHash> =
            models.into_iter().map(|row| (row.spec.name.clone(), Arc::new(row))).collect();
        let mappings_by_model = index_mappings(&channels);
        let sells_nothing_free = groups.values().all(|group| group.multipliers.are_positive())
            && mappings_by_model.keys().all(|model| models.get(model).is_some_and(|model| always_costs(model)));
        let reach = groups.values().map(|group| (group.id, reach(group, &channels))).collect();
        let channel_index = ChannelIndex::of(&channels);
        Self {
            revision,
            channels,
            groups,
            models,
            stored_settings: BTreeMap::new(),
            mappings_by_model,
            reach,
            sells_nothing_free,
            channel_index,
        }
    }

    /// This snapshot with other stored settings.
    #[must_use]
    pub fn with_stored_settings(self, stored_settings: BTreeMap<String, String>) -> Self {
        Self { stored_settings, ..self }
    }

    pub fn channel_by_name(&self, name: &str) -> Option<&Arc<Channel>> {
        by_name(&self.channels, name, |channel| &channel.spec.name)
    }

    pub fn group_by_name(&self, name: &str) -> Option<&Arc<Group>> {
        by_name(&self.groups, name, |group| &group.name)
    }

    /// The channel at a [`MappingRef::channel`] position.
    pub fn channel_at(&self, position: u32) -> Option<&Arc<Channel>> {
        self.channels.get_index(position as usize).map(|(_, channel)| channel)
    }

    pub fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.channels.values().flat_map(|channel| &channel.accounts)
    }

    /// Finds an account and its channel by id. Scans all channels; not for the request path.
    pub fn account(&self, id: AccountId) -> Option<(&Arc<Channel>, &Arc<Account>)> {
        self.channels.values().find_map(|channel| channel.accounts.iter().find(|it| it.id == id).map(|it| (channel, it)))
    }

    /// The row of a served model, or a default row (unpriced, accepts everything) when there is none. `None` when no channel
    /// serves it.
    pub fn model(&self, name: &str) -> Option<Arc<Model>> {
        self.mappings_by_model.get(name)?;
        Some(self.models.get(name).cloned().unwrap_or_else(|| {
            Arc::new(Model { spec: ModelSpec { name: name.to_owned(), ..ModelSpec::default() }, ..Model::default() })
        }))
    }

    /// The channels through which a group gets a model, regardless of its model patterns.
    pub(crate) fn mappings_for<'a>(&'a self, group: GroupId, model: &str) -> impl Iterator<Item = MappingRef> + 'a {
        let bits: &[u64] = self.reach.get(&group).map_or(&[], |bits| bits);
        let all: &[MappingRef] = self.mappings_by_model.get(model).map_or(&[], Vec::as_slice);
        all.iter().copied().filter(move |it| bit(bits, it.channel))
    }
}

impl Channel {
    /// True when it accepts requests of this protocol untranslated. Echo speaks several protocols.
    pub(crate) fn speaks(&self, protocol: Protocol, purpose: ModelPurpose) -> bool {
        self.protocol_for(protocol, purpose) == protocol
    }

    /// The protocol in which the channel is called for a caller of this protocol.
    pub(crate) fn protocol_for(&self, caller: Protocol, purpose: ModelPurpose) -> Protocol {
        if self.spec.provider == Provider::Echo && caller.spec().echoes { caller } else { self.protocol_of(purpose) }
    }

    /// The protocol that requests of a method are translated to. Embeddings use another protocol if the channel's own has no embeddings.
    pub fn upstream_protocol(&self, method: Method) -> Protocol {
        self.protocol_of(ModelPurpose::of_method(method))
    }

    pub(crate) fn protocol_of(&self, purpose: ModelPurpose) -> Protocol {
        let own = self.spec.protocol;
        match purpose {
            ModelPurpose::Generation => own,
            ModelPurpose::Embedding => own.spec().embeddings_protocol.unwrap_or(own),
        }
    }
}

fn by_name<'a, I, T>(rows: &'a IndexMap<I, Arc<T>, IdHash>, name: &str, key: impl Fn(&T) -> &String) -> Option<&'a Arc<T>> {
    let at = rows.binary_search_by(|_, row| key(row).as_str().cmp(name)).ok();
    // Rows with duplicate ids may be out of order; fall back to a scan.
    at.and_then(|at| rows.get_index(at).map(|(_, row)| row)).or_else(|| rows.values().find(|row| key(row) == name))
}

fn index_mappings(channels: &IndexMap<ChannelId, Arc<Channel>, IdHash>) -> IndexMap<String, Vec<MappingRef>, NameHash> {
    let mut index: IndexMap<String, Vec<MappingRef>, NameHash> = IndexMap::default();
    for (channel, row) in (0u32..).zip(channels.values()) {
        let mut seen: HashSet<&str> = HashSet::new();
        for (position, mapping) in (0u32..).zip(&row.spec.serves) {
            if seen.insert(&mapping.model) {
                index.entry(mapping.model.clone()).or_default().push(MappingRef { channel, mapping: position });
            }
        }
    }
    index.sort_unstable_keys();
    index
}

fn reach(group: &Group, channels: &IndexMap<ChannelId, Arc<Channel>, IdHash>) -> Box<[u64]> {
    let mut bits = vec![0u64; channels.len().div_ceil(64)];
    for position in group.channels.iter().filter_map(|id| channels.get_index_of(id)) {
        bits[position / 64] |= 1 << (position % 64);
    }
    bits.into_boxed_slice()
}

fn bit(bits: &[u64], position: u32) -> bool {
    bits.get(position as usize / 64).is_some_and(|word| word >> (position % 64) & 1 == 1)
}

/// True if a request for the model costs money at any time: some price has no start, and no price has free input.
fn always_costs(model: &Model) -> bool {
    model.spec.price.as_ref().is_some_and(|schedule| {
        let costs = |price: &Price| price.input.is_some_and(|input| input > 0);
        schedule.0.iter().any(|scheduled| scheduled.valid_from.is_none())
            && schedule.0.iter().all(|scheduled| {
                // A tier without an input price has that of the list.
                costs(&scheduled.price) && scheduled.price.tiers.iter().all(|tier| tier.price.input != Some(0))
            })
    })
}

#[cfg(test)]
mod tests;
