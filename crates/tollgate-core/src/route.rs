//! Which accounts to try, in which order, and why not the others.

mod attempt_history;
mod candidate_filter;
mod exclusion;
mod rank;

use std::{borrow::Cow, fmt, sync::Arc};

use tollgate_protocol::{FieldPath, Protocol, RequestSummary};

pub use attempt_history::AttemptHistory;
pub use exclusion::{ExcludedCandidate, Exclusion, LimitLevel, NoRoute, NoRouteCause, PriceFigures, PriceKind};

use candidate_filter::CandidateFilter;
pub use candidate_filter::cost_of;
use rank::{Candidate, RankCriteria, pick};

use crate::{
    Account, AccountId, AccountLimits, Caller, Catalog, Channel, HealthStatus, ModelMapping, Offer, Price, PriceLimit, Provider,
    Timestamp, TraceEntry, estimate_input, price_limit::EffectivePrice,
};

/// Most attempts of one request that are sent.
pub const MAX_ATTEMPTS: usize = 3;
/// Most attempts of one request, those of which nothing was sent included.
pub const MAX_TRIES: usize = 8;

/// All that choosing looks at. What comes out of it borrows from the snapshot alone.
#[derive(Clone, Copy)]
pub struct RouteInput<'c, 'a> {
    /// The snapshot the offer was resolved from.
    pub catalog: &'c Catalog,
    /// The catalog as it is now, where that is another one: what was switched off since is left alone.
    pub latest_catalog: Option<&'a Catalog>,
    /// Who asks.
    pub caller: &'a Caller,
    /// What he gets.
    pub offer: &'a Offer,
    /// What he asks.
    pub summary: &'a RequestSummary,
    /// His protocol.
    pub from: Protocol,
    /// Health of accounts.
    pub health: &'a dyn HealthView,
    /// Load, budgets and capabilities of candidates; [`UnlimitedView`] when nothing bounds them.
    pub candidate_view: &'a dyn CandidateView,
    /// Now.
    pub now: Timestamp,
    /// `x-tollgate-max-price`.
    pub request_limit: Option<PriceLimit>,
    /// Whether candidates of another protocol can be used.
    pub translates: bool,
    /// What became of the request's earlier choices.
    pub history: &'a AttemptHistory,
}

impl fmt::Debug for RouteInput<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteInput").field("model", &self.offer.model.name).field("from", &self.from).finish_non_exhaustive()
    }
}

/// Where the health of accounts is known.
pub trait HealthView {
    /// What is known of an account; [`HealthStatus::HEALTHY`] where that is nothing. Asked of every candidate.
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus;
}

/// What besides catalog and health can exclude a candidate. Everything defaults to "free".
pub trait CandidateView {
    /// Whether an account has room. Asked only of accounts with a bound.
    fn account_load(&self, account: AccountId, bounds: AccountLimits) -> AccountLoad {
        let _ = (account, bounds);
        AccountLoad::Free
    }

    /// Whether a channel's budget is spent. Asked only of channels with one.
    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        let _ = channel;
        ChannelBudget::Left
    }

    /// Whether any channel refused fields lately, so that [`Self::unsupported_fields`] is worth asking.
    fn has_unsupported_fields(&self) -> bool {
        true
    }

    /// Fields of the request that this candidate refused lately, in the caller's spelling. Asked once a channel.
    fn unsupported_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        let _ = (channel, serves);
        Vec::new()
    }

    /// Fields of the request that a channel of another protocol cannot express, in the caller's spelling. To know that
    /// the request must be read whole, so it is asked only of channels a plan comes to: not at all where the plan begins
    /// with the caller's own protocol.
    fn untranslatable_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        let _ = (channel, serves);
        Vec::new()
    }
}

/// Nothing bounds anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnlimitedView;

impl CandidateView for UnlimitedView {
    fn has_unsupported_fields(&self) -> bool {
        false
    }
}

/// Room on an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountLoad {
    /// There is some.
    Free,
    /// As many requests at once as it takes.
    AtConcurrency,
    /// As many requests or tokens a minute as it takes.
    AtRate {
        /// When there is room again.
        until: Timestamp,
    },
}

/// State of a channel's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelBudget {
    /// Something is left.
    Left,
    /// It is spent.
    Spent {
        /// When it renews; `None`: it does not.
        until: Option<Timestamp>,
    },
}

/// Attempts in order; never empty, never an account twice, nor one that was tried before.
#[derive(Clone, Debug)]
pub struct Plan<'c> {
    /// The first try.
    pub first: PlannedAttempt,
    /// Who would come after it as things are now: as many as attempts are left, with [`rank_all`] everybody. When the
    /// first one fails the request chooses again, for accounts may have become busy or free by then; whether those of
    /// another protocol can express the request is found out then, too.
    pub rest: Vec<PlannedAttempt>,
    /// Who is not tried, and why.
    pub excluded: Vec<ExcludedCandidate<'c>>,
}

/// One try to be.
#[derive(Clone, Debug)]
pub struct PlannedAttempt {
    /// Channel.
    pub channel: Arc<Channel>,
    /// Account.
    pub account: Arc<Account>,
    /// Position in [`Channel::mappings`].
    pub mapping_index: usize,
    /// Cost list valid now, before the account's multiplier; `None`: not known.
    pub cost: Option<Price>,
    /// The protocol spoken to it: the caller's on echo.
    pub protocol: Protocol,
    /// It cools for a hiccup and is tried because nothing else is left.
    pub last_resort: bool,
}

impl PlannedAttempt {
    /// How the channel serves the model.
    ///
    /// # Panics
    /// Never for an attempt that [`route`] made.
    #[must_use]
    pub fn mapping(&self) -> &ModelMapping {
        &self.channel.mappings[self.mapping_index]
    }

    /// What the usage record keeps of it.
    #[must_use]
    pub fn trace(&self) -> TraceEntry {
        let (channel, account) = (self.channel.name.clone(), Some(self.account.name.clone()));
        TraceEntry { channel, account, code: "planned".to_owned(), detail: None }
    }
}

impl Plan<'_> {
    /// All attempts in order.
    pub fn attempts(&self) -> impl Iterator<Item = &PlannedAttempt> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// What the usage record keeps of the choice.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEntry> {
        let mut entries: Vec<TraceEntry> = self.attempts().map(PlannedAttempt::trace).collect();
        exclusion::trace(&self.excluded, &mut entries);
        entries
    }
}

/// Chooses accounts, for the first attempt of a request and again for each later one.
///
/// # Errors
/// When every candidate is excluded, or was tried.
pub fn route<'c>(input: &RouteInput<'c, '_>, dice: &mut dyn FnMut() -> u32) -> Result<Plan<'c>, NoRoute<'c>> {
    choose(input, PlanDepth::Next(MAX_ATTEMPTS.saturating_sub(input.history.sent_count()).max(1)), dice)
}

/// The same with every usable account in order, not only the first ones, and every one of another protocol asked whether it
/// can express the request: for people who want to see the whole order.
///
/// # Errors
/// When every candidate is excluded.
pub fn rank_all<'c>(input: &RouteInput<'c, '_>, dice: &mut dyn FnMut() -> u32) -> Result<Plan<'c>, NoRoute<'c>> {
    choose(input, PlanDepth::All, dice)
}

/// How far a choice looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlanDepth {
    /// As far as the attempts that are left, the first of them for sure.
    Next(usize),
    /// To the end.
    All,
}

impl PlanDepth {
    const fn most(self) -> usize {
        match self {
            Self::Next(most) => most,
            Self::All => usize::MAX,
        }
    }
}

fn choose<'c>(input: &RouteInput<'c, '_>, depth: PlanDepth, dice: &mut dyn FnMut() -> u32) -> Result<Plan<'c>, NoRoute<'c>> {
    debug_assert_eq!(input.catalog.revision, input.offer.revision, "an offer is good for its own snapshot only");
    let mut filter = CandidateFilter::run(input);
    let mut chosen = input.pick(&mut filter, depth, dice);
    let mut last_resort = false;
    if chosen.is_empty() {
        // Nothing is left to try, so every reason counts: what a protocol cannot express lasts longer than what keeps
        // an account from being used.
        filter.check_all_translations();
        chosen.extend(filter.last_resort());
        last_resort = !chosen.is_empty();
    }
    let mut attempts = chosen.iter().filter_map(|it| input.attempt(it, last_resort));
    let excluded = filter.excluded;
    let Some(first) = attempts.next() else { return Err(NoRoute { excluded, method: input.summary.method }) };
    Ok(Plan { first, rest: attempts.collect(), excluded })
}

impl RouteInput<'_, '_> {
    /// The accounts to try, in order, out of those the filter let through. One of another protocol is asked whether it
    /// can express the request, and excluded with its channel where it cannot, unless the first one needs no
    /// translation: then it is asked when its turn comes, which is hardly ever.
    fn pick(&self, filter: &mut CandidateFilter<'_, '_, '_>, depth: PlanDepth, dice: &mut dyn FnMut() -> u32) -> Vec<Candidate> {
        let most = depth.most();
        let costs = |it: &Candidate| self.cost_for_order(it);
        let order = RankCriteria { routing: self.offer.group.routing, affinity: self.summary.affinity, cost: &costs };
        let mut usable = std::mem::take(&mut filter.usable);
        if !filter.foreign {
            return pick(usable, most, order, dice);
        }
        let mut chosen: Vec<Candidate> = Vec::new();
        while chosen.len() < most {
            let next = pick(usable.clone(), most - chosen.len(), order, dice);
            let Some(first) = next.first() else { break };
            if chosen.is_empty() && !first.foreign && depth != PlanDepth::All {
                return next;
            }
            usable.retain(|it| !next.contains(it));
            for it in next {
                if !it.foreign || filter.expresses(it.candidate) {
                    chosen.push(it);
                } else {
                    usable.retain(|other| other.candidate != it.candidate);
                }
            }
        }
        chosen
    }

    fn attempt(&self, chosen: &Candidate, last_resort: bool) -> Option<PlannedAttempt> {
        let served = self.offer.candidates.get(chosen.candidate as usize)?;
        let channel = self.catalog.channel_at(served.channel)?;
        let account = channel.accounts.get(chosen.account as usize)?;
        let serves = served.mapping as usize;
        Some(PlannedAttempt {
            channel: channel.clone(),
            account: account.clone(),
            mapping_index: serves,
            cost: cost_of(channel, serves, self.now).map(Cow::into_owned),
            protocol: if channel.provider == Provider::Echo { self.from } else { channel.protocol },
            last_resort,
        })
    }

    /// What orders candidates without weight: input and output price together; unknown ones last.
    fn cost_for_order(&self, it: &Candidate) -> i128 {
        let cost = || {
            let served = self.offer.candidates.get(it.candidate as usize)?;
            let channel = self.catalog.channel_at(served.channel)?;
            let account = channel.accounts.get(it.account as usize)?;
            let price = cost_of(channel, served.mapping as usize, self.now)?;
            EffectivePrice::of(&price, estimate_input(self.summary), account.cost_multiplier).sum()
        };
        cost().unwrap_or(i128::MAX)
    }
}

#[cfg(test)]
mod tests;
