//! The offers of groups before and after a batch. The difference is written to the history of offers, in the batch's transaction.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, de::DeserializeOwned};
use tollgate_core::{Glob, GroupId, Multiplier, Revision, SaleMultipliers};

use super::Batch;
use crate::{OfferChange, OfferChangeKind, RowKind, StoreError, rows::CatalogRow};

/// The rows of a batch that determine what groups offer, by id.
#[derive(Debug, Default)]
pub(super) struct ChangedOffers(HashMap<String, ChangedOfferRow>);

#[derive(Debug)]
struct ChangedOfferRow {
    kind: RowKind,
    name: String,
    /// The row's text before the batch and now; `None` if the row does not exist.
    before: Option<String>,
    after: Option<String>,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(default)]
struct ChannelPart {
    serves: Vec<ServedModel>,
}

#[derive(PartialEq, Deserialize)]
struct ServedModel {
    model: String,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(default)]
struct GroupPart {
    channels: Vec<String>,
    models: Vec<Glob>,
    sale_multiplier: Multiplier,
    model_multipliers: BTreeMap<Glob, Multiplier>,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(default)]
struct ModelPart {
    hidden: bool,
}

impl ChangedOffers {
    /// Notes a change of a row.
    pub(super) fn note(&mut self, row: &CatalogRow, before: Option<&str>, after: Option<&str>) {
        if matches!(row.kind, RowKind::Channel | RowKind::Group | RowKind::Model) {
            let (kind, name) = (row.kind, row.name.clone());
            let first = || ChangedOfferRow { kind, name, before: before.map(str::to_owned), after: None };
            self.0.entry(row.id.clone()).or_insert_with(first).after = after.map(str::to_owned);
        }
    }
}

/// The part of a row's text that determines offers; the default for a row that does not exist. An unreadable row offers
/// nothing; loading the catalog reports it.
fn part<T: Default + DeserializeOwned>(spec: Option<&str>) -> T {
    spec.and_then(|spec| serde_json::from_str(spec).ok()).unwrap_or_default()
}

fn differs(kind: RowKind, before: Option<&str>, after: Option<&str>) -> bool {
    match kind {
        RowKind::Channel => part::<ChannelPart>(before) != part::<ChannelPart>(after),
        RowKind::Group => part::<GroupPart>(before) != part::<GroupPart>(after),
        RowKind::Model => part::<ModelPart>(before) != part::<ModelPart>(after),
        RowKind::Account | RowKind::Member | RowKind::Key | RowKind::AdminKey | RowKind::Setting | RowKind::AlertDestination => {
            false
        }
    }
}

/// The rows that determine offers: id, name and text.
#[derive(Clone, Default)]
struct OfferRows {
    channels: BTreeMap<String, (String, String)>,
    groups: BTreeMap<String, (String, String)>,
    models: BTreeMap<String, (String, String)>,
}

impl OfferRows {
    fn of(&mut self, kind: RowKind) -> Option<&mut BTreeMap<String, (String, String)>> {
        match kind {
            RowKind::Channel => Some(&mut self.channels),
            RowKind::Group => Some(&mut self.groups),
            RowKind::Model => Some(&mut self.models),
            RowKind::Account
            | RowKind::Member
            | RowKind::Key
            | RowKind::AdminKey
            | RowKind::Setting
            | RowKind::AlertDestination => None,
        }
    }

    /// The models that each group lists, and its multipliers, by the group's id.
    fn offers(&self) -> BTreeMap<&str, (BTreeSet<String>, SaleMultipliers)> {
        let served: HashMap<&str, Vec<String>> = self
            .channels
            .values()
            .map(|(name, spec)| {
                let serves = part::<ChannelPart>(Some(spec)).serves;
                (name.as_str(), serves.into_iter().map(|served| served.model).collect())
            })
            .collect();
        let hidden: BTreeSet<&str> =
            self.models.values().filter(|(_, spec)| part::<ModelPart>(Some(spec)).hidden).map(|(name, _)| name.as_str()).collect();
        let offered = |spec: &str| {
            let group: GroupPart = part(Some(spec));
            let models = group.channels.iter().filter_map(|channel| served.get(channel.as_str())).flatten();
            let listed = models.filter(|model| Glob::any(&group.models, model) && !hidden.contains(model.as_str()));
            (listed.cloned().collect(), SaleMultipliers::new(group.sale_multiplier, group.model_multipliers))
        };
        self.groups.iter().map(|(id, (_, spec))| (id.as_str(), offered(spec))).collect()
    }
}

impl Batch<'_> {
    /// The changes of offers that the batch makes. Reads the rows that determine them only if one of them changed.
    pub(super) async fn offer_changes(&mut self) -> Result<Vec<OfferChange>, StoreError> {
        let changed = std::mem::take(&mut self.changed_offers.0);
        if !changed.values().any(|row| differs(row.kind, row.before.as_deref(), row.after.as_deref())) {
            return Ok(Vec::new());
        }
        let mut after = OfferRows::default();
        for kind in [RowKind::Channel, RowKind::Group, RowKind::Model] {
            let rows = self.rows.list(kind, None).await?;
            if let Some(map) = after.of(kind) {
                map.extend(rows.into_iter().map(|row| (row.id, (row.name, row.spec))));
            }
        }
        let mut before = after.clone();
        for (id, ChangedOfferRow { kind, name, before: spec, .. }) in changed {
            let Some(map) = before.of(kind) else { continue };
            match spec {
                Some(spec) => drop(map.insert(id, (name, spec))),
                None => drop(map.remove(&id)),
            }
        }
        Ok(self.differences(&before, &after))
    }

    fn differences(&self, before: &OfferRows, after: &OfferRows) -> Vec<OfferChange> {
        let nothing = (BTreeSet::new(), SaleMultipliers::default());
        let (before, after) = (before.offers(), after.offers());
        let groups: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
        let mut changes = Vec::new();
        for id in groups {
            let Some(group) = GroupId::parse(id) else { continue };
            let (old, new) = (before.get(id), after.get(id));
            let ((old_models, old_factors), (new_models, new_factors)) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
            let removed = old_models.difference(new_models).cloned().map(OfferChangeKind::Removed);
            let added = new_models.difference(old_models).cloned().map(OfferChangeKind::Added);
            let kept = (old.is_some() && new.is_some()).then(|| old_models.intersection(new_models));
            let repriced = kept.into_iter().flat_map(|kept| factor_changes(kept, old_factors, new_factors));
            let all = removed.chain(added).chain(repriced);
            let revision = Revision(self.revision.0 + 1);
            changes.extend(all.map(|what| OfferChange { revision, at: self.now, group, what }));
        }
        changes
    }
}

/// The changes of a group's factor, and of the factors of `kept` models that do not follow from it.
fn factor_changes<'a>(
    kept: impl Iterator<Item = &'a String>,
    old: &'a SaleMultipliers,
    new: &'a SaleMultipliers,
) -> impl Iterator<Item = OfferChangeKind> {
    let of_group = (old.of_group(), new.of_group());
    let change = |model: Option<String>, (before, after): (Multiplier, Multiplier)| {
        (before != after).then_some(OfferChangeKind::Multiplier { model, before, after })
    };
    let of_models = kept.filter_map(move |model| {
        let of_model = (old.of(model), new.of(model));
        change(Some(model.clone()), of_model).filter(|_| of_model != of_group)
    });
    change(None, of_group).into_iter().chain(of_models)
}
