//! The running gateway's side of the console's interface: state, settings, and tests of channels.

use std::{net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::timeout;
use tollgate_console::{
    AccountTestResult, Appearance, CapacityUse, ChannelTest, ChannelTestError, CheckedSetting, DisplayCurrency, EffectiveSetting,
    ExplainRequest, GatewayHandle, JournalUse, KeyRefusal, OnTestEvent, ProxyTestResult, Registration, SessionTimes,
    SettingRefusal,
};
use tollgate_core::{
    AccountHealth, AccountId, AccountStanding, Budget, Catalog, ChannelId, Key, NanoUsd, Observation, Revision, Subject, Timestamp,
    Window,
};
use tollgate_gateway::{
    explain::{CallerCounters, DEFAULT_INPUT_TOKENS, ExplainInput},
    refusal::Refusal,
    state::{
        health_records::HealthRecords, health_registry::HealthRegistry, metrics::METRICS_CONTENT_TYPE, runtime_state::RuntimeState,
        shared::Shared,
    },
    upstream::client::fetch_document,
};
use tollgate_store::{AlertDestination, Store, StoreError};

use crate::{alerting, channel_test, console_settings, live_settings::LiveSettings};

/// How long the answer to a change waits for the change to be in force.
const MAX_WAIT_FOR_FORCE: Duration = Duration::from_secs(2);

/// [`GatewayHandle`] of the running gateway.
#[derive(Debug)]
pub(super) struct RunningGateway {
    pub(super) shared: Arc<Shared>,
    pub(super) registry: Arc<HealthRegistry>,
    pub(super) records: Arc<HealthRecords>,
    pub(super) store: Store,
    pub(super) settings: Arc<LiveSettings>,
}

#[async_trait]
impl GatewayHandle for RunningGateway {
    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn wrong_key(&self, from: Option<IpAddr>) -> Result<(), u32> {
        self.shared.keys.wrong_key(from)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other refusals say that keys cannot be looked up")]
    async fn service_key(&self, presented: &str, from: Option<IpAddr>) -> Result<Arc<Key>, KeyRefusal> {
        let found = self.shared.keys.service_key(presented, from, self.now()).await;
        found.map_err(|refusal| match refusal {
            Refusal::KeyExpired(_) => KeyRefusal::Expired,
            Refusal::KeyDisabled => KeyRefusal::Disabled,
            Refusal::AddressBlocked => KeyRefusal::AddressBlocked,
            Refusal::Suspended => KeyRefusal::Suspended,
            Refusal::WrongKeys { retry_after } => KeyRefusal::TooManyWrong(retry_after),
            Refusal::KeyInvalid => KeyRefusal::Invalid,
            _ => KeyRefusal::Unavailable,
        })
    }

    fn metrics(&self) -> (&'static str, String) {
        (METRICS_CONTENT_TYPE, self.shared.metrics.render())
    }

    async fn spent(&self, subject: Subject, window: Window) -> Result<NanoUsd, StoreError> {
        Ok(self.shared.counters.spent(subject, window, self.now()))
    }

    fn configured_destination(&self) -> Option<AlertDestination> {
        // Cannot fail: the start has already read its secret.
        alerting::configured_destination(&self.settings.current()).ok().flatten()
    }

    async fn test_destination(&self, destination: &AlertDestination) -> Result<(), String> {
        alerting::send_test(destination, &self.settings.current().data, &self.shared.trust).await
    }

    fn settings(&self) -> Vec<EffectiveSetting> {
        self.settings.current().effective()
    }

    fn check_setting(&self, name: &str, value: &str) -> Result<CheckedSetting, SettingRefusal> {
        self.settings.check(name, value)
    }

    async fn until_in_force(&self, revision: Revision) -> Result<(), StoreError> {
        // An unreachable database ends the wait: the change is stored and will be read later.
        let _ = timeout(MAX_WAIT_FOR_FORCE, self.shared.keys.until_read(revision)).await;
        Ok(())
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        Ok(self.shared.catalog.load_full())
    }

    fn budgets(&self) -> Vec<Budget> {
        self.shared.settings.load().budgets.to_vec()
    }

    fn health(&self, account: AccountId) -> AccountHealth {
        self.registry.of(account)
    }

    fn standing(&self, channel: ChannelId, account: AccountId) -> AccountStanding {
        self.records.standing(channel, account, self.now())
    }

    fn journal(&self) -> Option<JournalUse> {
        let journal = self.settings.journal();
        Some(JournalUse { bytes: journal.bytes(), unbooked: u64::try_from(journal.unbooked()).unwrap_or(u64::MAX) })
    }

    fn in_flight(&self) -> u64 {
        u64::try_from(self.shared.serving.in_flight()).unwrap_or(u64::MAX)
    }

    fn account_use(&self, account: AccountId) -> CapacityUse {
        let (running, requests, tokens) = self.shared.account_use(account);
        CapacityUse { running, requests, tokens }
    }

    fn channel_use(&self, channel: ChannelId) -> CapacityUse {
        let (running, requests, tokens) = self.shared.channel_use(channel);
        CapacityUse { running, requests, tokens }
    }

    fn is_square_public(&self) -> bool {
        self.settings.current().flag("square.public")
    }

    fn currency(&self) -> DisplayCurrency {
        console_settings::currency(&self.settings.current())
    }

    fn appearance(&self) -> Appearance {
        console_settings::appearance(&self.settings.current())
    }

    fn session_times(&self) -> SessionTimes {
        console_settings::session_times(&self.settings.current())
    }

    fn registration(&self) -> Registration {
        console_settings::registration(&self.settings.current())
    }

    fn square_request(&self, from: Option<IpAddr>) -> Result<(), u32> {
        self.shared.square_requests.count(from, self.shared.clock.instant())
    }

    async fn explain(&self, request: &ExplainRequest) -> Result<Result<Value, String>, StoreError> {
        let (catalog, now) = (self.shared.catalog.load(), self.now());
        let known = RuntimeState::of(&self.shared);
        let counted = CallerCounters::of(&self.shared, &catalog, &request.key);
        let health = self.registry.snapshot_for(request.key.requester());
        let addresses = &self.shared.settings.load().addresses;
        let input = ExplainInput { catalog: &catalog, health: &health, state: &known, counters: &counted, addresses, now };
        Ok(explain_json(request, &input))
    }

    async fn test(&self, test: ChannelTest<'_>, on_event: OnTestEvent<'_>) -> Result<Vec<AccountTestResult>, ChannelTestError> {
        // Load the catalog: the snapshot of the gateway may be older than the last change.
        let catalog = self.store.catalog.load().await.map_err(ChannelTestError::Store)?;
        let (mut passed, mut ended) = (Vec::new(), Vec::new());
        let mut on_end = |account, rules, result: &AccountTestResult| {
            if result.error.is_none() {
                passed.push(account);
                self.registry.observe(account, &Observation::TestPassed, rules, self.now());
            }
            ended.push((account, channel_test::last_test(result, self.now())));
        };
        let tested = channel_test::run(&catalog, test, (&self.shared.trust, self.longest()), on_event, &mut on_end).await;
        self.save_tests(passed).await;
        if let Err(fault) = self.store.health_history.save_last_tests(&ended).await {
            self.shared.metrics.store_error("save_last_tests");
            tracing::warn!(%fault, "the results of account tests were not saved");
        }
        tested
    }

    async fn test_proxy(&self, channel: &str) -> Result<ProxyTestResult, ChannelTestError> {
        let catalog = self.store.catalog.load().await.map_err(ChannelTestError::Store)?;
        channel_test::run_proxy(&catalog, channel, &self.shared.trust).await
    }

    async fn upstream_models(&self, channel: &str, account: Option<&str>) -> Result<Vec<String>, ChannelTestError> {
        let catalog = self.store.catalog.load().await.map_err(ChannelTestError::Store)?;
        channel_test::models(&catalog, channel, account, (&self.shared.trust, self.longest())).await
    }

    async fn fetch(&self, request: http::Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, String> {
        fetch_document(request, self.settings.current().flag("oidc.private_network"), &self.shared.trust, &self.shared.tracker)
            .await
    }

    async fn end_cooling(&self, channel: &str, account: Option<&str>) -> Result<Vec<String>, ChannelTestError> {
        let catalog = self.store.catalog.load().await.map_err(ChannelTestError::Store)?;
        let (channel, accounts) = channel_test::accounts(&catalog, channel, account)?;
        for account in &accounts {
            self.registry.observe(account.id, &Observation::TestPassed, channel.spec.cooling_rules(), self.now());
        }
        self.save_tests(accounts.iter().map(|account| account.id).collect()).await;
        Ok(accounts.iter().map(|account| account.spec.name.clone()).collect())
    }
}

impl RunningGateway {
    /// The longest time of a request.
    fn longest(&self) -> Duration {
        self.shared.settings.load().upstream.total
    }

    /// Saves that accounts passed a test, so that other nodes end the cooldown too, and so that results of requests sent before
    /// are ignored.
    async fn save_tests(&self, passed: Vec<AccountId>) {
        for account in passed {
            if let Err(fault) = self.store.health.save_test(account, self.now()).await {
                self.shared.metrics.store_error("save_test");
                tracing::warn!(account.id = %account, %fault, "a passed account test was not saved");
            }
        }
    }
}

/// Explains a request: the object that `explain --json` prints.
pub(crate) fn explain_json(request: &ExplainRequest, input: &ExplainInput<'_>) -> Result<Value, String> {
    let ExplainRequest { key, model, protocol, fields, max_price, input_tokens, output_tokens } = request.clone();
    let input_tokens = input_tokens.unwrap_or(DEFAULT_INPUT_TOKENS);
    let request =
        tollgate_gateway::explain::ExplainRequest { model, from: protocol, fields, max_price, input_tokens, output_tokens };
    let explanation = tollgate_gateway::explain::explain(&request, Arc::new(key), input)?;
    Ok(serde_json::to_value(&explanation).expect("an explanation serialises without errors"))
}
