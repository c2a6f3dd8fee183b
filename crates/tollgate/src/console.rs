//! Runs the console next to the gateway, on threads of its own so that it cannot delay model requests. Requests arrive through the
//! gateway's fallback queue, or on a separate address (`console.listen`).

mod running_gateway;
mod serving;
mod socket;
mod threads;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
};

use tokio::runtime::Runtime;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_console::{Console, Jobs, ScheduledBackups};
use tollgate_gateway::{
    clock::CoreRng,
    fallback::{FallbackService, queue},
    server::tls_acceptor,
    settings::TlsFiles,
    state::{health_records::HealthRecords, health_registry::HealthRegistry, shared::Shared},
};
use tollgate_store::Store;

use self::{
    running_gateway::RunningGateway,
    serving::{ConsoleFallback, open_after_first_admin, serve_own_address, serve_queue},
};
pub(crate) use self::{running_gateway::explain_json, serving::OwnAddress};
use crate::{
    backup_schedule, compose, console_settings, export::schedule, failure::Failure, gateway_jobs::GatewayJobs,
    live_settings::LiveSettings,
};

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
    let identity = console_settings::identity(config, own_address)?;
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
        let own = OwnAddress::new(address, base, stop.child_token());
        let serving =
            serve_own_address(Arc::clone(shared), (listener, own.clone()), tls, (callers.clone(), queue, rng), store.clone());
        tasks.spawn_on(serving, runtime.handle());
        // The address of model requests has the paths of callers only.
        let fallback = Arc::new(ConsoleFallback::for_callers(callers));
        return Ok(ConsoleServer { fallback, own: Some(own), runtime, stop, tasks });
    }
    let open = Arc::new(AtomicBool::new(model_address.ip().is_loopback()));
    let opening = open_after_first_admin(store.clone(), Arc::clone(&open), stop.clone());
    tasks.spawn_on(opening, runtime.handle());
    Ok(ConsoleServer { fallback: Arc::new(ConsoleFallback::new(callers, (queue, open), base)), own: None, runtime, stop, tasks })
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
