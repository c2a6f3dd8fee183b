//! Encodes turns as items.

use crate::{
    Protocol,
    json_writer::{Json, JsonObject},
    neutral::{
        Media, Part, PartKind, Role, Turn,
        encode_context::{EncodeContext, UpstreamMedia, fenced, is_image},
        signature::SealedItem,
    },
    tree::compact,
};

/// A message. `content` is a string or a list of parts.
pub(super) fn message(role: &str, content: Json) -> Json {
    Json::object([("role", Json::text(role)), ("content", content)])
}

/// Encodes the turns. A history that had only dropped thoughts becomes one blank user message, because upstreams refuse an empty list.
pub(super) fn conversation(out: &mut EncodeContext<'_>) -> Vec<Json> {
    let mut items = Vec::new();
    for turn in out.turns() {
        match turn.role {
            Role::System => items.push(message("developer", texts(turn))),
            Role::User => items.extend(user(out, turn)),
            Role::Model => model(out, turn, &mut items),
            Role::ToolResults => items.extend(turn.parts.iter().filter_map(|part| result(out, part))),
        }
    }
    if items.is_empty() {
        items.push(message("user", Json::text(" ")));
    }
    items
}

fn text_part(text: &str) -> Json {
    Json::object([("type", Json::text("input_text")), ("text", Json::text(text))])
}

/// Instructions within the conversation.
fn texts(turn: &Turn) -> Json {
    let texts: Vec<&str> = turn.parts.iter().filter_map(Part::as_text).collect();
    match texts.as_slice() {
        [only] => Json::text(*only),
        _ => Json::List(texts.into_iter().map(text_part).collect()),
    }
}

fn user(out: &mut EncodeContext<'_>, turn: &Turn) -> Option<Json> {
    if let [Part { kind: PartKind::Text(text), .. }] = turn.parts.as_slice() {
        return Some(message("user", Json::text(text)));
    }
    let mut parts = Vec::with_capacity(turn.parts.len());
    for part in &turn.parts {
        match &part.kind {
            PartKind::Text(text) => parts.push(text_part(text)),
            PartKind::Media(media) => parts.extend(media_part(out, media)),
            PartKind::Code { language, text } => parts.push(text_part(&fenced(language, text))),
            PartKind::CodeOutput { text, .. } => parts.push(text_part(&fenced("", text))),
            PartKind::Think { .. } => out.drop_thought(part),
            PartKind::Call { .. } | PartKind::Result { .. } | PartKind::Opaque { .. } => out.report.refuse_part(&part.path, None),
        }
    }
    (!parts.is_empty()).then(|| message("user", Json::List(parts)))
}

/// Encodes a model turn: adjacent texts as one message, sealed thoughts and calls as separate items, in order. Thoughts at the
/// end, without an item after them, are left out, because the upstream refuses them.
fn model(out: &mut EncodeContext<'_>, turn: &Turn, items: &mut Vec<Json>) {
    let mut text = String::new();
    // The last items, if they are thoughts.
    let mut last_thoughts: Vec<&Part> = Vec::new();
    // Chat callers send the text of sealed thoughts twice.
    let has_sealed = turn.parts.iter().any(|part| SealedItem::of(part.signature.as_ref()).is_some());
    let repeats = has_sealed && out.request.origin == Protocol::OpenAi && takes_sealed(out);
    for part in &turn.parts {
        match &part.kind {
            PartKind::Text(piece) => text.push_str(piece),
            PartKind::Code { language, text: code } => text.push_str(&fenced(language, code)),
            PartKind::CodeOutput { text: output, .. } => text.push_str(&fenced("", output)),
            PartKind::Think { .. } => {
                if let Some(item) = reasoning(out, part) {
                    flush(&mut text, items, &mut last_thoughts);
                    items.push(item);
                    last_thoughts.push(part);
                } else if !repeats {
                    drop_thought(out, part);
                }
            }
            PartKind::Media(media) => out.refuse_media(media),
            PartKind::Call { id, name, args, custom } => {
                flush(&mut text, items, &mut last_thoughts);
                last_thoughts.clear();
                items.push(call(out, id, name, args, *custom));
            }
            PartKind::Result { .. } | PartKind::Opaque { .. } => out.report.refuse_part(&part.path, None),
        }
    }
    flush(&mut text, items, &mut last_thoughts);
    items.truncate(items.len() - last_thoughts.len());
    for part in last_thoughts {
        drop_thought(out, part);
    }
}

/// False for an upstream that accepts only its own account's sealed thoughts, because these may belong to another
/// account.
fn takes_sealed(out: &EncodeContext<'_>) -> bool {
    out.profile.signatures_bound != Some(true)
}

/// Drops a thought. If the upstream is able to read it, the loss is reported to every caller, because the model continues without
/// it.
fn drop_thought(out: &mut EncodeContext<'_>, part: &Part) {
    if !takes_sealed(out) && SealedItem::of(part.signature.as_ref()).is_some() {
        let member = if out.request.is_native() { ".thoughtSignature" } else { "" };
        out.report.drop_field(&format!("{}{member}", part.path));
    }
    out.drop_thought(part);
}

/// Encodes a thought that an upstream of this protocol sealed.
fn reasoning(out: &EncodeContext<'_>, part: &Part) -> Option<Json> {
    let PartKind::Think { text, redacted: None } = &part.kind else { return None };
    let sealed = SealedItem::of(part.signature.as_ref()).filter(|_| takes_sealed(out))?;
    let mut item = JsonObject(vec![("type", Json::text("reasoning"))]);
    item.put_some("id", sealed.id.map(Json::text));
    let summary = Json::object([("type", Json::text("summary_text")), ("text", Json::text(text))]);
    item.put("summary", Json::List((!text.is_empty()).then_some(summary).into_iter().collect()));
    item.put("encrypted_content", Json::text(sealed.content));
    Some(item.json())
}

/// Writes the text so far as a message.
fn flush(text: &mut String, items: &mut Vec<Json>, last_thoughts: &mut Vec<&Part>) {
    if !text.is_empty() {
        last_thoughts.clear();
        items.push(message("assistant", Json::Text(std::mem::take(text))));
    }
}

fn call(out: &EncodeContext<'_>, id: &str, name: &str, args: &str, custom: bool) -> Json {
    let (kind, member, args) = match (custom, out.request.origin) {
        (true, _) => ("custom_tool_call", "input", args.to_owned()),
        (false, Protocol::OpenAi) if args.is_empty() => ("function_call", "arguments", "{}".to_owned()),
        (false, Protocol::OpenAi) => ("function_call", "arguments", args.to_owned()),
        (false, _) => ("function_call", "arguments", compact(args)),
    };
    Json::object([
        ("type", Json::text(kind)),
        ("call_id", Json::text(out.ids.get(id))),
        ("name", Json::text(out.names.get(name))),
        (member, Json::Text(args)),
    ])
}

fn result(out: &mut EncodeContext<'_>, part: &Part) -> Option<Json> {
    let PartKind::Result { call_id, name, content, media, .. } = &part.kind else { return None };
    out.drop_error_flag(part);
    let is_custom = out.request.tools.iter().any(|tool| tool.custom && tool.name == *name);
    let kind = if is_custom { "custom_tool_call_output" } else { "function_call_output" };
    let media: Vec<Json> = media.iter().filter_map(|item| media_part(out, item)).collect();
    let output = if media.is_empty() {
        Json::text(content)
    } else {
        let text = (!content.is_empty()).then(|| text_part(content));
        Json::List(text.into_iter().chain(media).collect())
    };
    Some(Json::object([("type", Json::text(kind)), ("call_id", Json::text(out.ids.get(call_id))), ("output", output)]))
}

fn media_part(out: &mut EncodeContext<'_>, media: &Media) -> Option<Json> {
    let encodable = out.encodable_media(media)?;
    let detail = media.detail.as_deref().or_else(|| out.request.params.media_resolution.as_ref().map(|given| given.value.as_str()));
    let expressible = |detail: &str| out.request.origin == Protocol::OpenAi || matches!(detail, "low" | "high");
    if media.detail.as_deref().is_some_and(|detail| !expressible(detail)) {
        out.report.drop_field(&format!("{}.mediaResolution", media.path));
    }
    let detail = detail.filter(|detail| expressible(detail));
    let image = |url: String| {
        let mut image = JsonObject(vec![("type", Json::text("input_image")), ("image_url", Json::Text(url))]);
        image.put("detail", Json::text(detail.unwrap_or("auto")));
        image.json()
    };
    match encodable {
        UpstreamMedia::Url(mime, url) if is_image(&mime) => Some(image(url)),
        UpstreamMedia::Url(_, url) => Some(Json::object([("type", Json::text("input_file")), ("file_url", Json::Text(url))])),
        UpstreamMedia::Bytes(mime, data) if mime.starts_with("image/") => Some(image(format!("data:{mime};base64,{data}"))),
        UpstreamMedia::Bytes(mime, data) if matches!(mime.as_str(), "audio/wav" | "audio/mp3") => {
            let format = mime.trim_start_matches("audio/");
            let audio = Json::object([("data", Json::Text(data)), ("format", Json::text(format))]);
            Some(Json::object([("type", Json::text("input_audio")), ("input_audio", audio)]))
        }
        UpstreamMedia::Bytes(mime, data) if mime == "application/pdf" => {
            let name = media.name.as_deref().unwrap_or("file.pdf");
            let data = Json::Text(format!("data:{mime};base64,{data}"));
            Some(Json::object([("type", Json::text("input_file")), ("filename", Json::text(name)), ("file_data", data)]))
        }
        UpstreamMedia::Bytes(..) => {
            out.refuse_media(media);
            None
        }
    }
}
