//! Routing: which accounts to try, in which order, and why the others are excluded.

mod attempt_history;
mod candidate_filter;
mod exclusion;
mod no_route;
mod rank;

use std::{borrow::Cow, fmt, sync::Arc};

use tollgate_protocol::{FieldPath, Protocol, RequestSummary};

pub use attempt_history::AttemptHistory;
pub use exclusion::{ExcludedCandidate, Exclusion, LimitLevel, MissingPrice, PriceFigures, PriceKind};
pub use no_route::{BusyAccount, NoRoute, NoRouteCause};

use candidate_filter::CandidateFilter;
pub use candidate_filter::{cost_of, extras_at};
pub(crate) use candidate_filter::{cost_with_extras, known_cost};
use rank::{Candidate, RankCriteria, pick};

use crate::{
    Account, AccountId, Caller, CapacityLimits, Catalog, Channel, ChannelId, HealthStatus, ModelMapping, Offer, PriceLimit,
    SharedPrice, Timestamp, TraceEntry,
    offer::ModelPurpose,
    price_limit::{EffectivePrice, PriceBasis},
};

/// Attempts of one request that are sent upstream, at most.
pub const MAX_ATTEMPTS: usize = 3;
/// Attempts of one request including those that sent nothing, at most.
pub const MAX_TRIES: usize = 8;

/// Input of [`route`]. The result borrows only from the catalog.
#[derive(Clone, Copy)]
pub struct RouteInput<'c, 'a> {
    /// The snapshot that the offer was resolved from.
    pub catalog: &'c Catalog,
    /// The newest snapshot, if it is another one: rows disabled or removed there are excluded.
    pub latest_catalog: Option<&'a Catalog>,
    pub caller: &'a Caller,
    /// The model with the group, prices and policies that apply to this caller.
    pub offer: &'a Offer,
    pub summary: &'a RequestSummary,
    pub from: Protocol,
    pub health: &'a dyn HealthView,
    /// Load, budgets and learned parameters of candidates; [`UnlimitedView`] when nothing limits them.
    pub candidate_view: &'a dyn CandidateView,
    pub now: Timestamp,
    /// The price limit in `x-tollgate-max-price`.
    pub request_limit: Option<PriceLimit>,
    /// True when candidates of other protocols may be used.
    pub translates: bool,
    /// Outcome of the request's earlier attempts.
    pub history: &'a AttemptHistory,
}

impl fmt::Debug for RouteInput<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteInput").field("model", &self.offer.model.spec.name).field("from", &self.from).finish_non_exhaustive()
    }
}

/// Source of account health.
pub trait HealthView {
    /// Health of an account at a time; [`HealthStatus::HEALTHY`] without a recorded state. Called for every candidate.
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus;
}

/// Conditions besides catalog and health that can exclude a candidate. By default nothing does.
pub trait CandidateView {
    /// Load of an account. Called only for accounts with limits.
    fn account_load(&self, account: AccountId, limits: CapacityLimits) -> CapacityLoad {
        let _ = (account, limits);
        CapacityLoad::Free
    }

    /// Load of all accounts of a channel together. Called once for each channel with limits.
    fn channel_load(&self, channel: ChannelId, limits: CapacityLimits) -> CapacityLoad {
        let _ = (channel, limits);
        CapacityLoad::Free
    }

    /// State of a channel's budgets. Called only for channels with one.
    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        let _ = channel;
        ChannelBudget::Left
    }

    /// False when no channel has learned unsupported fields, so that [`Self::unsupported_fields`] need not be called.
    fn has_unsupported_fields(&self) -> bool {
        true
    }

    /// Fields of the request that this channel recently refused, in the caller's spelling. Called once per channel.
    fn unsupported_fields(&self, channel: &Channel, mapping: &ModelMapping) -> Vec<FieldPath> {
        let _ = (channel, mapping);
        Vec::new()
    }

    /// Fields of the request that a channel of another protocol cannot express, in the caller's spelling. This decodes the whole
    /// request, so it is called only for channels a plan reaches, and not at all when the plan begins with the caller's own
    /// protocol.
    fn untranslatable_fields(&self, channel: &Channel, mapping: &ModelMapping) -> Vec<FieldPath> {
        let _ = (channel, mapping);
        Vec::new()
    }
}

/// A view without limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnlimitedView;

impl CandidateView for UnlimitedView {
    fn has_unsupported_fields(&self) -> bool {
        false
    }
}

/// Load of an account, or of all accounts of a channel, compared with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityLoad {
    Free,
    AtConcurrency,
    /// Its limit of requests or tokens per minute is reached.
    AtRate {
        /// When it can take the next request.
        until: Timestamp,
    },
}

/// Whether the blocking budgets of a channel permit another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelBudget {
    Left,
    /// A blocking budget is exhausted.
    Spent {
        /// Start of the next period; `None`: never.
        until: Option<Timestamp>,
    },
}

/// Attempts in order. Never empty, and never contains an account twice or one that was tried before.
#[derive(Clone, Debug)]
pub struct Plan<'c> {
    pub first: PlannedAttempt,
    /// The attempts that would follow as of now: as many as the request has left, or all with [`rank_all`]. When the first
    /// attempt fails the request routes again, because load may have changed; that also checks whether channels of another
    /// protocol can express the request.
    pub rest: Vec<PlannedAttempt>,
    pub excluded: Vec<ExcludedCandidate<'c>>,
}

/// An account that a request may be sent to, with everything that the attempt needs from the catalog.
#[derive(Clone, Debug)]
pub struct PlannedAttempt {
    pub channel: Arc<Channel>,
    pub account: Arc<Account>,
    /// Index in [`ChannelSpec::serves`](crate::ChannelSpec::serves).
    pub mapping_index: usize,
    /// Cost price in effect, before the account's multiplier; `None`: unknown.
    pub cost: Option<SharedPrice>,
    /// Protocol spoken to the channel; the caller's for echo.
    pub protocol: Protocol,
    /// True when the account is cooling after a transient failure and is tried because no other is left.
    pub last_resort: bool,
}

impl PlannedAttempt {
    /// The channel's mapping of the model.
    ///
    /// # Panics
    /// Never, for an attempt created by [`route`].
    pub fn mapping(&self) -> &ModelMapping {
        &self.channel.spec.serves[self.mapping_index]
    }

    /// The account's entry in the usage record's trace.
    pub fn trace(&self) -> TraceEntry {
        let (channel, account) = ((&self.channel.spec.name).into(), Some((&self.account.spec.name).into()));
        TraceEntry { channel, account, code: "planned".into(), detail: None }
    }
}

impl Plan<'_> {
    pub fn attempts(&self) -> impl Iterator<Item = &PlannedAttempt> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// The usage record's trace of the plan.
    pub fn trace(&self) -> Vec<TraceEntry> {
        let mut entries: Vec<TraceEntry> = self.attempts().map(PlannedAttempt::trace).collect();
        exclusion::trace(&self.excluded, &mut entries);
        entries
    }
}

/// Chooses the accounts for the first attempt of a request, and again for each later one. `random` yields random numbers.
pub fn route<'c>(input: &RouteInput<'c, '_>, random: &mut dyn FnMut() -> u32) -> Result<Plan<'c>, NoRoute<'c>> {
    plan(input, PlanDepth::Next(MAX_ATTEMPTS.saturating_sub(input.history.sent_count()).max(1)), random)
}

/// Like [`route`], but ranks all usable accounts and checks every channel of another protocol for translatability. For
/// explanations.
pub fn rank_all<'c>(input: &RouteInput<'c, '_>, random: &mut dyn FnMut() -> u32) -> Result<Plan<'c>, NoRoute<'c>> {
    plan(input, PlanDepth::All, random)
}

/// How many attempts a plan contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlanDepth {
    /// At most this many. If the first one needs no translation, none is checked for translatability.
    Next(usize),
    /// All usable accounts.
    All,
}

impl PlanDepth {
    const fn max_attempts(self) -> usize {
        match self {
            Self::Next(max_attempts) => max_attempts,
            Self::All => usize::MAX,
        }
    }
}

fn plan<'c>(input: &RouteInput<'c, '_>, depth: PlanDepth, random: &mut dyn FnMut() -> u32) -> Result<Plan<'c>, NoRoute<'c>> {
    debug_assert_eq!(input.catalog.revision, input.offer.revision, "an offer is good for its own snapshot only");
    let mut filter = CandidateFilter::apply(input);
    let mut picked = input.pick(&mut filter, depth, random);
    let mut last_resort = false;
    if picked.is_empty() {
        // No candidate is left, so all reasons count. Check translation now: it is a more permanent reason than an unavailable
        // account.
        filter.check_all_translations();
        picked.extend(filter.last_resort());
        last_resort = !picked.is_empty();
    }
    let mut attempts = picked.iter().filter_map(|it| input.attempt(it, last_resort));
    let excluded = filter.excluded;
    let Some(first) = attempts.next() else { return Err(NoRoute { excluded, method: input.summary.method }) };
    Ok(Plan { first, rest: attempts.collect(), excluded })
}

impl RouteInput<'_, '_> {
    /// Picks accounts, in order, from those that passed the filter. Candidates of another protocol are checked for
    /// translatability and excluded with their channel if they fail. If the first pick needs no translation, the rest is not
    /// checked: later attempts route again.
    fn pick(&self, filter: &mut CandidateFilter<'_, '_, '_>, depth: PlanDepth, random: &mut dyn FnMut() -> u32) -> Vec<Candidate> {
        let max_attempts = depth.max_attempts();
        let costs = |it: &Candidate| self.cost_for_order(it);
        let order = RankCriteria { routing: self.offer.group.routing, affinity: self.summary.affinity, cost: &costs };
        let mut eligible = std::mem::take(&mut filter.eligible);
        if !filter.needs_translation {
            return pick(eligible, max_attempts, order, random);
        }
        let mut picked: Vec<Candidate> = Vec::new();
        while picked.len() < max_attempts {
            let next = pick(eligible.clone(), max_attempts - picked.len(), order, random);
            let Some(first) = next.first() else { break };
            if picked.is_empty() && !first.needs_translation && depth != PlanDepth::All {
                return next;
            }
            eligible.retain(|it| !next.contains(it));
            for it in next {
                if !it.needs_translation || filter.can_express(it.offer_index) {
                    picked.push(it);
                } else {
                    eligible.retain(|other| other.offer_index != it.offer_index);
                }
            }
        }
        picked
    }

    fn attempt(&self, picked: &Candidate, last_resort: bool) -> Option<PlannedAttempt> {
        let mapping_ref = self.offer.candidates.get(picked.offer_index as usize)?;
        let channel = self.catalog.channel_at(mapping_ref.channel)?;
        let account = channel.accounts.get(picked.account as usize)?;
        let mapping_index = mapping_ref.mapping as usize;
        Some(PlannedAttempt {
            channel: channel.clone(),
            account: account.clone(),
            mapping_index,
            cost: cost_with_extras(channel, mapping_index, self.now, (self.from, self.summary.extras)).map(Cow::into_owned),
            protocol: channel.protocol_for(self.from, ModelPurpose::of_method(self.summary.method)),
            last_resort,
        })
    }

    /// Sort key for candidates without weight: input plus output price; unknown prices last.
    fn cost_for_order(&self, it: &Candidate) -> i128 {
        let cost = || {
            let mapping_ref = self.offer.candidates.get(it.offer_index as usize)?;
            let channel = self.catalog.channel_at(mapping_ref.channel)?;
            let account = channel.accounts.get(it.account as usize)?;
            let price = cost_with_extras(channel, mapping_ref.mapping as usize, self.now, (self.from, self.summary.extras))?;
            EffectivePrice::of(&price, PriceBasis::of(self.summary), account.spec.cost_multiplier).sum()
        };
        cost().unwrap_or(i128::MAX)
    }
}

#[cfg(test)]
mod tests;
