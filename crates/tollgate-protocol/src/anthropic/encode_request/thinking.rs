//! Encodes `thinking` and `output_config.effort` (`docs/translation.md`, "Thinking").

use super::messages::thinking_block;
use crate::{
    CanDisableThinking, Protocol, Thinking,
    json_writer::{Json, JsonObject},
    neutral::{
        PartKind, Request, Role,
        effort::{
            SettingSource, ThinkingSetting, as_effort, budget_in, effort_of, effort_within, lowest, nearest, shows_thoughts,
            thinking_setting,
        },
        encode_context::EncodeContext,
    },
};

/// Minimum budget of the protocol, in tokens.
const MIN_BUDGET_TOKENS: i64 = 1_024;

#[derive(Debug, Default)]
pub(super) struct ThinkingFields {
    pub(super) thinking: Option<Json>,
    pub(super) effort: Option<String>,
    /// Thinking has a budget, which restricts sampling and tool choice.
    pub(super) budgeted: bool,
    /// `max_tokens` of a request without a limit of the caller's: the budget plus tokens for the answer.
    pub(super) max_tokens: Option<u64>,
}

/// Converts the caller's setting to one that the model supports. `given` is the caller's `max_tokens`, `fallback` the value
/// for a request without one.
pub(super) fn thinking(out: &mut EncodeContext<'_>, given: Option<u64>, fallback: u64) -> ThinkingFields {
    let setting = thinking_setting(out.request);
    match &out.profile.thinking {
        Some(Thinking::Adaptive(efforts) | Thinking::Effort(efforts) | Thinking::Level(efforts)) => {
            adaptive(out, &setting, efforts)
        }
        Some(Thinking::Budget(range)) => budgeted(out, &setting, *range, given, fallback),
        Some(Thinking::None) | None => {
            if let ThinkingSetting::Effort(_, source) | ThinkingSetting::Budget(_, source) = setting {
                out.report.refuse(source.path());
            } else {
                report_include(out);
            }
            ThinkingFields::default()
        }
    }
}

fn typed(kind: &str) -> JsonObject {
    JsonObject(vec![("type", Json::text(kind))])
}

/// Adds `display` where the model supports it.
fn with_display(out: &EncodeContext<'_>, mut thinking: JsonObject, shows: bool) -> Json {
    if out.profile.thinking_display == Some(true) {
        thinking.put("display", Json::text(if shows { "summarized" } else { "omitted" }));
    }
    thinking.json()
}

fn adaptive(out: &mut EncodeContext<'_>, setting: &ThinkingSetting<'_>, efforts: &[String]) -> ThinkingFields {
    let shows = shows_thoughts(out.request);
    if let ThinkingSetting::Off(source) = setting {
        let kind = match out.profile.can_disable_thinking {
            Some(CanDisableThinking::Yes) => "disabled",
            Some(CanDisableThinking::BetweenTools) => "between_tools",
            Some(CanDisableThinking::No) | None => return always_on(out, *source, efforts),
        };
        return ThinkingFields { thinking: Some(typed(kind).json()), ..ThinkingFields::default() };
    }
    let mut effort = None;
    if let Some((wanted, source)) = as_effort(setting) {
        let found = nearest(wanted, efforts);
        if let Some((word, true)) = found {
            out.report.adjust(source.path(), &source.in_terms(word));
        }
        effort = found.map(|(word, _)| word.to_owned());
    } else if *setting == ThinkingSetting::Unspecified && !shows {
        return ThinkingFields::default();
    }
    ThinkingFields { thinking: Some(with_display(out, typed("adaptive"), shows)), effort, ..ThinkingFields::default() }
}

/// For a model whose thinking cannot be disabled: lowest effort, thoughts omitted.
fn always_on(out: &mut EncodeContext<'_>, source: SettingSource<'_>, efforts: &[String]) -> ThinkingFields {
    let effort = lowest(efforts).map(str::to_owned);
    if let Some(effort) = &effort {
        out.report.adjust(source.path(), &source.in_terms(effort));
    }
    ThinkingFields { thinking: Some(with_display(out, typed("adaptive"), false)), effort, ..ThinkingFields::default() }
}

fn budgeted(
    out: &mut EncodeContext<'_>,
    setting: &ThinkingSetting<'_>,
    range: [u64; 2],
    given: Option<u64>,
    fallback: u64,
) -> ThinkingFields {
    let off = || ThinkingFields { thinking: Some(typed("disabled").json()), ..ThinkingFields::default() };
    let range = [range[0].max(MIN_BUDGET_TOKENS.unsigned_abs()), range[1]];
    let (wanted, source) = match setting {
        ThinkingSetting::Unspecified | ThinkingSetting::Auto => {
            report_include(out);
            return ThinkingFields::default();
        }
        ThinkingSetting::Off(_) if out.profile.can_disable_thinking == Some(CanDisableThinking::Yes) => return off(),
        ThinkingSetting::Off(source) => (i64::try_from(range[0]).unwrap_or(i64::MAX), source),
        ThinkingSetting::Effort(_, source) | ThinkingSetting::Budget(_, source) => {
            (budget_in(setting, range).unwrap_or(MIN_BUDGET_TOKENS), source)
        }
    };
    if lacks_thinking_block(out.request) {
        // With a thinking budget, the API requires the thinking block that preceded the last calls.
        out.report.drop_field(source.path());
        return ThinkingFields::default();
    }
    let limit = given.unwrap_or_else(|| fallback.saturating_add(wanted.unsigned_abs()).min(range[1].max(fallback)));
    let reserved = answer_reserve(setting, limit, given.is_none().then_some(fallback));
    let max = i64::try_from(limit.saturating_sub(reserved)).unwrap_or(i64::MAX);
    if max < MIN_BUDGET_TOKENS {
        out.report.adjust(source.path(), &source.in_terms("none"));
        return off();
    }
    let budget = wanted.min(max);
    report_budget(out, setting, budget, wanted);
    let mut enabled = typed("enabled");
    enabled.put("budget_tokens", Json::Int(budget));
    let thinking = Some(with_display(out, enabled, shows_thoughts(out.request)));
    ThinkingFields { thinking, effort: None, budgeted: true, max_tokens: Some(limit) }
}

/// Tokens of `limit` reserved for the answer: a fifth, or the default limit (`fallback`) of a request without one. If the caller
/// gave a budget below its limit, the difference is the caller's own choice for the answer.
fn answer_reserve(setting: &ThinkingSetting<'_>, limit: u64, fallback: Option<u64>) -> u64 {
    let chosen = matches!(setting, ThinkingSetting::Budget(number, _) if fallback.is_none() && number.unsigned_abs() < limit);
    if chosen { 1 } else { (limit / 5).min(fallback.unwrap_or(u64::MAX)).max(1) }
}

/// Reports a budget other than the requested one, in the caller's terms.
fn report_budget(out: &mut EncodeContext<'_>, setting: &ThinkingSetting<'_>, budget: i64, wanted: i64) {
    match setting {
        ThinkingSetting::Budget(number, source) if *number != budget => out.report.adjust(source.path(), &budget.to_string()),
        ThinkingSetting::Off(SettingSource::Budget(path)) => out.report.adjust(path, &budget.to_string()),
        ThinkingSetting::Off(source) => out.report.adjust(source.path(), &source.in_terms(effort_of(budget))),
        ThinkingSetting::Effort(_, source) if budget < wanted => {
            out.report.adjust(source.path(), &source.in_terms(effort_within(budget)));
        }
        ThinkingSetting::Effort(..) | ThinkingSetting::Budget(..) | ThinkingSetting::Unspecified | ThinkingSetting::Auto => {}
    }
}

/// Reports a request for thoughts without a depth: the model may still return thoughts.
fn report_include(out: &mut EncodeContext<'_>) {
    let include = out.request.params.thinking.include.as_ref();
    if let Some(include) = include.filter(|include| include.value && out.request.origin != Protocol::Anthropic) {
        out.report.drop_field(&include.path);
    }
}

/// True when the last model turn has calls and no Anthropic thinking block.
fn lacks_thinking_block(request: &Request) -> bool {
    let last = request.turns.iter().rev().find(|turn| turn.role == Role::Model);
    last.is_some_and(|turn| {
        let calls = turn.parts.iter().any(|part| matches!(part.kind, PartKind::Call { .. }));
        calls && !turn.parts.iter().any(|part| thinking_block(part).is_some())
    })
}
