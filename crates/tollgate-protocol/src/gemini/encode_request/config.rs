//! Encodes `generationConfig`.

use super::tools::fitting;
use crate::{
    CanDisableThinking, Thinking,
    json_writer::{Json, JsonObject},
    neutral::{
        Format, Located,
        effort::{
            SettingSource, ThinkingSetting, as_effort, budget_within, effort_of, lowest, nearest, shows_thoughts, thinking_setting,
        },
        encode_context::EncodeContext,
    },
};

/// Encodes every parameter that `generationConfig` has.
pub(super) fn generation_config(out: &mut EncodeContext<'_>) -> JsonObject {
    let allowed = out.supported_params();
    let params = &out.request.params;
    let mut config = JsonObject::default();
    config.put_some("temperature", allowed.temperature.map(Json::number));
    config.put_some("topP", allowed.top_p.map(Json::number));
    config.put_some("topK", allowed.top_k.map(Json::number));
    config.put_some("candidateCount", allowed.n.map(|n| Json::Int(n.into())));
    config.put_some("maxOutputTokens", params.max_tokens.as_ref().map(|given| Json::uint(given.value)));
    config.put_some("stopSequences", allowed.stop.map(Json::texts));
    // The field is an int32. The low bits of a wider seed are as good a seed.
    let seed = |given: &Located<i64>| Json::Int(if out.request.is_native() { given.value } else { given.value & 0x7fff_ffff });
    config.put_some("seed", params.seed.as_ref().map(seed));
    config.put_some("presencePenalty", allowed.presence.map(Json::number));
    config.put_some("frequencyPenalty", allowed.frequency.map(Json::number));
    config.put_some("responseLogprobs", allowed.logprobs.then_some(Json::Bool(true)));
    config.put_some("logprobs", allowed.top_logprobs.map(|count| Json::Int(count.into())));
    if let Some(resolution) = &params.media_resolution {
        config.put("mediaResolution", Json::text(format!("MEDIA_RESOLUTION_{}", resolution.value.to_ascii_uppercase())));
    }
    format(out, &mut config);
    config.put_some("thinkingConfig", thinking(out).some());
    config
}

fn format(out: &mut EncodeContext<'_>, config: &mut JsonObject) {
    let Some(Located { value, path }) = &out.request.params.format else { return };
    if !out.request.tools.is_empty() && out.profile.tools_with_json == Some(false) {
        out.report.refuse_because(path, "cannot be combined with 'tools'");
        return;
    }
    config.put("responseMimeType", Json::text("application/json"));
    if let Format::Schema { schema, .. } = value {
        let (name, value) = fitting(out, schema, "responseSchema", "responseJsonSchema");
        config.put(name, value);
    }
}

/// Levels for models with thinking levels, budgets for models with thinking budgets, never both.
fn thinking(out: &mut EncodeContext<'_>) -> JsonObject {
    let mut config = JsonObject::default();
    let setting = thinking_setting(out.request);
    match &out.profile.thinking {
        Some(Thinking::Level(levels) | Thinking::Effort(levels) | Thinking::Adaptive(levels)) => {
            config.put_some("thinkingLevel", level(out, &setting, levels).map(|level| Json::text(level.to_ascii_uppercase())));
        }
        Some(Thinking::Budget(range)) => config.put_some("thinkingBudget", budget(out, &setting, *range).map(Json::Int)),
        Some(Thinking::None) | None => {
            if let ThinkingSetting::Effort(_, source) | ThinkingSetting::Budget(_, source) = setting {
                out.report.refuse(source.path());
            } else if let Some(include) = out.request.params.thinking.include.as_ref().filter(|include| include.value) {
                out.report.drop_field(&include.path);
            }
            return config;
        }
    }
    let specified = out.request.params.thinking.include.is_some() || shows_thoughts(out.request);
    if matches!(setting, ThinkingSetting::Off(_)) {
        config.put("includeThoughts", Json::Bool(false));
    } else if specified {
        config.put("includeThoughts", Json::Bool(shows_thoughts(out.request)));
    }
    config
}

/// The model's level for the setting. "Off" becomes the lowest level: models with levels cannot stop thinking.
fn level<'p>(out: &mut EncodeContext<'_>, setting: &ThinkingSetting<'_>, levels: &'p [String]) -> Option<&'p str> {
    if let ThinkingSetting::Off(source) = setting {
        let level = lowest(levels)?;
        out.report.adjust(source.path(), &source.in_terms(level));
        return Some(level);
    }
    let (wanted, source) = as_effort(setting)?;
    let (level, changed) = nearest(wanted, levels)?;
    if changed {
        out.report.adjust(source.path(), &source.in_terms(level));
    }
    Some(level)
}

fn budget(out: &mut EncodeContext<'_>, setting: &ThinkingSetting<'_>, range: [u64; 2]) -> Option<i64> {
    let ThinkingSetting::Off(source) = setting else {
        let dynamic = out.request.params.thinking.budget.as_ref().is_some_and(|budget| budget.value < 0);
        return if dynamic { Some(-1) } else { budget_within(setting, range, &mut out.report) };
    };
    if out.profile.can_disable_thinking == Some(CanDisableThinking::Yes) {
        return Some(0);
    }
    let least = i64::try_from(range[0]).unwrap_or(i64::MAX);
    let used = if matches!(source, SettingSource::Budget(_)) { least.to_string() } else { source.in_terms(effort_of(least)) };
    out.report.adjust(source.path(), &used);
    Some(least)
}
