//! Encodes `thinking` and `output_config.effort` (`docs/translation.md`, "Thinking").

use super::messages::thinking_block;
use crate::{
    CanDisableThinking, Protocol, Thinking,
    json_writer::{Json, JsonObject},
    neutral::{
        PartKind, Request, Role,
        effort::{
            SettingSource, ThinkingSetting, as_effort, budget_within, effort_of, lowest, nearest, shows_thoughts, thinking_setting,
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
}

/// Converts the caller's setting to one that the model supports. `limit` is the request's `max_tokens`.
pub(super) fn thinking(out: &mut EncodeContext<'_>, limit: u64) -> ThinkingFields {
    let setting = thinking_setting(out.request);
    match &out.profile.thinking {
        Some(Thinking::Adaptive(efforts) | Thinking::Effort(efforts) | Thinking::Level(efforts)) => {
            adaptive(out, &setting, efforts)
        }
        Some(Thinking::Budget(range)) => budgeted(out, &setting, *range, limit),
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
    ThinkingFields { thinking: Some(with_display(out, typed("adaptive"), shows)), effort, budgeted: false }
}

/// For a model whose thinking cannot be disabled: lowest effort, thoughts omitted.
fn always_on(out: &mut EncodeContext<'_>, source: SettingSource<'_>, efforts: &[String]) -> ThinkingFields {
    let effort = lowest(efforts).map(str::to_owned);
    if let Some(effort) = &effort {
        out.report.adjust(source.path(), &source.in_terms(effort));
    }
    ThinkingFields { thinking: Some(with_display(out, typed("adaptive"), false)), effort, budgeted: false }
}

fn budgeted(out: &mut EncodeContext<'_>, setting: &ThinkingSetting<'_>, range: [u64; 2], limit: u64) -> ThinkingFields {
    let off = || ThinkingFields { thinking: Some(typed("disabled").json()), ..ThinkingFields::default() };
    let max_budget = i64::try_from(limit).unwrap_or(i64::MAX) - 1;
    let wanted = match setting {
        ThinkingSetting::Unspecified | ThinkingSetting::Auto => {
            report_include(out);
            return ThinkingFields::default();
        }
        ThinkingSetting::Off(_) if out.profile.can_disable_thinking == Some(CanDisableThinking::Yes) => return off(),
        ThinkingSetting::Off(source) => {
            let min = i64::try_from(range[0]).unwrap_or(i64::MAX).max(MIN_BUDGET_TOKENS);
            let used = if matches!(source, SettingSource::Budget(_)) { min.to_string() } else { source.in_terms(effort_of(min)) };
            out.report.adjust(source.path(), &used);
            min
        }
        ThinkingSetting::Effort(..) | ThinkingSetting::Budget(..) => {
            budget_within(setting, [range[0].max(MIN_BUDGET_TOKENS.unsigned_abs()), range[1]], &mut out.report)
                .unwrap_or(MIN_BUDGET_TOKENS)
        }
    };
    let (ThinkingSetting::Effort(_, source) | ThinkingSetting::Budget(_, source) | ThinkingSetting::Off(source)) = setting else {
        return ThinkingFields::default();
    };
    if lacks_thinking_block(out.request) {
        // With a thinking budget, the API requires the thinking block that preceded the last calls.
        out.report.drop_field(source.path());
        return ThinkingFields::default();
    }
    if max_budget < MIN_BUDGET_TOKENS {
        out.report.adjust(source.path(), &source.in_terms("none"));
        return off();
    }
    let budget = wanted.min(max_budget);
    if budget < wanted && matches!(setting, ThinkingSetting::Budget(..)) {
        out.report.adjust(source.path(), &budget.to_string());
    }
    let mut enabled = typed("enabled");
    enabled.put("budget_tokens", Json::Int(budget));
    ThinkingFields { thinking: Some(with_display(out, enabled, shows_thoughts(out.request))), effort: None, budgeted: true }
}

/// Reports a request for thoughts without a depth: the model may return thoughts anyway.
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
