//! Encodes requests for Messages upstreams.

mod messages;
mod params;
mod thinking;
mod tools;

use crate::{
    Method, Protocol,
    json_writer::{Json, JsonObject},
    neutral::{Operation, encode_context::EncodeContext},
};

/// Output limit in tokens where neither the caller nor the profile gives one; the protocol requires it.
const DEFAULT_MAX_TOKENS: u64 = 16_384;

/// Encodes the body; also returns its method.
pub(crate) fn encode(out: &mut EncodeContext<'_>) -> (Method, Json) {
    match &out.request.operation {
        Operation::Generate => (Method::Chat, generate(out)),
        Operation::Count => (Method::CountTokens, count(out)),
        Operation::Embed(embed) => {
            let field = if out.request.origin == Protocol::OpenAi {
                "input"
            } else if embed.list {
                "requests"
            } else {
                "content"
            };
            out.report.refuse_part(field, Some("the upstream protocol has no embeddings"));
            (Method::Embeddings, Json::Object(Vec::new()))
        }
    }
}

fn generate(out: &mut EncodeContext<'_>) -> Json {
    let request = out.request;
    let fallback = out.profile.default_max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let limit = request.params.max_tokens.as_ref().map_or(fallback, |given| given.value);
    let mut body = JsonObject(vec![("model", Json::text(out.model)), ("max_tokens", Json::uint(limit))]);
    conversation(out, &mut body);
    let thinking = thinking::thinking(out, limit);
    tools::write(out, &mut body, thinking.budgeted);
    params::write(out, &mut body, thinking);
    body.json()
}

fn conversation(out: &mut EncodeContext<'_>, body: &mut JsonObject) {
    body.put_some("system", messages::system(out));
    let messages = messages::conversation(out);
    body.put("messages", Json::List(messages));
}

/// Encodes the members that the token counter accepts.
fn count(out: &mut EncodeContext<'_>) -> Json {
    let mut body = JsonObject(vec![("model", Json::text(out.model))]);
    conversation(out, &mut body);
    tools::write(out, &mut body, false);
    body.json()
}
