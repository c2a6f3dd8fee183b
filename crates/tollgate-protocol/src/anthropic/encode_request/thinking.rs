//! `thinking` and `output_config.effort` (translation reference, sections 1.6, 2.1, 2.9).

use super::messages::thinking_block;
use crate::{
    CanDisableThinking, Protocol, Thinking,
    neutral::{
        PartKind, Request, Role,
        effort::{Source, Wish, as_effort, budget_within, effort_of, lowest, nearest, shows_thoughts, wish},
        outgoing::Outgoing,
    },
    written::{Json, Members},
};

/// Smallest budget the protocol takes, in tokens.
const LEAST: i64 = 1_024;

/// What is written about thinking.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// `thinking`.
    pub(super) thinking: Option<Json>,
    /// `output_config.effort`.
    pub(super) effort: Option<String>,
    /// Thinking is on with a budget: sampling and tool choice are restricted.
    pub(super) budgeted: bool,
}

/// Puts the caller's wish in the model's terms. `limit` is the request's `max_tokens`.
pub(super) fn thinking(out: &mut Outgoing<'_>, limit: u64) -> Written {
    let wish = wish(out.request);
    match &out.profile.thinking {
        Some(Thinking::Adaptive(efforts) | Thinking::Effort(efforts) | Thinking::Level(efforts)) => adaptive(out, &wish, efforts),
        Some(Thinking::Budget(range)) => budgeted(out, &wish, *range, limit),
        Some(Thinking::None) | None => {
            if let Wish::Effort(_, source) | Wish::Budget(_, source) = wish {
                out.verdicts.refuse(source.path());
            } else {
                report_include(out);
            }
            Written::default()
        }
    }
}

fn typed(kind: &str) -> Members {
    Members(vec![("type", Json::text(kind))])
}

/// Thinking that is on, with what is to be seen of it where the model knows that switch.
fn shown(out: &Outgoing<'_>, mut thinking: Members, shows: bool) -> Json {
    if out.profile.thinking_display == Some(true) {
        thinking.put("display", Json::text(if shows { "summarized" } else { "omitted" }));
    }
    thinking.json()
}

fn adaptive(out: &mut Outgoing<'_>, wish: &Wish<'_>, efforts: &[String]) -> Written {
    let shows = shows_thoughts(out.request);
    if let Wish::Off(source) = wish {
        let kind = match out.profile.can_disable_thinking {
            Some(CanDisableThinking::Yes) => "disabled",
            Some(CanDisableThinking::BetweenTools) => "between_tools",
            Some(CanDisableThinking::No) | None => return always_on(out, *source, efforts),
        };
        return Written { thinking: Some(typed(kind).json()), ..Written::default() };
    }
    let mut effort = None;
    if let Some((wanted, source)) = as_effort(wish) {
        let found = nearest(wanted, efforts);
        if let Some((word, true)) = found {
            out.verdicts.adjust(source.path(), &source.in_terms(word));
        }
        effort = found.map(|(word, _)| word.to_owned());
    } else if *wish == Wish::Unsaid && !shows {
        return Written::default();
    }
    Written { thinking: Some(shown(out, typed("adaptive"), shows)), effort, budgeted: false }
}

/// A model that cannot stop thinking is asked for its lowest effort, with nothing to be seen of it.
fn always_on(out: &mut Outgoing<'_>, source: Source<'_>, efforts: &[String]) -> Written {
    let effort = lowest(efforts).map(str::to_owned);
    if let Some(effort) = &effort {
        out.verdicts.adjust(source.path(), &source.in_terms(effort));
    }
    Written { thinking: Some(shown(out, typed("adaptive"), false)), effort, budgeted: false }
}

fn budgeted(out: &mut Outgoing<'_>, wish: &Wish<'_>, range: [u64; 2], limit: u64) -> Written {
    let off = || Written { thinking: Some(typed("disabled").json()), ..Written::default() };
    let room = i64::try_from(limit).unwrap_or(i64::MAX) - 1;
    let wanted = match wish {
        Wish::Unsaid | Wish::Open => {
            report_include(out);
            return Written::default();
        }
        Wish::Off(_) if out.profile.can_disable_thinking == Some(CanDisableThinking::Yes) => return off(),
        Wish::Off(source) => {
            let least = i64::try_from(range[0]).unwrap_or(i64::MAX).max(LEAST);
            let used = if matches!(source, Source::Budget(_)) { least.to_string() } else { source.in_terms(effort_of(least)) };
            out.verdicts.adjust(source.path(), &used);
            least
        }
        Wish::Effort(..) | Wish::Budget(..) => {
            budget_within(wish, [range[0].max(LEAST.unsigned_abs()), range[1]], &mut out.verdicts).unwrap_or(LEAST)
        }
    };
    let (Wish::Effort(_, source) | Wish::Budget(_, source) | Wish::Off(source)) = wish else { return Written::default() };
    if lacks_a_block(out.request) {
        // With a budget the model insists on the block its last calls were made behind.
        out.verdicts.drop_field(source.path());
        return Written::default();
    }
    if room < LEAST {
        out.verdicts.adjust(source.path(), &source.in_terms("none"));
        return off();
    }
    let budget = wanted.min(room);
    if budget < wanted && matches!(wish, Wish::Budget(..)) {
        out.verdicts.adjust(source.path(), &budget.to_string());
    }
    let mut enabled = typed("enabled");
    enabled.put("budget_tokens", Json::Int(budget));
    Written { thinking: Some(shown(out, enabled, shows_thoughts(out.request))), effort: None, budgeted: true }
}

/// Thoughts that were asked for without any say about depth: reported, and honoured where they come by themselves.
fn report_include(out: &mut Outgoing<'_>) {
    let include = out.request.params.thinking.include.as_ref();
    if let Some(include) = include.filter(|include| include.value && out.request.origin != Protocol::Anthropic) {
        out.verdicts.drop_field(&include.src);
    }
}

/// Whether the last model turn has calls and no thinking block of this vendor.
fn lacks_a_block(request: &Request) -> bool {
    let last = request.turns.iter().rev().find(|turn| turn.role == Role::Model);
    last.is_some_and(|turn| {
        let calls = turn.parts.iter().any(|part| matches!(part.kind, PartKind::Call { .. }));
        calls && !turn.parts.iter().any(|part| thinking_block(part).is_some())
    })
}
