//! The sections of the page of settings, by subject; the settings file is organised by the part of the program that
//! reads them.

use super::locale::Locale;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingSection {
    General,
    Access,
    Square,
    Logging,
    Limits,
    Routing,
    Network,
    Notifications,
    Backup,
    System,
}

/// The settings of the first section, in its order.
const GENERAL: [&str; 11] = [
    "console.display_name",
    "console.logo",
    "console.currency",
    "console.currency_per_usd",
    "console.announcement",
    "console.announcement_level",
    "console.home_text",
    "console.url",
    "console.api_url",
    "console.language",
    "console.time_zone",
];

impl SettingSection {
    pub(super) const ALL: [Self; 10] = [
        Self::General,
        Self::Access,
        Self::Square,
        Self::Logging,
        Self::Limits,
        Self::Routing,
        Self::Network,
        Self::Notifications,
        Self::Backup,
        Self::System,
    ];

    /// The section of a setting; `None` for an unknown one.
    pub(super) fn of(name: &str) -> Option<Self> {
        let (prefix, rest) = name.split_once('.')?;
        Some(match prefix {
            "console" if GENERAL.contains(&name) => Self::General,
            "console" => match rest {
                "session_idle_minutes" | "session_max_hours" | "remember_me" => Self::Access,
                "listen" | "tls" | "tls_cert" | "tls_key" => Self::Network,
                _ => return None,
            },
            "server" => match rest {
                "data" | "cores" | "drain_timeout_ms" => Self::System,
                "listen" | "tls_cert" | "tls_key" | "trusted_proxies" | "cors_origins" => Self::Network,
                _ => Self::Limits,
            },
            "upstream" if rest.ends_with("_addresses") => Self::Network,
            "upstream" => Self::Routing,
            "access" | "oidc" => Self::Access,
            "square" => Self::Square,
            "log" | "usage" | "contents" | "export" => Self::Logging,
            "limits" | "budget" => Self::Limits,
            "alerts" => Self::Notifications,
            "backup" => Self::Backup,
            "database" | "redis" | "degraded" | "catalog" | "journal" | "health" | "metrics" | "telemetry" => Self::System,
            _ => return None,
        })
    }

    /// Sort key of a setting within its section.
    pub(super) fn place(name: &str) -> usize {
        GENERAL.iter().position(|known| *known == name).unwrap_or(GENERAL.len())
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Access => "access",
            Self::Square => "square",
            Self::Logging => "logging",
            Self::Limits => "limits",
            Self::Routing => "routing",
            Self::Network => "network",
            Self::Notifications => "notifications",
            Self::Backup => "backup",
            Self::System => "system",
        }
    }

    pub(super) fn title(self, t: Locale) -> &'static str {
        match self {
            Self::General => t.say("settings.section.general"),
            Self::Access => t.say("settings.section.access"),
            Self::Square => t.say("settings.section.square"),
            Self::Logging => t.say("settings.section.logging"),
            Self::Limits => t.say("settings.section.limits"),
            Self::Routing => t.say("settings.section.routing"),
            Self::Network => t.say("settings.section.network"),
            Self::Notifications => t.say("settings.section.notifications"),
            Self::Backup => t.say("settings.section.backup"),
            Self::System => t.say("settings.section.system"),
        }
    }
}

/// The section in which the console shows a setting; `None` for an unknown one.
pub fn section_of_setting(name: &str) -> Option<&'static str> {
    SettingSection::of(name).map(SettingSection::word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_in_the_section_of_what_they_are_about() {
        for (name, section) in [
            ("console.display_name", "general"),
            ("console.remember_me", "access"),
            ("oidc.issuer", "access"),
            ("server.listen", "network"),
            ("console.tls", "network"),
            ("upstream.denied_addresses", "network"),
            ("upstream.stall_timeout_ms", "routing"),
            ("server.body_timeout_ms", "limits"),
            ("export.bucket", "logging"),
            ("database.url", "system"),
        ] {
            assert_eq!(section_of_setting(name), Some(section), "{name}");
        }
        assert_eq!((section_of_setting("console.colour"), section_of_setting("server")), (None, None));
        assert!(GENERAL.iter().all(|name| SettingSection::of(name) == Some(SettingSection::General)));
    }
}
