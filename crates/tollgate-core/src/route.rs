//! Which accounts to try, in which order, and why not the others.

mod exclusion;
mod rank;
mod sieve;

use std::{borrow::Cow, fmt, sync::Arc};

use tollgate_protocol::{FieldPath, Outline, Protocol};

pub use exclusion::{Cause, Excluded, Exclusion, LimitLevel, NoRoute, PriceFigures, PriceKind};

use rank::{Order, Usable, pick};
use sieve::{Sieve, Translation, cost_of};

use crate::{
    Account, AccountHealth, AccountId, Caller, Catalog, Channel, Offer, Price, PriceLimit, Provider, Serves, Timestamp, TraceEntry,
    estimate_input, price_limit::Effective,
};

/// Most attempts of one request.
pub const MAX_ATTEMPTS: usize = 3;

/// All that choosing looks at.
#[derive(Clone, Copy)]
pub struct RouteInput<'a> {
    /// The snapshot the offer was resolved from.
    pub catalog: &'a Catalog,
    /// Who asks.
    pub caller: &'a Caller,
    /// What he gets.
    pub offer: &'a Offer,
    /// What he asks.
    pub outline: &'a Outline,
    /// His protocol.
    pub from: Protocol,
    /// Health of accounts.
    pub health: &'a dyn HealthView,
    /// Load, budgets and capabilities of candidates; [`Unloaded`] when nothing bounds them.
    pub view: &'a dyn CandidateView,
    /// Now.
    pub now: Timestamp,
    /// `x-tollgate-max-price`.
    pub request_limit: Option<PriceLimit>,
    /// Whether candidates of another protocol can be used.
    pub translates: bool,
}

impl fmt::Debug for RouteInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteInput").field("model", &self.offer.model.name).field("from", &self.from).finish_non_exhaustive()
    }
}

/// Where the health of accounts is known.
pub trait HealthView {
    /// A copy; the default value for an account nothing is known of.
    fn of(&self, account: AccountId) -> AccountHealth;
}

/// What besides catalog and health can exclude a candidate. Everything defaults to "free".
pub trait CandidateView {
    /// Whether an account has room. Asked only of accounts with a bound.
    fn account_load(&self, account: &Account) -> AccountLoad {
        let _ = account;
        AccountLoad::Free
    }

    /// Whether a channel's budget is spent. Asked only of channels with one.
    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        let _ = channel;
        ChannelBudget::Left
    }

    /// Fields of the request that this candidate refused lately, in the caller's spelling. Asked once a channel.
    fn learned(&self, channel: &Channel, serves: &Serves) -> Vec<FieldPath> {
        let _ = (channel, serves);
        Vec::new()
    }

    /// Fields of the request that a channel of another protocol cannot express, in the caller's spelling. To know that
    /// the request must be read whole, so it is asked only of channels a plan comes to: not at all where the plan begins
    /// with the caller's own protocol.
    fn untranslatable(&self, channel: &Channel, serves: &Serves) -> Vec<FieldPath> {
        let _ = (channel, serves);
        Vec::new()
    }
}

/// Nothing bounds anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unloaded;

impl CandidateView for Unloaded {}

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

/// Attempts in order; never empty, never an account twice.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first try.
    pub first: PlannedAttempt,
    /// Those after it: two, and a spare one for each that speaks another protocol than the caller while the first does
    /// not; whether those can express the request is found out when their turn comes. At most [`MAX_ATTEMPTS`] are
    /// made. With [`rank_all`] everybody else.
    pub rest: Vec<PlannedAttempt>,
    /// Who is not tried, and why.
    pub excluded: Vec<Excluded>,
}

/// One try to be.
#[derive(Clone, Debug)]
pub struct PlannedAttempt {
    /// Channel.
    pub channel: Arc<Channel>,
    /// Account.
    pub account: Arc<Account>,
    /// Position in [`Channel::serves`].
    pub serves: usize,
    /// Cost list valid now, before the account's multiplier; `None`: not known.
    pub cost: Option<Price>,
    /// The protocol spoken to it: the caller's on echo.
    pub protocol: Protocol,
}

impl PlannedAttempt {
    /// How the channel serves the model.
    ///
    /// # Panics
    /// Never for an attempt that [`route`] made.
    #[must_use]
    pub fn serves(&self) -> &Serves {
        &self.channel.serves[self.serves]
    }
}

impl Plan {
    /// All attempts in order.
    pub fn attempts(&self) -> impl Iterator<Item = &PlannedAttempt> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// What the usage record keeps of the choice.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEntry> {
        let planned = self.attempts().map(|attempt| TraceEntry {
            channel: attempt.channel.name.clone(),
            account: Some(attempt.account.name.clone()),
            code: "planned".to_owned(),
            detail: None,
        });
        let mut entries: Vec<TraceEntry> = planned.collect();
        exclusion::trace(&self.excluded, &mut entries);
        entries
    }
}

/// Chooses accounts.
///
/// # Errors
/// When every candidate is excluded.
pub fn route(input: &RouteInput<'_>, dice: &mut dyn FnMut() -> u32) -> Result<Plan, NoRoute> {
    choose(input, MAX_ATTEMPTS, dice)
}

/// The same with every usable account in order, not only the first ones: for people who want to see the whole order.
///
/// # Errors
/// When every candidate is excluded.
pub fn rank_all(input: &RouteInput<'_>, dice: &mut dyn FnMut() -> u32) -> Result<Plan, NoRoute> {
    choose(input, usize::MAX, dice)
}

fn choose(input: &RouteInput<'_>, most: usize, dice: &mut dyn FnMut() -> u32) -> Result<Plan, NoRoute> {
    debug_assert_eq!(input.catalog.revision, input.offer.revision, "an offer is good for its own snapshot only");
    let mut sieve = Sieve::run(input, Translation::Later);
    let mut chosen = input.choose(&mut sieve, most, dice);
    if chosen.is_empty() && sieve.foreign {
        // Nothing is left to try, so every reason counts: what a protocol cannot express lasts longer than what keeps
        // an account from being used.
        sieve = Sieve::run(input, Translation::Now);
    }
    let Sieve { mut excluded, hiccups, busy, .. } = sieve;
    if chosen.is_empty() && !busy {
        // The model's last account is tried all the same while it cools for a hiccup: the one that is back first, and
        // only that one, so that a total outage costs one attempt a request.
        if let Some(last) = hiccups.into_iter().min_by_key(|it| (it.usable.priority, it.until)) {
            excluded.remove(last.excluded);
            chosen.push(last.usable);
        }
    }
    let mut attempts = chosen.iter().filter_map(|it| input.attempt(it));
    let Some(first) = attempts.next() else { return Err(NoRoute { excluded, method: input.outline.method }) };
    Ok(Plan { first, rest: attempts.collect(), excluded })
}

impl RouteInput<'_> {
    /// The accounts to try, in order, out of those the sieve let through. One of another protocol is asked whether it
    /// can express the request, and excluded with its channel where it cannot, unless the first one needs no
    /// translation: then it is asked when its turn comes, which is hardly ever.
    fn choose(&self, sieve: &mut Sieve<'_, '_>, most: usize, dice: &mut dyn FnMut() -> u32) -> Vec<Usable> {
        let costs = |it: &Usable| self.cost_for_order(it);
        let order = Order { routing: self.offer.group.routing, affinity: self.outline.affinity, cost: &costs };
        let mut usable = std::mem::take(&mut sieve.usable);
        if !sieve.foreign {
            return pick(usable, most, order, dice);
        }
        let mut chosen: Vec<Usable> = Vec::new();
        while chosen.len() < most {
            let mut next = pick(usable.clone(), most - chosen.len(), order, dice);
            usable.retain(|it| !next.contains(it));
            let Some(first) = next.first() else { break };
            if chosen.is_empty() && !first.foreign {
                let spare = next.iter().filter(|it| it.foreign).count();
                next.extend(pick(usable, spare, order, dice));
                return next;
            }
            for it in next {
                if !it.foreign || sieve.expresses(it.candidate as usize) {
                    chosen.push(it);
                } else {
                    usable.retain(|other| other.candidate != it.candidate);
                }
            }
        }
        chosen
    }

    fn attempt(&self, chosen: &Usable) -> Option<PlannedAttempt> {
        let served = self.offer.candidates.get(chosen.candidate as usize)?;
        let channel = self.catalog.channel_at(served.channel)?;
        let account = channel.accounts.get(chosen.account as usize)?;
        let serves = served.serves as usize;
        Some(PlannedAttempt {
            channel: channel.clone(),
            account: account.clone(),
            serves,
            cost: cost_of(channel, serves, self.now).map(Cow::into_owned),
            protocol: if channel.provider == Provider::Echo { self.from } else { channel.protocol },
        })
    }

    /// What orders candidates without weight: input and output price together; unknown ones last.
    fn cost_for_order(&self, it: &Usable) -> i128 {
        let cost = || {
            let served = self.offer.candidates.get(it.candidate as usize)?;
            let channel = self.catalog.channel_at(served.channel)?;
            let account = channel.accounts.get(it.account as usize)?;
            let price = cost_of(channel, served.serves as usize, self.now)?;
            Effective::of(&price, estimate_input(self.outline), account.cost_multiplier).sum()
        };
        cost().unwrap_or(i128::MAX)
    }
}

#[cfg(test)]
mod tests;
