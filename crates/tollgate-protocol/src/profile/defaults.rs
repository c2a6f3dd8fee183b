//! What is taken for granted of an upstream model where the catalog does not say: by known names, else by provider
//! (translation reference, section 1.8; Anthropic wire reference, section 4).

use super::{CanDisableThinking, F64, Profile, Thinking};
use crate::Protocol;

/// The facts that count for a model: what is stated, then what is known of its name, then the provider's row.
/// `provider` is the catalog's word (`openai`, `gemini`, `anthropic`, `compatible`…); `protocol` is what the channel
/// speaks. Every member of the result that has a meaning on that protocol is set.
#[must_use]
pub fn effective_profile(provider: &str, protocol: Protocol, upstream_model: &str, stated: &Profile) -> Profile {
    let named = match protocol {
        Protocol::OpenAi => openai(provider, upstream_model),
        Protocol::Gemini => gemini(upstream_model),
        Protocol::Anthropic => anthropic(upstream_model, stated),
    };
    over(stated, &named)
}

/// `first` where it says something, else `second`.
fn over(first: &Profile, second: &Profile) -> Profile {
    Profile {
        thinking: first.thinking.clone().or_else(|| second.thinking.clone()),
        can_disable_thinking: first.can_disable_thinking.or(second.can_disable_thinking),
        thinking_display: first.thinking_display.or(second.thinking_display),
        prefill: first.prefill.or(second.prefill),
        forced_tools: first.forced_tools.or(second.forced_tools),
        signature_required: first.signature_required.or(second.signature_required),
        call_ids: first.call_ids.or(second.call_ids),
        sampling: first.sampling.or(second.sampling),
        penalties: first.penalties.or(second.penalties),
        top_k: first.top_k.or(second.top_k),
        logprobs: first.logprobs.or(second.logprobs),
        n_max: first.n_max.or(second.n_max),
        stop_max: first.stop_max.or(second.stop_max),
        json_schema_fields: first.json_schema_fields.or(second.json_schema_fields),
        tools_with_json: first.tools_with_json.or(second.tools_with_json),
        media_in_results: first.media_in_results.or(second.media_in_results),
        part_media_resolution: first.part_media_resolution.or(second.part_media_resolution),
        validated_mode: first.validated_mode.or(second.validated_mode),
        max_tokens_field: first.max_tokens_field.clone().or_else(|| second.max_tokens_field.clone()),
        default_max_tokens: first.default_max_tokens.or(second.default_max_tokens),
        temperature_max: first.temperature_max.or(second.temperature_max),
        fetches_urls: first.fetches_urls.or(second.fetches_urls),
        system_role: first.system_role.clone().or_else(|| second.system_role.clone()),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

// === chat completions ===

fn openai(provider: &str, model: &str) -> Profile {
    let base = Profile {
        thinking: Some(Thinking::None),
        sampling: Some(true),
        penalties: Some(true),
        top_k: Some(false),
        logprobs: Some(true),
        n_max: Some(128),
        stop_max: Some(4),
        forced_tools: Some(true),
        prefill: Some(true),
        // Servers other than the vendor's own know the older name for certain, the newer one only sometimes.
        max_tokens_field: Some(if provider == "compatible" { "max_tokens" } else { "max_completion_tokens" }.to_owned()),
        temperature_max: Some(F64(2.0)),
        system_role: Some("system".to_owned()),
        ..Profile::default()
    };
    let name = model.rsplit('/').next().unwrap_or(model);
    let efforts: &[&str] = match name {
        _ if name.starts_with("gpt-5-chat") => return base,
        _ if ["gpt-5.1", "gpt-5.2", "gpt-5.3", "gpt-5.4", "gpt-5.5"].iter().any(|known| name.starts_with(known)) => {
            &["none", "low", "medium", "high", "xhigh"]
        }
        _ if name.starts_with("gpt-5") => &["minimal", "low", "medium", "high"],
        _ if ["o1", "o3", "o4"].iter().any(|known| name == *known || name.starts_with(&format!("{known}-"))) => {
            &["low", "medium", "high"]
        }
        _ => return base,
    };
    let off = if efforts.contains(&"none") { CanDisableThinking::Yes } else { CanDisableThinking::No };
    Profile {
        thinking: Some(Thinking::Effort(words(efforts))),
        can_disable_thinking: Some(off),
        sampling: Some(false),
        penalties: Some(false),
        logprobs: Some(false),
        n_max: Some(8),
        stop_max: Some(0),
        max_tokens_field: Some("max_completion_tokens".to_owned()),
        ..base
    }
}

// === native ===

/// Facts of a Gemini generation.
fn gemini(model: &str) -> Profile {
    let name = model.rsplit('/').next().unwrap_or(model);
    let newest = |levels: &[&str]| Profile {
        thinking: Some(Thinking::Level(words(levels))),
        can_disable_thinking: Some(CanDisableThinking::No),
        signature_required: Some(true),
        call_ids: Some(true),
        penalties: Some(false),
        n_max: Some(1),
        logprobs: Some(false),
        tools_with_json: Some(true),
        media_in_results: Some(true),
        part_media_resolution: Some(true),
        ..gemini_common()
    };
    let older = |thinking: Thinking, off: CanDisableThinking, json_schema: bool| Profile {
        thinking: Some(thinking),
        can_disable_thinking: Some(off),
        json_schema_fields: Some(json_schema),
        ..gemini_common()
    };
    if name.starts_with("gemini-2.5-pro") {
        return older(Thinking::Budget([128, 32_768]), CanDisableThinking::No, true);
    }
    if name.starts_with("gemini-2.5-flash-lite") {
        return older(Thinking::Budget([512, 24_576]), CanDisableThinking::Yes, true);
    }
    if name.starts_with("gemini-2.5") {
        return older(Thinking::Budget([1, 24_576]), CanDisableThinking::Yes, true);
    }
    if ["gemini-1", "gemini-2", "gemma", "learnlm"].iter().any(|known| name.starts_with(known)) {
        return older(Thinking::None, CanDisableThinking::Yes, false);
    }
    if name.starts_with("gemini-3") && name.contains("flash") {
        return newest(&["minimal", "low", "medium", "high"]);
    }
    if name.starts_with("gemini-3") {
        return newest(&["low", "medium", "high"]);
    }
    // Aliases and models to come: the newest generation's rules, with the two levels all of it knows.
    newest(&["low", "high"])
}

fn gemini_common() -> Profile {
    Profile {
        signature_required: Some(false),
        call_ids: Some(false),
        sampling: Some(true),
        penalties: Some(true),
        top_k: Some(true),
        logprobs: Some(true),
        n_max: Some(8),
        stop_max: Some(5),
        json_schema_fields: Some(true),
        tools_with_json: Some(false),
        media_in_results: Some(false),
        part_media_resolution: Some(false),
        validated_mode: Some(true),
        forced_tools: Some(true),
        prefill: Some(true),
        temperature_max: Some(F64(2.0)),
        fetches_urls: Some(false),
        ..Profile::default()
    }
}

// === messages ===

/// One row of the table of Claude models: how it thinks (`None`: with a budget), how thinking is switched off, whether
/// it knows `display`, takes sampling, prefill, forced tools.
struct Row {
    names: &'static [&'static str],
    efforts: Option<&'static [&'static str]>,
    off: CanDisableThinking,
    display: bool,
    sampling: bool,
    prefill: bool,
    forced: bool,
}

const ALL_FIVE: &[&str] = &["low", "medium", "high", "xhigh", "max"];

const fn adaptive(names: &'static [&'static str], off: CanDisableThinking, forced: bool) -> Row {
    Row { names, efforts: Some(ALL_FIVE), off, display: true, sampling: false, prefill: false, forced }
}

const ROWS: [Row; 9] = [
    Row {
        names: &["claude-3", "claude-haiku-4", "claude-sonnet-4", "claude-opus-4", "claude-opus-4-5"],
        efforts: None,
        off: CanDisableThinking::Yes,
        display: false,
        sampling: true,
        prefill: true,
        forced: true,
    },
    Row {
        names: &["claude-opus-4-6", "claude-sonnet-4-6"],
        efforts: Some(&["low", "medium", "high", "max"]),
        off: CanDisableThinking::Yes,
        display: true,
        sampling: true,
        prefill: false,
        forced: true,
    },
    adaptive(&["claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-5", "claude-opus-5"], CanDisableThinking::Yes, true),
    adaptive(&["claude-haiku-5-5"], CanDisableThinking::Yes, true),
    adaptive(&["claude-sonnet-5-5"], CanDisableThinking::BetweenTools, false),
    adaptive(&["claude-opus-5-5"], CanDisableThinking::No, false),
    adaptive(&["claude-fable-5", "claude-mythos-5", "claude-mythos-preview"], CanDisableThinking::No, true),
    adaptive(&["claude-fable-5-1", "claude-fable-5-2"], CanDisableThinking::No, false),
    adaptive(&["claude-mythos-5-1", "claude-mythos-5-2"], CanDisableThinking::No, false),
];

/// What is known of a Claude model's name, or the provider's row for unknown ones. A stated kind of thinking that the
/// name does not have brings the facts of its own kind along.
fn anthropic(model: &str, stated: &Profile) -> Profile {
    let name = plain_claude_name(model);
    let matching = ROWS.iter().flat_map(|row| row.names.iter().map(move |prefix| (*prefix, row)));
    let row = matching.filter(|(prefix, _)| name.starts_with(prefix)).max_by_key(|(prefix, _)| prefix.len()).map(|(_, row)| row);
    let budget = |thinking: Thinking| anthropic_row(thinking, &ROWS[0]);
    let unknown = || {
        let row = adaptive(&[], CanDisableThinking::No, true);
        anthropic_row(Thinking::Adaptive(words(ALL_FIVE)), &row)
    };
    match (&stated.thinking, row) {
        (None, Some(row)) => {
            let thinking = row.efforts.map_or(Thinking::Budget([1_024, 32_000]), |efforts| Thinking::Adaptive(words(efforts)));
            anthropic_row(thinking, row)
        }
        (Some(Thinking::None | Thinking::Budget(_)), Some(row)) if row.efforts.is_none() => budget(Thinking::None),
        (Some(Thinking::Adaptive(_)), Some(row)) if row.efforts.is_some() => anthropic_row(Thinking::None, row),
        (Some(Thinking::None | Thinking::Budget(_)), _) => budget(Thinking::None),
        (None, None) | (Some(_), _) => unknown(),
    }
}

fn anthropic_row(thinking: Thinking, row: &Row) -> Profile {
    Profile {
        thinking: Some(thinking),
        can_disable_thinking: Some(row.off),
        thinking_display: Some(row.display),
        prefill: Some(row.prefill),
        forced_tools: Some(row.forced),
        sampling: Some(row.sampling),
        top_k: Some(row.sampling),
        penalties: Some(false),
        n_max: Some(1),
        logprobs: Some(false),
        temperature_max: Some(F64(1.0)),
        default_max_tokens: Some(16_384),
        tools_with_json: Some(true),
        media_in_results: Some(true),
        fetches_urls: Some(true),
        ..Profile::default()
    }
}

/// A model name without what resellers put around it: `eu.anthropic.claude-opus-4-8-v1:0`, `claude-opus-4-8@20260401`.
fn plain_claude_name(model: &str) -> &str {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.rsplit_once("anthropic.").map_or(name, |(_, rest)| rest);
    let name = name.split('@').next().unwrap_or(name);
    name.split("-v1").next().unwrap_or(name)
}

#[cfg(test)]
mod tests;
