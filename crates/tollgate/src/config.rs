//! Settings of the process. Sources in order of precedence: flag, environment variable, settings file, default. Validated once;
//! accessors are infallible afterwards.

mod environment;
mod read;
mod rules;
mod stored;
mod table;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use tollgate_console::EffectiveSetting;
use tollgate_core::{Budget, BudgetAction, NanoUsd, Window};
use tollgate_gateway::settings::GatewayBudgets;
use url::Url;

pub(crate) use read::ConfigValues;
use read::Source;
use table::SETTINGS;
pub(crate) use table::example;

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    /// Address for callers (`server.listen`).
    pub(crate) listen: SocketAddr,
    /// Separate address for the console.
    pub(crate) console: Option<SocketAddr>,
    /// Address of the console as browsers see it (`console.url`).
    pub(crate) console_url: Option<Url>,
    /// Certificate and key files for the console address.
    pub(crate) console_tls: Option<(PathBuf, PathBuf)>,
    /// Number of cores (one runtime each) for the model path.
    pub(crate) cores: usize,
    /// Certificate and key files for `listen`.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    pub(crate) webhook: Option<Url>,
    /// Base URL of the collector.
    pub(crate) otlp_endpoint: Option<Url>,
    /// Base URL of the storage that usage records are exported to.
    pub(crate) export_endpoint: Option<Url>,
    /// Budgets of the whole gateway.
    pub(crate) budgets: GatewayBudgets,
    /// `sqlite:…` or `postgres://…`; `None`: `tollgate.db` in the data folder.
    pub(crate) database_url: Option<String>,
    /// Master key as `env:NAME`, `file:PATH` or literal text.
    pub(crate) master_key: Option<String>,
    /// Redis for counters shared between nodes.
    pub(crate) redis_url: Option<String>,
    pub(crate) catalog_file: Option<PathBuf>,
    /// Whether the last bytes of a response wait for the journal's fsync.
    pub(crate) journal_group_sync: bool,
    /// All values with their sources.
    pub(crate) values: ConfigValues,
    /// Path of the settings file, if there is one.
    pub(crate) file: Option<String>,
    /// Environment variables that look like settings but are not.
    pub(crate) unread: Vec<String>,
}

impl Config {
    /// Validates rules that involve several settings.
    /// The error lists every fault, one sentence each.
    pub(crate) fn check(values: ConfigValues) -> Result<Self, Vec<String>> {
        let text = |path: &str| values.get(path).map(|value| value.text.clone()).filter(|text| !text.is_empty());
        let mut faults = Vec::new();
        let tls = rules::tls(&values, "server", &mut faults);
        let console_tls = rules::console_tls(&values, tls.as_ref(), &mut faults);
        if let Some(url) = text("database.url")
            && !["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
        {
            faults.push("database.url takes an address that begins with sqlite: or postgres://".to_owned());
        }
        let budgets = budgets(&values);
        let console_url = rules::console_url(text("console.url").as_deref(), &mut faults);
        rules::oidc(&values, &mut faults);
        let webhook = rules::webhook(text("alerts.webhook").as_deref(), &mut faults);
        let otlp_endpoint = rules::otlp_endpoint(&values, &mut faults);
        let export_endpoint = rules::export_endpoint(&values, &mut faults);
        if let Some(url) = text("redis.url") {
            if !["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme)) {
                faults.push("redis.url takes an address that begins with redis:// or rediss://".to_owned());
            }
            if text("redis.ca").is_some() && !url.starts_with("rediss://") {
                faults.push("redis.ca is only for a redis.url that begins with rediss://".to_owned());
            }
            if !text("database.url").is_some_and(|url| url.starts_with("postgres")) {
                faults.push(
                    "redis.url is for several nodes on one PostgreSQL database: set database.url (DATABASE_URL) too".to_owned(),
                );
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self {
            data: PathBuf::from(text("server.data").expect("has a default")),
            listen: text("server.listen").and_then(|text| text.parse().ok()).expect("was validated and has a default"),
            console: text("console.listen").and_then(|text| text.parse().ok()),
            cores: match number(&values, "server.cores") {
                0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
                given => usize::try_from(given).unwrap_or(1),
            },
            tls,
            console_url,
            console_tls,
            webhook,
            otlp_endpoint,
            export_endpoint,
            budgets,
            database_url: text("database.url"),
            master_key: text("database.master_key"),
            redis_url: text("redis.url"),
            catalog_file: text("catalog.file").map(PathBuf::from),
            journal_group_sync: text("journal.sync").as_deref() == Some("group"),
            values,
            file: None,
            unread: Vec::new(),
        })
    }

    pub(crate) fn number(&self, path: &str) -> u64 {
        number(&self.values, path)
    }

    /// A number by path, as `usize`.
    pub(crate) fn count(&self, path: &str) -> usize {
        usize::try_from(self.number(path)).unwrap_or(usize::MAX)
    }

    /// A duration in milliseconds by path.
    pub(crate) fn millis(&self, path: &str) -> Duration {
        Duration::from_millis(self.number(path))
    }

    pub(crate) fn networks(&self, path: &str) -> Vec<IpNet> {
        read::networks(self.text(path)).expect("networks were validated")
    }

    pub(crate) fn origins(&self, path: &str) -> Vec<&str> {
        read::origins(self.text(path)).expect("origins were validated")
    }

    /// The path of the console's address, which is that of model requests, too, unless the console has an address of its own. Empty
    /// without one.
    pub(crate) fn base_path(&self) -> &str {
        let url = self.console_url.as_ref().filter(|_| self.console.is_none());
        url.map_or("", |url| url.path().trim_end_matches('/'))
    }

    /// A text by path, empty when not set.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.values.get(path).map_or("", |value| &value.text)
    }

    /// Every setting with its value and its source, secrets masked.
    pub(crate) fn effective(&self) -> Vec<EffectiveSetting> {
        let show = |setting: &table::SettingSpec| {
            let value = self.values.get(setting.path);
            let source = value.map_or(&Source::Default, |value| &value.source);
            let is_masked = setting.secret && *source != Source::Default;
            EffectiveSetting {
                name: setting.path,
                value: value.map(|value| if is_masked { "***".to_owned() } else { value.text.clone() }),
                default: setting.default.map(|text| text.trim_matches('"').to_owned()),
                source: source.as_str(),
                variable: match source {
                    Source::Environment(name) => name.clone(),
                    Source::Default | Source::Database | Source::File | Source::Flag => table::variable(setting.path),
                },
                secret: setting.secret,
                kind: setting.kind,
                unit: setting.unit(),
                needs_restart: !setting.at_run_time,
                writable: setting.at_run_time && matches!(source, Source::Default | Source::Database),
                doc: setting.doc,
            }
        };
        SETTINGS.iter().map(show).collect()
    }

    /// A number from 0 to 1 by path.
    pub(crate) fn share(&self, path: &str) -> f64 {
        self.text(path).parse().expect("shares were validated and have defaults")
    }

    pub(crate) fn flag(&self, path: &str) -> bool {
        self.text(path) == "true"
    }
}

/// Budgets of the whole gateway.
fn budgets(values: &ConfigValues) -> GatewayBudgets {
    let text = |path: &str| values.get(path).map_or("", |value| &value.text);
    let action = if text("budget.action") == "alert" { BudgetAction::Alert } else { BudgetAction::Block };
    let windows = [("budget.day", Window::Day), ("budget.month", Window::Month), ("budget.total", Window::Total)];
    let set = windows.into_iter().filter(|(path, _)| !text(path).is_empty());
    set.map(|(path, window)| Budget { amount: NanoUsd::parse(text(path)).expect("amounts were validated"), window, action })
        .collect()
}

fn number(values: &ConfigValues, path: &str) -> u64 {
    values.get(path).and_then(|value| value.text.parse().ok()).expect("numbers were validated and have defaults")
}

#[derive(Default)]
pub(crate) struct ConfigOverrides {
    /// `--config`.
    pub(crate) file: Option<PathBuf>,
    /// Flags that set a setting: path and value.
    pub(crate) flags: Vec<(&'static str, String)>,
}

/// Loads settings from all sources.
/// The error lists every fault, one sentence each.
pub(crate) fn load(overrides: &ConfigOverrides) -> Result<Config, Vec<String>> {
    let (name, text) = match settings_file(overrides)? {
        Some((name, text)) => (name, Some(text)),
        None => (String::new(), None),
    };
    #[expect(clippy::disallowed_methods, reason = "settings are read here")]
    let (names, look_up) =
        (std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect::<Vec<_>>(), |name: &str| {
            std::env::var(name).ok()
        });
    let (values, mut faults) =
        read::values(text.as_deref().map(|text| (name.as_str(), text)), &with_master_key_file(&look_up), &names, &overrides.flags);
    let catalog = values.get("catalog.file").filter(|file| !file.text.is_empty());
    // A file that cannot be read is reported where it is needed.
    let catalog = catalog.and_then(|file| std::fs::read_to_string(&file.text).ok()).unwrap_or_default();
    let unknown = environment::unknown_names(&names, &look_up, &catalog);
    faults.extend(unknown.faults);
    match Config::check(values) {
        Ok(config) if faults.is_empty() => {
            let file = Some(name).filter(|name| !name.is_empty());
            Ok(Config { unread: unknown.unread, file, ..config })
        }
        Ok(_) => Err(faults),
        Err(more) => {
            faults.extend(more);
            Err(faults)
        }
    }
}

/// `TOLLGATE_MASTER_KEY_FILE=PATH` reads as `TOLLGATE_MASTER_KEY=file:PATH`.
fn with_master_key_file(look_up: &dyn Fn(&str) -> Option<String>) -> impl Fn(&str) -> Option<String> {
    move |name| {
        look_up(name).or_else(|| {
            (name == "TOLLGATE_MASTER_KEY")
                .then(|| look_up("TOLLGATE_MASTER_KEY_FILE").map(|path| format!("file:{path}")))
                .flatten()
        })
    }
}

/// Reads the settings file. An explicitly named file must exist; the default locations are optional.
fn settings_file(overrides: &ConfigOverrides) -> Result<Option<(String, String)>, Vec<String>> {
    let named = overrides.file.clone().or_else(|| std::env::var_os("TOLLGATE_CONFIG").map(PathBuf::from));
    if let Some(path) = named {
        let shown = path.display().to_string();
        return match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some((shown, text))),
            Err(error) => Err(vec![format!("cannot read the settings file {shown}: {error}; check --config or $TOLLGATE_CONFIG")]),
        };
    }
    for usual in ["tollgate.toml", "/etc/tollgate/tollgate.toml"] {
        match std::fs::read_to_string(usual) {
            Ok(text) => return Ok(Some((usual.to_owned(), text))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(vec![format!("cannot read the settings file {usual}: {error}")]),
        }
    }
    Ok(None)
}

pub(crate) fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "settings are read here")]
    std::env::var(name).ok()
}

/// Resolves `env:NAME`, `file:PATH` or literal text.
pub(crate) fn reference(text: &str) -> Result<String, String> {
    if let Some(name) = text.strip_prefix("env:") {
        return variable(name).ok_or_else(|| format!("the environment variable {name} is not set"));
    }
    if let Some(path) = text.strip_prefix("file:") {
        return std::fs::read_to_string(path)
            .map(|text| text.trim_end().to_owned())
            .map_err(|error| format!("cannot read {path}: {error}"));
    }
    Ok(text.to_owned())
}
