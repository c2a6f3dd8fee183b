//! [`GatewayHandle`] of a command: answers from the database and from the runtime state of a gateway on the same data folder.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::OnceCell;
use tollgate_console::{
    AccountTestResult, Appearance, CapacityUse, ChannelTest, ChannelTestError, CheckedSetting, DisplayCurrency, EffectiveSetting,
    ExplainRequest, GatewayHandle, KeyRefusal, OnTestEvent, ProxyTestResult, Registration, SessionTimes, SettingRefusal,
};
use tollgate_core::{
    AccountHealth, AccountId, AccountStanding, Budget, Catalog, ChannelId, HealthStatus, HealthView, Key, NanoUsd, Observation,
    Revision, Subject, Timestamp, Window, observe,
};
use tollgate_gateway::{
    explain::{CallerCounters, ExplainInput, subjects_of},
    state::{
        metrics::METRICS_CONTENT_TYPE,
        runtime_state::{ChannelSpending, budgets},
    },
    upstream::client::Trust,
};
use tollgate_store::{AlertDestination, Counters, Store, StoreError};

use crate::{
    alerting, channel_test, compose, config::Config, console::explain_json, console_settings, failure::Failure, gateway_settings,
    live_settings, traffic_snapshot,
};

/// Gateway state from the database and data folder.
#[derive(Debug)]
pub(super) struct StoppedGateway {
    store: Store,
    /// The settings that this command read, without stored values.
    start: Config,
    config: ArcSwap<Config>,
    health: StoredHealth,
    counters: OnceCell<Arc<dyn Counters>>,
}

/// Health saved in the store.
#[derive(Debug)]
struct StoredHealth(HashMap<AccountId, AccountHealth>);

impl HealthView for StoredHealth {
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus {
        self.whole(account).status(now)
    }
}

impl StoredHealth {
    fn whole(&self, account: AccountId) -> AccountHealth {
        self.0.get(&account).copied().unwrap_or_default()
    }
}

impl StoppedGateway {
    pub(super) async fn load(store: Store, config: Config) -> Result<Self, Failure> {
        let now = compose::now();
        let saved = store.health.load_health().await?.into_iter();
        let health = StoredHealth(saved.map(|(account, health)| (account, health.as_of(now))).collect());
        let (start, config) = (config.clone(), ArcSwap::from_pointee(config));
        let gateway = Self { store, start, config, health, counters: OnceCell::new() };
        gateway.read_settings().await?;
        Ok(gateway)
    }

    /// Puts the stored settings into force as they are in the database now.
    async fn read_settings(&self) -> Result<(), StoreError> {
        let stored = live_settings::stored(&self.store).await?;
        // A running gateway has already logged the settings that it leaves out.
        let (config, _) = self.start.with_stored(&stored);
        self.config.store(Arc::new(config));
        Ok(())
    }

    /// The connections of this command may reach the same addresses as those of a running gateway.
    fn trust(&self) -> Arc<Trust> {
        Arc::new(Trust::within(gateway_settings::addresses(&self.config.load())))
    }

    /// The longest time of a request.
    fn longest(&self) -> Duration {
        gateway_settings::configured(&self.config.load()).upstream.total
    }

    async fn counters(&self) -> Result<&Arc<dyn Counters>, StoreError> {
        let read = || async { Ok(self.store.counters(compose::now(), compose::reservation_ttl(&self.config.load())).await?.0) };
        self.counters.get_or_try_init(read).await
    }
}

#[async_trait]
impl GatewayHandle for StoppedGateway {
    fn now(&self) -> Timestamp {
        compose::now()
    }

    fn wrong_key(&self, _: Option<IpAddr>) -> Result<(), u32> {
        Ok(())
    }

    async fn service_key(&self, _: &str, _: Option<IpAddr>) -> Result<Arc<Key>, KeyRefusal> {
        // Callers reach a running gateway only.
        Err(KeyRefusal::Unavailable)
    }

    fn metrics(&self) -> (&'static str, String) {
        (METRICS_CONTENT_TYPE, String::new())
    }

    async fn spent(&self, subject: Subject, window: Window) -> Result<NanoUsd, StoreError> {
        Ok(self.counters().await?.spent(subject, window, compose::now()))
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        self.store.catalog.load().await.map(Arc::new)
    }

    fn budgets(&self) -> Vec<Budget> {
        self.config.load().budgets.to_vec()
    }

    fn configured_destination(&self) -> Option<AlertDestination> {
        // Cannot fail: the start has already read its secret.
        alerting::configured_destination(&self.start).ok().flatten()
    }

    async fn test_destination(&self, destination: &AlertDestination) -> Result<(), String> {
        alerting::send_test(destination, &self.start.data, &self.trust()).await
    }

    fn settings(&self) -> Vec<EffectiveSetting> {
        self.config.load().effective()
    }

    fn check_setting(&self, name: &str, value: &str) -> Result<CheckedSetting, SettingRefusal> {
        self.start.check_stored(name, value)
    }

    async fn until_in_force(&self, _: Revision) -> Result<(), StoreError> {
        self.read_settings().await
    }

    fn health(&self, account: AccountId) -> AccountHealth {
        self.health.whole(account)
    }

    fn standing(&self, _: ChannelId, account: AccountId) -> AccountStanding {
        AccountStanding::of(&self.health.whole(account).state, compose::now())
    }

    fn in_flight(&self) -> u64 {
        0
    }

    fn account_use(&self, _: AccountId) -> CapacityUse {
        CapacityUse::default()
    }

    fn channel_use(&self, _: ChannelId) -> CapacityUse {
        CapacityUse::default()
    }

    fn is_square_public(&self) -> bool {
        false
    }

    fn currency(&self) -> DisplayCurrency {
        console_settings::currency(&self.config.load())
    }

    fn appearance(&self) -> Appearance {
        console_settings::appearance(&self.config.load())
    }

    fn session_times(&self) -> SessionTimes {
        console_settings::session_times(&self.config.load())
    }

    fn registration(&self) -> Registration {
        console_settings::registration(&self.config.load())
    }

    fn square_request(&self, _: Option<IpAddr>) -> Result<(), u32> {
        Ok(())
    }

    async fn explain(&self, request: &ExplainRequest) -> Result<Result<Value, String>, StoreError> {
        let catalog = self.store.catalog.load().await?;
        let now = compose::now();
        let mut known = traffic_snapshot::read(&self.start.data, now);
        if !known.is_reported() {
            // No gateway is running, or it has nothing to report: spending is in the database.
            let mut spent = Vec::new();
            for (channel, window) in budgets(&catalog) {
                spent.push(ChannelSpending { channel, window, spent: self.spent(Subject::Channel(channel), window).await? });
            }
            known.set_spending(spent);
        }
        let booked = self.counters().await?.snapshot(&subjects_of(&catalog, &request.key), compose::instant()).meters;
        let counted = CallerCounters::from_database(booked, &known, now, self.budgets());
        let addresses = &gateway_settings::addresses(&self.config.load());
        let input = ExplainInput { catalog: &catalog, health: &self.health, state: &known, counters: &counted, addresses, now };
        Ok(explain_json(request, &input))
    }

    async fn test(&self, test: ChannelTest<'_>, on_event: OnTestEvent<'_>) -> Result<Vec<AccountTestResult>, ChannelTestError> {
        let catalog = self.store.catalog.load().await.map_err(ChannelTestError::Store)?;
        let (mut changed, mut passed, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut on_end = |account, rules, result: &AccountTestResult| {
            ended.push((account, channel_test::last_test(result, compose::now())));
            if result.error.is_some() {
                return;
            }
            passed.push(account);
            let before = self.health.whole(account);
            let after = observe(&before, &Observation::TestPassed, rules, compose::now());
            changed.extend((after != before).then_some((account, after)));
        };
        let tested = channel_test::run(&catalog, test, (&self.trust(), self.longest()), on_event, &mut on_end).await?;
        self.save(&changed, &passed).await.map_err(ChannelTestError::Store)?;
        self.store.health_history.save_last_tests(&ended).await.map_err(ChannelTestError::Store)?;
        Ok(tested)
    }

    async fn test_proxy(&self, channel: &str) -> Result<ProxyTestResult, ChannelTestError> {
        let catalog = self.store.catalog.load().await.map_err(ChannelTestError::Store)?;
        channel_test::run_proxy(&catalog, channel, &self.trust()).await
    }

    async fn upstream_models(&self, channel: &str, account: Option<&str>) -> Result<Vec<String>, ChannelTestError> {
        let catalog = self.store.catalog.load().await.map_err(ChannelTestError::Store)?;
        channel_test::models(&catalog, channel, account, (&self.trust(), self.longest())).await
    }

    async fn fetch(&self, _: http::Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, String> {
        Err("a command has no browser to sign in".to_owned())
    }

    async fn end_cooling(&self, channel: &str, account: Option<&str>) -> Result<Vec<String>, ChannelTestError> {
        let catalog = self.store.catalog.load().await.map_err(ChannelTestError::Store)?;
        let (channel, accounts) = channel_test::accounts(&catalog, channel, account)?;
        let end = |health: AccountHealth| observe(&health, &Observation::TestPassed, channel.spec.cooling_rules(), compose::now());
        let ids: Vec<_> = accounts.iter().map(|account| account.id).collect();
        let health: Vec<_> = ids.iter().map(|id| (*id, end(self.health.whole(*id)))).collect();
        self.save(&health, &ids).await.map_err(ChannelTestError::Store)?;
        Ok(accounts.iter().map(|account| account.spec.name.clone()).collect())
    }
}

impl StoppedGateway {
    /// Saves health, and records that these accounts passed a test.
    async fn save(&self, changed: &[(AccountId, AccountHealth)], passed: &[AccountId]) -> Result<(), StoreError> {
        // Health is saved for the next start. A running gateway has its own, possibly newer health; it reads the passed test
        // that `save_test` stores, and does not overwrite it.
        self.store.health.save_health(changed, compose::now()).await?;
        for account in passed {
            self.store.health.save_test(*account, compose::now()).await?;
        }
        Ok(())
    }
}
