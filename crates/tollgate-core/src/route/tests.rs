//! Every exclusion, every cause, and the order of what is left.

mod causes;
mod order;
mod retries;
mod routing;
mod translation;

use std::{cell::Cell, collections::HashMap, sync::Arc};

use tollgate_protocol::Method;

use super::*;
use crate::{
    AccountHealth, Budget, BudgetAction, Group, HealthState, Key, Model, NanoUsd, NotOffered, PriceLimitMode, PriceLimitOn,
    RestingReason, Routing, Window,
    samples::{NOW, account, always, catalog, channel, group, key, model, price, summary},
};
use crate::{CoolingReason, Multiplier, samples::account_id};

/// One request against a catalog, with whatever stands against its candidates.
struct Case {
    channels: Vec<Channel>,
    group: Group,
    key: Key,
    model: Model,
    summary: RequestSummary,
    from: Protocol,
    translates: bool,
    request_limit: Option<PriceLimit>,
    health: Board,
    loads: HashMap<AccountId, AccountLoad>,
    budgets: HashMap<String, ChannelBudget>,
    learned: HashMap<String, Vec<FieldPath>>,
    untranslatable: HashMap<String, Vec<FieldPath>>,
    newer: Option<Catalog>,
    past: AttemptHistory,
    /// Being asked whether a request can be expressed takes so long that busy accounts are free then.
    freed_meanwhile: bool,
    /// How often a channel was asked whether it can express the request.
    asked: Cell<usize>,
}

#[derive(Default)]
struct Board(HashMap<AccountId, AccountHealth>);

impl HealthView for Board {
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus {
        self.0.get(&account).copied().unwrap_or_default().status(now)
    }
}

impl CandidateView for Case {
    fn account_load(&self, account: AccountId, bounds: AccountLimits) -> AccountLoad {
        assert!(bounds.any(), "asked of bounded accounts only");
        let load = self.loads.get(&account).filter(|_| !(self.freed_meanwhile && self.asked.get() > 0));
        load.copied().unwrap_or(AccountLoad::Free)
    }

    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        self.budgets.get(&channel.name).copied().unwrap_or(ChannelBudget::Left)
    }

    fn has_unsupported_fields(&self) -> bool {
        !self.learned.is_empty()
    }

    fn unsupported_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        assert_eq!(serves.model, "m");
        self.learned.get(&channel.name).cloned().unwrap_or_default()
    }

    fn untranslatable_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        assert!(serves.model == "m" && !channel.speaks(self.from), "asked of other protocols only");
        self.asked.set(self.asked.get() + 1);
        self.untranslatable.get(&channel.name).cloned().unwrap_or_default()
    }
}

/// A channel that speaks another protocol than the callers here.
fn foreign(name: &str) -> Channel {
    Channel { protocol: Protocol::Gemini, ..channel(name, &["m"]) }
}

impl Case {
    /// Model `m` over these channels, asked by chat.
    fn over(channels: Vec<Channel>) -> Self {
        let names: Vec<String> = channels.iter().map(|it| it.name.clone()).collect();
        Self {
            channels,
            group: group("default", &names.iter().map(String::as_str).collect::<Vec<_>>()),
            key: key(&[]),
            model: model("m"),
            summary: summary("m", Method::Chat),
            from: Protocol::OpenAi,
            translates: false,
            request_limit: None,
            health: Board::default(),
            loads: HashMap::new(),
            budgets: HashMap::new(),
            learned: HashMap::new(),
            untranslatable: HashMap::new(),
            newer: None,
            past: AttemptHistory::default(),
            freed_meanwhile: false,
            asked: Cell::new(0),
        }
    }

    /// Model `m` over a channel `c` with so many accounts `c/0`…
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

    fn load(mut self, account: &str, load: AccountLoad) -> Self {
        self.loads.insert(account_id(account), load);
        self
    }

    fn run(&self) -> Result<Plan<'static>, NoRoute<'static>> {
        self.run_with(&mut || 0)
    }

    fn run_with(&self, dice: &mut dyn FnMut() -> u32) -> Result<Plan<'static>, NoRoute<'static>> {
        // What comes out borrows from the catalog, so it is never freed.
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
            history: &self.past,
        };
        route(&input, dice)
    }

    /// Names of the accounts tried, in order.
    fn tried(&self) -> Vec<String> {
        self.run().map(|plan| plan.attempts().map(|it| it.account.name.clone()).collect()).unwrap_or_default()
    }

    fn fails(&self) -> NoRoute<'static> {
        self.run().expect_err("no candidate is left")
    }

    /// The reason of the only candidate.
    fn why(&self) -> Exclusion {
        let refused = self.fails();
        assert_eq!(refused.excluded.len(), 1);
        refused.excluded[0].why.clone()
    }
}

fn with_accounts(row: Channel, count: usize) -> Channel {
    let accounts = (0..count).map(|n| Arc::new(account(&row.name, n))).collect();
    Channel { accounts, ..row }
}

fn bounded(row: Channel) -> Channel {
    let accounts = row.accounts.iter().map(|it| Arc::new(Account { concurrency: 1, ..Account::clone(it) })).collect();
    Channel { accounts, ..row }
}

fn ceiling(max_input: i64, on: PriceLimitOn) -> PriceLimit {
    PriceLimit { mode: PriceLimitMode::Ceiling { max_input: Some(max_input), max_output: None }, on }
}
