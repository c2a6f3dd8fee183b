//! Default profiles: by known model names, otherwise by protocol and provider. The facts are from the vendors' public model
//! documentation (OpenAI "Models", Gemini API "Models" and "Thinking", Anthropic "Models overview" and "Extended thinking").

use super::{CanDisableThinking, F64, Profile, Thinking};
use crate::Protocol;

/// The effective profile of a model: stated members, then the defaults for its name, then those of the protocol.
/// `provider` is the catalog's value (`openai`, `gemini`, `anthropic`, `compatible`…), `protocol` the channel's. Every member
/// that has a meaning in that protocol is set.
pub fn effective_profile(provider: &str, protocol: Protocol, upstream_model: &str, stated: &Profile) -> Profile {
    let defaults = match protocol {
        Protocol::OpenAi => openai(provider, upstream_model),
        Protocol::Responses => responses(provider, upstream_model),
        Protocol::Gemini => gemini(upstream_model),
        Protocol::Anthropic => anthropic(upstream_model, stated),
    };
    stated.clone().or(defaults)
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

// === OpenAI ===

fn openai(provider: &str, model: &str) -> Profile {
    let name = model.rsplit('/').next().unwrap_or(model);
    let is_openais = is_openai_model(name);
    let base = Profile {
        thinking: Some(Thinking::None),
        sampling: Some(true),
        penalties: Some(true),
        top_k: Some(false),
        logprobs: Some(true),
        n_max: Some(128),
        stop_max: Some(4),
        forced_tools: Some(true),
        effort_with_tools: Some(true),
        // OpenAI gives no thoughts in chat completions and refuses members that it does not know.
        thought_field: is_openais.then(|| "none".to_owned()),
        tool_properties: is_openais.then_some(true),
        prefill: Some(true),
        // Compatible servers all accept the older name, and only some the newer one.
        max_tokens_field: Some(if provider == "compatible" { "max_tokens" } else { "max_completion_tokens" }.to_owned()),
        temperature_max: Some(F64(2.0)),
        system_role: Some("system".to_owned()),
        ..Profile::default()
    };
    let efforts: &[&str] = match name {
        _ if name.starts_with("gpt-5-chat") => return base,
        // "Unsupported value: 'high' is not supported with this model. Supported values are: 'medium'."
        _ if name.starts_with("gpt-5.") && name.contains("-chat") => &["medium"],
        _ if name.starts_with("gpt-5-pro") => &["high"],
        _ if name.starts_with("gpt-5.") && name.contains("-pro") => &["medium", "high", "xhigh"],
        _ if name.starts_with("gpt-5-codex") || name.starts_with("gpt-5.1-codex") && !name.contains("-max") => {
            &["low", "medium", "high"]
        }
        _ if name.starts_with("gpt-5.") && name.contains("-codex") => &["low", "medium", "high", "xhigh"],
        // 5.1 and all later ones.
        _ if name.starts_with("gpt-5.") => &["none", "low", "medium", "high", "xhigh"],
        _ if name.starts_with("gpt-5") => &["minimal", "low", "medium", "high"],
        _ if ["o1", "o3", "o4"].iter().any(|known| name == *known || name.starts_with(&format!("{known}-"))) => {
            &["low", "medium", "high"]
        }
        _ => return base,
    };
    let can_disable = if efforts.contains(&"none") { CanDisableThinking::Yes } else { CanDisableThinking::No };
    Profile {
        thinking: Some(Thinking::Effort(owned(efforts))),
        can_disable_thinking: Some(can_disable),
        sampling: Some(false),
        penalties: Some(false),
        logprobs: Some(false),
        n_max: Some(8),
        stop_max: Some(0),
        max_tokens_field: Some("max_completion_tokens".to_owned()),
        effort_with_tools: Some(!is_gpt_5_4_or_later(name)),
        ..base
    }
}

/// Beginnings of the names of OpenAI's models that do not think.
const NOT_THINKING: [&str; 4] = ["gpt-3.5", "gpt-4", "gpt-5-chat", "chatgpt-"];

/// Defaults as on chat channels, but sealed thoughts are also requested from models with unknown names, because they may think.
fn responses(provider: &str, model: &str) -> Profile {
    let profile = openai(provider, model);
    let name = model.rsplit('/').next().unwrap_or(model);
    let is_known = profile.thinking != Some(Thinking::None) || NOT_THINKING.iter().any(|known| name.starts_with(known));
    if is_known { profile } else { Profile { thinking: None, ..profile } }
}

/// Whether a model of this name is served by OpenAI or Azure. gpt-oss is not, because its weights are open and others
/// serve it.
fn is_openai_model(name: &str) -> bool {
    let is_reasoning = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
    let is_gpt = name.starts_with("gpt-") && !name.starts_with("gpt-oss");
    is_reasoning || is_gpt || name.starts_with("chatgpt-")
}

/// Whether chat completions refuse function tools beside an effort: "Function tools with `reasoning_effort` are not supported for gpt-5.6
/// in /v1/chat/completions. To use function tools, use /v1/responses or set `reasoning_effort` to 'none'."
fn is_gpt_5_4_or_later(name: &str) -> bool {
    let minor = name.strip_prefix("gpt-5.").map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    minor.and_then(|digits| name["gpt-5.".len()..][..digits].parse::<u32>().ok()).is_some_and(|minor| minor >= 4)
}

// === Gemini ===

fn gemini(model: &str) -> Profile {
    let name = model.rsplit('/').next().unwrap_or(model);
    let newest = |levels: &[&str]| Profile {
        thinking: Some(Thinking::Level(owned(levels))),
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
    let older = |thinking: Thinking, can_disable: CanDisableThinking, json_schema: bool| Profile {
        thinking: Some(thinking),
        can_disable_thinking: Some(can_disable),
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
    // Aliases and future models: defaults of the newest generation, with the levels that all its models support.
    newest(&["low", "high"])
}

fn gemini_common() -> Profile {
    Profile {
        signature_required: Some(false),
        signatures_bound: Some(false),
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

// === Anthropic ===

/// Defaults of a group of Claude models.
struct ClaudeModels {
    names: &'static [&'static str],
    /// Supported efforts; `None` for models with a thinking budget.
    efforts: Option<&'static [&'static str]>,
    can_disable: CanDisableThinking,
    display: bool,
    sampling: bool,
    /// Accepts temperature and `top_p` in one request.
    both_samplers: bool,
    prefill: bool,
    forced_tools: bool,
}

const ALL_EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

const fn adaptive(names: &'static [&'static str], can_disable: CanDisableThinking, forced_tools: bool) -> ClaudeModels {
    ClaudeModels {
        names,
        efforts: Some(ALL_EFFORTS),
        can_disable,
        display: true,
        sampling: false,
        both_samplers: false,
        prefill: false,
        forced_tools,
    }
}

const CLAUDE_MODELS: [ClaudeModels; 10] = [
    ClaudeModels {
        names: &["claude-3", "claude-sonnet-4", "claude-opus-4"],
        efforts: None,
        can_disable: CanDisableThinking::Yes,
        display: false,
        sampling: true,
        both_samplers: true,
        prefill: true,
        forced_tools: true,
    },
    ClaudeModels {
        names: &["claude-haiku-4", "claude-sonnet-4-5", "claude-opus-4-1", "claude-opus-4-5"],
        efforts: None,
        can_disable: CanDisableThinking::Yes,
        display: false,
        sampling: true,
        both_samplers: false,
        prefill: true,
        forced_tools: true,
    },
    ClaudeModels {
        names: &["claude-opus-4-6", "claude-sonnet-4-6"],
        efforts: Some(&["low", "medium", "high", "max"]),
        can_disable: CanDisableThinking::Yes,
        display: true,
        sampling: true,
        both_samplers: false,
        prefill: false,
        forced_tools: true,
    },
    adaptive(&["claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-5", "claude-opus-5"], CanDisableThinking::Yes, true),
    adaptive(&["claude-haiku-5-5"], CanDisableThinking::Yes, true),
    adaptive(&["claude-sonnet-5-5"], CanDisableThinking::BetweenTools, false),
    adaptive(&["claude-opus-5-5"], CanDisableThinking::No, false),
    adaptive(&["claude-fable-5", "claude-mythos-5", "claude-mythos-preview"], CanDisableThinking::No, true),
    adaptive(&["claude-fable-5-1", "claude-fable-5-2"], CanDisableThinking::No, false),
    adaptive(&["claude-mythos-5-1", "claude-mythos-5-2"], CanDisableThinking::No, false),
];

/// Defaults for a Claude model, by the longest matching prefix of its name. Where the catalog states another kind of
/// thinking than the name implies, the defaults are those of models with the stated kind.
fn anthropic(model: &str, stated: &Profile) -> Profile {
    let name = plain_claude_name(model);
    let prefixes = CLAUDE_MODELS.iter().flat_map(|models| models.names.iter().map(move |prefix| (*prefix, models)));
    let matching = prefixes.filter(|(prefix, _)| name.starts_with(prefix));
    let known = matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, models)| models);
    match (&stated.thinking, known) {
        (None, Some(models)) => {
            let thinking = models.efforts.map_or(Thinking::Budget([1_024, 32_000]), |efforts| Thinking::Adaptive(owned(efforts)));
            claude_profile(thinking, models)
        }
        (Some(Thinking::Adaptive(_)), Some(models)) if models.efforts.is_some() => claude_profile(Thinking::None, models),
        (Some(Thinking::None | Thinking::Budget(_)), _) => claude_profile(Thinking::None, &CLAUDE_MODELS[0]),
        (None, None) | (Some(_), _) => {
            claude_profile(Thinking::Adaptive(owned(ALL_EFFORTS)), &adaptive(&[], CanDisableThinking::No, true))
        }
    }
}

fn claude_profile(thinking: Thinking, models: &ClaudeModels) -> Profile {
    Profile {
        thinking: Some(thinking),
        can_disable_thinking: Some(models.can_disable),
        thinking_display: Some(models.display),
        prefill: Some(models.prefill),
        forced_tools: Some(models.forced_tools),
        sampling: Some(models.sampling),
        temperature_with_top_p: Some(models.both_samplers),
        top_k: Some(models.sampling),
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

/// A model name without the prefixes and suffixes of cloud platforms: `eu.anthropic.claude-opus-4-8-v1:0`, `claude-opus-4-8@20260401`.
fn plain_claude_name(model: &str) -> &str {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.rsplit_once("anthropic.").map_or(name, |(_, rest)| rest);
    let name = name.split('@').next().unwrap_or(name);
    name.split("-v1").next().unwrap_or(name)
}

#[cfg(test)]
mod tests;
