//! What we decide: who may have which model, at what price, over which account, and what it cost.
//!
//! Pure: `now`, health and dice are arguments. Nothing here awaits, reads a clock or touches a socket.

mod catalog;
mod ids;
mod money;
mod record;
mod secret;
mod time;

pub use catalog::{
    Account, Billing, Budget, BudgetAction, Catalog, Channel, Glob, Group, Key, KeyStatus, Limits, Member, MemberStatus, Model,
    OnUnsupported, Owner, ParameterRule, PriceLimit, PriceLimitMode, PriceLimitOn, Provider, Role, Serves, StreamBreak, Timeouts,
    TranslationPolicy, Visibility, Window,
};
pub use ids::{AccountId, ChannelId, GroupId, KeyId, MemberId, ModelId, RequestId, Revision};
pub use money::{Multiplier, NanoUsd, ParseMoneyError, Price, PriceSchedule, PriceTier, PricedAt};
pub use record::{AttemptRecord, AttemptResult, Outcome, TokenSource, Tokens, TraceEntry, UsageRecord};
pub use secret::Secret;
pub use time::Timestamp;
