//! The fields of the usage log's filter: their names, choices and texts.

use tollgate_protocol::FinishReason;

use crate::pages::{locale::Locale, log::record::finish_label, mark, protocols};

/// Fields that are filled in; those for operators last.
pub(super) const FIELDS: [&str; 25] = [
    "model",
    "key",
    "outcome",
    "status",
    "reason",
    "protocol",
    "stream",
    "finish",
    SESSION,
    "min_sale",
    "min_tokens",
    "min_ttft_ms",
    "min_duration_ms",
    "tags",
    "client_request_id",
    "address",
    "group",
    "member",
    "channel",
    "account",
    "tried_channel",
    "tried_account",
    TRIED_FAILED,
    "unknown_model",
    "min_cost",
];
/// Fields that only operators may filter by.
pub(super) const FOR_OPERATORS: [&str; 8] =
    ["member", "channel", "account", "tried_channel", "tried_account", TRIED_FAILED, "unknown_model", "min_cost"];
/// The tag that clients name their session in.
pub(super) const SESSION: &str = "session";
/// Whether the attempt of the tried channel or account must have failed.
const TRIED_FAILED: &str = "tried_failed";
const OUTCOMES: [&str; 5] = ["completed", "caller_left", "refused", "upstream_broke", "gateway_stopped"];
/// The choice of every outcome but a completed answer.
pub(in crate::pages) const NOT_COMPLETED: &str = "not_completed";
/// Choices in the list of outcomes that are not one outcome, with the admin API's parameter for each.
pub(super) const FURTHER_OUTCOMES: [(&str, (&str, &str)); 4] = [
    (NOT_COMPLETED, ("outcome", "caller_left,refused,upstream_broke,gateway_stopped")),
    ("empty", ("empty", "true")),
    ("failed_over", ("failed_over", "true")),
    ("blocked", ("reason", "E67")),
];

fn outcome_label(t: Locale, word: &str) -> String {
    match word {
        NOT_COMPLETED => t.say("log.not_completed").to_owned(),
        "empty" => t.say("log.empty_answer").to_owned(),
        "failed_over" => t.say("log.failed_over").to_owned(),
        "blocked" => t.say("reason.content").to_owned(),
        _ => mark::of_outcome(t, word).word,
    }
}

pub(super) fn label(t: Locale, field: &str) -> &'static str {
    match field {
        "model" => t.say("log.model"),
        "key" => t.say("log.key"),
        "outcome" => t.say("log.outcome"),
        "status" => t.say("log.status"),
        "reason" => t.say("log.reason"),
        "protocol" => t.say("facet.protocol"),
        "stream" => t.say("log.streaming"),
        "finish" => t.say("log.finish"),
        SESSION => t.say("log.session"),
        "min_ttft_ms" => t.say("log.min_first"),
        "min_cost" => t.say("log.min_cost"),
        "min_sale" => t.say("log.min_sale"),
        "min_tokens" => t.say("log.min_tokens"),
        "min_duration_ms" => t.say("log.min_duration"),
        "tags" => t.say("log.tags"),
        "client_request_id" => t.say("log.client_request_id"),
        "address" => t.say("profile.address"),
        "group" => t.say("log.group"),
        "member" => t.say("keys.member"),
        "channel" => t.say("log.channel"),
        "account" => t.say("channels.account"),
        "tried_channel" => t.say("log.tried_channel"),
        "tried_account" => t.say("log.tried_account"),
        TRIED_FAILED => t.say("log.tried_result"),
        "unknown_model" => t.say("log.unknown_model"),
        "since" => t.say("log.since"),
        "until" => t.say("log.until"),
        _ => t.say("log.time"),
    }
}

/// The valid values of a field, shown for an impossible value; `None` for a field without such a text.
pub(super) fn expected(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "status" => t.say("log.expected.status"),
        "reason" => t.say("log.expected.reason"),
        "address" => t.say("log.expected.address"),
        "tags" | SESSION => t.say("log.expected.tags"),
        "min_sale" | "min_cost" => t.say("problem.amount"),
        "min_tokens" | "min_ttft_ms" | "min_duration_ms" => t.say("log.expected.count"),
        "outcome" | "protocol" | "stream" | "finish" => t.say("log.expected.choice"),
        "account" | "tried_account" => t.say("log.expected.account"),
        TRIED_FAILED => t.say("log.expected.tried"),
        "since" | "until" => t.say("log.expected.time"),
        _ => return None,
    })
}

/// A field of the filter as it is shown.
#[derive(Debug)]
pub(in crate::pages::log) struct FilterField {
    pub(in crate::pages::log) name: &'static str,
    pub(in crate::pages::log) label: &'static str,
    pub(in crate::pages::log) value: String,
    pub(in crate::pages::log) hint: &'static str,
    pub(in crate::pages::log) fault: Option<String>,
    /// Value, label and whether it is chosen, of a field with a fixed set of values.
    pub(in crate::pages::log) options: Vec<(&'static str, String, bool)>,
    /// Fields that are used often are shown above the others.
    pub(in crate::pages::log) is_common: bool,
}

impl FilterField {
    pub(super) fn of(t: Locale, name: &'static str, value: &str, fault: Option<String>) -> Self {
        Self {
            name,
            label: label(t, name),
            value: value.to_owned(),
            hint: hint(name),
            fault,
            options: options(t, name, value),
            is_common: matches!(name, "model" | "key" | "outcome" | "status" | "member" | "channel"),
        }
    }

    /// Label and value of a field that is set and is among the further fields, which are in a closed part of the form.
    pub(in crate::pages::log) fn chosen(self) -> Option<(&'static str, String)> {
        // A combination of outcomes is not among the options.
        let is_shown = self.is_common && (self.options.is_empty() || self.options.iter().any(|(.., is_chosen)| *is_chosen));
        if is_shown || self.value.is_empty() {
            return None;
        }
        let option = self.options.into_iter().find(|(_, _, is_chosen)| *is_chosen);
        Some((self.label, option.map_or(self.value, |(_, label, _)| label)))
    }
}

fn options(t: Locale, field: &str, value: &str) -> Vec<(&'static str, String, bool)> {
    let words = |words: &[&'static str], label: &dyn Fn(&str) -> String| {
        words.iter().map(|word| (*word, label(word), *word == value)).collect::<Vec<_>>()
    };
    match field {
        "outcome" => {
            let all: Vec<&str> = OUTCOMES.into_iter().chain(FURTHER_OUTCOMES.map(|(word, _)| word)).collect();
            words(&all, &|word| outcome_label(t, word))
        }
        "stream" => words(&["true", "false"], &|word| match word {
            "true" => t.say("log.streams").to_owned(),
            _ => t.say("log.complete_answers").to_owned(),
        }),
        "finish" => words(&FinishReason::WORDS, &|word| finish_label(t, word).to_owned()),
        "protocol" => words(&protocols::of_callers().map(|(protocol, _)| protocol.as_str()).collect::<Vec<_>>(), &|word| {
            protocols::label(t, word).to_owned()
        }),
        TRIED_FAILED => words(&["true"], &|_| t.say("log.tried_failed").to_owned()),
        _ => Vec::new(),
    }
}

/// An example of what is typed.
fn hint(field: &str) -> &'static str {
    match field {
        "status" => "429, 5xx",
        "reason" => "E40",
        "min_sale" | "min_cost" => "0.01",
        "min_tokens" => "1000",
        "min_duration_ms" => "5000",
        "min_ttft_ms" => "2000",
        "tags" => "project=web",
        "account" | "tried_account" => "openai/main",
        _ => "",
    }
}
