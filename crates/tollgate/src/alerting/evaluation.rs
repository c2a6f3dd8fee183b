//! Evaluates the rules of alerts over spending, balances, health, traffic, keys, the journal and certificates.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tollgate_console::{ScheduledBackups, day_text, export_days};
use tollgate_core::{
    AlertCondition, Billing, Budget, ChannelId, DownChannels, ErrorCounts, KeyId, LowBalance, MemberId, MemberStatus, NanoUsd,
    Subject, Timestamp, Window, backup_condition, balance_conditions, budget_conditions, budget_subjects, catalog_conditions,
    certificate_condition, certificate_expiry, channels_down, error_condition, export_condition, journal_condition, key_conditions,
};
use tollgate_gateway::state::{health_registry::HealthRegistry, shared::Shared};
use tollgate_store::{
    Grouping, Journal, LedgerPosition, MemberSpec, RowFilter, RowKind, Store, StoreError, SummaryBy, UsageFilter,
};

use crate::{compose, config::Config, gateway_settings};

const DAY_MS: i64 = 86_400_000;
/// The interval at which roll-ups begin, in microseconds.
const FIVE_MINUTES_US: i64 = 300_000_000;
/// Maximum number of keys whose budgets are evaluated each time.
const MAX_KEYS: usize = 1_000;
const MEMBERS_AT_ONCE: u32 = 1_000;
/// Maximum number of members whose budgets and balances are evaluated.
const MAX_MEMBERS: usize = 100_000;
const MAX_CERTIFICATE_BYTES: u64 = 1 << 20;

/// Sources of the values.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) store: Store,
    pub(crate) shared: Arc<Shared>,
    pub(crate) registry: Arc<HealthRegistry>,
    pub(crate) journal: Arc<Journal>,
    /// Name of this node.
    pub(crate) node: String,
    /// Ledger position at the start. Budgets of keys that spend after it are evaluated.
    pub(crate) position: LedgerPosition,
    pub(crate) backups: ScheduledBackups,
}

impl Sources {
    /// Money spent, without reservations.
    pub(super) fn spent(&self, subject: Subject, window: Window, now: Timestamp) -> NanoUsd {
        let snapshot = self.shared.counters.snapshot(&[subject], compose::instant());
        snapshot.meters.first().map_or(NanoUsd::ZERO, |(_, meter)| meter.spent.within(window, now))
    }
}

pub(super) struct Evaluation {
    sources: Sources,
    down: DownChannels,
    position: LedgerPosition,
    /// Keys whose budgets are still to be evaluated.
    keys: BTreeSet<KeyId>,
}

/// Conditions of budgets, and the alerts about budgets that are still valid.
pub(super) struct BudgetsFound {
    pub(super) found: Vec<AlertCondition>,
    /// Subjects of possible alerts about the budgets that were evaluated.
    valid: BTreeSet<String>,
    /// Owners of these budgets, such as `key key_…`.
    owners: BTreeSet<String>,
}

impl BudgetsFound {
    /// Whether the period or the budget of an alert has ended. False for owners that were not evaluated.
    pub(super) fn is_over(&self, subject: &str) -> bool {
        self.owners.contains(&owner_of(subject)) && !self.valid.contains(subject)
    }
}

/// The owner in the subject of an alert about a budget.
fn owner_of(subject: &str) -> String {
    let words = if subject.starts_with("gateway") { 1 } else { 2 };
    subject.split(' ').take(words).collect::<Vec<_>>().join(" ")
}

/// The percentages of a setting, which was checked.
fn percents(config: &Config) -> Vec<u32> {
    config.text("alerts.budget_percent").split(',').filter_map(|part| part.trim().parse().ok()).collect()
}

impl Evaluation {
    pub(super) fn new(sources: Sources) -> Self {
        let position = sources.position;
        Self { sources, down: DownChannels::default(), position, keys: BTreeSet::new() }
    }

    /// The journal, the certificates and the scheduled backups of this node.
    pub(super) async fn of_node(&self, config: &Config, now: Timestamp) -> Vec<AlertCondition> {
        let Sources { journal, node, backups, .. } = &self.sources;
        let threshold = config.number("alerts.journal_bytes");
        let mut found = Vec::from_iter(journal_condition(node, journal.bytes(), journal.unbooked(), threshold));
        found.extend(backups.failure().map(|failure| backup_condition(node, failure.since, &failure.message)));
        let days = i64::try_from(config.number("alerts.expiry_days")).unwrap_or(0);
        if days > 0 {
            let mut files: Vec<_> = gateway_settings::tls_files(config).map(|files| files.certificate).collect();
            files.dedup();
            for file in files {
                let expiry = expiry_of(&file).await;
                found.extend(expiry.and_then(|at| certificate_condition(node, &file.display().to_string(), at, days, now)));
            }
        }
        found
    }

    pub(super) fn channels_down(&mut self, config: &Config, now: Timestamp) -> Vec<AlertCondition> {
        let seconds = i64::try_from(config.number("alerts.channel_down_s")).unwrap_or(i64::MAX);
        let catalog = self.sources.shared.catalog.load();
        let registry = &self.sources.registry;
        let down = if seconds == 0 { Vec::new() } else { channels_down(&catalog, |account| registry.of(account), now) };
        self.down.conditions(&catalog, &down, seconds.saturating_mul(1_000), now)
    }

    pub(super) fn of_catalog(&self, config: &Config, now: Timestamp) -> Vec<AlertCondition> {
        let asked = (config.flag("alerts.negative_margin"), config.flag("alerts.unpriced_model"));
        catalog_conditions(&self.sources.shared.catalog.load(), asked, now)
    }

    /// The share of errors of each channel since the beginning of the previous five-minute bucket. It comes from roll-ups:
    /// counting the last five minutes exactly would read records every ten seconds, which takes seconds at 30,000 requests a
    /// second.
    pub(super) async fn of_traffic(&self, config: &Config, now: Timestamp) -> Result<Vec<AlertCondition>, StoreError> {
        let (percent, least) = (config.number("alerts.error_percent"), config.number("alerts.error_requests"));
        if percent == 0 {
            return Ok(Vec::new());
        }
        let since = Timestamp(now.0 - now.0.rem_euclid(FIVE_MINUTES_US) - FIVE_MINUTES_US);
        let filter = UsageFilter { since: Some(since), ..UsageFilter::default() };
        let by = Grouping::pair(SummaryBy::Channel, SummaryBy::Reason).without_times();
        let mut channels: BTreeMap<String, ErrorCounts> = BTreeMap::new();
        for row in self.sources.store.usage.summary(&filter, by).await? {
            // Requests without a channel were refused before any was chosen.
            if !row.of.is_empty() {
                let failed = row.failed();
                channels.entry(row.of).or_default().add(&row.and, row.completed, failed);
            }
        }
        let catalog = self.sources.shared.catalog.load();
        let name = |id: &str| {
            let channel = ChannelId::parse(id).and_then(|id| catalog.channels.get(&id));
            channel.map_or_else(|| id.to_owned(), |channel| channel.spec.name.clone())
        };
        let found = channels.into_iter().filter_map(|(id, counts)| error_condition(&id, &name(&id), counts, percent, least));
        Ok(found.collect())
    }

    /// The budgets of the gateway, groups and channels, and of keys that have spent since the last time; with `slowly` also those of
    /// members and of keys with alerts.
    pub(super) async fn of_budgets(&mut self, config: &Config, slowly: bool, now: Timestamp) -> Result<BudgetsFound, StoreError> {
        let percents = percents(config);
        let mut owners: Vec<(Subject, String, Vec<Budget>)> = vec![(Subject::Gateway, String::new(), config.budgets.to_vec())];
        let catalog = self.sources.shared.catalog.load_full();
        owners.extend(catalog.groups.values().map(|group| (Subject::Group(group.id), group.name.clone(), group.budgets.clone())));
        let channels = catalog.channels.values();
        owners.extend(channels.map(|it| (Subject::Channel(it.id), it.spec.name.clone(), it.spec.budgets.clone())));
        if slowly {
            let members = self.members().await?.into_iter();
            owners.extend(members.map(|(id, spec)| (Subject::Member(id), spec.name, spec.budgets)));
        }
        for id in self.keys_to_evaluate(slowly).await? {
            let found = self.sources.store.listing.key(id).await?;
            // A removed key has no budgets.
            let (name, budgets) = found.map_or_else(Default::default, |key| (key.name, key.budgets));
            owners.push((Subject::Key(id), name, budgets));
        }
        let mut seen = BudgetsFound { found: Vec::new(), valid: BTreeSet::new(), owners: BTreeSet::new() };
        for (subject, name, budgets) in owners {
            seen.owners.insert(subject.to_string());
            seen.valid.extend(budget_subjects(&subject, &budgets, &percents, now));
            if !budgets.is_empty() {
                let spent = |window| self.sources.spent(subject, window, now);
                seen.found.extend(budget_conditions(&subject, &name, &budgets, spent, &percents, now));
            }
        }
        Ok(seen)
    }

    /// The keys that spent money, and with `slowly` those with alerts.
    async fn keys_to_evaluate(&mut self, slowly: bool) -> Result<BTreeSet<KeyId>, StoreError> {
        let (spent, until) = self.sources.store.ledger.keys_spent_since(self.position).await?;
        self.position = until;
        self.keys.extend(spent);
        if slowly {
            let open = self.sources.store.alerts.open_alerts(None).await?;
            let of_keys = open.iter().filter_map(|(_, subject)| KeyId::parse(subject.strip_prefix("key ")?.split(' ').next()?));
            self.keys.extend(of_keys);
        }
        // Keys beyond the bound are evaluated the next time.
        let now: BTreeSet<KeyId> = self.keys.iter().copied().take(MAX_KEYS).collect();
        self.keys.retain(|key| !now.contains(key));
        Ok(now)
    }

    async fn members(&self) -> Result<Vec<(MemberId, MemberSpec)>, StoreError> {
        let mut found = Vec::new();
        let mut filter = RowFilter::of(RowKind::Member, MEMBERS_AT_ONCE);
        while found.len() < MAX_MEMBERS {
            let rows = self.sources.store.listing.page(&filter).await?;
            let is_last = rows.len() < MEMBERS_AT_ONCE as usize;
            filter.after = rows.last().map(|row| row.id.clone());
            for row in rows {
                if let Some(id) = MemberId::parse(&row.id) {
                    found.push((id, row.read()?));
                }
            }
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    /// Balances of prepaid members.
    pub(super) async fn of_balances(&self, config: &Config) -> Result<Vec<AlertCondition>, StoreError> {
        let Ok(least) = NanoUsd::parse(config.text("alerts.balance_usd")) else { return Ok(Vec::new()) };
        let balances = self.sources.store.ledger.balances().await?.into_iter();
        let balances: HashMap<MemberId, NanoUsd> = balances.map(|balance| (balance.member, balance.balance)).collect();
        let is_prepaid = |spec: &MemberSpec| spec.billing == Billing::Prepaid && spec.status == MemberStatus::Active;
        let members = self.members().await?.into_iter().filter(|(_, spec)| is_prepaid(spec));
        let members = members.map(|(member, spec)| LowBalance {
            member,
            name: spec.name,
            balance: balances.get(&member).copied().unwrap_or(NanoUsd::ZERO),
        });
        Ok(balance_conditions(members, least))
    }

    /// Keys that expire.
    pub(super) async fn of_keys(&self, config: &Config, now: Timestamp) -> Result<Vec<AlertCondition>, StoreError> {
        let days = i64::try_from(config.number("alerts.expiry_days")).unwrap_or(0);
        if days == 0 {
            return Ok(Vec::new());
        }
        let keys = self.sources.store.alerts.expiring_keys(now, now.plus_ms(days.saturating_mul(DAY_MS))).await?;
        Ok(key_conditions(keys.into_iter(), days, now))
    }

    /// Days that are not exported a day after they were due.
    pub(super) async fn of_exports(&self, config: &Config, now: Timestamp) -> Result<Option<AlertCondition>, StoreError> {
        if config.export_endpoint.is_none() {
            return Ok(None);
        }
        let until = export_days::first_unfinished(now, config.number("export.delay_minutes")) - 1;
        let store = &self.sources.store;
        let late = export_days::unexported(store, until).await?;
        let Some(first) = late.iter().find(|day| !day.waits(now)) else { return Ok(None) };
        let failure = store.exports.export_failure().await?;
        let fault = failure.map_or_else(|| "no export has run".to_owned(), |failure| failure.message);
        Ok(Some(export_condition(&day_text(first.day), &fault)))
    }
}

/// When the first certificate of a PEM file expires; `None` if it cannot be read.
async fn expiry_of(path: &Path) -> Option<Timestamp> {
    let size = tokio::fs::metadata(path).await.ok()?.len();
    let pem = if size <= MAX_CERTIFICATE_BYTES { tokio::fs::read(path).await.ok()? } else { return None };
    certificate_expiry(&CertificateDer::from_pem_slice(&pem).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_alert_ends_when_its_subject_is_no_longer_valid() {
        let text = |text: &str| text.to_owned();
        let found = BudgetsFound {
            found: Vec::new(),
            valid: BTreeSet::from([text("key key_1 month 2026-11-01 5.00 80")]),
            owners: BTreeSet::from([text("key key_1"), text("gateway")]),
        };
        assert!(!found.is_over("key key_1 month 2026-11-01 5.00 80"));
        assert!(found.is_over("key key_1 month 2026-10-01 5.00 80"), "the month before");
        assert!(found.is_over("gateway day 2026-11-01 5.00 80"));
        assert!(!found.is_over("key key_2 month 2026-10-01 5.00 80"), "it was not evaluated");
    }
}
