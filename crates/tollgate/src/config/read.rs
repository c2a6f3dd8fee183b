//! Merges flags, environment and settings file into one value per setting. All faults are reported together.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use tollgate_store::fields::nearest;
use toml::de::{DeTable, DeValue};
use url::Url;

use tollgate_console::{SettingKind, is_image, is_time_zone};
use tollgate_core::{Multiplier, NanoUsd, Redaction};

use super::table::{self, SETTINGS, SettingSpec};

/// Longest address, in bytes.
const MAX_URL: usize = 500;
/// Largest rate of a currency.
const MAX_RATE: Multiplier = Multiplier(1_000_000 * Multiplier::ONE.0);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Built-in default.
    Default,
    /// The database, through the admin API.
    Database,
    /// The settings file.
    File,
    /// An environment variable, by name.
    Environment(String),
    Flag,
}

impl Source {
    /// Name as shown to operators.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Database => "database",
            Self::File => "file",
            Self::Environment(_) => "environment",
            Self::Flag => "flag",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigValue {
    /// Text without quotes.
    pub(crate) text: String,
    pub(crate) source: Source,
}

/// Values by path, without settings that have neither a value nor a default.
pub(crate) type ConfigValues = BTreeMap<&'static str, ConfigValue>;

/// Merges all sources. Returns the values and every fault, one sentence each. An invalid value is ignored: the setting has the
/// value it would have without it.
pub(crate) fn values(
    file: Option<(&str, &str)>,
    environment: &dyn Fn(&str) -> Option<String>,
    environment_names: &[String],
    flags: &[(&'static str, String)],
) -> (ConfigValues, Vec<String>) {
    let mut faults = Vec::new();
    let mut values = ConfigValues::new();
    for setting in SETTINGS {
        if let Some(default) = setting.default {
            values.insert(setting.path, ConfigValue { text: default.trim_matches('"').to_owned(), source: Source::Default });
        }
    }
    if let Some((name, text)) = file {
        from_file(name, text, &mut values, &mut faults);
    }
    from_environment(environment, environment_names, &mut values, &mut faults);
    for (path, text) in flags {
        let setting = table::find(path).expect("every flag has an entry in SETTINGS");
        faults.extend(
            accept(setting, text, &format!("--{}", path.rsplit('.').next().unwrap_or(path)), Source::Flag, &mut values).err(),
        );
    }
    (values, faults)
}

/// Reads the settings file; faults are ordered by position.
fn from_file(name: &str, text: &str, values: &mut ConfigValues, faults: &mut Vec<String>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut positioned: Vec<(usize, String)> = Vec::new();
    for error in errors {
        positioned.push((error.span().map_or(0, |span| span.start), error.message().to_owned()));
    }
    for (section, value) in document.get_ref() {
        let at = section.span().start;
        let Some(entries) = value.get_ref().as_table() else {
            let section = section.get_ref();
            positioned.push((at, format!("'{section}' is not a section; write [section] and below it the settings")));
            continue;
        };
        if !SETTINGS.iter().any(|setting| setting.path.starts_with(&format!("{}.", section.get_ref()))) {
            let sections = SETTINGS.iter().filter_map(|setting| setting.path.split('.').next());
            positioned.push((at, format!("unknown section [{}]{}", section.get_ref(), suggestion(section.get_ref(), sections))));
            continue;
        }
        for (entry, value) in entries {
            let path = format!("{}.{}", section.get_ref(), entry.get_ref());
            if let Err(fault) = from_entry(&path, value.get_ref(), values) {
                positioned.push((entry.span().start, fault));
            }
        }
    }
    positioned.sort();
    faults.extend(positioned.into_iter().map(|(at, fault)| format!("{name}:{} {fault}", position(text, at))));
}

/// Reads one entry of the file.
fn from_entry(path: &str, value: &DeValue<'_>, values: &mut ConfigValues) -> Result<(), String> {
    let Some(setting) = table::find(path) else {
        return Err(format!("unknown setting '{path}'{}", suggestion(path, SETTINGS.iter().map(|setting| setting.path))));
    };
    let shown = format!("'{path}'");
    match plain(value).filter(|_| fits(setting.kind, value)) {
        Some(found) => accept(setting, &found, &shown, Source::File, values),
        None => Err(format!("{shown} takes {}", expects(setting.kind))),
    }
}

fn from_environment(
    environment: &dyn Fn(&str) -> Option<String>,
    names: &[String],
    values: &mut ConfigValues,
    faults: &mut Vec<String>,
) {
    for setting in SETTINGS {
        let variable = table::variable(setting.path);
        let own = environment(&variable);
        let alias = setting.alias.and_then(|alias| environment(alias).map(|text| (alias, text)));
        match (own, alias) {
            (Some(own), Some((alias, other))) if own != other => {
                faults.push(format!("{variable} and {alias} are both set and differ; unset one of them"));
            }
            (Some(text), _) => {
                faults.extend(accept(setting, &text, &variable, Source::Environment(variable.clone()), values).err());
            }
            (None, Some((alias, text))) => {
                faults.extend(accept(setting, &text, alias, Source::Environment(alias.to_owned()), values).err());
            }
            (None, None) => {}
        }
    }
    for name in names.iter().filter(|name| name.starts_with("TOLLGATE_") && name.contains("__")) {
        if !SETTINGS.iter().any(|setting| table::variable(setting.path) == *name) {
            let known: Vec<String> = SETTINGS.iter().map(|setting| table::variable(setting.path)).collect();
            faults.push(format!("unknown environment variable {name}{}", suggestion(name, known.iter().map(String::as_str))));
        }
    }
}

/// Validates a value and stores it.
fn accept(setting: &'static SettingSpec, text: &str, shown: &str, source: Source, values: &mut ConfigValues) -> Result<(), String> {
    values.insert(setting.path, ConfigValue { text: checked(setting, text, shown)?, source });
    Ok(())
}

/// Converts a value to the form in which it is stored. The error is a sentence that describes the valid values.
pub(super) fn checked(setting: &SettingSpec, text: &str, shown: &str) -> Result<String, String> {
    // `localhost` is accepted in place of the loopback address.
    let local =
        text.strip_prefix("localhost:").filter(|_| setting.kind == SettingKind::Address).map(|port| format!("127.0.0.1:{port}"));
    let text = local.as_deref().unwrap_or(text);
    let is_valid = match setting.kind {
        SettingKind::Text => true,
        SettingKind::Line(max) => !text.contains(char::is_control) && (text.chars().count() as u64) <= max,
        SettingKind::HttpUrl => text.is_empty() || is_http_url(text),
        SettingKind::Image => text.is_empty() || is_image(text),
        SettingKind::TimeZone => text.is_empty() || is_time_zone(text),
        SettingKind::Pattern => text.is_empty() || Redaction::new(text).is_ok(),
        SettingKind::Networks => networks(text).is_some(),
        SettingKind::Origins => origins(text).is_some(),
        SettingKind::Address => text.parse::<std::net::SocketAddr>().is_ok(),
        SettingKind::Flag => ["true", "false"].contains(&text),
        SettingKind::Share => text.parse::<f64>().is_ok_and(|share| (0.0..=1.0).contains(&share)),
        SettingKind::Number(min, max) => text.parse::<u64>().is_ok_and(|number| (min..=max).contains(&number)),
        SettingKind::OneOf(words) => words.contains(&text),
        SettingKind::Percents => is_percentages(text),
        SettingKind::Rate => text.is_empty() || Multiplier::parse(text).is_ok_and(|rate| (1..=MAX_RATE.0).contains(&rate.0)),
        SettingKind::Usd => text.is_empty() || NanoUsd::parse(text).is_ok_and(|amount| amount >= NanoUsd::ZERO),
    };
    if is_valid {
        return Ok(text.to_owned());
    }
    let found = if setting.secret || setting.kind == SettingKind::Image { String::new() } else { format!(", not '{text}'") };
    Err(format!("{shown} takes {}{found}", expects(setting.kind)))
}

/// Parses networks such as `10.0.0.0/8, 192.0.2.7`; an address is a network with one host.
pub(super) fn networks(text: &str) -> Option<Vec<IpNet>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries.map(|entry| entry.parse().or_else(|_| entry.parse::<IpAddr>().map(IpNet::from)).ok()).collect()
}

/// Most origins of a list.
const MAX_ORIGINS: usize = 100;

/// Parses origins such as `https://app.example.com, http://localhost:3000`, or `*`, as browsers state them (RFC 6454, section 6.2).
pub(super) fn origins(text: &str) -> Option<Vec<&str>> {
    let origins: Vec<&str> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    let are_valid = origins == ["*"] || origins.iter().all(|origin| is_origin(origin));
    (are_valid && origins.len() <= MAX_ORIGINS).then_some(origins)
}

/// Whether a text has the form of an `Origin` header. Extensions and packaged applications have their own schemes.
fn is_origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    if ["http", "https"].contains(&scheme) {
        return !text.contains('*') && Url::parse(text).is_ok_and(|url| url.origin().ascii_serialization() == text);
    }
    let (host, port) = rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c));
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c));
    is_scheme && is_host && port.is_none_or(|port| port.parse::<u16>().is_ok()) && text.len() <= MAX_URL
}

/// Whether a text is a base URL, to which paths can be appended.
fn is_http_url(text: &str) -> bool {
    let fits = |url: &Url| {
        let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
        ["http", "https"].contains(&url.scheme()) && is_plain
    };
    text.len() <= MAX_URL && Url::parse(text).is_ok_and(|url| fits(&url))
}

fn expects(kind: SettingKind) -> String {
    match kind {
        SettingKind::Text => "a text in quotes".to_owned(),
        SettingKind::Line(max) => format!("one line of text of at most {max} characters"),
        SettingKind::HttpUrl => "an address such as \"https://gateway.example.com\", without a query".to_owned(),
        SettingKind::Image => "an image as a data: URL of at most 10000 characters, such as \"data:image/png;base64,…\"".to_owned(),
        SettingKind::TimeZone => "the name of a time zone, such as \"Europe/Berlin\"".to_owned(),
        SettingKind::Pattern => "a regular expression that does not match the empty text, such as \"sk-[a-z0-9]+\"".to_owned(),
        SettingKind::Networks => "networks with commas between, such as \"10.0.0.0/8, 192.0.2.7\"".to_owned(),
        SettingKind::Origins => {
            "at most 100 origins with commas between, such as \"https://app.example.com, http://localhost:3000\", in lower case, without a \
             path and without the scheme's own port, or \"*\""
                .to_owned()
        }
        SettingKind::Address => "an address with a port, such as \"127.0.0.1:8080\"".to_owned(),
        SettingKind::Flag => "true or false".to_owned(),
        SettingKind::Share => "a number from 0 to 1".to_owned(),
        SettingKind::Number(min, max) => format!("a whole number of {min} to {max}"),
        SettingKind::OneOf(words) => format!("one of \"{}\"", words.join("\", \"")),
        SettingKind::Percents => "at most ten whole percentages of 1 to 100 with commas between".to_owned(),
        SettingKind::Rate => "a number of 0.000001 to 1000000 with at most six decimals, such as \"7.1\"".to_owned(),
        SettingKind::Usd => "an amount in USD of 0 to 9223372036, such as \"250\" or \"0.50\"".to_owned(),
    }
}

/// Whether a text is a list of percentages, which may be empty.
fn is_percentages(text: &str) -> bool {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    text.is_empty()
        || parts.len() <= 10 && parts.iter().all(|part| part.parse::<u32>().is_ok_and(|percent| (1..=100).contains(&percent)))
}

fn fits(kind: SettingKind, value: &DeValue<'_>) -> bool {
    match kind {
        SettingKind::Text
        | SettingKind::Line(_)
        | SettingKind::HttpUrl
        | SettingKind::Image
        | SettingKind::TimeZone
        | SettingKind::Pattern
        | SettingKind::Networks
        | SettingKind::Origins
        | SettingKind::Address
        | SettingKind::OneOf(_)
        | SettingKind::Usd
        | SettingKind::Rate
        | SettingKind::Percents => value.is_str(),
        SettingKind::Flag => value.is_bool(),
        SettingKind::Number(..) => value.is_integer(),
        SettingKind::Share => value.is_integer() || value.is_float(),
    }
}

fn plain(value: &DeValue<'_>) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    if let Some(flag) = value.as_bool() {
        return Some(flag.to_string());
    }
    if let Some(number) = value.as_float() {
        return Some(number.as_str().to_owned());
    }
    value
        .as_integer()
        .and_then(|number| i128::from_str_radix(number.as_str(), number.radix()).ok())
        .map(|number| number.to_string())
}

/// `LINE:COLUMN` of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> String {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = String::from_utf8_lossy(before).matches('\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    format!("{line}:{column}:")
}

/// `; did you mean 'x'?` with the closest known name, or nothing if none is close.
pub(super) fn suggestion<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(wrong, known).map_or_else(String::new, |word| format!("; did you mean '{word}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, environment: &[(&str, &str)]) -> Result<ConfigValues, Vec<String>> {
        let names: Vec<String> = environment.iter().map(|(name, _)| (*name).to_owned()).collect();
        let look_up = |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        let (values, faults) = values(Some(("tollgate.toml", file)), &look_up, &names, &[]);
        if faults.is_empty() { Ok(values) } else { Err(faults) }
    }

    #[test]
    fn example_file_contains_every_default() {
        let example = table::example();
        let plain = check("", &[]).unwrap();
        assert_eq!(check(&example, &[]).unwrap(), plain);
        let uncommented: String = example
            .lines()
            .map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ") && !rest.ends_with("\"\"")).unwrap_or(line))
            .fold(String::new(), |text, line| text + line + "\n");
        let read = check(&uncommented, &[]).unwrap();
        assert_eq!(read.len(), plain.len());
        assert!(read.iter().all(|(path, value)| plain[path].text == value.text && value.source == Source::File));
    }

    #[test]
    fn example_file_in_the_repository_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tollgate.example.toml");
        let kept = std::fs::read_to_string(path).expect("tollgate.example.toml");
        assert_eq!(kept, table::example(), "update it with `cargo run -- check --example > tollgate.example.toml`");
    }

    #[test]
    fn all_faults_are_reported_with_position_and_suggestion() {
        let faults = check("[server]\nlisten = 8080\nliste = \"x\"\n[jurnal]\n[log]\nlevel = \"loud\"\n", &[]).unwrap_err();
        assert_eq!(
            faults,
            [
                "tollgate.toml:2:1: 'server.listen' takes an address with a port, such as \"127.0.0.1:8080\"",
                "tollgate.toml:3:1: unknown setting 'server.liste'; did you mean 'server.listen'?",
                "tollgate.toml:4:2: unknown section [jurnal]; did you mean 'journal'?",
                "tollgate.toml:6:1: 'log.level' takes one of \"error\", \"warn\", \"info\", \"debug\", \"trace\", not 'loud'",
            ]
        );
    }

    #[test]
    fn environment_overrides_file_and_aliases_must_agree() {
        let read = check("[server]\nlisten = \"127.0.0.1:1\"\n", &[("TOLLGATE_SERVER__LISTEN", "127.0.0.1:2")]).unwrap();
        assert_eq!(read["server.listen"].text, "127.0.0.1:2");
        assert_eq!(check("", &[("DATABASE_URL", "sqlite:a")]).unwrap()["database.url"].text, "sqlite:a");
        let faults = check("", &[("DATABASE_URL", "sqlite:a"), ("TOLLGATE_DATABASE__URL", "sqlite:b")]).unwrap_err();
        assert_eq!(faults, ["TOLLGATE_DATABASE__URL and DATABASE_URL are both set and differ; unset one of them"]);
        let faults = check("", &[("TOLLGATE_SERVER__LISTN", "x")]).unwrap_err();
        assert_eq!(faults, ["unknown environment variable TOLLGATE_SERVER__LISTN; did you mean 'TOLLGATE_SERVER__LISTEN'?"]);
    }

    #[test]
    fn localhost_is_accepted_as_an_address() {
        let read = check("", &[("TOLLGATE_SERVER__LISTEN", "localhost:5005")]).unwrap();
        assert_eq!(read["server.listen"].text, "127.0.0.1:5005");
        assert!(check("", &[("TOLLGATE_SERVER__LISTEN", "localhost")]).is_err());
    }

    #[test]
    fn ratios_are_numbers_from_0_to_1() {
        for text in ["0", "1", "0.25", "1e-3"] {
            let read = check(&format!("[telemetry]\nsample_ratio = {text}\n"), &[]).unwrap();
            assert_eq!(read["telemetry.sample_ratio"].text, text);
        }
        for text in ["1.5", "-0.1", "nan", "\"0.5\"", "true"] {
            let faults = check(&format!("[telemetry]\nsample_ratio = {text}\n"), &[]).unwrap_err();
            assert!(faults[0].contains("takes a number from 0 to 1"), "{faults:?}");
        }
    }

    #[test]
    fn networks_are_separated_by_commas() {
        let read = check("[server]\ntrusted_proxies = \"10.0.0.0/8, ::1\"\n", &[]).unwrap();
        let nets = networks(&read["server.trusted_proxies"].text).unwrap();
        assert_eq!(nets.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "::1/128"]);
        assert_eq!(networks(" "), Some(Vec::new()));
        let faults = check("[server]\ntrusted_proxies = \"10.0.0.0/8 10.1\"\n", &[]).unwrap_err();
        assert!(faults[0].contains("takes networks with commas between"), "{faults:?}");
    }

    #[test]
    fn texts_of_pages_are_bounded() {
        let check = |name: &str, text: &str| check("", &[(&table::variable(name), text)]);
        assert_eq!(
            check("console.display_name", "Acme \u{6a21}\u{578b}").unwrap()["console.display_name"].text,
            "Acme \u{6a21}\u{578b}"
        );
        for (name, text) in [
            ("console.display_name", "a\nb"),
            ("console.display_name", &"x".repeat(61)),
            ("console.announcement", &"x".repeat(501)),
        ] {
            assert!(check(name, text).unwrap_err()[0].contains("takes one line of text of at most"), "{name}");
        }
        for text in ["https://api.example.com", "http://10.0.0.1:8080/llm", ""] {
            assert!(check("console.api_url", text).is_ok(), "{text}");
        }
        for text in ["api.example.com", "ftp://a", "javascript:alert(1)", "https://a?b", "https://u:p@a"] {
            assert!(check("console.api_url", text).unwrap_err()[0].contains("takes an address such as"), "{text}");
        }
        assert!(check("console.time_zone", "Asia/Shanghai").is_ok());
        assert!(check("console.time_zone", "Mars/Base").unwrap_err()[0].contains("the name of a time zone"));
    }

    #[test]
    fn invalid_secret_is_not_echoed() {
        let faults = check("[database]\nurl = 7\n", &[]).unwrap_err();
        assert_eq!(faults, ["tollgate.toml:2:1: 'database.url' takes a text in quotes"]);
    }
}
