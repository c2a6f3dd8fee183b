//! Optional parameters.

use serde_json::Number;

use super::thinking::ThinkingFields;
use crate::{
    Protocol,
    json_writer::{Json, JsonObject},
    neutral::{Format, Located, encode_context::EncodeContext, schema},
};

/// Lowest `top_p` beside a thinking budget.
const MIN_TOP_P: f64 = 0.95;

/// Exactly one: what the vendor calls unset.
fn is_one(value: f64) -> bool {
    (value - 1.0).abs() < f64::EPSILON
}

/// Writes everything the caller asked for that has a place here.
pub(super) fn write(out: &mut EncodeContext<'_>, body: &mut JsonObject, thinking: ThinkingFields) {
    let request = out.request;
    let params = &request.params;
    let mut allowed = out.allowed();
    if thinking.budgeted {
        let restrict = |number: &mut Option<&Number>, given: &Option<Located<Number>>, fine: &dyn Fn(f64) -> bool| {
            let (Some(value), Some(given)) = (*number, given) else { return None };
            if value.as_f64().is_some_and(fine) {
                return None;
            }
            *number = None;
            Some(given.path.clone())
        };
        let refused = [
            restrict(&mut allowed.temperature, &params.temperature, &is_one),
            restrict(&mut allowed.top_p, &params.top_p, &|value| value >= MIN_TOP_P),
            restrict(&mut allowed.top_k, &params.top_k, &|_| false),
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
    body.put_some("temperature", allowed.temperature.map(Json::number));
    body.put_some("top_p", allowed.top_p.map(Json::number));
    body.put_some("top_k", allowed.top_k.map(Json::number));
    if let (Some(stop), Some(given)) = (allowed.stop, &params.stop) {
        if stop.iter().any(|sequence| sequence.trim().is_empty()) {
            out.report.refuse_because(&given.path, "a stop sequence must not be blank");
        } else {
            body.put("stop_sequences", Json::texts(stop));
        }
    }
    refuse_foreign(out);
    user(out, body);
    if params.stream {
        body.put("stream", Json::Bool(true));
    }
}

/// Parameters without any counterpart.
fn refuse_foreign(out: &mut EncodeContext<'_>) {
    let params = &out.request.params;
    let google = &params.google;
    let foreign = [
        params.seed.as_ref().map(|given| &given.path),
        params.tier.as_ref().map(|given| &given.path),
        params.web_search.as_ref().map(|given| &given.path),
        google.cached_content.as_ref().map(|given| &given.path),
        params.media_resolution.as_ref().map(|given| &given.path),
    ];
    for field in foreign.into_iter().flatten() {
        out.report.refuse(field);
    }
    if let Some(safety) = &google.safety_settings {
        out.report.drop_field(&safety.path);
    }
}

/// The person behind the caller travels only where the channel allows it.
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
