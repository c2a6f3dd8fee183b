//! Decisions of the gateway: the models and prices for a caller, the accounts that serve a request, and its cost.
//!
//! Pure code: the time, account health and random numbers are arguments. Nothing here awaits, reads a clock or opens a socket.

mod address;
mod admit;
mod alert;
mod below_cost;
mod catalog;
mod catalog_review;
mod certificate;
mod contents;
mod fault;
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
mod retranslation;
mod secret;
mod settle;
mod shares;
mod short_text;
mod simulate;
mod square;
mod tags;
mod time;
mod translation;
mod unsupported_fields;

#[cfg(test)]
mod samples;

pub use address::{AddressLists, UnlistedAddress, is_public, leads_to};
pub use admit::{
    AdmitInput, BudgetAlert, EarlyRequest, FundsStatus, Limit, LimitExceeded, LimitRule, MAX_ATTEMPT_RESERVATIONS,
    MIN_OUTPUT_TOKENS, Meter, PackedSpendTotals, RateCheck, RateExceeded, RateKind, RateStatus, RateStatuses, Reservation,
    ReservationReceipt, SlidingWindow, SpendTotals, Subject, attempt_reservations, exhausted_limit, has_limits, max_attempt_cost,
    output_limit_field, rate_statuses, reservation_for, reservation_for_attempt, token_counts_per_minute,
};
pub use alert::{
    AlertChanges, AlertCondition, AlertRule, DownChannel, DownChannels, ErrorCounts, ExpiringKey, LowBalance, alert_changes,
    backup_condition, balance_conditions, budget_condition, budget_conditions, budget_subjects, catalog_conditions,
    certificate_condition, channels_down, error_condition, export_condition, journal_condition, key_conditions, size_text,
};
pub use below_cost::{BelowCost, below_cost};
pub use catalog::{
    Account, AccountSpec, Billing, Budget, BudgetAction, CapacityLimits, Catalog, Channel, ChannelSpec, Glob, Group, Hedge, Key,
    KeyStatus, Limits, MAX_MODEL_MULTIPLIERS, MappingRef, Member, MemberStatus, Modality, Model, ModelBadge, ModelMapping,
    ModelSpec, OnUnsupported, Owner, ParameterRule, PriceLimit, PriceLimitMode, PriceLimitOn, Provider, Role, Routing,
    SaleMultipliers, StreamBreak, Timeouts, TranslationPolicy, TranslationSwitches, Visibility, Window,
};
pub use catalog_review::{catalog_warnings, is_unexpanded, output_price_warning};
pub use certificate::certificate_expiry;
pub use contents::{Excerpt, ExcerptWriter, Redaction, RequestContents, fair_level};
pub use fault::Fault;
pub use health::{
    AccountHealth, Availability, CoolingReason, CoolingRules, CredentialFingerprint, HealthCondition, HealthHistory, HealthReason,
    HealthSnapshot, HealthState, HealthStatus, HealthTransition, ImpairedState, Impairment, LatencySample, Observation,
    OutcomeBucket, RestingReason, TransitionCause, UptimeCell, account_condition, observe, quota_end, start_probe, uptime_cells,
};
pub use ids::{
    AccountId, AdminKeyId, AlertDestinationId, AlertId, ChannelId, GroupId, IdHash, IdHasher, IdText, InviteId, JobId, KeyId,
    MemberId, ModelId, NameHash, PasskeyId, RequestId, Revision, SessionId, SettingId,
};
pub use margin::{amount_margin, percent_down, price_margin};
pub use money::{
    Multiplier, NanoUsd, ParseMoneyError, Price, PriceSchedule, PriceTier, PricedOptions, Rates, ScheduledPrice, SharedPrice,
    UnpricedExtra, parse_usd,
};
pub use offer::{
    Audience, Caller, NotOffered, Offer, VisibleModel, offering_groups, permitted_groups, resolve, upstream_extras, visible_model,
    visible_models, visible_offers,
};
pub use price_effect::{PriceEffect, PriceEffects, PriceSubject, PricedOutAccount, plain_key, price_effects};
pub use price_import::{ImportPlan, ImportRow, ImportScope, ImportState, KeptReason, listed_prices, plan_price_import};
pub use price_limit::{InvalidMaxPrice, money_is_bounded, parse_max_price, parse_max_prices};
pub use price_list::{
    ListedPrice, MAX_PRICE_LIST_BYTES, MAX_PRICE_LIST_ROWS, MAX_PRICE_LIST_TIERS, PriceList, PriceListFault, PriceListFormat,
    SkippedPrice, write_csv,
};
pub use record::{AttemptRecord, AttemptResult, Outcome, TokenSource, Tokens, TraceEntry, UsageRecord};
pub use replay::{Replay, ReplayChannel, ReplayMove, ReplayReport, ReplayShare, ReplaySide, ReplayTotals};
pub use retention_clock::RetentionClock;
pub use retranslation::{ParameterOutcome, Retranslation, RetranslationFault, TranslatedParameter, retranslate};
pub use route::{
    AttemptHistory, BusyAccount, CandidateView, CapacityLoad, ChannelBudget, ExcludedCandidate, Exclusion, HealthView, LimitLevel,
    MAX_ATTEMPTS, MAX_TRIES, MissingPrice, NoRoute, NoRouteCause, Plan, PlannedAttempt, PriceFigures, PriceKind, RouteInput,
    UnlimitedView, cost_of, extras_at, rank_all, route,
};
pub use secret::Secret;
pub use settle::{
    AttemptFacts, AttemptStart, DeliveredContent, ExactAmount, InputCount, OVERFLOW, PriceLine, PriceLines, RequestFacts,
    RequestSize, StartedAttempt, StreamProgress, UsageBounds, UsageExcess, amount, count_input, estimate_input, estimate_output,
    is_counted_by_piece, price_lines, reported_tokens, settle, settle_attempt, settle_stopped, usage_excess,
};
pub use shares::{Concerned, Requester, is_within_share, share_of};
pub use short_text::ShortText;
pub use simulate::{SimulatedAccount, SimulatedCaller, SimulatedExclusion, SimulatedRequest, Simulation, simulate};
pub use square::{AccountStanding, OfferCondition, OfferState, ParameterSupport, ParameterTables};
pub use tags::{InvalidTags, MAX_TAG_NAME, MAX_TAG_VALUE, MAX_TAGS, TagName, Tags, is_tag_value};
pub use time::Timestamp;
pub use translation::{
    inexpressible_fields, is_lenient, passthrough_edits, translate_options, upstream_profile, with_channel_edits,
};
pub use unsupported_fields::UnsupportedFields;
