//! The history of prices: each change of a model's sale price or of a channel's cost, with its author and, for an
//! imported price, its source.

use std::collections::BTreeMap;

use serde::Deserialize;
use tollgate_core::{ModelMapping, PriceSchedule, Revision, Timestamp};

use crate::RowKind;

/// One change of a price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceChange {
    pub revision: Revision,
    pub at: Timestamp,
    /// Interface the change came through: a name of [`ChangeOrigin::as_str`](crate::ChangeOrigin::as_str).
    pub origin: String,
    /// Name of the [`Actor`](crate::Actor).
    pub actor: String,
    pub model: String,
    /// The channel whose cost it is; `None`: the sale price.
    pub channel: Option<String>,
    /// The list it was imported from; `None`: set by hand.
    pub source: Option<String>,
    /// `None`: not priced. Equal to `after` when only the source changed.
    pub before: Option<PriceSchedule>,
    pub after: Option<PriceSchedule>,
}

impl PriceChange {
    pub(crate) fn is_of(&self, model: &str, channel: Option<&str>) -> bool {
        self.model == model && self.channel.as_deref() == channel
    }

    /// The price after this change, if it was imported.
    pub(crate) fn imported(&self) -> Option<ImportedPrice> {
        let source = self.source.clone()?;
        Some(ImportedPrice { model: self.model.clone(), channel: self.channel.clone(), source, at: self.at })
    }
}

/// A price that was imported and not set by hand since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedPrice {
    pub model: String,
    /// The channel whose cost it is; `None`: the sale price.
    pub channel: Option<String>,
    pub source: String,
    /// Time of the import.
    pub at: Timestamp,
}

/// Selects changes of prices, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceHistoryFilter {
    /// Only changes of this model's prices.
    pub model: Option<String>,
    /// Only changes of this channel's cost.
    pub channel: Option<String>,
    pub before: Option<PriceHistoryPosition>,
    /// Maximum number of changes; capped at 1,001, one more than the largest page.
    pub limit: u32,
}

impl PriceHistoryFilter {
    pub(crate) fn selects(&self, change: &PriceChange) -> bool {
        self.model.as_ref().is_none_or(|model| change.model == *model)
            && self.channel.as_ref().is_none_or(|channel| change.channel.as_ref() == Some(channel))
    }

    pub(crate) fn size(&self) -> usize {
        self.limit.min(1_001) as usize
    }
}

/// The position of a change in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriceHistoryPosition {
    pub revision: Revision,
    pub position: i64,
}

/// The prices of a stored row by model: the sale price of a model's row, or the costs of a channel's.
pub(crate) fn prices_of(kind: RowKind, name: &str, spec: Option<&str>) -> BTreeMap<String, PriceSchedule> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Priced {
        price: Option<PriceSchedule>,
        serves: Vec<ModelMapping>,
    }
    // A row that cannot be read has no prices to compare; other code reports its change.
    let read: Priced = spec.and_then(|spec| serde_json::from_str(spec).ok()).unwrap_or_default();
    match kind {
        RowKind::Model => read.price.map(|price| (name.to_owned(), price)).into_iter().collect(),
        RowKind::Channel => read.serves.into_iter().filter_map(|mapping| Some((mapping.model, mapping.cost?))).collect(),
        RowKind::Account
        | RowKind::Group
        | RowKind::Member
        | RowKind::Key
        | RowKind::AdminKey
        | RowKind::Setting
        | RowKind::AlertDestination => BTreeMap::new(),
    }
}
