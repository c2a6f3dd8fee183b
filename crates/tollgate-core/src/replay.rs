//! What a changed catalog would have done with requests that were recorded: other accounts, other prices, other refusals.
//!
//! Each request is chosen for twice, by the catalog as it is and by the changed one, with everything else the same: the
//! time, the tokens, every account well, and a draw that depends on the request alone. So whatever differs is the
//! change's doing. What a record does not keep cannot differ: fields of the request, waits, limits, budgets.

use std::{collections::BTreeMap, collections::HashMap, sync::Arc};

use tollgate_protocol::{Method, RequestSummary, SplicePoints};

use crate::{
    AccountId, AttemptHistory, Caller, Catalog, HealthStatus, HealthView, Key, KeyId, Multiplier, NanoUsd, NotOffered, Price,
    RouteInput, Timestamp, TokenSource, UnlimitedView, UsageRecord, amount, resolve, route,
};

/// A catalog and the keys that may be asked for, by the ids that records have.
#[derive(Clone, Copy, Debug)]
pub struct ReplaySide<'a> {
    /// The catalog.
    pub catalog: &'a Catalog,
    /// Keys. A record whose key is not here is passed over.
    pub keys: &'a HashMap<KeyId, Arc<Key>>,
}

/// Replays records one by one.
#[derive(Debug)]
pub struct Replay<'a> {
    before: ReplaySide<'a>,
    after: ReplaySide<'a>,
    report: ReplayReport,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Records that were replayed.
    pub replayed: u64,
    /// Records that never came to a choice of accounts: refused before, or passed on with faults of their own.
    pub not_routed: u64,
    /// Records whose key one of the catalogs does not have.
    pub without_key: u64,
    /// By the catalog as it is.
    pub before: ReplayTotals,
    /// By the changed one.
    pub after: ReplayTotals,
    /// What moves, by model, from where, to where: `channel/account`, or a refusal such as `E41 price_limit`.
    pub moves: BTreeMap<ReplayMove, u64>,
    /// Requests and cost of each channel, by model.
    pub channels: BTreeMap<ReplayChannel, ReplayShare>,
}

/// Sums over all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayTotals {
    /// Requests with an account.
    pub served: u64,
    /// Requests without.
    pub refused: u64,
    /// What callers pay, as far as priced.
    pub sale: NanoUsd,
    /// Served requests without a sale price.
    pub unpriced: u64,
    /// What providers charge, as far as known.
    pub cost: NanoUsd,
    /// Served requests whose cost is not known.
    pub cost_unknown: u64,
}

/// A change of place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayMove {
    /// Public name.
    pub model: String,
    /// By the catalog as it is.
    pub from: String,
    /// By the changed one.
    pub to: String,
}

/// A channel as it serves a model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayChannel {
    /// Public name.
    pub model: String,
    /// Channel name.
    pub channel: String,
}

/// What a channel gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayShare {
    /// Requests by the catalog as it is.
    pub before: u64,
    /// Requests by the changed one.
    pub after: u64,
    /// Their cost, as far as known.
    pub cost_before: NanoUsd,
    /// Their cost, as far as known.
    pub cost_after: NanoUsd,
}

/// Where a request ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplayTarget {
    Account { channel: String, account: String, sale: Option<NanoUsd>, cost: Option<NanoUsd> },
    Refused(String),
}

impl<'a> Replay<'a> {
    /// Nothing replayed yet.
    #[must_use]
    pub fn new(before: ReplaySide<'a>, after: ReplaySide<'a>) -> Self {
        Self { before, after, report: ReplayReport::default() }
    }

    /// Replays one record.
    pub fn add(&mut self, record: &UsageRecord) {
        let Some(model) = record.model.as_ref().filter(|_| was_routed(record)) else {
            self.report.not_routed += 1;
            return;
        };
        let (Some(before), Some(after)) = (self.before.keys.get(&record.key), self.after.keys.get(&record.key)) else {
            self.report.without_key += 1;
            return;
        };
        let summary = summary_of(record, model);
        let before = choose(self.before.catalog, before, &summary, record);
        let after = choose(self.after.catalog, after, &summary, record);
        let report = &mut self.report;
        report.replayed += 1;
        report.before.add(&before);
        report.after.add(&after);
        if let ReplayTarget::Account { channel, cost, .. } = &before {
            let share = report.channels.entry(ReplayChannel { model: model.clone(), channel: channel.clone() }).or_default();
            share.before += 1;
            share.cost_before = plus(share.cost_before, *cost);
        }
        if let ReplayTarget::Account { channel, cost, .. } = &after {
            let share = report.channels.entry(ReplayChannel { model: model.clone(), channel: channel.clone() }).or_default();
            share.after += 1;
            share.cost_after = plus(share.cost_after, *cost);
        }
        let (from, to) = (before.name(), after.name());
        if from != to {
            *report.moves.entry(ReplayMove { model: model.clone(), from, to }).or_default() += 1;
        }
    }

    /// What came of it.
    #[must_use]
    pub fn finish(self) -> ReplayReport {
        self.report
    }
}

/// Whether it came to a choice of accounts.
fn was_routed(record: &UsageRecord) -> bool {
    !record.attempts.is_empty() || matches!(record.reason.as_deref(), Some("E13" | "E14" | "E15" | "E40" | "E41"))
}

/// The request as far as its record keeps it. The draw is the same for both catalogs and moves only what must move.
fn summary_of(record: &UsageRecord, model: &str) -> RequestSummary {
    let (high, low) = record.id.uuid().as_u64_pair();
    RequestSummary {
        stream: record.stream,
        // Estimated at exactly the tokens it turned out to have, so that tiers of prices are met.
        text_bytes: record.tokens.prompt().saturating_mul(2),
        affinity: Some(high ^ low),
        ..plain_summary(model, record.method)
    }
}

/// A request that asks for nothing in particular.
pub(crate) fn plain_summary(model: &str, method: Method) -> RequestSummary {
    RequestSummary {
        model: model.to_owned(),
        method,
        stream: false,
        include_usage: false,
        max_output: None,
        candidates: 1,
        fields: Vec::new(),
        text_bytes: 0,
        turns: 0,
        images: 0,
        audio_bytes: 0,
        document_bytes: 0,
        tools: 0,
        affinity: None,
        splices: SplicePoints::default(),
    }
}

/// Every account is well.
pub(crate) struct AllHealthy;

impl HealthView for AllHealthy {
    fn status(&self, _account: AccountId, _now: Timestamp) -> HealthStatus {
        HealthStatus::HEALTHY
    }
}

fn choose(catalog: &Catalog, key: &Arc<Key>, summary: &RequestSummary, record: &UsageRecord) -> ReplayTarget {
    let caller = Caller::of(catalog, Arc::clone(key));
    let offer = match resolve(catalog, &caller, summary, record.protocol_in, record.at) {
        Ok(offer) => offer,
        Err(NotOffered::Unknown) => return ReplayTarget::Refused("E13".to_owned()),
        Err(NotOffered::OutsideGroup) => return ReplayTarget::Refused("E14".to_owned()),
        Err(NotOffered::Method { .. }) => return ReplayTarget::Refused("E15".to_owned()),
        Err(NotOffered::Unsupported { .. }) => return ReplayTarget::Refused("E17".to_owned()),
    };
    let input = RouteInput {
        catalog,
        latest_catalog: None,
        caller: &caller,
        offer: &offer,
        summary,
        from: record.protocol_in,
        health: &AllHealthy,
        candidate_view: &UnlimitedView,
        now: record.at,
        request_limit: None,
        translates: true,
        history: &AttemptHistory::default(),
    };
    // Only asked where affinity leaves something open, and then alike on both sides.
    match route(&input, &mut || 0) {
        Ok(plan) => {
            let first = &plan.first;
            ReplayTarget::Account {
                channel: first.channel.name.clone(),
                account: first.account.name.clone(),
                sale: price(record, offer.sale.as_ref(), offer.group.sale_multiplier),
                cost: price(record, first.cost.as_ref(), first.account.cost_multiplier),
            }
        }
        Err(no) => {
            let id = if no.price_limit_alone() { "E41" } else { "E40" };
            ReplayTarget::Refused(format!("{id} {}", no.cause().as_str()))
        }
    }
}

/// What the recorded tokens come to at a price; nothing was used where nothing was counted.
fn price(record: &UsageRecord, price: Option<&Price>, factor: Multiplier) -> Option<NanoUsd> {
    if record.method == Method::CountTokens || record.tokens.source == TokenSource::None {
        return Some(NanoUsd::ZERO);
    }
    amount(&record.tokens, price?, factor)
}

fn plus(sum: NanoUsd, amount: Option<NanoUsd>) -> NanoUsd {
    NanoUsd(sum.0.saturating_add(amount.unwrap_or(NanoUsd::ZERO).0))
}

impl ReplayTarget {
    fn name(&self) -> String {
        match self {
            Self::Account { channel, account, .. } => format!("{channel}/{account}"),
            Self::Refused(why) => why.clone(),
        }
    }
}

impl ReplayTotals {
    fn add(&mut self, place: &ReplayTarget) {
        match place {
            ReplayTarget::Refused(_) => self.refused += 1,
            ReplayTarget::Account { sale, cost, .. } => {
                self.served += 1;
                self.sale = plus(self.sale, *sale);
                self.cost = plus(self.cost, *cost);
                self.unpriced += u64::from(sale.is_none());
                self.cost_unknown += u64::from(cost.is_none());
            }
        }
    }
}

impl ReplayReport {
    /// Requests that end elsewhere.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moves.values().sum()
    }
}

#[cfg(test)]
mod tests;
