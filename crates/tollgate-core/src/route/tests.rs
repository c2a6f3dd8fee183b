//! Every exclusion and cause, and the order of the remaining candidates.

mod causes;
mod order;
mod retries;
mod routing;
mod translation;

use std::{cell::Cell, collections::HashMap, sync::Arc};

use tollgate_protocol::Method;

use super::*;
use crate::{
    AccountHealth, AccountSpec, Budget, BudgetAction, ChannelSpec, Group, HealthState, Key, Model, NanoUsd, NotOffered, Price,
    PriceLimitMode, PriceLimitOn, RestingReason, Routing, Window,
    samples::{NOW, account, always, catalog, channel, group, key, model, price, summary},
};
use crate::{CoolingReason, Multiplier, samples::account_id};

/// One request against a catalog, with configurable obstacles for its candidates.
struct Case {
    channels: Vec<Channel>,
    group: Group,
    key: Key,
    model: Model,
    summary: RequestSummary,
    from: Protocol,
    translates: bool,
    request_limit: Option<PriceLimit>,
    health: FixedHealth,
    loads: HashMap<AccountId, CapacityLoad>,
    channel_loads: HashMap<ChannelId, CapacityLoad>,
    budgets: HashMap<String, ChannelBudget>,
    learned: HashMap<String, Vec<FieldPath>>,
    untranslatable: HashMap<String, Vec<FieldPath>>,
    newer: Option<Catalog>,
    history: AttemptHistory,
    /// Simulates a translation check so slow that busy accounts are free afterwards.
    freed_meanwhile: bool,
    translation_checks: Cell<usize>,
}

#[derive(Default)]
struct FixedHealth(HashMap<AccountId, AccountHealth>);

impl HealthView for FixedHealth {
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus {
        self.0.get(&account).copied().unwrap_or_default().status(now)
    }
}

impl CandidateView for Case {
    fn account_load(&self, account: AccountId, limits: CapacityLimits) -> CapacityLoad {
        assert!(limits.any(), "called for limited accounts only");
        let load = self.loads.get(&account).filter(|_| !(self.freed_meanwhile && self.translation_checks.get() > 0));
        load.copied().unwrap_or(CapacityLoad::Free)
    }

    fn channel_load(&self, channel: ChannelId, limits: CapacityLimits) -> CapacityLoad {
        assert!(limits.any(), "called for limited channels only");
        self.channel_loads.get(&channel).copied().unwrap_or(CapacityLoad::Free)
    }

    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        self.budgets.get(&channel.spec.name).copied().unwrap_or(ChannelBudget::Left)
    }

    fn has_unsupported_fields(&self) -> bool {
        !self.learned.is_empty()
    }

    fn unsupported_fields(&self, channel: &Channel, mapping: &ModelMapping) -> Vec<FieldPath> {
        assert_eq!(mapping.model, "m");
        self.learned.get(&channel.spec.name).cloned().unwrap_or_default()
    }

    fn untranslatable_fields(&self, channel: &Channel, mapping: &ModelMapping) -> Vec<FieldPath> {
        assert!(mapping.model == "m" && !channel.speaks(self.from, ModelPurpose::Generation), "called for other protocols only");
        self.translation_checks.set(self.translation_checks.get() + 1);
        self.untranslatable.get(&channel.spec.name).cloned().unwrap_or_default()
    }
}

/// A channel of another protocol than the test's callers.
fn foreign(name: &str) -> Channel {
    Channel { spec: ChannelSpec { protocol: Protocol::Gemini, ..channel(name, &["m"]).spec }, ..channel(name, &["m"]) }
}

impl Case {
    /// Model `m` on these channels, requested by chat.
    fn over(channels: Vec<Channel>) -> Self {
        let names: Vec<String> = channels.iter().map(|it| it.spec.name.clone()).collect();
        Self {
            channels,
            group: group("default", &names.iter().map(String::as_str).collect::<Vec<_>>()),
            key: key(&[]),
            model: model("m"),
            summary: summary("m", Method::Chat),
            from: Protocol::OpenAi,
            translates: false,
            request_limit: None,
            health: FixedHealth::default(),
            loads: HashMap::new(),
            channel_loads: HashMap::new(),
            budgets: HashMap::new(),
            learned: HashMap::new(),
            untranslatable: HashMap::new(),
            newer: None,
            history: AttemptHistory::default(),
            freed_meanwhile: false,
            translation_checks: Cell::new(0),
        }
    }

    /// Model `m` on a channel `c` with `count` accounts `c/0`…
    fn accounts(count: usize) -> Self {
        Self::over(vec![with_accounts(channel("c", &["m"]), count)])
    }

    fn state(mut self, account: &str, state: HealthState) -> Self {
        self.health.0.entry(account_id(account)).or_default().state = state;
        self
    }

    fn cooling(self, account: &str, why: CoolingReason, ms: i64) -> Self {
        self.state(account, HealthState::Cooling { until: NOW.plus_ms(ms), why, since: NOW })
    }

    fn load(mut self, account: &str, load: CapacityLoad) -> Self {
        self.loads.insert(account_id(account), load);
        self
    }

    fn run(&self) -> Result<Plan<'static>, NoRoute<'static>> {
        self.run_with(&mut || 0)
    }

    fn run_with(&self, random: &mut dyn FnMut() -> u32) -> Result<Plan<'static>, NoRoute<'static>> {
        // Leaked, because the result borrows from the catalog.
        let catalog = catalog(self.channels.clone(), vec![self.group.clone()], vec![self.model.clone()]);
        let catalog: &'static Catalog = Box::leak(Box::new(catalog));
        let caller = Caller::of(catalog, Arc::new(self.key.clone()));
        let offer = crate::resolve(catalog, &caller, &self.summary, self.from, NOW).expect("the model is offered");
        let input = RouteInput {
            catalog,
            latest_catalog: self.newer.as_ref(),
            caller: &caller,
            offer: &offer,
            summary: &self.summary,
            from: self.from,
            health: &self.health,
            candidate_view: self,
            now: NOW,
            request_limit: self.request_limit,
            translates: self.translates,
            history: &self.history,
        };
        route(&input, random)
    }

    /// Names of the planned accounts, in order.
    fn planned(&self) -> Vec<String> {
        self.run().map(|plan| plan.attempts().map(|it| it.account.spec.name.clone()).collect()).unwrap_or_default()
    }

    fn fails(&self) -> NoRoute<'static> {
        self.run().expect_err("no candidate is left")
    }

    /// The exclusion of the only candidate.
    fn why(&self) -> Exclusion {
        let no_route = self.fails();
        assert_eq!(no_route.excluded.len(), 1);
        no_route.excluded[0].why.clone()
    }
}

fn with_accounts(row: Channel, count: usize) -> Channel {
    let accounts = (0..count).map(|n| Arc::new(account(&row.spec.name, n))).collect();
    Channel { accounts, ..row }
}

fn bounded(row: Channel) -> Channel {
    let accounts = row
        .accounts
        .iter()
        .map(|it| Arc::new(Account { spec: AccountSpec { concurrency: 1, ..it.spec.clone() }, ..Account::clone(it) }))
        .collect();
    Channel { accounts, ..row }
}

fn ceiling(max_input: i64, on: PriceLimitOn) -> PriceLimit {
    PriceLimit { mode: PriceLimitMode::Ceiling { max_input: Some(max_input), max_output: None }, on }
}
