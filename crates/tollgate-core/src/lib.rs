//! Decisions of the gateway: which models a caller gets and at what price, which accounts serve a request, and what it costs.
//!
//! Pure code: the time, account health and random numbers are arguments. Nothing here awaits, reads a clock or opens a socket.

mod address;
mod admit;
mod below_cost;
mod catalog;
mod catalog_review;
mod ids;
mod margin;
mod money;
mod offer;
mod price_limit;
mod route;

mod health;
mod price_effect;
mod price_import;
mod price_list;
mod record;
mod replay;
mod retention_clock;
mod secret;
mod settle;
mod shares;
mod simulate;
mod tags;
mod time;
mod unsupported_fields;

#[cfg(test)]
mod samples;

pub use address::{embedded_v4, is_public};
pub use admit::{
    AdmitInput, BudgetAlert, EarlyRequest, FundsStatus, Limit, LimitExceeded, LimitRule, MAX_ATTEMPT_RESERVATIONS,
    MIN_OUTPUT_TOKENS, Meter, PackedSpendTotals, RateCheck, RateExceeded, RateKind, RateStatus, RateStatuses, Reservation,
    ReservationReceipt, SlidingWindow, SpendTotals, Subject, attempt_reservations, exhausted_limit, has_limits, max_attempt_cost,
    output_limit_field, rate_statuses, reservation_for, reservation_for_attempt,
};
pub use below_cost::{BelowCost, below_cost};
pub use catalog::{
    Account, AccountLimits, AccountSpec, Billing, Budget, BudgetAction, Catalog, Channel, ChannelSpec, Glob, Group, Hedge, Key,
    KeyStatus, Limits, MappingRef, Member, MemberStatus, Model, ModelMapping, ModelSpec, OnUnsupported, Owner, ParameterRule,
    PriceLimit, PriceLimitMode, PriceLimitOn, Provider, Role, Routing, StreamBreak, Timeouts, TranslationPolicy,
    TranslationSwitches, Visibility, Window,
};
pub use catalog_review::{catalog_warnings, is_unexpanded};
pub use health::{
    AccountHealth, Availability, CoolingReason, CredentialFingerprint, HealthSnapshot, HealthState, HealthStatus, LatencySample,
    Observation, OutcomeBucket, RestingReason, observe, quota_end, start_probe,
};
pub use ids::{
    AccountId, AdminKeyId, ChannelId, GroupId, IdHash, IdHasher, IdText, JobId, KeyId, MemberId, ModelId, NameHash, RequestId,
    Revision,
};
pub use margin::{amount_margin, price_margin};
pub use money::{Multiplier, NanoUsd, ParseMoneyError, Price, PriceSchedule, PriceTier, Rates, ScheduledPrice, parse_usd};
pub use offer::{Caller, NotOffered, Offer, VisibleModel, resolve, visible_model, visible_models};
pub use price_effect::{PriceEffect, PriceEffects, PriceSubject, PricedOutAccount, price_effects};
pub use price_import::{ImportPlan, ImportRow, ImportScope, ImportState, KeptReason, plan_price_import};
pub use price_limit::{InvalidMaxPrice, money_is_bounded, parse_max_price, parse_max_prices};
pub use price_list::{
    ListedPrice, MAX_PRICE_LIST_BYTES, MAX_PRICE_LIST_ROWS, PriceList, PriceListFault, PriceListFormat, SkippedPrice, write_csv,
};
pub use record::{AttemptRecord, AttemptResult, Outcome, TokenSource, Tokens, TraceEntry, UsageRecord};
pub use replay::{Replay, ReplayChannel, ReplayMove, ReplayReport, ReplayShare, ReplaySide, ReplayTotals};
pub use retention_clock::RetentionClock;
pub use route::{
    AccountLoad, AttemptHistory, CandidateView, ChannelBudget, ExcludedCandidate, Exclusion, HealthView, LimitLevel, MAX_ATTEMPTS,
    MAX_TRIES, MissingPrice, NoRoute, NoRouteCause, Plan, PlannedAttempt, PriceFigures, PriceKind, RouteInput, UnlimitedView,
    cost_of, rank_all, route,
};
pub use secret::Secret;
pub use settle::{
    AttemptFacts, AttemptStart, DeliveredContent, ExactAmount, InputCount, PriceLine, PriceLines, RequestFacts, RequestSize,
    StartedAttempt, StreamProgress, UsageBounds, UsageExcess, amount, count_input, estimate_input, estimate_output, price_lines,
    settle, settle_attempt, settle_stopped, usage_excess,
};
pub use shares::{Concerned, Requester, is_within_share, share_of};
pub use simulate::{SimulatedAccount, SimulatedCaller, SimulatedExclusion, SimulatedRequest, Simulation, simulate};
pub use tags::{InvalidTags, MAX_TAG_NAME, MAX_TAG_VALUE, MAX_TAGS, TagName, Tags, is_tag_value};
pub use time::Timestamp;
pub use unsupported_fields::UnsupportedFields;
