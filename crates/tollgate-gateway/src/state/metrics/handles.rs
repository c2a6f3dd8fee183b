//! Handles of the metrics that every request changes, so that counting one needs neither labels nor hashes of them.
//!
//! Each core has its own. Handles of models are kept for one catalog snapshot, because another one may have other
//! names.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use foldhash::fast::RandomState;
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};
use tollgate_core::{AccountId, AttemptRecord, AttemptResult, Catalog, GroupId, IdHash, Outcome, Tokens, UsageRecord};
use tollgate_protocol::Protocol;

use super::{
    AttemptLabels, ChannelLabels, Metrics, ModelLabels, Money, OTHER, RequestLabels, SaleLabels, TokenLabels,
    gen_ai::{GenAiHandles, GenAiMetrics},
    seconds, usd,
};

use crate::gen_ai::{COMPATIBLE, provider};

/// Label values of the kinds of tokens.
const KINDS: [&str; 7] = ["input", "output", "cache_read", "cache_write", "thinking", "image", "audio"];

/// The handles of one core.
#[derive(Debug, Default)]
pub(crate) struct MetricHandles(Mutex<HandleTable>);

#[derive(Debug, Default)]
pub(super) struct HandleTable {
    /// The snapshot that names the models.
    catalog: Weak<Catalog>,
    /// The first handle is for models that are not in the catalog.
    models: Vec<ModelHandles>,
    /// Positions in `models`. Callers choose the names that are looked up, but only names of the catalog are in it.
    positions: HashMap<String, usize, RandomState>,
    accounts: HashMap<AccountId, AccountHandles, IdHash>,
}

impl MetricHandles {
    /// The handles for records of requests that end while `catalog` is in force.
    pub(super) fn table(&self, catalog: &Arc<Catalog>) -> MutexGuard<'_, HandleTable> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::ptr::eq(table.catalog.as_ptr(), Arc::as_ptr(catalog)) {
            *table =
                HandleTable { catalog: Arc::downgrade(catalog), models: vec![ModelHandles::of(OTHER)], ..HandleTable::default() };
        }
        table
    }
}

impl HandleTable {
    pub(super) fn model(&mut self, name: Option<&str>, catalog: &Catalog) -> &mut ModelHandles {
        let position = match name {
            None => 0,
            Some(name) => match self.positions.get(name) {
                Some(position) => *position,
                None if !catalog.mappings_by_model.contains_key(name) => 0,
                None => {
                    self.models.push(ModelHandles::of(name));
                    self.positions.insert(name.to_owned(), self.models.len() - 1);
                    self.models.len() - 1
                }
            },
        };
        &mut self.models[position]
    }

    /// Counts a request and its attempts in the names of the conventions for generative AI.
    pub(super) fn count_gen_ai(&mut self, metrics: &GenAiMetrics, record: &UsageRecord, catalog: &Catalog) {
        let mut answered_by = None;
        for (index, attempt) in record.attempts.iter().enumerate() {
            let provider = self.account(attempt, catalog).provider;
            let model = self.model(record.model.as_deref(), catalog);
            model.gen_ai.count_attempt(metrics, &model.name, record, attempt, provider);
            if record.subject() == Some(index) {
                answered_by = Some(provider);
            }
        }
        let model = self.model(record.model.as_deref(), catalog);
        model.gen_ai.count_request(metrics, &model.name, record, answered_by);
    }

    pub(super) fn account(&mut self, attempt: &AttemptRecord, catalog: &Catalog) -> &mut AccountHandles {
        let new = || AccountHandles {
            provider: catalog.channels.get(&attempt.channel).map_or(COMPATIBLE, |channel| provider(channel)),
            channel: attempt.channel_name.to_string(),
            account: attempt.account_name.to_string(),
            attempts: Vec::new(),
            cost: None,
        };
        let handles = self.accounts.entry(attempt.account).or_insert_with(new);
        // A request that began with an older snapshot may use another name.
        if handles.channel != attempt.channel_name || handles.account != attempt.account_name {
            *handles = new();
        }
        handles
    }
}

/// Handles of one model.
#[derive(Debug)]
pub(super) struct ModelHandles {
    name: String,
    first_content: Option<Histogram>,
    tokens: [Option<Counter>; KINDS.len()],
    groups: HashMap<Option<GroupId>, GroupHandles, IdHash>,
    gen_ai: GenAiHandles,
}

impl ModelHandles {
    fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            first_content: None,
            tokens: Default::default(),
            groups: HashMap::default(),
            gen_ai: GenAiHandles::default(),
        }
    }

    pub(super) fn observe_first_content(&mut self, metrics: &Metrics, us: u64) {
        let labels = || ModelLabels { model: self.name.clone() };
        let handle = self.first_content.get_or_insert_with(|| metrics.first_content.get_or_create(&labels()).clone());
        handle.observe(seconds(us));
    }

    pub(super) fn count_tokens(&mut self, metrics: &Metrics, tokens: &Tokens) {
        let counts =
            [tokens.input, tokens.output, tokens.cache_read, tokens.cache_write, tokens.thinking, tokens.image, tokens.audio];
        for ((kind, count), handle) in KINDS.into_iter().zip(counts).zip(&mut self.tokens).filter(|((_, count), _)| *count > 0) {
            let labels = || TokenLabels { model: self.name.clone(), kind };
            handle.get_or_insert_with(|| metrics.tokens.get_or_create(&labels()).clone()).inc_by(count);
        }
    }

    /// Counts the request and its sale amount.
    pub(super) fn count_request(&mut self, metrics: &Metrics, record: &UsageRecord) {
        let name = record.group_name.as_deref().unwrap_or(OTHER);
        let new = || GroupHandles { name: name.to_owned(), sale: None, requests: Vec::new() };
        let group = self.groups.entry(record.group).or_insert_with(new);
        if group.name != name {
            *group = new();
        }
        let kind = (record.protocol_in, record.outcome, record.status);
        let create = || {
            let labels = RequestLabels {
                protocol: record.protocol_in.as_str(),
                model: self.name.clone(),
                group: name.to_owned(),
                outcome: record.outcome.as_str(),
                status: record.status,
            };
            metrics.requests.get_or_create(&labels).clone()
        };
        handle_of(&mut group.requests, kind, create).inc();
        if let Some(sale) = record.sale {
            let labels = || SaleLabels { model: self.name.clone(), group: name.to_owned() };
            let handle = group.sale.get_or_insert_with(|| metrics.sale.get_or_create(&labels()).clone());
            handle.inc_by(usd(sale.0));
        }
    }
}

/// Handles of one model in one group.
#[derive(Debug)]
struct GroupHandles {
    name: String,
    sale: Option<Money>,
    requests: Vec<((Protocol, Outcome, u16), Counter)>,
}

/// Handles of one account.
#[derive(Debug)]
pub(super) struct AccountHandles {
    /// Name of the provider in the conventions for generative AI.
    provider: &'static str,
    channel: String,
    account: String,
    attempts: Vec<(AttemptResult, Counter)>,
    cost: Option<Money>,
}

impl AccountHandles {
    pub(super) fn count_attempt(&mut self, metrics: &Metrics, attempt: &AttemptRecord) {
        let Self { channel, account, attempts, cost, .. } = self;
        let create = || {
            let labels = AttemptLabels { channel: channel.clone(), account: account.clone(), result: attempt.result.as_str() };
            metrics.attempts.get_or_create(&labels).clone()
        };
        handle_of(attempts, attempt.result, create).inc();
        if let Some(amount) = attempt.cost {
            let labels = || ChannelLabels { channel: channel.clone() };
            cost.get_or_insert_with(|| metrics.cost.get_or_create(&labels()).clone()).inc_by(usd(amount.0));
        }
    }
}

/// The handle of a kind, of which there are few.
fn handle_of<K: Copy + PartialEq, H>(handles: &mut Vec<(K, H)>, kind: K, create: impl FnOnce() -> H) -> &H {
    let position = handles.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
        handles.push((kind, create()));
        handles.len() - 1
    });
    &handles[position].1
}
