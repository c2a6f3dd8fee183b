//! A state as an icon and a word, so that colour is never the only difference.

use super::locale::Locale;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Class of the colour: `ok`, `warn`, `bad`, `info` or `off`.
    pub(crate) tone: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) word: String,
}

impl Mark {
    pub(crate) fn new(tone: &'static str, icon: &'static str, word: impl Into<String>) -> Self {
        Self { tone, icon, word: word.into() }
    }
}

/// The state of a service key.
pub(crate) fn of_key(t: Locale, state: &str) -> Mark {
    match state {
        "active" => Mark::new("ok", "okc", t.say("key.active")),
        "exhausted" => Mark::new("bad", "price", t.say("key.exhausted")),
        "disabled" => Mark::new("off", "off", t.say("key.disabled")),
        "expired" => Mark::new("off", "clock", t.say("key.expired")),
        "revoked" => Mark::new("off", "x", t.say("key.revoked")),
        _ => Mark::new("warn", "warn", t.say("key.suspended")),
    }
}

/// The outcome of a request with the status that its caller got.
pub(crate) fn of_outcome(t: Locale, outcome: &str) -> Mark {
    match outcome {
        "completed" => Mark::new("ok", "okc", t.say("outcome.completed")),
        "caller_left" => Mark::new("off", "left", t.say("outcome.caller_left")),
        "upstream_broke" => Mark::new("bad", "badc", t.say("outcome.upstream_broke")),
        "refused" => Mark::new("warn", "out", t.say("outcome.refused")),
        _ => Mark::new("bad", "stop", t.say("outcome.gateway_stopped")),
    }
}
