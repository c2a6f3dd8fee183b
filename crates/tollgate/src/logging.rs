//! Logging to stderr: text on a terminal, JSON lines otherwise.

use std::io::IsTerminal;

use tollgate_gateway::state::request_log::{LineFormat, LogThread, LoggedRequests, RequestLog, RequestLogOptions};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{config::Config, failure::Failure};

/// Starts logging with the configured level and format. Dependencies log warnings and errors only.
pub(crate) fn start(config: &Config) {
    let level = config.text("log.level");
    let filter = EnvFilter::new(format!("warn,tollgate={level},tollgate_gateway={level},tollgate_store={level}"));
    let registry = tracing_subscriber::registry().with(filter);
    let started = if format(config) == LineFormat::Json {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
    } else {
        registry.with(fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal())).try_init()
    };
    // A second start in one process (in tests) keeps the first subscriber.
    drop(started);
}

fn format(config: &Config) -> LineFormat {
    match config.text("log.format") {
        "json" => LineFormat::Json,
        "text" => LineFormat::Text,
        _ if std::io::stderr().is_terminal() => LineFormat::Text,
        _ => LineFormat::Json,
    }
}

/// Starts the log of requests. Its lines are of level `info`. Dropping the thread writes what is left.
pub(crate) fn requests(config: &Config) -> Result<(RequestLog, LogThread), Failure> {
    let requests = match (config.text("log.level"), config.text("log.requests")) {
        ("error" | "warn", _) | (_, "none") => LoggedRequests::None,
        (_, "all") => LoggedRequests::All,
        _ => LoggedRequests::Problems,
    };
    let slow_us = config.number("log.slow_ms").saturating_mul(1_000);
    let options = RequestLogOptions { requests, slow_us, format: format(config), buffers: config.cores };
    RequestLog::start(options, std::io::stderr())
        .map_err(|fault| Failure::Machine(format!("cannot start the thread that writes the log: {fault}")))
}
