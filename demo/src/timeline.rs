//! The events of the month: traffic, interleaved with changes by people.

use std::{future::Future, path::Path};

use anyhow::{Context as _, Result, anyhow};
use tollgate_core::{
    Budget, BudgetAction, Catalog, Glob, ImportScope, Modality, ModelMapping, ModelSpec, Multiplier, NanoUsd, PriceList, Secret,
    Timestamp, Window, plan_price_import,
};
use tollgate_protocol::Profile;
use tollgate_store::{
    AccountRow, Actor, Change, ChangeOrigin, GroupSpec, KeyScope, NODE_GONE_MS, NewKey, RandomSource, Store, Toggle,
    catalog_file::{self, ApplyMode},
    node_identity,
};

use crate::{
    ADMIN, CATALOG, alerts,
    alerts::AlertEvent,
    faults::{FaultKind, faults_at},
    people,
    simulation::Simulation,
    traffic,
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Days with traffic.
const DAYS: i64 = 30;
/// From the first change to the end, in milliseconds.
pub const HISTORY_MS: i64 = (DAYS + 1) * DAY_MS;
/// Records are booked hour by hour, and those of the last hour in small batches.
const BATCH_MS: i64 = HOUR_MS;
const LAST_BATCH_MS: i64 = 5 * 60_000;
/// How long before the end the node is recorded as running. It takes a transaction for each [`NODE_GONE_MS`].
const NODE_RAN_MS: i64 = 26 * HOUR_MS;
const OPERATOR: &str = "jonas";

/// Counts of the written history.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistorySummary {
    pub records: u64,
    /// Batches of changes of the catalog.
    pub changes: u64,
    /// Charged for all requests.
    pub sale: NanoUsd,
}

/// A gateway at a time of its history.
struct Timeline<'a> {
    store: &'a Store,
    node: String,
    end: Timestamp,
    at: Timestamp,
    catalog: Catalog,
    simulation: Simulation,
    summary: HistorySummary,
}

/// Writes a history that ends at `end` into a new store. `provider` is the address of the scripted provider. Gateways that use the data
/// folder treat the history of health as their own.
pub async fn write_history(store: &Store, data: &Path, provider: &str, end: Timestamp) -> Result<HistorySummary> {
    let mut timeline = Timeline {
        store,
        node: node_identity(data)?,
        end,
        at: end.plus_ms(-HISTORY_MS),
        catalog: Catalog::default(),
        simulation: Simulation::new(end),
        summary: HistorySummary::default(),
    };
    timeline.set_up(provider).await?;
    timeline.first_weeks().await?;
    timeline.last_week().await?;
    timeline.finish().await
}

impl Timeline<'_> {
    /// The day before the first request.
    async fn set_up(&mut self, provider: &str) -> Result<()> {
        let new_key = |name: &str| (name == "NEW_KEY").then(|| NewKey::generate(&RandomSource::system()).expose_once());
        let text = CATALOG.replace("PROVIDER", provider);
        let file = catalog_file::parse(&text, &new_key, &|path| std::fs::read_to_string(path));
        let file = file.map_err(|unreadable| anyhow!("the catalog: {:?}", unreadable.faults))?;
        let current = self.store.catalog.live_rows(&KeyScope::All).await?;
        let plan = catalog_file::plan(&file, &current, ApplyMode::Apply { prune: false });
        let plan = plan.map_err(|faults| anyhow!("the catalog: {faults:?}"))?;
        self.apply(ADMIN, ChangeOrigin::Cli, plan.changes).await?;
        self.import_prices().await?;
        self.later(HOUR_MS);
        self.change(ADMIN, people::addresses()).await?;
        let percent = Change::SetSetting { name: "alerts.budget_percent".to_owned(), value: "80,100".to_owned() };
        self.change(ADMIN, vec![percent]).await?;
        people::post(self.store, "northwind", 500, "invoice 2026-1041", ADMIN, self.at).await?;
        people::post(self.store, "fabrikam", 10_000, "invoice 2026-1042", ADMIN, self.at).await
    }

    /// All prices and costs that the built-in list has and the catalog has not.
    async fn import_prices(&mut self) -> Result<()> {
        let list = PriceList::built_in();
        let models = [Glob("*".to_owned())];
        let scope = ImportScope { sale: true, cost: true, models: &models, overwrite: &[], is_imported: &|_, _| false };
        let plan = plan_price_import(&list, &self.catalog, &scope);
        let source = Some(list.source.clone());
        let changes = plan.rows.into_iter().filter(|row| row.state.is_written()).map(|row| match row.channel {
            None => Change::SetPrice { model: row.model, price: row.after, source: source.clone() },
            Some(channel) => Change::SetCosts { channel, costs: vec![(row.model, row.after)], source: source.clone() },
        });
        let changes = changes.collect();
        self.change(ADMIN, changes).await
    }

    async fn first_weeks(&mut self) -> Result<()> {
        self.serve_until(21 * DAY_MS).await?;
        self.change(OPERATOR, vec![Change::SwitchChannel { channel: "old-region".to_owned(), to: Toggle::Off }]).await?;
        let invite = people::invite(self.store, ADMIN, "Tomás, data platform", &["engineering"], self.at);
        self.change(ADMIN, vec![invite]).await?;
        self.serve_until(13 * DAY_MS).await?;
        people::post(self.store, "northwind", 400, "invoice 2026-1107", ADMIN, self.at).await?;
        people::post(self.store, "fabrikam", 8_000, "invoice 2026-1108", ADMIN, self.at).await?;
        self.serve_until(11 * DAY_MS).await?;
        self.edit_group(OPERATOR, "partners", |group| group.sale_multiplier = Multiplier(1_150_000)).await
    }

    async fn last_week(&mut self) -> Result<()> {
        // The provider has refused the credential for three hours.
        self.serve_until(6 * DAY_MS + 75 * 60_000).await?;
        self.replace_credential(OPERATOR, "openai", "us", "demo-openai-us-2").await?;
        self.serve_until(4 * DAY_MS).await?;
        self.revoke_key(ADMIN, "mira", "contractor-2025").await?;
        let invite = people::invite(self.store, ADMIN, "Aiko, mobile team", &["production"], self.at);
        self.change(ADMIN, vec![invite]).await?;
        self.add_model().await?;
        self.serve_until(2 * DAY_MS).await?;
        let budget = Budget { amount: NanoUsd(18_000_000_000), window: Window::Month, action: BudgetAction::Block };
        self.set_budget(OPERATOR, "support", "assistant", budget).await?;
        self.serve_until(26 * HOUR_MS).await?;
        people::post(self.store, "fabrikam", -450, "credit for the outage of November 5", ADMIN, self.at).await?;
        self.serve_until(5 * HOUR_MS).await?;
        self.edit_group(OPERATOR, "batch", |group| group.limits.concurrency = 40).await?;
        self.serve_until(90 * 60_000).await?;
        let invite = people::invite(self.store, ADMIN, "Contoso, partner portal", &["partners"], self.at);
        self.change(ADMIN, vec![invite]).await?;
        self.serve_until(0).await
    }

    /// A new model of a provider, at the listed price.
    async fn add_model(&mut self) -> Result<()> {
        let name = "gemini-4-argon".to_owned();
        let mapping = ModelMapping { model: name.clone(), upstream: name.clone(), cost: None, profile: Profile::default() };
        let model = ModelSpec {
            name,
            display_name: Some("Gemini 4 Argon".to_owned()),
            vendor: Some("Google".to_owned()),
            description: Some("New: the largest of the fourth generation.".to_owned()),
            context: Some(1_048_576),
            input_modalities: vec![Modality::Text, Modality::Image, Modality::Audio, Modality::Video],
            output_modalities: vec![Modality::Text],
            ..ModelSpec::default()
        };
        let mapping = Change::PutModelMapping { channel: "google".to_owned(), mapping: Box::new(mapping) };
        self.change(OPERATOR, vec![mapping, Change::PutModel(Box::new(model))]).await?;
        self.later(120_000);
        self.import_prices().await
    }

    /// Saves the state of accounts, with which the next start continues, and that the node ran, because strips of health show only
    /// times in which it did.
    async fn finish(self) -> Result<HistorySummary> {
        let mut seen_at = self.end.plus_ms(-NODE_RAN_MS);
        while seen_at <= self.end {
            self.store.health_history.note_node(&self.node, seen_at).await?;
            seen_at = seen_at.plus_ms(NODE_GONE_MS);
        }
        self.store.health.save_health(&self.simulation.accounts.into_health(), self.end).await?;
        Ok(self.summary)
    }

    fn later(&mut self, ms: i64) {
        self.at = self.at.plus_ms(ms);
    }

    /// Books the traffic until a time before the end.
    async fn serve_until(&mut self, before_ms: i64) -> Result<()> {
        let until = self.end.plus_ms(-before_ms);
        self.at = self.at.max(self.end.plus_ms(-DAYS * DAY_MS));
        while self.at < until {
            let left = self.end.ms_since(self.at);
            let batch = if left <= HOUR_MS { LAST_BATCH_MS } else { BATCH_MS.min(left - HOUR_MS) };
            let next = self.at.plus_ms(batch).min(until);
            self.book(next).await?;
            self.at = next;
        }
        Ok(())
    }

    async fn book(&mut self, until: Timestamp) -> Result<()> {
        let mut records = Vec::new();
        for (at, workload) in traffic::arrivals(self.at..until, DAYS, self.end, &mut self.simulation.random) {
            let record = self.simulation.request(&self.catalog, workload, at)?;
            // Requests that have not ended have no record.
            if plus_us(at, record.duration_us) < self.end {
                records.push(record);
            }
        }
        let end = self.end;
        let has =
            |channel: &str, account: &str, kind: FaultKind| faults_at(channel, account, until, end).any(|fault| fault.kind == kind);
        self.simulation.accounts.probe(&self.catalog, has, until);
        self.summary.records += self.store.usage.append(&records).await?;
        self.summary.sale.0 += records.iter().filter_map(|record| record.sale).map(|sale| sale.0).sum::<i64>();
        let transitions = self.simulation.accounts.take_transitions();
        self.store.health_history.record_transitions(&self.node, &transitions).await?;
        for event in self.simulation.alerts.take_events() {
            match event {
                AlertEvent::Raised(condition, at) => drop(self.store.alerts.raise(&condition, &self.node, &[], at).await?),
                AlertEvent::Ended(subject, at) => drop(self.store.alerts.end(alerts::RULE, &subject, at).await?),
            }
        }
        Ok(())
    }

    /// Changes that a person makes in the console.
    fn change(&mut self, person: &'static str, changes: Vec<Change>) -> impl Future<Output = Result<()>> {
        self.apply(person, ChangeOrigin::Console, changes)
    }

    async fn apply(&mut self, person: &str, origin: ChangeOrigin, changes: Vec<Change>) -> Result<()> {
        // No two changes are made in the same second.
        self.later(1_000);
        let actor = Actor { origin, name: person.to_owned(), address: Some(people::address_of(person)) };
        self.store.catalog.apply(&changes, &actor, self.at).await.context("a change was refused")?;
        self.catalog = self.store.catalog.load().await?;
        self.simulation.set_keys(self.store.keys.list().await?);
        self.simulation.accounts.follow(&self.catalog, self.at);
        self.summary.changes += 1;
        Ok(())
    }

    async fn edit_group(&mut self, person: &'static str, name: &str, edit: impl FnOnce(&mut GroupSpec)) -> Result<()> {
        let rows = self.store.catalog.live_rows(&KeyScope::All).await?;
        let mut group = rows.groups.into_iter().find(|row| row.spec.name == name).context("the group exists")?.spec;
        edit(&mut group);
        self.change(person, vec![Change::PutGroup(Box::new(group))]).await
    }

    async fn replace_credential(&mut self, person: &'static str, channel: &str, name: &str, credential: &str) -> Result<()> {
        let rows = self.store.catalog.live_rows(&KeyScope::All).await?;
        let mut accounts = rows.channels.into_iter().filter(|row| row.spec.name == channel).flat_map(|row| row.accounts);
        let account: AccountRow = accounts.find(|account| account.spec.name == name).context("the account exists")?;
        let credential = Some(Secret::new(credential.to_owned()));
        self.change(person, vec![Change::PutAccount { channel: channel.to_owned(), account: account.spec, credential }]).await
    }

    async fn set_budget(&mut self, person: &'static str, member: &str, name: &str, budget: Budget) -> Result<()> {
        let key = self.key(member, name).await?;
        self.change(person, vec![Change::SetKeyBudgets { key, budgets: vec![budget] }]).await
    }

    async fn revoke_key(&mut self, person: &'static str, member: &str, name: &str) -> Result<()> {
        let key = self.key(member, name).await?;
        self.change(person, vec![Change::RevokeKey { key }]).await
    }

    async fn key(&self, member: &str, name: &str) -> Result<tollgate_core::KeyId> {
        let keys = self.store.keys.list().await?;
        let found = keys.into_iter().find(|key| key.member.name == member && key.name == name);
        Ok(found.with_context(|| format!("there is no key {member}/{name}"))?.id)
    }
}

fn plus_us(at: Timestamp, us: u64) -> Timestamp {
    Timestamp(at.0.saturating_add(i64::try_from(us).unwrap_or(i64::MAX)))
}
