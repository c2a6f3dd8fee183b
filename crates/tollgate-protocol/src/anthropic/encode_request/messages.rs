//! Encodes turns as messages: adjacent messages of one role are merged, and tool results come first in their message. Blank
//! texts are left out, because the API refuses them. The encoding is deterministic, because newer models bind thinking blocks
//! to the exact preceding content.

use crate::{
    Protocol,
    json_writer::{Json, JsonObject},
    neutral::{
        Media, Part, PartKind, Role, Turn,
        encode_context::{EncodeContext, UpstreamMedia, arguments, fenced},
    },
    tree::Tree,
};

/// The text of a user message without other content: one that the caller left blank, one before a history that begins with
/// an assistant message, or one that replaces a history that had only dropped thoughts. The API refuses blank texts and such
/// histories.
const FILLER: &str = ".";

/// Encodes `system`: a string, or blocks for several texts.
pub(super) fn system(out: &EncodeContext<'_>) -> Option<Json> {
    let texts: Vec<&str> = out.system().into_iter().filter_map(Part::as_text).filter(|text| !is_blank(text)).collect();
    match texts.as_slice() {
        [] => None,
        [only] => Some(Json::text(*only)),
        _ => Some(Json::List(texts.into_iter().map(text_block).collect())),
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn text_block(text: &str) -> Json {
    Json::object([("type", Json::text("text")), ("text", Json::text(text))])
}

pub(super) fn conversation(out: &mut EncodeContext<'_>) -> Vec<Json> {
    let mut messages: Vec<(&'static str, Vec<Json>)> = Vec::new();
    for turn in out.turns() {
        let (role, blocks) = match turn.role {
            Role::System | Role::User => ("user", turn.parts.iter().filter_map(|part| user_block(out, part)).collect()),
            Role::ToolResults => ("user", turn.parts.iter().filter_map(|part| result_block(out, part)).collect()),
            Role::Model => ("assistant", model_blocks(out, turn)),
        };
        match messages.last_mut() {
            Some((last, known)) if *last == role => known.extend(blocks),
            _ if role == "assistant" && blocks.is_empty() => {}
            _ => messages.push((role, blocks)),
        }
    }
    if messages.first().is_none_or(|(role, _)| *role == "assistant") {
        messages.insert(0, ("user", Vec::new()));
    }
    for (_, blocks) in messages.iter_mut().filter(|(_, blocks)| blocks.is_empty()) {
        blocks.push(text_block(FILLER));
    }
    if let Some(("assistant", blocks)) = messages.last_mut() {
        trim_prefill(blocks);
    }
    if let (Some(("assistant", _)), Some(turn)) = (messages.last(), out.turns().last())
        && out.profile.prefill == Some(false)
    {
        out.report.refuse_part(&turn.path, Some("the last message may not be the assistant's"));
    }
    let write =
        |(role, blocks): (&'static str, Vec<Json>)| Json::object([("role", Json::text(role)), ("content", content(blocks))]);
    messages.into_iter().map(write).collect()
}

/// Removes white space at the end of the text that the model continues; the API refuses it.
fn trim_prefill(blocks: &mut [Json]) {
    if let Some(Json::Object(members)) = blocks.last_mut()
        && let [(_, Json::Text(kind)), (_, Json::Text(text))] = members.as_mut_slice()
        && kind == "text"
    {
        text.truncate(text.trim_end().len());
    }
}

/// Encodes content; a single text becomes a string.
fn content(mut blocks: Vec<Json>) -> Json {
    if let [Json::Object(members)] = blocks.as_mut_slice()
        && let [(_, Json::Text(kind)), (_, Json::Text(text))] = members.as_mut_slice()
        && kind == "text"
    {
        return Json::Text(std::mem::take(text));
    }
    Json::List(blocks)
}

fn user_block(out: &mut EncodeContext<'_>, part: &Part) -> Option<Json> {
    match &part.kind {
        PartKind::Text(text) => (!is_blank(text)).then(|| text_block(text)),
        PartKind::Media(media) => media_block(out, media),
        PartKind::Code { language, text } => Some(text_block(&fenced(language, text))),
        PartKind::CodeOutput { text, .. } => Some(text_block(&fenced("", text))),
        PartKind::Opaque { protocol: Protocol::Anthropic, raw } => Some(Json::Raw(raw.clone())),
        PartKind::Think { .. } => {
            out.drop_thought(part);
            None
        }
        PartKind::Call { .. } | PartKind::Result { .. } | PartKind::Opaque { .. } => {
            out.report.refuse_part(&part.path, None);
            None
        }
    }
}

/// Encodes a model turn. Adjacent texts are joined into one block; thinking blocks keep their positions.
fn model_blocks(out: &mut EncodeContext<'_>, turn: &Turn) -> Vec<Json> {
    let (mut blocks, mut text) = (Vec::new(), String::new());
    for part in &turn.parts {
        let block = match &part.kind {
            PartKind::Text(piece) => {
                text.push_str(piece);
                continue;
            }
            PartKind::Code { language, text: code } => {
                text.push_str(&fenced(language, code));
                continue;
            }
            PartKind::CodeOutput { text: output, .. } => {
                text.push_str(&fenced("", output));
                continue;
            }
            PartKind::Think { .. } => {
                let block = thinking_block(part);
                if block.is_none() {
                    out.drop_thought(part);
                }
                block
            }
            PartKind::Call { id, name, args, custom } => Some(Json::object([
                ("type", Json::text("tool_use")),
                ("id", Json::text(out.ids.get(id))),
                ("name", Json::text(out.names.get(name))),
                ("input", arguments(args, *custom)),
            ])),
            PartKind::Opaque { protocol: Protocol::Anthropic, raw } => Some(Json::Raw(raw.clone())),
            PartKind::Media(media) => {
                out.refuse_media(media);
                None
            }
            PartKind::Result { .. } | PartKind::Opaque { .. } => {
                out.report.refuse_part(&part.path, None);
                None
            }
        };
        if let Some(block) = block {
            flush_text(&mut text, &mut blocks);
            blocks.push(block);
        }
    }
    flush_text(&mut text, &mut blocks);
    blocks
}

fn flush_text(text: &mut String, blocks: &mut Vec<Json>) {
    let text = std::mem::take(text);
    if !is_blank(&text) {
        blocks.push(text_block(&text));
    }
}

/// Encodes an Anthropic thinking block; `None` for thoughts of other providers.
pub(super) fn thinking_block(part: &Part) -> Option<Json> {
    let PartKind::Think { text, redacted } = &part.kind else { return None };
    if let Some(data) = redacted {
        return Some(Json::object([("type", Json::text("redacted_thinking")), ("data", Json::text(data))]));
    }
    let signature = part.signature.as_ref().filter(|signature| signature.owner == Protocol::Anthropic)?;
    Some(Json::object([
        ("type", Json::text("thinking")),
        ("thinking", Json::text(text)),
        ("signature", Json::text(&signature.value)),
    ]))
}

/// The content of a result that is an error without a text.
const BLANK_ERROR: &str = "error";

fn result_block(out: &mut EncodeContext<'_>, part: &Part) -> Option<Json> {
    let PartKind::Result { call_id, content, json, media, is_error, .. } = &part.kind else { return None };
    let text = if *json && *is_error { error_text(content) } else { content.clone() };
    let mut block = JsonObject(vec![("type", Json::text("tool_result")), ("tool_use_id", Json::text(out.ids.get(call_id)))]);
    let media: Vec<Json> = media.iter().filter_map(|item| media_block(out, item)).collect();
    let text = Some(text).filter(|text| !is_blank(text));
    match (text, media.is_empty()) {
        (Some(text), true) => block.put("content", Json::Text(text)),
        // Blank text is refused, and the content of an error may not be left out.
        (None, true) if *is_error => block.put("content", Json::text(BLANK_ERROR)),
        (None, true) => {}
        (text, false) => {
            let text = text.map(|text| text_block(&text));
            block.put("content", Json::List(text.into_iter().chain(media).collect()));
        }
    }
    if *is_error {
        block.put("is_error", Json::Bool(true));
    }
    Some(block.json())
}

/// The text of `{"error": "…"}`; other error objects are returned unchanged.
fn error_text(content: &str) -> String {
    let tree = Tree::parse(content.as_bytes()).ok();
    let text = tree.as_ref().and_then(|tree| tree.get("error")).and_then(Tree::str);
    text.unwrap_or(content).to_owned()
}

fn media_block(out: &mut EncodeContext<'_>, media: &Media) -> Option<Json> {
    if media.detail.is_some() && out.request.is_native() {
        out.report.drop_field(&format!("{}.mediaResolution", media.path));
    }
    let encodable = out.encodable_media(media)?;
    let base64 = |mime: &str, data: String| {
        Json::object([("type", Json::text("base64")), ("media_type", Json::text(mime)), ("data", Json::Text(data))])
    };
    let (kind, source) = match encodable {
        UpstreamMedia::Bytes(mime, data) if matches!(mime.as_str(), "image/png" | "image/jpeg" | "image/gif" | "image/webp") => {
            ("image", base64(&mime, data))
        }
        UpstreamMedia::Bytes(mime, data) if mime == "application/pdf" => ("document", base64(&mime, data)),
        UpstreamMedia::Url(mime, url) => {
            let kind = if mime == "application/pdf" { "document" } else { "image" };
            (kind, Json::object([("type", Json::text("url")), ("url", Json::Text(url))]))
        }
        UpstreamMedia::Bytes(..) => {
            out.refuse_media(media);
            return None;
        }
    };
    let mut block = JsonObject(vec![("type", Json::text(kind)), ("source", source)]);
    if kind == "document" {
        block.put_some("title", media.name.as_ref().map(Json::text));
    }
    Some(block.json())
}
