//! The attempts of a record on the time axis of its request.

use serde::Deserialize;

use super::record_object::{RecordObject, TokenCounts, TraceObject};
use crate::pages::{
    channels::{explain_detail, state},
    failure_text, format,
    locale::{Locale, fill},
    mark::Mark,
    money::{self, Amount},
    protocols, reasons,
};

#[derive(Debug, Deserialize)]
pub(super) struct AttemptObject {
    pub(super) channel: String,
    pub(super) account: String,
    pub(super) upstream_model: String,
    protocol: String,
    at: String,
    pub(super) status: Option<u16>,
    result: String,
    error: Option<String>,
    tokens: TokenCounts,
    pub(super) cost: Option<String>,
    #[serde(default)]
    cost_multiplier: Option<String>,
    sent_us: Option<u64>,
    first_byte_us: Option<u64>,
    duration_us: u64,
    upstream_request_id: Option<String>,
    pub(super) beside: bool,
    message: Option<String>,
}

/// Requests on kept connections are sent at once; a shorter time counts as waiting for the first byte.
const SHOWN_FROM_US: u64 = 1_000;

impl AttemptObject {
    /// How long connecting and sending took; `None`: not long enough to be shown.
    fn connected_us(&self) -> Option<u64> {
        self.sent_us.filter(|us| *us >= SHOWN_FROM_US)
    }
}

/// An attempt with its position on the time axis of the request, in thousandths.
#[derive(Debug)]
pub(super) struct AttemptRow {
    pub(super) number: usize,
    pub(super) channel: String,
    /// The path of the channel's page.
    pub(super) channel_path: String,
    pub(super) account: String,
    pub(super) mark: Mark,
    /// The time before it in which no attempt was running: the gateway's own work and waits for capacity.
    pub(super) gap: u64,
    pub(super) begin: u64,
    /// Until its request was sent.
    pub(super) connect: u64,
    pub(super) wait: u64,
    pub(super) stream: u64,
    pub(super) is_failed: bool,
    pub(super) label: String,
    /// Its phases, with the class of their colour in the time line, and their lengths.
    pub(super) phases: Vec<(&'static str, &'static str, String)>,
    pub(super) total: String,
    pub(super) cost: Amount,
    /// The request to the upstream, and the tokens that it counted.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) error: Option<String>,
    /// The upstream's error message.
    pub(super) message: Option<String>,
    /// What happened after an attempt that did not answer.
    pub(super) after: Option<String>,
    pub(super) upstream_request_id: Option<String>,
}

impl AttemptRow {
    /// Width of the whole attempt, for one that failed; at least 6.
    pub(super) const fn width(&self) -> u64 {
        let width = self.connect.saturating_add(self.wait).saturating_add(self.stream);
        if width < 6 { 6 } else { width }
    }

    pub(super) const fn gap_at(&self) -> u64 {
        self.begin.saturating_sub(self.gap)
    }

    pub(super) const fn waits_at(&self) -> u64 {
        self.begin.saturating_add(self.connect)
    }

    pub(super) const fn streams_at(&self) -> u64 {
        self.waits_at().saturating_add(self.wait)
    }
}

/// The attempts as they were recorded.
pub(super) fn rows(t: Locale, record: &RecordObject) -> Vec<AttemptRow> {
    let micros = |at: &str| at.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_microsecond);
    let (begin, length) = (micros(&record.at), record.duration_us.max(1));
    let share = |us: u64| u64::try_from(u128::from(us) * 1_000 / u128::from(length)).unwrap_or(1_000).min(1_000);
    let mut covered_until = 0_u64;
    let rows = record.attempts.iter().enumerate().map(|(index, attempt)| {
        let offset = u64::try_from(micros(&attempt.at) - begin).unwrap_or(0);
        let first = attempt.first_byte_us.unwrap_or(attempt.duration_us).min(attempt.duration_us);
        // Hedged attempts overlap, so there is no gap before the second one.
        let gap = offset.saturating_sub(covered_until);
        covered_until = covered_until.max(offset.saturating_add(attempt.duration_us));
        let mark = result(t, attempt);
        let sent = attempt.connected_us().unwrap_or(0).min(first);
        let (begin, connect, wait) = (share(offset), share(sent), share(first - sent));
        AttemptRow {
            number: index + 1,
            channel: attempt.channel.clone(),
            channel_path: state::path(&attempt.channel),
            account: attempt.account.clone(),
            gap: share(gap).min(begin),
            begin,
            connect,
            wait,
            stream: share(attempt.duration_us - first).min(1_000_u64.saturating_sub(begin + connect + wait)),
            is_failed: attempt.result != "answered" && attempt.result != "cancelled",
            label: t.say_with(
                "record.attempt_label",
                &[("channel", &attempt.channel), ("result", &mark.word), ("time", &format::micros(t, attempt.duration_us))],
            ),
            mark,
            phases: phases(t, attempt, gap),
            facts: attempt_facts(t, record, attempt),
            total: format::micros(t, attempt.duration_us),
            cost: attempt.cost.as_deref().map_or_else(Amount::none, |cost| money::short(t, cost)),
            error: attempt
                .error
                .as_deref()
                .map(|id| reasons::name(t, id).map_or_else(|| id.to_owned(), |name| format!("{name} · {id}"))),
            after: after(t, record, index),
            message: attempt.message.as_deref().map(|message| failure_text::say(t, message)),
            upstream_request_id: attempt.upstream_request_id.clone(),
        }
    });
    rows.collect()
}

/// Durations of the phases that an attempt reached, as in the time line.
fn phases(t: Locale, attempt: &AttemptObject, gap: u64) -> Vec<(&'static str, &'static str, String)> {
    let streamed = attempt.first_byte_us.and_then(|first| attempt.duration_us.checked_sub(first));
    let connected = attempt.connected_us();
    let waited = attempt.first_byte_us.map(|first| first.saturating_sub(connected.unwrap_or(0)));
    let known = [
        ("gap", t.say("record.before"), Some(gap).filter(|us| *us > 0)),
        ("connect", t.say("record.connection"), connected),
        ("wait", t.say("record.first_byte"), waited),
        ("fill", t.say("record.streamed"), streamed),
    ];
    known.into_iter().filter_map(|(class, label, us)| Some((class, label, format::micros(t, us?)))).collect()
}

/// Facts that the record does not have for the whole request.
fn attempt_facts(t: Locale, record: &RecordObject, attempt: &AttemptObject) -> Vec<(&'static str, String)> {
    let tokens = &attempt.tokens;
    let has_tokens = tokens.prompt() > 0 || tokens.answer() > 0;
    let counts = || format!("{} → {}", format::integer(tokens.prompt()), format::integer(tokens.answer()));
    let known = [
        (t.say("log.model"), Some(attempt.upstream_model.clone()).filter(|name| Some(name) != record.model.as_ref())),
        (
            t.say("facet.protocol"),
            Some(protocols::label(t, &attempt.protocol).to_owned()).filter(|_| attempt.protocol != record.protocol_in),
        ),
        (t.say("log.tokens"), has_tokens.then(counts)),
        (
            t.say("channels.multiplier"),
            attempt.cost_multiplier.clone().filter(|factor| factor != "1").map(|factor| format!("× {factor}")),
        ),
        (t.say("record.beside"), attempt.beside.then(|| t.say("record.beside_yes").to_owned())),
    ];
    known.into_iter().filter_map(|(label, text)| Some((label, text?))).collect()
}

/// What happened after an attempt that did not answer, and until when its account cools down; `None` for an attempt that
/// answered, was cancelled, or ran beside another one.
fn after(t: Locale, record: &RecordObject, index: usize) -> Option<String> {
    let attempt = &record.attempts[index];
    let next = record.attempts.get(index + 1);
    if matches!(attempt.result.as_str(), "answered" | "cancelled") || attempt.beside || next.is_some_and(|next| next.beside) {
        return None;
    }
    let is_same = |next: &AttemptObject| next.channel == attempt.channel && next.account == attempt.account;
    let text = match next {
        None => t.say("record.then_none"),
        Some(next) if is_same(next) => t.say("record.then_same"),
        Some(_) => t.say("record.then_next"),
    };
    let time = format::micros(t, attempt.duration_us);
    let said = fill(text, &[("result", &result(t, attempt).word), ("time", &time)]);
    let cooling = record.trace.iter().rev().find_map(|entry: &TraceObject| entry.cooling(attempt));
    let Some(why) = cooling.and_then(|detail| explain_detail::say(t, "cooling", detail)) else { return Some(said) };
    Some(format!("{said}{}{}", t.choose(" ", ""), t.say_with("record.cools", &[("why", &why)])))
}

/// The attempt in the list of candidates.
pub(super) fn tried(t: Locale, attempt: &AttemptObject) -> Mark {
    let mark = result(t, attempt);
    let is_refusal = matches!(attempt.result.as_str(), "refused" | "failed");
    let word = match attempt.status.filter(|_| is_refusal) {
        Some(status) => status.to_string(),
        None => result_word(t, attempt).to_owned(),
    };
    Mark { word: t.say_with("record.tried", &[("result", &word)]), ..mark }
}

fn result_word(t: Locale, attempt: &AttemptObject) -> &'static str {
    match attempt.result.as_str() {
        "answered" => t.say("record.answered"),
        "cancelled" => t.say("record.cancelled"),
        "refused" => t.say("record.refused"),
        "not_sent" => t.say("record.not_sent"),
        "broke" => t.say("record.broke"),
        _ => t.say("record.failed"),
    }
}

fn result(t: Locale, attempt: &AttemptObject) -> Mark {
    let status = attempt.status.map_or_else(String::new, |status| format!("{status} "));
    let (tone, icon) = match attempt.result.as_str() {
        "answered" => ("ok", "okc"),
        "cancelled" => ("off", "left"),
        "refused" => ("warn", "out"),
        _ => ("bad", "badc"),
    };
    Mark::new(tone, icon, format!("{status}{}", result_word(t, attempt)))
}
