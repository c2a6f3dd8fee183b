//! The console beside the gateway: on a runtime of its own, so that nothing it does can delay a model request. It is
//! reached through the gateway's queue, or on an address of its own.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_console::{
    AccountTestResult, ChannelTestError, ChannelTestEvent, Console, ConsoleParts, EffectiveSetting, ExplainRequest, GatewayHandle,
    ListenerLimits, RequestMeta, serve as serve_console,
};
use tollgate_core::{AccountHealth, AccountId, Budget, NanoUsd, Observation, RequestId, Subject, Timestamp, Window};
use tollgate_gateway::{
    clock::CoreRng,
    explain::{CallerCounters, ExplainInput, USUAL_INPUT},
    fallback::{FallbackQueue, FallbackRequest, FallbackRequests, FallbackResponse, FallbackService, NotFound, queue},
    server::tls_acceptor,
    settings::TlsFiles,
    state::{health_registry::HealthRegistry, metrics::METRICS_CONTENT_TYPE, runtime_state::RuntimeState, shared::Shared},
    upstream::client::is_public,
};
use tollgate_store::{RowFilter, RowKind, Store, StoreError};

use crate::{channel_test, compose, config::Config, failure::Failure};

/// Requests from the gateway's queue that are answered at once, their answers' last bytes included.
const AT_ONCE: usize = 256;
/// How often it is asked whether there is an admin key yet.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A console that is being put together.
pub(crate) struct ConsoleServer {
    /// What the gateway asks for paths that are not its own.
    pub(crate) fallback: Arc<dyn FallbackService>,
    /// Its own address.
    pub(crate) address: Option<SocketAddr>,
    runtime: Runtime,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Starts it: on its own address when there is one, else behind the gateway at `model_address`.
pub(crate) fn start(
    config: &Config,
    store: &Store,
    shared: &Arc<Shared>,
    registry: &Arc<HealthRegistry>,
    model_address: SocketAddr,
) -> Result<ConsoleServer, Failure> {
    // What can fail comes before the runtime: one may not be dropped here.
    let own = match config.console {
        Some(asked) => Some(bind(asked)?),
        None => None,
    };
    let tls = match &config.console_tls {
        None => None,
        Some((certificate, key)) => {
            let files = TlsFiles { certificate: certificate.clone(), key: key.clone() };
            Some(tls_acceptor(&files).map_err(|error| Failure::written(format!("the console's TLS: {error}")))?)
        }
    };
    let dice = Arc::new(CoreRng::from_os().map_err(|error| Failure::Machine(format!("the system gives no randomness: {error}")))?);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("console")
        .enable_all()
        .build()
        .map_err(|error| Failure::Machine(format!("cannot start threads: {error}")))?;
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let process = RunningGateway {
        shared: Arc::clone(shared),
        registry: Arc::clone(registry),
        store: store.clone(),
        settings: config.shown(),
    };
    let console = Console::new(ConsoleParts {
        store: store.clone(),
        gateway: Arc::new(process),
        catalog_file: config.catalog_file.as_ref().map(|file| file.display().to_string()),
        version: env!("CARGO_PKG_VERSION"),
    });
    if let Some((listener, address)) = own {
        if tls.is_none() && !address.ip().is_loopback() {
            tracing::warn!(%address, "admin keys come to the console unencrypted; set console.tls_cert and console.tls_key");
        }
        let tls = tls.map(|(acceptor, certificate)| {
            tasks.spawn_on(certificate.follow(stop.clone()), runtime.handle());
            acceptor
        });
        let opening = own_address(console, (listener, address), tls, dice, store.clone(), stop.clone());
        tasks.spawn_on(opening, runtime.handle());
        return Ok(ConsoleServer { fallback: Arc::new(NotFound), address: Some(address), runtime, stop, tasks });
    }
    let (queue, visits) = queue();
    let open = Arc::new(AtomicBool::new(model_address.ip().is_loopback()));
    let has_key = wait_for_key(store.clone(), Arc::clone(&open), stop.clone());
    tasks.spawn_on(has_key, runtime.handle());
    tasks.spawn_on(answer_visits(console, visits, stop.clone()), runtime.handle());
    Ok(ConsoleServer { fallback: Arc::new(ConsoleFallback { queue, open }), address: None, runtime, stop, tasks })
}

impl ConsoleServer {
    /// Ends it; to be called when the gateway's cores are gone.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Lets its threads go. The store must be closed before: its connections may live on them.
    pub(crate) fn end(self) {
        self.runtime.shutdown_background();
    }
}

/// A socket on the console's address, of no runtime yet.
fn bind(asked: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), Failure> {
    let bound = std::net::TcpListener::bind(asked).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    bound.map_err(|error| {
        Failure::Machine(format!("cannot listen on {asked} for the console: {error}; choose another console.listen"))
    })
}

/// The queue to the console. Away from loopback nobody is at home before there is an admin key.
#[derive(Debug)]
struct ConsoleFallback {
    queue: FallbackQueue,
    open: Arc<AtomicBool>,
}

#[async_trait]
impl FallbackService for ConsoleFallback {
    async fn call(&self, visit: FallbackRequest) -> FallbackResponse {
        if self.open.load(Ordering::Acquire) { self.queue.call(visit).await } else { FallbackResponse::Nobody }
    }
}

/// Whether somebody could be let in at all.
async fn has_admin_key(store: &Store) -> bool {
    store.listing.page(&RowFilter::of(RowKind::AdminKey, 1)).await.is_ok_and(|keys| !keys.is_empty())
}

/// Opens the door when there is an admin key.
async fn wait_for_key(store: Store, open: Arc<AtomicBool>, stop: CancellationToken) {
    while !open.load(Ordering::Acquire) {
        if has_admin_key(&store).await {
            open.store(true, Ordering::Release);
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

async fn answer_visits(console: Console, mut visits: FallbackRequests, stop: CancellationToken) {
    let (tasks, turns) = (TaskTracker::new(), Arc::new(Semaphore::new(AT_ONCE)));
    loop {
        // The turn comes first: whoever has none waits in the gateway's queue, which has a bound.
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
        let waiting = tokio::select! {
            () = stop.cancelled() => return,
            waiting = visits.next() => waiting,
        };
        let Some(waiting) = waiting else { return };
        let console = console.clone();
        tasks.spawn(async move {
            let FallbackRequest { id, peer, request } = waiting.visit;
            let response = console.answer(RequestMeta { id, address: peer.ip().to_canonical() }, request).await;
            waiting.reply.send(response).await;
            drop(turn);
        });
    }
}

/// Serves on an address of the console's own, once that may be open.
async fn own_address(
    console: Console,
    (listener, address): (std::net::TcpListener, SocketAddr),
    tls: Option<TlsAcceptor>,
    dice: Arc<CoreRng>,
    store: Store,
    stop: CancellationToken,
) {
    let mut listener = Some(listener);
    if !address.ip().is_loopback() && !has_admin_key(&store).await {
        tracing::warn!(%address, "the console opens there once there is an admin key: `tollgate admin-key create NAME`");
        listener = None;
        wait_for_key(store, Arc::new(AtomicBool::new(false)), stop.clone()).await;
    }
    if stop.is_cancelled() {
        return;
    }
    let listener = match listener {
        Some(listener) => TcpListener::from_std(listener),
        None => TcpListener::bind(address).await,
    };
    match listener {
        Ok(listener) => {
            let id = Arc::new(move || dice.request_id(compose::now())) as Arc<dyn Fn() -> RequestId + Send + Sync>;
            serve_console(console, listener, tls, ListenerLimits::default(), id, stop).await;
        }
        Err(error) => tracing::error!(%address, %error, "the console cannot listen"),
    }
}

/// The running process, as the console sees it.
#[derive(Debug)]
struct RunningGateway {
    shared: Arc<Shared>,
    registry: Arc<HealthRegistry>,
    store: Store,
    settings: Vec<EffectiveSetting>,
}

#[async_trait]
impl GatewayHandle for RunningGateway {
    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn wrong_key(&self, from: IpAddr) -> Result<(), u32> {
        self.shared.keys.wrong_key(from)
    }

    fn metrics(&self) -> (&'static str, String) {
        (METRICS_CONTENT_TYPE, self.shared.metrics.render())
    }

    async fn spent(&self, subject: Subject, window: Window) -> Result<NanoUsd, StoreError> {
        Ok(self.shared.counters.spent(subject, window, self.now()))
    }

    fn settings(&self) -> Vec<EffectiveSetting> {
        self.settings.clone()
    }

    fn budgets(&self) -> Vec<Budget> {
        self.shared.settings.budgets.clone()
    }

    fn health(&self, account: AccountId) -> AccountHealth {
        self.registry.of(account)
    }

    fn is_public(&self, address: IpAddr) -> bool {
        is_public(address)
    }

    async fn explain(&self, question: &ExplainRequest) -> Result<Result<Value, String>, StoreError> {
        let (catalog, now) = (self.shared.catalog.load(), self.now());
        let known = RuntimeState::of(&self.shared);
        let counted = CallerCounters::of(&self.shared, &catalog, &question.key);
        let sight = ExplainInput { catalog: &catalog, health: &self.registry.snapshot(), known: &known, counted: &counted, now };
        Ok(explained(question, &sight))
    }

    async fn test(
        &self,
        channel: &str,
        account: Option<&str>,
        model: Option<&str>,
        seen: &mut (dyn for<'a> FnMut(ChannelTestEvent<'a>) + Send),
    ) -> Result<Vec<AccountTestResult>, ChannelTestError> {
        // What was changed a moment ago is tested as it is now.
        let catalog = self.store.catalog.load().await.map_err(ChannelTestError::Store)?;
        let mut well = Vec::new();
        let mut passed = |account, cooling| {
            well.push(account);
            self.registry.observe(account, &Observation::TestPassed, cooling, self.now());
        };
        let tested = channel_test::run(&catalog, channel, account, model, seen, &mut passed).await;
        // Other nodes rest it too, and here an answer may still come that was asked for before.
        for account in well {
            if let Err(fault) = self.store.health.save_test(account, self.now()).await {
                self.shared.metrics.store_error("save_test");
                tracing::warn!(account.id = %account, %fault, "that an account passed a test was not noted");
            }
        }
        tested
    }
}

/// Explains what the console asks: the object that `explain --json` prints.
pub(crate) fn explained(question: &ExplainRequest, sight: &ExplainInput<'_>) -> Result<Value, String> {
    let ExplainRequest { key, model, protocol, fields, max_price, input_tokens, output_tokens } = question.clone();
    let input_tokens = input_tokens.unwrap_or(USUAL_INPUT);
    let question =
        tollgate_gateway::explain::ExplainRequest { model, from: protocol, fields, max_price, input_tokens, output_tokens };
    let explained = tollgate_gateway::explain::explain(&question, Arc::new(key), sight)?;
    Ok(serde_json::to_value(&explained).expect("an explanation is plain data"))
}
