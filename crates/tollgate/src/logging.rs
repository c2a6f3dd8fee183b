//! Logging to stderr: text on a terminal, JSON lines otherwise.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::Config;

/// Starts logging with the configured level and format. Dependencies log warnings and errors only.
pub(crate) fn start(config: &Config) {
    let level = config.text("log.level");
    let filter = EnvFilter::new(format!("warn,tollgate={level},tollgate_gateway={level},tollgate_store={level}"));
    let json = match config.text("log.format") {
        "json" => true,
        "text" => false,
        _ => !std::io::stderr().is_terminal(),
    };
    let registry = tracing_subscriber::registry().with(filter);
    let started = if json {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
    } else {
        registry.with(fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal())).try_init()
    };
    // A second start in one process (in tests) keeps the first subscriber.
    drop(started);
}
