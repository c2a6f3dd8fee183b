//! Rules for addresses, and for settings that belong together. Every function adds the faults it finds, one sentence each.

use std::path::PathBuf;

use url::Url;

use super::{
    read::{ConfigValues, Source},
    table::SETTINGS,
};

/// Certificate and key files of a section.
pub(super) fn tls(values: &ConfigValues, section: &str, faults: &mut Vec<String>) -> Option<(PathBuf, PathBuf)> {
    let file = |name: &str| {
        let value = values.get(format!("{section}.{name}").as_str())?;
        Some(&value.text).filter(|text| !text.is_empty()).map(PathBuf::from)
    };
    match (file("tls_cert"), file("tls_key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            faults.push(format!("{section}.tls_cert and {section}.tls_key belong together: set both or neither"));
            None
        }
    }
}

/// Certificate and key files for the console address: its own, else those of the server; none if `console.tls` is `off`.
pub(super) fn console_tls(
    values: &ConfigValues,
    server: Option<&(PathBuf, PathBuf)>,
    faults: &mut Vec<String>,
) -> Option<(PathBuf, PathBuf)> {
    let own = tls(values, "console", faults);
    let off = values.get("console.tls").is_some_and(|value| value.text == "off");
    let has_address = values.get("console.listen").is_some_and(|value| !value.text.is_empty());
    if own.is_some() && off {
        faults.push("console.tls is \"off\" and console.tls_cert is set: remove one of them".to_owned());
    }
    if own.is_some() && !has_address {
        faults.push("console.tls_cert is only for a console with its own address: set console.listen too".to_owned());
    }
    own.or_else(|| server.cloned()).filter(|_| has_address && !off)
}

pub(super) fn console_url(text: Option<&str>, faults: &mut Vec<String>) -> Option<Url> {
    match Url::parse(text?) {
        Ok(url) if ["http", "https"].contains(&url.scheme()) && url.query().is_none() && url.fragment().is_none() => Some(url),
        Ok(_) | Err(_) => {
            faults.push("console.url takes an address such as https://gateway.example.com, without a query".to_owned());
            None
        }
    }
}

/// Whether anyone can have an account at a provider. Microsoft's addresses name a tenant, or one of these words for all tenants.
fn is_public_issuer(issuer: &Url) -> bool {
    let tenant = issuer.path_segments().and_then(|mut segments| segments.next()).unwrap_or_default();
    match issuer.host_str().unwrap_or_default() {
        "accounts.google.com" | "appleid.apple.com" | "gitlab.com" => true,
        "login.microsoftonline.com" => ["common", "organizations", "consumers"].contains(&tenant),
        _ => false,
    }
}

/// Rules of the section `oidc`.
pub(super) fn oidc(values: &ConfigValues, faults: &mut Vec<String>) {
    let text = |path: &str| values.get(path).map_or("", |value| value.text.as_str());
    let issuer = text("oidc.issuer");
    let given = |path: &str| !text(path).is_empty() && values.get(path).is_some_and(|value| value.source != Source::Default);
    if issuer.is_empty() {
        if let Some(setting) = SETTINGS.iter().find(|setting| setting.path.starts_with("oidc.") && given(setting.path)) {
            faults.push(format!("{} is set without oidc.issuer", setting.path));
        }
        return;
    }
    let is_http = |url: &Url| ["http", "https"].contains(&url.scheme()) && url.query().is_none() && url.fragment().is_none();
    match Url::parse(issuer) {
        Ok(url) if is_http(&url) && (url.scheme() == "https" || text("oidc.private_network") == "true") => {}
        Ok(url) if is_http(&url) => {
            let remedy = "use https:, or set oidc.private_network for a provider in a private network";
            faults.push(format!("oidc.issuer begins with http:, so anybody on the network path could sign in: {remedy}"));
        }
        Ok(_) | Err(_) => faults.push("oidc.issuer takes an address such as https://id.example.com".to_owned()),
    }
    for path in ["oidc.client_id", "console.url"] {
        if text(path).is_empty() {
            faults.push(format!("oidc.issuer needs {path} too"));
        }
    }
    if !text("oidc.scopes").split(' ').any(|scope| scope == "openid") {
        faults.push("oidc.scopes must contain openid".to_owned());
    }
    let is_open = text("oidc.create_members") == "true" && text("oidc.domains").is_empty() && text("oidc.role_claim").is_empty();
    if is_open && Url::parse(issuer).is_ok_and(|url| is_public_issuer(&url)) {
        faults.push(
            "oidc.create_members would make everybody with an account at oidc.issuer a member: set oidc.domains or oidc.role_claim"
                .to_owned(),
        );
    }
    let has_values = ["oidc.admins", "oidc.operators", "oidc.members"].iter().any(|path| !text(path).is_empty());
    if has_values && text("oidc.role_claim").is_empty() {
        faults.push("oidc.admins, oidc.operators and oidc.members are values of a claim: set oidc.role_claim".to_owned());
    }
    let pairs = text("oidc.groups").split(',').filter(|pair| !pair.trim().is_empty());
    if pairs.clone().any(|pair| !pair.contains('=')) {
        faults.push("oidc.groups takes pairs such as \"team-a=alpha\"".to_owned());
    }
    if pairs.count() > 0 && text("oidc.group_claim").is_empty() {
        faults.push("oidc.groups are values of a claim: set oidc.group_claim".to_owned());
    }
}

pub(super) fn webhook(text: Option<&str>, faults: &mut Vec<String>) -> Option<Url> {
    match Url::parse(text?) {
        Ok(url) if ["http", "https"].contains(&url.scheme()) => Some(url),
        Ok(_) | Err(_) => {
            faults.push("alerts.webhook takes an address that begins with http:// or https://".to_owned());
            None
        }
    }
}

/// The collector of the section `telemetry`. Without it, environment variables that other programs share are not an error.
pub(super) fn otlp_endpoint(values: &ConfigValues, faults: &mut Vec<String>) -> Option<Url> {
    let endpoint = values.get("telemetry.otlp_endpoint").map_or("", |value| value.text.as_str());
    if endpoint.is_empty() {
        let is_own = |source: &Source| match source {
            Source::Default => false,
            Source::File | Source::Flag | Source::Database => true,
            Source::Environment(name) => name.starts_with("TOLLGATE_"),
        };
        let given = |path: &str| values.get(path).is_some_and(|value| is_own(&value.source) && !value.text.is_empty());
        let other = SETTINGS.iter().find(|setting| setting.path.starts_with("telemetry.") && given(setting.path));
        faults.extend(other.map(|setting| format!("{} is set without telemetry.otlp_endpoint", setting.path)));
        return None;
    }
    match Url::parse(endpoint) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            faults.push("telemetry.otlp_endpoint takes no name and no password: put credentials into telemetry.headers".to_owned());
            None
        }
        Ok(url) if ["http", "https"].contains(&url.scheme()) && url.query().is_none() && url.fragment().is_none() => Some(url),
        Ok(_) | Err(_) => {
            faults.push("telemetry.otlp_endpoint takes an address such as http://127.0.0.1:4318, without a query".to_owned());
            None
        }
    }
}

/// The storage of the section `export`.
pub(super) fn export_endpoint(values: &ConfigValues, faults: &mut Vec<String>) -> Option<Url> {
    let text = |path: &str| values.get(path).map_or("", |value| value.text.as_str());
    let endpoint = text("export.endpoint");
    if endpoint.is_empty() {
        let given = |path: &str| values.get(path).is_some_and(|value| value.source != Source::Default && !value.text.is_empty());
        let other = SETTINGS.iter().find(|setting| setting.path.starts_with("export.") && given(setting.path));
        faults.extend(other.map(|setting| format!("{} is set without export.endpoint", setting.path)));
        return None;
    }
    for path in ["export.bucket", "export.access_key_id", "export.secret_access_key", "export.region"] {
        if text(path).is_empty() {
            faults.push(format!("export.endpoint needs {path} too"));
        }
    }
    if let Some(fault) = object_prefix_fault(text("export.prefix")) {
        faults.push(format!("export.prefix {fault}"));
    }
    let bucket = text("export.bucket");
    if !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) || bucket.contains("..") {
        faults.push("export.bucket takes the name of a bucket: letters, digits, '-', '.' and '_'".to_owned());
    }
    let is_plain =
        |url: &Url| url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    match Url::parse(endpoint) {
        Ok(url) if url.scheme() == "http" && text("export.private_network") != "true" => {
            let remedy = "use https:, or set export.private_network for storage in a private network";
            faults.push(format!("export.endpoint begins with http:, so usage records could be read on the network path: {remedy}"));
            None
        }
        Ok(url) if text("export.url_style") == "host" && url.domain().is_none() => {
            faults.push(
                "export.url_style \"host\" puts the bucket before a host name, which an address of numbers is not: use \"path\""
                    .to_owned(),
            );
            None
        }
        Ok(url) if ["http", "https"].contains(&url.scheme()) && is_plain(&url) => Some(url),
        Ok(_) | Err(_) => {
            faults.push(
                "export.endpoint takes an address such as https://s3.eu-central-1.amazonaws.com, without the bucket, a name or a query"
                    .to_owned(),
            );
            None
        }
    }
}

/// The fault of a prefix for object names. Segments that URLs resolve, such as `..`, would name another object.
fn object_prefix_fault(prefix: &str) -> Option<&'static str> {
    if prefix.is_empty() {
        return None;
    }
    if prefix.len() > 200 || !prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._=-".contains(&byte)) {
        return Some("takes at most 200 letters, digits and '/', '.', '_', '=', '-'");
    }
    let is_bad = |part: &str| part.is_empty() || part == "." || part == "..";
    prefix.split('/').any(is_bad).then_some("must have no slash at its ends, no empty part, and no part '.' or '..'")
}
