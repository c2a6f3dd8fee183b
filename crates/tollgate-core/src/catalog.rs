//! The catalog: the whole configuration as one immutable snapshot.
//!
//! Keys are not part of it because there may be millions of them. They are read one by one through a bounded cache and contain
//! their member.

mod channel;
pub(crate) mod channel_index;
mod glob;
mod identity;
mod routing;
mod sale_multipliers;
mod snapshot;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use indexmap::IndexMap;
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

pub use channel::{Account, AccountSpec, Channel, ChannelSpec, ModelMapping, Provider, Timeouts, TranslationSwitches};
pub use channel_index::CapacityLimits;
pub use identity::{Billing, Key, KeyStatus, Member, MemberStatus, Role};
pub use routing::{Hedge, Routing};
pub use sale_multipliers::{MAX_MODEL_MULTIPLIERS, SaleMultipliers};

use crate::{ChannelId, GroupId, IdHash, NameHash, NanoUsd, PriceSchedule, Revision};

/// One consistent snapshot. Cheap to share, never modified.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    pub revision: Revision,
    /// Channels by id, in order of name.
    pub channels: IndexMap<ChannelId, Arc<Channel>, IdHash>,
    /// Groups by id, in order of name.
    pub groups: IndexMap<GroupId, Arc<Group>, IdHash>,
    /// Prices and facts by public name. A model exists when a channel serves it, with or without an entry here.
    pub models: IndexMap<String, Arc<Model>, NameHash>,
    /// Settings stored in the database: values by name. A flag, an environment variable or the settings file overrides them.
    pub stored_settings: BTreeMap<String, String>,
    /// The channels that serve each public model, in order of channel name. Derived.
    pub mappings_by_model: IndexMap<String, Vec<MappingRef>, NameHash>,
    /// Bit set of the positions of the channels each group may use. Derived.
    reach: HashMap<GroupId, Box<[u64]>, IdHash>,
    /// True if every request for every model costs money. Derived.
    pub sells_nothing_free: bool,
    /// Compact copy of the fields that routing reads. Derived.
    pub(crate) channel_index: channel_index::ChannelIndex,
}

/// A channel's mapping of a model, as positions within one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MappingRef {
    /// Position in [`Catalog::channels`].
    pub channel: u32,
    /// Position in [`ChannelSpec::serves`].
    pub mapping: u32,
}

/// Where a row is managed: in a served catalog file or in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// In the catalog file; read-only for console and CLI.
    File,
    /// In the database; editable by console and CLI.
    Database,
}

/// A public model: prices and facts.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Where the row is managed; `None` for the default row of a served model without one.
    pub owner: Option<Owner>,
    pub spec: ModelSpec,
}

/// Settings of a public model. The store's table `fields::offer` describes each field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSpec {
    pub name: String,
    /// Sale price before the group's multiplier; `None`: unpriced.
    pub price: Option<PriceSchedule>,
    pub context: Option<u64>,
    pub max_output: Option<u64>,
    pub parameters: ParameterRule,
    pub on_unsupported: OnUnsupported,
    /// Omitted from model lists; still usable by name.
    pub hidden: bool,
    pub description: Option<String>,
    /// `true`: for embedding methods only; `false`: for generation and token counting.
    pub embeddings: bool,
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Company that made the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Empty: not stated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_modalities: Vec<Modality>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_modalities: Vec<Modality>,
    /// Its future, as shown in the model square.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub badge: Option<ModelBadge>,
}

/// A remark about a model for callers who choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelBadge {
    /// It will be removed; another model should be used.
    Deprecated,
    /// It is offered for some time or in small amounts only.
    Limited,
}

/// A kind of content that a model reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    Text,
    Image,
    Audio,
    Video,
    Document,
}

/// Which optional request fields a model accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParameterRule {
    #[default]
    All,
    Only(Vec<String>),
    Except(Vec<String>),
}

/// Handling of a request field that the model does not accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnsupported {
    /// The request is refused with 400 and names the field.
    #[default]
    Refuse,
    /// The field is removed and listed in `x-tollgate-dropped`.
    Drop,
}

/// A group of keys: it decides their models, channels, price multiplier, limits and policies.
#[derive(Clone, Debug)]
pub struct Group {
    pub id: GroupId,
    /// Name; unique.
    pub name: String,
    /// Description for callers who choose a group.
    pub description: Option<String>,
    /// Where the row is managed.
    pub owner: Owner,
    /// Every member may use public groups; private ones are granted.
    pub visibility: Visibility,
    pub channels: Vec<ChannelId>,
    pub models: Vec<Glob>,
    /// Factors on sale prices; [`Group::sale_multiplier`] is that of a model.
    pub multipliers: SaleMultipliers,
    /// Handling of parameters that another protocol cannot express.
    pub translation: TranslationPolicy,
    /// True to carry thought signatures in the ids of tool calls, for clients that drop unknown members.
    pub signatures_in_ids: bool,
    /// Price of an interrupted answer.
    pub stream_break: StreamBreak,
    /// Restricts channels by price.
    pub price_limit: Option<PriceLimit>,
    /// True to exclude accounts on which any kind of token would be sold below its cost.
    pub never_below_cost: bool,
    pub routing: Routing,
    /// Hedging: a second attempt when the first token is late; `None`: off.
    pub hedge: Option<Hedge>,
    /// True to let callers see how accounts were chosen for their requests (`x-tollgate-trace`).
    pub trace: bool,
    /// True to store the bodies and answers of its requests, where contents are stored at all.
    pub log_contents: bool,
    pub limits: Limits,
    /// Budgets on the sale price.
    pub budgets: Vec<Budget>,
}

impl Group {
    /// A public group without limits that offers everything its channels serve.
    #[must_use]
    pub fn new(id: GroupId, name: &str, channels: Vec<ChannelId>) -> Self {
        Self {
            id,
            name: name.to_owned(),
            description: None,
            owner: Owner::Database,
            visibility: Visibility::Public,
            channels,
            models: vec![Glob("*".to_owned())],
            multipliers: SaleMultipliers::default(),
            translation: TranslationPolicy::Strict,
            signatures_in_ids: true,
            stream_break: StreamBreak::Delivered,
            price_limit: None,
            never_below_cost: false,
            routing: Routing::Weighted,
            hedge: None,
            trace: false,
            log_contents: false,
            limits: Limits::default(),
            budgets: Vec::new(),
        }
    }
}

/// Visibility of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    #[default]
    Public,
    /// Only members it was granted to.
    Private,
}

/// Handling of parameters that cannot be translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TranslationPolicy {
    /// The request is refused and names them.
    #[default]
    Strict,
    /// The parameters are dropped and listed.
    Lenient,
}

/// Price of an interrupted answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum StreamBreak {
    /// The usage the upstream reported, else as `Delivered`.
    #[n(0)]
    ProviderUsage,
    /// The input plus the output sent to the caller.
    #[default]
    #[n(1)]
    Delivered,
    /// Free if no content reached the caller, otherwise like `Delivered`.
    #[n(2)]
    NoneIfEmpty,
}

/// Rate limits; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub rpm: u32,
    pub tpm: u64,
    pub concurrency: u32,
}

/// A limit on the money of a subject within a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub amount: NanoUsd,
    pub window: Window,
    pub action: BudgetAction,
}

/// The period of a budget; days and months are those of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    Day,
    Month,
    Total,
}

/// What happens when a budget is spent: requests are refused (E32, E33), or an alert is raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetAction {
    #[default]
    Block,
    Alert,
}

/// Restricts channels by price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PriceLimit {
    pub mode: PriceLimitMode,
    pub on: PriceLimitOn,
}

impl PriceLimit {
    /// True if the limit depends on the cost price.
    #[must_use]
    pub const fn is_about_cost(&self) -> bool {
        matches!(self.on, PriceLimitOn::Cost) || matches!(self.mode, PriceLimitMode::MinMargin(_))
    }
}

/// The rule of a price limit; figures in nano-USD per million tokens, margin in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceLimitMode {
    /// The price must be known.
    PricedOnly,
    /// Prices must not exceed these bounds.
    Ceiling {
        /// Highest input price; absent: unbounded.
        max_input: Option<i64>,
        /// Highest output price; absent: unbounded.
        max_output: Option<i64>,
    },
    /// Lowest accepted (sale - cost) / sale.
    MinMargin(i64),
}

/// The price that a bound of a price limit is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PriceLimitOn {
    /// Price for the caller.
    #[default]
    Sale,
    /// Price of the provider.
    Cost,
}

/// A pattern of `*` and `?`, case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Glob(pub String);
