//! The catalog: everything that is configured, as one immutable snapshot.
//!
//! Keys are not in it, since they may number millions; they come one by one through a bounded cache and carry
//! their member with them.

mod glob;
pub(crate) mod lanes;
mod routing;
mod snapshot;

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use indexmap::IndexMap;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tollgate_protocol::{Profile, Protocol};

pub use lanes::AccountBounds;
pub use routing::{Hedge, Routing};

use crate::{AccountId, ChannelId, GroupId, KeyId, MemberId, Multiplier, NanoUsd, PriceSchedule, Revision, Secret, Timestamp};

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
    pub served_by: IndexMap<String, Vec<ServedBy>>,
    /// Positions of the channels a group may use, one bit each. Built with the snapshot.
    reach: HashMap<GroupId, Box<[u64]>>,
    /// What choosing reads of channels and accounts. Built with the snapshot.
    pub(crate) lanes: lanes::Lanes,
}

/// One channel that serves a model, as positions in the snapshot it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServedBy {
    /// Position in [`Catalog::channels`].
    pub channel: u32,
    /// Position in [`Channel::serves`].
    pub serves: u32,
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

/// What runs models at a channel's far end; sets defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// api.openai.com.
    #[serde(rename = "openai")]
    OpenAi,
    /// generativelanguage.googleapis.com.
    Gemini,
    /// api.anthropic.com.
    Anthropic,
    /// Anything that speaks one of the protocols.
    Compatible,
    /// The built-in channel that answers with what it was told.
    Echo,
}

/// A priced way to reach a provider.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Id.
    pub id: ChannelId,
    /// Name; unique.
    pub name: String,
    /// Who owns the row.
    pub owner: Owner,
    /// Provider.
    pub provider: Provider,
    /// Wire format. Meaningless for [`Provider::Echo`], which speaks the caller's.
    pub protocol: Protocol,
    /// Base URL with the version, no trailing slash. Empty for echo.
    pub base_url: String,
    /// `false`: off by hand.
    pub on: bool,
    /// `false`: failures never rest its accounts.
    pub cooling: bool,
    /// `false`: refusals are not remembered.
    pub learn_unsupported: bool,
    /// What translation may do on the way to it.
    pub translation: TranslationSwitches,
    /// May reach loopback and private addresses.
    pub private_network: bool,
    /// Lower is tried first.
    pub priority: i32,
    /// Share within its tier.
    pub weight: u32,
    /// Waiting limits.
    pub timeouts: Timeouts,
    /// Another attempt after "sent, but no answer".
    pub retry_uncertain: bool,
    /// Seconds between two probes of each of its accounts; 0: only accounts that rest are probed.
    pub probe_interval_s: u32,
    /// Added to every request upstream.
    pub headers: Vec<(String, String)>,
    /// `http://` (CONNECT) or `socks5://`.
    pub proxy: Option<Secret>,
    /// PEM file with further roots.
    pub ca_file: Option<String>,
    /// Budgets on cost.
    pub budgets: Vec<Budget>,
    /// Its credentials.
    pub accounts: Vec<Arc<Account>>,
    /// The models it serves.
    pub serves: Vec<Serves>,
}

/// What translation may do on the way to a channel; everything is off unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TranslationSwitches {
    /// Later system texts go to the beginning; off, they stay in place, which keeps prompt caches.
    pub hoist: bool,
    /// Tools the provider runs and charges itself (web search) may be asked for.
    pub server_tools: bool,
    /// The id of the person behind the caller travels (`metadata.user_id`).
    pub pass_user: bool,
    /// The gateway fetches addresses of media that the upstream does not read itself.
    pub fetch_media: bool,
}

/// Waiting limits of a channel, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// TCP and TLS.
    pub connect_ms: u64,
    /// Until the first byte of an answer.
    pub first_byte_ms: u64,
    /// Between bytes.
    pub idle_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect_ms: 3_000, first_byte_ms: 120_000, idle_ms: 90_000 }
    }
}

/// One credential under a channel; the unit of concurrency, cooling and health.
#[derive(Clone, Debug)]
pub struct Account {
    /// Id.
    pub id: AccountId,
    /// Name; unique in its channel.
    pub name: String,
    /// `None` for echo.
    pub credential: Option<Secret>,
    /// `false`: off by hand.
    pub on: bool,
    /// Requests at once; 0 unbounded.
    pub concurrency: u32,
    /// Requests a minute; 0 unbounded.
    pub rpm: u32,
    /// Tokens a minute; 0 unbounded.
    pub tpm: u64,
    /// Factor on the channel's cost prices.
    pub cost_multiplier: Multiplier,
}

/// A model as a channel serves it.
#[derive(Clone, Debug)]
pub struct Serves {
    /// Public name.
    pub model: String,
    /// Name sent upstream.
    pub upstream: String,
    /// What the provider charges; `None`: not known.
    pub cost: Option<PriceSchedule>,
    /// Facts about the upstream model, as stated.
    pub profile: Profile,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceLimit {
    /// The rule.
    pub mode: PriceLimitMode,
    /// Which price it looks at.
    pub on: PriceLimitOn,
}

/// The rule of a price limit; figures in nano-USD per million tokens, margin in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PriceLimitOn {
    /// What the caller pays.
    #[default]
    Sale,
    /// What the provider charges.
    Cost,
}

/// A pattern of `*` and `?`, case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Glob(pub String);

/// A service key with all that deciding needs, its member included. Shared from the cache.
#[derive(Clone, Debug)]
pub struct Key {
    /// Id.
    pub id: KeyId,
    /// Name.
    pub name: String,
    /// Who owns the row.
    pub owner: Owner,
    /// First 10 characters of the secret, for display.
    pub prefix: String,
    /// Last 4 characters.
    pub suffix: String,
    /// Status.
    pub status: KeyStatus,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Groups in order; empty: the member's default group.
    pub groups: Vec<GroupId>,
    /// Which models it may use; empty: all its groups offer.
    pub models: Vec<Glob>,
    /// Addresses it may be used from; empty: any.
    pub ip_allow: Vec<IpNet>,
    /// Requests, tokens, concurrency.
    pub limits: Limits,
    /// Money over time.
    pub budgets: Vec<Budget>,
    /// Its own price limit.
    pub price_limit: Option<PriceLimit>,
    /// Whether thought signatures travel behind the ids of tool calls; `None`: as its group says.
    pub signatures_in_ids: Option<bool>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whose it is.
    pub member: Member,
}

impl Key {
    /// Whether an address may use it.
    #[must_use]
    pub fn allows_address(&self, address: IpAddr) -> bool {
        let address = match address {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        self.ip_allow.is_empty() || self.ip_allow.iter().any(|net| net.contains(&address))
    }
}

/// Whether a key works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyStatus {
    /// It works.
    Active,
    /// Switched off for now.
    Disabled,
    /// Ended for good.
    Revoked,
}

/// A person.
#[derive(Clone, Debug)]
pub struct Member {
    /// Id.
    pub id: MemberId,
    /// Name.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Whether they may use the gateway.
    pub status: MemberStatus,
    /// Private groups granted.
    pub granted: Vec<GroupId>,
    /// Used by keys that name no group.
    pub default_group: Option<GroupId>,
    /// How they pay.
    pub billing: Billing,
    /// Requests, tokens, concurrency.
    pub limits: Limits,
    /// Money over time.
    pub budgets: Vec<Budget>,
}

/// What a member may do in the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything.
    Admin,
    /// Channels, groups, models, prices, all keys, all usage.
    Operator,
    /// Own keys, own usage.
    #[default]
    Member,
}

/// Whether a member may use the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberStatus {
    /// Yes.
    #[default]
    Active,
    /// No.
    Suspended,
}

/// How a member pays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Billing {
    /// The balance may go below zero.
    #[default]
    Postpaid,
    /// The balance bounds.
    Prepaid,
}
