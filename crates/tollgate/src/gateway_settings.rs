//! The settings of the gateway, from those of the program.

use http::HeaderValue;
use tollgate_core::{AddressLists, Redaction};
use tollgate_gateway::settings::{
    Bounds, ContentSettings, CorsOrigins, HttpLimits, MetricsAccess, Settings, TlsFiles, UpstreamLimits,
};

use crate::{config::Config, console_settings, descriptors, logging};

/// Certificates and keys that the settings name.
pub(crate) fn tls_files(config: &Config) -> impl Iterator<Item = TlsFiles> {
    let files = [config.tls.clone(), config.console_tls.clone()];
    files.into_iter().flatten().map(|(certificate, key)| TlsFiles { certificate, key })
}

/// The addresses that outgoing connections may have.
pub(crate) fn addresses(config: &Config) -> AddressLists {
    AddressLists::new(config.networks("upstream.allowed_addresses"), config.networks("upstream.denied_addresses"))
}

/// Origins of pages that may call the model API.
fn cors_origins(config: &Config) -> CorsOrigins {
    let origins = config.origins("server.cors_origins");
    if origins == ["*"] {
        return CorsOrigins::Any;
    }
    // Valid: reading the settings checked it.
    CorsOrigins::Of(origins.into_iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect())
}

/// The settings of the gateway, fitted to the limit of open files.
pub(crate) fn fitted(config: &Config) -> Settings {
    let mut settings = configured(config);
    descriptors::apply(&mut settings.http);
    settings
}

/// The settings of the gateway, before they are fitted to the limit of open files.
pub(crate) fn configured(config: &Config) -> Settings {
    let per_address = config.count("server.max_connections_per_address");
    let connections = config.count("server.max_connections");
    Settings {
        listen: config.listen,
        cores: config.cores,
        tls: config.tls.clone().map(|(certificate, key)| TlsFiles { certificate, key }),
        http: HttpLimits {
            connections,
            requests: config.count("limits.in_flight"),
            connections_per_address: if per_address == 0 { connections } else { per_address },
            header_timeout: config.millis("server.header_timeout_ms"),
            idle_timeout: config.millis("server.idle_timeout_ms"),
            header_bytes: config.count("server.header_bytes"),
            header_count: config.count("server.header_count"),
            target_bytes: config.count("server.target_bytes"),
            trusted_proxies: config.networks("server.trusted_proxies"),
            ..HttpLimits::default()
        },
        bounds: Bounds {
            body_bytes: config.count("limits.body_bytes"),
            body_timeout: config.millis("server.body_timeout_ms"),
            body_total_timeout: config.millis("server.body_total_timeout_ms"),
            min_rate: config.number("server.min_bytes_per_s"),
        },
        upstream: UpstreamLimits {
            total: config.millis("upstream.total_timeout_ms"),
            keep_alive: config.millis("upstream.keep_alive_ms"),
            answer_after: config.millis("upstream.answer_after_ms"),
            stall: config.millis("upstream.stall_timeout_ms"),
        },
        addresses: addresses(config),
        body_memory_bytes: config.count("limits.body_memory_bytes"),
        budgets: config.budgets.clone(),
        logged: logging::selection(config),
        wrong_keys_per_minute: u32::try_from(config.number("limits.wrong_keys_per_minute")).unwrap_or(u32::MAX),
        square_requests_per_minute: u32::try_from(config.number("square.requests_per_minute")).unwrap_or(u32::MAX),
        metrics: match config.console {
            Some(_) => MetricsAccess::OnConsoleAddress,
            None if config.flag("metrics.public") => MetricsAccess::Public,
            None => MetricsAccess::Guarded,
        },
        pages_origin: config.console.and_then(|address| {
            HeaderValue::try_from(console_settings::console_url(config, address).origin().ascii_serialization()).ok()
        }),
        cors: cors_origins(config),
        base_path: config.base_path().to_owned(),
        drain: config.millis("server.drain_timeout_ms"),
        end_revoked_streams: config.text("limits.revoked_streams") == "end",
        contents: ContentSettings {
            store: config.flag("contents.store"),
            max_bytes: config.count("contents.max_bytes"),
            total_bytes: config.number("contents.total_bytes"),
            // Valid: reading the settings checked it.
            redact: Some(config.text("contents.redact")).filter(|text| !text.is_empty()).and_then(|text| Redaction::new(text).ok()),
        },
        ..Settings::default()
    }
}
