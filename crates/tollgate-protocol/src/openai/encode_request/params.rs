//! Encodes optional parameters.

use crate::{
    Protocol, Thinking,
    json_writer::{Json, JsonObject},
    neutral::{
        Format, Located,
        effort::{ThinkingSetting, as_effort, lowest, nearest, thinking_setting},
        encode_context::EncodeContext,
        schema,
    },
};

/// Efforts assumed for models whose profile states a thinking budget, which chat completions cannot express.
const USUAL_EFFORTS: [&str; 3] = ["low", "medium", "high"];

/// Encodes every parameter that chat completions have.
pub(super) fn write(out: &mut EncodeContext<'_>, body: &mut JsonObject) {
    let allowed = out.supported_params();
    let request = out.request;
    let params = &request.params;
    body.put_some("temperature", allowed.temperature.map(Json::number));
    body.put_some("top_p", allowed.top_p.map(Json::number));
    body.put_some("top_k", allowed.top_k.map(Json::number));
    let limit = if out.profile.max_tokens_field.as_deref() == Some("max_tokens") { "max_tokens" } else { "max_completion_tokens" };
    body.put_some(limit, params.max_tokens.as_ref().map(|given| Json::uint(given.value)));
    body.put_some("n", allowed.n.map(|n| Json::Int(n.into())));
    body.put_some("stop", allowed.stop.map(Json::texts));
    body.put_some("seed", params.seed.as_ref().map(|given| Json::Int(given.value)));
    body.put_some("presence_penalty", allowed.presence.map(Json::number));
    body.put_some("frequency_penalty", allowed.frequency.map(Json::number));
    body.put_some("logprobs", allowed.logprobs.then_some(Json::Bool(true)));
    body.put_some("top_logprobs", allowed.top_logprobs.map(|count| Json::Int(count.into())));
    body.put_some("response_format", format(out));
    body.put_some("reasoning_effort", effort(out).map(Json::Text));
    body.put_some("service_tier", params.tier.as_ref().map(|given| Json::text(&given.value)));
    if let Some(search) = &params.web_search {
        body.put("web_search_options", Json::Raw(search.value.clone()));
    }
    if let Some(user) = &params.user {
        if request.origin == Protocol::OpenAi {
            body.put("user", Json::text(&user.value));
        } else {
            out.report.drop_field(&user.path);
        }
    }
    google(out);
    if params.stream {
        body.put("stream", Json::Bool(true));
        // Usage is always requested: the gateway records it, also when the caller does not receive it.
        body.put("stream_options", Json::object([("include_usage", Json::Bool(true))]));
    }
}

/// Refuses or drops parameters that only Gemini has.
fn google(out: &mut EncodeContext<'_>) {
    let params = &out.request.params;
    let google = &params.google;
    // `image_url.detail` has `low` and `high`, no medium.
    if let Some(resolution) = params.media_resolution.as_ref().filter(|given| !matches!(given.value.as_str(), "low" | "high")) {
        out.report.refuse(&resolution.path);
    }
    if let Some(cached) = &google.cached_content {
        out.report.refuse(&cached.path);
    }
    if let Some(safety) = &google.safety_settings {
        out.report.drop_field(&safety.path);
    }
}

fn format(out: &mut EncodeContext<'_>) -> Option<Json> {
    let Located { value, path } = out.request.params.format.as_ref()?;
    let Format::Schema { schema, name, strict } = value else {
        return Some(Json::object([("type", Json::text("json_object"))]));
    };
    let json = schema::to_json(schema);
    if !schema::root_is_object(&json) {
        out.report.refuse_because(path, "the root type must be object");
        return None;
    }
    let mut named = JsonObject(vec![("name", Json::text(name.as_deref().unwrap_or("response")))]);
    named.put("schema", Json::value(&json));
    named.put_some("strict", strict.map(Json::Bool));
    Some(Json::object([("type", Json::text("json_schema")), ("json_schema", named.json())]))
}

/// The value of `reasoning_effort`. Whether the reply includes thoughts depends on the upstream, which is reported to a Gemini
/// caller that requests them.
fn effort(out: &mut EncodeContext<'_>) -> Option<String> {
    let include = out.request.params.thinking.include.as_ref();
    if let Some(include) = include.filter(|include| include.value && out.request.origin == Protocol::Gemini) {
        out.report.drop_field(&include.path);
    }
    let setting = thinking_setting(out.request);
    let offered: Vec<String> = match &out.profile.thinking {
        Some(Thinking::Effort(words) | Thinking::Level(words) | Thinking::Adaptive(words)) => words.clone(),
        Some(Thinking::Budget(_)) => USUAL_EFFORTS.map(str::to_owned).to_vec(),
        Some(Thinking::None) | None => {
            if let ThinkingSetting::Effort(_, source) | ThinkingSetting::Budget(_, source) = setting {
                out.report.refuse(source.path());
            }
            return None;
        }
    };
    if let ThinkingSetting::Off(source) = setting {
        if offered.iter().any(|word| word == "none") {
            return Some("none".to_owned());
        }
        let word = lowest(&offered)?;
        out.report.adjust(source.path(), &source.in_terms(word));
        return Some(word.to_owned());
    }
    let (wanted, source) = as_effort(&setting)?;
    let (word, changed) = nearest(wanted, &offered)?;
    if changed {
        out.report.adjust(source.path(), &source.in_terms(word));
    }
    Some(word.to_owned())
}
