//! The availability of a channel or account over an hour or a day as a strip of cells, and its current state, from the health
//! routes of the admin API.

use serde::Deserialize;

use super::{
    channels::last_test::LastTestObject,
    format,
    locale::{Locale, fill},
    mark::Mark,
    models::{CELL, StripCell},
};

/// Availability of a channel or account, as the admin API answers it.
#[derive(Debug, Deserialize)]
pub(crate) struct UptimeObject {
    pub(crate) channel: String,
    pub(crate) account: Option<String>,
    pub(crate) usable: Option<f64>,
    pub(crate) cells: Vec<UptimeCell>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct UptimeCell {
    /// `None`: unknown.
    usable: Option<f64>,
    state: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Strip {
    pub(crate) cells: Vec<StripCell>,
    pub(crate) width: usize,
    pub(crate) label: String,
}

impl Strip {
    /// The last 60 minutes. `attempts` is the number of requests sent to it in that time.
    pub(crate) fn of_hour(t: Locale, uptime: &UptimeObject, attempts: u64) -> Self {
        let cell = |(index, cell): (usize, &UptimeCell)| {
            let (class, y, height) = match (cell.state.as_deref(), cell.usable) {
                (_, None) => ("idle", 7, 2),
                (Some("off"), _) => ("idle", 13, 3),
                // Some accounts of a channel could not be used, others could.
                (Some("degraded"), _) => ("part", 2, 14),
                (_, Some(usable)) if usable >= 0.999 && attempts == 0 => ("idle", 14, 2),
                (_, Some(usable)) if usable >= 0.999 => ("up", 5, 11),
                (_, Some(usable)) if usable > 0.0 => ("part", 2, 14),
                (_, Some(_)) => ("down", 0, 16),
            };
            StripCell { x: index * CELL, y, height, class }
        };
        Self {
            cells: uptime.cells.iter().enumerate().map(cell).collect(),
            width: (uptime.cells.len() * CELL).saturating_sub(1).max(1),
            label: uptime.label(t, attempts),
        }
    }
}

impl UptimeObject {
    fn label(&self, t: Locale, attempts: u64) -> String {
        let (name, time) = (self.account.as_ref().unwrap_or(&self.channel), t.say("strip.hour"));
        let Some(usable) = self.usable else {
            return t.say_with("strip.unknown", &[("name", name), ("time", time)]);
        };
        let has_gaps = self.cells.iter().any(|cell| cell.usable.is_none());
        let text = if has_gaps { t.say("strip.label_known") } else { t.say("strip.label") };
        let label = fill(text, &[("name", name), ("share", &format::percent(usable)), ("time", time)]);
        if attempts == 0 { t.say_with("strip.no_traffic", &[("label", &label)]) } else { label }
    }
}

/// Health of an account, as the admin API answers it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct HealthObject {
    pub(crate) channel: String,
    pub(crate) account: String,
    /// Last characters of its credential, if it has a long one.
    pub(crate) credential_end: Option<String>,
    pub(crate) status: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) since: Option<String>,
    pub(crate) until: Option<String>,
    /// `None` without limits.
    pub(crate) running: Option<u64>,
    pub(crate) requests_minute: Option<u64>,
    pub(crate) tokens_minute: Option<u64>,
    pub(crate) concurrency: u64,
    pub(crate) rpm: u64,
    pub(crate) tpm: u64,
    pub(crate) cost_multiplier: String,
    /// `None`: it was never tested.
    pub(crate) last_test: Option<LastTestObject>,
}

impl HealthObject {
    /// Whether requests may go to it.
    pub(crate) fn is_usable(&self) -> bool {
        self.status == "on" && self.state == "usable"
    }
}

/// The state of an account.
pub(crate) fn account_mark(t: Locale, health: &HealthObject) -> Mark {
    match (health.status.as_str(), health.state.as_str()) {
        ("off", _) => Mark::new("off", "off", t.say("channel.off")),
        (_, "usable") => Mark::new("ok", "okc", t.say("channel.usable")),
        (_, "cooling") => Mark::new("warn", "cool", t.say("channel.cooling")),
        (_, "resting") => Mark::new("bad", "pause", t.say("channel.resting")),
        (_, "due") => Mark::new("warn", "clock", t.say("channel.due")),
        _ => Mark::new("warn", "clock", t.say("channel.probing")),
    }
}

/// The state of a channel, from the states of its accounts.
pub(crate) fn channel_mark(t: Locale, is_on: bool, accounts: &[HealthObject]) -> Mark {
    let on: Vec<&HealthObject> = accounts.iter().filter(|account| account.status == "on").collect();
    let usable = on.iter().filter(|account| account.state == "usable" || account.state == "due").count();
    let state = |state: &str| on.iter().any(|account| account.state == state);
    match () {
        () if !is_on => Mark::new("off", "off", t.say("channel.off")),
        () if on.is_empty() => Mark::new("off", "minus", t.say("channel.no_account")),
        () if usable == on.len() => Mark::new("ok", "okc", t.say("channel.on")),
        () if usable > 0 => {
            let counts = [("usable", format::integer(usable as u64)), ("all", format::integer(on.len() as u64))];
            let counts: Vec<(&str, &str)> = counts.iter().map(|(name, count)| (*name, count.as_str())).collect();
            Mark::new("warn", "warn", t.say_with("channel.partly", &counts))
        }
        () if state("cooling") || state("probing") => Mark::new("warn", "cool", t.say("channel.cooling")),
        () => Mark::new("bad", "badc", t.say("channel.resting")),
    }
}

/// Why an account cannot be used, in words.
pub(crate) fn reason(t: Locale, reason: &str) -> String {
    let text = match reason {
        "connect_failure" => t.say("health.connect_failure"),
        "server_error" => t.say("health.server_error"),
        "timeout" => t.say("health.timeout"),
        "bad_answer" => t.say("health.bad_answer"),
        "rate_limited" => t.say("health.rate_limited"),
        "pausing_status" => t.say("health.pausing_status"),
        "quota_spent" => t.say("health.quota_spent"),
        "refused" => t.say("health.refused"),
        "switched_off" => t.say("health.switched_off"),
        "accounts" => t.say("health.accounts"),
        "no_account" => t.say("health.no_account"),
        "budget_spent" => t.say("health.budget_spent"),
        "private_network" => t.say("health.private_network"),
        _ => return reason.replace('_', " "),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uptime(usable: Option<f64>, cells: &[Option<f64>]) -> UptimeObject {
        let cells = cells.iter().map(|usable| UptimeCell { usable: *usable, state: None }).collect();
        UptimeObject { channel: "main".to_owned(), account: None, usable, cells }
    }

    fn shown(uptime: &UptimeObject, attempts: u64) -> (Vec<(&'static str, u8)>, String) {
        let strip = Strip::of_hour(Locale::EN, uptime, attempts);
        (strip.cells.iter().map(|cell| (cell.class, cell.height)).collect(), strip.label)
    }

    #[test]
    fn unknown_and_idle_time_is_not_green() {
        let (up, tick, dash) = (("up", 11), ("idle", 2), ("idle", 2));
        let known = uptime(Some(1.0), &[Some(1.0), Some(1.0)]);
        assert_eq!(shown(&known, 3), (vec![up, up], "main: usable 100 % of the last 60 minutes".to_owned()));
        assert_eq!(shown(&known, 0), (vec![tick, tick], "main: usable 100 % of the last 60 minutes; no traffic".to_owned()));
        let new = uptime(Some(0.5), &[None, Some(0.5)]);
        let label = "main: usable 50.00 % of what is known of the last 60 minutes".to_owned();
        assert_eq!(shown(&new, 3), (vec![dash, ("part", 14)], label));
        let unknown = uptime(None, &[None, None]);
        assert_eq!(shown(&unknown, 0), (vec![dash, dash], "main: unknown for the last 60 minutes".to_owned()));
        let cells = Strip::of_hour(Locale::EN, &uptime(Some(1.0), &[None, Some(1.0)]), 0).cells;
        assert_ne!(cells[0].y, cells[1].y, "a dash for unknown, a tick for no traffic");
    }
}
