//! Runs the console next to the gateway, on threads of its own so that it cannot delay model requests. Requests arrive through the
//! gateway's fallback queue, or on a separate address (`console.listen`).

mod socket;
mod threads;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use serde_json::Value;
use tokio::{net::TcpListener, runtime::Runtime, sync::Semaphore, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_console::{
    AccountTestResult, Appearance, CapacityUse, ChannelTest, ChannelTestError, CheckedSetting, Console, DisplayCurrency,
    EffectiveSetting, ExplainRequest, GatewayHandle, Jobs, KeyRefusal, NotOfConsole, OnTestEvent, ProxyTestResult, Registration,
    RequestMeta, ScheduledBackups, SessionTimes, SettingRefusal, is_caller_path, is_set_up_path,
};
use tollgate_core::{
    AccountHealth, AccountId, AccountStanding, Budget, Catalog, ChannelId, Key, NanoUsd, Observation, Revision, Subject, Timestamp,
    Window,
};
use tollgate_gateway::{
    clock::CoreRng,
    explain::{CallerCounters, DEFAULT_INPUT_TOKENS, ExplainInput},
    fallback::{FallbackQueue, FallbackRequest, FallbackRequests, FallbackResponse, FallbackService, queue},
    refusal::Refusal,
    server::{FallbackListenerLimits, names_loopback, serve_fallback, tls_acceptor},
    settings::TlsFiles,
    state::{
        health_records::HealthRecords, health_registry::HealthRegistry, metrics::METRICS_CONTENT_TYPE, runtime_state::RuntimeState,
        shared::Shared,
    },
    upstream::client::fetch_document,
};
use tollgate_store::{AlertDestination, LoginMember, RowFilter, RowKind, Store, StoreError};

use self::socket::ConsoleSocket;
use crate::{
    alerting, backup_schedule, channel_test, compose, export::schedule, failure::Failure, gateway_jobs::GatewayJobs,
    live_settings::LiveSettings,
};

/// Concurrent requests from the gateway's queue, counted until the last byte of the response.
const MAX_CONCURRENT: usize = 256;
/// How long the answer to a change waits until the change is in force.
const MAX_WAIT_FOR_FORCE: Duration = Duration::from_secs(2);
/// Interval of checks for the first admin.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The console's own address.
#[derive(Clone, Debug)]
pub(crate) struct OwnAddress {
    pub(crate) address: SocketAddr,
    /// The console's own path.
    base: String,
    socket: ConsoleSocket,
    /// Ends serving there. The requests that it passes on are still answered.
    stop: CancellationToken,
}

impl OwnAddress {
    /// The socket, for another process, if it is open.
    pub(crate) fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        self.socket.duplicate()
    }

    /// Leaves the address to another process; running responses finish.
    pub(crate) fn leave(&self) {
        self.stop.cancel();
    }
}

pub(crate) struct ConsoleServer {
    /// Serves the paths that the gateway does not.
    pub(crate) fallback: Arc<dyn FallbackService>,
    /// Separate address, if there is one.
    pub(crate) own: Option<OwnAddress>,
    runtime: Runtime,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Starts the console on `console.listen` if set, otherwise on the gateway's address, `model_address`. `taken` is the socket of the
/// process that this one replaces. Jobs are cancelled with `stop_jobs`, and then none are started by themselves.
pub(crate) fn start(
    settings: &Arc<LiveSettings>,
    store: &Store,
    (shared, registry, records): (&Arc<Shared>, &Arc<HealthRegistry>, &Arc<HealthRecords>),
    model_address: SocketAddr,
    taken: Option<std::net::TcpListener>,
    scheduled: ScheduledBackups,
    stop_jobs: CancellationToken,
) -> Result<ConsoleServer, Failure> {
    let config = &*settings.current();
    // Fallible steps come before the runtime is built: a runtime must not be dropped in async code.
    let own_listener = match config.console {
        Some(address) => Some(match taken {
            Some(listener) => continue_listening(address, listener)?,
            None => bind(address)?,
        }),
        None => None,
    };
    let own_address = own_listener.as_ref().map_or(model_address, |(_, address)| *address);
    let identity = compose::identity(config, own_address)?;
    let base = identity.base().to_owned();
    let tls = match &config.console_tls {
        None => None,
        Some((certificate, key)) => {
            let files = TlsFiles { certificate: certificate.clone(), key: key.clone() };
            Some(tls_acceptor(&files).map_err(|error| Failure::invalid(format!("the console's TLS: {error}")))?)
        }
    };
    let rng =
        CoreRng::from_os().map_err(|error| Failure::Machine(format!("cannot get random numbers from the system: {error}")))?;
    let runtime = threads::start().map_err(|error| Failure::Machine(format!("cannot start threads: {error}")))?;
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let process = RunningGateway {
        shared: Arc::clone(shared),
        registry: Arc::clone(registry),
        records: Arc::clone(records),
        store: store.clone(),
        settings: Arc::clone(settings),
    };
    let catalog_file = config.catalog_file.as_ref().map(|file| file.display().to_string());
    let runner = Arc::new(GatewayJobs { settings: Arc::clone(settings) });
    let backups = (compose::backup_folder(config), scheduled);
    let jobs = Jobs::new(runner, backups, tasks.clone(), stop_jobs.clone());
    tasks.spawn_on(backup_schedule::run(Arc::clone(settings), jobs.clone(), stop_jobs), runtime.handle());
    let exports = schedule::run(Arc::clone(settings), store.clone(), Arc::clone(shared), jobs.clone(), stop.clone());
    tasks.spawn_on(exports, runtime.handle());
    let console = Console::new(store.clone(), Arc::new(process), identity, catalog_file, Some(jobs));
    // Requests of callers about their own keys have a separate queue, so that operators' requests do not wait behind them.
    let ((queue, requests), (callers, caller_requests)) = (queue(), queue());
    tasks.spawn_on(serve_queue(console.clone(), requests, stop.clone()), runtime.handle());
    tasks.spawn_on(serve_queue(console, caller_requests, stop.clone()), runtime.handle());
    if let Some((listener, address)) = own_listener {
        if tls.is_none() && !address.ip().is_loopback() {
            tracing::warn!(%address, "the console serves plain HTTP: admin keys are sent unencrypted; set console.tls_cert and console.tls_key");
        }
        let tls = tls.map(|(acceptor, certificate)| {
            tasks.spawn_on(certificate.follow(stop.clone()), runtime.handle());
            acceptor
        });
        let own = OwnAddress { address, base, socket: ConsoleSocket::default(), stop: stop.child_token() };
        let serving =
            serve_own_address(Arc::clone(shared), (listener, own.clone()), tls, (callers.clone(), queue, rng), store.clone());
        tasks.spawn_on(serving, runtime.handle());
        // The address of model requests has the paths of callers only.
        let fallback = Arc::new(ConsoleFallback { callers, console: None, base: String::new() });
        return Ok(ConsoleServer { fallback, own: Some(own), runtime, stop, tasks });
    }
    let open = Arc::new(AtomicBool::new(model_address.ip().is_loopback()));
    let opening = open_after_first_admin(store.clone(), Arc::clone(&open), stop.clone());
    tasks.spawn_on(opening, runtime.handle());
    Ok(ConsoleServer {
        fallback: Arc::new(ConsoleFallback { callers, console: Some((queue, open)), base }),
        own: None,
        runtime,
        stop,
        tasks,
    })
}

impl ConsoleServer {
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.own.as_ref().map(|own| own.address)
    }

    /// Stops serving and waits for running requests. Call it after the gateway's cores have ended.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Shuts the runtime down. Close the store first: its connections may be driven by this runtime.
    pub(crate) fn shut_down(self) {
        self.runtime.shutdown_background();
    }
}

/// The socket of the process before this one.
fn continue_listening(
    address: SocketAddr,
    listener: std::net::TcpListener,
) -> Result<(std::net::TcpListener, SocketAddr), Failure> {
    let known = listener.set_nonblocking(true).and_then(|()| listener.local_addr());
    let address = known.map_err(|error| Failure::Machine(format!("cannot listen on {address} for the console: {error}")))?;
    Ok((listener, address))
}

/// Binds the console address, without a runtime.
fn bind(address: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), Failure> {
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    bound.map_err(|error| {
        Failure::Machine(format!("cannot listen on {address} for the console: {error}; choose another console.listen"))
    })
}

/// Passes requests from the gateway to the console: those of callers about themselves always. Others, on a non-loopback address, only
/// once an admin key exists or an admin can sign in; until then those of a set-up link alone.
#[derive(Debug)]
struct ConsoleFallback {
    callers: FallbackQueue,
    /// The queue of the console and whether it is open, unless it has an address of its own.
    console: Option<(FallbackQueue, Arc<AtomicBool>)>,
    /// The console's own path.
    base: String,
}

#[async_trait]
impl FallbackService for ConsoleFallback {
    async fn call(&self, request: FallbackRequest) -> FallbackResponse {
        let path = request.request.uri().path();
        if is_caller_path(path) {
            return self.callers.call(request).await;
        }
        match &self.console {
            Some((queue, open)) if open.load(Ordering::Acquire) || is_set_up_path(&self.base, path) => queue.call(request).await,
            Some(_) | None => FallbackResponse::NotFound,
        }
    }
}

/// Whether an admin or an admin key can use the console.
async fn has_admin(store: &Store) -> bool {
    store.listing.page(&RowFilter::of(RowKind::AdminKey, 1)).await.is_ok_and(|keys| !keys.is_empty())
        || store.identity.admins().await.is_ok_and(|admins| admins.iter().any(LoginMember::can_sign_in))
}

/// Sets `open` once an admin key exists or an admin can sign in.
async fn open_after_first_admin(store: Store, open: Arc<AtomicBool>, stop: CancellationToken) {
    while !open.load(Ordering::Acquire) {
        if has_admin(&store).await {
            open.store(true, Ordering::Release);
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Answers requests from the gateway's queue.
async fn serve_queue(console: Console, mut requests: FallbackRequests, stop: CancellationToken) {
    let (tasks, permits) = (TaskTracker::new(), Arc::new(Semaphore::new(MAX_CONCURRENT)));
    loop {
        // Acquire before taking a request, so that requests wait in the gateway's bounded queue.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let waiting = tokio::select! {
            () = stop.cancelled() => return,
            waiting = requests.next() => waiting,
        };
        let Some(waiting) = waiting else { return };
        let console = console.clone();
        tasks.spawn(async move {
            let FallbackRequest { id, peer, request } = waiting.request;
            let is_local = peer.is_some_and(|peer| peer.is_loopback()) && names_loopback(request.uri(), request.headers());
            let response = console.answer(RequestMeta { id, address: peer, is_local }, request).await;
            if response.extensions().get::<NotOfConsole>().is_some() {
                waiting.reply.not_found();
            } else {
                waiting.reply.send(response).await;
            }
            drop(permit);
        });
    }
}

/// Serves on a separate address; a non-loopback one opens once there is an admin.
async fn serve_own_address(
    shared: Arc<Shared>,
    (listener, OwnAddress { address, base, socket, stop }): (std::net::TcpListener, OwnAddress),
    tls: Option<TlsAcceptor>,
    (callers, queue, rng): (FallbackQueue, FallbackQueue, CoreRng),
    store: Store,
) {
    let open = Arc::new(AtomicBool::new(address.ip().is_loopback() || has_admin(&store).await));
    if !open.load(Ordering::Acquire) {
        tracing::warn!(
            %address,
            "the console opens on this address once an admin can sign in (`tollgate setup-link`) or there is an admin key \
             (`tollgate admin-key create NAME`)"
        );
    }
    let opening = open_after_first_admin(store, Arc::clone(&open), stop.clone());
    let fallback = Arc::new(ConsoleFallback { callers, console: Some((queue, open)), base });
    match TcpListener::from_std(listener) {
        Ok(listener) => {
            socket.open(&listener);
            let serving = serve_fallback(shared, listener, tls, fallback, (rng, FallbackListenerLimits::default()), stop);
            tokio::join!(serving, opening);
            socket.close();
        }
        Err(error) => tracing::error!(%address, %error, "the console cannot listen"),
    }
}

/// [`GatewayHandle`] of the running gateway.
#[derive(Debug)]
struct RunningGateway {
    shared: Arc<Shared>,
    registry: Arc<HealthRegistry>,
    records: Arc<HealthRecords>,
    store: Store,
    settings: Arc<LiveSettings>,
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
        // Its secret was read at the start.
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

    fn in_flight(&self) -> u64 {
        u64::try_from(self.shared.condition.in_flight()).unwrap_or(u64::MAX)
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
        compose::currency(&self.settings.current())
    }

    fn appearance(&self) -> Appearance {
        compose::appearance(&self.settings.current())
    }

    fn session_times(&self) -> SessionTimes {
        compose::session_times(&self.settings.current())
    }

    fn registration(&self) -> Registration {
        compose::registration(&self.settings.current())
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
            tracing::warn!(%fault, "how the last tests of accounts ended was not saved");
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
