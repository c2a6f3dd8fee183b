//! Replay of recorded requests with a changed catalog: the accounts, prices and refusals that it would have led to.
//!
//! Each request is routed twice, under the current and the changed catalog, with everything else equal: time, tokens, all
//! accounts healthy, and a random draw derived from the request id. Differences are therefore effects of the change. Data that
//! records do not keep (request fields, waits, limits, budgets) is not considered.

use std::{collections::BTreeMap, collections::HashMap, sync::Arc};

use tollgate_protocol::{Method, RequestSummary};

use crate::{
    AccountId, AttemptHistory, Caller, Catalog, HealthStatus, HealthView, Key, KeyId, Multiplier, NanoUsd, NotOffered, Price,
    RouteInput, Timestamp, TokenSource, UnlimitedView, UsageRecord, amount, resolve, route,
};

/// A catalog and the keys of the recorded requests.
#[derive(Clone, Copy, Debug)]
pub struct ReplaySide<'a> {
    pub catalog: &'a Catalog,
    /// Keys by id. Records with other keys are counted as [`ReplayReport::without_key`].
    pub keys: &'a HashMap<KeyId, Arc<Key>>,
}

/// Replays records one by one.
#[derive(Debug)]
pub struct Replay<'a> {
    before: ReplaySide<'a>,
    after: ReplaySide<'a>,
    report: ReplayReport,
}

/// The comparison of recorded requests under two catalogs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    pub replayed: u64,
    /// Records that never reached routing: refused earlier, or invalid.
    pub not_routed: u64,
    /// Records whose key is missing on either side.
    pub without_key: u64,
    /// Totals under the current catalog.
    pub before: ReplayTotals,
    /// Totals under the changed catalog.
    pub after: ReplayTotals,
    /// Requests per move. A target is `channel/account`, or a refusal such as `E41 price_limit`.
    pub moves: BTreeMap<ReplayMove, u64>,
    /// Requests and cost per model and channel.
    pub channels: BTreeMap<ReplayChannel, ReplayShare>,
}

/// Sums over the requests under one catalog; money in nano-USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayTotals {
    pub served: u64,
    pub refused: u64,
    pub sale: NanoUsd,
    /// Served requests without a sale price.
    pub unpriced: u64,
    pub cost: NanoUsd,
    pub cost_unknown: u64,
}

/// Requests of a model that change their target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayMove {
    pub model: String,
    /// Target under the current catalog.
    pub from: String,
    /// Target under the changed catalog.
    pub to: String,
}

/// A model and the channel that served it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayChannel {
    pub model: String,
    pub channel: String,
}

/// The requests of a [`ReplayChannel`] and their cost under both catalogs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayShare {
    /// Requests under the current catalog.
    pub before: u64,
    /// Requests under the changed catalog.
    pub after: u64,
    /// Known cost under the current catalog.
    pub cost_before: NanoUsd,
    /// Known cost under the changed catalog.
    pub cost_after: NanoUsd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplayTarget {
    Account { channel: String, account: String, sale: Option<NanoUsd>, cost: Option<NanoUsd> },
    Refused(String),
}

impl<'a> Replay<'a> {
    pub fn new(before: ReplaySide<'a>, after: ReplaySide<'a>) -> Self {
        Self { before, after, report: ReplayReport::default() }
    }

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
            let share = report.channels.entry(ReplayChannel { model: model.to_string(), channel: channel.clone() }).or_default();
            share.before += 1;
            share.cost_before = plus(share.cost_before, *cost);
        }
        if let ReplayTarget::Account { channel, cost, .. } = &after {
            let share = report.channels.entry(ReplayChannel { model: model.to_string(), channel: channel.clone() }).or_default();
            share.after += 1;
            share.cost_after = plus(share.cost_after, *cost);
        }
        let (from, to) = (before.name(), after.name());
        if from != to {
            *report.moves.entry(ReplayMove { model: model.to_string(), from, to }).or_default() += 1;
        }
    }

    pub fn finish(self) -> ReplayReport {
        self.report
    }
}

/// True when the request reached routing.
fn was_routed(record: &UsageRecord) -> bool {
    !record.attempts.is_empty() || matches!(record.reason.as_deref(), Some("E13" | "E14" | "E15" | "E40" | "E41" | "E42"))
}

/// The request, reconstructed from its record. The affinity hash is the same for both catalogs, so only requests affected by the
/// change move.
fn summary_of(record: &UsageRecord, model: &str) -> RequestSummary {
    let (high, low) = record.id.uuid().as_u64_pair();
    RequestSummary {
        stream: record.stream,
        // The input estimate equals the recorded tokens, so that the same price tier applies.
        text_bytes: record.tokens.prompt().saturating_mul(2),
        affinity: Some(high ^ low),
        ..RequestSummary::minimal(model, record.method)
    }
}

/// A view in which all accounts are healthy.
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
        Err(NotOffered::Unsupported { .. } | NotOffered::Unpriced { .. }) => return ReplayTarget::Refused("E17".to_owned()),
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
    // Used only where affinity leaves a choice, and the same on both sides.
    match route(&input, &mut || 0) {
        Ok(plan) => {
            let first = &plan.first;
            ReplayTarget::Account {
                channel: first.channel.spec.name.clone(),
                account: first.account.spec.name.clone(),
                sale: price(record, offer.sale.as_deref(), offer.sale_multiplier),
                cost: price(record, first.cost.as_deref(), first.account.spec.cost_multiplier),
            }
        }
        Err(no_route) => {
            let cause = no_route.cause();
            ReplayTarget::Refused(format!("{} {}", cause.error_id(), cause.as_str()))
        }
    }
}

/// Price of the recorded tokens; zero where nothing was counted.
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
    fn add(&mut self, target: &ReplayTarget) {
        match target {
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
    /// Number of requests that change their target.
    pub fn moved(&self) -> u64 {
        self.moves.values().sum()
    }
}

#[cfg(test)]
mod tests;
