//! Splits candidates into those that may be tried and those that are excluded, each with its reason.

use std::{borrow::Cow, sync::Arc};

use tollgate_protocol::{Method, Protocol, RequestExtras};

use super::{CapacityLoad, ChannelBudget, ExcludedCandidate, Exclusion, MissingPrice, RouteInput, rank::Candidate};
use crate::{
    Account, AccountId, Availability, Catalog, Channel, HealthStatus, MappingRef, Price, Provider, Routing, SharedPrice, Timestamp,
    below_cost,
    catalog::channel_index::{AccountEntry, ChannelEntry},
    money::has_price_effect,
    offer::ModelPurpose,
    price_limit::{EffectivePrice, PriceBasis, PriceRules, money_is_bounded},
};

/// Capacity reserved up front for exclusions, at most.
const MAX_PREALLOCATED: usize = 1_024;
/// Priority offset that puts unreachable channels behind all others.
const UNREACHABLE_OFFSET: i64 = 1 << 33;

/// Splits the candidates of an offer.
pub(super) struct CandidateFilter<'r, 'c, 'a> {
    input: &'r RouteInput<'c, 'a>,
    prices: PriceRules,
    basis: PriceBasis,
    /// Excludes every candidate: a limit on the sale price, or no price although money is bounded.
    sale: Option<Exclusion>,
    pub(super) eligible: Vec<Candidate>,
    pub(super) excluded: Vec<ExcludedCandidate<'c>>,
    /// True when a channel of another protocol is among the candidates.
    pub(super) needs_translation: bool,
    /// Results of translatability checks, by position in the offer's candidates.
    checked: Vec<(u32, bool)>,
    /// True when the group routes by latency.
    routes_by_latency: bool,
    /// True when latency applies to this request: token counts and embeddings are not measured.
    latency_applies: bool,
    /// True for streams, where the time to the first token is compared.
    streams: bool,
    /// True when a price limit applies to cost.
    cost_applies: bool,
    /// True when nothing may be sold below cost.
    never_below_cost: bool,
    /// True when embeddings are requested.
    embeds: bool,
    /// True when nothing about the request or its history can exclude an unconditional channel. Its row is then not read.
    unconditional: bool,
}

impl<'r, 'c, 'a> CandidateFilter<'r, 'c, 'a> {
    /// Filters all candidates of the offer. Channels of another protocol are checked for translatability only when a plan reaches
    /// them ([`CandidateFilter::can_express`]).
    pub(super) fn apply(input: &'r RouteInput<'c, 'a>) -> Self {
        let mut filter = Self::new(input);
        for (candidate, mapping_ref) in (0..).zip(&input.offer.candidates) {
            filter.candidate(candidate, *mapping_ref);
        }
        filter
    }

    fn new(input: &'r RouteInput<'c, 'a>) -> Self {
        // Counting is free, so no price limit applies.
        let free = input.summary.method == Method::CountTokens;
        let basis = PriceBasis::of(input.summary);
        let prices = if free { PriceRules::none() } else { PriceRules::new(input.caller, input.offer, input.request_limit, basis) };
        let unpriced = !free && input.offer.sale.is_none() && money_is_bounded(input.caller, input.offer);
        let sale = prices.sale_exclusion().or(unpriced.then_some(Exclusion::Unpriced(MissingPrice::SaleForBoundedMoney)));
        let routes_by_latency = input.offer.group.routing == Routing::Fastest;
        let (latency_applies, streams) = (routes_by_latency && input.summary.method.generates(), input.summary.stream);
        let eligible = Vec::with_capacity(input.offer.candidates.len().min(MAX_PREALLOCATED));
        let (excluded, checked) = (Vec::new(), Vec::new());
        let never_below_cost = !free && input.offer.group.never_below_cost;
        let cost_applies = never_below_cost || prices.applies_to_cost();
        let embeds = ModelPurpose::of_method(input.summary.method) == ModelPurpose::Embedding;
        let unconditional = sale.is_none()
            && input.latest_catalog.is_none()
            && input.history.is_empty()
            && !input.candidate_view.has_unsupported_fields();
        Self {
            input,
            prices,
            basis,
            sale,
            eligible,
            excluded,
            needs_translation: false,
            checked,
            routes_by_latency,
            latency_applies,
            streams,
            cost_applies,
            never_below_cost,
            embeds,
            unconditional,
        }
    }

    /// True when the candidate's channel can express the request; otherwise the whole channel is excluded.
    pub(super) fn can_express(&mut self, candidate: u32) -> bool {
        if let Some((_, known)) = self.checked.iter().find(|(checked, _)| *checked == candidate) {
            return *known;
        }
        let why = self.translation_exclusion(candidate);
        self.checked.push((candidate, why.is_none()));
        let Some(why) = why else { return true };
        self.excluded.retain(|it| it.offer_index != candidate);
        self.excluded.push(why);
        false
    }

    /// Checks the excluded channels of other protocols too: if one cannot express the request, that replaces less permanent
    /// reasons.
    pub(super) fn check_all_translations(&mut self) {
        if !self.needs_translation {
            return;
        }
        let purpose = ModelPurpose::of_method(self.input.summary.method);
        let mut last: Option<(u32, bool)> = None;
        for it in std::mem::take(&mut self.excluded) {
            let channel_disabled = it.account.is_none() && it.why == Exclusion::Disabled;
            if it.channel.speaks(self.input.from, purpose) || channel_disabled || !it.why.yields_to_translation() {
                self.excluded.push(it);
                continue;
            }
            // The accounts of a channel are adjacent.
            let can_express = match last {
                Some((candidate, can_express)) if candidate == it.offer_index => can_express,
                Some(_) | None => {
                    let cannot = self.translation_exclusion(it.offer_index);
                    let can_express = cannot.is_none();
                    self.excluded.extend(cannot);
                    can_express
                }
            };
            last = Some((it.offer_index, can_express));
            if can_express {
                self.excluded.push(it);
            }
        }
    }

    /// The last resort: an account that cools for another reason than a rate limit, the one available soonest. Only one per request, so that
    /// a total outage costs one such attempt. None while a healthy account is merely busy, because that can be waited for.
    pub(super) fn last_resort(&mut self) -> Option<Candidate> {
        if self.input.history.took_last_resort() || self.excluded.iter().any(|it| it.why.is_concurrency()) {
            return None;
        }
        let transient = self.excluded.iter().enumerate().filter_map(|(at, it)| {
            let Exclusion::Cooling { until, why } = it.why else { return None };
            why.is_tried_as_last().then(|| (self.priority(it.channel), until, at))
        });
        let (.., at) = transient.min()?;
        let last = self.excluded.remove(at);
        Some(Candidate {
            offer_index: last.offer_index,
            account: last.account?,
            priority: self.priority(last.channel),
            // Unused: a single candidate needs no ranking.
            weight: 0,
            share: 0,
            id: last.account()?.id,
            latency_us: 0,
            needs_translation: !last.channel.speaks(self.input.from, ModelPurpose::of_method(self.input.summary.method)),
        })
    }

    fn translation_exclusion(&self, candidate: u32) -> Option<ExcludedCandidate<'c>> {
        let mapping_ref = self.input.offer.candidates.get(candidate as usize)?;
        let channel = self.input.catalog.channel_at(mapping_ref.channel)?;
        let fields =
            self.input.candidate_view.untranslatable_fields(channel, channel.spec.serves.get(mapping_ref.mapping as usize)?);
        (!fields.is_empty()).then_some(ExcludedCandidate {
            channel,
            account: None,
            why: Exclusion::CannotTranslate(fields),
            offer_index: candidate,
        })
    }

    /// Filters one of the offer's candidates.
    fn candidate(&mut self, candidate: u32, mapping_ref: MappingRef) {
        let input = self.input;
        let Some((channel_entry, account_entries)) = input.catalog.channel_index.at(mapping_ref.channel) else { return };
        let Some(channel) = input.catalog.channel_at(mapping_ref.channel) else { return };
        let needs_translation = !channel_entry.speaks(input.from, self.embeds);
        self.needs_translation |= needs_translation;
        let unconditional = self.unconditional
            && channel_entry.unconditional
            && (!needs_translation || input.translates)
            && (!self.embeds || channel_entry.embeds());
        if !unconditional && let Some(why) = self.channel_exclusion(channel, mapping_ref.mapping as usize) {
            self.exclude(channel, None, why, candidate);
            return;
        }
        let cost = if self.cost_applies {
            known_cost(channel, mapping_ref.mapping as usize, input.now, (input.from, input.summary.extras))
        } else {
            Err(MissingPrice::CostForPriceLimit)
        };
        let cost = cost.as_ref().map(|price| &***price).map_err(|missing| *missing);
        let load = if channel_entry.limits.any() {
            input.candidate_view.channel_load(channel.id, channel_entry.limits)
        } else {
            CapacityLoad::Free
        };
        let priority = if self.unconditional { i64::from(channel_entry.priority) } else { self.priority(channel) };
        for (at, account_entry) in (0..).zip(account_entries) {
            if !self.unconditional && input.history.is_tried(account_entry.id) {
                continue;
            }
            if !self.unconditional
                && account_entry.on
                && let Some(account) = channel.accounts.get(at as usize)
                && let Some(why) = input.history.account_exclusion(channel.id, account)
            {
                self.exclude(channel, Some(at), why, candidate);
                continue;
            }
            let usable = self.account_exclusion(channel, channel_entry, at, *account_entry, cost);
            match within_channel(usable, load) {
                Ok((share, latency_us)) => self.eligible.push(Candidate {
                    offer_index: candidate,
                    account: at,
                    priority,
                    weight: channel_entry.weight,
                    share,
                    id: account_entry.id,
                    latency_us,
                    needs_translation,
                }),
                Err(why) => self.exclude(channel, Some(at), why, candidate),
            }
        }
    }

    /// Sort key, lower first. Channels this request could not connect to come after all others.
    fn priority(&self, channel: &Channel) -> i64 {
        i64::from(channel.spec.priority) + if self.input.history.is_unreachable(channel) { UNREACHABLE_OFFSET } else { 0 }
    }

    #[inline]
    fn exclude(&mut self, channel: &'c Channel, account: Option<u32>, why: Exclusion, candidate: u32) {
        if self.excluded.is_empty() {
            // Exclusions seldom come alone.
            let channels = self.input.offer.candidates.len() - candidate as usize;
            self.excluded.reserve(channels.max(channel.accounts.len()).min(MAX_PREALLOCATED));
        }
        self.excluded.push(ExcludedCandidate { channel, account, why, offer_index: candidate });
    }

    /// The most permanent reason that excludes a channel with all its accounts.
    fn channel_exclusion(&self, channel: &Channel, mapping_index: usize) -> Option<Exclusion> {
        let input = self.input;
        let Some(mapping) = channel.spec.serves.get(mapping_index) else { return Some(Exclusion::NoMapping) };
        let purpose = ModelPurpose::of_method(input.summary.method);
        if !channel.serves_purpose(purpose) {
            return Some(Exclusion::NoMapping);
        }
        if !input.translates && !channel.speaks(input.from, purpose) {
            return Some(Exclusion::OtherProtocol(channel.spec.protocol));
        }
        if channel.accounts.is_empty() {
            return Some(Exclusion::NoAccount);
        }
        if !channel.spec.on
            || input.latest_catalog.is_some_and(|newer| newer.channels.get(&channel.id).is_none_or(|row| !row.spec.on))
        {
            return Some(Exclusion::Disabled);
        }
        if channel.needs_private_network {
            return Some(Exclusion::PrivateNetwork);
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
        if !channel.spec.budgets.is_empty()
            && let ChannelBudget::Spent { until } = input.candidate_view.channel_budget(channel)
        {
            return Some(Exclusion::Budget { until });
        }
        None
    }

    fn below_cost(&self, cost: Option<&Price>, channel: &Channel, account: &Account) -> Option<Exclusion> {
        let may_search = extras_at(channel, self.input.from, self.input.summary.extras).web_search;
        let offer = self.input.offer;
        let sale = offer.sale.as_deref().map(|price| (price, offer.sale_multiplier));
        below_cost::exclusion(sale, cost.map(|price| (price, account.spec.cost_multiplier)), self.basis.prompt_tokens, may_search)
    }

    /// Reason that excludes an account; otherwise its weight share in thousandths and its average latency in microseconds.
    #[inline]
    fn account_exclusion(
        &self,
        channel: &Channel,
        channel_entry: &ChannelEntry,
        at: u32,
        account_entry: AccountEntry,
        cost: Result<&Price, MissingPrice>,
    ) -> Result<(u32, u64), Exclusion> {
        if !account_entry.on || self.input.latest_catalog.is_some_and(|newer| !is_on(newer, channel, at, account_entry.id)) {
            return Err(Exclusion::Disabled);
        }
        if self.cost_applies
            && let Some(account) = channel.accounts.get(at as usize)
        {
            let why = self.never_below_cost.then(|| self.below_cost(cost.ok(), channel, account)).flatten();
            let price = cost.ok().map(|price| EffectivePrice::of(price, self.basis, account.spec.cost_multiplier));
            if let Some(why) = why.or_else(|| self.prices.cost_exclusion(price)) {
                return Err(match (why, cost) {
                    (Exclusion::Unpriced(MissingPrice::CostForPriceLimit), Err(missing)) => Exclusion::Unpriced(missing),
                    (why, _) => why,
                });
            }
        }
        let mut status = HealthStatus::HEALTHY;
        if channel_entry.cooling || self.routes_by_latency {
            status = self.input.health.status(account_entry.id, self.input.now);
            match status.availability {
                Availability::Cooling { until, why } if channel_entry.cooling => return Err(Exclusion::Cooling { until, why }),
                Availability::Resting { until, why } if channel_entry.cooling => return Err(Exclusion::Resting { until, why }),
                Availability::Usable | Availability::ProbeDue | Availability::Cooling { .. } | Availability::Resting { .. } => {}
            }
        }
        if account_entry.limits.any() {
            match self.input.candidate_view.account_load(account_entry.id, account_entry.limits) {
                CapacityLoad::Free => {}
                CapacityLoad::AtConcurrency => return Err(Exclusion::Concurrency),
                CapacityLoad::AtRate { until } => return Err(Exclusion::Rate { until }),
            }
        }
        let latency_us = if self.streams { status.first_token_us } else { status.whole_answer_us };
        Ok((if channel_entry.cooling { status.share } else { 1_000 }, if self.latency_applies { latency_us } else { 0 }))
    }
}

/// An account within the load of its channel. The account's own reason comes first, because it is more specific than the channel's,
/// unless the channel's lasts longer.
fn within_channel<T>(account: Result<T, Exclusion>, load: CapacityLoad) -> Result<T, Exclusion> {
    match (account, load) {
        (account, CapacityLoad::Free) => account,
        (Ok(_), CapacityLoad::AtConcurrency) => Err(Exclusion::ChannelConcurrency),
        (Ok(_) | Err(Exclusion::Concurrency), CapacityLoad::AtRate { until }) => Err(Exclusion::ChannelRate { until }),
        (Err(Exclusion::Rate { until: own }), CapacityLoad::AtRate { until }) if until > own => {
            Err(Exclusion::ChannelRate { until })
        }
        (Err(why), CapacityLoad::AtConcurrency | CapacityLoad::AtRate { .. }) => Err(why),
    }
}

/// True when an account is enabled in another catalog, where it is most likely at the same position.
fn is_on(newer: &Catalog, channel: &Channel, at: u32, account: AccountId) -> bool {
    let Some(row) = newer.channels.get(&channel.id) else { return false };
    let same = |it: &&Arc<Account>| it.id == account;
    row.accounts.get(at as usize).filter(same).or_else(|| row.accounts.iter().find(same)).is_some_and(|it| it.spec.on)
}

/// Cost price of a mapping at a time; `None`: unknown. Echo is free.
pub fn cost_of(channel: &Channel, mapping_index: usize, now: Timestamp) -> Option<Cow<'_, SharedPrice>> {
    let stated =
        channel.spec.serves.get(mapping_index)?.cost.as_ref().and_then(|schedule| schedule.shared_at(now)).map(Cow::Borrowed);
    stated.or_else(|| (channel.spec.provider == Provider::Echo).then(|| Cow::Owned(Price::free().into())))
}

/// The extras of a request at a channel. A channel of another protocol than the caller's serves it without the caller's own search.
pub fn extras_at(channel: &Channel, from: Protocol, extras: RequestExtras) -> RequestExtras {
    extras.at_upstream(channel.speaks(from, ModelPurpose::Generation))
}

/// Cost price of a mapping for a request of a caller's protocol with these extras; the error names the unknown price.
pub(crate) fn known_cost(
    channel: &Channel,
    mapping_index: usize,
    now: Timestamp,
    (from, extras): (Protocol, RequestExtras),
) -> Result<Cow<'_, SharedPrice>, MissingPrice> {
    let cost = cost_of(channel, mapping_index, now).ok_or(MissingPrice::CostForPriceLimit)?;
    let extras = extras_at(channel, from, extras);
    if !has_price_effect(extras) {
        return Ok(cost);
    }
    let (price, unpriced) = cost.with_extras(extras);
    unpriced.first().map_or(Ok(Cow::Owned(price.into())), |option| Err(MissingPrice::CostOfOption(*option)))
}

/// [`known_cost`] as an option; `None`: unknown.
pub(crate) fn cost_with_extras(
    channel: &Channel,
    mapping_index: usize,
    now: Timestamp,
    asked: (Protocol, RequestExtras),
) -> Option<Cow<'_, SharedPrice>> {
    known_cost(channel, mapping_index, now, asked).ok()
}
