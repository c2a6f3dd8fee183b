//! Parting candidates into those that may be tried and those that may not, each with its reason.

use std::{borrow::Cow, sync::Arc};

use tollgate_protocol::Method;

use super::{
    AccountLoad, ChannelBudget, Excluded, Exclusion, RouteInput,
    rank::{Usable, weight_of},
};
use crate::{
    Account, AccountHealth, Channel, Price, Provider, Routing, Standing, Timestamp, estimate_input,
    offer::Use,
    price_limit::{Effective, PriceRules, money_is_bounded},
};

/// Room for exclusions that is made at once.
const MOST_RESERVED: usize = 1_024;

/// A candidate that cools for connect failures or 5xx and has nothing else against it.
pub(super) struct Hiccup {
    pub(super) usable: Usable,
    pub(super) until: Timestamp,
    pub(super) excluded: usize,
}

/// Parts the candidates into those that may be tried and those that may not.
pub(super) struct Sieve<'a, 'i> {
    input: &'a RouteInput<'i>,
    prices: PriceRules,
    prompt_tokens: u64,
    /// What excludes every candidate: a limit on the sale, or no price where money is bounded.
    sale: Option<Exclusion>,
    pub(super) usable: Vec<Usable>,
    pub(super) excluded: Vec<Excluded>,
    pub(super) hiccups: Vec<Hiccup>,
    /// Whether a channel of another protocol was looked at.
    pub(super) foreign: bool,
    /// When channels of another protocol are asked whether they can express the request.
    translation: Translation,
    /// What such channels said, by position in the offer's candidates.
    asked: Vec<(usize, bool)>,
    /// Whether the speed of accounts matters.
    fastest: bool,
    /// Whether healthy accounts are merely busy.
    pub(super) busy: bool,
}

/// When a channel of another protocol is asked whether it can express the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Translation {
    /// Before anything of its accounts matters.
    Now,
    /// When a plan comes to it ([`Sieve::expresses`]).
    Later,
}

impl<'a, 'i> Sieve<'a, 'i> {
    /// Parts all candidates of the offer.
    pub(super) fn run(input: &'a RouteInput<'i>, translation: Translation) -> Self {
        let mut sieve = Self::new(input, translation);
        for position in 0..input.offer.candidates.len() {
            sieve.channel(position);
        }
        sieve
    }

    fn new(input: &'a RouteInput<'i>, translation: Translation) -> Self {
        // Counting costs nothing, so no price can be too high.
        let free = input.outline.method == Method::CountTokens;
        let prompt_tokens = estimate_input(input.outline);
        let prices =
            if free { PriceRules::none() } else { PriceRules::new(input.caller, input.offer, input.request_limit, prompt_tokens) };
        let unpriced = !free && input.offer.sale.is_none() && money_is_bounded(input.caller, input.offer);
        let sale = prices.sale_exclusion().or(unpriced.then_some(Exclusion::Unpriced));
        let fastest = input.offer.group.routing == Routing::Fastest;
        let (usable, excluded, hiccups) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            input,
            prices,
            prompt_tokens,
            sale,
            usable,
            excluded,
            hiccups,
            foreign: false,
            translation,
            asked: Vec::new(),
            fastest,
            busy: false,
        }
    }

    /// Whether a candidate's channel can express the request; where it cannot, the whole channel is excluded.
    pub(super) fn expresses(&mut self, position: usize) -> bool {
        if let Some((_, known)) = self.asked.iter().find(|(asked, _)| *asked == position) {
            return *known;
        }
        let served = self.input.offer.candidates[position];
        let channel = self.input.catalog.channel_at(served.channel);
        let why = channel.and_then(|channel| self.cannot_translate(channel, served.serves as usize));
        self.asked.push((position, why.is_none()));
        let (Some(channel), Some(why)) = (channel, why) else { return true };
        self.excluded.retain(|it| it.channel.id != channel.id);
        self.excluded.push(Excluded { channel: channel.clone(), account: None, why });
        false
    }

    fn cannot_translate(&self, channel: &Channel, serves: usize) -> Option<Exclusion> {
        let fields = self.input.view.untranslatable(channel, channel.serves.get(serves)?);
        (!fields.is_empty()).then_some(Exclusion::CannotTranslate(fields))
    }

    /// Looks at one of the offer's candidates.
    fn channel(&mut self, position: usize) {
        let served = self.input.offer.candidates[position];
        let Some(channel) = self.input.catalog.channel_at(served.channel) else { return };
        let foreign = !channel.speaks(self.input.from);
        self.foreign |= foreign;
        if let Some(why) = self.channel_exclusion(channel, served.serves as usize) {
            self.exclude(position, channel, None, why);
            return;
        }
        let on = channel.accounts.iter().filter(|account| account.on).count();
        let weight = weight_of(channel.weight, on);
        let cost = self.prices.looks_at_cost().then(|| cost_of(channel, served.serves as usize, self.input.now)).flatten();
        for (at, account) in channel.accounts.iter().enumerate() {
            let usable = Usable {
                candidate: narrow(position),
                account: narrow(at),
                priority: channel.priority,
                weight,
                share: 1_000,
                id: account.id,
                first_token_us: 0,
                foreign,
            };
            match self.account_exclusion(channel, account, cost.as_deref()) {
                Ok(condition) => {
                    let Condition { share, first_token_us } = condition;
                    self.usable.push(Usable { share, first_token_us, ..usable });
                }
                Err(why) => {
                    if let Exclusion::Cooling { until, why } = &why
                        && why.is_hiccup()
                    {
                        self.hiccups.push(Hiccup { usable, until: *until, excluded: self.excluded.len() });
                    }
                    self.busy |= matches!(why, Exclusion::Concurrency | Exclusion::Rate { .. });
                    self.exclude(position, channel, Some(at), why);
                }
            }
        }
    }

    fn exclude(&mut self, position: usize, channel: &Arc<Channel>, account: Option<usize>, why: Exclusion) {
        if self.excluded.is_empty() {
            // One is seldom alone.
            let channels = self.input.offer.candidates.len() - position;
            self.excluded.reserve(channels.max(channel.accounts.len()).min(MOST_RESERVED));
        }
        self.excluded.push(Excluded { channel: Arc::clone(channel), account, why });
    }

    /// What excludes a channel with all its accounts, what lasts longest first.
    fn channel_exclusion(&self, channel: &Channel, serves: usize) -> Option<Exclusion> {
        let input = self.input;
        let Some(mapping) = channel.serves.get(serves) else { return Some(Exclusion::NoMapping) };
        if !channel.serves_use(Use::asked(input.outline.method)) {
            return Some(Exclusion::NoMapping);
        }
        if !input.translates && !channel.speaks(input.from) {
            return Some(Exclusion::OtherProtocol(channel.protocol));
        }
        if channel.accounts.is_empty() {
            return Some(Exclusion::NoAccount);
        }
        if !channel.on {
            return Some(Exclusion::Disabled);
        }
        if self.translation == Translation::Now
            && !channel.speaks(input.from)
            && let Some(why) = self.cannot_translate(channel, serves)
        {
            return Some(why);
        }
        let learned = input.view.learned(channel, mapping);
        if !learned.is_empty() {
            return Some(Exclusion::Capability(learned));
        }
        if let Some(why) = &self.sale {
            return Some(why.clone());
        }
        if !channel.budgets.is_empty()
            && let ChannelBudget::Spent { until } = input.view.channel_budget(channel)
        {
            return Some(Exclusion::Budget { until });
        }
        None
    }

    /// What excludes one account, or what health says of it.
    fn account_exclusion(&self, channel: &Channel, account: &Account, cost: Option<&Price>) -> Result<Condition, Exclusion> {
        if !account.on {
            return Err(Exclusion::Disabled);
        }
        if self.prices.looks_at_cost() {
            let cost = cost.map(|price| Effective::of(price, self.prompt_tokens, account.cost_multiplier));
            if let Some(why) = self.prices.cost_exclusion(cost) {
                return Err(why);
            }
        }
        let mut condition = Condition { share: 1_000, first_token_us: 0 };
        if channel.cooling || self.fastest {
            let health = self.input.health.of(account.id);
            condition.first_token_us = health.first_token_average_us;
            if channel.cooling {
                condition.share = health.share();
                self.stands(&health)?;
            }
        }
        if account.concurrency != 0 || account.rpm != 0 || account.tpm != 0 {
            match self.input.view.account_load(account) {
                AccountLoad::Free => {}
                AccountLoad::AtConcurrency => return Err(Exclusion::Concurrency),
                AccountLoad::AtRate { until } => return Err(Exclusion::Rate { until }),
            }
        }
        Ok(condition)
    }

    fn stands(&self, health: &AccountHealth) -> Result<(), Exclusion> {
        match health.standing(self.input.now) {
            Standing::Usable | Standing::ProbeDue => Ok(()),
            Standing::Cooling { until, why } => Err(Exclusion::Cooling { until, why }),
            Standing::Resting { until, why } => Err(Exclusion::Resting { until, why }),
        }
    }
}

/// What health says of an account that may be used.
struct Condition {
    /// What is left of its weight, thousandths.
    share: u32,
    /// Average time to the first token, in microseconds; 0: not measured.
    first_token_us: u64,
}

/// What a channel charges for a model now. Echo charges nothing.
pub(super) fn cost_of(channel: &Channel, serves: usize, now: Timestamp) -> Option<Cow<'_, Price>> {
    let stated = channel.serves.get(serves)?.cost.as_ref().and_then(|schedule| schedule.at(now)).map(Cow::Borrowed);
    stated.or_else(|| (channel.provider == Provider::Echo).then(|| Cow::Owned(Price::free())))
}

/// A position; a catalog with 2^32 channels or accounts cannot be held in memory.
fn narrow(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}
