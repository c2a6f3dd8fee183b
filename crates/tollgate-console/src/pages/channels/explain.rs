//! "Why is it not chosen?": the accounts that a request would use in order, and why others are excluded, by the function that routes
//! requests.

use std::fmt::Write as _;

use serde::Deserialize;

use super::explain_detail;
use crate::{
    api_error::ApiError,
    pages::{
        clients::shell,
        form::FormData,
        locale::{Language, Locale},
        mark::Mark,
        operations, problem, reasons,
        request::{PageRequest, get},
    },
};

/// The question: a model, and a key or group.
#[derive(Debug, Default)]
pub(super) struct Question {
    pub(super) model: String,
    /// `group:NAME` or the name or id of a key.
    pub(super) caller: String,
    pub(super) protocol: String,
}

#[derive(Debug, Deserialize)]
struct Explanation {
    group: Option<String>,
    refusal: Option<Refusal>,
    planned: Vec<Planned>,
    excluded: Vec<Excluded>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    error: String,
    text: String,
    remedy: Option<String>,
}

impl Refusal {
    fn say(&self, t: Locale, question: &Question) -> String {
        let model = ("model", question.model.as_str());
        match (self.error.as_str(), question.caller.strip_prefix("group:")) {
            ("E13", _) => return t.say_with("explain.no_channel", &[model]),
            ("E14", Some(group)) => return t.say_with("explain.not_in_group", &[model, ("group", group)]),
            ("E14", None) => return t.say_with("explain.not_for_key", &[model]),
            _ => {}
        }
        // The router's English text, with more detail than the name of the error.
        if let (Language::ZhCn, Some(name)) = (t.language, reasons::name(t, &self.error)) {
            return format!("{name}。{}", reasons::advice(t, &self.error, "refused"));
        }
        let sentences = [Some(self.text.as_str()), self.remedy.as_deref()].into_iter().flatten().map(|text| {
            let mut letters = text.chars();
            letters.next().map(|first| format!("{}{}.", first.to_uppercase(), letters.as_str())).unwrap_or_default()
        });
        sentences.collect::<Vec<_>>().join(" ")
    }
}

#[derive(Debug, Deserialize)]
struct Planned {
    channel: String,
    account: String,
    priority: i32,
    weight: u32,
    code: String,
    detail: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Excluded {
    channel: String,
    account: Option<String>,
    code: String,
    detail: Option<String>,
    remedy: String,
}

#[derive(Debug)]
pub(super) struct RoutingExplanation {
    /// Fault of the question, or the reason why the request would be refused.
    pub(super) problem: Option<String>,
    /// The account that a request would use now.
    pub(super) sentence: Option<String>,
    pub(super) rows: Vec<AnswerRow>,
    /// The same on the command line.
    pub(super) command: String,
}

#[derive(Debug)]
pub(super) struct AnswerRow {
    pub(super) rank: String,
    pub(super) channel: String,
    pub(super) account: String,
    pub(super) mark: Mark,
    pub(super) reason: String,
    pub(super) is_here: bool,
}

impl Question {
    /// A typed key takes precedence over the chosen caller.
    pub(super) fn of(query: &FormData) -> Self {
        let value = |name: &str| query.value(name).trim().to_owned();
        let caller = query.filled("key").map_or_else(|| value("caller"), str::to_owned);
        Self { model: value("model"), caller, protocol: value("protocol") }
    }

    pub(super) fn is_asked(&self) -> bool {
        !self.model.is_empty() && !self.caller.is_empty()
    }
}

pub(super) async fn answer(request: &PageRequest, question: &Question, here: &str) -> Result<RoutingExplanation, ApiError> {
    let t = request.t();
    let caller = match question.caller.strip_prefix("group:") {
        Some(group) => ("group", group),
        None => ("key", question.caller.as_str()),
    };
    let mut pairs = vec![("model", question.model.as_str()), caller];
    pairs.extend(Some(("protocol", question.protocol.as_str())).filter(|(_, protocol)| !protocol.is_empty()));
    let mut command = format!("tollgate explain --model {} --{} {}", shell(&question.model), caller.0, shell(caller.1));
    if !question.protocol.is_empty() {
        let _ = write!(command, " --protocol {}", question.protocol);
    }
    let found: Explanation = match request.read(operations::EXPLAIN, get(&pairs)).await {
        Ok(found) => found,
        Err(error) if error.status.is_client_error() && error.status != http::StatusCode::FORBIDDEN => {
            // The admin API says in English which name is wrong.
            let problem = match t.language {
                Language::En => error.message().to_owned(),
                Language::ZhCn if error.status == http::StatusCode::NOT_FOUND => t.say("explain.not_found").to_owned(),
                Language::ZhCn => problem::say(t, &error),
            };
            return Ok(RoutingExplanation { problem: Some(problem), sentence: None, rows: Vec::new(), command });
        }
        Err(error) => return Err(error),
    };
    let planned = found.planned.iter().enumerate().map(|(index, planned)| planned_row(t, index, planned, here));
    let excluded = found.excluded.iter().map(|excluded| excluded_row(t, excluded, here));
    Ok(RoutingExplanation {
        problem: found.refusal.as_ref().map(|refusal| refusal.say(t, question)),
        sentence: sentence(t, &found, here),
        rows: planned.chain(excluded).collect(),
        command,
    })
}

/// A sentence with the account that a request would use now, and the position of this channel in the plan.
fn sentence(t: Locale, found: &Explanation, here: &str) -> Option<String> {
    let first = found.planned.first().filter(|_| found.refusal.is_none())?;
    let group = found.group.as_deref().unwrap_or("–");
    let values = [("channel", first.channel.as_str()), ("account", first.account.as_str()), ("group", group)];
    let place = found.planned.iter().position(|planned| planned.channel == here);
    let goes = t.say_with("explain.goes", &values);
    Some(match place {
        Some(0) => goes,
        Some(place) => format!("{goes} {}", t.say_with("explain.place", &[("place", &(place + 1).to_string())])),
        None => format!("{goes} {}", t.say("explain.excluded_here")),
    })
}

fn planned_row(t: Locale, index: usize, planned: &Planned, here: &str) -> AnswerRow {
    let numbers = [("priority", planned.priority.to_string()), ("weight", planned.weight.to_string())];
    let numbers: Vec<(&str, &str)> = numbers.iter().map(|(name, number)| (*name, number.as_str())).collect();
    let order = t.say_with("explain.order", &numbers);
    let word = match (index, planned.code.as_str()) {
        (0, _) => t.say("explain.first"),
        (_, "planned") => t.say("explain.next"),
        _ => t.say("explain.spare"),
    };
    AnswerRow {
        rank: (index + 1).to_string(),
        channel: planned.channel.clone(),
        account: planned.account.clone(),
        mark: Mark::new("ok", "okc", word),
        reason: match planned.detail.as_ref().and_then(|detail| explain_detail::say(t, &planned.code, detail)) {
            Some(detail) => format!("{order}{}{detail}", t.say("list.separator")),
            None => order,
        },
        is_here: planned.channel == here,
    }
}

fn excluded_row(t: Locale, excluded: &Excluded, here: &str) -> AnswerRow {
    let (tone, icon) = match excluded.code.as_str() {
        "cooling" => ("warn", "cool"),
        "disabled" => ("off", "off"),
        _ => ("warn", "out"),
    };
    let is_of_channel = excluded.detail.as_ref().is_some_and(|detail| detail.contains("limit of the channel"));
    let detail = excluded.detail.as_ref().and_then(|detail| explain_detail::say(t, &excluded.code, detail));
    let detail = detail.map(|detail| format!("{detail}{}", t.choose(". ", "。"))).unwrap_or_default();
    AnswerRow {
        rank: "–".to_owned(),
        channel: excluded.channel.clone(),
        account: excluded.account.clone().unwrap_or_default(),
        mark: Mark::new(tone, icon, word(t, &excluded.code)),
        reason: format!("{detail}{}", remedy(t, &excluded.code, is_of_channel).unwrap_or(&excluded.remedy)),
        is_here: excluded.channel == here,
    }
}

/// Why an account is excluded.
pub(in crate::pages) fn word(t: Locale, code: &str) -> String {
    let word = match code {
        "no_account" => t.say("channel.no_account"),
        "no_mapping" => t.say("explain.no_mapping"),
        "disabled" => t.say("channel.off"),
        "private_network" => t.say("explain.private_network"),
        "cooling" => t.say("channel.cooling"),
        "price_above_limit" => t.say("reason.price_limit"),
        "unpriced" => t.say("reason.no_price"),
        "margin" => t.say("explain.margin"),
        "below_cost" => t.say("explain.below_cost"),
        "cannot_translate" => t.say("explain.cannot_translate"),
        "capability" => t.say("explain.capability"),
        "concurrency" => t.say("explain.concurrency"),
        "rate" => t.say("explain.rate"),
        "budget" => t.say("health.budget_spent"),
        _ => return code.replace('_', " "),
    };
    word.to_owned()
}

/// How to remove the cause, in the reader's language; `is_of_channel`: a limit of the whole channel. `None` if the admin API's own text is
/// shown.
pub(in crate::pages) fn remedy(t: Locale, code: &str, is_of_channel: bool) -> Option<&'static str> {
    Some(match code {
        "concurrency" | "rate" if is_of_channel => t.say("remedy.of_channel"),
        "no_account" => t.say("remedy.no_account"),
        "no_mapping" => t.say("remedy.no_mapping"),
        "disabled" => t.say("remedy.disabled"),
        "private_network" => t.say("remedy.private_network"),
        "price_above_limit" => t.say("remedy.price_limit"),
        "unpriced" => t.say("remedy.unpriced"),
        "margin" => t.say("remedy.margin"),
        "below_cost" => t.say("remedy.below_cost"),
        "cannot_translate" => t.say("remedy.cannot_translate"),
        "capability" => t.say("remedy.capability"),
        "concurrency" => t.say("remedy.concurrency"),
        "rate" => t.say("remedy.rate"),
        "budget" => t.say("remedy.budget"),
        "cooling" => t.say("remedy.cooling"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_states_whether_the_channel_is_planned_or_excluded() {
        let found: Explanation = serde_json::from_value(serde_json::json!({
            "group": "default", "refusal": null,
            "planned": [
                {"channel": "a", "account": "1", "priority": 0, "weight": 1, "code": "planned", "detail": null},
                {"channel": "b", "account": "1", "priority": 1, "weight": 1, "code": "spare", "detail": "2 failures"},
            ],
            "excluded": [{"channel": "c", "account": null, "code": "disabled", "detail": null, "remedy": "switch it on"}],
        }))
        .unwrap();
        let of = |here| sentence(Locale::EN, &found, here).unwrap();
        assert!(of("a").contains('a') && !of("a").contains('2'), "{}", of("a"));
        assert!(of("b").contains('2'), "{}", of("b"));
        assert!(of("c").contains(Locale::EN.say("explain.excluded_here")), "{}", of("c"));
        let row = planned_row(Locale::EN, 1, &found.planned[1], "b");
        assert!(row.is_here && row.reason.contains("2 failures"), "{row:?}");
        assert_eq!(excluded_row(Locale::EN, &found.excluded[0], "a").mark.tone, "off");
    }

    #[test]
    fn refusal_names_its_cause_and_no_code() {
        let refusal = |error: &str| Refusal {
            error: error.to_owned(),
            text: "the key is at its limit".to_owned(),
            remedy: Some("wait a minute".to_owned()),
        };
        let of = |caller: &str| Question { model: "m".to_owned(), caller: caller.to_owned(), protocol: String::new() };
        let said = |error: &str, caller: &str| refusal(error).say(Locale::EN, &of(caller));
        assert_eq!(said("E14", "group:partners"), "Group partners does not offer m.");
        assert_eq!(said("E14", "key_1"), "No group of this key offers m, or the key may not use it.");
        assert_eq!(said("E13", "group:partners"), "No channel serves m.");
        assert_eq!(said("E31", "key_1"), "The key is at its limit. Wait a minute.");
        for error in ["E13", "E14", "E31", "E40"] {
            let said = refusal(error).say(Locale::ZH_CN, &of("group:p"));
            assert!(!said.contains(error) && said.ends_with('。'), "{said}");
        }
    }

    #[test]
    fn every_exclusion_code_has_a_label_and_a_remedy() {
        let source = include_str!("../../../../tollgate-core/src/route/exclusion.rs");
        let codes = source.split("pub const fn code").nth(1).unwrap().split("pub").next().unwrap();
        let codes: Vec<&str> = codes.split('"').skip(1).step_by(2).collect();
        assert!(codes.len() > 10, "{codes:?}");
        for code in codes {
            assert!(remedy(Locale::EN, code, false).is_some(), "{code}");
            assert_ne!(word(Locale::EN, code), code.replace('_', " "), "{code}");
        }
    }
}
