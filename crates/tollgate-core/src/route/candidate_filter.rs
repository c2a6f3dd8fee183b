//! Parting candidates into those that may be tried and those that may not, each with its reason.

use std::{borrow::Cow, sync::Arc};

use tollgate_protocol::Method;

use super::{AccountLoad, ChannelBudget, ExcludedCandidate, Exclusion, RouteInput, rank::Candidate};
use crate::{
    Account, AccountId, Availability, Catalog, Channel, HealthStatus, MappingRef, Price, Provider, Routing, Timestamp,
    catalog::channel_index::{AccountEntry, ChannelEntry},
    estimate_input,
    offer::ModelPurpose,
    price_limit::{EffectivePrice, PriceRules, money_is_bounded},
};

/// Room for exclusions that is made at once.
const MAX_PREALLOCATED: usize = 1_024;
/// What puts a candidate behind all priorities.
const LATER: i64 = 1 << 33;

/// Parts the candidates into those that may be tried and those that may not.
pub(super) struct CandidateFilter<'r, 'c, 'a> {
    input: &'r RouteInput<'c, 'a>,
    prices: PriceRules,
    prompt_tokens: u64,
    /// What excludes every candidate: a limit on the sale, or no price where money is bounded.
    sale: Option<Exclusion>,
    pub(super) usable: Vec<Candidate>,
    pub(super) excluded: Vec<ExcludedCandidate<'c>>,
    /// Whether a channel of another protocol was looked at.
    pub(super) foreign: bool,
    /// What such channels said when they were asked whether they can express the request, by position in the offer's
    /// candidates.
    asked: Vec<(u32, bool)>,
    /// Whether the speed of accounts matters.
    fastest: bool,
    /// Whether requests of this kind are measured: those for text are, counts and vectors take what they take.
    measured: bool,
    /// Whether the answer streams, so that its first token is what counts.
    streams: bool,
    /// Whether a limit looks at what an account costs.
    cost_counts: bool,
    /// Whether vectors are asked for.
    embeds: bool,
    /// Nothing of the request or its past can stand against a channel that is plain itself. Then its row need not be read.
    plain: bool,
}

impl<'r, 'c, 'a> CandidateFilter<'r, 'c, 'a> {
    /// Parts all candidates of the offer. Channels of another protocol are asked whether they can express the request
    /// when a plan comes to them ([`CandidateFilter::expresses`]).
    pub(super) fn run(input: &'r RouteInput<'c, 'a>) -> Self {
        let mut filter = Self::new(input);
        for (candidate, served) in (0..).zip(&input.offer.candidates) {
            filter.candidate(candidate, *served);
        }
        filter
    }

    fn new(input: &'r RouteInput<'c, 'a>) -> Self {
        // Counting costs nothing, so no price can be too high.
        let free = input.summary.method == Method::CountTokens;
        let prompt_tokens = estimate_input(input.summary);
        let prices =
            if free { PriceRules::none() } else { PriceRules::new(input.caller, input.offer, input.request_limit, prompt_tokens) };
        let unpriced = !free && input.offer.sale.is_none() && money_is_bounded(input.caller, input.offer);
        let sale = prices.sale_exclusion().or(unpriced.then_some(Exclusion::Unpriced));
        let fastest = input.offer.group.routing == Routing::Fastest;
        let (measured, streams) = (fastest && input.summary.method.generates(), input.summary.stream);
        let usable = Vec::with_capacity(input.offer.candidates.len().min(MAX_PREALLOCATED));
        let (excluded, asked) = (Vec::new(), Vec::new());
        let cost_counts = prices.looks_at_cost();
        let embeds = ModelPurpose::of_method(input.summary.method) == ModelPurpose::Embedding;
        let plain = sale.is_none()
            && input.latest_catalog.is_none()
            && input.history.is_empty()
            && !input.candidate_view.has_unsupported_fields();
        Self {
            input,
            prices,
            prompt_tokens,
            sale,
            usable,
            excluded,
            foreign: false,
            asked,
            fastest,
            measured,
            streams,
            cost_counts,
            embeds,
            plain,
        }
    }

    /// Whether a candidate's channel can express the request; where it cannot, the whole channel is excluded.
    pub(super) fn expresses(&mut self, candidate: u32) -> bool {
        if let Some((_, known)) = self.asked.iter().find(|(asked, _)| *asked == candidate) {
            return *known;
        }
        let why = self.cannot_translate(candidate);
        self.asked.push((candidate, why.is_none()));
        let Some(why) = why else { return true };
        self.excluded.retain(|it| it.candidate != candidate);
        self.excluded.push(why);
        false
    }

    /// Asks every channel of another protocol that is excluded for something that counts less: where it cannot express
    /// the request, that is the reason.
    pub(super) fn check_all_translations(&mut self) {
        if !self.foreign {
            return;
        }
        let mut said: Option<(u32, bool)> = None;
        for it in std::mem::take(&mut self.excluded) {
            let whole_and_off = it.account.is_none() && it.why == Exclusion::Disabled;
            if it.channel.speaks(self.input.from) || whole_and_off || !it.why.is_less_than_translation() {
                self.excluded.push(it);
                continue;
            }
            // The accounts of a channel stand together.
            let expresses = match said {
                Some((candidate, expresses)) if candidate == it.candidate => expresses,
                Some(_) | None => {
                    let cannot = self.cannot_translate(it.candidate);
                    let expresses = cannot.is_none();
                    self.excluded.extend(cannot);
                    expresses
                }
            };
            said = Some((it.candidate, expresses));
            if expresses {
                self.excluded.push(it);
            }
        }
    }

    /// The model's last account, which is tried all the same while it cools for a hiccup: the one that is back first, and
    /// only that one, so that a total outage costs one such attempt a request. Not while a healthy one is merely busy and
    /// can be waited for.
    pub(super) fn last_resort(&mut self) -> Option<Candidate> {
        if self.input.history.took_last_resort() || self.excluded.iter().any(|it| matches!(it.why, Exclusion::Concurrency)) {
            return None;
        }
        let hiccups = self.excluded.iter().enumerate().filter_map(|(at, it)| {
            let Exclusion::Cooling { until, why } = it.why else { return None };
            why.is_transient().then(|| (self.priority(it.channel), until, at))
        });
        let (.., at) = hiccups.min()?;
        let last = self.excluded.remove(at);
        Some(Candidate {
            candidate: last.candidate,
            account: last.account?,
            priority: self.priority(last.channel),
            // What a lone one is drawn by does not matter.
            weight: 0,
            share: 0,
            id: last.account()?.id,
            latency_us: 0,
            foreign: !last.channel.speaks(self.input.from),
        })
    }

    fn cannot_translate(&self, candidate: u32) -> Option<ExcludedCandidate<'c>> {
        let served = self.input.offer.candidates.get(candidate as usize)?;
        let channel = self.input.catalog.channel_at(served.channel)?;
        let fields = self.input.candidate_view.untranslatable_fields(channel, channel.mappings.get(served.mapping as usize)?);
        (!fields.is_empty()).then_some(ExcludedCandidate {
            channel,
            account: None,
            why: Exclusion::CannotTranslate(fields),
            candidate,
        })
    }

    /// Looks at one of the offer's candidates.
    fn candidate(&mut self, candidate: u32, served: MappingRef) {
        let input = self.input;
        let Some((channel_entry, account_entries)) = input.catalog.channel_index.at(served.channel) else { return };
        let Some(channel) = input.catalog.channel_at(served.channel) else { return };
        let foreign = !channel_entry.speaks(input.from);
        self.foreign |= foreign;
        let plain = self.plain && channel_entry.plain && (!foreign || input.translates) && (!self.embeds || channel_entry.embeds);
        if !plain && let Some(why) = self.channel_exclusion(channel, served.mapping as usize) {
            self.exclude(channel, None, why, candidate);
            return;
        }
        let cost = if self.cost_counts { cost_of(channel, served.mapping as usize, input.now) } else { None };
        let priority = if self.plain { i64::from(channel_entry.priority) } else { self.priority(channel) };
        for (at, account_entry) in (0..).zip(account_entries) {
            if !self.plain && input.history.is_tried(account_entry.id) {
                continue;
            }
            if !self.plain
                && account_entry.on
                && let Some(account) = channel.accounts.get(at as usize)
                && let Some(why) = input.history.account_exclusion(channel.id, account)
            {
                self.exclude(channel, Some(at), why, candidate);
                continue;
            }
            match self.account_exclusion(channel, channel_entry, at, *account_entry, cost.as_deref()) {
                Ok((share, latency_us)) => self.usable.push(Candidate {
                    candidate,
                    account: at,
                    priority,
                    weight: channel_entry.weight,
                    share,
                    id: account_entry.id,
                    latency_us,
                    foreign,
                }),
                Err(why) => self.exclude(channel, Some(at), why, candidate),
            }
        }
    }

    /// Lower first. Where nobody took this request's connection before is behind everything else.
    fn priority(&self, channel: &Channel) -> i64 {
        i64::from(channel.priority) + if self.input.history.is_unreachable(channel) { LATER } else { 0 }
    }

    #[inline]
    fn exclude(&mut self, channel: &'c Channel, account: Option<u32>, why: Exclusion, candidate: u32) {
        if self.excluded.is_empty() {
            // One is seldom alone.
            let channels = self.input.offer.candidates.len() - candidate as usize;
            self.excluded.reserve(channels.max(channel.accounts.len()).min(MAX_PREALLOCATED));
        }
        self.excluded.push(ExcludedCandidate { channel, account, why, candidate });
    }

    /// What excludes a channel with all its accounts, what lasts longest first.
    fn channel_exclusion(&self, channel: &Channel, serves: usize) -> Option<Exclusion> {
        let input = self.input;
        let Some(mapping) = channel.mappings.get(serves) else { return Some(Exclusion::NoMapping) };
        if !channel.serves_purpose(ModelPurpose::of_method(input.summary.method)) {
            return Some(Exclusion::NoMapping);
        }
        if !input.translates && !channel.speaks(input.from) {
            return Some(Exclusion::OtherProtocol(channel.protocol));
        }
        if channel.accounts.is_empty() {
            return Some(Exclusion::NoAccount);
        }
        if !channel.on || input.latest_catalog.is_some_and(|newer| newer.channels.get(&channel.id).is_none_or(|row| !row.on)) {
            return Some(Exclusion::Disabled);
        }
        if let Some(why) = input.history.exclusion(channel) {
            return Some(why);
        }
        let learned = input.candidate_view.unsupported_fields(channel, mapping);
        if !learned.is_empty() {
            return Some(Exclusion::Capability(learned));
        }
        if let Some(why) = &self.sale {
            return Some(why.clone());
        }
        if !channel.budgets.is_empty()
            && let ChannelBudget::Spent { until } = input.candidate_view.channel_budget(channel)
        {
            return Some(Exclusion::Budget { until });
        }
        None
    }

    /// What excludes one account, or what is left of its weight, in thousandths, and how soon its first tokens come.
    #[inline]
    fn account_exclusion(
        &self,
        channel: &Channel,
        channel_entry: &ChannelEntry,
        at: u32,
        account_entry: AccountEntry,
        cost: Option<&Price>,
    ) -> Result<(u32, u64), Exclusion> {
        if !account_entry.on || self.input.latest_catalog.is_some_and(|newer| !is_on(newer, channel, at, account_entry.id)) {
            return Err(Exclusion::Disabled);
        }
        if self.cost_counts
            && let Some(account) = channel.accounts.get(at as usize)
        {
            let cost = cost.map(|price| EffectivePrice::of(price, self.prompt_tokens, account.cost_multiplier));
            if let Some(why) = self.prices.cost_exclusion(cost) {
                return Err(why);
            }
        }
        let mut status = HealthStatus::HEALTHY;
        if channel_entry.cooling || self.fastest {
            status = self.input.health.status(account_entry.id, self.input.now);
            match status.availability {
                Availability::Cooling { until, why } if channel_entry.cooling => return Err(Exclusion::Cooling { until, why }),
                Availability::Resting { until, why } if channel_entry.cooling => return Err(Exclusion::Resting { until, why }),
                Availability::Usable | Availability::ProbeDue | Availability::Cooling { .. } | Availability::Resting { .. } => {}
            }
        }
        if account_entry.bounds.any() {
            match self.input.candidate_view.account_load(account_entry.id, account_entry.bounds) {
                AccountLoad::Free => {}
                AccountLoad::AtConcurrency => return Err(Exclusion::Concurrency),
                AccountLoad::AtRate { until } => return Err(Exclusion::Rate { until }),
            }
        }
        let latency_us = if self.streams { status.first_token_us } else { status.whole_answer_us };
        Ok((if channel_entry.cooling { status.share } else { 1_000 }, if self.measured { latency_us } else { 0 }))
    }
}

/// Whether an account is on in another catalog, where it most likely has the same place.
fn is_on(newer: &Catalog, channel: &Channel, at: u32, account: AccountId) -> bool {
    let Some(row) = newer.channels.get(&channel.id) else { return false };
    let same = |it: &&Arc<Account>| it.id == account;
    row.accounts.get(at as usize).filter(same).or_else(|| row.accounts.iter().find(same)).is_some_and(|it| it.on)
}

/// What a channel charges for a model now; `None`: nobody said. Echo charges nothing.
#[must_use]
pub fn cost_of(channel: &Channel, serves: usize, now: Timestamp) -> Option<Cow<'_, Price>> {
    let stated = channel.mappings.get(serves)?.cost.as_ref().and_then(|schedule| schedule.at(now)).map(Cow::Borrowed);
    stated.or_else(|| (channel.provider == Provider::Echo).then(|| Cow::Owned(Price::free())))
}
