//! The settings of the console, from those of the program.

use std::net::{Ipv4Addr, SocketAddr};

use tollgate_console::{Appearance, DisplayCurrency, IdentitySettings, OidcSettings, Registration, SessionTimes};
use tollgate_core::Secret;
use url::Url;

use crate::{
    config::{self, Config},
    failure::Failure,
};

/// Settings of the members' sign-in. `address` is the listening address of the console.
pub(crate) fn identity(config: &Config, address: SocketAddr) -> Result<IdentitySettings, Failure> {
    Ok(IdentitySettings { oidc: oidc(config)?, url: console_url(config, address) })
}

/// How long members stay signed in.
pub(crate) fn session_times(config: &Config) -> SessionTimes {
    let ms = |path: &str, unit: i64| i64::try_from(config.number(path)).unwrap_or(i64::MAX).saturating_mul(unit);
    SessionTimes {
        idle_ms: ms("console.session_idle_minutes", 60_000),
        max_ms: ms("console.session_max_hours", 3_600_000),
        can_remember: config.flag("console.remember_me"),
    }
}

/// How people become members.
pub(crate) fn registration(config: &Config) -> Registration {
    let per_hour = u32::try_from(config.number("access.registrations_per_hour")).unwrap_or(u32::MAX);
    let (group, billing) = (config.text("access.registration_group"), config.text("access.registration_billing"));
    Registration::of(config.text("access.registration"), group, billing, per_hour)
}

/// The currency in which pages show amounts.
pub(crate) fn currency(config: &Config) -> DisplayCurrency {
    DisplayCurrency::of(config.text("console.currency"), config.text("console.currency_per_usd"))
}

/// How pages look.
pub(crate) fn appearance(config: &Config) -> Appearance {
    let announcement = (config.text("console.announcement"), config.text("console.announcement_level"));
    let names = (config.text("console.display_name"), config.text("console.logo"));
    let (language, time_zone) = (config.text("console.language"), config.text("console.time_zone"));
    Appearance::of(names, announcement, config.text("console.home_text"), language, time_zone)
}

/// The OpenID provider of the settings.
fn oidc(config: &Config) -> Result<Option<OidcSettings>, Failure> {
    if config.text("oidc.issuer").is_empty() {
        return Ok(None);
    }
    let text = |path: &str| Some(config.text(path).to_owned()).filter(|text| !text.is_empty());
    let list = |path: &str| -> Vec<String> {
        config.text(path).split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
    };
    let secret = text("oidc.client_secret").map(|text| config::reference(&text)).transpose();
    let secret = secret.map_err(|fault| Failure::invalid(format!("oidc.client_secret: {fault}")))?;
    let pair = |item: String| item.split_once('=').map(|(value, group)| (value.trim().to_owned(), group.trim().to_owned()));
    Ok(Some(OidcSettings {
        name: config.text("oidc.display_name").to_owned(),
        issuer: config.text("oidc.issuer").to_owned(),
        client_id: config.text("oidc.client_id").to_owned(),
        client_secret: secret.map(Secret::new),
        scopes: config.text("oidc.scopes").to_owned(),
        role_claim: text("oidc.role_claim"),
        admins: list("oidc.admins"),
        operators: list("oidc.operators"),
        members: list("oidc.members"),
        group_claim: text("oidc.group_claim"),
        groups: list("oidc.groups").into_iter().filter_map(pair).collect(),
        domains: list("oidc.domains"),
        create_members: config.flag("oidc.create_members"),
    }))
}

/// Address of the console for browsers: the setting, else where it listens.
pub(crate) fn console_url(config: &Config, address: SocketAddr) -> Url {
    if let Some(url) = &config.console_url {
        return url.clone();
    }
    let has_tls = if config.console.is_some() { config.console_tls.is_some() } else { config.tls.is_some() };
    let scheme = if has_tls { "https" } else { "http" };
    let mut reachable = address;
    if address.ip().is_unspecified() {
        reachable.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    Url::parse(&format!("{scheme}://{reachable}/")).expect("a scheme and a socket address are a URL")
}
