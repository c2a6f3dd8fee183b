//! Output of `serve` when it serves.

use std::net::SocketAddr;

use serde_json::json;

use crate::{cli::Common, config::Config, output};

/// Prints the addresses and first steps. Exactly two lines contain `curl `; both are complete commands.
pub(super) fn announce(common: &Common, config: &Config, address: SocketAddr, console: Option<SocketAddr>, key: Option<&str>) {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let data = config.data.display().to_string();
    if common.json {
        let url = format!("{scheme}://{address}");
        let admin_url = admin_url(config, console).unwrap_or_else(|| url.clone());
        let console = console.map(|address| address.to_string());
        output::json(&json!({
            "address": address.to_string(), "url": url, "console": console, "admin_url": admin_url, "key": key, "data": data,
        }));
        return;
    }
    output::line(&format!("tollgate {} serves on {scheme}://{address}", env!("CARGO_PKG_VERSION")));
    let admin = admin_url(config, console).unwrap_or_else(|| format!("{scheme}://{address}"));
    output::line(&format!("admin API: {admin}/admin/v1 (make a key for it: `tollgate admin-key create NAME`)"));
    let Some(key) = key else {
        output::line("keys: `tollgate key create NAME`");
        return;
    };
    output::line(&format!("data: {data}"));
    output::line(&format!("key for the echo channel (shown this once): {key}"));
    output::line("try it, on both protocols:");
    output::line(&format!(
        "curl -s {scheme}://{address}/v1/chat/completions -H 'authorization: Bearer {key}' -H 'content-type: application/json' \
         -d '{{\"model\":\"echo\",\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'"
    ));
    output::line(&format!(
        "curl -s {scheme}://{address}/v1beta/models/echo:generateContent -H 'x-native-api-key: {key}' -H 'content-type: application/json' \
         -d '{{\"contents\":[{{\"parts\":[{{\"text\":\"hello\"}}]}}]}}'"
    ));
    output::line(
        "then describe your own channels in a file (`tollgate serve --catalog catalog.toml`), with keys of your own for them",
    );
}

/// URL of the admin API if it has a separate address.
fn admin_url(config: &Config, console: Option<SocketAddr>) -> Option<String> {
    let scheme = if config.console_tls.is_some() { "https" } else { "http" };
    console.map(|address| format!("{scheme}://{address}"))
}
