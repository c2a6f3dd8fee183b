//! The process's own log: to stderr, as text for a terminal and as JSON lines otherwise.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::Config;

/// Starts logging as the settings say. Other crates log warnings only.
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
    // A second start in one process (tests) keeps the first one's log.
    drop(started);
}
