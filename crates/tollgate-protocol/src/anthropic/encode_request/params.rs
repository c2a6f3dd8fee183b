//! Encodes optional parameters.

use serde_json::Number;

use super::thinking::ThinkingFields;
use crate::{
    Protocol,
    json_writer::{Json, JsonObject},
    neutral::{Format, Located, encode_context::EncodeContext, schema},
};

/// Minimum `top_p` with a thinking budget (Anthropic API docs, "Extended thinking").
const MIN_TOP_P: f64 = 0.95;

/// True for 1, the default temperature.
fn is_one(value: f64) -> bool {
    (value - 1.0).abs() < f64::EPSILON
}

/// Encodes the parameters that the protocol supports and refuses the others.
pub(super) fn write(out: &mut EncodeContext<'_>, body: &mut JsonObject, thinking: ThinkingFields) {
    let request = out.request;
    let params = &request.params;
    let mut supported = out.supported_params();
    if thinking.budgeted {
        let restrict = |number: &mut Option<&Number>, given: &Option<Located<Number>>, is_allowed: &dyn Fn(f64) -> bool| {
            let (Some(value), Some(given)) = (*number, given) else { return None };
            if value.as_f64().is_some_and(is_allowed) {
                return None;
            }
            *number = None;
            Some(given.path.clone())
        };
        let refused = [
            restrict(&mut supported.temperature, &params.temperature, &is_one),
            restrict(&mut supported.top_p, &params.top_p, &|value| value >= MIN_TOP_P),
            restrict(&mut supported.top_k, &params.top_k, &|_| false),
        ];
        for field in refused.into_iter().flatten() {
            out.report.refuse_because(&field, "cannot be combined with thinking");
        }
    }
    body.put_some("thinking", thinking.thinking);
    let mut output = JsonObject::default();
    output.put_some("effort", thinking.effort.map(Json::Text));
    output.put_some("format", format(out));
    body.put_some("output_config", output.some());
    body.put_some("temperature", supported.temperature.map(Json::number));
    body.put_some("top_p", supported.top_p.map(Json::number));
    body.put_some("top_k", supported.top_k.map(Json::number));
    if let (Some(stop), Some(given)) = (supported.stop, &params.stop) {
        if stop.iter().any(|sequence| sequence.trim().is_empty()) {
            out.report.refuse_because(&given.path, "a stop sequence must not be blank");
        } else {
            body.put("stop_sequences", Json::texts(stop));
        }
    }
    refuse_unsupported(out);
    user(out, body);
    if params.stream {
        body.put("stream", Json::Bool(true));
    }
}

/// Refuses parameters without a counterpart.
fn refuse_unsupported(out: &mut EncodeContext<'_>) {
    let params = &out.request.params;
    let google = &params.google;
    let unsupported = [
        params.seed.as_ref().map(|given| &given.path),
        params.tier.as_ref().map(|given| &given.path),
        params.web_search.as_ref().map(|given| &given.path),
        google.cached_content.as_ref().map(|given| &given.path),
        params.media_resolution.as_ref().map(|given| &given.path),
    ];
    for field in unsupported.into_iter().flatten() {
        out.report.refuse(field);
    }
    if let Some(safety) = &google.safety_settings {
        out.report.drop_field(&safety.path);
    }
}

/// Encodes the end-user id where the channel allows it.
fn user(out: &mut EncodeContext<'_>, body: &mut JsonObject) {
    let Some(user) = &out.request.params.user else { return };
    if out.options.pass_user || out.request.origin == Protocol::Anthropic {
        body.put("metadata", Json::object([("user_id", Json::text(&user.value))]));
    } else {
        out.report.drop_field(&user.path);
    }
}

fn format(out: &mut EncodeContext<'_>) -> Option<Json> {
    let Located { value, path } = out.request.params.format.as_ref()?;
    let Format::Schema { schema, .. } = value else {
        out.report.refuse(path);
        return None;
    };
    let schema = Json::value(&schema::to_json(schema));
    Some(Json::object([("type", Json::text("json_schema")), ("schema", schema)]))
}
