//! Settings that are stored in the database: which may be stored, their valid values, and their precedence over other sources. A flag,
//! an environment variable or the settings file overrides a stored value.

use std::collections::BTreeMap;

use tollgate_console::{CheckedSetting, SettingRefusal};
use tollgate_store::fields::nearest;

use super::{
    Config,
    read::{ConfigValue, Source, checked},
    table::{self, SETTINGS, SettingSpec},
};

impl Config {
    /// These settings with stored values. A stored value that this version does not accept is left out. The returned sentences
    /// name it and the reason.
    pub(crate) fn with_stored(&self, stored: &BTreeMap<String, String>) -> (Self, Vec<String>) {
        let (mut values, mut faults) = (self.values.clone(), Vec::new());
        for (name, text) in stored {
            let Some(setting) = table::find(name).filter(|setting| setting.at_run_time) else {
                faults.push(format!(
                    "the stored setting '{name}' cannot be changed at run time; remove it with `tollgate settings unset {name}`"
                ));
                continue;
            };
            if self.values.get(setting.path).is_some_and(|value| value.source != Source::Default) {
                continue;
            }
            match checked(setting, text, &format!("the stored setting '{name}'")) {
                Ok(text) => drop(values.insert(setting.path, ConfigValue { text, source: Source::Database })),
                Err(fault) => faults.push(fault),
            }
        }
        match Self::check(values) {
            Ok(config) => (Self { file: self.file.clone(), unread: self.unread.clone(), ..config }, faults),
            Err(wrong) => {
                faults.extend(wrong);
                (self.clone(), faults)
            }
        }
    }

    /// Checks a value that is to be stored.
    pub(crate) fn check_stored(&self, name: &str, value: &str) -> Result<CheckedSetting, SettingRefusal> {
        let Some(setting) = table::find(name) else {
            return Err(SettingRefusal::Unknown { nearest: nearest(name, SETTINGS.iter().map(|setting| setting.path)) });
        };
        if !setting.at_run_time {
            return Err(SettingRefusal::NeedsRestart(self.needs_restart(setting)));
        }
        if let Some(source) = self.set_by(setting) {
            let message = format!(
                "'{name}' is set by {source}, which overrides what is stored here; change it there, or remove it there to change it at \
                 run time"
            );
            return Err(SettingRefusal::SetElsewhere(message));
        }
        let value = checked(setting, value, &format!("'{name}'")).map_err(SettingRefusal::Invalid)?;
        Ok(CheckedSetting { name: setting.path, value })
    }

    /// The flag, variable or file that sets a setting; `None` if its value comes from the database or is the default.
    fn set_by(&self, setting: &SettingSpec) -> Option<String> {
        match &self.values.get(setting.path)?.source {
            Source::Default | Source::Database => None,
            Source::File => {
                Some(self.file.as_ref().map_or_else(|| "the settings file".to_owned(), |file| format!("the file {file}")))
            }
            Source::Environment(name) => Some(format!("the environment variable {name}")),
            Source::Flag => Some("a flag of the command line".to_owned()),
        }
    }

    fn needs_restart(&self, setting: &SettingSpec) -> String {
        let SettingSpec { path, secret, .. } = setting;
        let why = if *secret { "is a secret, which is never stored in the database" } else { "is read when the gateway starts" };
        let (section, name) = path.split_once('.').expect("each path has a section");
        let file = self.file.as_deref().unwrap_or("tollgate.toml");
        format!("'{path}' {why}; set `{name}` in section [{section}] of {file}, or {}, and restart", table::variable(path))
    }
}

#[cfg(test)]
mod tests {
    use tollgate_console::SettingKind;

    use super::*;
    use crate::{config::read::values, gateway_settings};

    fn config(file: &str) -> Config {
        let (read, faults) = values(Some(("tollgate.toml", file)), &|_| None, &[], &[]);
        assert!(faults.is_empty(), "{faults:?}");
        Config { file: Some("tollgate.toml".to_owned()), ..Config::check(read).unwrap() }
    }

    fn stored(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn stored_value_overrides_only_the_default() {
        let given = config("[log]\nslow_ms = 5\n");
        let (config, faults) = given.with_stored(&stored(&[("log.slow_ms", "7"), ("limits.in_flight", "9")]));
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!((config.number("log.slow_ms"), config.number("limits.in_flight")), (5, 9));
        let source = |name: &str| config.values[name].source.as_str();
        assert_eq!((source("log.slow_ms"), source("limits.in_flight"), source("log.level")), ("file", "database", "default"));
        let shown = config.effective();
        let of =
            |name: &str| shown.iter().find(|setting| setting.name == name).map(|setting| (setting.writable, setting.needs_restart));
        assert_eq!(
            (of("log.slow_ms"), of("limits.in_flight"), of("server.listen")),
            (Some((false, false)), Some((true, false)), Some((false, true)))
        );
    }

    #[test]
    fn invalid_stored_values_are_ignored_and_reported() {
        let (config, faults) = config("").with_stored(&stored(&[
            ("limits.in_flight", "0"),
            ("log.level", "debug"),
            ("no.such", "1"),
            ("server.listen", "127.0.0.1:1"),
        ]));
        assert_eq!((config.number("limits.in_flight"), config.text("log.level")), (16_384, "debug"));
        assert_eq!(faults.len(), 3);
        assert_eq!(faults[0], "the stored setting 'limits.in_flight' takes a whole number of 1 to 1000000, not '0'");
        assert!(faults[1].contains("'no.such'") && faults[2].contains("'server.listen'"), "{faults:?}");
    }

    #[test]
    fn value_to_store_is_validated() {
        let config = config("[log]\nlevel = \"warn\"\n");
        let check = |name: &str, value: &str| config.check_stored(name, value);
        assert_eq!(check("log.slow_ms", "9").unwrap(), CheckedSetting { name: "log.slow_ms", value: "9".to_owned() });
        let Err(SettingRefusal::Unknown { nearest: Some("log.slow_ms") }) = check("log.slo_ms", "9") else { panic!() };
        let Err(SettingRefusal::Invalid(fault)) = check("log.slow_ms", "-1") else { panic!() };
        assert_eq!(fault, "'log.slow_ms' takes a whole number of 0 to 86400000, not '-1'");
        let Err(SettingRefusal::SetElsewhere(fault)) = check("log.level", "info") else { panic!() };
        assert!(fault.contains("set by the file tollgate.toml"), "{fault}");
        let Err(SettingRefusal::NeedsRestart(fault)) = check("server.listen", "127.0.0.1:1") else { panic!() };
        assert!(fault.contains("[server]") && fault.contains("TOLLGATE_SERVER__LISTEN"), "{fault}");
        let Err(SettingRefusal::NeedsRestart(fault)) = check("redis.url", "redis://x") else { panic!() };
        assert!(fault.contains("secret"), "{fault}");
    }

    /// Settings that change at run time outside of the gateway's own settings, besides those of alerts: `LiveSettings` and the tasks
    /// that follow it apply them.
    const APPLIED_ELSEWHERE: [&str; 27] = [
        "log.level",
        "journal.max_bytes",
        "journal.reserve_bytes",
        "degraded.write_every_ms",
        "usage.retention_days",
        "backup.interval_hours",
        "backup.keep",
        "contents.retention_days",
        "health.history_days",
        "square.public",
        "console.api_url",
        "console.display_name",
        "console.logo",
        "console.announcement",
        "console.announcement_level",
        "console.home_text",
        "console.language",
        "console.time_zone",
        "console.session_idle_minutes",
        "console.session_max_hours",
        "console.remember_me",
        "console.currency",
        "console.currency_per_usd",
        "access.registration",
        "access.registration_group",
        "access.registration_billing",
        "access.registrations_per_hour",
    ];

    #[test]
    fn every_run_time_setting_changes_the_gateway_settings() {
        let before = stored(&[("budget.day", "1")]);
        for setting in SETTINGS.iter().filter(|setting| {
            setting.at_run_time && !APPLIED_ELSEWHERE.contains(&setting.path) && !setting.path.starts_with("alerts.")
        }) {
            let default = setting.default.unwrap_or_default().trim_matches('"');
            let other = match setting.kind {
                SettingKind::Number(_, max) => {
                    default.parse::<u64>().map(|number| if number < max { number + 1 } else { number - 1 }).unwrap().to_string()
                }
                SettingKind::Flag => (default != "true").to_string(),
                SettingKind::OneOf(words) => words.iter().find(|word| **word != default).unwrap().to_string(),
                SettingKind::Share => "0.5".to_owned(),
                SettingKind::Usd | SettingKind::Rate => "2".to_owned(),
                SettingKind::Percents => "70".to_owned(),
                SettingKind::Pattern => "sk-[a-z]+".to_owned(),
                SettingKind::Networks => "10.0.0.0/8".to_owned(),
                SettingKind::Origins => "https://app.example.com".to_owned(),
                SettingKind::Text
                | SettingKind::Line(_)
                | SettingKind::HttpUrl
                | SettingKind::Image
                | SettingKind::TimeZone
                | SettingKind::Address => {
                    panic!("{} has no test value", setting.path)
                }
            };
            let mut after = before.clone();
            after.insert(setting.path.to_owned(), other.clone());
            let applied = |stored| {
                let (config, faults) = config("").with_stored(stored);
                assert!(faults.is_empty(), "{faults:?}");
                gateway_settings::configured(&config)
            };
            assert_ne!(applied(&before), applied(&after), "{} = {other} changes nothing", setting.path);
        }
    }

    #[test]
    fn secrets_are_never_stored() {
        assert!(SETTINGS.iter().all(|setting| !(setting.secret && setting.at_run_time)));
    }
}
