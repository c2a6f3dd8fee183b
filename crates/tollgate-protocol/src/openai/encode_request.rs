//! Encodes requests for chat completions upstreams. Fields the caller did not set are not written, except those the gateway
//! needs.

mod messages;
mod params;
mod tools;

use crate::{
    Method, Protocol,
    json_writer::{Json, JsonObject},
    neutral::{EmbedRequest, Format, Operation, encode_context::EncodeContext},
};

/// Encodes the body; returns it with the upstream's method. The protocol has no token counter, so counts never get here.
pub(crate) fn encode(out: &mut EncodeContext<'_>) -> (Method, Json) {
    match &out.request.operation {
        Operation::Generate | Operation::Count => (Method::Chat, chat(out)),
        Operation::Embed(embed) => (Method::Embeddings, embeddings(out, embed)),
    }
}

fn chat(out: &mut EncodeContext<'_>) -> Json {
    let mut body = JsonObject(vec![("model", Json::text(out.model))]);
    let mut messages = messages::system(out);
    let rest = messages::conversation(out);
    if wants_the_word_json(out) {
        messages::add_system_line(&mut messages, "Respond with JSON.");
    }
    messages.extend(rest);
    body.put("messages", Json::List(messages));
    tools::write(out, &mut body);
    params::write(out, &mut body);
    body.json()
}

/// True for plain JSON mode without the word "json" in any message, which upstreams refuse.
fn wants_the_word_json(out: &EncodeContext<'_>) -> bool {
    let request = out.request;
    let plain_json = request.params.format.as_ref().is_some_and(|format| format.value == Format::Json);
    plain_json && request.origin != Protocol::OpenAi && !messages::mention(request, "json")
}

fn embeddings(out: &mut EncodeContext<'_>, embed: &EmbedRequest) -> Json {
    for given in [&embed.task, &embed.title].into_iter().flatten() {
        out.report.refuse(&given.path);
    }
    let mut body = JsonObject(vec![("model", Json::text(out.model)), ("input", Json::texts(&embed.inputs))]);
    body.put_some("dimensions", embed.dimensions.as_ref().map(|given| Json::Int(given.value.into())));
    // The gateway parses numbers and writes the caller's format itself.
    body.put("encoding_format", Json::text("float"));
    if let Some(user) = &embed.user {
        if out.request.origin == Protocol::OpenAi {
            body.put("user", Json::text(&user.value));
        } else {
            out.report.drop_field(&user.path);
        }
    }
    body.json()
}
