//! The catalog: everything that is configured, as one immutable snapshot.
//!
//! Keys are not in it, since they may number millions; they come one by one through a bounded cache and carry
//! their member with them.

mod channel;
pub(crate) mod channel_index;
mod glob;
mod identity;
mod routing;
mod snapshot;

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

pub use channel::{Account, Channel, ModelMapping, Provider, Timeouts, TranslationSwitches};
pub use channel_index::AccountLimits;
pub use identity::{Billing, Key, KeyStatus, Member, MemberStatus, Role};
pub use routing::{Hedge, Routing};

use crate::{ChannelId, GroupId, Multiplier, NanoUsd, PriceSchedule, Revision};

/// One consistent snapshot. Cheap to share, never changed.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The change it contains last.
    pub revision: Revision,
    /// By id; insertion order is order of name.
    pub channels: IndexMap<ChannelId, Arc<Channel>>,
    /// By id.
    pub groups: IndexMap<GroupId, Arc<Group>>,
    /// Prices and facts, by public name. A model exists when a channel serves it, with or without a row here.
    pub models: IndexMap<String, Arc<Model>>,
    /// Which channels serve a model, by public name, in order of name. Built with the snapshot.
    pub mappings_by_model: IndexMap<String, Vec<MappingRef>>,
    /// Positions of the channels a group may use, one bit each. Built with the snapshot.
    reach: HashMap<GroupId, Box<[u64]>>,
    /// What choosing reads of channels and accounts. Built with the snapshot.
    pub(crate) channel_index: channel_index::ChannelIndex,
}

/// One channel that serves a model, as positions in the snapshot it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MappingRef {
    /// Position in [`Catalog::channels`].
    pub channel: u32,
    /// Position in [`Channel::mappings`].
    pub mapping: u32,
}

/// Who owns a row: a served catalog file, or the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// Read-only in console and CLI.
    File,
    /// Changed by console and CLI.
    Database,
}

/// Prices and facts of a public model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Public name.
    pub name: String,
    /// Who owns the row; `None` only for rows made up for a served model without one.
    pub owner: Option<Owner>,
    /// What callers pay before the group's multiplier; `None`: not priced.
    pub price: Option<PriceSchedule>,
    /// Context length in tokens.
    pub context: Option<u64>,
    /// Most output tokens.
    pub max_output: Option<u64>,
    /// Which parameters it takes, in chat names or native paths.
    pub parameters: ParameterRule,
    /// What happens with one it does not take.
    pub on_unsupported: OnUnsupported,
    /// Left out of lists and of the model square; who knows the name can use it.
    pub hidden: bool,
    /// One line about it.
    pub description: Option<String>,
    /// `true`: offered for embedding methods only; `false`: for generation and token counting.
    pub embeddings: bool,
}

/// Which optional fields a model takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParameterRule {
    /// Everything.
    #[default]
    All,
    /// Only these.
    Only(Vec<String>),
    /// All but these.
    Except(Vec<String>),
}

/// What happens with a field a model does not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnsupported {
    /// 400 by name.
    #[default]
    Refuse,
    /// Taken out and named in `x-tollgate-dropped`.
    Drop,
}

/// Decides models, channels, price multiplier, limits and policies.
#[derive(Clone, Debug)]
pub struct Group {
    /// Id.
    pub id: GroupId,
    /// Name; unique.
    pub name: String,
    /// Who owns the row.
    pub owner: Owner,
    /// Public groups show on the model square without signing in.
    pub visibility: Visibility,
    /// Channels it may use.
    pub channels: Vec<ChannelId>,
    /// Which of the channels' models it offers; empty: all of them.
    pub models: Vec<Glob>,
    /// Factor on sale prices.
    pub sale_multiplier: Multiplier,
    /// What happens with what another protocol cannot express.
    pub translation: TranslationPolicy,
    /// Whether thought signatures travel behind the ids of tool calls, for callers that drop members they do not know.
    pub signatures_in_ids: bool,
    /// What a broken answer costs.
    pub stream_break: StreamBreak,
    /// Which channels are accepted by price.
    pub price_limit: Option<PriceLimit>,
    /// What orders usable accounts.
    pub routing: Routing,
    /// A second attempt where the first token is late; `None`: off.
    pub hedge: Option<Hedge>,
    /// Whether callers may see how their accounts were chosen (`x-tollgate-trace`).
    pub trace: bool,
    /// Requests, tokens, concurrency.
    pub limits: Limits,
    /// Money over time.
    pub budgets: Vec<Budget>,
}

/// Who sees a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// Everyone.
    #[default]
    Public,
    /// Members it was granted to.
    Private,
}

/// What happens with parameters that cannot be expressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TranslationPolicy {
    /// Refused by name.
    #[default]
    Strict,
    /// Dropped and named.
    Lenient,
}

/// What a broken answer costs the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamBreak {
    /// What the upstream reported, else as `Delivered`.
    ProviderUsage,
    /// Input plus the output handed to the caller.
    #[default]
    Delivered,
    /// Nothing when no content reached the caller, else as `Delivered`.
    NoneIfEmpty,
}

/// Bounds per time; 0 is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Requests a minute.
    pub rpm: u32,
    /// Tokens a minute.
    pub tpm: u64,
    /// Requests at once.
    pub concurrency: u32,
}

/// Money per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Amount.
    pub amount: NanoUsd,
    /// Period.
    pub window: Window,
    /// What happens at its end.
    pub action: BudgetAction,
}

/// A budget's period; days and months are UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// A UTC day.
    Day,
    /// A UTC month.
    Month,
    /// For ever.
    Total,
}

/// What happens when a budget is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetAction {
    /// Requests are refused.
    #[default]
    Block,
    /// Somebody is told.
    Alert,
}

/// Which channels are accepted by price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PriceLimit {
    /// The rule.
    pub mode: PriceLimitMode,
    /// Which price it looks at.
    pub on: PriceLimitOn,
}

/// The rule of a price limit; figures in nano-USD per million tokens, margin in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceLimitMode {
    /// A price must exist.
    PricedOnly,
    /// Prices stay at or below bounds.
    Ceiling {
        /// Bound on input; absent: none.
        max_input: Option<i64>,
        /// Bound on output; absent: none.
        max_output: Option<i64>,
    },
    /// (sale - cost) / sale stays at or above.
    MinMargin(i64),
}

/// Which price a price limit looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PriceLimitOn {
    /// What the caller pays.
    #[default]
    Sale,
    /// What the provider charges.
    Cost,
}

/// A pattern of `*` and `?`, case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Glob(pub String);
