//! Output of `serve` when it serves.

use std::net::SocketAddr;

use serde_json::json;
use tollgate_console::{SetUpLink, make_set_up_link};
use tollgate_store::{LoginMember, Store};

use crate::{cli::Common, compose, config::Config, console_settings, failure::Failure, first_start, output};

/// Whether the first admin can sign in.
enum SetUp {
    Done,
    Needed,
    /// The one-time link with which the first admin sets a password.
    Link(String),
}

/// Prints the addresses and first steps; with `store`, also the first key and the set-up link, which are shown only once. Exactly
/// two lines contain `curl `; both are complete commands.
pub(super) async fn announce(
    common: &Common,
    config: &Config,
    address: SocketAddr,
    console: Option<SocketAddr>,
    store: Option<&Store>,
) -> Result<(), Failure> {
    let (key, set_up) = match store {
        None => (None, SetUp::Done),
        Some(store) => (first_key(config, store).await?, set_up_link(config, store, console.unwrap_or(address)).await),
    };
    print(common, config, (address, console), key.as_deref(), &set_up);
    Ok(())
}

fn print(
    common: &Common,
    config: &Config,
    (address, console): (SocketAddr, Option<SocketAddr>),
    key: Option<&str>,
    set_up: &SetUp,
) {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let data = config.data.display().to_string();
    if common.json {
        let url = format!("{scheme}://{address}");
        let admin_url = admin_url(config, console).unwrap_or_else(|| url.clone());
        let console = console.map(|address| address.to_string());
        output::json(&json!({
            "address": address.to_string(), "url": url, "console": console, "admin_url": admin_url, "key": key, "data": data,
            "setup_link": set_up.link(),
        }));
        return;
    }
    output::line(&format!("tollgate {} serves on {scheme}://{address}", env!("CARGO_PKG_VERSION")));
    let admin = admin_url(config, console).unwrap_or_else(|| format!("{scheme}://{address}"));
    output::line(&format!("admin API: {admin}/admin/v1 (create a key for it: `tollgate admin-key create NAME`)"));
    match set_up {
        SetUp::Done => {}
        SetUp::Needed => output::line("no admin can sign in yet: `tollgate setup-link`"),
        SetUp::Link(link) => output::line(&format!("set up the first admin within 30 minutes, once: {link}")),
    }
    let Some(key) = key else {
        output::line("keys: `tollgate key create NAME`");
        return;
    };
    output::line(&format!("data: {data}"));
    output::line(&format!("key for the echo channel (shown only once): {key}"));
    output::line("try it:");
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

/// The key of a first start without a catalog file, if no start has shown it yet. Call after every address is bound.
async fn first_key(config: &Config, store: &Store) -> Result<Option<String>, Failure> {
    if config.catalog_file.is_some() || store.spending_known_at().is_some() {
        return Ok(None);
    }
    match first_start::create_key(store).await {
        // The next start shows it.
        Err(Failure::Unreachable(why)) => {
            tracing::warn!("the first key was not created: {why}");
            Ok(None)
        }
        created => created,
    }
}

/// The set-up link of a first start, whose admin cannot sign in yet. Later starts only print how to get one, because their output
/// may be stored.
async fn set_up_link(config: &Config, store: &Store, console: SocketAddr) -> SetUp {
    if store.spending_known_at().is_some() {
        return SetUp::Done;
    }
    let made = if store.first_start {
        make_set_up_link(store, &compose::actor(), compose::now()).await
    } else {
        let admins = store.identity.admins().await;
        return match admins {
            Ok(admins) if !admins.iter().any(LoginMember::can_sign_in) => SetUp::Needed,
            Ok(_) | Err(_) => SetUp::Done,
        };
    };
    match made {
        Ok(SetUpLink::Made(path)) => {
            let url = console_settings::console_url(config, console);
            SetUp::Link(format!("{}{path}", url.as_str().trim_end_matches('/')))
        }
        Ok(SetUpLink::MadeBefore) => SetUp::Needed,
        Ok(SetUpLink::NotNeeded) => SetUp::Done,
        Err(error) => {
            tracing::warn!(%error, "the set-up link was not made; `tollgate setup-link` makes one");
            SetUp::Needed
        }
    }
}

impl SetUp {
    fn link(&self) -> Option<&str> {
        match self {
            Self::Link(link) => Some(link),
            Self::Done | Self::Needed => None,
        }
    }
}

/// URL of the admin API if it has a separate address.
fn admin_url(config: &Config, console: Option<SocketAddr>) -> Option<String> {
    let scheme = if config.console_tls.is_some() { "https" } else { "http" };
    console.map(|address| format!("{scheme}://{address}"))
}
