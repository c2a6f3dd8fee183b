//! What we decide: who may have which model, at what price, over which account, and what it cost.
//!
//! Pure: `now`, health and dice are arguments. Nothing here awaits, reads a clock or touches a socket.

mod admit;
mod catalog;
mod ids;
mod money;
mod offer;
mod price_limit;
mod route;

mod health;
mod learned;
mod log_time;
mod price_effect;
mod record;
mod replay;
mod secret;
mod settle;
mod time;

#[cfg(test)]
mod samples;

pub use admit::{
    AdmitInput, Busy, Crossed, Exhausted, Hold, LEAST_OUTPUT, Limit, LimitRule, MOST_AHEAD, Meter, PackedSpent, Rate, Rated, Room,
    Rooms, Short, Sliding, Spent, Subject, Taken, hold_for, hold_for_attempt, holds_ahead, most_of_attempt, output_limit_field,
    rooms,
};
pub use catalog::{
    Account, AccountBounds, Billing, Budget, BudgetAction, Catalog, Channel, Glob, Group, Hedge, Key, KeyStatus, Limits, Member,
    MemberStatus, Model, OnUnsupported, Owner, ParameterRule, PriceLimit, PriceLimitMode, PriceLimitOn, Provider, Role, Routing,
    ServedBy, Serves, StreamBreak, Timeouts, TranslationPolicy, TranslationSwitches, Visibility, Window,
};
pub use health::{
    AccountHealth, Bucket, Condition, CoolingReason, CredentialMark, Glance, HealthState, Observation, Pace, RestingReason,
    Standing, observe, quota_end, start_probe,
};
pub use ids::{AccountId, AdminKeyId, ChannelId, GroupId, IdHash, IdHasher, KeyId, MemberId, ModelId, RequestId, Revision};
pub use learned::Learned;
pub use log_time::LogTime;
pub use money::{
    Multiplier, NanoUsd, ParseMoneyError, Price, PriceSchedule, PriceTier, PricedAt, Rates, parse_usd, parse_usd_number,
};
pub use offer::{Caller, NotOffered, Offer, VisibleModel, resolve, visible_model, visible_models};
pub use price_effect::{PriceEffect, PriceEffects, PriceSubject, PricedOut, price_effects};
pub use price_limit::{BadMaxPrice, money_is_bounded, parse_max_price, parse_max_prices};
pub use record::{AttemptRecord, AttemptResult, Outcome, TokenSource, Tokens, TraceEntry, UsageRecord};
pub use replay::{Replay, ReplayChannel, ReplayMove, ReplayReport, ReplayShare, ReplaySide, ReplayTotals};
pub use route::{
    AccountLoad, CandidateView, Cause, ChannelBudget, Excluded, Exclusion, HealthView, LimitLevel, MAX_ATTEMPTS, MAX_TRIES,
    NoRoute, Past, Plan, PlannedAttempt, PriceFigures, PriceKind, RouteInput, Unloaded, cost_of, rank_all, route,
};
pub use secret::Secret;
pub use settle::{
    AttemptFacts, Begin, BeginAttempt, Delivered, Facts, InputCount, Progress, amount, count_input, count_output, estimate_input,
    estimate_output, settle, settle_attempt, settle_stopped, tokens_of,
};
pub use time::Timestamp;
