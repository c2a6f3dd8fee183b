//! Alerts about channels that were down, as the gateway would have raised them.

use tollgate_core::{AlertCondition, AlertRule, Catalog, DownChannels, Timestamp, channels_down};

use crate::health::AccountBook;

/// Time without a usable account after which a channel raises an alert: the default of `alerts.channel_down_s`.
const DOWN_MS: i64 = 60_000;

#[derive(Debug, Default)]
pub(crate) struct ChannelAlerts {
    down: DownChannels,
    open: Vec<AlertCondition>,
    events: Vec<AlertEvent>,
}

#[derive(Debug)]
pub(crate) enum AlertEvent {
    Raised(AlertCondition, Timestamp),
    /// Of the rule about channels.
    Ended(String, Timestamp),
}

impl ChannelAlerts {
    /// Finds the channels that are down at a time.
    pub(crate) fn evaluate(&mut self, catalog: &Catalog, accounts: &AccountBook, now: Timestamp) {
        let down = channels_down(catalog, |account| accounts.health(account, now), now);
        let found = self.down.conditions(catalog, &down, DOWN_MS, now);
        let is_in = |list: &[AlertCondition], subject: &str| list.iter().any(|it| it.subject == subject);
        let (events, open) = (&mut self.events, &self.open);
        events.extend(found.iter().filter(|it| !is_in(open, &it.subject)).map(|it| AlertEvent::Raised(it.clone(), now)));
        events.extend(open.iter().filter(|it| !is_in(&found, &it.subject)).map(|it| AlertEvent::Ended(it.subject.clone(), now)));
        self.open = found;
    }

    pub(crate) fn take_events(&mut self) -> Vec<AlertEvent> {
        std::mem::take(&mut self.events)
    }
}

/// The rule of all these alerts.
pub(crate) const RULE: AlertRule = AlertRule::ChannelDown;
