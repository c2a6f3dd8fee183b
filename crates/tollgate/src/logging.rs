//! Logging to stderr: text on a terminal, JSON lines otherwise.

use std::{io::IsTerminal, sync::OnceLock};

use tollgate_gateway::state::request_log::{LineFormat, LogSelection, LogThread, LoggedRequests, RequestLog, RequestLogOptions};
use tracing_subscriber::{EnvFilter, Registry, fmt, layer::SubscriberExt, reload, util::SubscriberInitExt};

use crate::{config::Config, failure::Failure};

/// Starts logging with the configured level and format. Dependencies log warnings and errors only.
pub(crate) fn start(config: &Config) {
    let (filter, handle) = reload::Layer::new(filter(config));
    let registry = tracing_subscriber::registry().with(filter);
    let started = if format(config) == LineFormat::Json {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
    } else {
        registry.with(fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal())).try_init()
    };
    // A second start in one process (in tests) keeps the first subscriber.
    if started.is_ok() {
        let _ = FILTER.set(handle);
    }
}

/// The filter of the running log.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

fn filter(config: &Config) -> EnvFilter {
    let level = config.text("log.level");
    EnvFilter::new(format!("warn,tollgate={level},tollgate_gateway={level},tollgate_store={level}"))
}

/// Changes the level of the running log.
pub(crate) fn set_level(config: &Config) {
    if let Some(handle) = FILTER.get() {
        // This fails only if the subscriber no longer exists, and then there is no log.
        let _ = handle.reload(filter(config));
    }
}

fn format(config: &Config) -> LineFormat {
    match config.text("log.format") {
        "json" => LineFormat::Json,
        "text" => LineFormat::Text,
        _ if std::io::stderr().is_terminal() => LineFormat::Text,
        _ => LineFormat::Json,
    }
}

/// The requests that leave a line in the log. Lines are of level `info`.
pub(crate) fn selection(config: &Config) -> LogSelection {
    let requests = match (config.text("log.level"), config.text("log.requests")) {
        ("error" | "warn", _) | (_, "none") => LoggedRequests::None,
        (_, "all") => LoggedRequests::All,
        _ => LoggedRequests::Problems,
    };
    LogSelection { requests, slow_us: config.number("log.slow_ms").saturating_mul(1_000) }
}

/// Starts the log of requests. Dropping the thread writes the remaining lines.
pub(crate) fn requests(config: &Config) -> Result<(RequestLog, LogThread), Failure> {
    let options = RequestLogOptions { selection: selection(config), format: format(config), buffers: config.cores };
    RequestLog::start(options, std::io::stderr())
        .map_err(|fault| Failure::Machine(format!("cannot start the thread that writes the log: {fault}")))
}
